//! `apex tune` and `apex run --tuned`: on the CPU device, programs compute what they compute
//! without a profile; on a driver without a GPU, whose times depend on the block, the search finds
//! the better one. What `--verify` compares is computed on the CPU device, with a difference that a
//! wrong condition makes.

use crate::common::{APEX, Running, Sandbox, output, send, text};
use apex_reshape::Proof;
use apex_trace::{Event, Session};
use apex_tune::{Change, Ratio, Size, Tuned, Tuning, document};
use cuda_launch::Dim3;
use launch_condition::code_hash;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use test_process::Command;

/// The PTX of the program `shaped`, as the program has it.
fn ptx() -> String {
    let source = include_str!("../../../../testing/driver-client/src/shaped.rs");
    let (_, rest) = source.split_once("CStr = c\"").expect("the PTX begins");
    rest.split_once("\";").expect("it ends").0.to_owned()
}

/// The program, recorded in the session `s` on the CPU device with more options.
fn on_cpu(sandbox: &Sandbox, options: &[&str], words: &[&str]) -> Command {
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "s"]);
    command.args(options).arg("--").arg(test_build::program("driver-client")).args(words);
    command
}

/// A profile of the CPU device in which launches of 1,000 values in blocks of 16 have blocks of
/// 256.
fn profile() -> Tuning {
    let sandbox = Sandbox::new();
    output(&mut on_cpu(&sandbox, &[], &["shaped", "1", "16", "1"]), 0);
    let session = Session::open(sandbox.path("s")).unwrap();
    let device = session.processes[0].definitions.devices().next().unwrap().clone();
    let module = ptx::parse(&ptx()).unwrap();
    let condition = Proof::of(&module, "step_20000").and_then(|proof| proof.condition()).unwrap();
    let ratio = Ratio { median: 0.25, low: 0.2, high: 0.3, pairs: 100 };
    let change = Change { block: 256.into(), before_ns: 80_000.0, after_ns: 20_000.0, ratio };
    let size = Size {
        asked: 16.into(),
        size_class: 9,
        launches: 300,
        share: 1.0,
        tried: Vec::new(),
        change: Some(change),
        kept: None,
    };
    let (code, name) = (code_hash(ptx().as_bytes()), "step_20000".to_owned());
    let kernel = Tuned { code, name, condition, sizes: vec![size] };
    let (device, driver_version) = (device.name, device.driver_version);
    Tuning { device, driver_version, kernels: vec![kernel], ..Tuning::default() }
}

fn write(sandbox: &Sandbox, text: &str) {
    std::fs::write(sandbox.path("p.json"), text).unwrap();
}

/// Launches of a session: by the block that was launched, and the one that was asked for.
fn blocks(session: &Path) -> BTreeMap<(Dim3, Option<Dim3>), u64> {
    let session = Session::open(session).unwrap();
    assert!(session.problems.is_empty(), "{:?}", session.problems);
    let mut blocks = BTreeMap::new();
    for process in &session.processes {
        for record in process.records() {
            if let Event::Launch(launch) = record.event
                && let Some(config) = process.definitions.config(launch.config)
            {
                *blocks.entry((config.launch.block, config.asked.map(|asked| asked.1))).or_default() += 1;
            }
        }
    }
    blocks
}

