//! Limits on the size of what is shipped. Each user downloads the command, and the library is
//! mapped into each process of a recorded program: a dependency that adds a megabyte to one of them
//! has to be noticed.

use anyhow::{Context, bail};
use std::path::Path;

/// Files by name, with the maximum size of each, bytes: the current size plus 2.5%.
type Limits = [(&'static str, u64); 2];

/// Limits in packages, which are optimised between crates.
pub const PACKAGED: Limits = [("apex", 20_100_000), ("libapex.so", 1_890_000)];

/// Limits after `cargo build --release`: a twenty-fifth above what rustc 1.95 builds (22.2 and
/// 1.85 MB), since users test with other versions.
#[cfg(test)]
const RELEASE: Limits = [("apex", 23_100_000), ("libapex.so", 1_920_000)];

/// Compares built files with limits.
///
/// # Errors
/// A file that is too large, or cannot be read.
pub fn check(files: &[&Path], limits: Limits) -> anyhow::Result<()> {
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let Some((_, most)) = limits.iter().find(|(limited, _)| *limited == name) else { continue };
        let bytes = std::fs::metadata(file).with_context(|| file.display().to_string())?.len();
        if bytes > *most {
            bail!(
                "{} has {bytes} bytes, more than the {most} that xtask/src/dist/size.rs allows: find what \
                 was added (a dependency, generic code), or raise the limit and say why in CHANGELOG.md",
                file.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;
    use std::path::PathBuf;

    /// Reads what `cargo build --release` has left here.
    #[test]
    fn a_release_build_keeps_its_limits() {
        let files = RELEASE.map(|(name, _)| root().join("target/release").join(name));
        let built: Vec<&Path> = files.iter().map(PathBuf::as_path).filter(|file| file.exists()).collect();
        if built.is_empty() {
            return test_skip::impossible_here("`cargo build --release` has built nothing here");
        }
        check(&built, RELEASE).unwrap();
    }

    #[test]
    fn a_file_over_its_limit_is_named_with_both_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let [command, library, other] =
            ["apex", "libapex.so", "libapex_nvrtc.so"].map(|name| folder.path().join(name));
        for file in [&command, &library] {
            std::fs::write(file, b"small").unwrap();
        }
        std::fs::File::create(&other).unwrap().set_len(1 << 30).unwrap();
        check(&[&command, &library, &other], PACKAGED).unwrap();
        let (_, most) = PACKAGED[1];
        std::fs::File::create(&library).unwrap().set_len(most + 1).unwrap();
        let error = check(&[&command, &library, &other], PACKAGED).unwrap_err().to_string();
        assert!(
            ["libapex.so", &most.to_string(), &(most + 1).to_string()]
                .iter()
                .all(|part| error.contains(part)),
            "{error}"
        );
    }
}
