//! `apex ctl`: recording is steered while the program runs.

use crate::common::{Running, Sandbox, output, text};

#[test]
fn what_is_launched_while_recording_is_off_is_not_recorded() {
    let sandbox = Sandbox::new();
    let words = ["launch", "10", "await", "a", "launch", "20", "await", "b", "launch", "30"];
    let mut apex = Running::start(&mut sandbox.record(&["--quiet"], &words));
    apex.read_until("waiting");
    let said = text(&output(&mut sandbox.apex(&["ctl", "off"]), 0).stdout);
    assert!(said.contains("recording on") && said.contains("→ recording off"), "{said}");
    std::fs::write(sandbox.path("a"), "").unwrap();
    apex.read_until("waiting");
    apex.wait_for_name(&sandbox.path("s"));
    let state = sandbox.json(&["ctl", "status", "--json", "s"]);
    assert_eq!((&state["schema"], &state["recording"]), (&"apex.ctl/1".into(), &false.into()));
    assert_eq!(state["running"].as_array().unwrap().len(), 1, "{state}");
    output(&mut sandbox.apex(&["ctl", "on", "s"]), 0);
    std::fs::write(sandbox.path("b"), "").unwrap();
    assert!(apex.0.wait().unwrap().success());
    assert_eq!(sandbox.launches("s"), 40);
}

/// For each launch of a session, in order, whether it was timed.
fn timed(sandbox: &Sandbox) -> Vec<bool> {
    let rows = sandbox.json(&["export", "--format", "json", "--what", "launches", "s"]);
    rows["launches"].as_array().unwrap().iter().map(|launch| launch["gpu_ns"].is_u64()).collect()
}

#[test]
fn timing_is_switched() {
    let sandbox = Sandbox::new();
    let words = ["launch", "40", "await", "a", "launch", "50", "await", "b", "launch", "30"];
    let mut apex = Running::start(&mut sandbox.record(&["--quiet", "--timing", "all"], &words));
    apex.read_until("waiting");
    let said = text(&output(&mut sandbox.apex(&["ctl", "timing", "off"]), 0).stdout);
    assert!(said.contains("timing all → recording on, timing off"), "{said}");
    let again = text(&output(&mut sandbox.apex(&["ctl", "timing", "off"]), 0).stdout);
    assert!(again.contains("already so"), "{again}");
    std::fs::write(sandbox.path("a"), "").unwrap();
    apex.read_until("waiting");
    output(&mut sandbox.apex(&["ctl", "timing", "all"]), 0);
    std::fs::write(sandbox.path("b"), "").unwrap();
    assert!(apex.0.wait().unwrap().success());
    let timed = timed(&sandbox);
    // The very first launch may load code and is never timed.
    assert!(timed[1..40].iter().all(|timed| *timed), "{timed:?}");
    assert!(timed[40..90].iter().all(|timed| !timed), "{timed:?}");
    assert!(timed[90..].iter().all(|timed| *timed) && timed.len() == 120, "{timed:?}");
}

#[test]
fn timing_that_comes_too_late_is_said_to() {
    let sandbox = Sandbox::new();
    let words = ["launch", "10", "await", "a", "launch", "10"];
    let mut apex = Running::start(&mut sandbox.record(&["--quiet", "--timing", "off"], &words));
    apex.read_until("waiting");
    let said = text(&output(&mut sandbox.apex(&["ctl", "timing", "all"]), 0).stderr);
    assert!(said.contains("1 CUDA context stays untimed"), "{said}");
    std::fs::write(sandbox.path("a"), "").unwrap();
    assert!(apex.0.wait().unwrap().success());
    assert_eq!(timed(&sandbox), [false; 20]);
}

#[test]
fn a_session_whose_program_has_ended_cannot_be_steered() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "1"]);
    for action in [&["ctl", "off"][..], &["ctl", "on"], &["ctl", "timing", "off"]] {
        let output = output(&mut sandbox.apex(action), 1);
        assert!(text(&output.stderr).contains("no program of s is running"), "{}", text(&output.stderr));
    }
    let state = text(&output(&mut sandbox.apex(&["ctl", "status"]), 0).stdout);
    assert!(state.contains("running    nothing"), "{state}");
}

#[test]
fn a_program_that_has_made_no_call_yet_can_be_steered() {
    let sandbox = Sandbox::new();
    let mut apex = Running::start(&mut sandbox.record(&["--quiet"], &["await", "a", "launch", "10"]));
    apex.read_until("waiting");
    output(&mut sandbox.apex(&["ctl", "off"]), 0);
    std::fs::write(sandbox.path("a"), "").unwrap();
    let output = apex.0.wait().unwrap();
    assert!(output.success());
    assert!(!sandbox.path("s").exists(), "nothing was recorded, so nothing is left");
}

/// Kernels are timed as in a run that recorded from the start.
#[test]
fn a_paused_run_records_from_when_it_is_switched_on() {
    let sandbox = Sandbox::new();
    let words = ["launch", "10", "await", "a", "launch", "20"];
    let options = ["--quiet", "--paused", "--timing", "all"];
    let mut apex = Running::start(&mut sandbox.record(&options, &words));
    apex.read_until("waiting");
    output(&mut sandbox.apex(&["ctl", "on"]), 0);
    std::fs::write(sandbox.path("a"), "").unwrap();
    assert!(apex.0.wait().unwrap().success());
    let timed = timed(&sandbox);
    assert!(timed[1..].iter().all(|timed| *timed) && timed.len() == 20, "{timed:?}");
}

#[test]
fn a_paused_run_that_nobody_switched_on_says_how() {
    let sandbox = Sandbox::new();
    let said = text(&sandbox.recorded(&["--paused"], &["launch", "10"]).stderr);
    assert!(said.contains("likely cause: recording was off from the start (--paused)"), "{said}");
    assert!(said.contains("`apex ctl on`") && !said.contains("made no further call"), "{said}");
}
