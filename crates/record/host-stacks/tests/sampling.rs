//! Stacks of real interpreters, sampled while they run.

use apex_host_stacks::{Counters, Doing, FrameKind, HostStacks, Options, Sampler, Span, WaitsFor};
use apex_untrusted::Folder;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use test_process::{Child, Command};

/// One interpreter of each version that is read.
fn interpreters() -> BTreeMap<u32, PathBuf> {
    let listed = std::env::var_os("APEX_TEST_PYTHONS").unwrap_or_default();
    let mut paths: Vec<PathBuf> = std::env::split_paths(&listed).collect();
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    paths.extend(versions.map(|version| version.path().join("bin/python3")));
    paths.push("/usr/bin/python3".into());
    let minor = |path: &Path| {
        let asked =
            Command::new(path).args(["-c", "import sys; print(sys.version_info[1])"]).output().ok()?;
        let minor = String::from_utf8(asked.stdout).ok()?.trim().parse().ok()?;
        (9..=14).contains(&minor).then_some(minor)
    };
    let found: BTreeMap<u32, PathBuf> =
        paths.into_iter().filter_map(|path| Some((minor(&path)?, path))).collect();
    if found.is_empty() {
        test_skip::missing_dependency("no Python interpreter from 3.9 to 3.14");
    }
    found
}

/// A program that runs until its standard input ends.
fn start(interpreter: &Path, script: &str, arguments: &[&str]) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(script);
    let mut command = Command::new(interpreter);
    command.arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// Rounds after which a test stops to wait for more and says what is missing.
const MOST_ROUNDS: u64 = 20_000;

