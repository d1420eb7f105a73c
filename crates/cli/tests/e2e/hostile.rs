//! Sessions and files that somebody made to hurt: names that a terminal would obey, files that
//! block or never end.

use crate::common::{Running, Sandbox, h200_session, output, text, wait_until};
use apex_counts::{Defect, Place};
use apex_trace::counts::CountsFile;
use apex_trace::definition::Device;
use apex_trace::meta::{Exit, Host, Meta};
use apex_trace::{Definition, MappedControl, ProcessFile};
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Output;
use test_process::Command;

/// Erases the screen in three ways, reverses, hides, begins lines of its own, and is a formula.
const NAME: &str = "=k\x1b[2J\u{9b}2J\x1b]0;t\x07\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{85}\x7f\r\nFORGED line\nFORGED\tb";

/// A session in which all that can be foreign is [`NAME`].
fn session(folder: &Path) {
    h200_session(folder, &[(NAME, 64, 256, 20_000), ("tame", 3, 100, 5_000)]);
    drop(MappedControl::create(folder, apex_trace::control::Settings::default()).unwrap());
    let file = ProcessFile::create(folder, None).unwrap();
    let device = Device { id: 1, name: NAME.into(), ..Device::default() };
    assert!(file.define(&Definition::Device(device)));
    let place = Place { instruction: NAME.into(), ptx_line: 1, file: NAME.into(), line: 2 };
    let defect = Defect {
        kind: NAME.into(),
        kernel: NAME.into(),
        text: NAME.into(),
        place: place.clone(),
        other: Some(place),
        count: 3,
        places: 1,
    };
    CountsFile::create(folder).unwrap().defect(&defect).unwrap();
    let meta = Meta {
        schema: 1,
        apex_version: NAME.into(),
        command: vec![NAME.into(), NAME.into()],
        cwd: NAME.into(),
        pid: None,
        started_real_ns: 1,
        ended_real_ns: Some(2),
        exit: Some(Exit::Code(3)),
        device: NAME.into(),
        timing: NAME.into(),
        rank: None,
        host: Host { name: NAME.into(), ..Host::default() },
        ranks: std::collections::BTreeMap::new(),
        universal: Vec::new(),
        capability: Vec::new(),
        imported: Vec::new(),
        checked: false,
        attached: false,
        watched_by: None,
    };
    meta.store(&apex_untrusted::Folder::open(folder).unwrap()).unwrap();
    // A file whose name is foreign, with a problem inside.
    fs::write(folder.join(format!("{NAME}.rec")), "no process file").unwrap();
}

/// Nothing in the text is obeyed by a terminal, but for line ends and, if wanted, the colours that
/// APEX has.
fn assert_harmless(what: &str, output: &Output, colored: bool) {
    for stream in [&output.stdout, &output.stderr] {
        let mut text = String::from_utf8(stream.clone()).unwrap_or_else(|_| panic!("{what}: not UTF-8"));
        if colored {
            for code in ["0", "1", "2", "33", "31;1", "32"] {
                text = text.replace(&format!("\x1b[{code}m"), "");
            }
        }
        let text = text.replace("\r\n", "\n");
        let obeyed = text.chars().find(|&c| c != '\n' && !apex_untrusted::text::is_printable(c));
        assert_eq!(obeyed, None, "{what}: {text:?}");
        let forged =
            text.lines().find(|line| line.trim_start_matches("apex: ").trim_start().starts_with("FORGED"));
        assert_eq!(forged, None, "{what}: {text}");
    }
}

