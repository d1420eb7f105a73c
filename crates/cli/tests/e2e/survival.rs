//! SIGKILL of the program, of `apex`, of both, at random moments: every session opens, and nothing
//! committed is lost.

use crate::common::{Running, Sandbox, launches, program, send};
use apex_random::Random;
use apex_trace::Session;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const TRIES: u64 = 100;
/// The program is killed within this time of its first launches.
const WINDOW_US: u64 = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Program,
    Apex,
    Both,
}

#[test]
fn kills_at_random_moments_lose_nothing() {
    for seed in 0..TRIES {
        let victim = [Victim::Program, Victim::Apex, Victim::Both][seed as usize % 3];
        kill(victim, seed);
    }
}

fn kill(victim: Victim, seed: u64) {
    let sandbox = Sandbox::new();
    let mut random = Random::new(seed);
    // An orphan must come to its end by itself.
    let words: &[&str] = if victim == Victim::Apex {
        &["launch", "500", "launch", "500", "launch", "500"]
    } else {
        &["forever"]
    };
    let mut command = sandbox.record(&["--quiet"], words);
    let mut apex = Running::start(&mut command);
    apex.read_until("launched");
    std::thread::sleep(Duration::from_micros(random.below(WINDOW_US)));
    let pid = apex.0.id();
    match victim {
        Victim::Program => send(program_of(&sandbox), libc::SIGKILL),
        Victim::Apex => send(pid, libc::SIGKILL),
        // SAFETY: the group that was made for this child.
        Victim::Both => assert_eq!(unsafe { libc::kill(-pid.cast_signed(), libc::SIGKILL) }, 0),
    }
    let status = apex.0.wait().unwrap();
    // Until the last holder of the pipe, the program, has ended.
    let mut rest = String::new();
    apex.0.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    if victim != Victim::Apex || status.signal().is_some() {
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{victim:?}, seed {seed}");
    }
    let said =
        rest.lines().filter_map(|line| line.strip_prefix("launched ")?.parse::<u64>().ok()).next_back();
    let session = Session::open(sandbox.path("s")).unwrap();
    // A kill may cut the one record of counts that the program is writing, at the end of a page: it
    // was not committed, and is told. Nothing else may be wrong, and nothing at all where the
    // program was left alone.
    let is_cut_record = |problem: &apex_trace::Problem| {
        problem.path.extension().is_some_and(|end| end == "counts")
            && problem.what.starts_with("ends inside a record")
    };
    let may_be_cut = victim != Victim::Apex && session.problems.iter().all(is_cut_record);
    let most = usize::from(may_be_cut);
    assert!(session.problems.len() <= most, "{victim:?}, seed {seed}: {:?}", session.problems);
    let recorded: u64 = session.processes.iter().map(launches).sum();
    let least = said.unwrap_or(100);
    assert!(recorded >= least, "{victim:?}, seed {seed}: {recorded} launches recorded, {least} were made");
    if victim == Victim::Apex {
        assert_eq!(recorded, 1500, "seed {seed}: the program goes on without apex, and is recorded");
    }
    // Whoever reads it gets a report.
    let report = sandbox.json(&["report", "--json", "s"]);
    assert_eq!(report["profile"]["totals"]["launches"], recorded);
}

/// The process identifier of the program under `apex`.
fn program_of(sandbox: &Sandbox) -> u32 {
    let session = Session::open(sandbox.path("s")).unwrap();
    assert!(session.processes[0].executable.ends_with(program().file_name().unwrap().to_str().unwrap()));
    session.processes[0].pid
}
