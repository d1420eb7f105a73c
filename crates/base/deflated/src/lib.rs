//! Texts that a program holds compressed, because each user downloads the program.
//!
//! * A crate's build script calls [`files`], which writes each file, deflated, into `OUT_DIR`.
//! * The crate includes it with [`deflated!`](crate::deflated) and calls [`inflate`] where the text
//!   is used.
//!
//! Invariants: the text that comes back is the file's, byte for byte, and a build writes the same
//! bytes of the same text.

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

/// For build scripts: deflates files into `OUT_DIR`, and has cargo run the script again when one of
/// them changes.
///
/// # Panics
/// Outside of a build script; if a file is no text or cannot be read or written. A panic is how a
/// build script says that it failed.
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

/// The text of what [`deflated!`](crate::deflated) includes.
///
/// # Panics
/// If the bytes are none that [`files`] wrote.
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
