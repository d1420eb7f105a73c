//! The speed of kernels on the CPU device, beside the same algorithms in plain Rust on as many
//! threads.
//!
//! `cargo bench -p ptx-exec --bench speed -- --json FILE` measures and writes every sample;
//! `scripts/cpu_device.py speed FILE` prints the tables. `-- NAME` measures only the workloads
//! whose name contains `NAME`, and `--unwatched` leaves out launches that are counted or checked,
//! which take most of the time. Without a file the samples go to standard output. What is compared
//! runs alternately, so that whatever else the machine does disturbs all of it alike, and every
//! second time in the other order, because each finds the caches as the one before has left them.
//! Inputs are random, and what the kernels and their peers compute is checked against double
//! precision before anything is measured.
//!
//! The goals are held against what `cargo build --release` makes of the peer for its default
//! target. A second column holds it against the peer compiled with AVX2 and FMA.

#[allow(dead_code, clippy::result_large_err, reason = "made for tests, which use more of it")]
#[path = "../../tests/exec/device.rs"]
mod device;
#[path = "../machine.rs"]
mod machine;
mod native;
mod report;
mod workloads;

use report::Report;

/// Times that everything is measured.
const SAMPLES: usize = 15;

fn main() {
    let (mut json, mut name, mut watched) = (None, String::new(), true);
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = Some(arguments.next().unwrap_or_else(|| misused())),
            "--unwatched" => watched = false,
            filter if !filter.starts_with('-') && name.is_empty() => name = filter.to_owned(),
            _ => misused(),
        }
    }
    let mut report = Report::new(watched);
    for (_, make) in workloads::ALL.iter().filter(|(known, _)| known.contains(&name)) {
        report.measure(&make(), SAMPLES);
    }
    if "empty".contains(&name) {
        workloads::launches().iter().for_each(|launch| report.measure_launch(launch, SAMPLES));
    }
    let Some(path) = json else {
        print!("{}", report.json());
        return;
    };
    if let Err(error) = std::fs::write(&path, report.json()) {
        eprintln!("cannot write {path}: {error}");
        std::process::exit(1);
    }
}

/// Ends the program with how it is called.
fn misused() -> ! {
    eprintln!("usage: cargo bench -p ptx-exec --bench speed [-- [--json FILE] [--unwatched] [NAME]]");
    std::process::exit(2);
}
