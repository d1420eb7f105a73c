//! Models as bytes: one file format, whose reader trusts nothing.
//!
//! All numbers are little endian. A file is a preamble of [`PREAMBLE`] bytes, a head and the
//! numbers, with nothing after them:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 7 | [`MAGIC`] |
//! | 8 to 11 | version of the format, [`VERSION`] |
//! | 12 to 15 | kind of model; 1: a network as in [`crate::network`] |
//! | 16 to 23 | length of the head in bytes |
//! | 24 to 31 | length of the numbers in bytes |
//! | 32 to 39 | checksum of the head |
//! | 40 to 47 | checksum of the numbers |
//! | 48 to 55 | checksum of bytes 0 to 47 |
//!
//! The head says what the numbers are: feature set, activation, widths, targets, calibrations,
//! notes; texts are UTF-8 after their length in 32 bits. The numbers are in single precision: mean
//! and scale of the features, mean and scale of the targets, then for each layer weights and bias.
//! Weights in 8 bits are made from these when a model is made ready.
//!
//! A checksum is 64-bit FNV-1a: a change of any one byte changes it. Damage on purpose it does not
//! detect, and need not: what is read is checked like anything else that a caller hands in.

use crate::Error;
use crate::conformal::Margin;
use crate::forecast::{Calibration, Feature, FeatureSet, Model, Spread};
use crate::network::{Activation, Layer, Network, Range, Scaling, Target};
use apex_untrusted::{read, replace, shown};
use std::path::{Path, PathBuf};
use thiserror::Error as ThisError;

/// The first bytes of every model file.
pub const MAGIC: [u8; 8] = *b"APEXMODL";

/// The version of the format that is written; older ones are read.
pub const VERSION: u32 = 1;

/// Bytes of the preamble.
pub const PREAMBLE: usize = 56;

/// The kind of model that this version knows.
const NETWORK: u32 = 1;

