//! Messages about runs that failed name the cause, and no other.

use crate::common::{Sandbox, h200_session, output, program, text};
use apex_trace::layout::{Launch, Slots};
use apex_trace::{Lane, ProcessFile};

/// A driver that cannot be opened is the cause that is named, not that the program made no call.
#[test]
fn the_cause_that_the_program_met_is_named() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["run", "--device", "gpu", "-o", "s", "--"]);
    command.arg(program()).args(["launch", "1"]).env("APEX_DRIVER", "/no/such/driver.so");
    let said = text(&command.output().unwrap().stderr);
    assert!(said.contains("NOTHING WAS CAPTURED"), "{said}");
    assert!(said.contains("likely cause: cannot open /no/such/driver.so"), "{said}");
    assert!(!said.contains("no CUDA call"), "{said}");
}

/// A process that finds no room for its file says so to `apex run` too.
#[test]
fn a_process_that_could_not_be_recorded_is_the_cause() {
    let sandbox = Sandbox::new();
    let script = format!("ulimit -f 0; exec {} launch 1", program().display());
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", "sh", "-c", &script]);
    let said = text(&command.output().unwrap().stderr);
    assert!(said.contains("likely cause: this process is not recorded"), "{said}");
    assert!(!said.contains("no CUDA call") && !said.contains("size limit"), "{said}");
}

/// An option in front of the program belongs to `apex`, and a mistyped one is not the program.
#[test]
fn a_mistyped_option_is_an_unknown_option() {
    let sandbox = Sandbox::new();
    for (arguments, code) in
        [(&["--nosuch", "report"][..], 2), (&["run", "--nosuch", "true"], 125), (&["demo", "--nosuch"], 125)]
    {
        let said = text(&output(&mut sandbox.apex(arguments), code).stderr);
        assert!(said.contains("unexpected argument '--nosuch'"), "{arguments:?}: {said}");
    }
    // Behind the program, and behind `--`, everything belongs to the program.
    for arguments in
        [&["run", "-q", "sh", "-c", "exit 7", "--nosuch"][..], &["run", "-q", "--", "sh", "-c", "exit 7"]]
    {
        output(&mut sandbox.apex(arguments), 7);
    }
    let said = text(&output(&mut sandbox.apex(&["run", "--", "--nosuch"]), 127).stderr);
    assert!(said.contains("cannot run --nosuch"), "{said}");
}

/// Nobody set a limit: what was lost is not blamed on one.
#[test]
fn lost_records_are_blamed_on_their_cause() {
    let sandbox = Sandbox::new();
    // Room for the header and one chunk, which the definitions take.
    let script = format!("ulimit -f 600; exec {} launch 20", program().display());
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", "sh", "-c", &script]);
    let said = text(&output(&mut command, 0).stderr);
    assert!(
        said.contains("File too large") && !said.contains("size limit") && !said.contains("max-size"),
        "{said}"
    );
    for command in ["report", "advise"] {
        let said = text(&output(&mut sandbox.apex(&[command, "s"]), 0).stdout);
        assert!(said.contains("no known launch: ") && said.contains("records were lost"), "{said}");
        assert!(!said.contains("kernel was launched") && !said.contains("the rules found nothing"), "{said}");
    }
}

#[test]
fn a_session_without_launches_is_not_praised() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("s");
    h200_session(&folder, &[]);
    for command in ["report", "advise"] {
        let said = text(&output(&mut sandbox.apex(&[command, "s"]), 0).stdout);
        assert!(said.contains("no kernel was launched, so no launch was judged"), "{said}");
        assert!(!said.contains("launch is excellent"), "{said}");
    }
    // With launches whose definitions are lost there are kernels, of which nothing is known.
    let file = ProcessFile::create(&folder, None).unwrap();
    let mut lane = Lane::default();
    assert!(
        lane.record(&file, &Launch { head: Launch::head(0, 1, 2), config: 9, stream: 1, result: 0, api: 1 })
    );
    output(&mut sandbox.apex(&["report", "s"]), 0);
}

/// A variable that is set for recording does not choose where exports go.
#[test]
fn the_variable_of_a_session_names_no_export() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "2"]);
    let mut export = sandbox.apex(&["export", "--format", "csv", "s"]);
    let csv = output(export.env("APEX_OUTPUT", "session"), 0);
    assert_eq!(text(&csv.stdout).lines().count(), 3);
    assert!(!sandbox.path("session").exists());
    let mut export = sandbox.apex(&["export", "--format", "csv", "s"]);
    output(export.env("APEX_EXPORT_OUTPUT", "out.csv"), 0);
    assert!(sandbox.path("out.csv").exists());
}

/// Messages name the fault in the user's words, with the remedy, and not by the system's error
/// number.
#[test]
fn wrong_names_are_answered_with_what_to_do() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--quiet"], &["launch", "2"]);
    std::fs::create_dir(sandbox.path("folder")).unwrap();
    for file in ["file", "train.py"] {
        std::fs::write(sandbox.path(file), "").unwrap();
    }
    let no_session = "there is no session gone: create one with `apex run -o gone -- COMMAND`";
    for (arguments, code, why) in [
        (&["report", "gone"][..], 125, no_session),
        (&["advise", "gone"], 125, no_session),
        (&["diff", "s", "gone"], 125, no_session),
        (&["ctl", "on", "gone"], 125, no_session),
        (&["export", "-f", "csv", "gone"], 125, no_session),
        (&["predict", "gone", "--what-if", "block=128"], 125, "there is no such session or file of launches"),
        (&["report", "s", "--window", "5..3"], 2, "write the earlier time first"),
        (&["export", "-f", "csv", "s", "-o", "folder"], 125, "folder is a folder: name a file in it with -o"),
        (&["export", "-f", "csv", "s", "-o", "none/x"], 125, "cannot write none/x: there is no folder none"),
        (&["run", "-o", "file", "--", "true"], 125, "file is a file, not a session folder"),
        (&["run", "--", "./folder"], 126, "cannot run ./folder: it is a folder"),
        (&["run", "--", "./train.py"], 126, "write `apex run -- python3 ./train.py`"),
        (&["run", "--", "train.py"], 127, "it is not in PATH; for the file in this folder, write `apex run"),
        (&["run", "--", "gone"], 127, "there is no such command in PATH"),
    ] {
        let said = text(&output(&mut sandbox.apex(arguments), code).stderr);
        assert!(said.contains(why) && !said.contains("os error"), "{arguments:?}: {said}");
    }
}

#[test]
fn the_same_problem_of_many_files_is_said_once() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--quiet"], &["launch", "2"]);
    for entry in std::fs::read_dir(sandbox.path("s")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "rec") {
            for copy in ["1001.rec", "1002.rec"] {
                std::fs::write(path.with_file_name(copy), [7; 9000]).unwrap();
            }
            std::fs::write(path, [7; 9000]).unwrap();
        }
    }
    let found = output(&mut sandbox.apex(&["report", "s"]), 0);
    let (page, said) = (text(&found.stdout), text(&found.stderr));
    assert!(said.contains("1001.rec and 2 other files: ") && !said.contains("1002.rec: "), "{said}");
    assert!(page.contains("No known launch: the records cannot be read"), "{page}");
}
