//! The spool against a model, damaged on the disk, and killed at any moment.

use apex_random::Random;
use apex_spool::{Counts, Entry, Limits, MOST_ASIDE, MOST_LABEL, Spool};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use test_process::Command;

fn entry(key: &str, sequence: u64, body: &[u8]) -> Entry {
    Entry { key: key.to_owned(), sequence, label: "a label".to_owned(), body: body.to_vec() }
}

fn bodies(spool: &Spool) -> BTreeMap<String, (u64, Vec<u8>)> {
    let waiting = spool.waiting().unwrap();
    let entries = waiting.iter().filter_map(|of| spool.read(&of.key).unwrap());
    entries.map(|entry| (entry.key, (entry.sequence, entry.body))).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u64),
    Confirm(u8, u64),
    Refuse(u8, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..3, 0u8..4, 1u64..6).prop_map(|(kind, key, sequence)| match kind {
        0 => Step::Put(key, sequence),
        1 => Step::Confirm(key, sequence),
        _ => Step::Refuse(key, sequence),
    });
    prop::collection::vec(step, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_newest_of_a_key_waits_until_it_is_confirmed(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(&folder.path().join("spool"), Limits::default()).unwrap();
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        let mut refused = 0;
        for step in steps {
            match step {
                Step::Put(key, sequence) => {
                    let key = format!("k{key}");
                    spool.put(&entry(&key, sequence, &sequence.to_le_bytes())).unwrap();
                    let waits = model.entry(key).or_insert(0);
                    *waits = sequence.max(*waits);
                }
                Step::Confirm(key, sequence) => {
                    let key = format!("k{key}");
                    spool.confirm(&key, sequence).unwrap();
                    model.retain(|of, waits| *of != key || *waits > sequence);
                }
                Step::Refuse(key, sequence) => {
                    let key = format!("k{key}");
                    spool.refuse(&key, sequence).unwrap();
                    let before = model.len();
                    model.retain(|of, waits| *of != key || *waits > sequence);
                    refused += (before - model.len()) as u64;
                }
            }
            let found: BTreeMap<String, u64> = bodies(&spool).into_iter().map(|(key, (sequence, body))| {
                assert_eq!(body, sequence.to_le_bytes());
                (key, sequence)
            }).collect();
            prop_assert_eq!(&found, &model);
        }
        prop_assert_eq!(spool.counts().unwrap(), Counts { refused, ..Counts::default() });
    }
}

#[test]
fn the_oldest_make_room_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { entries: 3, bytes: 400, body: 100 };
    let spool = Spool::open(folder.path(), limits).unwrap();
    for number in 0..5 {
        spool.put(&entry(&format!("k{number}"), 1, b"x")).unwrap();
    }
    let waiting: Vec<String> = bodies(&spool).into_keys().collect();
    assert_eq!(waiting.len(), 3);
    assert!(waiting.contains(&"k4".to_owned()));
    assert_eq!(spool.counts().unwrap().dropped, 2);
    // A message of a key that waits takes no other's room.
    spool.put(&entry("k4", 2, b"y")).unwrap();
    assert_eq!(spool.counts().unwrap().dropped, 2);
    assert!(spool.put(&entry("k9", 1, &[0; 101])).is_err());
    assert!(spool.put(&entry("../k", 1, b"")).is_err());
    spool.put(&entry("k7", 1, &[0; 100])).unwrap();
    spool.put(&entry("k8", 1, &[0; 100])).unwrap();
    spool.put(&entry("k9", 1, &[0; 100])).unwrap();
    assert_eq!(bodies(&spool).len(), 3);
}

#[test]
fn a_changed_byte_is_set_aside_and_counted_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(folder.path(), Limits::default()).unwrap();
    let whole = entry("key", 7, b"the body");
    let file = folder.path().join("key.message");
    let mut damaged = 0;
    for at in 0..whole.to_bytes().len() {
        for bit in [0, 5] {
            spool.put(&whole).unwrap();
            let mut bytes = fs::read(&file).unwrap();
            bytes[at] ^= 1 << bit;
            fs::write(&file, bytes).unwrap();
            damaged += 1;
            assert_eq!(spool.read("key").unwrap(), None, "byte {at}, bit {bit}");
            assert_eq!(spool.counts().unwrap().damaged, damaged);
        }
        spool.put(&whole).unwrap();
        fs::write(&file, &fs::read(&file).unwrap()[..at]).unwrap();
        damaged += 1;
        assert_eq!(spool.read("key").unwrap(), None, "cut at {at}");
    }
    // An entry under another's name is nobody's.
    spool.put(&whole).unwrap();
    fs::rename(&file, folder.path().join("other.message")).unwrap();
    assert_eq!(spool.read("other").unwrap(), None);
    let kept = fs::read_dir(folder.path()).unwrap();
    let kept =
        kept.filter(|found| found.as_ref().unwrap().path().extension().is_some_and(|e| e == "damaged"));
    assert!(kept.count() <= MOST_ASIDE);
    spool.put(&whole).unwrap();
    assert_eq!(spool.read("key").unwrap(), Some(whole));
}

