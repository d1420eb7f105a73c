//! What a GPU computed in few bytes: a checksum for each program of a sequence that can be made
//! again ([`hopper`](crate::generate::hopper)).
//!
//! The file has a line of JSON, the [`Manifest`], and then the [`digest`] of each program, four
//! bytes each, the lowest first. A digest covers the program as well: if the generator changes, all
//! digests do, and the recording is of no more use.

use crate::case::{Case, Rule};
use crate::corpus::Manifest;
use crate::recording::Outcome;
use crate::values::canonical;
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// What a driver computed for the programs with the numbers 0, 1, ….
#[derive(Clone, Debug, PartialEq)]
pub struct Digests {
    /// The place and time of the recording.
    pub manifest: Manifest,
    /// By number.
    pub digests: Vec<u32>,
}

/// The checksum (CRC-32) of a program, its inputs, and what a driver made of it, where NaNs that
/// the rule of their column takes for equal are alike. Whether a wait ended in time (a column
/// `waited …`) depends on how busy the host is where a CPU executes the program, so it is left out.
pub fn digest(case: &Case, outcome: &Outcome) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(case.ptx.as_bytes());
    hasher.update(&case.input_bytes());
    match outcome {
        Outcome::Results(bytes) => {
            let columns = case.results.iter().zip(case.result_columns(bytes));
            for (slot, cells) in columns.filter(|(slot, _)| !slot.name.starts_with("waited ")) {
                let width = slot.values.bytes();
                for bits in cells {
                    let alike = slot.rule != Rule::Exact;
                    let bits = if alike { canonical(slot.values, bits) } else { bits };
                    hasher.update(&bits.to_le_bytes()[..width]);
                }
            }
        }
        Outcome::Refused(_) => hasher.update(b"refused"),
        Outcome::Failed(words) => hasher.update(words.as_bytes()),
    }
    hasher.finalize()
}

impl Digests {
    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        let mut bytes = serde_json::to_vec(&self.manifest)?;
        bytes.push(b'\n');
        bytes.extend(self.digests.iter().flat_map(|digest| digest.to_le_bytes()));
        std::fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or is not what it should be.
    pub fn read(file: &Path) -> Result<Digests> {
        let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        let end = bytes.iter().position(|byte| *byte == b'\n').context("there is no manifest")?;
        let manifest: Manifest =
            serde_json::from_slice(&bytes[..end]).context("the manifest is not what it should be")?;
        let (digests, rest) = bytes[end + 1..].as_chunks::<4>();
        let count = manifest.programs;
        ensure!(rest.is_empty() && digests.len() == count, "there are no {count} digests");
        Ok(Digests { manifest, digests: digests.iter().map(|digest| u32::from_le_bytes(*digest)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::hopper;

    fn manifest(programs: usize) -> Manifest {
        let [device, driver, date] = ["a GPU", "1", "2026-01-01"].map(str::to_owned);
        Manifest { device, driver, date, programs, refused: 0, results: 0 }
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_a_part_of_it_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("digests");
        let digests = Digests { manifest: manifest(3), digests: vec![1, u32::MAX, 0x0a0a_0a0a] };
        digests.write(&file).unwrap();
        assert_eq!(Digests::read(&file).unwrap(), digests);
        let bytes = std::fs::read(&file).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&file, &bytes[..length]).unwrap();
            assert!(Digests::read(&file).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_digest_depends_on_the_program_and_on_each_bit() {
        let case = hopper::case(0);
        let results = vec![0; case.result_layout().1];
        let zeros = digest(&case, &Outcome::Results(results.clone()));
        let is_covered = |at: &usize| {
            let mut results = results.clone();
            results[*at] ^= 4;
            digest(&case, &Outcome::Results(results)) != zeros
        };
        let counted = case.results.iter().filter(|slot| !slot.name.starts_with("waited "));
        let bytes: usize = counted.map(|slot| slot.rows * slot.values.bytes()).sum();
        assert_eq!((0..results.len()).filter(is_covered).count(), bytes);
        let other = Case { ptx: case.ptx.clone() + " ", ..case };
        assert_ne!(digest(&other, &Outcome::Results(results)), zeros);
    }
}