/// What is sampled of a process until `is_enough`.
fn sampled(child: &mut Child, hz: u32, is_enough: impl Fn(&HostStacks) -> bool) -> HostStacks {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { period: Duration::from_secs(1) / hz, ..Options::default() };
    let pid = child.id();
    let sampler = Sampler::start(Folder::open(dir.path()).unwrap(), options, move || vec![pid]).unwrap();
    loop {
        let stacks = HostStacks::read(dir.path());
        if is_enough(&stacks) || stacks.counters.rounds > MOST_ROUNDS {
            break;
        }
        assert!(child.try_wait().unwrap().is_none(), "the program has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    sampler.finish().unwrap();
    let stacks = HostStacks::read(dir.path());
    assert_eq!((stacks.problems.len(), stacks.head.lost.len()), (0, 0), "{stacks:?}");
    stacks
}

/// Functions and lines of a span, innermost first.
fn frames(stacks: &HostStacks, span: &Span) -> Vec<(String, u32)> {
    stacks.frames(span.stack).map(|frame| (frame.function.clone(), frame.line)).collect()
}

/// Whether the innermost frames of a span are these.
fn is_in(stacks: &HostStacks, span: &Span, innermost: &[(&str, u32)]) -> bool {
    let frames = frames(stacks, span);
    frames.len() > innermost.len()
        && innermost.iter().zip(&frames).all(|(wanted, found)| *wanted == (&*found.0, found.1))
}

#[test]
fn threads_of_every_version_are_where_they_are() {
    for (minor, interpreter) in interpreters() {
        let mut child = start(&interpreter, "threads.py", &[]);
        let is_enough = |stacks: &HostStacks| stacks.counters.rounds > 300 && is_complete(stacks);
        let stacks = sampled(&mut child, 500, is_enough);
        drop(child.stdin.take());
        child.wait().unwrap();

        let process = stacks.processes.last().unwrap();
        assert!(process.python.starts_with(&format!("3.{minor}")), "{process:?}");
        let spans = |innermost: &'static [(&str, u32)]| -> Vec<&Span> {
            let is_settled = |span: &&Span| span.is_settled && is_in(&stacks, span, innermost);
            stacks.spans.iter().filter(is_settled).collect()
        };
        let waits = |span: &Span| match stacks.doing(span) {
            Doing::Waiting { r#for, .. } => r#for.clone(),
            Doing::Running => WaitsFor::Unknown,
        };
        let asleep = spans(&[("sleeps", 11), ("outer", 15)]);
        let longest = asleep.iter().max_by_key(|span| span.samples).expect("the sleeping thread");
        assert!(longest.is_asleep && longest.samples > 100, "3.{minor}: {longest:?}");
        assert_eq!(waits(longest), WaitsFor::Sleep, "3.{minor}");
        let [(_, top), ..] = frames(&stacks, longest)[2..] else { panic!("the thread's own frames") };
        assert!(top > 0, "3.{minor}: the frames of `threading` have lines");
        let reads = spans(&[("reads", 22)]);
        let is_pipe =
            |span: &&Span| matches!(waits(span), WaitsFor::Descriptor { what, .. } if what == "pipe");
        assert!(reads.iter().any(is_pipe), "3.{minor}: {reads:?}");
        assert!(!spans(&[("sleeps", 11), ("deep", 52), ("deep", 50)]).is_empty(), "3.{minor}");

        compiled_frames_are_above_those_that_called_them(minor, &stacks);
        spinning_threads_share_the_lock(minor, &stacks);
        impossible_pairs_are_rare(minor, &stacks);
    }
}

/// Whether every function was sampled as often as the tests below want. On a busy machine, a round
/// meets few of the threads that compute.
fn is_complete(stacks: &HostStacks) -> bool {
    let has = |function: &str| stacks.spans.iter().any(|span| is_below(stacks, span, function));
    let slept = stacks.spans.iter().filter(|span| is_below(stacks, span, "sleeps"));
    let (waits, holds) = sharing(stacks);
    ["foreign", "reads", "deep"].into_iter().all(has)
        && slept.map(|span| span.samples).max() > Some(100)
        && waits.min(holds) > 20
        && pairs(stacks).0 > 50
}

/// Whether a function is active in a span.
fn is_below(stacks: &HostStacks, span: &Span, function: &str) -> bool {
    stacks.frames(span.stack).any(|frame| frame.function == function)
}

/// A thread that waits in a library that Python calls has that library's frames, and above them
/// those of Python. One that waits in the interpreter itself has only the latter.
fn compiled_frames_are_above_those_that_called_them(minor: u32, stacks: &HostStacks) {
    let of = |function: &str| {
        let is_in = |span: &&Span| frames(stacks, span).iter().any(|frame| frame.0 == function);
        stacks.spans.iter().filter(is_in).max_by_key(|span| span.samples).expect("a span")
    };
    let foreign: Vec<_> = stacks.frames(of("foreign").stack).collect();
    let kinds = foreign.iter().map(|frame| frame.kind).collect::<Vec<_>>();
    let native = kinds.iter().take_while(|kind| **kind == FrameKind::Native).count();
    assert!(native >= 2 && !kinds[native..].contains(&FrameKind::Native), "3.{minor}: {foreign:?}");
    assert_eq!((&*foreign[0].function, &*foreign[native].function), ("pause", "foreign"), "3.{minor}");
    assert!(foreign[..native].iter().any(|frame| frame.file.contains("libffi")), "3.{minor}: {foreign:?}");
    assert!(stacks.frames(of("sleeps").stack).all(|frame| frame.kind == FrameKind::Python), "3.{minor}");
}

/// Of two threads that compute, one holds the global lock, and the other one waits for it.
fn spinning_threads_share_the_lock(minor: u32, stacks: &HostStacks) {
    assert_eq!(spinning_threads(stacks).len(), 2, "3.{minor}");
    let (waits, holds) = sharing(stacks);
    assert!(waits > 20 && holds > 20, "3.{minor}: {waits} wait, {holds} hold");
}

/// The threads that compute.
fn spinning_threads(stacks: &HostStacks) -> BTreeSet<u32> {
    let spins = stacks.spans.iter().filter(|span| is_below(stacks, span, "spins"));
    spins.map(|span| stacks.thread(span).1.tid).collect()
}

/// How often one of the two threads that compute waited for the other one, and how often one held
/// the global lock.
fn sharing(stacks: &HostStacks) -> (usize, usize) {
    let tids = spinning_threads(stacks);
    let other = |tid: u32| tids.iter().copied().find(|&other| other != tid);
    let spins = || stacks.spans.iter().filter(|span| is_below(stacks, span, "spins"));
    let waits = spins().filter(|span| {
        let gil = WaitsFor::Gil { holder: other(stacks.thread(span).1.tid) };
        matches!(stacks.doing(span), Doing::Waiting { r#for, .. } if *r#for == gil)
    });
    (waits.count(), spins().filter(|span| span.holds_gil).count())
}

/// Checks the settled pairs of frames: at most one, and one more in each thousand, is a callee that
/// its caller never calls.
fn impossible_pairs_are_rare(minor: u32, stacks: &HostStacks) {
    let (pairs, impossible) = pairs(stacks);
    assert!(pairs > 50, "3.{minor}: {pairs} pairs");
    // Several readings may agree by chance.
    assert!(impossible.len() <= 1 + pairs / 1000, "3.{minor}: of {pairs} pairs {impossible:?}");
    let Counters { samples, unsettled, .. } = stacks.counters;
    println!("3.{minor}: {unsettled} of {samples} samples are unsettled, {:?}", stacks.counters);
}

/// The number of settled pairs of known frames, and the stacks of those whose caller never calls
/// the callee.
fn pairs(stacks: &HostStacks) -> (usize, Vec<Vec<(String, u32)>>) {
    let calls = |callee: &str| match callee {
        "first_callee" => Some("first_caller"),
        "second_callee" => Some("second_caller"),
        "first_caller" | "second_caller" => Some("spins"),
        _ => None,
    };
    let (mut pairs, mut impossible) = (0, Vec::new());
    for span in stacks.spans.iter().filter(|span| span.is_settled) {
        let frames = frames(stacks, span);
        let known = frames.windows(2).filter_map(|pair| Some((calls(&pair[0].0)?, &pair[1].0)));
        for (caller, found) in known {
            pairs += 1;
            if caller != found {
                impossible.push(frames.clone());
            }
        }
    }
    (pairs, impossible)
}

#[test]
fn children_belong_to_their_parents() {
    let Some((_, interpreter)) = interpreters().pop_last() else { return };
    let mut child = start(&interpreter, "forks.py", &[]);
    let stacks =
        sampled(&mut child, 200, |stacks| stacks.processes.len() > 2 && stacks.counters.rounds > 100);
    drop(child.stdin.take());
    child.wait().unwrap();
    let of_child = stacks.processes.iter().filter(|process| process.parent == child.id()).count();
    assert_eq!(of_child, 2, "{:?}", stacks.processes);
    let works = |span: &&Span| {
        stacks.thread(span).0.parent == child.id()
            && frames(&stacks, span).iter().any(|frame| frame.0 == "work")
    };
    assert!(stacks.spans.iter().any(|span| works(&span)));
}