/// The reason why a model file cannot be used.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum FileError {
    /// It is something else.
    #[error(
        "this is not a model file: it does not begin with {:?}; `apex train` writes model files",
        "APEXMODL"
    )]
    Foreign,
    /// A later version of this program wrote it.
    #[error(
        "the file has format {found}, this program reads up to {VERSION}: update the program, or train the model with it"
    )]
    TooNew {
        /// The file's version.
        found: u32,
    },
    /// It holds another kind of model.
    #[error("the file holds a model of kind {found}, this program knows kind {NETWORK}: update the program")]
    UnknownKind {
        /// The file's kind.
        found: u32,
    },
    /// Its length is not what it says.
    #[error("the file has {found} bytes, {expected} are needed: it was cut off or added to; copy it again")]
    Length {
        /// Bytes that the file should have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Its bytes are not those that were written.
    #[error("the file is damaged: the checksum of its {part} is wrong; copy it again")]
    Damaged {
        /// The damaged part.
        part: &'static str,
    },
    /// Its head says something that cannot be.
    #[error("the file is not a valid model: {what}; train the model again")]
    Invalid {
        /// The fault.
        what: String,
    },
    /// Its parts do not make a model.
    #[error("the file is not a valid model: {0}; train the model again")]
    Unusable(#[from] Error),
    /// It cannot be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// An error of the file at this path.
    #[error("{}: {source}", shown(path))]
    At {
        /// The file.
        path: PathBuf,
        /// The error.
        source: Box<FileError>,
    },
}

impl FileError {
    fn at(self, path: &Path) -> FileError {
        FileError::At { path: path.to_owned(), source: Box::new(self) }
    }
}

impl Model {
    /// Reads a file.
    ///
    /// # Errors
    /// [`FileError::At`], with what is wrong.
    pub fn open(path: &Path) -> Result<Model, FileError> {
        let bytes = read::read(path, read::MODEL).map_err(|error| FileError::from(error).at(path))?;
        Model::from_bytes(&bytes).map_err(|error| error.at(path))
    }

    /// Writes a file: beside its place first, and then there, so that whoever opens it finds the
    /// old model or the new one whole.
    ///
    /// # Errors
    /// [`FileError::At`] when the file system refuses; what was there stays.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        replace::bytes(path, &self.to_bytes()).map_err(|error| FileError::from(error).at(path))
    }

    /// The bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (head, numbers) = (self.head(), self.numbers());
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(NETWORK.to_le_bytes());
        bytes.extend((head.len() as u64).to_le_bytes());
        bytes.extend((numbers.len() as u64).to_le_bytes());
        bytes.extend(checksum(&head).to_le_bytes());
        bytes.extend(checksum(&numbers).to_le_bytes());
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes.extend(head);
        bytes.extend(numbers);
        bytes
    }

    fn head(&self) -> Vec<u8> {
        let (features, network) = (self.features(), self.network());
        let mut head = Head::default();
        head.text(&features.name);
        head.count(features.version as usize);
        head.list(&features.features, |head, feature| {
            head.text(&feature.name);
            head.number(feature.least);
            head.number(feature.greatest);
        });
        head.byte(network.activation() as u8);
        let hidden: Vec<usize> = network.layers().iter().map(|layer| layer.outputs).collect();
        head.list(&hidden, |head, &width| head.count(width));
        head.list(network.targets(), |head, target| {
            head.text(&target.name);
            head.byte(target.range as u8);
            head.list(&target.quantiles, |head, &level| head.number(level));
        });
        for calibration in self.calibrations() {
            head.byte(u8::from(calibration.is_some()));
            if let Some(Calibration { spread, margin }) = calibration {
                head.byte(*spread as u8);
                head.number(margin.coverage);
                head.number(margin.margin);
            }
        }
        head.list(self.notes(), |head, (name, value)| {
            head.text(name);
            head.text(value);
        });
        head.0
    }

    fn numbers(&self) -> Vec<u8> {
        let network = self.network();
        let (input, output) = (network.input_scaling(), network.output_scaling());
        let layers = network.layers().iter().flat_map(|layer| [&layer.weights, &layer.bias]);
        let parts = [&input.mean, &input.scale, &output.mean, &output.scale].into_iter().chain(layers);
        parts.flatten().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// [`FileError`] for whatever is not a model that this version of the program can use. Never a
    /// panic, and never much more memory than there are bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Model, FileError> {
        let (head, numbers) = parts(bytes)?;
        let mut head = Reader { bytes: head };
        let name = head.text("the feature set's name")?;
        let version = head.count("the feature set's version")?;
        let features = head.list("the features", feature)?;
        let activation =
            head.choice("the activation", &[Activation::Relu, Activation::Silu, Activation::Gelu])?;
        let widths = head.list("the layers", |head| head.count("a layer's width"))?;
        let targets = head.list("the targets", target)?;
        let calibrations = targets.iter().map(|_| calibration(&mut head)).collect::<Result<_, _>>()?;
        let notes = head.list("the notes", |head| Ok((head.text("a note's name")?, head.text("a note")?)))?;
        head.end("the head")?;
        let network = network(numbers, activation, features.len(), &widths, targets)?;
        let features = FeatureSet { name, version, features };
        Ok(Model::new(features, network, calibrations, notes)?)
    }
}

/// Head and numbers, checked against the preamble.
fn parts(bytes: &[u8]) -> Result<(&[u8], &[u8]), FileError> {
    let found = bytes.len() as u64;
    if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) || bytes.is_empty() {
        return Err(FileError::Foreign);
    }
    let Some((preamble, rest)) = bytes.split_at_checked(PREAMBLE) else {
        return Err(FileError::Length { expected: PREAMBLE as u64, found });
    };
    let word = |at: usize| {
        let bytes = preamble[at..].first_chunk().expect("the preamble is longer");
        u64::from_le_bytes(*bytes)
    };
    // The version decides what the rest means: it is looked at before the checksum.
    let (version, kind) = (word(8) as u32, (word(8) >> 32) as u32);
    if version > VERSION {
        return Err(FileError::TooNew { found: version });
    }
    if checksum(&preamble[..PREAMBLE - 8]) != word(PREAMBLE - 8) || version == 0 {
        return Err(FileError::Damaged { part: "preamble" });
    }
    if kind != NETWORK {
        return Err(FileError::UnknownKind { found: kind });
    }
    let (head, numbers) = (word(16), word(24));
    let expected = (PREAMBLE as u64).saturating_add(head).saturating_add(numbers);
    if expected != found {
        return Err(FileError::Length { expected, found });
    }
    let (head, numbers) = rest.split_at(head as usize);
    for (part, bytes, at) in [("head", head, 32), ("numbers", numbers, 40)] {
        if checksum(bytes) != word(at) {
            return Err(FileError::Damaged { part });
        }
    }
    Ok((head, numbers))
}

fn feature(head: &mut Reader<'_>) -> Result<Feature, FileError> {
    Ok(Feature {
        name: head.text("a feature's name")?,
        least: head.number("a feature's range")?,
        greatest: head.number("a feature's range")?,
    })
}

