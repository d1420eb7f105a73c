//! Deflates the schemas of documents. With the feature `embedded`, builds the libraries that `apex`
//! loads into programs, so that they become part of the command: `cargo install` installs nothing
//! else. They are built as in a release, with this package's own lock file, into a folder of this
//! build.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages and the library of each.
const LIBRARIES: [(&str, &str); 4] = [
    ("apex-interpose", "libapex.so"),
    ("apex-alias", "libapex_alias.so"),
    ("apex-cpu-device", "libapex_cpu_device.so"),
    ("apex-nvrtc", "libapex_nvrtc.so"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let schemas = std::fs::read_dir("../../docs/schemas").expect("the repository has schemas");
    apex_deflated::files(schemas.map(|entry| entry.expect("the folder can be listed").path()));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let libraries = match std::env::var_os("CARGO_FEATURE_EMBEDDED") {
        Some(_) => build(&out),
        None => Vec::new(),
    };
    std::fs::write(out.join("embedded.rs"), rust(&libraries)).expect("OUT_DIR can be written to");
}

/// Builds the libraries and returns their files.
fn build(out: &Path) -> Vec<PathBuf> {
    let package =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let workspace = package.join("../..");
    for changed in ["crates", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(changed).display());
    }
    let target = out.join("target");
    let mut cargo = Command::new(std::env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo.args(["build", "--release", "--locked"]).arg("--target-dir").arg(&target).current_dir(&workspace);
    cargo.args(LIBRARIES.iter().flat_map(|(package, _)| ["--package", package]));
    // What cargo tells this script about the package that it belongs to, the other packages must not see.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "the libraries that apex loads into programs could not be built: see above");
    LIBRARIES.iter().map(|(_, file)| target.join("release").join(file)).collect()
}

fn is_of_this_package(variable: &str) -> bool {
    ["CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BUILD_", "DEP_"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
        || ["OUT_DIR", "TARGET", "HOST", "PROFILE", "OPT_LEVEL", "DEBUG", "NUM_JOBS"].contains(&variable)
}

/// The constant that holds the libraries.
fn rust(libraries: &[PathBuf]) -> String {
    let mut hasher = DefaultHasher::new();
    let mut files = String::new();
    for path in libraries {
        std::fs::read(path).expect("cargo built it").hash(&mut hasher);
        let name = path.file_name().expect("a file").to_string_lossy();
        let _ = writeln!(files, "    ({name:?}, include_bytes!({path:?})),");
    }
    format!(
        "const EMBEDDED: Embedded = Embedded {{ identity: \"{:016x}\", files: &[\n{files}] }};\n",
        hasher.finish()
    )
}
