//! Session folders: those that others could change are refused, names do not race, and nothing is
//! written over a record.

use crate::common::{APEX, Running, Sandbox, output, program, text};
use apex_trace::MappedControl;
use apex_trace::control::Settings;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// Returns the message of `apex run` about a folder that it does not take.
fn refused(sandbox: &Sandbox, folder: &str) -> String {
    let said =
        text(&output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", folder, "true"]), 125).stderr);
    assert!(said.contains(folder) && said.contains("-o") && said.lines().count() <= 3, "{said}");
    said
}

#[test]
fn folders_that_others_can_change_are_refused() {
    let sandbox = Sandbox::new();
    for (mode, why) in [(0o777, "every user may write"), (0o1777, "every user may write")] {
        let folder = sandbox.path("shared");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        assert!(refused(&sandbox, "shared").contains(why));
        symlink("shared", sandbox.path("link")).unwrap();
        // Behind a link it is the same folder.
        let said =
            text(&output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "link", "true"]), 125).stderr);
        assert!(said.contains(why), "{said}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_file(sandbox.path("link")).unwrap();
        fs::remove_dir(folder).unwrap();
    }
    // Only root can give a folder away; the rule itself is tested on owners and modes.
    let theirs = sandbox.path("theirs");
    fs::create_dir(&theirs).unwrap();
    if chown(&theirs, Some(65534), Some(65534)).is_ok() {
        assert!(refused(&sandbox, "theirs").contains("it belongs to user 65534"));
        symlink("theirs", sandbox.path("link")).unwrap();
        output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "link/", "true"]), 125);
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
    }
}

#[test]
fn a_new_session_is_for_its_user_alone() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "1"]);
    assert_eq!(sandbox.path("s").metadata().unwrap().mode() & 0o777, 0o700);
    for entry in fs::read_dir(sandbox.path("s")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", entry.file_name());
    }
}

/// A program that was killed before its first CUDA call leaves a session that nobody wants to read,
/// and it says so when it is named or when there is no other.
#[test]
fn a_session_without_a_cuda_call_is_not_the_newest() {
    let sandbox = Sandbox::new();
    let without = |session: &str| {
        fs::create_dir(sandbox.path(session)).unwrap();
        MappedControl::create(&sandbox.path(session), Settings::default()).unwrap();
        let meta = r#"{"schema": 1, "apex_version": "0.1.0", "command": ["true"], "cwd": "/", "started_real_ns": 1,
            "ended_real_ns": 2, "exit": {"code": 0}, "device": "cpu", "timing": "sampled"}"#;
        fs::write(sandbox.path(session).join("session.json"), meta).unwrap();
    };
    without("older");
    let report = || output(&mut sandbox.apex(&["report"]), 0);
    assert!(text(&report().stdout).contains("older: true"));
    sandbox.recorded(&[], &["launch", "3"]);
    without("newer");
    let report = report();
    assert!(text(&report.stdout).contains("3 launches"), "{}", text(&report.stdout));
    let said = text(&report.stderr);
    assert!(
        said.contains("the newest session newer has no CUDA call") && said.contains("reading s"),
        "{said}"
    );
    let exported = output(&mut sandbox.apex(&["export", "--format", "csv"]), 0);
    assert_eq!(text(&exported.stdout).lines().count(), 1 + 3);
    // What steers a program that runs takes the newest session: its first CUDA call may be still to
    // come.
    let status = sandbox.json(&["ctl", "status", "--json"]);
    assert_eq!(status["session"], "newer");
}

