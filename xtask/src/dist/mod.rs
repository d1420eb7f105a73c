//! `cargo xtask dist`: what people install: an archive, a Debian package and a wheel of one build.
//!
//! The same commit gives the same bytes: paths of this machine are mapped away, files are sorted
//! and belong to root, and every time is that of the commit (or `SOURCE_DATE_EPOCH`). The oldest
//! glibc that the files need is read from the files and becomes part of the packages' metadata.

mod archive;
mod build;
mod deb;
mod needs;
mod size;
#[cfg(test)]
mod tests;
mod tree;
mod wheel;

use crate::{output, root};
use anyhow::Context;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use tree::Tree;

/// The description that all packages share.
struct Release {
    version: String,
    /// Seconds since 1970 that every file in a package bears.
    time: u64,
    /// The oldest glibc that the files run with.
    glibc: needs::Version,
    tree: Tree,
    modules: Modules,
}

/// Files of the Python package by their path in the wheel, in the order of their paths. A library
/// among them needs no run bit.
type Modules = BTreeMap<String, Vec<u8>>;

/// One sentence about APEX.
const SUMMARY: &str = "Records, judges and explains the kernel launches of any CUDA program";

/// Builds, and writes the packages and their checksums into a folder. With `glibc` the files run
/// with that version and newer ones; without it, with those that this machine's linker asks for.
///
/// # Errors
/// A tool that is missing, a build that fails, a file that is too large or cannot be written.
pub fn run(out: &Path, glibc: Option<&str>) -> anyhow::Result<ExitCode> {
    let built = build::run(glibc)?;
    size::check(&built.files(), size::PACKAGED)?;
    let release = Release {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: commit_time()?,
        glibc: needs::glibc(&built.files())?,
        tree: Tree::new(&built)?,
        modules: modules(&built.kernels)?,
    };
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let packages = [archive::bytes(&release)?, deb::bytes(&release)?, wheel::bytes(&release)?];
    let mut sums = String::new();
    for (name, bytes) in &packages {
        write(&out.join(name), bytes)?;
        let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(sums, "{sum}  {name}")?;
    }
    write(&out.join("SHA256SUMS"), sums.as_bytes())?;
    print!("{sums}");
    println!("in {}; for glibc {} and newer", out.display(), release.glibc);
    Ok(ExitCode::SUCCESS)
}

/// The Python package `apex_cuda`, with the library that its module `kernels` loads.
fn modules(kernels: &Path) -> anyhow::Result<Modules> {
    let package = root().join("python/apex_cuda");
    let mut modules = Modules::new();
    for folder in ["", "callbacks/", "kernels/"] {
        let files = std::fs::read_dir(package.join(folder)).with_context(|| package.display().to_string())?;
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|end| end == "py" || end == "typed") {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                modules.insert(format!("apex_cuda/{folder}{name}"), tree::read(&path)?);
            }
        }
    }
    modules.insert(format!("apex_cuda/kernels/{}", build::KERNELS), tree::read(kernels)?);
    Ok(modules)
}

/// A package: its file's name and content.
type Package = (String, Vec<u8>);

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn commit_time() -> anyhow::Result<u64> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time.parse().context("SOURCE_DATE_EPOCH holds seconds since 1970");
    }
    let text = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))
        .context("asking git for the commit's time; SOURCE_DATE_EPOCH sets another")?;
    Ok(text.trim().parse()?)
}
