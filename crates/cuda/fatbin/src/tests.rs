//! Fatbins as nvcc writes them, made by hand, and damaged.

use super::*;
use crate::container::FLAG_LZ4;
use crate::pointer::WRAPPER_MAGIC;
use proptest::prelude::*;

/// From nvcc 13.0: PTX for compute_75, 80 and 90 and a cubin for sm_80, compressed as nvcc does
/// by default.
pub(crate) const FROM_NVCC: &[u8] = include_bytes!("../tests/data/three_ptx_one_cubin_zstd.fatbin");

pub(crate) fn entry(
    kind: u16,
    architecture: u32,
    flags: u64,
    payload: &[u8],
    expanded_bytes: u64,
) -> Vec<u8> {
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

pub(crate) fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
    let payload = entries.concat();
    let mut image = FATBIN_MAGIC.to_le_bytes().to_vec();
    image.extend_from_slice(&[1, 0, 16, 0]);
    image.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    image.extend_from_slice(&payload);
    image
}

fn ptx_of(image: &[u8], newest: u32) -> String {
    match read(image, newest) {
        Ok(Image::Ptx(ptx)) => String::from_utf8(ptx.text.into_owned()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// From nvcc 13.4 with `--concat`: PTX for compute_80 and 75 in one entry, cubins for sm_80 and 90
/// in another, compressed with zstd; with LZ4 (`--compress-mode=speed`); and from nvFatbin 13.4
/// with `-concat` and identifiers: two PTX and one cubin.
const CONCATENATED: [(&[u8], &[u32]); 3] = [
    (include_bytes!("../tests/data/concatenated_zstd.fatbin"), &[80, 90]),
    (include_bytes!("../tests/data/concatenated_lz4.fatbin"), &[80, 90]),
    (include_bytes!("../tests/data/concatenated_identifiers.fatbin"), &[80]),
];

#[test]
fn parts_of_concatenated_entries_are_entries() {
    for (image, cubins) in CONCATENATED {
        assert!(ptx_of(image, 90).contains(".target sm_80"));
        // nvFatbin was given the same text twice.
        let older = if cubins.len() == 2 { ".target sm_75" } else { ".target sm_80" };
        assert!(ptx_of(image, 75).contains(older));
        let code = machine_code(image).unwrap();
        assert_eq!(code.len(), cubins.len());
        assert!(code.iter().all(|cubin| cubin.starts_with(&ELF_MAGIC)));
        let entries: Vec<_> = Entries::of(image).unwrap().map(Result::unwrap).collect();
        let of = |kind| -> Vec<u32> {
            entries.iter().filter(|entry| entry.kind == kind).map(|entry| entry.architecture).collect()
        };
        assert_eq!((of(KIND_PTX), of(KIND_CUBIN)), (vec![80, 75], cubins.to_vec()));
        assert!(kept::has_ptx(image));
        for architecture in [75, 90] {
            let kept = kept::select(image, architecture);
            assert!(ptx_of(&kept, architecture).contains(".target sm_"));
            let runs = cubins.contains(&architecture);
            assert_eq!(machine_code(&kept).unwrap().len(), if runs { cubins.len() } else { 0 });
        }
    }
}

#[test]
fn a_damaged_part_spares_the_others() {
    let (image, cubins) = CONCATENATED[1];
    let mut damaged = image.to_vec();
    // The last bytes belong to the compressed cubins.
    let end = damaged.len() - 40;
    damaged[end..].fill(0xff);
    assert!(ptx_of(&damaged, 90).contains(".target sm_80"));
    assert!(machine_code(&damaged).unwrap().len() < cubins.len());
    // A table that lists more parts than it has room for.
    let mut damaged = image.to_vec();
    damaged[16 + 64..16 + 68].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(read(&damaged, 90), Err(ImageError::Truncated));
}

proptest! {
    #[test]
    fn damaged_concatenated_entries_do_no_harm(which in 0..3usize, at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut damaged = CONCATENATED[which].0.to_vec();
        // Headers and tables rather than what is compressed.
        let places = if byte.is_multiple_of(2) { 300 } else { damaged.len() };
        let at = at.index(places);
        damaged[at] = byte;
        let cut = cut.index(damaged.len());
        for image in [&damaged[..], &damaged[..cut]] {
            let _ = read(image, 80);
            let _ = machine_code(image);
            let _ = kept::select(image, 90);
        }
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
fn ptx_of_newer_devices_may_lie_beside_machine_code_for_this_one() {
    let ptx = b".version 9.0\n.target sm_120\n.address_size 64\n";
    let is_beside = |architecture| {
        let cubin = entry(KIND_CUBIN, architecture, 0, &ELF_MAGIC, 0);
        match read(&fatbin(&[cubin, entry(KIND_PTX, 120, 0, ptx, 0)]), 86) {
            Ok(Image::Ptx(found)) => found.beside_machine_code,
            other => panic!("{other:?}"),
        }
    };
    for (architecture, expected) in [(75, false), (80, true), (86, true), (89, false), (90, false)] {
        assert_eq!(is_beside(architecture), expected, "{architecture}");
    }
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
        assert_eq!(
            image,
            Ok(Image::Ptx(Ptx { text: Cow::Borrowed(text.to_bytes()), beside_machine_code: false }))
        );
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
