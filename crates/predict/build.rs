//! Compresses the shipped models, so that the command that holds them is 3 MB smaller: two thirds
//! of a merged ensemble's weights are zero.

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let models = Path::new("models");
    println!("cargo::rerun-if-changed={}", models.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["small", "large", "what-if"] {
        let model = fs::read(models.join(format!("{name}.apexmodel"))).expect("the models are checked in");
        let compressed = compress_to_vec(&model[..], CompressionLevel::Fastest);
        fs::write(out.join(format!("{name}.apexmodel.zst")), compressed).expect("OUT_DIR can be written to");
    }
}