fn target(head: &mut Reader<'_>) -> Result<Target, FileError> {
    Ok(Target {
        name: head.text("a target's name")?,
        range: head.choice("a target's range", &[Range::Fraction, Range::Real])?,
        quantiles: head.list("the quantiles", |head| head.number("a quantile's level"))?,
    })
}

fn calibration(head: &mut Reader<'_>) -> Result<Option<Calibration>, FileError> {
    if !head.choice("a calibration", &[false, true])? {
        return Ok(None);
    }
    let spread = head.choice("a spread", &[Spread::Constant, Spread::Quantiles, Spread::Between])?;
    let margin = Margin { coverage: head.number("a coverage")?, margin: head.number("a margin")? };
    Ok(Some(Calibration { spread, margin }))
}

fn network(
    numbers: &[u8],
    activation: Activation,
    inputs: usize,
    widths: &[u32],
    targets: Vec<Target>,
) -> Result<Network, FileError> {
    let mut numbers = Reader { bytes: numbers };
    let mut take = |count: usize| numbers.numbers(count);
    let input = Scaling { mean: take(inputs)?, scale: take(inputs)? };
    let output = Scaling { mean: take(targets.len())?, scale: take(targets.len())? };
    let mut layers = Vec::new();
    let mut before = inputs;
    for &width in widths {
        let outputs = width as usize;
        let weights = take(before.saturating_mul(outputs))?;
        layers.push(Layer { inputs: before, outputs, weights, bias: take(outputs)? });
        before = outputs;
    }
    numbers.end("the numbers")?;
    Ok(Network::from_parts(activation, input, layers, targets, output)?)
}

/// 64-bit FNV-1a (Fowler, Noll, Vo).
fn checksum(bytes: &[u8]) -> u64 {
    apex_random::hash(0, bytes)
}

/// A head being written.
#[derive(Default)]
struct Head(Vec<u8>);

impl Head {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Counts are below 2^32: widths are bounded, and lists and texts of that length do not fit
    /// memory beside weights.
    fn count(&mut self, count: usize) {
        self.0.extend((count as u32).to_le_bytes());
    }

    fn number(&mut self, number: f32) {
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Head, &T)) {
        self.count(items.len());
        items.iter().for_each(|item| write(self, item));
    }
}

/// Bytes that are not read yet.
struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize, what: &str) -> Result<&'b [u8], FileError> {
        let split = self.bytes.split_at_checked(count);
        let (taken, rest) = split.ok_or_else(|| invalid(format!("there are no bytes left for {what}")))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn word(&mut self, what: &str) -> Result<[u8; 4], FileError> {
        Ok(*self.take(4, what)?.first_chunk().expect("four bytes were taken"))
    }

    fn count(&mut self, what: &str) -> Result<u32, FileError> {
        self.word(what).map(u32::from_le_bytes)
    }

    fn number(&mut self, what: &str) -> Result<f32, FileError> {
        self.word(what).map(f32::from_le_bytes)
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<f32>, FileError> {
        let bytes = self.take(count.saturating_mul(4), "all weights")?;
        let number = |bytes: &[u8]| f32::from_le_bytes(*bytes.first_chunk().expect("chunks have four bytes"));
        Ok(bytes.chunks_exact(4).map(number).collect())
    }

    fn text(&mut self, what: &str) -> Result<String, FileError> {
        let length = self.count(what)?;
        let bytes = self.take(length as usize, what)?;
        let text = std::str::from_utf8(bytes).map_err(|_| invalid(format!("{what} is not UTF-8")))?;
        Ok(text.to_owned())
    }

    fn list<T>(
        &mut self,
        what: &str,
        mut read: impl FnMut(&mut Self) -> Result<T, FileError>,
    ) -> Result<Vec<T>, FileError> {
        // Nothing is reserved for the count: each item takes bytes, which run out where the count
        // is wrong.
        (0..self.count(what)?).map(|_| read(self)).collect()
    }

    /// The one of `choices` whose position the next byte gives.
    fn choice<T: Copy>(&mut self, what: &str, choices: &[T]) -> Result<T, FileError> {
        let byte = self.take(1, what)?[0];
        choices.get(usize::from(byte)).copied().ok_or_else(|| invalid(format!("{what} is of kind {byte}")))
    }

    fn end(&self, what: &str) -> Result<(), FileError> {
        match self.bytes {
            [] => Ok(()),
            rest => Err(invalid(format!("{} bytes too many after {what}", rest.len()))),
        }
    }
}

fn invalid(what: String) -> FileError {
    FileError::Invalid { what }
}
