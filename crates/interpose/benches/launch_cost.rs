//! What recording adds to a launch: `cargo bench -p apex-interpose --bench launch_cost`.
//!
//! Runs itself under the injected library with the fake driver, whose launch returns at once: as
//! bare jumps, with recording switched off, recording one configuration, recording a thousand in
//! turn. Prints nanoseconds per launch: the mean of all; the median over blocks of a hundred
//! launches, which leaves out the page faults of the session file; median and 99th percentile of
//! single launches by the time-stamp counter, less its own cost (some machines' counters move in
//! steps of ten nanoseconds). What counts is the difference to the bare row; and between the rows
//! with a busy driver, which leaves as little of the processor's caches as a real one, what
//! programs will see.

use apex_trace::control::{MappedControl, Settings, TimingMode};
use std::ffi::{CStr, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const LAUNCHES: usize = 200_000;
const BLOCK: usize = 100;

type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> u32;

fn main() {
    // (Cargo passes `--bench`.)
    match std::env::args().nth(1).and_then(|configurations| configurations.parse().ok()) {
        None => run_all(),
        Some(configurations) => measure(configurations),
    }
}

fn run_all() {
    let me = std::env::current_exe().expect("a path");
    let library = me.with_file_name("libapex.so");
    let driver = test_build::library("fake-driver");
    let temporary = tempfile::tempdir().expect("a temporary folder");
    println!("{:<28} {:>8} {:>8} {:>8} {:>8}", "ns per launch", "mean", "block", "median", "p99");
    for round in 0..3 {
        for (name, disable, recording, timing, configurations, busy) in [
            ("bare", true, false, TimingMode::Off, 1, false),
            ("recording off", false, false, TimingMode::Off, 1, false),
            ("recording", false, true, TimingMode::Off, 1, false),
            ("recording, 1000 configs", false, true, TimingMode::Off, 1000, false),
            ("recording, sampled timing", false, true, TimingMode::Sampled, 1, false),
            ("bare, busy driver", true, false, TimingMode::Off, 1, true),
            ("recording, busy driver", false, true, TimingMode::Off, 1, true),
        ] {
            let session = session(temporary.path(), &format!("{round}-{name}"), recording, timing);
            let mut command = Command::new(&me);
            command.arg(configurations.to_string()).env("LD_PRELOAD", &library);
            command.env("APEX_DRIVER", &driver).env("APEX_SESSION", &session);
            if disable {
                command.env("APEX_DISABLE", "1");
            }
            if busy {
                command.env("FAKE_BUSY", "1");
            }
            let output = command.output().expect("the measurement starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            print!("{name:<28} {}", String::from_utf8_lossy(&output.stdout));
            std::io::stdout().flush().expect("standard output");
        }
    }
}

fn session(folder: &Path, name: &str, recording: bool, timing: TimingMode) -> PathBuf {
    let session = folder.join(name);
    std::fs::create_dir(&session).expect("a session folder");
    MappedControl::create(&session, Settings { recording, timing, ..Settings::default() })
        .expect("a control page");
    session
}

fn symbol<F: Copy>(name: &CStr) -> F {
    // SAFETY: names of functions of the library that the dynamic linker finds for libcuda.so.1; F
    // is their type.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let address = libc::dlsym(library, name.as_ptr());
        assert!(!address.is_null(), "no {name:?}");
        std::mem::transmute_copy(&address)
    }
}

fn measure(configurations: u32) {
    let mut handles = [std::ptr::null_mut::<c_void>(); 4];
    // SAFETY: the driver's functions with their arguments.
    let function = unsafe {
        symbol::<unsafe extern "C" fn(u32) -> u32>(c"cuInit")(0);
        symbol::<unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> u32>(c"cuCtxCreate_v2")(
            &mut handles[0],
            0,
            0,
        );
        let load = symbol::<unsafe extern "C" fn(*mut *mut c_void, *const i8) -> u32>(c"cuModuleLoadData");
        load(&mut handles[1], c"kernel_5000".as_ptr());
        let get = symbol::<unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const i8) -> u32>(
            c"cuModuleGetFunction",
        );
        get(&mut handles[2], handles[1], c"kernel_5000".as_ptr());
        handles[2]
    };
    let launch: Launch = symbol(c"cuLaunchKernel");
    let once = |grid: u32| {
        let (none, parameters) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the driver's function with its arguments.
        let result =
            unsafe { launch(function, grid + 1, 1, 1, 128, 1, 1, 0, none, parameters, std::ptr::null_mut()) };
        assert_eq!(result, 0);
    };
    let each =
        |run: &mut dyn FnMut(u32)| (0..LAUNCHES as u32).for_each(|launch| run(launch % configurations));
    each(&mut |grid| once(grid)); // warm

    let mut blocks = Vec::with_capacity(LAUNCHES / BLOCK);
    let begun = Instant::now();
    for block in 0..(LAUNCHES / BLOCK) as u32 {
        let begun = Instant::now();
        (0..BLOCK as u32).for_each(|launch| once((block * BLOCK as u32 + launch) % configurations));
        blocks.push(begun.elapsed().as_nanos() as u64);
    }
    let mean = begun.elapsed().as_nanos() as f64 / LAUNCHES as f64;
    let typical = quantile(&mut blocks, 0.5) as f64 / BLOCK as f64;

    let per_tick = ns_per_tick();
    let mut ticks = Vec::with_capacity(LAUNCHES);
    each(&mut |grid| {
        let begun = apex_trace::now();
        once(grid);
        ticks.push(apex_trace::now() - begun);
    });
    let mut nothing: Vec<u64> = (0..LAUNCHES)
        .map(|_| -(apex_trace::now() as i64) as u64)
        .map(|begun| apex_trace::now().wrapping_add(begun))
        .collect();
    let own = quantile(&mut nothing, 0.5);
    let at = |share, ticks: &mut Vec<u64>| quantile(ticks, share).saturating_sub(own) as f64 * per_tick;
    println!("{mean:>8.1} {typical:>8.1} {:>8.1} {:>8.1}", at(0.5, &mut ticks), at(0.99, &mut ticks));
}

fn quantile(values: &mut [u64], share: f64) -> u64 {
    let at = ((values.len() - 1) as f64 * share) as usize;
    *values.select_nth_unstable(at).1
}

fn ns_per_tick() -> f64 {
    let (begun, ticks) = (Instant::now(), apex_trace::now());
    while begun.elapsed().as_millis() < 20 {}
    begun.elapsed().as_nanos() as f64 / (apex_trace::now() - ticks) as f64
}
