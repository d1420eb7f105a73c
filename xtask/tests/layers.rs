//! The shape of the workspace: who may depend on whom. ARCHITECTURE.md says why; this test says
//! when it is broken.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use test_process::Command;

/// Lowest first: a crate depends only on crates of earlier lines.
const LAYERS: [&[&str]; 14] = [
    &["test-process"],
    &[
        "apex-conventions",
        "apex-counts",
        "apex-untrusted",
        "apex-http",
        "apex-random",
        "apex-kernel-names",
        "apex-push",
        "cuda-launch",
        "test-build",
        "test-golden",
        "test-manifest",
        "test-skip",
    ],
    &[
        "apex-symbolization",
        "cuda-abi",
        "ptx",
        "fatbin",
        "apex-knowledge",
        "apex-machine",
        "apex-trace",
        "occupancy",
        "apex-csv",
        "apex-protobuf",
        "apex-device-code",
    ],
    &["apex-call-frames", "ptx-exec", "fake-driver", "fake-nvml", "apex-driver", "cudarc-client"],
    &[
        "apex-cpu-device",
        "apex-nvrtc",
        "apex-interpose",
        "apex-alias",
        "apex-model",
        "apex-dataset",
        "apex-host-stacks",
        "driver-client",
        "cuda-program",
    ],
    &["test-session", "test-recorded"],
    &["apex-predict", "apex-profile", "flushing-library", "careless-library"],
    &["apex-predict-session", "apex-live", "apex-timeline"],
    &["apex-advice", "apex-demo", "apex-gpu"],
    &["apex-export", "apex-differential", "apex-collect", "apex-kernels"],
    &["apex-view"],
    &["apex-training", "apex-page", "apex-top", "apex-metrics", "apex-alerts", "apex-kernels-c"],
    &["apex-dashboard"],
    &["apex-cli", "xtask"],
];

/// What a crate may link, third parties' crates and their dependencies included.
const LINKS_AT_MOST: [(&str, &[&str]); 10] = [
    ("cuda-abi", &[]),
    ("cuda-launch", &[]),
    ("apex-counts", &[]),
    ("apex-conventions", &[]),
    ("apex-driver", &["cuda-abi", "cuda-launch", "libc"]),
    ("apex-untrusted", &["libc"]),
    ("apex-trace", &["apex-counts", "apex-untrusted", "cuda-launch", "libc"]),
    ("apex-call-frames", &["apex-counts", "apex-trace", "apex-untrusted", "cuda-launch", "libc"]),
    // (`ruzstd` belongs to the reading of fatbins, which the library does not do.)
    (
        "apex-interpose",
        &[
            "cuda-abi",
            "cuda-launch",
            "apex-call-frames",
            "apex-conventions",
            "apex-counts",
            "apex-trace",
            "apex-untrusted",
            "fatbin",
            "libc",
            "lz4_flex",
            "ruzstd",
        ],
    ),
    ("apex-nvrtc", &["libc"]),
];