#[test]
fn a_profile_changes_blocks_and_no_result() {
    let profile = document::write(&profile()).unwrap();
    let plain = Sandbox::new();
    let expected = output(&mut on_cpu(&plain, &[], &["shaped", "300", "1000", "1"]), 0);
    assert_eq!(blocks(&plain.path("s")), BTreeMap::from([((16.into(), None), 300)]));
    for fast in [&[][..], &["--fast"], &["--fast=batch"], &["--fast=queue,memory"]] {
        let sandbox = Sandbox::new();
        write(&sandbox, &profile);
        let options = [&["--tuned", "p.json", "--quiet"], fast].concat();
        let mut command = on_cpu(&sandbox, &options, &["shaped", "300", "1000", "1"]);
        let run = output(command.env("APEX_FAST_ALWAYS", "1"), 0);
        assert_eq!((&run.stdout, text(&run.stderr)), (&expected.stdout, String::new()), "{fast:?}");
        assert_eq!(blocks(&sandbox.path("s")), BTreeMap::from([((256.into(), Some(16.into())), 300)]));
        let report = sandbox.json(&["report", "s", "--json"]);
        let kernel = &report["profile"]["kernels"][0];
        assert_eq!(kernel["block"], serde_json::json!([256, 1, 1]));
        assert_eq!(kernel["asked"]["block"], serde_json::json!([16, 1, 1]), "{kernel}");
        assert_eq!(report["profile"]["processes"][0]["reshaping"]["state"], "on");
    }
}

#[test]
fn launches_that_must_stay_as_they_are_do() {
    let plain = Sandbox::new();
    let expected = output(&mut on_cpu(&plain, &[], &["shaped-cases"]), 0);
    assert!(text(&expected.stdout).ends_with("a node: 63 blocks of 16\n"), "{}", text(&expected.stdout));
    let sandbox = Sandbox::new();
    write(&sandbox, &document::write(&profile()).unwrap());
    let run = output(&mut on_cpu(&sandbox, &["--tuned", "p.json"], &["shaped-cases"]), 0);
    assert_eq!(text(&run.stdout), text(&expected.stdout));
    // "apart" and "in place"; all others keep the program's blocks.
    assert_eq!(blocks(&sandbox.path("s"))[&(256.into(), Some(16.into()))], 2);
    let report = sandbox.json(&["report", "s", "--json"]);
    assert_eq!(report["profile"]["processes"][0]["reshaping"]["refused"], 1, "fewer threads than values");
}

#[test]
fn memory_of_unknown_extent_is_told_by_its_allocation() {
    let mut gather = profile();
    let condition = &mut gather.kernels[0].condition;
    condition.regions[1].bytes = None;
    condition.apart.iter_mut().for_each(|apart| apart.or_same = false);
    let profile = document::write(&gather).unwrap();
    let reshaped = (256.into(), Some(16.into()));
    let sandbox = Sandbox::new();
    write(&sandbox, &profile);
    output(&mut on_cpu(&sandbox, &["--tuned", "p.json"], &["shaped", "300", "1000", "1"]), 0);
    assert_eq!(blocks(&sandbox.path("s")), BTreeMap::from([(reshaped, 300)]));
    // Here both parts are in one allocation.
    let sandbox = Sandbox::new();
    write(&sandbox, &profile);
    output(&mut on_cpu(&sandbox, &["--tuned", "p.json"], &["shaped-cases"]), 0);
    assert_eq!(blocks(&sandbox.path("s")).get(&reshaped), None);
}

