//! Images as a session stores them: the parts that matter on a device, compressed.
//!
//! A program loads fatbins with machine code for many architectures. [`select`] keeps the parts
//! that can describe launches on one device: all PTX, and machine code for the device's
//! architecture. [`pack`] writes these parts into one file, and [`unpack`] reads it without
//! trusting it.

use crate::container::{Entries, Entry, Header, KIND_CUBIN, KIND_PTX, expand_lz4};
use crate::{FATBIN_MAGIC, Image, ImageError, MAX_BYTES, u64_at};
use std::borrow::Cow;

/// First bytes of a packed image.
const MAGIC: [u8; 8] = *b"APEXIMG\n";
/// Magic, number of parts.
const HEAD_BYTES: usize = 16;
/// Most parts of an image.
const MOST_PARTS: usize = 1 << 12;

/// Of an image whose length is known, what can tell about launches on a device of this architecture
/// (90 for 9.0): of a fatbin, its PTX and its machine code for the newest architecture of the same
/// major version up to that. Other images stay as they are, and so do damaged ones.
pub fn select(image: &[u8], architecture: u32) -> Cow<'_, [u8]> {
    if !image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return Cow::Borrowed(image);
    }
    let best = newest(image, KIND_CUBIN, |of| of <= architecture && of / 10 == architecture / 10);
    // Of concatenated entries, one part that matters keeps all.
    let matters = |part: &Entry<'_>| {
        part.kind == KIND_PTX || part.kind == KIND_CUBIN && Some(part.architecture) == best
    };
    selected(image, matters).map_or(Cow::Borrowed(image), Cow::Owned)
}

/// Of an image whose length is known, its PTX that runs on devices of this architecture: text as it
/// is; of a fatbin, the PTX for the newest architecture up to that. `None` where there is none, and
/// for a fatbin that is damaged.
pub fn select_ptx(image: &[u8], architecture: u32) -> Option<Cow<'_, [u8]>> {
    if !image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return has_ptx(image).then_some(Cow::Borrowed(image));
    }
    let best = newest(image, KIND_PTX, |of| of <= architecture)?;
    let matters = |part: &Entry<'_>| (part.kind, part.architecture) == (KIND_PTX, best);
    selected(image, matters).ok().map(Cow::Owned)
}

/// The newest architecture that a fatbin has entries of a kind for, of those that suit; `None` for
/// a fatbin that is damaged before that.
fn newest(image: &[u8], kind: u16, suits: impl Fn(u32) -> bool) -> Option<u32> {
    let entries = Entries::of(image).ok()?.map_while(Result::ok);
    entries
        .filter(|entry| entry.kind == kind && suits(entry.architecture))
        .map(|entry| entry.architecture)
        .max()
}

/// Whether an image whose length is known has PTX: as text, or in a fatbin, packed or not.
pub fn has_ptx(image: &[u8]) -> bool {
    if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return Entries::of(image).is_ok_and(|entries| entries.flatten().any(|entry| entry.kind == KIND_PTX));
    }
    matches!(crate::read(image, 0), Ok(Image::Ptx(_)))
}

