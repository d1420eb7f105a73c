//! `apex power run`: on a stand-in for NVML, whose clock is a file, with the CPU device in the
//! place of a GPU's driver. The stand-in is found by LD_LIBRARY_PATH, before any other NVML.

use crate::common::{Running, Sandbox, cpu_device, output, program, send, text, wait_until};
use std::path::PathBuf;
use test_process::Command;

/// A sandbox with the stand-in, and what a device in it is called.
struct Place {
    sandbox: Sandbox,
    libraries: PathBuf,
    uuid: String,
}

impl Place {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let libraries = sandbox.path("libraries");
        std::fs::create_dir(&libraries).unwrap();
        std::fs::copy(test_build::library("fake-nvml"), libraries.join("libnvidia-ml.so.1")).unwrap();
        std::os::unix::fs::symlink(cpu_device(), libraries.join("driver.so")).unwrap();
        sandbox.recorded(&["--no-machine"], &["launch", "1"]);
        let report = sandbox.json(&["report", "--json", "s"]);
        let uuid = report["profile"]["devices"][0]["uuid"].as_str().unwrap().to_owned();
        std::fs::remove_dir_all(sandbox.path("s")).unwrap();
        Self { sandbox, libraries, uuid }
    }

    fn power_run(&self, options: &[&str], words: &[&str]) -> Command {
        self.power_run_into("s", options, words)
    }

    fn power_run_into(&self, session: &str, options: &[&str], words: &[&str]) -> Command {
        let mut command = self.sandbox.apex(&["power", "run", "-o", session]);
        command.args(options).arg("--").arg(program()).args(words);
        command.env("LD_LIBRARY_PATH", &self.libraries).env("APEX_DRIVER", self.libraries.join("driver.so"));
        command.env("APEX_DEVICE", "gpu");
        command.env("FAKE_NVML_UUID", &self.uuid).env("FAKE_NVML_CHANGES", self.sandbox.path("changes"));
        command
    }
}

#[test]
fn a_dry_run_records_and_sets_nothing() {
    let place = Place::new();
    let ran = output(&mut place.power_run(&["--dry-run"], &["launch", "5"]), 0);
    let said = text(&ran.stderr);
    assert!(
        said.contains("the program launched too little on the GPU") && said.contains("5 launches"),
        "{said}"
    );
    assert_eq!(place.sandbox.launches("s"), 5);
    assert!(!place.sandbox.path("changes").exists());
    std::fs::remove_dir_all(place.sandbox.path("s")).unwrap();
    let ran = output(&mut place.power_run(&["--dry-run", "--quiet"], &["launch", "5"]), 0);
    assert_eq!(text(&ran.stderr), "");
}

#[test]
fn what_cannot_be_governed_is_said_before_the_program_starts() {
    let place = Place::new();
    for (options, variable, expected) in [
        (&["--dry-run"][..], ("FAKE_NVML_DEVICES", "2"), "there are 2 GPUs: name one with --gpu N"),
        (&["--dry-run", "--gpu", "3"], ("FAKE_NVML_DEVICES", "2"), "there is no GPU 3: NVML has 2"),
        (&["--dry-run"], ("FAKE_NVML_ERRORS", "nvmlInit_v2=9"), "there is no NVML"),
        (&["--dry-run"], ("FAKE_NVML_ERRORS", "nvmlDeviceGetSupportedGraphicsClocks=3"), "tells no clocks"),
        (&["--dry-run", "--device", "cpu"], ("FAKE_NVML_DEVICES", "1"), "the CPU device has no clock"),
        (&["--max-slowdown", "0"], ("FAKE_NVML_DEVICES", "1"), "above 0"),
        (&["--measure", "1s"], ("FAKE_NVML_DEVICES", "1"), "at least 2s"),
    ] {
        let mut command = place.power_run(options, &["launch", "5"]);
        let said = text(&output(command.env(variable.0, variable.1), 125).stderr);
        assert!(said.contains(expected), "{said}");
        assert!(!place.sandbox.path("s").exists() && !place.sandbox.path("changes").exists(), "{said}");
    }
}

#[test]
fn a_wrong_command_line_of_the_helper_is_no_failure_of_a_program() {
    let sandbox = Sandbox::new();
    for (arguments, code) in [
        (&["power", "helper"][..], 2),
        (&["power", "helper", "--user", "no such user"], 2),
        (&["power"], 2),
        (&["power", "run"], 125),
    ] {
        output(&mut sandbox.apex(arguments), code);
    }
}

/// Runs where this test is root: the claim is a file of root's.
#[test]
fn a_clock_that_is_set_is_released_when_apex_is_killed() {
    if !apex_power::may_set_clocks() {
        return test_skip::impossible_here("setting clocks needs root");
    }
    let place = Place::new();
    let lock = place.sandbox.path("lock");
    let clock = || std::fs::read(&lock).ok()?.try_into().ok().map(u32::from_le_bytes);
    // A minute at least, of which the clock needs some seconds.
    let mut command = place.power_run(&["--measure", "2s"], &["steps", "60000", "1000"]);
    command.env("FAKE_NVML_LOCK", &lock).env("FAKE_NVML_WORKLOAD", "decode, launch-bound");
    let mut running = Running::start(&mut command);
    wait_until("a clock is set", || clock().is_some_and(|mhz| mhz > 0));
    let second =
        output(place.power_run_into("second", &[], &["launch", "1"]).env("FAKE_NVML_LOCK", &lock), 125);
    assert!(
        text(&second.stderr).contains("another `apex power run` governs GPU 0"),
        "{}",
        text(&second.stderr)
    );
    running.wait_for_name(&place.sandbox.path("s"));
    let meta = std::fs::read(place.sandbox.path("s/session.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    wait_until("the clock is released", || clock() == Some(0));
    send(meta["pid"].as_u64().unwrap() as u32, libc::SIGKILL);
}
