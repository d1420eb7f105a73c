//! Images inside files: of PTX, cubins and fatbins, and of programs and libraries that have
//! fatbins in their data.

use std::borrow::Cow;

use crate::container::{Entries, Header, KIND_CUBIN, KIND_PTX};
use crate::{ELF_MAGIC, FATBIN_MAGIC, ImageError, cubin, looks_like_ptx, u16_at};

/// Machine of an ELF file for GPUs: `EM_CUDA`.
const MACHINE_CUDA: u16 = 190;
/// Offset of the machine in the header of an ELF file.
const MACHINE_AT: usize = 18;
/// Fatbins start at multiples of this.
const ALIGNMENT: usize = 8;

/// The contents of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// PTX, each text with the architecture that it is for (90 for sm_90); 0 where the file does
    /// not tell.
    pub ptx: Vec<(u32, Vec<u8>)>,
    /// The architectures of machine code; 0 where the file does not tell.
    pub machine_code: Vec<u32>,
}

impl Contents {
    /// Whether the driver takes machine code of the image for a GPU of this compute capability: of
    /// the same major number, and not newer.
    pub fn has_machine_code_for(&self, capability: u32) -> bool {
        let suits = |code: &u32| code / 10 == capability / 10 && *code <= capability;
        self.machine_code.iter().any(suits)
    }

    /// The PTX that the driver takes for a GPU of this compute capability, as [`crate::read`]
    /// chooses it.
    pub fn ptx_for(&self, capability: u32) -> Option<&[u8]> {
        let fitting = self.ptx.iter().filter(|(architecture, _)| *architecture <= capability);
        // Of two for the same architecture, the later one counts.
        let newest = fitting.max_by_key(|(architecture, _)| *architecture);
        let oldest = || self.ptx.iter().rev().min_by_key(|(architecture, _)| *architecture);
        newest.or_else(oldest).map(|(_, text)| text.as_slice())
    }
}

/// The images in a file, in file order; none if it holds none.
///
/// # Errors
/// A fatbin that is damaged. In a program or library, what begins like a fatbin and is none is no
/// error: it is other data.
pub fn images(file: &[u8]) -> Result<Vec<Contents>, ImageError> {
    if file.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return Ok(vec![contents(file)?]);
    }
    let is_elf = file.starts_with(&ELF_MAGIC);
    if is_elf && u16_at(file, MACHINE_AT) == Ok(MACHINE_CUDA) {
        let architecture = cubin::architecture(file).unwrap_or(0);
        return Ok(vec![Contents { machine_code: vec![architecture], ..Contents::default() }]);
    }
    if looks_like_ptx(file) {
        return Ok(vec![Contents { ptx: vec![(0, file.to_vec())], ..Contents::default() }]);
    }
    Ok(inside(file))
}

/// The fatbins somewhere in a file.
fn inside(file: &[u8]) -> Vec<Contents> {
    let magic = FATBIN_MAGIC.to_le_bytes();
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(rest) = file.get(from..).filter(|rest| rest.len() >= magic.len()) {
        let bytes = match rest.starts_with(&magic) {
            true => contents(rest).ok().map(|image| {
                found.push(image);
                length(rest)
            }),
            false => None,
        };
        from += bytes.unwrap_or(0).max(ALIGNMENT).next_multiple_of(ALIGNMENT);
    }
    found.retain(|image: &Contents| *image != Contents::default());
    found
}

/// The length of a fatbin, whose header has been checked.
fn length(fatbin: &[u8]) -> usize {
    Header::read(fatbin).map_or(0, |header| (header.header_bytes + header.payload_bytes) as usize)
}

fn contents(fatbin: &[u8]) -> Result<Contents, ImageError> {
    let mut found = Contents::default();
    for entry in Entries::of(fatbin)? {
        let entry = entry?;
        match entry.kind {
            KIND_PTX => found.ptx.push((entry.architecture, entry.text().map(Cow::into_owned)?)),
            KIND_CUBIN => found.machine_code.push(entry.architecture),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fatbin() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/three_ptx_one_cubin_zstd.fatbin"))
            .unwrap()
    }

    #[test]
    fn fatbins_are_found_in_other_data() {
        let alone = images(&fatbin()).unwrap();
        assert_eq!((alone[0].ptx.len(), alone[0].machine_code.len()), (3, 1));
        let mut program = b"\x7fELF".to_vec();
        program.resize(4096, 0);
        program.extend(FATBIN_MAGIC.to_le_bytes());
        program.resize(4096 + 64, 0xff);
        program.extend(fatbin());
        program.resize(program.len().next_multiple_of(8), 0);
        program.extend(fatbin());
        assert_eq!(images(&program).unwrap(), [alone.clone(), alone].concat());
    }

    #[test]
    fn a_gpu_takes_machine_code_of_its_major_number_and_else_the_newest_ptx() {
        let ptx = [80, 90, 100].map(|architecture| (architecture, architecture.to_string().into_bytes()));
        let image = Contents { ptx: ptx.to_vec(), machine_code: vec![86] };
        assert!(
            image.has_machine_code_for(89)
                && !image.has_machine_code_for(80)
                && !image.has_machine_code_for(90)
        );
        let chosen = |capability| String::from_utf8_lossy(image.ptx_for(capability).unwrap()).into_owned();
        assert_eq!([75, 89, 90, 120].map(chosen), ["80", "80", "90", "100"]);
    }

    #[test]
    fn damage_is_told_or_skipped() {
        let whole = fatbin();
        assert!(images(&whole[..whole.len() / 2]).is_err());
        let mut program = vec![0; 16];
        program.extend(&whole[..whole.len() / 2]);
        assert_eq!(images(&program).unwrap(), []);
        assert_eq!(images(b"").unwrap(), []);
    }
}
