//! The launch path: what happens around each kernel launch of the program.
//!
//! Before the real call: find the launch's configuration among those that this thread launched lately ([`LaunchCache`]),
//! and whether it is to be timed. After it: write one record of 32 bytes. A configuration that the thread has not seen
//! lately is looked up in the shared table, without a lock; one that nobody has seen is described by the driver and
//! defined, *after* the real launch, so that no code is loaded earlier than the program would have it.

use crate::recorder::{Recorder, api, caught, guarded, is_recording, normalised};
use crate::tables::{ConfigKey, Zeroable, zeroed};
use crate::thread::{self, Here, Thread};
use crate::timing;
use apex_trace::layout::{self, GraphLaunch, NO_CONFIG, Slots, flags};
use apex_trace::{TickCounter, now};
use cuda_abi::types::*;
use cuda_abi::{ENTRY_POINTS, StreamMode};
use std::sync::atomic::Ordering::Relaxed;

/// What a program asks for with a launch.
#[derive(Clone, Copy)]
pub struct Launch {
    /// A function, or a library's kernel.
    pub function: CUfunction,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z; zeros without one.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
    /// As the program gave it.
    pub stream: CUstream,
    /// [`flags`] of the record.
    pub flags: u16,
    /// Whether an event may stand before and after the launch: not where it overlaps with its neighbours on purpose.
    pub can_be_timed: bool,
}

/// Forwards a launch through the entry point at `INDEX` and records it.
#[inline(always)]
pub fn observe<const INDEX: usize>(launch: Launch, forward: impl FnOnce() -> CUresult) -> CUresult {
    if !is_recording() {
        return forward();
    }
    let Some(here) = thread::here() else { return forward() };
    let stream = normalised(launch.stream, const { is_per_thread(INDEX) });
    let Some(Plan { config, is_timed, clock }) = here.lend(|thread| thread.plan(&launch)) else {
        return forward();
    };
    if is_timed {
        return observe_timed::<INDEX>(here, launch, stream, config, forward);
    }
    let start = clock.now();
    let result = forward();
    let end = clock.now();
    here.lend(|thread| thread.record_launch(INDEX, &launch, stream, config, (start, end), result));
    result
}

/// The rest of [`observe`] for a launch that is to be timed. Kept apart, so that the code of the others stays short and
/// straight.
#[cold]
#[inline(never)]
fn observe_timed<const INDEX: usize>(
    here: Here,
    launch: Launch,
    stream: CUstream,
    config: u32,
    forward: impl FnOnce() -> CUresult,
) -> CUresult {
    timing::around(timing::Subject::Kernel(config), stream, forward, |start, end, result| {
        here.lend(|thread| thread.record_launch(INDEX, &launch, stream, config, (start, end), result));
    })
}

/// Forwards a call that makes several launches, which `launches` lists given the result, and records each.
pub fn observe_many<const INDEX: usize>(
    forward: impl FnOnce() -> CUresult,
    launches: impl FnOnce(CUresult) -> Vec<Launch>,
) -> CUresult {
    if !is_recording() {
        return forward();
    }
    let Some(here) = thread::here() else { return forward() };
    let start = now();
    let result = forward();
    let end = now();
    for launch in launches(result) {
        let stream = normalised(launch.stream, const { is_per_thread(INDEX) });
        here.lend(|thread| thread.record_launch(INDEX, &launch, stream, NO_CONFIG, (start, end), result));
    }
    result
}

/// Forwards the launch of a graph through the entry point at `INDEX` and records it.
pub fn observe_graph<const INDEX: usize>(
    graph: CUgraphExec,
    stream: CUstream,
    forward: impl FnOnce() -> CUresult,
) -> CUresult {
    if !is_recording() {
        return forward();
    }
    let Some(here) = thread::here() else { return forward() };
    let stream = normalised(stream, const { is_per_thread(INDEX) });
    let (id, is_timed) = here.lend(|thread| thread.plan_graph(graph)).unwrap_or_default();
    let record = |start, end, result| {
        here.lend(|thread| thread.record_graph(INDEX, id, stream, (start, end), result));
    };
    if is_timed {
        return timing::around(timing::Subject::Graph(id), stream, forward, record);
    }
    let start = now();
    let result = forward();
    record(start, now(), result);
    result
}

