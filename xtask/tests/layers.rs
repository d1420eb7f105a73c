//! The shape of the workspace: who may depend on whom. Folders say it: a crate in
//! `crates/WING/NAME` uses crates of its own wing and of the wings below. ARCHITECTURE.md explains
//! the wings and lists the crates; the list is written by a test here, from the crates' manifests.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use test_process::Command;

/// The wings, lowest first, and what their crates have in common.
const WINGS: [(&str, &str); 10] = [
    ("base", "what knows nothing of CUDA"),
    ("cuda", "what every part that meets CUDA says in the same words"),
    ("ptx", "PTX read, analysed and executed"),
    ("record", "what is recorded of a program, and how"),
    ("device", "CUDA without a GPU, and device code to try it with"),
    ("kernels", "for programs in Rust and Python: the host API, and kernels"),
    ("predict", "durations from models, and the measurements that train them"),
    ("session", "what a recorded session tells"),
    ("show", "sessions for people and for other programs"),
    ("fleet", "what many recordings tell a group: messages, their way, and the hub"),
];

/// What a crate may link, third parties' crates and their dependencies included.
const LINKS_AT_MOST: [(&str, &[&str]); 11] = [
    ("cuda-abi", &[]),
    ("cuda-launch", &[]),
    ("launch-condition", &["cuda-launch"]),
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
            "launch-condition",
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
const NEVER_LINKS: [(&str, &[&str]); 9] = [
    // The library would be dead weight in the command: a megabyte.
    ("apex-cli", &["apex-interpose"]),
    ("ptx", &["libc", "cuda-abi"]),
    ("apex-reshape", &["libc", "cuda-abi"]),
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

/// A crate of the workspace, as its manifest describes it.
struct Member {
    /// Below the root: `crates/base/csv`.
    folder: String,
    holds: String,
    /// A rule for its code, or empty.
    never: String,
    /// The other members that it depends on, and whether only its tests do.
    dependencies: Vec<(String, bool)>,
}

impl Member {
    fn read(package: &Value, workspace_root: &str) -> Member {
        let folder = Path::new(text(&package["manifest_path"])).parent().expect("a manifest has a folder");
        let folder = folder.strip_prefix(workspace_root).expect("members lie in the workspace");
        let dependencies = list(&package["dependencies"])
            .map(|dependency| (text(&dependency["name"]).to_owned(), dependency["kind"] == "dev"));
        Member {
            folder: folder.display().to_string(),
            holds: package["description"].as_str().unwrap_or_default().to_owned(),
            never: package["metadata"]["apex"]["never"].as_str().unwrap_or_default().to_owned(),
            dependencies: dependencies.collect(),
        }
    }

    /// The crate's place among the wings: 0 is the lowest, the command and chores are above all.
    fn wing(&self) -> usize {
        let mut parts = self.folder.split('/');
        let in_crates = parts.next() == Some("crates");
        let (first, inner) = (parts.next(), parts.next());
        match first.filter(|_| in_crates && inner.is_some()) {
            Some(name) => WINGS
                .iter()
                .position(|(wing, _)| *wing == name)
                .unwrap_or_else(|| panic!("{}: `{name}` is no wing", self.folder)),
            None => WINGS.len(),
        }
    }

    fn is_for_tests(&self) -> bool {
        self.folder.starts_with("testing/")
    }
}

/// The workspace's crates by name.
fn members() -> BTreeMap<String, Member> {
    let json = cargo(&["metadata", "--format-version=1", "--no-deps"]);
    let metadata: Value = serde_json::from_str(&json).expect("cargo prints JSON");
    let workspace_root = text(&metadata["workspace_root"]);
    let packages = list(&metadata["packages"]);
    let mut members: BTreeMap<String, Member> = packages
        .map(|package| (text(&package["name"]).to_owned(), Member::read(package, workspace_root)))
        .collect();
    let names: BTreeSet<String> = members.keys().cloned().collect();
    for member in members.values_mut() {
        member.dependencies.retain(|(name, _)| names.contains(name));
    }
    members
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

#[test]
fn a_wing_uses_only_wings_below() {
    let members = members();
    for (name, member) in members.iter().filter(|(_, member)| !member.is_for_tests()) {
        for (used, _) in &member.dependencies {
            let of = &members[used];
            assert!(
                of.is_for_tests() || of.wing() <= member.wing(),
                "{name} ({}) depends on {used} ({}), which is in a wing above it",
                member.folder,
                of.folder
            );
        }
    }
}

#[test]
fn the_product_does_not_link_what_is_for_tests() {
    let members = members();
    for (name, member) in members.iter().filter(|(_, member)| !member.is_for_tests()) {
        for (used, only_in_tests) in &member.dependencies {
            assert!(
                *only_in_tests || !members[used].is_for_tests(),
                "{name} links {used}, which is for tests"
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

/// The lines of ARCHITECTURE.md between which the list of crates stands.
const LIST: [&str; 2] = [
    "<!-- The manifests of the crates say this; BLESS=1 cargo test --workspace --test layers writes it. -->\n",
    "<!-- end of the list -->\n",
];

#[test]
fn the_architecture_page_lists_the_crates() {
    let path = root().join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(&path).expect("ARCHITECTURE.md");
    let (before, rest) = page.split_once(LIST[0]).expect("the page has a list of crates");
    let (_, after) = rest.split_once(LIST[1]).expect("the list of crates ends");
    let list = list_of(&members());
    test_golden::assert_file(path, &format!("{before}{}{list}{}{after}", LIST[0], LIST[1]));
}

/// A table of crates for each wing, then what is above all of them and what is for tests.
fn list_of(members: &BTreeMap<String, Member>) -> String {
    let mut list = String::new();
    for (wing, about) in WINGS {
        write_table(&mut list, &format!("`crates/{wing}`: {about}"), &format!("crates/{wing}/"), members);
    }
    list.push_str("\n### Above all wings\n\n| crate | what it holds | must never |\n| --- | --- | --- |\n");
    for folder in ["crates/cli", "fpga/model", "xtask"] {
        let member = members.values().find(|member| member.folder == folder);
        list.push_str(&row(folder, member.unwrap_or_else(|| panic!("{folder} is a crate"))));
    }
    write_table(&mut list, "`testing`: for tests alone", "testing/", members);
    list.push('\n');
    list
}

/// A table of the crates right below a folder.
fn write_table(list: &mut String, title: &str, prefix: &str, members: &BTreeMap<String, Member>) {
    let mut rows: Vec<(&str, &Member)> = members
        .values()
        .filter_map(|member| Some((member.folder.strip_prefix(prefix)?, member)))
        // A crate in another one's folder is part of it.
        .filter(|(name, _)| !name.contains('/'))
        .collect();
    rows.sort_by_key(|(name, _)| *name);
    let _ = write!(list, "\n### {title}\n\n| crate | what it holds | must never |\n| --- | --- | --- |\n");
    for (name, member) in rows {
        list.push_str(&row(name, member));
    }
}

fn row(name: &str, member: &Member) -> String {
    let never = if member.is_for_tests() { "be linked by the product" } else { &member.never };
    format!("| `{name}` | {} | {never} |\n", member.holds)
}

#[test]
fn the_architecture_page_names_no_folder_that_is_gone() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for named in page.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/")) {
        assert!(root().join(named).exists(), "ARCHITECTURE.md names `{named}`, which is gone");
    }
}
