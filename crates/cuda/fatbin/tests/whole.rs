//! Images of unknown length, as programs hand them to the driver: that each is found whole.

use std::ptr::null;

const CUBIN: &[u8] = include_bytes!("data/four_kernels_sm_90.cubin");
const OLD_CUBIN: &[u8] = include_bytes!("data/four_kernels_sm_80.cubin");
const FATBIN: &[u8] = include_bytes!("data/three_ptx_one_cubin_zstd.fatbin");

/// As the host compiler writes it: magic, version, a fatbin, and a list of fatbins that ends with a
/// null.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    fatbin: *const u8,
    parts: *const *const u8,
}

impl Wrapper {
    fn of(version: u32, fatbin: *const u8, parts: *const *const u8) -> Self {
        Self { magic: 0x4662_43b1, version, fatbin, parts }
    }

    fn whole(&self) -> Result<Vec<&'static [u8]>, fatbin::ImageError> {
        // SAFETY: a wrapper whose pointers are null or point at whole fatbins of this file.
        unsafe { fatbin::whole((&raw const *self).cast()) }
    }
}

/// The image in front of other bytes, so that a wrong length shows.
fn whole(image: &[u8]) -> Vec<Vec<u8>> {
    let followed = [image, &[0xaa; 64]].concat();
    // SAFETY: what the functions' contract names, and bytes behind it.
    unsafe { fatbin::whole(followed.as_ptr()) }.unwrap().into_iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn binary_images_end_where_their_headers_say() {
    for image in [CUBIN, OLD_CUBIN, FATBIN] {
        assert_eq!(whole(image), [image]);
    }
}

#[test]
fn text_ends_at_its_zero_byte() {
    assert_eq!(whole(b".version 8.0\0"), [b".version 8.0"]);
    assert_eq!(whole(b"\0"), [b""]);
}

#[test]
fn wrappers_are_followed_to_each_of_their_parts() {
    let list = [FATBIN.as_ptr(), FATBIN.as_ptr(), null()];
    assert_eq!(Wrapper::of(1, FATBIN.as_ptr(), list.as_ptr()).whole().unwrap(), [FATBIN]);
    assert_eq!(Wrapper::of(2, FATBIN.as_ptr(), list.as_ptr()).whole().unwrap(), [FATBIN; 3]);
    assert_eq!(Wrapper::of(2, FATBIN.as_ptr(), null()).whole().unwrap(), [FATBIN]);
    assert!(Wrapper::of(1, null(), null()).whole().is_err());
}

/// A file of 64 bits with nothing but a header, in which the word at this place is another.
fn header_with(at: usize, value: u64) -> [u8; 64] {
    let mut header = [0; 64];
    header[..5].copy_from_slice(b"\x7fELF\x02");
    (header[54], header[58]) = (56, 64);
    header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    header
}

#[test]
fn an_elf_file_that_claims_the_absurd_is_refused() {
    assert_eq!(whole(&header_with(16, 0)), [header_with(16, 0)]);
    // Tables beyond all memory: one segment, or one section, at the end of the address space.
    for (table, count) in [(32, 56), (40, 60)] {
        let mut header = header_with(table, u64::MAX - 8);
        header[count] = 1;
        // SAFETY: nothing beyond the header is read where the tables cannot be there.
        assert!(unsafe { fatbin::whole(header.as_ptr()) }.is_err());
    }
}