/// Whether stream 0 is the thread's own to the entry point at `index`.
pub const fn is_per_thread(index: usize) -> bool {
    matches!(ENTRY_POINTS[index].stream, StreamMode::PerThread)
}

/// What [`Thread::plan`] found before the launch.
#[derive(Clone, Copy)]
struct Plan {
    config: u32,
    is_timed: bool,
    /// The thread's, so that the reading after the launch need not look for it again.
    clock: TickCounter,
}

impl Thread {
    /// (What is out of line takes the launch by value: a reference would force all of it into memory on every launch.)
    #[inline(always)]
    fn plan(&mut self, launch: &Launch) -> Plan {
        let (context, clock) = (self.context(), self.clock);
        let epoch = self.recorder.epochs.modules.load(Relaxed);
        let known = self.launches.place(&Words::of(launch, context, epoch));
        match known {
            Ok(known) => {
                known.until_sample = known.until_sample.wrapping_sub(1);
                let (config, due) = (known.config, known.until_sample == 0);
                let is_timed =
                    (due || timing::wants_all(self.recorder)) && self.decide_timing(*launch, config, context);
                Plan { config, is_timed, clock }
            }
            Err(()) => self.plan_unfamiliar(*launch, context),
        }
    }

    /// Plans a launch whose configuration this thread has not seen lately. It may be its context's first, which is the
    /// moment to calibrate, for no kernel can be running yet.
    #[cold]
    fn plan_unfamiliar(&mut self, launch: Launch, context: u32) -> Plan {
        let (recorder, clock) = (self.recorder, self.clock);
        if timing::is_new(recorder, context) {
            guarded(|| timing::prepare(recorder, context));
        }
        let epoch = recorder.epochs.modules.load(Relaxed);
        let function = recorder.known_function(launch.function);
        let known = function.and_then(|function| recorder.known_config(&key(&launch, function, context)));
        let Some(config) = known else { return Plan { config: NO_CONFIG, is_timed: false, clock } };
        self.launches.remember(
            Words::of(&launch, context, epoch),
            config,
            timing::interval(recorder, config),
        );
        let is_due = timing::wants_all(recorder) || timing::is_due_when_met_again(recorder, config);
        Plan { config, is_timed: is_due && self.decide_timing(launch, config, context), clock }
    }

    #[cold]
    fn decide_timing(&mut self, launch: Launch, config: u32, context: u32) -> bool {
        let decision = caught(|| timing::decide(self.recorder, config, context)).unwrap_or_default();
        let epoch = self.recorder.epochs.modules.load(Relaxed);
        if let Ok(known) = self.launches.place(&Words::of(&launch, context, epoch)) {
            known.until_sample = decision.next_after;
        }
        decision.now && launch.can_be_timed
    }

    #[inline(always)]
    fn record_launch(
        &mut self,
        index: usize,
        launch: &Launch,
        stream: CUstream,
        config: u32,
        (start, end): (u64, u64),
        result: CUresult,
    ) {
        let config = if config == NO_CONFIG { self.define(*launch, result) } else { config };
        let captured = if self.is_captured(stream) { flags::CAPTURED } else { 0 };
        let head = layout::Launch::head(launch.flags | captured, start, end);
        let stream = self.stream(stream);
        self.push(&layout::Launch { head, config, stream, result, api: api(index) });
    }

    fn plan_graph(&mut self, graph: CUgraphExec) -> (u32, bool) {
        let (recorder, context) = (self.recorder, self.context());
        let look_up = || guarded(|| recorder.graphs.identify(recorder, graph)).unwrap_or(0);
        let id = recorder.graphs.known(graph).unwrap_or_else(look_up);
        let is_timed = caught(|| timing::decide_graph(recorder, id, context)).unwrap_or(false);
        (id, is_timed)
    }

