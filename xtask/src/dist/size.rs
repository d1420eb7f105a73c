//! Limits on the size of what is shipped. Each user downloads the command, and the library is
//! mapped into each process of a recorded program: a dependency that adds a megabyte to one of them
//! has to be noticed.

use anyhow::{Context, bail};
use std::path::Path;

/// A file and the most bytes that it may have: what it has now, and a margin of a fortieth.
const LIMITS: [(&str, u64); 2] = [("apex", 18_500_000), ("libapex.so", 1_740_000)];

/// Compares built files with their limits.
///
/// # Errors
/// A file that is too large, or cannot be read.
pub fn check(files: &[&Path]) -> anyhow::Result<()> {
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let Some((_, most)) = LIMITS.iter().find(|(limited, _)| *limited == name) else { continue };
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

    #[test]
    fn a_file_over_its_limit_is_named_with_both_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let [command, library, other] =
            ["apex", "libapex.so", "libapex_nvrtc.so"].map(|name| folder.path().join(name));
        for file in [&command, &library] {
            std::fs::write(file, b"small").unwrap();
        }
        std::fs::File::create(&other).unwrap().set_len(1 << 30).unwrap();
        check(&[&command, &library, &other]).unwrap();
        let (_, most) = LIMITS[1];
        std::fs::File::create(&library).unwrap().set_len(most + 1).unwrap();
        let error = check(&[&command, &library, &other]).unwrap_err().to_string();
        assert!(
            error.contains("libapex.so") && error.contains("1740001") && error.contains("1740000"),
            "{error}"
        );
    }
}
