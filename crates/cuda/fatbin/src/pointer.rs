//! Images of unknown length, as `cuModuleLoadData` gets them: a pointer to PTX text, to a fatbin,
//! or to the wrapper of one.

use crate::container::{HEADER_BYTES, Header};
use crate::{ELF_MAGIC, FATBIN_MAGIC, Image, ImageError, LTO_IR_MAGIC, MAX_BYTES, elf, read};

pub(crate) const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// The version of a wrapper with a list of parts.
const WRAPPER_WITH_PARTS: u32 = 2;
/// Maximum parts of a list: a longer list is corrupt.
const MAX_PARTS: usize = 1 << 16;

/// Finds the code to run in an image of unknown length, as `cuModuleLoadData` gets it: PTX text
/// ending in a zero byte, a fatbin, or the wrapper of one.
///
/// # Safety
///
/// `image` points at readable memory: text that ends in a zero byte, or a structure that is as long
/// as its own header says. That is what the driver's API asks of its caller.
pub unsafe fn read_pointer<'a>(image: *const u8, newest: u32) -> Result<Image<'a>, ImageError> {
    // SAFETY: the contract is the same.
    let magic = unsafe { magic_of(image) };
    match u32::from_le_bytes(magic) {
        WRAPPER_MAGIC => {
            // SAFETY: the wrapper is two 32-bit words and then a pointer to a fatbin, not aligned
            // for certain.
            let fatbin = unsafe { image.add(8).cast::<*const u8>().read_unaligned() };
            if fatbin.is_null() {
                return Err(ImageError::Unrecognised);
            }
            // SAFETY: the wrapper's pointer is under the same promise.
            let whole = unsafe { read_fatbin_pointer(fatbin, newest)? };
            // SAFETY: a wrapper has a version, and of this version a list.
            match unsafe { (image.add(4).cast::<u32>().read_unaligned(), &whole) } {
                // SAFETY: as above.
                (WRAPPER_WITH_PARTS, Image::MachineCodeOnly(_) | Image::LtoIrOnly) => unsafe {
                    read_parts(image, newest, whole)
                },
                _ => Ok(whole),
            }
        }
        // SAFETY: as promised by the caller.
        FATBIN_MAGIC => unsafe { read_fatbin_pointer(image, newest) },
        _ if magic == ELF_MAGIC => Ok(Image::MachineCodeOnly(vec![])),
        _ if magic == LTO_IR_MAGIC => Ok(Image::LtoIrOnly),
        _ => {
            // SAFETY: neither of the binary forms, so text that ends in a zero byte.
            let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
            read(text.to_bytes(), newest)
        }
    }
}

/// The images behind a pointer as `cuModuleLoadData` gets it, each whole: PTX text without its zero
/// byte, a cubin, or fatbins (of a wrapper with a list, the parts too).
///
/// # Safety
///
/// As [`read_pointer`].
pub unsafe fn whole<'a>(image: *const u8) -> Result<Vec<&'a [u8]>, ImageError> {
    // SAFETY: the contract is the same.
    match unsafe { magic_of(image) } {
        // SAFETY: a wrapper, under the caller's promise.
        magic if magic == WRAPPER_MAGIC.to_le_bytes() => unsafe { whole_of_wrapper(image) },
        // SAFETY: a fatbin, under the caller's promise.
        magic if magic == FATBIN_MAGIC.to_le_bytes() => Ok(vec![unsafe { whole_fatbin(image)? }]),
        // SAFETY: an ELF file, under the caller's promise.
        magic if magic == ELF_MAGIC => Ok(vec![unsafe { whole_elf(image)? }]),
        magic if magic == LTO_IR_MAGIC => Err(ImageError::Unrecognised),
        // SAFETY: none of the binary forms, so text that ends in a zero byte.
        _ => Ok(vec![unsafe { std::ffi::CStr::from_ptr(image.cast()) }.to_bytes()]),
    }
}

/// # Safety
///
/// `wrapper` points at a wrapper.
unsafe fn whole_of_wrapper<'a>(wrapper: *const u8) -> Result<Vec<&'a [u8]>, ImageError> {
    // SAFETY: as in `read_pointer`.
    let fatbin = unsafe { wrapper.add(8).cast::<*const u8>().read_unaligned() };
    if fatbin.is_null() {
        return Err(ImageError::Unrecognised);
    }
    // SAFETY: the wrapper's pointer is under the same promise.
    let mut all = vec![unsafe { whole_fatbin(fatbin)? }];
    // SAFETY: a wrapper has a version, and of this version a list.
    if unsafe { wrapper.add(4).cast::<u32>().read_unaligned() } == WRAPPER_WITH_PARTS {
        // SAFETY: as above.
        for part in unsafe { parts_of(wrapper) } {
            // SAFETY: the list's pointers are under the same promise as the wrapper's.
            all.push(unsafe { whole_fatbin(part)? });
        }
    }
    Ok(all)
}