#[test]
fn a_profile_that_cannot_be_used_says_why_and_the_program_runs_unchanged() {
    let right = profile();
    let of = |change: fn(&mut Tuning)| {
        let mut tuning = right.clone();
        change(&mut tuning);
        document::write(&tuning).unwrap()
    };
    let valid = document::write(&right).unwrap();
    for (profile, reason) in [
        (valid.replace("256", "512"), "it was changed after `apex tune` wrote it"),
        (valid[..valid.len() / 2].to_owned(), "it is not a profile of `apex tune`"),
        (String::new(), "it is not a profile of `apex tune`"),
        (valid.replace("apex.tuned/1", "apex.tuned/9"), "its format is apex.tuned/9"),
        (of(|tuning| tuning.device.push('!')), "the profile is of another device"),
        (of(|tuning| tuning.driver_version += 10), "the profile is of another driver"),
        (of(|tuning| tuning.kernels[0].code += 1), "the program launched no kernel of the profile"),
        (of(|tuning| tuning.kernels[0].sizes[0].size_class = 3), "launched no kernel of the profile"),
    ] {
        let sandbox = Sandbox::new();
        write(&sandbox, &profile);
        let run = output(&mut on_cpu(&sandbox, &["--tuned", "p.json"], &["shaped", "3", "1000", "1"]), 0);
        let said = text(&run.stderr);
        assert!(said.contains(reason) && said.contains("launches"), "{reason} in {said}");
        assert_eq!(blocks(&sandbox.path("s")), BTreeMap::from([((16.into(), None), 3)]), "{reason}");
        // What the library found out is in the report, too.
        if sandbox.path("s").join(launch_condition::Plan::FILE).exists() {
            let report = text(&output(&mut sandbox.apex(&["report", "s"]), 0).stdout).replace("\n  ", " ");
            assert!(report.contains("--tuned changed no launch, because"), "{report}");
            assert!(report.contains(reason) && report.contains("apex tune"), "{reason} in {report}");
        }
    }
    let sandbox = Sandbox::new();
    let run = output(&mut on_cpu(&sandbox, &["--tuned", "none.json"], &["shaped", "3", "1000", "1"]), 0);
    assert!(text(&run.stderr).contains("cannot read none.json"), "{}", text(&run.stderr));
}

#[test]
fn the_exit_status_is_the_programs() {
    let sandbox = Sandbox::new();
    write(&sandbox, "{}");
    let mut command =
        sandbox.apex(&["run", "--device", "cpu", "--tuned", "p.json", "--", "sh", "-c", "exit 7"]);
    output(&mut command, 7);
}

#[test]
fn a_profile_of_another_user_is_refused() {
    let sandbox = Sandbox::new();
    write(&sandbox, &document::write(&profile()).unwrap());
    if std::os::unix::fs::chown(sandbox.path("p.json"), Some(12_345), None).is_err() {
        test_skip::impossible_here("only root can give a file to another user");
        return;
    }
    let run = output(&mut on_cpu(&sandbox, &["--tuned", "p.json"], &["shaped", "3", "1000", "1"]), 0);
    let said = text(&run.stderr);
    assert!(said.contains("p.json belongs to user 12345, not to you"), "{said}");
    assert_eq!(blocks(&sandbox.path("s")), BTreeMap::from([((16.into(), None), 3)]));
}

/// A command with a driver without a GPU, on which blocks of fewer than 64 threads take four times
/// as long.
fn with_times(mut command: Command) -> Command {
    command.env("APEX_DRIVER", test_build::library("fake-driver")).env("FAKE_LEAST_THREADS", "64");
    command
}

fn tune(sandbox: &Sandbox, options: &[&str], words: &[&str]) -> Command {
    let mut command = sandbox.apex(&[&["tune", "-o", "p.json"], options].concat());
    command.arg("--").arg(test_build::program("driver-client")).args(words);
    with_times(command)
}

#[test]
fn the_search_finds_the_better_block_and_the_profile_applies_it() {
    let sandbox = Sandbox::new();
    let run = output(&mut tune(&sandbox, &[], &["shaped", "2000", "1000", "0"]), 0);
    let said = text(&run.stdout);
    assert!(said.contains("1 block is faster") && said.contains("step_20000"), "{said}");
    for run_of_it in ["run 1 of 3", "run 2 of 3", "run 3 of 3"] {
        assert!(text(&run.stderr).contains(run_of_it), "{}", text(&run.stderr));
    }
    let profile: Value = serde_json::from_slice(&std::fs::read(sandbox.path("p.json")).unwrap()).unwrap();
    let size = &profile["kernels"][0]["sizes"][0];
    assert_eq!(size["asked"], serde_json::json!([16, 1, 1]));
    let [median, high] = ["median", "high"].map(|name| size["change"]["ratio"][name].as_f64().unwrap());
    assert!((0.2..0.3).contains(&median) && high < 0.4, "{size}");
    let block = size["change"]["block"][0].as_u64().unwrap();
    assert!(block >= 64, "{size}");

    let mut command = sandbox.apex(&["run", "--device", "gpu", "--tuned", "p.json", "-o", "s", "--"]);
    command.arg(test_build::program("driver-client")).args(["shaped", "300", "1000", "0"]);
    output(&mut with_times(command), 0);
    let expected = BTreeMap::from([(((block as u32).into(), Some(16.into())), 300)]);
    assert_eq!(blocks(&sandbox.path("s")), expected);

    // What is decided stays, so that one run is enough.
    let again = output(&mut tune(&sandbox, &["--json"], &["shaped", "2000", "1000", "0"]), 0);
    let kept: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(kept["kernels"], profile["kernels"]);
    assert!(!text(&again.stderr).contains("run 2 of 3"), "{}", text(&again.stderr));
}

