//! Sessions that are cut off, overwritten, or none at all: a clear message, never a panic.

use crate::common::{Sandbox, output, text};
use apex_random::Random;
use std::path::PathBuf;

const COMMANDS: [&[&str]; 4] = [
    &["report", "s"],
    &["advise", "--json", "s"],
    &["export", "--format", "csv", "s"],
    &["export", "--format", "perfetto", "-o", "out", "s"],
];

/// Every command ends with 0 or with a message and 125.
fn survives(sandbox: &Sandbox, what: &str) {
    for command in COMMANDS {
        let output = sandbox.apex(command).output().unwrap();
        let code = output.status.code();
        let message = text(&output.stderr);
        assert!(
            code == Some(0) || code == Some(125) && !message.is_empty(),
            "{what}, {command:?}: {code:?} {message}"
        );
        assert!(!message.contains("panicked"), "{what}, {command:?}: {message}");
    }
}

fn process_file(sandbox: &Sandbox) -> PathBuf {
    let mut files = std::fs::read_dir(sandbox.path("s")).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "rec")).unwrap()
}

#[test]
fn a_session_that_is_cut_off_is_read_as_far_as_it_goes() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "2000"]);
    let path = process_file(&sandbox);
    let whole = std::fs::read(&path).unwrap();
    let mut random = Random::new(21);
    for cut in [0, 1, 8, 4095, 4096, whole.len() - 1]
        .into_iter()
        .chain((0..8).map(|_| random.below(whole.len() as u64) as usize))
    {
        std::fs::write(&path, &whole[..cut]).unwrap();
        survives(&sandbox, &format!("cut at {cut}"));
    }
    std::fs::write(&path, &whole[..5000]).unwrap();
    let output = output(&mut sandbox.apex(&["report", "s"]), 0);
    assert!(text(&output.stderr).contains("cut off"), "{}", text(&output.stderr));
}

#[test]
fn a_session_with_random_bytes_in_it_is_read_as_far_as_it_makes_sense() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "500"]);
    let path = process_file(&sandbox);
    let whole = std::fs::read(&path).unwrap();
    let mut random = Random::new(22);
    for round in 0..12 {
        let mut damaged = whole.clone();
        for _ in 0..(1 << round) {
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] = random.below(256) as u8;
        }
        // The first pages hold what the rest depends on.
        for _ in 0..round {
            damaged[random.below(8192) as usize] = random.below(256) as u8;
        }
        std::fs::write(&path, damaged).unwrap();
        survives(&sandbox, &format!("round {round}"));
    }
}

#[test]
fn a_damaged_session_json_is_no_obstacle() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "5"]);
    std::fs::write(sandbox.path("s/session.json"), "{\"schema\": 1, oops").unwrap();
    let output = output(&mut sandbox.apex(&["report", "s"]), 0);
    assert!(text(&output.stderr).contains("session.json"));
    assert!(text(&output.stdout).contains("5 launches"));
}

#[test]
fn a_newer_session_is_refused_by_name() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "5"]);
    std::fs::write(sandbox.path("s/session.json"), "{\"schema\": 999}").unwrap();
    let message = text(&output(&mut sandbox.apex(&["report", "s"]), 125).stderr);
    assert!(message.contains("newer APEX") && message.contains("session.json"), "{message}");
}

#[test]
fn what_is_no_session_is_said_so() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    std::fs::write(sandbox.path("file"), "text").unwrap();
    for path in ["empty", "file", "missing"] {
        let message = text(&output(&mut sandbox.apex(&["report", path]), 125).stderr);
        assert!(message.contains(path), "{message}");
    }
    let message = text(&output(&mut sandbox.apex(&["report"]), 125).stderr);
    assert!(message.contains("apex run"), "{message}");
}

/// Every command that reads says which byte has changed or which file is missing, in its notes too.
#[test]
fn a_changed_byte_and_a_missing_file_are_named() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "500"]);
    let path = process_file(&sandbox);
    let report = || {
        let shown = output(&mut sandbox.apex(&["report", "s"]), 0);
        (text(&shown.stdout), text(&shown.stderr))
    };
    let (sound, said) = report();
    assert!(!said.contains("damaged") && !sound.contains("Damaged or incomplete"), "{said}{sound}");

    let mut changed = std::fs::read(&path).unwrap();
    changed[5000] ^= 1;
    std::fs::write(&path, &changed).unwrap();
    let (shown, said) = report();
    assert!(
        said.contains(".rec: byte 0: the 16384 bytes from here on are not those that were recorded"),
        "{said}"
    );
    assert!(shown.contains("Damaged or incomplete: ") && shown.contains("16384 bytes"), "{shown}");

    std::fs::remove_file(&path).unwrap();
    let (shown, said) = report();
    assert!(said.contains(".rec: missing: the CUDA calls of its process are in no figure"), "{said}");
    assert!(!shown.contains("No kernel was launched"), "{shown}");

    // An older session has no list of its files; its control page counts them.
    std::fs::remove_file(sandbox.path("s/checksums")).unwrap();
    let (shown, said) = report();
    assert!(said.contains("1 of 1 process files that were made in the session are missing"), "{said}");
    assert!(!shown.contains("No kernel was launched"), "{shown}");
}

#[test]
fn an_export_of_call_stacks_without_any_says_why() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--host-stacks", "off"], &["launch", "20"]);
    for format in ["collapsed", "speedscope"] {
        let exported = output(&mut sandbox.apex(&["export", "--format", format, "s"]), 0);
        let said = text(&exported.stderr);
        assert!(said.contains("the session holds no call stacks of the host"), "{format}: {said}");
    }
}
