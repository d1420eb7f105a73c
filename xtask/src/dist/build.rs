//! The build of a release: the command and its libraries, without a path of this machine in them.

use super::root;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries that `apex` loads into programs.
const LIBRARIES: [&str; 4] = ["libapex.so", "libapex_alias.so", "libapex_cpu_device.so", "libapex_nvrtc.so"];

/// The library that the Python package loads, and holds.
pub const KERNELS: &str = "libapex_kernels_c.so";

/// The files of a build.
pub struct Built {
    pub command: PathBuf,
    pub libraries: Vec<PathBuf>,
    pub kernels: PathBuf,
}

impl Built {
    /// All files.
    pub fn files(&self) -> Vec<&Path> {
        self.libraries.iter().chain([&self.command, &self.kernels]).map(PathBuf::as_path).collect()
    }
}

/// Builds the workspace's default members.
pub fn run(glibc: Option<&str>) -> anyhow::Result<Built> {
    let target = root().join("target/dist-build");
    let triple = "x86_64-unknown-linux-gnu";
    let mut cargo = Command::new("cargo");
    match glibc {
        None => cargo.args(["build", "--target", triple]),
        Some(version) => {
            installed()?;
            cargo.args(["zigbuild", "--target", &format!("{triple}.{version}")])
        }
    };
    cargo
        .args(["--profile", "dist", "--features", "apex-cli/tls", "--locked", "--target-dir"])
        .arg(&target)
        .current_dir(root());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", without_paths()?.join("\x1f"));
    if !cargo.status().context("starting cargo")?.success() {
        bail!("the release could not be built: see the message above");
    }
    let folder = target.join(triple).join("dist");
    Ok(Built {
        command: folder.join("apex"),
        libraries: LIBRARIES.iter().map(|name| folder.join(name)).collect(),
        kernels: folder.join(KERNELS),
    })
}

fn installed() -> anyhow::Result<()> {
    if Command::new("cargo-zigbuild").arg("--version").output().is_err() {
        bail!("--glibc needs cargo-zigbuild and zig; `pip install cargo-zigbuild ziglang` installs both");
    }
    Ok(())
}

/// Flags that map this machine's folders to names that every machine has.
fn without_paths() -> anyhow::Result<Vec<String>> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let sysroot = super::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let mapped = [(cargo, "/cargo"), (PathBuf::from(sysroot.trim()), "/rust"), (root(), "/apex")];
    Ok(mapped.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect())
}