    fn record_graph(
        &mut self,
        index: usize,
        id: u32,
        stream: CUstream,
        (start, end): (u64, u64),
        result: CUresult,
    ) {
        let captured = if self.is_captured(stream) { flags::CAPTURED } else { 0 };
        let head = GraphLaunch::head(captured, start, end);
        let stream = if result == CUDA_SUCCESS { self.stream(stream) } else { 0 };
        self.push(&GraphLaunch { head, graph: id, stream, result, api: api(index) });
    }

    /// Gives a configuration that nobody has seen an identifier, and remembers it.
    #[cold]
    fn define(&mut self, launch: Launch, result: CUresult) -> u32 {
        let (recorder, context) = (self.recorder, self.context());
        let epoch = recorder.epochs.modules.load(Relaxed);
        let config = guarded(|| define(recorder, &launch, context, result)).unwrap_or(NO_CONFIG);
        if config != NO_CONFIG {
            self.launches.remember(
                Words::of(&launch, context, epoch),
                config,
                timing::interval(recorder, config),
            );
        }
        config
    }
}

/// The identifier of a configuration that nobody has seen. Only a launch that succeeded proves that its handle may be asked
/// about.
fn define(recorder: &Recorder, launch: &Launch, context: u32, result: CUresult) -> u32 {
    let function = match recorder.known_function(launch.function) {
        Some(id) => id,
        None if result == CUDA_SUCCESS => recorder.function(launch.function),
        None => 0,
    };
    if function == 0 {
        return NO_CONFIG;
    }
    recorder.config(&key(launch, function, context), launch.function)
}

fn key(launch: &Launch, function: u32, context: u32) -> ConfigKey {
    ConfigKey {
        function,
        context,
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        dynamic_shared: launch.dynamic_shared,
    }
}

/// All that tells one configuration from another, the function's handle in place of its identifier, in seven words.
#[derive(Clone, Copy, Default)]
struct Words([u64; 7]);

impl Words {
    #[inline(always)]
    fn of(launch: &Launch, context: u32, epoch: u32) -> Words {
        let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let ([gx, gy, gz], [bx, by, bz], [cx, cy, cz]) = (launch.grid, launch.block, launch.cluster);
        Words([
            launch.function as u64,
            two(gx, gy),
            two(gz, bx),
            two(by, bz),
            two(cx, cy),
            two(cz, launch.dynamic_shared),
            two(context, epoch),
        ])
    }

    /// Equality in a few instructions; the derived one calls `memcmp`.
    #[inline(always)]
    fn is(&self, other: &Words) -> bool {
        self.0.iter().zip(&other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }

    #[inline(always)]
    fn place(&self) -> usize {
        let [function, a, b, c, _, d, e] = self.0;
        let mixed = function.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ a.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
            ^ b.wrapping_mul(0xd6e8_feb8_6659_fd93)
            ^ (c ^ d).wrapping_mul(0xa076_1d64_78bd_642f)
            ^ e;
        (mixed >> (64 - LOG2_PLACES)) as usize
    }
}

const LOG2_PLACES: u32 = 10;

/// The configurations that a thread launched lately, in a direct-mapped cache: a miss costs a look into the shared
/// tables, a hit one cache line.
pub struct LaunchCache {
    places: Box<[Known]>,
}

#[repr(C, align(64))]
#[derive(Clone, Copy, Default)]
struct Known {
    words: Words,
    config: u32,
    /// Launches until timing is to be thought about.
    until_sample: u32,
}

// SAFETY: integers.
unsafe impl Zeroable for Known {}

const _: () = assert!(size_of::<Known>() == 64);

impl LaunchCache {
    /// Bytes of a cache.
    pub const BYTES: usize = size_of::<Known>() << LOG2_PLACES;

    /// An empty cache; `None` if there is no memory for it. (No function has the handle 0.)
    pub fn new() -> Option<LaunchCache> {
        Some(LaunchCache { places: zeroed(1 << LOG2_PLACES)? })
    }

    #[inline(always)]
    fn place(&mut self, words: &Words) -> Result<&mut Known, ()> {
        let known = &mut self.places[words.place()];
        if known.words.is(words) { Ok(known) } else { Err(()) }
    }

    fn remember(&mut self, words: Words, config: u32, until_sample: u32) {
        self.places[words.place()] = Known { words, config, until_sample };
    }
}
