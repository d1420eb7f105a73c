//! Fatbins: the containers in which nvcc embeds device code, and how the PTX to run is found in
//! one.
//!
//! A fatbin is a header and a row of entries, each with a kind (PTX, cubin, …), the architecture it
//! was compiled for, and a payload that may be compressed. A wrapper, which the host compiler
//! places in the program's data, points at it; the driver is handed either. Code that was compiled
//! separately (`nvcc -rdc=true`) has a wrapper that also lists the fatbins of the parts: PTX is in
//! these, to be linked. NVIDIA documents neither form; field meanings are those that public
//! readers of the format agree on.
//!
//! The bytes come from a program and are not trusted: nothing here reads beyond the size that the
//! header states, and every length is checked against that size.

pub mod cubin;
mod elf;
pub mod kept;

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

const WRAPPER_MAGIC: u32 = 0x4662_43b1;
const FATBIN_MAGIC: u32 = 0xba55_ed50;
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// How LTO-IR begins that is in no fatbin, as NVRTC gives it.
const LTO_IR_MAGIC: [u8; 4] = [0xed, 0x43, 0x4e, 0x7f];

/// The version of a wrapper with a list of parts.
const WRAPPER_WITH_PARTS: u32 = 2;
/// Most parts of a list: a longer one is corrupt, because no program has as many.
const MAX_PARTS: usize = 1 << 16;

const HEADER_BYTES: usize = 16;
const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
const KIND_LTO_IR: u16 = 8;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// Largest length that is believed: no compiler writes a fatbin or PTX that comes near it.
const MAX_BYTES: u64 = 1 << 31;

/// What a program handed over to be loaded.
#[derive(Debug, PartialEq, Eq)]
pub enum Image<'a> {
    /// PTX as text.
    Ptx(Cow<'a, [u8]>),
    /// PTX of parts that are to be linked.
    Parts(Vec<Cow<'a, [u8]>>),
    /// Machine code for a GPU, and no PTX: the architectures it is for (80 for sm_80).
    MachineCodeOnly(Vec<u32>),
    /// NVIDIA's intermediate code for link-time optimisation, and neither PTX nor machine code.
    LtoIrOnly,
}

/// Why an image can't be read.
#[derive(Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The image is in no format that this module knows.
    Unrecognised,
    /// A length or offset points outside of the image.
    Truncated,
    /// A payload does not decompress to the size that its entry states.
    Corrupt,
}

impl fmt::Display for ImageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Unrecognised => write!(formatter, "the image is neither PTX, a cubin nor a fatbin"),
            ImageError::Truncated => {
                write!(formatter, "the fatbin is truncated: a length points outside of it")
            }
            ImageError::Corrupt => write!(formatter, "the fatbin's compressed PTX is corrupt"),
        }
    }
}

/// Architectures in words: `sm_80, sm_90`.
pub struct Architectures<'a>(pub &'a [u32]);

impl fmt::Display for Architectures<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|architecture| format!("sm_{architecture}")).collect();
        formatter.write_str(&names.join(", "))
    }
}

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
        if let Image::Ptx(text) = unsafe { read_fatbin_pointer(part, newest)? } {
            texts.push(text);
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

/// Finds the code to run in an image whose length is known: the PTX for the newest architecture up
/// to `newest`. Where there is only PTX for newer ones, the oldest of that: it runs unless it uses
/// what is new.
pub fn read(image: &[u8], newest: u32) -> Result<Image<'_>, ImageError> {
    if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return choose(image, newest);
    }
    if image.starts_with(&ELF_MAGIC) {
        return Ok(Image::MachineCodeOnly(vec![]));
    }
    if image.starts_with(&LTO_IR_MAGIC) {
        return Ok(Image::LtoIrOnly);
    }
    let text = image.split(|&byte| byte == 0).next().unwrap_or_default();
    if looks_like_ptx(text) { Ok(Image::Ptx(Cow::Borrowed(text))) } else { Err(ImageError::Unrecognised) }
}

/// The machine code in an image whose length is known: of a cubin, itself; of a fatbin, that for
/// each architecture, without what does not decompress.
///
/// # Errors
/// A fatbin that is truncated.
pub fn machine_code(image: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, ImageError> {
    if image.starts_with(&ELF_MAGIC) {
        return Ok(vec![Cow::Borrowed(image)]);
    }
    if !image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return Ok(Vec::new());
    }
    let entries: Vec<_> = Entries::of(image)?.collect::<Result<_, _>>()?;
    let cubins = entries.iter().filter(|entry| entry.kind == KIND_CUBIN);
    Ok(cubins.filter_map(|entry| entry.expanded().ok()).collect())
}