/// The first four bytes of an image, zeros behind the end of a shorter text.
///
/// # Safety
///
/// As [`read_pointer`].
unsafe fn magic_of(image: *const u8) -> [u8; 4] {
    let mut magic = [0; 4];
    for (offset, byte) in magic.iter_mut().enumerate() {
        // SAFETY: a shorter image is text, and ends before the first byte that is not readable.
        *byte = unsafe { image.add(offset).read() };
        if *byte == 0 {
            break;
        }
    }
    magic
}

/// # Safety
///
/// `image` points at an ELF file of 64 bits, as long as its own headers say.
unsafe fn whole_elf<'a>(image: *const u8) -> Result<&'a [u8], ImageError> {
    // SAFETY: an ELF file of 64 bits has a header.
    let header = unsafe { std::slice::from_raw_parts(image, elf::HEADER_BYTES) };
    let tables = elf::Tables::of(header)?;
    let end = tables.end().filter(|&end| end <= MAX_BYTES).ok_or(ImageError::Truncated)? as usize;
    // SAFETY: the header says that the tables are there.
    let known = unsafe { std::slice::from_raw_parts(image, end) };
    let end = tables.end_of_contents(known)?.max(end as u64);
    if end > MAX_BYTES {
        return Err(ImageError::Truncated);
    }
    // SAFETY: the tables say that so much is there.
    Ok(unsafe { std::slice::from_raw_parts(image, end as usize) })
}

/// The PTX of the parts that a wrapper lists, or `whole` if there is none. Parts of machine code
/// alone are left out: every program that is compiled separately lists NVIDIA's device runtime,
/// used or not.
///
/// # Safety
///
/// `wrapper` points at a wrapper with a list of parts: pointers to fatbins, and then a null.
unsafe fn read_parts<'a>(wrapper: *const u8, newest: u32, whole: Image<'a>) -> Result<Image<'a>, ImageError> {
    let mut texts = Vec::new();
    // SAFETY: the contract is the same.
    for part in unsafe { parts_of(wrapper) } {
        // SAFETY: the list's pointers are under the same promise as the wrapper's.
        if let Image::Ptx(ptx) = unsafe { read_fatbin_pointer(part, newest)? } {
            texts.push(ptx);
        }
    }
    Ok(if texts.is_empty() { whole } else { Image::Parts(texts) })
}

/// The fatbins that a wrapper lists.
///
/// # Safety
///
/// `wrapper` points at a wrapper with a list of parts: pointers to fatbins, and then a null.
unsafe fn parts_of(wrapper: *const u8) -> impl Iterator<Item = *const u8> {
    // SAFETY: after the pointer to the fatbin comes the one to the list.
    let list = unsafe { wrapper.add(16).cast::<*const *const u8>().read_unaligned() };
    let most = if list.is_null() { 0 } else { MAX_PARTS };
    // SAFETY: the list ends with a null, and nothing is read behind the first one.
    (0..most).map(move |index| unsafe { list.add(index).read_unaligned() }).take_while(|part| !part.is_null())
}

/// # Safety
///
/// `fatbin` points at readable memory as long as the header there says.
unsafe fn read_fatbin_pointer<'a>(fatbin: *const u8, newest: u32) -> Result<Image<'a>, ImageError> {
    // SAFETY: the contract is the same.
    read(unsafe { whole_fatbin(fatbin)? }, newest)
}

/// # Safety
///
/// As [`read_fatbin_pointer`].
unsafe fn whole_fatbin<'a>(fatbin: *const u8) -> Result<&'a [u8], ImageError> {
    // SAFETY: a fatbin has a header.
    let header = unsafe { std::slice::from_raw_parts(fatbin, HEADER_BYTES) };
    let fields = Header::read(header)?;
    let bytes = fields.header_bytes.checked_add(fields.payload_bytes).filter(|&bytes| bytes <= MAX_BYTES);
    let bytes = bytes.ok_or(ImageError::Truncated)? as usize;
    // SAFETY: the caller promises that so much is there.
    Ok(unsafe { std::slice::from_raw_parts(fatbin, bytes) })
}
