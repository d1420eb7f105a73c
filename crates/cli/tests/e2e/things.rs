//! Sessions as things: listed, named, packed into one file that every command reads.

use crate::common::{Running, Sandbox, launches, output, send, text, wait_until};
use crate::verdicts::record;
use apex_trace::MappedControl;
use apex_trace::control::Settings;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;
use test_session::LEGACY;

/// Commands that read a session, with what is in front of its path.
const READERS: [&[&str]; 6] = [
    &["report", "--json"],
    &["advise", "--json"],
    &["export", "--format", "csv", "--what", "kernels"],
    &["report", "--format", "markdown"],
    &["report", "--html", "page.html", "--json"],
    &["predict", "--json", "--device", "h200"],
];

/// A session of an H200, with the control page that tells that it is one.
fn session(sandbox: &Sandbox, name: &str) {
    let dir = sandbox.path(name);
    fs::create_dir(&dir).unwrap();
    record(&dir, |program| {
        let uneven = program.function("uneven");
        let uneven = program.config(uneven, 5000, 100);
        for _ in 0..20 {
            program.timed(uneven, LEGACY, 40_000);
            program.now += 60_000;
        }
    });
    test_session::open(&dir);
    let meta = r#"{"schema": 1, "apex_version": "0.1.0", "command": ["./uneven"], "cwd": "/", "started_real_ns": 5,
        "ended_real_ns": 9, "exit": {"code": 3}, "device": "gpu", "timing": "all"}"#;
    fs::write(dir.join("session.json"), meta).unwrap();
    let control = MappedControl::create(&dir, Settings::default()).unwrap();
    control.processes.store(1, Ordering::Relaxed);
}

/// Launches in a session, whose clock is a made one.
fn launches_in(sandbox: &Sandbox, session: &str) -> u64 {
    apex_trace::Session::open(sandbox.path(session)).unwrap().processes.iter().map(launches).sum()
}

/// A session, and the archive of it.
fn packed() -> Sandbox {
    let sandbox = Sandbox::new();
    session(&sandbox, "s");
    let done = output(&mut sandbox.apex(&["pack", "s"]), 0);
    assert_eq!(text(&done.stdout), "s.tar.gz\n");
    sandbox
}

