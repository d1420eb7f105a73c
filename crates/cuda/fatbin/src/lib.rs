//! Fatbins, the containers in which nvcc embeds device code: finds the PTX to run.
//!
//! A fatbin is a header and a list of entries, each with a kind (PTX, cubin, …), the architecture
//! it was compiled for, and a payload that may be compressed. A wrapper, which the host compiler
//! places in the program's data, points to it; the driver accepts either. Code that was compiled
//! separately (`nvcc -rdc=true`) has a wrapper that also lists the fatbins of the parts, whose PTX
//! must be linked. NVIDIA documents neither form; the meanings of the fields are those that public
//! readers of the format agree on.
//!
//! The bytes come from a program and are not trusted: nothing here reads beyond the size that the
//! header states, and every length is checked against that size.

mod container;
pub mod cubin;
mod elf;
pub mod embedded;
pub mod kept;
pub mod machine;
mod pointer;
mod required;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use container::{Entries, Entry, KIND_CUBIN, KIND_LTO_IR, KIND_PTX};
pub use pointer::{read_pointer, whole};
pub use required::{RequiredBlock, required_blocks};

const FATBIN_MAGIC: u32 = 0xba55_ed50;
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// The first bytes of LTO-IR outside a fatbin, as NVRTC returns it.
const LTO_IR_MAGIC: [u8; 4] = [0xed, 0x43, 0x4e, 0x7f];

/// Maximum length of a fatbin or of PTX; a larger one is corrupt.
const MAX_BYTES: u64 = 1 << 31;

/// The contents of an image that a program loads.
#[derive(Debug, PartialEq, Eq)]
pub enum Image<'a> {
    /// PTX.
    Ptx(Ptx<'a>),
    /// PTX of parts that must be linked.
    Parts(Vec<Ptx<'a>>),
    /// Machine code for a GPU, and no PTX: the architectures it is for (80 for sm_80).
    MachineCodeOnly(Vec<u32>),
    /// NVIDIA's intermediate code for link-time optimisation, and neither PTX nor machine code.
    LtoIrOnly,
}

/// PTX in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx<'a> {
    /// The text.
    pub text: Cow<'a, [u8]>,
    /// Whether machine code lies beside it that the device would run in its place. Then the text
    /// may be for newer devices alone, and a program is right to load the image.
    pub beside_machine_code: bool,
}

/// The reason why an image cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Finds the code to run in an image of known length: the PTX for the newest architecture up to
/// `newest`. If all PTX is for newer architectures, it selects the oldest, which runs unless it
/// uses new instructions.
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
    if !looks_like_ptx(text) {
        return Err(ImageError::Unrecognised);
    }
    Ok(Image::Ptx(Ptx { text: Cow::Borrowed(text), beside_machine_code: false }))
}

/// The PTX that the driver compiles for a device of this architecture (90 for 9.0), if that is what
/// runs: the image, whose length is known, is text, or a fatbin without anything but PTX. `None`
/// for an image with machine code: it need not come from the PTX beside it.
pub fn compiled_ptx(image: &[u8], architecture: u32) -> Option<Cow<'_, [u8]>> {
    let is_fatbin = image.starts_with(&FATBIN_MAGIC.to_le_bytes());
    let mut entries = is_fatbin.then(|| Entries::of(image)).transpose().ok()?.into_iter().flatten();
    if !entries.all(|entry| entry.is_ok_and(|entry| entry.kind == KIND_PTX)) {
        return None;
    }
    match read(image, architecture) {
        Ok(Image::Ptx(ptx)) => Some(ptx.text),
        _ => None,
    }
}

/// The machine code in an image of known length: a cubin itself, or each cubin of a fatbin that can
/// be decompressed.
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
        Some(entry) => {
            let runs = |architecture: u32| architecture <= newest && architecture / 10 == newest / 10;
            let beside_machine_code = cubins.into_iter().any(runs);
            Ok(Image::Ptx(Ptx { text: entry.text()?, beside_machine_code }))
        }
        None if has_lto_ir && cubins.is_empty() => Ok(Image::LtoIrOnly),
        None => Ok(Image::MachineCodeOnly(cubins)),
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], ImageError> {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().ok_or(ImageError::Truncated)
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Result<u16, ImageError> {
    bytes_at(bytes, offset).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Result<u32, ImageError> {
    bytes_at(bytes, offset).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Result<u64, ImageError> {
    bytes_at(bytes, offset).map(u64::from_le_bytes)
}
