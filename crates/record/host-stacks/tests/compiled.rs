//! Stacks of a program of compiled code while it runs.

use apex_host_stacks::{FrameKind, HostStacks, Options, Sampler};
use apex_untrusted::Folder;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use test_process::Command;

/// Rounds after which the test stops to wait for more and says what is missing.
const MOST_ROUNDS: u64 = 20_000;

/// Compiles the program as its user would: with optimization, and lines.
fn compiled(folder: &Path) -> Option<std::path::PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/computes.cpp");
    let program = folder.join("computes");
    let mut command = Command::new("c++");
    command.args(["-O2", "-g1", "-o"]).arg(&program).arg(source);
    let is_compiled = command.output().is_ok_and(|output| output.status.success());
    is_compiled.then_some(program)
}

#[test]
fn running_threads_of_a_compiled_program_have_their_functions_and_lines() {
    if let Some(why) = apex_host_stacks::refusal_of_running() {
        test_skip::impossible_here(why);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path()) else {
        test_skip::missing_dependency("no C++ compiler");
        return;
    };
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let options = Options { period: Duration::from_millis(4), ..Options::default() };
    let pid = child.id();
    let sampler = Sampler::start(Folder::open(folder.path()).unwrap(), options, move || vec![pid]).unwrap();
    let wanted: [(&str, &[&str]); 3] =
        [("tables", &["page fault"]), ("tables", &[]), ("draws", &["std::random_device", "random_device"])];
    let stacks = loop {
        let stacks = HostStacks::read(folder.path());
        let has = |&(of, called): &(&str, &[&str])| {
            stacks.spans.iter().any(|span| {
                let frames: Vec<_> = stacks.frames(span.stack).collect();
                let own = frames.iter().position(|frame| {
                    frame.function.ends_with(of) && frame.file.ends_with("computes.cpp") && frame.line > 0
                });
                let is_called = |name: &&str| {
                    frames[..own.unwrap_or(0)].iter().any(|frame| frame.function.contains(name))
                };
                own.is_some() && (called.is_empty() || called.iter().any(is_called))
            })
        };
        let missing: Vec<_> = wanted.iter().filter(|wanted| !has(wanted)).collect();
        if missing.is_empty() {
            break stacks;
        }
        let told = || -> Vec<String> {
            let spans = stacks.spans.iter().rev().take(20);
            spans
                .map(|span| {
                    let frames = stacks.frames(span.stack);
                    frames.map(|frame| format!("{} {}:{} ", frame.function, frame.file, frame.line)).collect()
                })
                .collect()
        };
        assert!(stacks.counters.rounds < MOST_ROUNDS, "{missing:?} of {:#?}", told());
        std::thread::sleep(Duration::from_millis(50));
    };
    sampler.finish().unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    // The outermost functions are there too.
    let whole = |span: &&apex_host_stacks::Span| {
        stacks.frames(span.stack).any(|frame| frame.kind == FrameKind::Native && frame.function == "main")
    };
    let (all, of_main) = (stacks.spans.len(), stacks.spans.iter().filter(whole).count());
    assert!(2 * of_main > all, "{of_main} of {all}");
}
