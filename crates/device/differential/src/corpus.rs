//! The corpus: cases and what a driver made of them, as three compressed files and a manifest.
//!
//! * `cases.jsonl.zst`: a line of JSON for each case: the [`Case`], PTX included, and the outcome
//!   in words, or which results are kept.
//! * `values.bin.zst`: the values that are kept, one case's behind the other's: a whole result
//!   buffer, or of a condensed case the cells of its [`Rule::Near`] slots.
//! * `checksums.bin.zst`: the checksums of the other slots of condensed cases, 32 bits each.
//! * `manifest.json`: which driver and device, when, how many.
//! * `known-differences.txt`: see [`crate::known_differences`].
//!
//! The programs are stored rather than generated again, so that the generator may change where no
//! GPU is available.
//!
//! [`Rule::Near`]: crate::case::Rule::Near

use crate::case::{Case, Rule, Slot};
use crate::recording::{self, Checksum, Kept, Outcome, Recorded};
use anyhow::{Context, Result, ensure};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

const CASES: &str = "cases.jsonl.zst";
const VALUES: &str = "values.bin.zst";
const CHECKSUMS: &str = "checksums.bin.zst";
const MANIFEST: &str = "manifest.json";

/// The place and time of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The device's name.
    pub device: String,
    /// The driver's version, as `nvidia-smi` gives it or the caller said.
    pub driver: String,
    /// The day.
    pub date: String,
    /// Number of programs.
    pub programs: usize,
    /// Number of programs that the driver refused.
    pub refused: usize,
    /// Number of results of single threads of the others.
    pub results: usize,
}

/// Cases and what is recorded of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// The place and time of the recording.
    pub manifest: Manifest,
    /// Programs and what is recorded of them.
    pub cases: Vec<(Case, Recorded)>,
}

/// The outcome's part of a line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineOutcome {
    /// The whole result buffer is kept, this many bytes.
    Results(usize),
    /// The results are condensed.
    Condensed,
    Refused(String),
    Failed(String),
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    case: Case,
    outcome: LineOutcome,
}

impl Corpus {
    /// Writes the corpus into a folder, which is made where it is missing.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (mut lines, mut store) = (Vec::new(), Store::default());
        for (case, recorded) in &self.cases {
            let outcome = store.add(case, recorded);
            serde_json::to_writer(&mut lines, &Line { case: case.clone(), outcome })?;
            lines.push(b'\n');
        }
        std::fs::create_dir_all(folder)?;
        for (name, bytes) in [(CASES, lines), (VALUES, store.values), (CHECKSUMS, store.checksums)] {
            let packed = compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest);
            std::fs::write(folder.join(name), packed).with_context(|| format!("writing {name}"))?;
        }
        let manifest = serde_json::to_string_pretty(&self.manifest)? + "\n";
        std::fs::write(folder.join(MANIFEST), manifest).context("writing the manifest")
    }

    /// Reads the corpus of a folder.
    pub fn read(folder: &Path) -> Result<Corpus> {
        let manifest = std::fs::read(folder.join(MANIFEST));
        let manifest = manifest.with_context(|| format!("reading {MANIFEST} of {}", folder.display()))?;
        let manifest = serde_json::from_slice(&manifest).context("the manifest is not what it should be")?;
        let [lines, values, checksums] = [CASES, VALUES, CHECKSUMS].map(|name| unpacked(&folder.join(name)));
        let (lines, values, checksums) = (lines?, values?, checksums?);
        let mut rest = Rest { values: &values, checksums: &checksums };
        let mut cases = Vec::new();
        for (number, line) in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
            let line: Line = serde_json::from_slice(line)
                .with_context(|| format!("line {} of {CASES} is not a case", number + 1))?;
            let recorded = rest.next(&line.case, line.outcome);
            let recorded = recorded.with_context(|| format!("the results of {}", line.case.name))?;
            cases.push((line.case, recorded));
        }
        rest.end()?;
        Ok(Corpus { manifest, cases })
    }
}

/// The contents of the two files of results, while they are written.
#[derive(Default)]
struct Store {
    values: Vec<u8>,
    checksums: Vec<u8>,
}

