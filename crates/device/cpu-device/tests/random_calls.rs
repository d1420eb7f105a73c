//! Every function of the driver with arguments that make no sense: each call is answered, in
//! bounded time, and nothing crashes.
//!
//! What CUDA itself would dereference is readable here too: a pointer is null or leads to memory
//! that is long enough. Everything else (handles, device addresses, sizes, flags) is anything:
//! alive, destroyed, of another kind, zero, huge. Calls are made on two threads of a process of its
//! own, which says what it is about to call.
//!
//! `RANDOM_CALLS_SECONDS=3600` goes on with further seeds for so long, `RANDOM_CALLS_FROM` says
//! with which to begin; the test then says how many calls it has made.

mod common;

use apex_cpu_device::{Coverage, coverage, slots::SLOTS};
use apex_random::Random;
use common::{Context, cu, ok};
use cuda_abi::types::*;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use test_process::Command;

const SIGNATURES: &str = include_str!("../../../cuda/cuda-abi/src/signature.rs");

/// Calls that wait for the program to do something, or that take addresses which may be any of the
/// program's: what they may be given can't be told from their types.
const EXCLUDED: [&str; 4] =
    ["cuMemcpyBatchAsync", "cuStreamWaitValue", "cuStreamBatchMemOp", "cuGraphDebugDotPrint"];

/// Structures that hold pointers which are followed.
const WITH_POINTERS: [&str; 4] = ["MEMCPY", "KERNEL_NODE", "CUgraphNodeParams", "c_void"];

/// Structures that hold functions, or pointers with lengths beside them.
const LEFT_EMPTY: [&str; 4] = ["HOST_NODE", "CUlaunchConfig", "BATCH", "CUctxCreateParams"];

/// Bytes behind each pointer.
const ROOM: usize = 64 << 10;

/// The types of each function's arguments.
fn signatures() -> HashMap<&'static str, Vec<&'static str>> {
    SIGNATURES
        .split("pub type ")
        .skip(1)
        .filter_map(|item| {
            let (symbol, rest) = item.split_once('=')?;
            let arguments = rest.split_once("fn(")?.1.split_once(')')?.0;
            let types = arguments.split(',').filter_map(|argument| Some(argument.split_once(':')?.1.trim()));
            Some((symbol.trim(), types.collect()))
        })
        .collect()
}

/// A function of the program's, whatever it is called with.
extern "C" fn callback() -> usize {
    0
}

/// The objects from which the calls of a round choose.
struct World {
    random: Random,
    /// Things that exist, existed, or never did.
    handles: Vec<u64>,
    /// Device addresses: of an allocation, inside of one, of a freed one.
    addresses: Vec<u64>,
    /// One for each argument.
    rooms: Vec<Vec<u64>>,
    /// Zeros.
    zeros: Vec<u64>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut handles = Vec::new();
        let image = CString::new(include_str!("data/kernels.ptx")).unwrap();
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        ok!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
        let (mut graph, mut node, mut exec) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuGraphCreate(&mut graph, 0));
        ok!(cuGraphAddEmptyNode(&mut node, graph, std::ptr::null(), 0));
        ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        let mut array = std::ptr::null_mut();
        let flat = CUDA_ARRAY_DESCRIPTOR { Width: 16, Height: 4, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
        ok!(cuArrayCreate_v2(&mut array, &flat));
        let mut context = std::ptr::null_mut();
        ok!(cuCtxGetCurrent(&mut context));
        let destroyed = common::stream(0);
        ok!(cuStreamDestroy_v2(destroyed));
        let (stream, event) = (common::stream(1), common::event());
        handles.extend([
            module as u64,
            function as u64,
            graph as u64,
            node as u64,
            exec as u64,
            array as u64,
        ]);
        handles.extend([context as u64, destroyed as u64, stream as u64, event as u64, 0, 1, 2, 3]);
        let (memory, freed) = (common::upload(&[7; 4096]), common::upload(&[7; 64]));
        ok!(cuMemFree_v2(freed));
        let addresses = vec![0, memory, memory + 8, memory + 4000, freed];
        let rooms = vec![vec![0; ROOM / 8]; MOST_ARGUMENTS];
        World { random: Random::new(seed), handles, addresses, rooms, zeros: vec![0; ROOM / 8] }
    }

    fn pick(&mut self, values: &[u64]) -> u64 {
        values[self.random.below(values.len() as u64) as usize]
    }

    fn handle(&mut self) -> u64 {
        let known = self.handles.clone();
        if self.random.below(8) == 0 { self.random.bits() } else { self.pick(&known) }
    }

    /// A number; with `small`, one that may be the length of an array.
    fn number(&mut self, small: bool) -> u64 {
        match self.random.below(if small { 6 } else { 10 }) {
            0..6 => self.random.below(9),
            6 => 1 << self.random.below(64),
            7 => self.random.below(1 << 13),
            8 => (self.random.below(9) as i64).wrapping_neg().cast_unsigned(),
            _ => self.random.bits(),
        }
    }

    /// Fills the room of an argument with what its type may hold, and returns its address.
    fn pointer(&mut self, index: usize, ty: &str) -> u64 {
        if self.random.below(6) == 0 {
            return 0;
        }
        let zeros = self.zeros.as_ptr() as u64;
        let pointee = ty.rsplit(' ').next().unwrap_or_default();
        let mut room = std::mem::take(&mut self.rooms[index]);
        for word in room.iter_mut().take(64) {
            *word = match pointee {
                _ if LEFT_EMPTY.iter().any(|name| pointee.contains(name)) => 0,
                _ if ty.matches('*').count() > 1
                    || WITH_POINTERS.iter().any(|name| pointee.contains(name)) =>
                {
                    self.pick(&[0, zeros])
                }
                "usize" | "u32" | "i32" | "u64" | "cuuint64_t" | "CUmemPool_attribute" => self.number(true),
                _ => match self.random.below(4) {
                    0 => self.handle(),
                    1 => self.number(false),
                    _ => self.number(true) | self.number(true) << 32,
                },
            };
        }
        let address = room.as_ptr() as u64;
        self.rooms[index] = room;
        address
    }

    fn argument(&mut self, index: usize, ty: &str, symbol: &str, small: bool) -> u64 {
        match ty {
            _ if ty.starts_with('*') => self.pointer(index, ty),
            "CUdeviceptr" => {
                let known = self.addresses.clone();
                let unified = symbol.starts_with("cuMemcpy_")
                    || symbol == "cuMemcpy"
                    || symbol.starts_with("cuMemcpyAsync");
                // Of an address that the device does not know, those take that it is the host's.
                match self.random.below(4) {
                    0 if !unified => self.random.bits() >> self.random.below(64),
                    _ if unified => self.pick(&known[..2]),
                    _ => self.pick(&known),
                }
            }
            "CUhostFn" | "CUstreamCallback" | "CUoccupancyB2DSize" | "CUgraphRecaptureCallback" => {
                self.pick(&[0, callback as *const () as u64])
            }
            "usize" | "u8" | "u16" | "u32" | "u64" | "i32" => self.number(small),
            "CUdevice" => self.pick(&[0, 0, 0, 1, u64::MAX]),
            _ => match self.random.below(2) {
                0 => self.handle(),
                _ => self.number(small),
            },
        }
    }
}