#[test]
fn each_message_has_its_label_and_each_loss_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(folder.path(), Limits { entries: 2, ..Limits::default() }).unwrap();
    let labelled = |key: &str, label: &str| Entry { label: label.to_owned(), ..entry(key, 1, b"x\ny") };
    let longest = "l".repeat(MOST_LABEL);
    for (key, label) in [("a", ""), ("b", longest.as_str())] {
        spool.put(&labelled(key, label)).unwrap();
        assert_eq!(spool.read(key).unwrap(), Some(labelled(key, label)));
    }
    let labels = || -> BTreeMap<String, Option<String>> {
        spool.waiting().unwrap().into_iter().map(|of| (of.key, of.label)).collect()
    };
    assert_eq!(labels(), [("a".to_owned(), Some(String::new())), ("b".to_owned(), Some(longest))].into());
    for wrong in ["two\nlines", "ä", &"l".repeat(MOST_LABEL + 1)] {
        assert!(spool.put(&labelled("c", wrong)).is_err(), "{wrong}");
    }
    assert_eq!(spool.news().unwrap(), Counts::default());
    spool.put(&labelled("c", "of c")).unwrap();
    fs::write(folder.path().join("c.message"), b"damaged").unwrap();
    assert_eq!((labels().len(), labels()["c"].clone()), (2, None));
    assert_eq!(spool.read("c").unwrap(), None);
    let lost = Counts { dropped: 1, damaged: 1, refused: 0 };
    assert_eq!((spool.news().unwrap(), spool.news().unwrap()), (lost, Counts::default()));
    assert_eq!(spool.counts().unwrap(), lost);
}

#[test]
fn a_folder_that_others_can_change_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Spool::open(folder.path(), Limits::default()).is_err());
}

/// The program of the next test: puts messages of rising sequences, and prints each that is on the
/// disk.
#[test]
#[ignore = "run by what_was_put_is_there_after_a_kill_at_any_moment"]
fn puts_until_it_is_killed() {
    let folder = std::env::var_os("APEX_TEST_FOLDER").expect("the folder");
    let spool = Spool::open(Path::new(&folder), Limits::default()).unwrap();
    for sequence in 1.. {
        for key in ["a", "b"] {
            spool.put(&entry(key, sequence, &vec![sequence as u8; 3000])).unwrap();
            println!("put {key} {sequence}");
        }
    }
}

#[test]
fn what_was_put_is_there_after_a_kill_at_any_moment() {
    use std::io::{BufRead, BufReader};
    let mut random = Random::new(0x5b001);
    for round in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["puts_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
            .env("APEX_TEST_FOLDER", &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut put: BTreeMap<String, u64> = BTreeMap::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let kill_after = 1 + random.below(60);
        let take = |line: String, put: &mut BTreeMap<String, u64>| {
            // (The harness prints its own text in front of the first line.)
            let mut words = line.split_once("put ")?.1.split(' ');
            put.insert(words.next()?.to_owned(), words.next()?.parse().ok()?);
            Some(())
        };
        for _ in 0..kill_after {
            take(lines.next().unwrap_or_default(), &mut put);
        }
        child.kill().unwrap();
        for line in lines {
            take(line, &mut put);
        }
        child.wait().unwrap();
        let spool = Spool::open(&path, Limits::default()).unwrap();
        let found = bodies(&spool);
        for (key, sequence) in &put {
            let (there, body) = &found[key];
            assert!(there >= sequence, "round {round}: {key} {sequence} was put, {there} is there");
            assert_eq!(body, &vec![*there as u8; 3000]);
        }
        assert_eq!(spool.counts().unwrap(), Counts::default(), "round {round}");
        spool.put(&entry("c", 1, b"")).unwrap();
        let parts = fs::read_dir(&path).unwrap().map(|found| found.unwrap().file_name());
        assert!(parts.into_iter().all(|name| !name.to_string_lossy().ends_with(".part")));
    }
}