#[test]
fn the_programs_block_stays_where_others_are_not_faster() {
    let sandbox = Sandbox::new();
    let mut command = tune(&sandbox, &[], &["shaped", "2000", "1000", "0"]);
    let said = text(&output(command.env("FAKE_LEAST_THREADS", "0"), 0).stdout);
    assert!(said.contains("No other block is faster"), "{said}");
    assert!(said.contains("step_20000 in blocks of 16 (100%): the best other block"), "{said}");
}

#[test]
fn shares_are_of_the_last_run_alone() {
    let sandbox = Sandbox::new();
    let tuned = |threads: &str| {
        let run = output(&mut tune(&sandbox, &["--json"], &["shaped", "2000", threads, "0"]), 0);
        serde_json::from_slice::<Value>(&run.stdout).unwrap()
    };
    let sizes = |profile: &Value| profile["kernels"][0]["sizes"].as_array().map_or(0, Vec::len);
    // On a busy machine too few launches are timed in one command to decide.
    let is_decided = (0..5).any(|_| sizes(&tuned("1000")) == 1);
    assert!(is_decided, "nothing was decided in five commands");
    let profile = (0..5).map(|_| tuned("5000")).find(|profile| sizes(profile) == 2).unwrap();
    let sizes = profile["kernels"][0]["sizes"].as_array().unwrap();
    let told: Vec<_> = sizes.iter().map(|size| (size["launches"].as_u64(), size["share"].as_f64())).collect();
    assert_eq!(told, [(Some(0), Some(0.0)), (Some(2000), Some(1.0))]);
    assert!(sizes.iter().all(|size| size["change"].is_object()), "{profile}");
}

#[test]
fn a_profile_of_another_device_is_not_replaced() {
    let sandbox = Sandbox::new();
    let other = document::write(&profile()).unwrap();
    write(&sandbox, &other);
    let said = text(&output(&mut tune(&sandbox, &[], &["shaped", "200", "1000", "0"]), 125).stderr);
    assert!(said.contains("p.json is of ") && said.contains("name another file with -o"), "{said}");
    assert_eq!(std::fs::read_to_string(sandbox.path("p.json")).unwrap(), other);
}

#[test]
fn a_folder_that_is_missing_is_told_before_the_program_runs() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["tune", "-o", "missing/p.json", "--", "true"]);
    command.env("APEX_DRIVER", test_build::library("fake-driver"));
    let said = text(&output(&mut command, 125).stderr);
    assert!(said.contains("there is no folder missing") && !said.contains("run 1 of 3"), "{said}");
}

#[test]
fn a_program_that_fails_is_not_tuned() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["tune", "-o", "p.json", "--", "sh", "-c", "exit 3"]);
    command.env("APEX_DRIVER", test_build::library("fake-driver"));
    let run = output(&mut command, 1);
    assert!(text(&run.stderr).contains("the program failed (exit status: 3)"), "{}", text(&run.stderr));
    assert!(!sandbox.path("p.json").exists());
}

