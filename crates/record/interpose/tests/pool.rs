//! The memory pool on a driver without a GPU: what the driver sees, and what happens where it has
//! no memory or refuses a free.

mod support;

use apex_trace::Event;
use apex_trace::layout::PoolState;
use std::time::Duration;
use support::{Recording, finished};
use test_process::Command;

fn pooled(recording: &Recording, program: &str) -> Command {
    let mut command = recording.client(program);
    command.env("APEX_FAST", "memory");
    command
}

#[test]
fn what_was_freed_is_served_again() {
    let recording = Recording::untimed();
    finished(&mut pooled(&recording, "memory-in-turn 100"));
    let process = recording.process();
    assert_eq!(process.pool_state, PoolState::On);
    let pool = process.pool;
    assert_eq!((pool.allocated, pool.served, pool.kept), (8, 392, 400), "{pool:?}");
    // Nothing was submitted after the first wait.
    assert_eq!((pool.waits, pool.given_back), (1, 0), "{pool:?}");
    assert!(pool.asked_samples > 0 && pool.asked_ns > 0, "{pool:?}");
    assert!(pool.peak_bytes > 4 << 20 && pool.peak_held_bytes <= 2 * pool.peak_bytes, "{pool:?}");
    // All calls are in the session, whoever answered them.
    let calls = process.records().filter(|record| matches!(record.event, Event::Call(_)));
    assert_eq!(calls.count(), 1 + 800 + 1);
}

#[test]
fn programs_do_with_the_pool_what_they_do_without() {
    for program in ["forms", "streams", "reload 5", "capture", "graphs", "calls", "contexts", "callback"] {
        for fast in ["memory", "queue,memory"] {
            let expected = finished(&mut Recording::untimed().client(program));
            let recording = Recording::untimed();
            let mut command = pooled(&recording, program);
            command.env("APEX_FAST", fast).env("APEX_FAST_ALWAYS", "1");
            assert_eq!(finished(&mut command), expected, "{program} with {fast}");
        }
    }
    // These print what differs from run to run.
    for program in ["fork", "exec"] {
        finished(&mut pooled(&Recording::untimed(), program));
    }
}

#[test]
fn the_device_is_full_where_it_would_be() {
    let full = |mut command: Command| finished(command.env("FAKE_MEMORY", (4 << 20).to_string()));
    let expected = full(Recording::untimed().client("memory-until-full"));
    assert_eq!(expected, "too much: 2\n");
    let recording = Recording::untimed();
    assert_eq!(full(pooled(&recording, "memory-until-full")), expected);
    let pool = recording.process().pool;
    assert!(pool.given_back >= 3 && pool.served > 0, "{pool:?}");
}

#[test]
fn a_driver_that_refuses_a_free_closes_the_pool() {
    let recording = Recording::untimed();
    let output = finished(pooled(&recording, "memory-refused").env("FAKE_KEEPS_MEMORY", "1"));
    assert_eq!(output, "0 719\n", "the driver answers the second free");
    assert_eq!(recording.process().pool_state, PoolState::Refused);
}

#[test]
fn a_kill_leaves_a_session_that_opens() {
    for milliseconds in [0, 3, 10, 80] {
        let recording = Recording::untimed();
        let mut child = pooled(&recording, "memory-in-turn 100000000").spawn().unwrap();
        recording.wait_until_begun(&mut child);
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        recording.open();
    }
}
