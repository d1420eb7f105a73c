//! The time of reading a stack of compiled frames: `cargo bench -p apex-interpose --bench
//! stack_cost`.
//!
//! Runs itself under the injected library with the fake driver, and launches new configurations
//! from functions of several depths. The session tells how long each stack took. Prints
//! microseconds: of the first stack, of the second one through the same functions, and median and
//! 90th percentile of the further ones.

mod client;

use apex_trace::control::{MappedControl, Settings, TimingMode};
use apex_trace::layout::flags;
use apex_trace::{Event, Session};
use std::hint::black_box;
use std::process::Command;

/// Functions that call each other.
const DEPTHS: [u32; 3] = [5, 20, 50];
/// Stacks at first sight that a thread reads whatever they take.
const LAUNCHES: u32 = 250;

fn main() {
    // (Cargo passes `--bench`.)
    let depth = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    match depth {
        Some(depth) => launch_from(depth),
        None => measure(),
    }
}

fn measure() {
    let me = std::env::current_exe().expect("a path");
    let temporary = tempfile::tempdir().expect("a temporary folder");
    println!(
        "{:<12} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "µs a stack", "frames", "first", "second", "median", "p90"
    );
    for round in 0..3 {
        for depth in DEPTHS {
            let session = temporary.path().join(format!("{depth}-{round}"));
            std::fs::create_dir(&session).expect("a session folder");
            let settings = Settings { timing: TimingMode::Off, ..Settings::default() };
            MappedControl::create(&session, settings).expect("a control page");
            let mut command = Command::new(&me);
            command.arg(depth.to_string()).env("LD_PRELOAD", me.with_file_name("libapex.so"));
            command.env("APEX_DRIVER", test_build::library("fake-driver")).env("APEX_SESSION", &session);
            let output = command.output().expect("the measurement starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let session = Session::open(&session).expect("a session");
            let process = session.processes.first().expect("a process");
            let (mut took, mut frames) = (Vec::new(), 0);
            for record in process.records() {
                if let Event::StackSample(sample) = record.event
                    && sample.head.flags == flags::FIRST_SEEN
                {
                    took.push(process.clock.duration_ns(sample.head.duration_ticks()) as f64 / 1e3);
                    frames =
                        process.definitions.call_stack(sample.stack).map_or(0, |stack| stack.native.len());
                }
            }
            let (first, second) = (took[0], took[1]);
            took.drain(..2);
            took.sort_by(f64::total_cmp);
            let (median, p90) = (took[took.len() / 2], took[took.len() * 9 / 10]);
            println!("{:<12} {frames:>8} {first:>8.1} {second:>8.1} {median:>8.1} {p90:>8.1}", "");
        }
    }
}

fn launch_from(depth: u32) {
    let (launch, function) = client::start();
    for grid in 1..=LAUNCHES {
        called(depth, &|| {
            let none = std::ptr::null_mut();
            // SAFETY: the driver's function with its arguments.
            let result = unsafe {
                launch(function, grid, 1, 1, 128, 1, 1, 0, none, std::ptr::null_mut(), std::ptr::null_mut())
            };
            assert_eq!(result, 0);
        });
    }
}

/// Alternates between two functions, so that frames differ.
#[inline(never)]
fn called(depth: u32, last: &dyn Fn()) {
    if depth == 0 {
        last();
    } else {
        black_box(calls(depth - 1, last));
    }
}

#[inline(never)]
fn calls(depth: u32, last: &dyn Fn()) -> [u64; 8] {
    let kept = black_box([u64::from(depth); 8]);
    called(depth, last);
    black_box(kept)
}