#[test]
fn without_a_gpu_nothing_is_measured() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["tune", "--", "true"]);
    command.env("APEX_DRIVER", Path::new(APEX).with_file_name("deps/libapex_cpu_device.so"));
    let said = text(&output(&mut command, 125).stderr);
    assert!(said.contains("apex tune measures on a GPU, and there is none here"), "{said}");
}

/// A command of `apex tune` for a driver without a GPU, whose temporary files are in `t`.
fn of_command(sandbox: &Sandbox, options: &[&str], command: &[&str]) -> Command {
    std::fs::create_dir_all(sandbox.path("t")).unwrap();
    let mut tune = sandbox.apex(&[&["tune"], options, &["--"], command].concat());
    tune.env("TMPDIR", sandbox.path("t"));
    with_times(tune)
}

#[test]
fn a_signal_ends_the_program_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut command = of_command(&sandbox, &["-o", "p.json"], &["sh", "-c", "echo $$; exec sleep 100"]);
    let mut tune = Running::start(&mut command);
    let program: i32 = tune.read_until("").trim().parse().unwrap();
    send(tune.0.id(), libc::SIGTERM);
    assert_eq!(tune.0.wait().unwrap().signal(), Some(libc::SIGTERM));
    // SAFETY: signal 0 is none: the process is only looked for.
    assert_eq!(unsafe { libc::kill(program, 0) }, -1, "the program has ended");
    assert_eq!(std::fs::read_dir(sandbox.path("t")).unwrap().count(), 0);
    assert!(!sandbox.path("p.json").exists());
}

#[test]
fn a_program_that_ends_well_after_a_signal_is_not_run_again() {
    let sandbox = Sandbox::new();
    let script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let mut command = of_command(&sandbox, &["-o", "p.json"], &["sh", "-c", script]);
    let mut tune = Running::start(&mut command);
    tune.read_until("ready");
    send(tune.0.id(), libc::SIGTERM);
    assert_eq!(tune.0.wait().unwrap().code(), Some(1));
    assert!(!sandbox.path("p.json").exists());
}

#[test]
fn a_program_without_kernels_leaves_no_profile() {
    let sandbox = Sandbox::new();
    let client = test_build::program("driver-client").display().to_string();
    for command in [&["true"][..], &[&client, "shaped", "0", "1000", "0"]] {
        let said = text(&output(&mut of_command(&sandbox, &["-o", "p.json"], command), 1).stderr);
        assert!(said.contains("the program launched no kernel: nothing was tuned"), "{said}");
        assert!(!sandbox.path("p.json").exists());
    }
}

#[test]
fn a_profile_for_stdout_makes_no_file() {
    let sandbox = Sandbox::new();
    let client = test_build::program("driver-client").display().to_string();
    let command = [client.as_str(), "shaped", "200", "1000", "0"];
    let run = output(&mut of_command(&sandbox, &["-o", "-"], &command), 0);
    let profile: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(profile["schema"], "apex.tuned/1");
    assert!(!sandbox.path("-").exists());
}

#[test]
fn each_run_reads_a_file_from_its_beginning_and_a_pipe_is_told() {
    let sandbox = Sandbox::new();
    let client = test_build::program("driver-client").display().to_string();
    let script = format!("read word && test $word = input && exec {client} shaped 2000 1000 0");
    std::fs::write(sandbox.path("in"), "input\n").unwrap();
    let mut command = of_command(&sandbox, &["-o", "p.json"], &["sh", "-c", &script]);
    let run = output(command.stdin(std::fs::File::open(sandbox.path("in")).unwrap()), 0);
    assert!(text(&run.stderr).contains("run 3 of 3"), "{}", text(&run.stderr));
    let mut command = of_command(&sandbox, &["-o", "q.json"], &["true"]);
    let said = text(&output(command.stdin(std::process::Stdio::piped()), 1).stderr);
    assert!(said.contains("stdin is a pipe, which only the first run of the program can read"), "{said}");
}