/// The program that runs in a process of its own: calls on two threads at once.
#[test]
#[ignore = "the test below runs it, with a seed"]
fn child() {
    let seed: u64 = std::env::var("RANDOM_CALLS_SEED").unwrap().parse().unwrap();
    // SAFETY: the process ends when calls take longer than this together.
    unsafe { libc::alarm(300) };
    std::thread::scope(|scope| {
        scope.spawn(|| make_calls(2 * seed));
        scope.spawn(|| make_calls(2 * seed + 1));
    });
    println!("done");
}

/// A few rounds of calls, in a world of their own each.
fn make_calls(seed: u64) {
    let signatures = signatures();
    let mut calls: Vec<(usize, &str)> = coverage()
        .enumerate()
        .filter(|(_, (symbol, covered))| {
            !matches!(covered, Coverage::Refused(_))
                && !EXCLUDED.iter().any(|excluded| symbol.starts_with(excluded))
        })
        .map(|(index, (symbol, _))| (index, symbol))
        .collect();
    let mut order = Random::new(seed);
    for at in (1..calls.len()).rev() {
        calls.swap(at, order.below(at as u64 + 1) as usize);
    }
    for (round, calls) in calls.chunks(16).enumerate() {
        let context = Context::new();
        let mut world = World::new(seed << 16 | round as u64);
        for (index, symbol) in calls.iter().flat_map(|call| [call; 8]) {
            let types = &signatures[symbol];
            let small = types.iter().skip(1).any(|ty| ty.starts_with('*'));
            let mut arguments = [0u64; MOST_ARGUMENTS];
            for (at, ty) in types.iter().enumerate() {
                arguments[at] = world.argument(at, ty, symbol, small);
            }
            println!("thread {}: {symbol} {:x?}", seed & 1, &arguments[..types.len()]);
            let code = call(*index, arguments);
            assert!(result_name(code).is_some() && code != CUDA_ERROR_UNKNOWN, "{symbol} returned {code}");
        }
        drop(context);
    }
}

/// Arguments of the entry point that has the most, `cuTensorMapEncodeIm2col`.
const MOST_ARGUMENTS: usize = 15;

fn call(index: usize, arguments: [u64; MOST_ARGUMENTS]) -> CUresult {
    #[rustfmt::skip]
    type Any = unsafe extern "C" fn(
        u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64,
    ) -> CUresult;
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = arguments;
    let slot = SLOTS[index].load(Ordering::Relaxed);
    // SAFETY: the slot holds a function of at most fifteen arguments that are passed as integers
    // are (a float one is then whatever the register holds); pointers are null or lead to `ROOM`
    // bytes.
    unsafe {
        let function = std::mem::transmute::<*mut (), Any>(slot);
        function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
    }
}

/// Seeds that are tried where no time is given.
const SEEDS: u64 = 12;

/// A number from the environment.
fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect(variable))
}

#[test]
fn nonsense_is_answered_and_crashes_nothing() {
    let (started, first) = (Instant::now(), number_of("RANDOM_CALLS_FROM").unwrap_or(1));
    let time = number_of("RANDOM_CALLS_SECONDS").map(Duration::from_secs);
    let mut calls = 0;
    for seed in first.. {
        let enough = time.map_or(seed - first >= SEEDS, |time| started.elapsed() >= time);
        if enough {
            println!("{calls} calls, seeds {first} to {}", seed - 1);
            break;
        }
        calls += try_seed(seed);
    }
}

/// Makes the calls of a seed in a process of its own; how many there were.
fn try_seed(seed: u64) -> usize {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"]);
    // Some calls write into files of whatever name.
    let folder = tempfile::tempdir().unwrap();
    command.current_dir(folder.path());
    let output = command.env("RANDOM_CALLS_SEED", seed.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(6).collect();
    assert!(
        output.status.success() && said.contains("\ndone"),
        "seed {seed} ended with {:?} (signal {:?}); the last calls, the very last first: {last:#?}\n{}",
        output.status.code(),
        output.status.signal(),
        errors.lines().rev().take(12).collect::<Vec<_>>().join("\n")
    );
    said.lines().filter(|line| line.starts_with("thread ")).count()
}
