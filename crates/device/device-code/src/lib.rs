//! Device code: the CUDA C++ of the benchmark suite, the bundled programs and the tensors, and the
//! PTX compiled from it.
//!
//! * [`suite`]: the kernels that `apex collect` measures.
//! * [`demo`]: the programs that `apex demo` runs.
//! * [`tensors`]: the kernels of `apex_gpu::Tensor`.
//!
//! `scripts/device-code.sh` compiles each folder of sources into `generated/`, which is checked in:
//! a build needs neither nvcc nor a GPU. The PTX of libraries is compressed; that of the bundled
//! programs is small and kept as text. For each generated file, `generated/manifest.txt` holds the
//! hashes of the PTX and of its sources, and a test compares them.

use std::io::Read;
use std::sync::OnceLock;

pub mod demo;
pub mod suite;
pub mod tensors;

/// The PTX of one CUDA C++ file, decompressed when it is first asked for.
#[derive(Debug)]
pub struct Module {
    name: &'static str,
    compressed: &'static [u8],
    ptx: OnceLock<String>,
}

impl Module {
    /// A module of a file in zstd's format, whose content is UTF-8.
    const fn new(name: &'static str, compressed: &'static [u8]) -> Module {
        Module { name, compressed, ptx: OnceLock::new() }
    }

    /// Name of the CUDA C++ file without extension.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The PTX.
    pub fn ptx(&self) -> &str {
        self.ptx.get_or_init(|| decompress(self.compressed))
    }
}

/// The text of a generated file, which ends in `.zst`.
///
/// # Panics
/// If the bytes are not in zstd's format, or not UTF-8 after it. For the files that are checked in,
/// a test looks.
pub fn decompress(compressed: &[u8]) -> String {
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(compressed)
        .expect("tests decompress each generated file")
        .read_to_string(&mut text)
        .expect("tests decompress each generated file");
    text
}

/// A module of `generated/FOLDER/NAME.ptx.zst`.
macro_rules! module {
    ($folder:literal, $name:literal) => {
        $crate::Module::new($name, include_bytes!(concat!("../generated/", $folder, "/", $name, ".ptx.zst")))
    };
}
use module;
