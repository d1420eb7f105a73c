//! The launch queue: what the driver sees of a program that hands its calls over, on a driver
//! without a GPU.

mod support;

use apex_trace::Process;
use apex_trace::layout::QueueState;
use std::process::ExitStatus;
use support::{Recording, compiled, finished};
use test_process::Command;

/// A program with the queue on, also where it gains nothing.
fn queued(recording: &Recording, program: &str) -> Command {
    let mut command = recording.client(program);
    command.env("APEX_FAST", "queue").env("APEX_FAST_ALWAYS", "1");
    command
}

#[test]
fn every_launch_of_every_thread_is_made_and_recorded() {
    let recording = Recording::untimed();
    finished(&mut queued(&recording, "handed-over 3 20000"));
    let process = recording.process();
    assert_eq!(support::launches(&process).len(), 60_000);
    assert_eq!(process.queue_state, QueueState::On);
    assert!(process.queue.made > 1000, "{:?}", process.queue);
}

#[test]
fn where_the_driver_refuses_graphs_launches_are_made_one_by_one() {
    let recording = Recording::untimed();
    finished(queued(&recording, "handed-over 3 20000").env("APEX_FAST", "batch"));
    let process = recording.process();
    assert_eq!(support::launches(&process).len(), 60_000);
    assert_eq!((process.queue_state, process.batches.batches), (QueueState::On, 0));
}

#[test]
fn programs_do_with_the_queue_what_they_do_without() {
    for program in [
        "forms",
        "streams",
        "reload 5",
        "capture",
        "capture-race 200",
        "graphs",
        "calls",
        "contexts",
        "callback",
    ] {
        let recording = Recording::untimed();
        let expected = finished(&mut recording.client(program));
        let recording = Recording::untimed();
        assert_eq!(finished(&mut queued(&recording, program)), expected, "{program}");
    }
    // These print what differs from run to run.
    for program in ["fork", "exec"] {
        finished(&mut queued(&Recording::untimed(), program));
    }
}

/// The fake driver refuses what is launched into a stream of another context than the current one.
#[test]
fn launches_reach_the_contexts_and_streams_that_they_were_made_for() {
    for (program, launches) in
        [("places-contexts 500", 1000), ("places-green 500", 1500), ("places-own-streams 3 500", 1500)]
    {
        for way in ["queue", "batch", "queue,memory"] {
            let recording = Recording::untimed();
            let mut command = queued(&recording, program);
            finished(command.env("FAKE_STRICT_CONTEXTS", "1").env("APEX_FAST", way));
            let process = recording.process();
            assert_eq!(support::launches(&process).len(), launches, "{program}, {way}");
            assert_eq!(process.queue_state, QueueState::On, "{program}, {way}");
            assert!(process.queue.made > 100, "{program}, {way}: {:?}", process.queue);
        }
    }
}

#[test]
fn a_launch_that_the_driver_refuses_later_is_reported_by_a_later_one() {
    let recording = Recording::untimed();
    let output = finished(queued(&recording, "until-refused").env("FAKE_REFUSES_AFTER", "500"));
    assert_eq!(output, "701\n");
    let process = recording.process();
    assert_eq!(process.queue_state, QueueState::Refused);
    let refused = support::launches(&process).iter().filter(|launch| launch.result == 701).count();
    assert!(refused > 0, "what was refused is in the record");
}

#[test]
fn with_one_processor_there_is_no_queue() {
    let recording = Recording::untimed();
    finished(&mut queued(&recording, "on-one-processor 1000"));
    let process = recording.process();
    assert_eq!((process.queue_state, process.queue.made), (QueueState::OneProcessor, 0));
}

#[test]
fn a_program_that_waits_for_each_launch_is_left_alone() {
    let recording = Recording::untimed();
    finished(recording.client("waits-for-each 100000").env("APEX_FAST", "queue"));
    let process = recording.process();
    assert_eq!(support::launches(&process).len(), 100_000);
    // Until it closes it takes calls for some milliseconds: how many depends on the machine.
    assert!(process.queue.made < 50_000, "{:?}", process.queue);
}

#[test]
fn a_queue_that_closed_opens_again_for_a_program_that_no_longer_waits() {
    let recording = Recording::untimed();
    let mut client = recording.client("waits-then-launches");
    finished(client.env("APEX_FAST", "queue").env("FAKE_BUSY", "1"));
    let process = recording.process();
    assert!(process.queue.made > 0, "{:?}", process.queue);
}

#[test]
fn a_child_that_is_forked_while_calls_wait_goes_its_own_way() {
    let recording = Recording::untimed();
    finished(&mut queued(&recording, "forks 500"));
}

#[test]
fn what_waits_when_the_program_ends_is_made() {
    let recording = Recording::untimed();
    finished(&mut queued(&recording, "ends 5000"));
    assert_eq!(support::launches(&recording.process()).len(), 5000);
}

#[test]
fn what_was_handed_over_before_a_kill_leaves_a_session_that_opens() {
    for milliseconds in [1, 5, 20, 150] {
        let recording = Recording::untimed();
        let mut child = queued(&recording, "handed-over 2 100000000").spawn().unwrap();
        recording.wait_until_begun(&mut child);
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        recording.open();
    }
}

/// Runs `shims/endings.c`: returns its exit status, the number of launches that it recorded, and
/// the process; `None` without a C compiler.
fn ended(way: &str, launches: usize) -> Option<(ExitStatus, usize, Process)> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("endings.c", &folder.path().join("endings"), &["-ldl", "-lpthread"])?;
    let recording = Recording::untimed();
    let mut command = recording.program(&program);
    command.args([way, &launches.to_string()]).env("FAKE_BUSY", "1");
    command.env("APEX_FAST", "queue").env("APEX_FAST_ALWAYS", "1");
    let output = command.output().expect("the program starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{way}");
    let process = recording.process();
    Some((output.status, support::launches(&process).len(), process))
}

/// Each way in which a process can end itself or become another program.
#[test]
fn queued_calls_are_made_before_the_process_ends_in_any_way() {
    for way in [
        "exit",
        "_exit",
        "_Exit",
        "quick_exit",
        "handler",
        "execl",
        "execlp",
        "execle",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "fexecve",
        "exec-fails",
        "vfork",
        "main-pthread-exit",
        "main-system-call",
        "thread-system-call",
        "returns",
    ] {
        let Some((status, made, process)) = ended(way, 5000) else { return };
        assert!(status.success(), "{way}: {status}");
        assert_eq!((made, process.queue_waiting), (5000, 0), "{way}");
        assert!(process.queue.made > 1000, "{way}: {:?}", process.queue);
    }
}

/// Queued calls are counted even if they cannot be made any more.
#[test]
fn calls_that_a_killed_process_had_queued_are_counted() {
    for way in ["kill", "terminate", "system-call"] {
        let Some((status, made, process)) = ended(way, 5000) else { return };
        assert_eq!(status.success(), way == "system-call", "{way}: {status}");
        // (A call may have been made whose count was not written any more.)
        let told = made as u64 + process.queue_waiting;
        assert!((5000..=5001).contains(&told), "{way}: {made} made, {} wait", process.queue_waiting);
    }
}