#[test]
fn nothing_foreign_is_obeyed_by_a_terminal() {
    let sandbox = Sandbox::new();
    // A path may have all of the name but the slash, of which it has none.
    session(&sandbox.path(NAME));
    let named: &[&[&str]] = &[
        &["report"],
        &["report", "--color", "always"],
        &["report", "--sort", "cpu", "--top", "1"],
        &["report", "--json"],
        &["advise"],
        &["advise", "--color", "always"],
        &["advise", "--json"],
        &["predict"],
        &["predict", "--json"],
        &["predict", "--color", "always", "--what-if", "block=128"],
        &["export", "--format", "json"],
        &["export", "--format", "json", "--what", "launches"],
        &["export", "--format", "json", "--what", "kernels"],
        &["diff", NAME],
        &["diff", NAME, "--json"],
        &["diff", NAME, "--configurations", "--color", "always"],
        &["ctl", "status"],
        &["ctl", "status", "--json"],
    ];
    for arguments in named {
        let mut arguments = arguments.to_vec();
        arguments.push(NAME);
        let output = output(&mut sandbox.apex(&arguments), 0);
        assert!(!output.stdout.is_empty());
        assert_harmless(&arguments[..2].join(" "), &output, arguments.contains(&"always"));
    }
    let refused: &[(&[&str], i32)] = &[
        (&["ctl", "off", NAME], 0),
        (&["report", &format!("{NAME}x")], 125),
        (&["report", "--suppress", NAME, NAME], 0),
        (&["predict", NAME, "--kernel", "no\x1b[31m\nFORGED"], 125),
        (&["predict", "--grid", "1", "--block", "32", "--models", NAME], 125),
        (&["predict", "--grid", "1", "--block", "32", "--device", NAME], 0),
        (&["predict", "--grid", "1", "--block", "32", "--registers", "9", "--ptx", NAME], 125),
        (&["export", "--format", "csv", "-o", &format!("{NAME}/{NAME}/x"), NAME], 125),
        (&["train", "--data", NAME, "-o", NAME], 125),
        (&["run", "-o", NAME, "true"], 125),
        (&["run", "--device", "cpu", "--", NAME], 127),
        (&["report", "--top", NAME], 2),
        (&[NAME], 2),
        (&["doctor", "--dir", &format!("{NAME}x")], 1),
    ];
    for (arguments, code) in refused {
        let output = sandbox.apex(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {}", text(&output.stderr));
        assert_harmless(arguments[0], &output, false);
    }
}

#[test]
fn lines_of_launches_and_ptx_are_quoted_harmlessly() {
    let sandbox = Sandbox::new();
    let kernel = NAME.replace('\n', " ").replace(['\r', '\t'], " ");
    fs::write(
        sandbox.path("a.csv"),
        format!("grid_x,block_x,kernel,{kernel}\n8,32,{kernel},1\nx{kernel},1,k,2\n"),
    )
    .unwrap();
    fs::write(sandbox.path("k.ptx"), format!(".version 8.0\n.target sm_90\n{kernel}\n")).unwrap();
    for options in [&["a.csv"][..], &["a.csv", "--csv"], &["a.csv", "--json"]] {
        let output = sandbox.apex(&[&["predict"], options].concat()).output().unwrap();
        assert_harmless("predict", &output, false);
    }
    let ptx = ["predict", "--grid", "1", "--block", "32", "--registers", "9", "--ptx", "k.ptx"];
    let refused = output(&mut sandbox.apex(&ptx), 125);
    assert!(text(&refused.stderr).contains("k.ptx:3"), "{}", text(&refused.stderr));
    assert_harmless("predict --ptx", &refused, false);
}

/// JSON gives the names back as they are; in CSV no name is a formula, and numbers are numbers.
#[test]
fn names_survive_json_and_are_no_formulas_in_csv() {
    let sandbox = Sandbox::new();
    h200_session(&sandbox.path("s"), &[(NAME, 64, 256, 20_000), ("@SUM", 3, 32, 5_000)]);
    let report = sandbox.json(&["report", "--json", "s"]);
    let kernels = report["profile"]["kernels"].as_array().unwrap();
    assert!(kernels.iter().any(|kernel| kernel["symbol"] == NAME), "{kernels:?}");
    for arguments in [
        &["export", "--format", "csv", "--what", "launches", "s"][..],
        &["export", "--format", "csv", "--what", "kernels", "s"],
        &["predict", "--csv", "s"],
    ] {
        let csv = text(&output(&mut sandbox.apex(arguments), 0).stdout);
        assert!(csv.contains("'@SUM"), "{csv}");
        assert!(arguments[0] == "predict" || csv.contains("'=k\\x1b[2J\\x9b2J"), "{csv}");
        let obeyed = csv.chars().find(|&c| !"\r\n\t".contains(c) && !apex_untrusted::text::is_printable(c));
        assert_eq!(obeyed, None);
    }
    for format in ["perfetto", "parquet"] {
        output(&mut sandbox.apex(&["export", "--format", format, "-o", "out", "s"]), 0);
        let bytes = fs::read(sandbox.path("out")).unwrap();
        let name = b"@SUM";
        assert!(bytes.windows(name.len()).any(|window| window == name), "{format}");
    }
}

fn fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// Returns the exit code and output of a command that must end by itself, whatever it is given.
fn ended(command: &mut Command) -> (i32, String) {
    let mut running = Running::start(command);
    wait_until("the command ends", || running.0.try_wait().unwrap().is_some());
    let status = running.0.wait().unwrap();
    let mut said = Vec::new();
    std::io::Read::read_to_end(running.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    (status.code().unwrap(), text(&said))
}

#[test]
fn files_that_block_or_never_end_are_refused_by_name() {
    let sandbox = Sandbox::new();
    h200_session(&sandbox.path("s"), &[("k", 64, 256, 20_000)]);
    for folder in ["other", "data", "models", "models-sparse"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    for name in
        ["other/control", "pipe", "data/manifest.json", "models/small.apexmodel", "s/1-1.rec", "s/1-1.counts"]
    {
        fifo(&sandbox.path(name));
    }
    File::create(sandbox.path("models-sparse/small.apexmodel")).unwrap().set_len(1 << 40).unwrap();
    File::create(sandbox.path("sparse.ptx")).unwrap().set_len(1 << 40).unwrap();
    let launch = ["predict", "--grid", "1", "--block", "32"];
    let with = |options: &[&str]| {
        let words: Vec<_> = launch.iter().chain(options).map(OsStr::new).collect();
        ended(&mut sandbox.apex(&words))
    };
    for (options, what) in [
        (&["--models", "models"][..], "small.apexmodel: it is a FIFO"),
        (&["--models", "models-sparse"], "it has 1 TiB, and at most 256 MiB are read"),
        (&["--registers", "9", "--ptx", "pipe"], "pipe: it is a FIFO"),
        (&["--registers", "9", "--ptx", "/dev/zero"], "it is a device"),
        (&["--registers", "9", "--ptx", "sparse.ptx"], "it has 1 TiB"),
    ] {
        let (code, said) = with(options);
        assert!(code == 125 && said.contains(what), "{options:?}: {said}");
    }
    for (arguments, code, what) in [
        // The only folder with something like a control page is none to look into.
        (&["report"][..], 125, "no session in the current folder"),
        (&["ctl", "status", "other"], 125, "it is a FIFO"),
        (&["report", "s"], 0, "1-1.rec: cannot be opened: it is a FIFO"),
        (&["predict", "pipe"], 125, "cannot open pipe (`apex predict -` reads from pipes): it is a FIFO"),
        (&["predict", "data"], 125, "data is not an APEX session"),
        (&["train", "--data", "data", "-o", "new"], 125, "manifest.json: it is a FIFO"),
    ] {
        let (found, said) = ended(&mut sandbox.apex(arguments));
        assert!(found == code && said.contains(what), "{arguments:?}: {found}: {said}");
    }
}

/// A folder with very many files and subfolders is looked through all the same.
#[test]
fn a_crowded_folder_is_searched() {
    let sandbox = Sandbox::new();
    for number in 0..3000 {
        File::create(sandbox.path(&format!("file-{number}"))).unwrap();
        fs::create_dir(sandbox.path(&format!("folder-{number}"))).unwrap();
    }
    sandbox.recorded(&[], &["launch", "1"]);
    for number in 0..3000 {
        File::create(sandbox.path("s").join(format!("{number}.tmp"))).unwrap();
    }
    assert_eq!(sandbox.json(&["report", "--json"])["session"], "s");
}