/// What a crate may not link, not even through others.
const NEVER_LINKS: [(&str, &[&str]); 8] = [
    // The library would be dead weight in the command: a megabyte.
    ("apex-cli", &["apex-interpose"]),
    ("ptx", &["libc", "cuda-abi"]),
    ("ptx-exec", &["cuda-abi", "fatbin", "apex-trace"]),
    ("apex-interpose", &["apex-cpu-device", "ptx"]),
    ("apex-cpu-device", &["apex-interpose"]),
    ("apex-dataset", &["cudarc", "libloading"]),
    ("apex-predict", &["apex-profile", "apex-trace"]),
    ("apex-training", &["cudarc", "libloading", "apex-gpu", "apex-collect", "apex-trace"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What cargo prints for these arguments.
fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs: it runs this test");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// The workspace's own crates.
struct Workspace {
    /// Name, and the folder below the root.
    members: BTreeMap<String, String>,
    /// Their dependencies on each other, of every kind.
    declared: BTreeMap<String, BTreeSet<String>>,
}

impl Workspace {
    fn load() -> Workspace {
        let json = cargo(&["metadata", "--format-version=1", "--no-deps"]);
        let metadata: Value = serde_json::from_str(&json).expect("cargo prints JSON");
        let workspace_root = text(&metadata["workspace_root"]);
        let mut workspace = Workspace { members: BTreeMap::new(), declared: BTreeMap::new() };
        let names: BTreeSet<&str> =
            list(&metadata["packages"]).map(|package| text(&package["name"])).collect();
        for member in list(&metadata["packages"]) {
            let folder = Path::new(text(&member["manifest_path"])).parent().expect("a manifest has a folder");
            let folder = folder.strip_prefix(workspace_root).expect("members lie in the workspace");
            let dependencies = list(&member["dependencies"]).map(|dependency| text(&dependency["name"]));
            let dependencies = dependencies.filter(|name| names.contains(name)).map(str::to_owned);
            let name = text(&member["name"]).to_owned();
            workspace.declared.insert(name.clone(), dependencies.collect());
            workspace.members.insert(name, folder.display().to_string());
        }
        workspace
    }
}

/// Names of all that a crate links with its default features, directly or not, itself left out.
fn linked_by(member: &str) -> BTreeSet<String> {
    let tree = cargo(&["tree", "--package", member, "--edges=normal", "--prefix=none", "--format={p}"]);
    let names = tree.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    names.filter(|name| *name != member).map(str::to_owned).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("cargo's metadata has a string where {value} is"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap_or_else(|| panic!("cargo's metadata has a list where {value} is")).iter()
}

/// Where a crate stands, 0 lowest.
fn layer(name: &str) -> usize {
    let found = LAYERS.iter().position(|layer| layer.contains(&name));
    found.unwrap_or_else(|| panic!("{name} is in no layer: give it a place in LAYERS and in ARCHITECTURE.md"))
}

#[test]
fn every_crate_has_a_layer_and_every_layer_its_crates() {
    let workspace = Workspace::load();
    let placed: BTreeSet<&str> = LAYERS.into_iter().flatten().copied().collect();
    let present: BTreeSet<&str> = workspace.members.keys().map(String::as_str).collect();
    assert_eq!(placed, present, "left: LAYERS; right: the workspace");
}

#[test]
fn dependencies_point_down() {
    let workspace = Workspace::load();
    for (member, dependencies) in &workspace.declared {
        for dependency in dependencies {
            assert!(
                layer(dependency) < layer(member),
                "{member} depends on {dependency}, which is not in a layer below it"
            );
        }
    }
}

#[test]
fn the_injected_library_and_what_it_rests_on_stay_small() {
    for (member, allowed) in LINKS_AT_MOST {
        let linked = linked_by(member);
        let surplus: Vec<_> = linked.iter().filter(|name| !allowed.contains(&name.as_str())).collect();
        assert!(surplus.is_empty(), "{member} may link {allowed:?} and nothing else, but links {surplus:?}");
    }
}

#[test]
fn parts_that_must_not_know_each_other_do_not() {
    for (member, banned) in NEVER_LINKS {
        let linked = linked_by(member);
        let found: Vec<_> = banned.iter().filter(|name| linked.contains(**name)).collect();
        assert!(found.is_empty(), "{member} must not link {found:?}");
    }
}

/// ARCHITECTURE.md names each crate by its folder, and no folder that is gone.
#[test]
fn the_architecture_page_names_the_crates_that_there_are() {
    let workspace = Workspace::load();
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for (member, folder) in &workspace.members {
        // A crate inside another's folder is part of it.
        let nested = workspace.members.values().any(|outer| folder.starts_with(&format!("{outer}/")));
        assert!(
            nested || page.contains(&format!("`{folder}`")),
            "ARCHITECTURE.md does not name `{folder}` ({member})"
        );
    }
    for named in page.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/")) {
        assert!(root().join(named).exists(), "ARCHITECTURE.md names `{named}`, which is gone");
    }
}