impl Store {
    /// Adds what is recorded of a case; what its line says of it.
    fn add(&mut self, case: &Case, recorded: &Recorded) -> LineOutcome {
        match recorded {
            Recorded::Whole(Outcome::Results(bytes)) => {
                self.values.extend_from_slice(bytes);
                LineOutcome::Results(bytes.len())
            }
            Recorded::Whole(Outcome::Refused(words)) => LineOutcome::Refused(words.clone()),
            Recorded::Whole(Outcome::Failed(words)) => LineOutcome::Failed(words.clone()),
            Recorded::Condensed(slots) => {
                case.results.iter().zip(slots).for_each(|(slot, kept)| self.add_slot(slot, kept));
                LineOutcome::Condensed
            }
        }
    }

    fn add_slot(&mut self, slot: &Slot, kept: &Kept) {
        match kept {
            Kept::Values(cells) => {
                let cells =
                    cells.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(slot.values.bytes()));
                self.values.extend(cells);
            }
            Kept::Checksums(checksums) => {
                let all =
                    checksums.iter().flat_map(|sum| [sum.exact, sum.any_nan].into_iter().take(sums(slot)));
                self.checksums.extend(all.flat_map(u32::to_le_bytes));
            }
        }
    }
}

/// The parts of the two files of results that are not yet read.
struct Rest<'f> {
    values: &'f [u8],
    checksums: &'f [u8],
}

impl Rest<'_> {
    /// Reads what is recorded of a case whose line has this outcome.
    fn next(&mut self, case: &Case, outcome: LineOutcome) -> Result<Recorded> {
        Ok(match outcome {
            LineOutcome::Results(length) => {
                Recorded::Whole(Outcome::Results(taken(&mut self.values, length, VALUES)?.to_vec()))
            }
            LineOutcome::Refused(words) => Recorded::Whole(Outcome::Refused(words)),
            LineOutcome::Failed(words) => Recorded::Whole(Outcome::Failed(words)),
            LineOutcome::Condensed => {
                let slots: Result<_> = case.results.iter().map(|slot| self.next_slot(slot)).collect();
                Recorded::Condensed(slots?)
            }
        })
    }

    fn next_slot(&mut self, slot: &Slot) -> Result<Kept> {
        if let Rule::Near { .. } = slot.rule {
            let width = slot.values.bytes();
            let bytes = taken(&mut self.values, slot.rows.saturating_mul(width), VALUES)?;
            return Ok(Kept::Values(bytes.chunks_exact(width).map(number).collect()));
        }
        let size = 4 * sums(slot);
        let bytes = taken(&mut self.checksums, size * recording::checksums(slot), CHECKSUMS)?;
        let checksum = |bytes: &[u8]| {
            let [exact, any_nan] = [&bytes[..4], &bytes[size - 4..]].map(|bytes| number(bytes) as u32);
            Checksum { exact, any_nan }
        };
        Ok(Kept::Checksums(bytes.chunks_exact(size).map(checksum).collect()))
    }

    /// Reports what no case has taken.
    fn end(&self) -> Result<()> {
        for (name, rest) in [(VALUES, self.values), (CHECKSUMS, self.checksums)] {
            ensure!(rest.is_empty(), "{name} has {} bytes more than the cases say", rest.len());
        }
        Ok(())
    }
}

/// Number of checksums that stand for the same rows of a slot.
fn sums(slot: &Slot) -> usize {
    if slot.rule == Rule::AnyNan { 2 } else { 1 }
}

/// Takes the first bytes of what is left of a file.
fn taken<'f>(rest: &mut &'f [u8], length: usize, file: &str) -> Result<&'f [u8]> {
    let (bytes, behind) = rest.split_at_checked(length).with_context(|| format!("{file} ends too early"))?;
    *rest = behind;
    Ok(bytes)
}

/// The number that up to 8 bytes hold, the lowest byte first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let packed = std::fs::File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed)
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    decoder.read_to_end(&mut bytes).with_context(|| format!("unpacking {}", path.display()))?;
    Ok(bytes)
}
