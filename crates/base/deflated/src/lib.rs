//! Texts that a program holds compressed, which makes the program a smaller download.
//!
//! * A crate's build script calls [`files`], which writes each file, deflated, into `OUT_DIR`.
//! * The crate includes it with [`deflated!`](crate::deflated) and calls [`inflate`] where the text
//!   is used.
//!
//! Invariants: inflating returns the file's text, byte for byte, and deflating the same text always
//! gives the same bytes.

use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The bytes of a file that this crate's build script has deflated, by the file's name.
#[macro_export]
macro_rules! deflated {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".deflated"))
    };
}

/// For build scripts: deflates files into `OUT_DIR`, and makes cargo run the script again when one
/// of them changes.
///
/// # Panics
/// Outside a build script, and if a file is not UTF-8 or cannot be read or written: a panic is how
/// a build script reports an error.
pub fn files(paths: impl IntoIterator<Item = impl AsRef<Path>>) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for path in paths {
        let path = path.as_ref();
        println!("cargo::rerun-if-changed={}", path.display());
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().expect("a file has a name").to_string_lossy();
        let target = out.join(format!("{name}.deflated"));
        std::fs::write(&target, deflate(&text))
            .unwrap_or_else(|error| panic!("{}: {error}", target.display()));
    }
}

fn deflate(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    ZlibEncoder::new(text.as_bytes(), Compression::best())
        .read_to_end(&mut bytes)
        .expect("reading from memory does not fail");
    bytes
}

/// Inflates the bytes that [`deflated!`](crate::deflated) includes.
///
/// # Panics
/// If [`files`] did not write these bytes.
pub fn inflate(bytes: &[u8]) -> String {
    let mut text = String::new();
    ZlibDecoder::new(bytes).read_to_string(&mut text).expect("the build script has deflated a text");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back() {
        for text in ["", "short", &"a line with ünïcode, again and again\n".repeat(10_000)] {
            let bytes = deflate(text);
            assert_eq!(inflate(&bytes), text);
            assert!(bytes.len() < text.len() / 50 + 20);
        }
    }
}