/// Whether these bytes are text. The parser says, with a line number, whether it is valid PTX.
fn looks_like_ptx(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| byte >= b' ' || byte.is_ascii_whitespace() || byte == 0x0b)
}

fn choose(image: &[u8], newest: u32) -> Result<Image<'_>, ImageError> {
    let mut cubins = Vec::new();
    let mut has_lto_ir = false;
    let mut best: Option<Entry<'_>> = None;
    for entry in Entries::of(image)? {
        let entry = entry?;
        match entry.kind {
            KIND_PTX if best.as_ref().is_none_or(|best| entry.suits_better(best, newest)) => {
                best = Some(entry)
            }
            KIND_CUBIN => cubins.push(entry.architecture),
            KIND_LTO_IR => has_lto_ir = true,
            _ => {}
        }
    }
    match best {
        Some(entry) => Ok(Image::Ptx(entry.text()?)),
        None if has_lto_ir && cubins.is_empty() => Ok(Image::LtoIrOnly),
        None => Ok(Image::MachineCodeOnly(cubins)),
    }
}

struct Header {
    header_bytes: u64,
    payload_bytes: u64,
}

impl Header {
    fn read(image: &[u8]) -> Result<Header, ImageError> {
        if u32_at(image, 0)? != FATBIN_MAGIC {
            return Err(ImageError::Unrecognised);
        }
        let header_bytes = u64::from(u16_at(image, 6)?);
        if header_bytes < HEADER_BYTES as u64 {
            return Err(ImageError::Truncated);
        }
        Ok(Header { header_bytes, payload_bytes: u64_at(image, 8)? })
    }
}

struct Entry<'a> {
    kind: u16,
    architecture: u32,
    flags: u64,
    payload: &'a [u8],
    /// The length of the payload once decompressed; 0 when it is not compressed.
    expanded_bytes: u64,
}

impl<'a> Entry<'a> {
    /// Whether to run this rather than `other`: the newest of those up to `newest`, else the
    /// oldest. If two are for the same architecture, the later one counts, as it does for the
    /// driver.
    fn suits_better(&self, other: &Entry<'_>, newest: u32) -> bool {
        match (self.architecture <= newest, other.architecture <= newest) {
            (true, true) => self.architecture >= other.architecture,
            (false, false) => self.architecture < other.architecture,
            (fits, _) => fits,
        }
    }

    /// The entry's PTX, decompressed and without the zero bytes that pad it.
    fn text(&self) -> Result<Cow<'a, [u8]>, ImageError> {
        let bytes = self.expanded()?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..end]),
            Cow::Owned(mut bytes) => {
                bytes.truncate(end);
                Cow::Owned(bytes)
            }
        })
    }

    /// The entry's payload, decompressed.
    fn expanded(&self) -> Result<Cow<'a, [u8]>, ImageError> {
        let is_compressed = self.flags & (FLAG_LZ4 | FLAG_ZSTD) != 0;
        Ok(if is_compressed { Cow::Owned(self.decompress()?) } else { Cow::Borrowed(self.payload) })
    }

    fn decompress(&self) -> Result<Vec<u8>, ImageError> {
        if self.expanded_bytes > MAX_BYTES {
            return Err(ImageError::Corrupt);
        }
        let expanded = if self.flags & FLAG_ZSTD != 0 { self.unpack_zstd()? } else { self.unpack_lz4()? };
        if expanded.len() as u64 == self.expanded_bytes { Ok(expanded) } else { Err(ImageError::Corrupt) }
    }

    fn unpack_lz4(&self) -> Result<Vec<u8>, ImageError> {
        expand_lz4(self.payload, self.expanded_bytes)
    }

    fn unpack_zstd(&self) -> Result<Vec<u8>, ImageError> {
        let decoder =
            ruzstd::decoding::StreamingDecoder::new(self.payload).map_err(|_| ImageError::Corrupt)?;
        let mut expanded = Vec::new();
        decoder.take(self.expanded_bytes + 1).read_to_end(&mut expanded).map_err(|_| ImageError::Corrupt)?;
        Ok(expanded)
    }
}

/// A block of LZ4, which expands to so many bytes.
fn expand_lz4(block: &[u8], expanded_bytes: u64) -> Result<Vec<u8>, ImageError> {
    // LZ4 expands at most 255 times: a larger claim is corrupt, and must not be allocated for.
    if expanded_bytes > MAX_BYTES || expanded_bytes > block.len() as u64 * 256 {
        return Err(ImageError::Corrupt);
    }
    let expanded = lz4_flex::block::decompress(block, expanded_bytes as usize);
    expanded.ok().filter(|bytes| bytes.len() as u64 == expanded_bytes).ok_or(ImageError::Corrupt)
}

