//! The weight of the repository, and the index of what was measured.
//!
//! `data/DEVICE/TOPIC/` holds raw results of one topic from one kind of device; `data/README.md`
//! has a row for each such folder, and nothing lies outside of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use test_process::Command;

/// Bytes of all files that are checked in: who clones the repository waits for them.
const MOST_BYTES: u64 = 34_900_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names in a folder of the repository.
fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_folder_of_data_is_in_the_index() {
    let index = std::fs::read_to_string(root().join("data/README.md")).unwrap();
    let row = |line: &str| Some(line.strip_prefix("| [`")?.split_once("`]")?.0.to_owned());
    let listed: BTreeSet<String> = index.lines().filter_map(row).collect();
    let devices = names("data").into_iter().filter(|name| name != "README.md");
    let topics = |device: String| {
        let topics = names(&format!("data/{device}"));
        topics.into_iter().map(move |topic| format!("{device}/{topic}"))
    };
    let found: BTreeSet<String> = devices.flat_map(topics).collect();
    assert_eq!(found, listed, "data/README.md has a row for each folder data/DEVICE/TOPIC");
    assert!(found.iter().all(|folder| root().join("data").join(folder).is_dir()), "a file lies in no topic");
}

#[test]
fn the_working_tree_stays_small() {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let Some(listed) = listed.ok().filter(|output| output.status.success()) else {
        test_skip::missing_dependency("no git, or no repository");
        return;
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    let size = |name: &str| root().join(name).symlink_metadata().map_or(0, |file| file.len());
    let mut files: Vec<(u64, &str)> = listed.split_terminator('\0').map(|name| (size(name), name)).collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    let sum: u64 = files.iter().map(|(bytes, _)| bytes).sum();
    files.truncate(20);
    assert!(sum < MOST_BYTES, "the files that are checked in have {sum} bytes; the largest: {files:#?}");
}
