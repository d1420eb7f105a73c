//! Notes: kept, bounded, never overwritten where they are not understood; entries of lists.

use apex_catalogue::{Change, Entry, Notes, State};
use apex_untrusted::Folder;
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn notes_are_kept_and_changed() {
    let dir = TempDir::new().unwrap();
    let folder = Folder::open(dir.path()).unwrap();
    let mut notes = Notes::read(dir.path()).unwrap();
    let change = Change {
        name: Some(" before the fix ".into()),
        tag: words(&["slow", "h200", "slow"]),
        untag: Vec::new(),
        text: Some("batch 32\nfour workers".into()),
    };
    notes.change(&change, 7).unwrap();
    notes.store(&folder).unwrap();
    let kept = Notes::read(dir.path()).unwrap();
    assert_eq!(kept, notes);
    assert_eq!((kept.name.as_deref(), kept.tags), (Some("before the fix"), words(&["h200", "slow"])));
    assert_eq!((kept.notes[0].at_real_ns, kept.notes[0].text.lines().count()), (7, 2));
    assert_eq!(notes.headline().as_deref(), Some("before the fix · #h200 #slow"));
    assert_eq!(Notes::default().headline(), None);
    let change = Change { untag: words(&["slow", "none"]), name: Some(String::new()), ..Change::default() };
    notes.change(&change, 8).unwrap();
    assert_eq!((notes.name.clone(), notes.tags.clone()), (None, words(&["h200"])));
    Notes::default().store(&folder).unwrap();
    assert!(!dir.path().join(Notes::FILE).exists());
    Notes::default().store(&folder).unwrap();
}

#[test]
fn texts_have_bounds() {
    let mut notes = Notes::default();
    for (change, why) in [
        (Change { tag: words(&[""]), ..Change::default() }, "the tag is empty"),
        (Change { tag: words(&["a\nb"]), ..Change::default() }, "line break"),
        (Change { name: Some("x".repeat(81)), ..Change::default() }, "more than 80 letters"),
        (Change { text: Some(" ".into()), ..Change::default() }, "the note is empty"),
        (Change { text: Some("\x1b[31m".into()), ..Change::default() }, "control character"),
        (Change { text: Some("x".repeat(4001)), ..Change::default() }, "more than 4000 letters"),
        (
            Change { tag: (0..33).map(|tag| tag.to_string()).collect(), ..Change::default() },
            "at most 32 tags",
        ),
    ] {
        let error = notes.change(&change, 0).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(notes, Notes::default(), "nothing was changed");
    }
}

#[test]
fn a_file_that_is_not_understood_is_refused_by_name() {
    let dir = TempDir::new().unwrap();
    for text in [
        "",
        "{}",
        "[",
        "{\"schema\": \"apex.notes/99\", \"tags\": []}",
        "{\"schema\": \"apex.notes/1\", \"tags\": 7}",
    ] {
        fs::write(dir.path().join(Notes::FILE), text).unwrap();
        let error = Notes::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("notes.json ") && error.contains("neither used nor changed"), "{error}");
    }
    let entry = Entry::brief(dir.path(), dir.path());
    assert!(entry.unread.unwrap().contains("notes.json"));
    let many = format!("{{\"schema\": \"apex.notes/1\", \"name\": \"{}\"}}", "x".repeat(5000));
    fs::write(dir.path().join(Notes::FILE), many).unwrap();
    assert_eq!(Notes::read(dir.path()).unwrap().name.unwrap().len(), 80);
}

#[test]
fn an_entry_tells_what_the_small_files_tell() {
    let dir = TempDir::new().unwrap();
    let meta = r#"{"schema": 1, "apex_version": "0.1.0", "command": ["train.py"], "cwd": "/", "started_real_ns": 5,
        "ended_real_ns": 9, "exit": {"code": 3}, "device": "gpu", "timing": "sampled"}"#;
    fs::write(dir.path().join("session.json"), meta).unwrap();
    fs::write(dir.path().join("1-1.rec"), vec![1; 10_000]).unwrap();
    let entry = Entry::brief(dir.path(), dir.path());
    assert_eq!((entry.state, entry.lasted_ns, entry.started_real_ns), (State::Ended, Some(4), Some(5)));
    assert_eq!((entry.command, entry.devices), (Some(words(&["train.py"])), words(&["gpu"])));
    assert!(entry.bytes >= 10_000 && !entry.is_packed && entry.unread.is_none());
    fs::write(dir.path().join("session.json"), "damaged").unwrap();
    assert_eq!(Entry::brief(dir.path(), dir.path()).state, State::Unknown);
}

proptest! {
    #[test]
    fn any_file_gives_notes_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join(Notes::FILE), bytes).unwrap();
        let _ = Notes::read(dir.path());
    }
}

#[test]
fn notes_of_parts_are_those_of_the_whole() {
    let of = |name: Option<&str>, tags: &[&str]| Notes {
        name: name.map(str::to_owned),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..Notes::default()
    };
    let mut whole = Notes::default();
    whole.join(of(Some("base"), &["slow"]));
    whole.join(of(Some("base"), &["h200", "slow"]));
    assert_eq!(whole, of(Some("base"), &["h200", "slow"]));
    whole.join(of(None, &[]));
    whole.join(of(Some("fused"), &[]));
    whole.join(of(Some("fused"), &[]));
    assert_eq!(whole.name.as_deref(), Some("base + fused"));
    whole.join(of(Some(&"x".repeat(80)), &[]));
    assert_eq!(whole.name.as_deref(), Some("base + fused"), "both are too long for a name");
}