#[test]
fn a_profile_that_others_may_write_is_refused() {
    let sandbox = Sandbox::new();
    write(&sandbox, &document::write(&profile()).unwrap());
    std::fs::set_permissions(sandbox.path("p.json"), Permissions::from_mode(0o666)).unwrap();
    let run = output(&mut on_cpu(&sandbox, &["--tuned", "p.json"], &["shaped", "3", "1000", "1"]), 0);
    let said = text(&run.stderr);
    assert!(said.contains("p.json may be written by other users (mode 0666): `chmod go-w p.json`"), "{said}");
    assert_eq!(blocks(&sandbox.path("s")), BTreeMap::from([((16.into(), None), 3)]));
}

/// `apex tune --verify` of the program on the CPU device.
fn verify(sandbox: &Sandbox, profile: &Tuning, options: &[&str], words: &[&str]) -> Command {
    write(sandbox, &document::write(profile).unwrap());
    let mut command = sandbox.apex(&[&["tune", "--verify", "-o", "p.json"], options].concat());
    command.env("APEX_DRIVER", Path::new(APEX).with_file_name("deps/libapex_cpu_device.so"));
    command.arg("--").arg(test_build::program("driver-client")).args(words);
    command
}

#[test]
fn a_right_profile_is_verified() {
    let sandbox = Sandbox::new();
    let run = output(&mut verify(&sandbox, &profile(), &[], &["shaped", "300", "1000", "1"]), 0);
    let said = text(&run.stdout);
    assert!(said.contains("300 launches were made in other blocks."), "{said}");
    assert!(said.contains("The same bit by bit: 1 copy to the host and 2 allocations"), "{said}");
    for fast in ["--fast", "--fast=batch"] {
        let mut command = verify(&sandbox, &profile(), &[fast], &["shaped", "300", "1000", "1"]);
        let said = text(&output(command.env("APEX_FAST_ALWAYS", "1"), 0).stdout);
        assert!(said.contains("1 copy to the host and 2 allocations"), "{fast}: {said}");
    }
    let run = output(&mut verify(&sandbox, &profile(), &["--json"], &["shaped", "300", "1000", "1"]), 0);
    let found: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&found["same"]["copies"], &found["same_bytes"]), (&1.into(), &12_000.into()), "{found}");
    assert_eq!(found["first_difference"], Value::Null);
}

#[test]
fn the_first_difference_is_named() {
    // More threads are allowed than the guard stops.
    let mut wrong = profile();
    wrong.kernels[0].condition.bounds[0].limit = launch_condition::Sum::constant(0);
    let sandbox = Sandbox::new();
    let run = output(&mut verify(&sandbox, &wrong, &[], &["shaped-cases"]), 1);
    let said = text(&run.stdout);
    assert!(said.contains("DIFFERENT with the profile. The first one is copy 3 of thread 0"), "{said}");
    assert!(said.contains("of 8,000 bytes: the first difference is in bytes 0 to 4,095."), "{said}");
    assert!(said.contains("Do not use the profile."), "{said}");
    let run = output(&mut verify(&sandbox, &wrong, &["--json"], &["shaped-cases"]), 1);
    let first = &serde_json::from_slice::<Value>(&run.stdout).unwrap()["first_difference"];
    assert_eq!((&first["number"], &first["at"]), (&3.into(), &serde_json::json!([0, 4096])), "{first}");
}

#[test]
fn a_profile_that_changes_nothing_verifies_nothing() {
    let sandbox = Sandbox::new();
    let mut other = profile();
    other.device.push('!');
    let run = output(&mut verify(&sandbox, &other, &[], &["shaped", "30", "1000", "1"]), 1);
    assert!(text(&run.stdout).contains("0 launches were made in other blocks."), "{}", text(&run.stdout));
    assert!(text(&run.stderr).contains("the profile is of another device"), "{}", text(&run.stderr));
    let said = text(&output(&mut sandbox.apex(&["tune", "--verify", "--", "true"]), 125).stderr);
    assert!(said.contains("there is no profile true.tuned.json to verify"), "{said}");
}