/// A fatbin of those entries that have a part that matters.
fn selected(image: &[u8], matters: impl Fn(&Entry<'_>) -> bool) -> Result<Vec<u8>, ImageError> {
    let header_bytes = Header::read(image)?.header_bytes as usize;
    let mut kept = Vec::new();
    kept.try_reserve_exact(image.len()).map_err(|_| ImageError::Truncated)?;
    kept.extend_from_slice(image.get(..header_bytes).ok_or(ImageError::Truncated)?);
    let mut entries = Entries::of(image)?;
    while !entries.rest.is_empty() {
        let from = entries.rest;
        let entry = entries.read_next()?;
        let whole = &from[..from.len() - entries.rest.len()];
        if entry.parts()?.iter().any(&matters) {
            kept.extend_from_slice(whole);
        }
    }
    let payload_bytes = (kept.len() - header_bytes) as u64;
    kept[8..16].copy_from_slice(&payload_bytes.to_le_bytes());
    Ok(kept)
}

/// Writes the parts of an image into one file: magic, their number (u64), then of each its length
/// and the length of its block (u64 each), then the blocks, compressed as LZ4 does. `None` if there
/// is no memory for it, or there are too many parts.
pub fn pack(parts: &[Cow<'_, [u8]>]) -> Option<Vec<u8>> {
    let most: usize = parts.iter().map(|part| lz4_flex::block::get_maximum_output_size(part.len())).sum();
    let head = HEAD_BYTES + 16 * parts.len();
    let mut packed = Vec::new();
    if parts.len() > MOST_PARTS || packed.try_reserve_exact(head + most).is_err() {
        return None;
    }
    packed.extend_from_slice(&MAGIC);
    packed.extend_from_slice(&(parts.len() as u64).to_le_bytes());
    packed.resize(head, 0);
    for (index, part) in parts.iter().enumerate() {
        let from = packed.len();
        packed.resize(from + lz4_flex::block::get_maximum_output_size(part.len()), 0);
        let bytes = lz4_flex::block::compress_into(part, &mut packed[from..]).ok()?;
        packed.truncate(from + bytes);
        let lengths = &mut packed[HEAD_BYTES + 16 * index..][..16];
        lengths[..8].copy_from_slice(&(part.len() as u64).to_le_bytes());
        lengths[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
    }
    Some(packed)
}

/// The parts that [`pack`] was given.
///
/// # Errors
/// Bytes that it did not write.
pub fn unpack(packed: &[u8]) -> Result<Vec<Vec<u8>>, ImageError> {
    if !packed.starts_with(&MAGIC) {
        return Err(ImageError::Unrecognised);
    }
    let count = usize::try_from(u64_at(packed, 8)?).ok().filter(|&count| count <= MOST_PARTS);
    let count = count.ok_or(ImageError::Corrupt)?;
    let mut rest = packed.get(HEAD_BYTES + 16 * count..).ok_or(ImageError::Truncated)?;
    let mut parts = Vec::new();
    for index in 0..count {
        let lengths = HEAD_BYTES + 16 * index;
        let (length, bytes) = (u64_at(packed, lengths)?, u64_at(packed, lengths + 8)?);
        let block = usize::try_from(bytes).ok().and_then(|bytes| rest.split_at_checked(bytes));
        let (block, behind) = block.ok_or(ImageError::Truncated)?;
        parts.push(expand_lz4(block, length.min(MAX_BYTES + 1))?);
        rest = behind;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read, tests::FROM_NVCC as FATBIN};
    use proptest::prelude::*;

    #[test]
    fn a_selected_fatbin_has_its_ptx_and_the_machine_code_that_runs() {
        for (architecture, cubins) in [(86, vec![80]), (90, vec![]), (75, vec![])] {
            let kept = select(FATBIN, architecture);
            let found: Vec<_> = Entries::of(&kept).unwrap().map(|entry| entry.unwrap()).collect();
            let of = |kind| -> Vec<u32> {
                found.iter().filter(|entry| entry.kind == kind).map(|entry| entry.architecture).collect()
            };
            assert_eq!((of(KIND_PTX), of(KIND_CUBIN)), (vec![75, 80, 90], cubins), "sm_{architecture}");
            assert!(matches!(read(&kept, 80).unwrap(), Image::Ptx(_)));
        }
    }

    #[test]
    fn without_machine_code_the_ptx_that_runs_is_kept() {
        for (architecture, ptx) in [(86, Some(80)), (90, Some(90)), (120, Some(90)), (70, None)] {
            let kept = select_ptx(FATBIN, architecture);
            let of = |kept: &[u8]| -> Vec<_> {
                let entries = Entries::of(kept).unwrap().map(|entry| entry.unwrap());
                entries.map(|entry| (entry.kind, entry.architecture)).collect()
            };
            assert_eq!(kept.map(|kept| of(&kept)), ptx.map(|ptx| vec![(KIND_PTX, ptx)]), "sm_{architecture}");
        }
        let code = include_bytes!("../tests/data/four_kernels_sm_90.cubin");
        assert_eq!(select_ptx(code, 90), None);
        assert_eq!(select_ptx(b".version 8.0", 90), Some(Cow::Borrowed(&b".version 8.0"[..])));
    }

    #[test]
    fn text_stays_as_it_is() {
        assert_eq!(select(b".version 8.0", 90), Cow::Borrowed(b".version 8.0"));
    }

    #[test]
    fn ptx_is_seen_however_it_is_packed() {
        let code = include_bytes!("../tests/data/four_kernels_sm_90.cubin");
        assert!(has_ptx(FATBIN) && has_ptx(b".version 8.0\0"));
        assert!(!has_ptx(code) && !has_ptx(b"") && !has_ptx(&FATBIN[..20]));
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4)) {
            let borrowed: Vec<_> = parts.iter().map(|part| Cow::Borrowed(&part[..])).collect();
            let packed = pack(&borrowed).unwrap();
            prop_assert_eq!(unpack(&packed).unwrap(), parts);
        }

        #[test]
        fn damage_is_an_error_or_other_bytes(at in 0..400usize, byte: u8, cut in 0..400usize) {
            let mut packed = pack(&[Cow::Borrowed(FATBIN), Cow::Borrowed(b"text")]).unwrap();
            let at = at % packed.len();
            packed[at] = byte;
            let _ = unpack(&packed);
            let _ = unpack(&packed[..cut.min(packed.len())]);
        }

        #[test]
        fn a_damaged_fatbin_is_selected_from_without_harm(at in 0..FATBIN.len(), byte: u8, architecture in 0..130u32) {
            let mut damaged = FATBIN.to_vec();
            damaged[at] = byte;
            let _ = select(&damaged, architecture);
            let _ = select_ptx(&damaged, architecture);
        }
    }
}