/// The entries of a fatbin, in file order.
struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    fn of(image: &'a [u8]) -> Result<Entries<'a>, ImageError> {
        let header = Header::read(image)?;
        let start = header.header_bytes as usize;
        let end =
            header.header_bytes.checked_add(header.payload_bytes).and_then(|end| usize::try_from(end).ok());
        let rest = image.get(start..end.ok_or(ImageError::Truncated)?).ok_or(ImageError::Truncated)?;
        Ok(Entries { rest })
    }

    /// An entry's header: kind u16 at 0, header bytes u32 at 4, padded payload bytes u64 at 8,
    /// compressed bytes u32 at 16, architecture u32 at 28, flags u64 at 40, expanded bytes u64 at
    /// 56.
    fn read_next(&mut self) -> Result<Entry<'a>, ImageError> {
        let entry = self.rest;
        let header_bytes = u32_at(entry, 4)? as usize;
        let padded = usize::try_from(u64_at(entry, 8)?).map_err(|_| ImageError::Truncated)?;
        let end = header_bytes.checked_add(padded).filter(|&end| end > 0).ok_or(ImageError::Truncated)?;
        let padded_payload = entry.get(header_bytes..end).ok_or(ImageError::Truncated)?;
        let flags = u64_at(entry, 40)?;
        let compressed = u32_at(entry, 16)? as usize;
        let payload = if flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
            padded_payload
        } else {
            padded_payload.get(..compressed).ok_or(ImageError::Truncated)?
        };
        let expanded_bytes = u64_at(entry, 56).unwrap_or(0);
        self.rest = &entry[end..];
        Ok(Entry {
            kind: u16_at(entry, 0)?,
            architecture: u32_at(entry, 28)?,
            flags,
            payload,
            expanded_bytes,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.read_next();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], ImageError> {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().ok_or(ImageError::Truncated)
}

fn u16_at(bytes: &[u8], offset: usize) -> Result<u16, ImageError> {
    bytes_at(bytes, offset).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Result<u32, ImageError> {
    bytes_at(bytes, offset).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Result<u64, ImageError> {
    bytes_at(bytes, offset).map(u64::from_le_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From nvcc 13.0: PTX for compute_75, 80 and 90 and a cubin for sm_80, compressed as nvcc does
    /// by default.
    pub(crate) const FROM_NVCC: &[u8] = include_bytes!("../tests/data/three_ptx_one_cubin_zstd.fatbin");

    fn entry(kind: u16, architecture: u32, flags: u64, payload: &[u8], expanded_bytes: u64) -> Vec<u8> {
        let padded = payload.len().next_multiple_of(8);
        let mut entry = vec![0; 64];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[4..8].copy_from_slice(&64u32.to_le_bytes());
        entry[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        entry[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        entry[28..32].copy_from_slice(&architecture.to_le_bytes());
        entry[40..48].copy_from_slice(&flags.to_le_bytes());
        entry[56..64].copy_from_slice(&expanded_bytes.to_le_bytes());
        entry.extend_from_slice(payload);
        entry.resize(64 + padded, 0);
        entry
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let payload = entries.concat();
        let mut image = FATBIN_MAGIC.to_le_bytes().to_vec();
        image.extend_from_slice(&[1, 0, 16, 0]);
        image.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        image.extend_from_slice(&payload);
        image
    }

    fn ptx_of(image: &[u8], newest: u32) -> String {
        match read(image, newest) {
            Ok(Image::Ptx(text)) => String::from_utf8(text.into_owned()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn takes_the_newest_ptx_that_the_device_can_run() {
        assert!(ptx_of(FROM_NVCC, 80).contains(".target sm_80"));
        assert!(ptx_of(FROM_NVCC, 89).contains(".target sm_80"));
        assert!(ptx_of(FROM_NVCC, 75).contains(".target sm_75"));
        assert!(ptx_of(FROM_NVCC, 70).contains(".target sm_75"), "rather try than refuse");
    }

    #[test]
    fn reads_plain_and_lz4_payloads() {
        let text = "// PTX that repeats itself, repeats itself, repeats itself, repeats itself".repeat(20);
        let packed = lz4_flex::block::compress(text.as_bytes());
        let plain = fatbin(&[entry(KIND_PTX, 80, 0, text.as_bytes(), 0)]);
        let lz4 = fatbin(&[entry(KIND_PTX, 80, FLAG_LZ4, &packed, text.len() as u64)]);
        assert_eq!(ptx_of(&plain, 80), text);
        assert_eq!(ptx_of(&lz4, 80), text);
        let lying = fatbin(&[entry(KIND_PTX, 80, FLAG_LZ4, &packed, text.len() as u64 - 1)]);
        assert_eq!(read(&lying, 80), Err(ImageError::Corrupt));
    }

    #[test]
    fn says_when_there_is_only_machine_code() {
        let image =
            fatbin(&[entry(KIND_CUBIN, 80, 0, b"\x7fELF....", 0), entry(KIND_CUBIN, 90, 0, b"\x7fELF", 0)]);
        assert_eq!(read(&image, 80), Ok(Image::MachineCodeOnly(vec![80, 90])));
        assert_eq!(read(b"\x7fELF\x02\x01", 80), Ok(Image::MachineCodeOnly(vec![])));
    }

    #[test]
    fn machine_code_is_found_however_it_is_packed() {
        let code = include_bytes!("../tests/data/four_kernels_sm_90.cubin");
        let packed = lz4_flex::block::compress(code);
        let image = fatbin(&[
            entry(KIND_PTX, 80, 0, b"// text", 0),
            entry(KIND_CUBIN, 90, FLAG_LZ4, &packed, code.len() as u64),
            entry(KIND_CUBIN, 90, FLAG_LZ4, &packed[1..], code.len() as u64),
        ]);
        assert_eq!(machine_code(&image).unwrap(), [&code[..]]);
        assert_eq!(machine_code(code).unwrap(), [&code[..]]);
        assert!(machine_code(b"// text").unwrap().is_empty());
        // As nvcc 13 packs it.
        let [from_nvcc] = &machine_code(FROM_NVCC).unwrap()[..] else { panic!("one") };
        assert!(from_nvcc.starts_with(&ELF_MAGIC));
        assert_eq!(machine_code(&image[..90]), Err(ImageError::Truncated));
    }

    #[test]
    fn says_when_there_is_only_lto_ir() {
        let lto = || entry(KIND_LTO_IR, 90, 0, b"........", 0);
        assert_eq!(read(&fatbin(&[lto()]), 80), Ok(Image::LtoIrOnly));
        assert_eq!(ptx_of(&fatbin(&[lto(), entry(KIND_PTX, 90, 0, b"//", 0)]), 80), "//");
        let cubin = entry(KIND_CUBIN, 90, 0, b"\x7fELF", 0);
        assert_eq!(read(&fatbin(&[lto(), cubin]), 80), Ok(Image::MachineCodeOnly(vec![90])));
        // From NVRTC 13.0, as far as it matters.
        let bare = [0xed, 0x43, 0x4e, 0x7f, 0x01, 0x41, 0x02, 0x62, 0x03, 0x02, 0x07, 0x00];
        assert_eq!(read(&bare, 80), Ok(Image::LtoIrOnly));
        // SAFETY: no more than the first bytes are looked at.
        assert_eq!(unsafe { read_pointer(bare.as_ptr(), 80) }, Ok(Image::LtoIrOnly));
    }

    #[test]
    fn follows_wrappers_and_plain_text() {
        let mut wrapper = WRAPPER_MAGIC.to_le_bytes().to_vec();
        wrapper.extend_from_slice(&1u32.to_le_bytes());
        wrapper.extend_from_slice(&(FROM_NVCC.as_ptr() as u64).to_le_bytes());
        wrapper.extend_from_slice(&0u64.to_le_bytes());
        let text = c".version 8.0";
        // SAFETY: a wrapper around a whole fatbin, a whole fatbin, and text that ends in a zero
        // byte.
        unsafe {
            assert_eq!(read_pointer(wrapper.as_ptr(), 80), read(FROM_NVCC, 80));
            assert_eq!(read_pointer(FROM_NVCC.as_ptr(), 80), read(FROM_NVCC, 80));
            let image = read_pointer(text.as_ptr().cast(), 80);
            assert_eq!(image, Ok(Image::Ptx(Cow::Borrowed(text.to_bytes()))));
            assert_eq!(read_pointer(c"".as_ptr().cast(), 80), Err(ImageError::Unrecognised));
        }
    }

    proptest! {
        #[test]
        fn never_panics_on_damaged_images(
            damage in proptest::collection::vec((0..FROM_NVCC.len(), any::<u8>()), 0..8),
            length in 0..=FROM_NVCC.len(),
        ) {
            let mut image = FROM_NVCC[..length].to_vec();
            for (at, byte) in damage {
                if let Some(place) = image.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = read(&image, 80);
        }

        #[test]
        fn never_panics_on_noise(mut image in proptest::collection::vec(any::<u8>(), 16..400)) {
            image[..4].copy_from_slice(&FATBIN_MAGIC.to_le_bytes());
            let _ = read(&image, 80);
            image[4..16].copy_from_slice(&[1, 0, 16, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            let _ = read(&image, 80);
        }
    }
}
