//! `cargo xtask mutants`: how many faults the tests notice that are put into the code on purpose.
//!
//! cargo-mutants replaces bodies and operators, one at a time, and runs the tests of the crate. All
//! of the workspace would take days, so this looks at [`SAMPLE`]: files whose every line decides a
//! figure, a finding or an error. Who changes the sample or the tests of its files runs it again
//! and writes the outcome into CONTRIBUTING.md.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The files, by the package whose tests have to notice; each lies in its folder ([`folder`]).
const SAMPLE: [(&str, &[&str]); 4] = [
    ("occupancy", &["src/limits.rs", "src/waves.rs"]),
    ("apex-profile", &["src/accounts/mod.rs", "src/accounts/phases.rs"]),
    ("ptx", &["src/verify/call.rs", "src/verify/data.rs", "src/verify/types.rs"]),
    ("apex-model", &["src/conformal.rs"]),
];

/// Seconds that the tests may take on one mutant, before it counts as noticed: a loop may have lost
/// its end.
const TIMEOUT: &str = "300";

/// Runs cargo-mutants on the sample's files of these crates (of all if there are none named), one
/// crate after the other.
///
/// # Errors
/// A crate without files in the sample; cargo-mutants is missing or cannot run.
pub fn run(crates: &[String], out: &Path) -> anyhow::Result<ExitCode> {
    installed()?;
    let mut all_noticed = true;
    for (name, files) in chosen(crates)? {
        let status = Command::new("cargo").args(arguments(name, files, out)).status();
        match status.context("starting cargo mutants")?.code() {
            Some(0) => {}
            // Mutants that no test noticed, and mutants that ran into the time limit.
            Some(2 | 3) => all_noticed = false,
            _ => bail!("cargo mutants failed on the crate {name}: its message stands above"),
        }
    }
    Ok(if all_noticed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn installed() -> anyhow::Result<()> {
    let found = Command::new("cargo").args(["mutants", "--version"]).output().context("starting cargo")?;
    if !found.status.success() {
        bail!("cargo-mutants is not installed\n`cargo install --locked cargo-mutants` installs it");
    }
    Ok(())
}

/// The part of the sample in these crates.
fn chosen(crates: &[String]) -> anyhow::Result<Vec<(&'static str, &'static [&'static str])>> {
    if let Some(unknown) = crates.iter().find(|name| SAMPLE.iter().all(|(known, _)| known != name)) {
        let known: Vec<_> = SAMPLE.iter().map(|(name, _)| *name).collect();
        bail!("the sample has no files of the crate {unknown}; it has files of: {}", known.join(", "));
    }
    let wanted = |name: &str| crates.is_empty() || crates.iter().any(|chosen| chosen == name);
    Ok(SAMPLE.into_iter().filter(|(name, _)| wanted(name)).collect())
}

/// Where a package lies: its folder's name goes without the product's.
fn folder(package: &str) -> &str {
    package.strip_prefix("apex-").unwrap_or(package)
}

/// What cargo is asked for one crate. The outcome lies in a folder of the crate's name below `out`.
fn arguments(name: &str, files: &[&str], out: &Path) -> Vec<String> {
    let files =
        files.iter().flat_map(|file| ["--file".to_owned(), format!("crates/{}/{file}", folder(name))]);
    let outcome: PathBuf = out.join(name);
    ["mutants", "--package", name, "--timeout", TIMEOUT, "--output"]
        .map(str::to_owned)
        .into_iter()
        .chain([outcome.display().to_string()])
        .chain(files)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_sample_is_there() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for (name, files) in SAMPLE {
            for file in files {
                assert!(crates.join(folder(name)).join(file).is_file(), "{name}/{file}");
            }
        }
    }

    #[test]
    fn crates_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), SAMPLE.len());
        let [(name, _)] = chosen(&["ptx".to_owned()]).unwrap()[..] else { panic!("one crate") };
        assert_eq!(name, "ptx");
        let refused = chosen(&["ptz".to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("no files of the crate ptz") && refused.contains("occupancy"), "{refused}");
    }

    #[test]
    fn each_file_is_named_from_the_root_of_the_workspace() {
        let arguments = arguments("ptx", &["src/lib.rs"], Path::new("out"));
        assert_eq!(arguments[..2], ["mutants", "--package"].map(str::to_owned));
        assert!(
            arguments.windows(2).any(|pair| pair == ["--file", "crates/ptx/src/lib.rs"]),
            "{arguments:?}"
        );
        assert!(arguments.windows(2).any(|pair| pair == ["--output", "out/ptx"]), "{arguments:?}");
    }
}
