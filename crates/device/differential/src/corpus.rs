//! The corpus: cases and their outcomes on a driver, as two compressed files and a manifest.
//!
//! * `cases.jsonl.zst`: a line of JSON for each case: the [`Case`], PTX included, and the outcome
//!   in words, or the length of its results.
//! * `results.bin.zst`: the results, one behind the other.
//! * `manifest.json`: which driver and device, when, how many.
//! * `known-differences.txt`: see [`crate::known_differences`].
//!
//! The programs are stored rather than generated again, so that the generator may change where no
//! GPU is available.

use crate::case::Case;
use crate::compare::Outcome;
use anyhow::{Context, Result, bail};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

const CASES: &str = "cases.jsonl.zst";
const RESULTS: &str = "results.bin.zst";
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

/// Cases and their outcomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// The place and time of the recording.
    pub manifest: Manifest,
    /// Programs and their outcomes.
    pub cases: Vec<(Case, Outcome)>,
}

/// The outcome's part of a line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Results(usize),
    Refused(String),
    Failed(String),
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    case: Case,
    outcome: Told,
}

impl Corpus {
    /// Writes the corpus into a folder, which is made where it is missing.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (mut lines, mut results) = (Vec::new(), Vec::new());
        for (case, outcome) in &self.cases {
            let outcome = match outcome {
                Outcome::Results(bytes) => {
                    results.extend_from_slice(bytes);
                    Told::Results(bytes.len())
                }
                Outcome::Refused(words) => Told::Refused(words.clone()),
                Outcome::Failed(words) => Told::Failed(words.clone()),
            };
            serde_json::to_writer(&mut lines, &Line { case: case.clone(), outcome })?;
            lines.push(b'\n');
        }
        std::fs::create_dir_all(folder)?;
        for (name, bytes) in [(CASES, lines), (RESULTS, results)] {
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
        let (lines, results) = (unpacked(&folder.join(CASES))?, unpacked(&folder.join(RESULTS))?);
        let mut rest = results.as_slice();
        let mut cases = Vec::new();
        for (number, line) in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
            let line: Line = serde_json::from_slice(line)
                .with_context(|| format!("line {} of {CASES} is not a case", number + 1))?;
            let outcome = match line.outcome {
                Told::Results(length) => {
                    let Some((bytes, behind)) = rest.split_at_checked(length) else {
                        bail!("{RESULTS} ends within the results of {}", line.case.name);
                    };
                    rest = behind;
                    Outcome::Results(bytes.to_vec())
                }
                Told::Refused(words) => Outcome::Refused(words),
                Told::Failed(words) => Outcome::Failed(words),
            };
            cases.push((line.case, outcome));
        }
        if !rest.is_empty() {
            bail!("{RESULTS} has {} bytes more than the cases say", rest.len());
        }
        Ok(Corpus { manifest, cases })
    }
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let packed = std::fs::File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed)
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    decoder.read_to_end(&mut bytes).with_context(|| format!("unpacking {}", path.display()))?;
    Ok(bytes)
}
