//! SIGKILL of the program, of `apex`, of both, at random moments, and programs that fork, become
//! other programs and end in random ways: every session opens, and nothing committed is lost.

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

/// Programs that end in random ways. `scripts/endings.py` runs a thousand.
const ENDINGS: u64 = 10;
/// Such a program takes a tenth of a second; on a machine with ten times as much to do as it has
/// processors, a few seconds.
const ENDING_LIMIT: Duration = Duration::from_secs(120);

#[test]
fn programs_fork_become_others_and_end_in_any_way() {
    // Cargo may build the program, or wait for another build: that is no time of a round.
    program();
    (0..ENDINGS).for_each(end);
}

fn end(seed: u64) {
    let sandbox = Sandbox::new();
    let Life { words, launches, code, signal } = Life::random(seed);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let status = sandbox.record(&["--quiet"], &words).limit(ENDING_LIMIT).output().unwrap().status;
    assert_eq!((status.code(), status.signal()), (code, signal), "seed {seed}: {words:?}");
    let session = Session::open(sandbox.path("s")).unwrap();
    assert!(session.problems.is_empty(), "seed {seed}: {:?}", session.problems);
    assert_eq!(sandbox.launches("s"), launches, "seed {seed}: {words:?}");
}

/// What a program does, and what becomes of it.
struct Life {
    words: Vec<String>,
    launches: u64,
    code: Option<i32>,
    signal: Option<i32>,
}

impl Life {
    fn random(seed: u64) -> Self {
        let mut random = Random::named(seed, "endings");
        let mut life = Self { words: Vec::new(), launches: 0, code: None, signal: None };
        for _ in 0..random.below(3) {
            life.launch(&["fork"], 1 + random.below(40));
        }
        for _ in 0..=random.below(4) {
            match random.below(4) {
                0 => life.launch(&["threads", "2"], 1 + random.below(40)),
                1 => life.words.push("exec".into()),
                _ => life.launch(&["launch"], 1 + random.below(200)),
            }
        }
        let signals = [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT, libc::SIGSEGV];
        let (word, number) = match random.below(2) {
            0 => ("exit", *life.code.insert(random.below(120) as i32)),
            _ => ("raise", *life.signal.insert(random.choose(&signals))),
        };
        life.words.extend([word.into(), number.to_string()]);
        life
    }

    /// Words that launch so many kernels, on each of two threads if they say so.
    fn launch(&mut self, words: &[&str], kernels: u64) {
        self.words.extend(words.iter().map(|word| (*word).to_owned()));
        self.words.push(kernels.to_string());
        self.launches += kernels * words.len() as u64;
    }
}

/// The process identifier of the program under `apex`.
fn program_of(sandbox: &Sandbox) -> u32 {
    let session = Session::open(sandbox.path("s")).unwrap();
    assert!(session.processes[0].executable.ends_with(program().file_name().unwrap().to_str().unwrap()));
    session.processes[0].pid
}