/// Runs that begin in the same second, in the same folder, share nothing.
#[test]
fn default_names_do_not_race() {
    const RUNS: usize = 12;
    let sandbox = Sandbox::new();
    let start = |_| {
        let mut run = sandbox.apex(&["run", "--device", "cpu", "--"]);
        Running::start(run.arg(program()).args(["launch", "1", "exit", "7"]))
    };
    let runs: Vec<_> = (0..RUNS).map(start).collect();
    for mut run in runs {
        assert_eq!(run.0.wait().unwrap().code(), Some(7));
    }
    let sessions: Vec<_> =
        fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(sessions.len(), RUNS);
    let pids: BTreeSet<_> = sessions
        .iter()
        .map(|session| apex_trace::Session::open(session).unwrap().meta.unwrap().pid.unwrap())
        .collect();
    assert_eq!(pids.len(), RUNS, "each has its own description");
}

/// Of two runs into one empty folder one has it, and the other takes nothing of it away.
#[test]
fn two_runs_into_one_folder_do_not_mix() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("s")).unwrap();
    let start = |_| Running::start(sandbox.record(&[], &["launch", "3"]).env("RUST_BACKTRACE", "0"));
    let mut runs: Vec<_> = (0..2).map(start).collect();
    let codes: BTreeSet<_> = runs.iter_mut().map(|run| run.0.wait().unwrap().code()).collect();
    assert_eq!(codes, BTreeSet::from([Some(0), Some(125)]));
    assert_eq!(sandbox.launches("s"), 3);
    assert!(apex_trace::Session::open(sandbox.path("s")).unwrap().meta.unwrap().exit.is_some());
}

fn only(folder: &Path, extension: &str) -> PathBuf {
    let mut found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.extension().is_some_and(|it| it == extension)).unwrap()
}

/// Whatever name leads to a file of the record, an export does not go there.
#[test]
fn an_export_never_lands_on_the_record() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--check"], &["launch", "2"]);
    let record = only(&sandbox.path("s"), "rec");
    let name = record.file_name().unwrap().to_str().unwrap().to_owned();
    symlink(&record, sandbox.path("soft")).unwrap();
    fs::hard_link(&record, sandbox.path("hard")).unwrap();
    symlink("s", sandbox.path("folder")).unwrap();
    let before: Vec<_> = ["soft", "hard", "s/control", "s/session.json"]
        .map(|name| fs::read(sandbox.path(name)).unwrap())
        .into();
    let targets = [
        format!("s/{name}"),
        format!("./s/../s/{name}"),
        format!("folder/{name}"),
        "soft".to_owned(),
        "hard".to_owned(),
        "s/control".to_owned(),
        "s/session.json".to_owned(),
        // Not there yet, and part of the session if they were.
        "s/1-1.rec".to_owned(),
        "folder/1-1.counts".to_owned(),
    ];
    for target in &targets {
        for format in ["csv", "json", "parquet", "perfetto"] {
            let said = text(
                &output(&mut sandbox.apex(&["export", "--format", format, "-o", target, "s"]), 125).stderr,
            );
            assert!(
                said.contains("is a file of the session") && said.contains("name another file"),
                "{target}: {said}"
            );
        }
    }
    let after: Vec<_> = ["soft", "hard", "s/control", "s/session.json"]
        .map(|name| fs::read(sandbox.path(name)).unwrap())
        .into();
    assert_eq!(before, after);
    assert_eq!(sandbox.launches("s"), 2);
    // Beside the record there is room.
    output(&mut sandbox.apex(&["export", "--format", "csv", "-o", "s/out.csv", "s"]), 0);
    assert_eq!(sandbox.launches("s"), 2);

    // Neither does what is printed.
    let appended = OpenOptions::new().append(true).open(&record).unwrap();
    for arguments in
        [&["report", "s"][..], &["export", "--format", "csv", "s"], &["predict", "s"], &["diff", "s", "s"]]
    {
        let mut command = sandbox.apex(arguments);
        let said = text(&output(command.stdout(appended.try_clone().unwrap()), 125).stderr);
        assert!(said.contains("stdout is"), "{said}");
    }
    for part in ["timeline.index", "machine.jsonl", "host-stacks.jsonl"] {
        let file = OpenOptions::new().append(true).create(true).open(sandbox.path("s").join(part)).unwrap();
        let said = text(&output(sandbox.apex(&["report", "s"]).stdout(file), 125).stderr);
        assert!(said.contains("stdout is") && said.contains(part), "{said}");
    }
    assert_eq!(sandbox.launches("s"), 2);
    // Nor a data set or models.
    for arguments in
        [&["collect", "-o", "s", "--device", "cpu", "--rows", "1"][..], &["train", "--data", "s", "-o", "s"]]
    {
        output(&mut sandbox.apex(arguments), 125);
    }
    assert_eq!(sandbox.launches("s"), 2);
}