#[test]
fn every_command_reads_a_packed_session_as_its_folder() {
    let sandbox = packed();
    fs::create_dir(sandbox.path("tmp")).unwrap();
    for reader in READERS {
        let [folder, archive] = ["s", "s.tar.gz"].map(|session| {
            let mut command = sandbox.apex(&[reader, &[session]].concat());
            let out = text(&output(command.env("TMPDIR", sandbox.path("tmp")), 0).stdout);
            out.replace("s.tar.gz", "s")
        });
        assert!(folder.len() > 100, "{reader:?}: {folder}");
        let first = folder.lines().zip(archive.lines()).find(|(a, b)| a != b);
        assert_eq!(first, None, "{reader:?}");
    }
    let compared = sandbox.json(&["diff", "--json", "s", "s.tar.gz"]);
    assert_eq!(compared["comparison"]["launches"]["ratio"], 1.0, "{compared:#}");
    output(&mut sandbox.apex(&["merge", "s.tar.gz", "-o", "merged"]), 0);
    assert_eq!(launches_in(&sandbox, "merged"), 20);
    output(&mut sandbox.apex(&["unpack", "s.tar.gz", "-o", "again"]), 0);
    assert_eq!(launches_in(&sandbox, "again"), 20);
    assert_eq!(fs::read_dir(sandbox.path("tmp")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn what_follows_a_session_asks_for_its_folder() {
    let sandbox = packed();
    for command in [
        &["top", "s.tar.gz"][..],
        &["metrics", "s.tar.gz"],
        &["note", "s.tar.gz", "text"],
        &["pack", "s.tar.gz"],
    ] {
        let said = text(&output(&mut sandbox.apex(command), 125).stderr);
        assert!(said.contains("s.tar.gz is a packed session") && said.contains("`apex unpack"), "{said}");
    }
    fs::create_dir(sandbox.path("none")).unwrap();
    for command in [["pack", "none"], ["note", "none"]] {
        let said = text(&output(&mut sandbox.apex(&command), 125).stderr);
        assert!(said.contains("none is no session folder"), "{said}");
    }
    // A session whose control page has lost its mark is one to `apex report`, but not to
    // `apex unpack`.
    let sandbox = packed();
    fs::write(sandbox.path("s/control"), [0; 4096]).unwrap();
    let said = text(&output(&mut sandbox.apex(&["pack", "s", "--force"]), 125).stderr);
    assert!(said.contains("s has records, but not the mark of a session"), "{said}");
    let command = ["export", "--format", "csv", "s.tar.gz", "-o", "s.tar.gz"];
    let said = text(&output(&mut sandbox.apex(&command), 125).stderr);
    assert!(said.contains("is what is read"), "{said}");
}

#[test]
fn a_damaged_archive_leaves_no_folder() {
    let sandbox = packed();
    let whole = fs::read(sandbox.path("s.tar.gz")).unwrap();
    fs::write(sandbox.path("cut.tar.gz"), &whole[..whole.len() / 2]).unwrap();
    for command in [&["unpack", "cut.tar.gz"][..], &["report", "cut.tar.gz"]] {
        let said = text(&output(&mut sandbox.apex(command), 125).stderr);
        let place = format!("it is cut off, near byte {}", whole.len() / 2);
        assert!(said.contains("cut.tar.gz") && said.contains(&place), "{said}");
    }
    assert!(!sandbox.path("cut").exists());
    let said =
        text(&output(&mut sandbox.apex(&["unpack", "s.tar.gz", "-o", "t", "--limit", "4K"]), 125).stderr);
    assert!(said.contains("the files exceed 4096 bytes"), "{said}");
    assert!(!sandbox.path("t").exists());
    let said = text(&output(&mut sandbox.apex(&["unpack", "s.tar.gz", "-o", "s"]), 125).stderr);
    assert!(said.contains("s is not empty"), "{said}");
}

#[test]
fn names_tags_and_notes_stay_with_a_session() {
    let sandbox = packed();
    output(&mut sandbox.apex(&["note", "s", "batch 32", "--name", "base\u{202e}line", "--tag", "h200"]), 0);
    output(&mut sandbox.apex(&["note", "s", "--tag", "slow", "--untag", "h200"]), 0);
    let notes = sandbox.json(&["note", "s", "--json"]);
    assert_eq!((&notes["tags"][0], &notes["notes"][0]["text"]), (&"slow".into(), &"batch 32".into()));
    for command in [&["report", "s"][..], &["list"], &["note", "s"]] {
        let said = text(&output(&mut sandbox.apex(command), 0).stdout);
        assert!(said.contains("#slow") && said.contains("batch 32"), "{said}");
        assert!(!said.contains('\u{202e}') && !said.contains("h200 "), "{said}");
    }
    let report = sandbox.json(&["report", "--json", "s"]);
    let problems = report["profile"]["recorder"]["problems"].to_string();
    assert!(!problems.contains("notes"), "{problems}");
    output(&mut sandbox.apex(&["pack", "s", "-o", "noted.tar.gz"]), 0);
    output(&mut sandbox.apex(&["unpack", "noted.tar.gz"]), 0);
    assert_eq!(sandbox.json(&["note", "noted", "--json"]), notes);
    fs::write(sandbox.path("s/notes.json"), "damaged").unwrap();
    let said = text(&output(&mut sandbox.apex(&["note", "s", "more"]), 125).stderr);
    assert!(said.contains("notes.json is damaged (") && said.contains("nor changed"), "{said}");
    output(&mut sandbox.apex(&["report", "s"]), 0);
    let run = ["--name", "named", "--tag", "a", "--tag", "b"];
    output(
        sandbox
            .apex(&["run", "--device", "cpu", "-o", "r"])
            .args(run)
            .arg("--")
            .arg(crate::common::program())
            .args(["launch", "1"]),
        0,
    );
    assert_eq!(sandbox.json(&["note", "r", "--json"])["tags"], serde_json::json!(["a", "b"]));
    let said = text(&output(&mut sandbox.apex(&["run", "--tag", "", "--", "true"]), 125).stderr);
    assert!(said.contains("the tag is empty"), "{said}");
}

#[test]
fn a_list_says_what_each_session_is_and_says_first() {
    let sandbox = packed();
    session(&sandbox, "t");
    fs::create_dir(sandbox.path("other")).unwrap();
    fs::write(sandbox.path("broken.tar"), "x").unwrap();
    output(&mut sandbox.apex(&["note", "t", "--tag", "kept"]), 0);
    let list = sandbox.json(&["list", "--json"]);
    let names: Vec<_> =
        list["sessions"].as_array().unwrap().iter().map(|one| one["session"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for session in list["sessions"].as_array().unwrap() {
        let is_broken = session["session"] == "broken.tar";
        assert_eq!(session["unread"].is_string(), is_broken, "{session:#}");
        assert_eq!(session["verdict"].as_array().unwrap().is_empty(), is_broken, "{session:#}");
        assert_eq!(session["is_packed"] == true, session["session"].as_str().unwrap().contains("tar"));
    }
    let tagged = sandbox.json(&["list", "--json", "--brief", "--tag", "kept"]);
    assert_eq!(tagged["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(tagged["sessions"][0]["verdict"], serde_json::json!([]));
    let mut narrow = sandbox.apex(&["list"]);
    let said = text(&output(narrow.env("COLUMNS", "80"), 0).stdout);
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    assert!(said.contains("s.tar.gz") && said.contains("it is damaged"), "{said}");
    let none = output(&mut sandbox.apex(&["list", "other"]), 0);
    assert!(text(&none.stderr).contains("no session in other") && none.stdout.is_empty());
    let said = text(&output(&mut sandbox.apex(&["list", "gone"]), 125).stderr);
    assert!(said.contains("cannot list gone"), "{said}");
}

#[test]
fn documents_have_schemas() {
    let sandbox = Sandbox::new();
    let names = text(&output(&mut sandbox.apex(&["schema"]), 0).stdout);
    assert!(names.lines().count() > 10 && names.contains("apex.report/"), "{names}");
    let schema = sandbox.json(&["schema", "list"]);
    assert_eq!(schema["properties"]["sessions"]["items"]["properties"]["bytes"]["type"][1], "number");
    let said = text(&output(&mut sandbox.apex(&["schema", "reprot"]), 1).stderr);
    assert!(said.contains("there is no schema `reprot`"), "{said}");
}

#[test]
fn findings_have_forms_for_other_tools() {
    let sandbox = packed();
    let page = text(&output(&mut sandbox.apex(&["report", "--format", "markdown", "s"]), 0).stdout);
    assert!(page.starts_with("**") && page.contains("| finding | change | saves |"), "{page}");
    let log = sandbox.json(&["report", "--format", "sarif", "s"]);
    assert_eq!(
        (&log["version"], &log["runs"][0]["tool"]["driver"]["name"]),
        (&"2.1.0".into(), &"APEX".into())
    );
    assert!(!log["runs"][0]["results"].as_array().unwrap().is_empty());
    output(&mut sandbox.apex(&["report", "--format", "sarif", "--json", "s"]), 2);
}

/// Writes an archive whose first file seems to have seven gibibytes, which are a hole.
fn endless_archive(path: &std::path::Path) {
    let mut header = [0; 512];
    header[..7].copy_from_slice(b"control");
    for (at, text) in [(100, "0000600"), (124, "70000000000"), (136, "00000000000"), (257, "ustar")] {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    header[263..265].copy_from_slice(b"00");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    fs::write(path, header).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_len(512 + (7 << 30)).unwrap();
}

#[test]
fn a_signal_while_an_archive_is_read_leaves_no_folder() {
    let sandbox = Sandbox::new();
    endless_archive(&sandbox.path("endless.tar"));
    fs::create_dir(sandbox.path("tmp")).unwrap();
    let written = || fs::read_dir(sandbox.path("tmp")).unwrap().count();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut report = sandbox.apex(&["report", "endless.tar"]);
        // A shell that starts tests in the background has them ignore SIGINT, and so would `apex`.
        // SAFETY: between fork and exec; `signal` is async-signal-safe, and SIG_DFL a valid action.
        unsafe {
            report.pre_exec(move || {
                libc::signal(signal, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut apex = Running::start(report.env("TMPDIR", sandbox.path("tmp")));
        wait_until("the folder is made", || written() > 0);
        send(apex.0.id(), signal);
        assert_eq!(apex.0.wait().unwrap().signal(), Some(signal));
        assert_eq!(written(), 0, "signal {signal}");
    }
}

#[test]
fn what_is_packed_is_not_overwritten_and_what_is_not_there_is_named() {
    let sandbox = packed();
    let said = text(&output(&mut sandbox.apex(&["pack", "s"]), 125).stderr);
    assert!(said.contains("s.tar.gz is there already") && said.contains("--force"), "{said}");
    output(&mut sandbox.apex(&["pack", "s", "--force"]), 0);
    for command in [["report", "gone.tar.gz"], ["unpack", "gone.tar.gz"]] {
        let said = text(&output(&mut sandbox.apex(&command), 125).stderr);
        assert!(said.contains("there is no file gone.tar.gz") && !said.contains("apex run"), "{said}");
    }
    // Damage in the middle of a small archive has a place behind it: where the numbers do not show
    // it, the checksum at the end does.
    let mut bytes = fs::read(sandbox.path("s.tar.gz")).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle..middle + 4].fill(0xff);
    fs::write(sandbox.path("hurt.tar.gz"), &bytes).unwrap();
    let said = text(&output(&mut sandbox.apex(&["unpack", "hurt.tar.gz"]), 125).stderr);
    let place = said.rsplit("near byte ").next().and_then(|rest| rest.trim().parse::<usize>().ok());
    assert!(place.is_some_and(|place| (middle..=bytes.len()).contains(&place)), "{middle}: {said}");
    fs::write(sandbox.path("there.db"), "something").unwrap();
    output(&mut sandbox.apex(&["hub", "token", "--database", "hub.db", "add", "physics"]), 0);
    let backup = ["hub", "backup", "--database", "hub.db", "there.db"];
    let said = text(&output(&mut sandbox.apex(&backup), 125).stderr);
    assert!(said.contains("there.db is there already, and a backup replaces nothing"), "{said}");
}

#[test]
fn names_and_tags_of_ranks_are_those_of_the_whole() {
    let sandbox = Sandbox::new();
    for rank in ["0", "1"] {
        let mut run =
            sandbox.apex(&["run", "--device", "cpu", "-o", "job", "--name", "base", "--tag", "h200"]);
        run.args(["--tag", &format!("rank-{rank}"), "--"]).arg(crate::common::program());
        run.args(["launch", "1"]).env("RANK", rank).env("WORLD_SIZE", "2");
        output(&mut run, 0);
    }
    let notes = sandbox.json(&["note", "job", "--json"]);
    assert_eq!(
        (&notes["name"], &notes["tags"]),
        (&"base".into(), &serde_json::json!(["h200", "rank-0", "rank-1"]))
    );
    session(&sandbox, "s");
    output(&mut sandbox.apex(&["note", "s", "a remark", "--name", "other", "--tag", "slow"]), 0);
    let merged = output(&mut sandbox.apex(&["merge", "job", "s", "-o", "all"]), 0);
    let said = text(&merged.stderr);
    assert!(said.contains("2 ranks, 1 process without a rank"), "{said}");
    let notes = sandbox.json(&["note", "all", "--json"]);
    assert_eq!((&notes["name"], &notes["tags"][3]), (&"base + other".into(), &"slow".into()));
    assert_eq!(notes["notes"][0]["text"], "a remark");
}