/// A file that is read is not written to meanwhile: it would never end.
#[test]
fn predictions_do_not_go_into_the_file_of_launches() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("a.csv"), "grid_x,block_x\n8,32\n").unwrap();
    let appended = OpenOptions::new().append(true).open(sandbox.path("a.csv")).unwrap();
    let mut command = sandbox.apex(&["predict", "a.csv", "--csv"]);
    let said = text(&output(command.stdout(appended), 125).stderr);
    assert!(said.contains("stdout is a.csv"), "{said}");
}

/// A device is written to; as root, replacing it would have destroyed it.
#[test]
fn an_export_to_a_device_leaves_it_one() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "2"]);
    output(&mut sandbox.apex(&["export", "--format", "csv", "-o", "/dev/null", "s"]), 0);
    assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    let csv = output(&mut sandbox.apex(&["export", "--format", "csv", "-o", "/dev/stdout", "s"]), 0);
    assert_eq!(text(&csv.stdout).lines().count(), 3);
    assert!(Path::new("/dev/stdout").symlink_metadata().unwrap().is_symlink());
}

/// Under a limit on the size of files, APEX says what it cannot write and does not die of it; the
/// program has the signal as it would have without APEX.
#[test]
fn a_limit_on_file_sizes_is_an_error_message() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "2"]);
    let limited = |blocks: u32, command: &str| {
        let mut shell = sandbox.command("sh");
        shell.args(["-c", &format!("ulimit -f {blocks}; exec {command}")]).env("APEX", APEX);
        shell
    };
    for blocks in [0, 1] {
        let run = format!("\"$APEX\" run --device cpu -o limited-{blocks} true");
        let said = text(&output(&mut limited(blocks, &run), 125).stderr);
        assert!(said.contains("ulimit -f"), "{said}");
        assert!(!sandbox.path(&format!("limited-{blocks}")).exists(), "what was made in vain is taken back");
    }
    for command in [
        "\"$APEX\" export --format json -o out.json s",
        "\"$APEX\" report s > out.txt",
        "\"$APEX\" report --json s > out.txt",
    ] {
        let said = text(&output(&mut limited(0, command), 125).stderr);
        assert!(said.contains("too large"), "{command}: {said}");
    }
    let ignored = |before: &str| {
        let mut shell = sandbox.command("sh");
        let script =
            format!("{before} exec \"$APEX\" run --quiet --device cpu -- grep SigIgn /proc/self/status");
        let said = text(&output(shell.args(["-c", &script]).env("APEX", APEX), 0).stdout);
        let mask = u64::from_str_radix(said.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        mask >> (libc::SIGXFSZ - 1) & 1 == 1
    };
    assert!(!ignored(""));
    assert!(ignored("trap '' XFSZ;"));
}

/// A program that writes beyond its limit ends as it does without APEX.
#[test]
fn a_program_beyond_its_limit_ends_as_without_apex() {
    let sandbox = Sandbox::new();
    let script = "ulimit -f 0; exec dd if=/dev/zero of=out bs=1 count=1 status=none";
    let mut apex = sandbox.apex(&["run", "--quiet", "--device", "cpu", "-o", "s", "--", "sh", "-c", script]);
    let status = apex.status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGXFSZ), "{status}");
    assert!(program().exists());
}
