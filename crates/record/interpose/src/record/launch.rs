//! The launch path: the recorder's work before and after each kernel launch of the program.
//!
//! Before the real call, it finds the configuration among the thread's recent ones
//! ([`LaunchCache`]), and decides whether to time the launch. After the call, it writes one record
//! of 32 bytes. A configuration that is not in the cache is looked up in the shared table, without
//! a lock. A new configuration is described by the driver and defined *after* the real launch, so
//! that no code is loaded earlier than without APEX.

use super::arguments::Passed;
use super::thread::Thread;
use super::{Done, Recorder, api};
use crate::objects::epochs;
use crate::switch::{caught, guarded};
use crate::tables::{ConfigKey, PackedBlock};
use crate::timing::wants_all;
use apex_trace::TickCounter;
use apex_trace::layout::{self, GraphLaunch, NO_CONFIG, Slots, flags};
use cuda_abi::types::*;
use cuda_launch::LaunchConfig;
use std::sync::atomic::Ordering::Relaxed;

/// A launch as the program requests it.
#[derive(Clone, Copy)]
pub struct Launch {
    /// A function, or a library's kernel.
    pub function: CUfunction,
    /// The configuration that the program asks for.
    pub config: LaunchConfig,
    /// The block that its threads are launched in, if it is another one
    /// ([`crate::actions::reshape`]).
    pub block: Option<PackedBlock>,
    /// As the program gave it.
    pub stream: CUstream,
    /// [`flags`] of the record.
    pub flags: u16,
    /// Whether the launch can be put between two events: its attributes name no event of the
    /// program. Programmatic stream serialization is no obstacle. It permits the kernel to begin
    /// before the one ahead of it ends, and the events only prevent that. XLA sets it on all its
    /// kernels.
    pub can_be_timed: bool,
    /// The parameters.
    pub passed: Passed,
}

/// The result of [`Thread::plan`] before the launch.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The configuration, if anybody has seen it.
    pub config: u32,
    /// Whether the launch is to be timed.
    pub is_timed: bool,
    /// The thread's, so that the reading after the launch need not look for it again.
    pub clock: TickCounter,
    /// The time at which planning began, in ticks, if the recorder's own time is to be measured;
    /// else 0.
    pub begun: u64,
}

impl Thread {
    /// Decides how to handle a launch that is about to be forwarded.
    ///
    /// (What is out of line takes the launch by value: a reference would force all of it into
    /// memory on every launch.)
    #[inline(always)]
    pub fn plan(&mut self, launches: &mut LaunchCache, launch: &Launch) -> Plan {
        let begun = self.cost_sample_begun();
        self.fetch();
        let (context, clock) = (self.context(), self.clock);
        let epoch = epochs().modules.load(Relaxed);
        let known = launches.place(&Words::of(launch, context, epoch));
        match known {
            Ok(known) => {
                known.until_sample = known.until_sample.wrapping_sub(1);
                let (config, due) = (known.config, known.until_sample == 0);
                let is_timed = (due || wants_all(self.control))
                    && self.decide_timing(launches, *launch, config, context);
                Plan { config, is_timed, clock, begun }
            }
            Err(()) => Plan { begun, ..self.plan_unfamiliar(launches, *launch, context) },
        }
    }

    /// The configuration of a launch that was made without a plan, if this thread launched it
    /// lately.
    pub fn config(&mut self, launches: &mut LaunchCache, launch: &Launch) -> u32 {
        let (context, epoch) = (self.context(), epochs().modules.load(Relaxed));
        launches.place(&Words::of(launch, context, epoch)).map_or(NO_CONFIG, |known| known.config)
    }

    /// Plans a launch whose configuration this thread has not seen lately. It may be its context's
    /// first, which is the moment to calibrate, for no kernel can be running yet.
    #[cold]
    fn plan_unfamiliar(&mut self, launches: &mut LaunchCache, launch: Launch, context: u32) -> Plan {
        let (recorder, clock) = (self.recorder, self.clock);
        if recorder.timing.is_new(context) {
            guarded(|| recorder.prepare_timing(context));
        }
        let epoch = epochs().modules.load(Relaxed);
        let function = recorder.known_function(launch.function);
        let known = function.and_then(|function| recorder.known_config(&key(&launch, function, context)));
        let Some(config) = known else {
            return Plan { config: NO_CONFIG, is_timed: false, clock, begun: 0 };
        };
        launches.remember(Words::of(&launch, context, epoch), config, recorder.timing.interval(config));
        self.note_unfamiliar(config);
        let is_due = wants_all(self.control) || recorder.timing.is_due_when_met_again(config);
        let is_timed = is_due && self.decide_timing(launches, launch, config, context);
        Plan { config, is_timed, clock, begun: 0 }
    }

    #[cold]
    fn decide_timing(
        &mut self,
        launches: &mut LaunchCache,
        launch: Launch,
        config: u32,
        context: u32,
    ) -> bool {
        let decision = caught(|| self.recorder.timing.decide(config, context)).unwrap_or_default();
        let epoch = epochs().modules.load(Relaxed);
        if let Ok(known) = launches.place(&Words::of(&launch, context, epoch)) {
            known.until_sample = decision.next_after;
        }
        decision.now && launch.can_be_timed
    }

    /// Records a launch: what was asked, and what was done.
    #[inline(always)]
    pub fn record_launch(
        &mut self,
        launches: &mut LaunchCache,
        index: usize,
        launch: &Launch,
        stream: CUstream,
        config: u32,
        done: Done,
    ) {
        let Done { start, end, result } = done;
        let config = if config == NO_CONFIG { self.define(launches, *launch, done) } else { config };
        let captured = if self.is_captured(stream) { flags::CAPTURED } else { 0 };
        let head = layout::Launch::head(launch.flags | captured, start, end);
        let stream = self.stream(stream);
        self.push(&layout::Launch { head, config, stream, result, api: api(index) });
    }

    /// Takes a sample of the recorder's own time: from `begun` to now, without the driver's call.
    /// And one of the launch's stack.
    #[cold]
    pub fn take_cost_sample(&mut self, begun: u64, config: u32, done: Done) {
        let around = done.start.saturating_sub(begun) + self.clock.now().saturating_sub(done.end);
        let ticks = around.saturating_sub(self.noted.spent_since(begun));
        if ticks < LONGEST_COST {
            self.recorder.file.add_cost_sample(ticks);
        }
        if config != NO_CONFIG {
            self.sample_stack(config, 0);
        }
    }

    /// Decides how to handle the launch of a graph: returns its identifier, and whether it is to be
    /// timed.
    pub fn plan_graph(&mut self, graph: CUgraphExec) -> (u32, bool) {
        let (recorder, context) = (self.recorder, self.context());
        let id = recorder.graph(graph);
        (id, caught(|| recorder.times_graph(id, context)).unwrap_or(false))
    }

    /// Records the launch of a graph.
    pub fn record_graph(&mut self, index: usize, id: u32, stream: CUstream, done: Done, is_timed: bool) {
        let Done { start, end, result } = done;
        let captured = if self.is_captured(stream) { flags::CAPTURED } else { 0 };
        let head = GraphLaunch::head(captured, start, end);
        let stream = if result == CUDA_SUCCESS { self.stream(stream) } else { 0 };
        self.push(&GraphLaunch { head, graph: id, stream, result, api: api(index) });
        if id != 0 {
            self.note_graph(id, is_timed);
        }
    }

    /// Gives a configuration that nobody has seen an identifier, and remembers it.
    #[cold]
    fn define(&mut self, launches: &mut LaunchCache, launch: Launch, done: Done) -> u32 {
        let (recorder, context) = (self.recorder, self.context());
        let epoch = epochs().modules.load(Relaxed);
        let config = guarded(|| define(recorder, &launch, context, done.result)).unwrap_or(NO_CONFIG);
        if config != NO_CONFIG {
            launches.remember(Words::of(&launch, context, epoch), config, recorder.timing.interval(config));
            self.note_unfamiliar(config);
            self.sample_arguments_of(&launch, config, done, flags::FIRST_SEEN);
        }
        config
    }

    /// Keeps what a launch was given, if it succeeded and that is asked for.
    #[cold]
    pub fn sample_arguments_of(&mut self, launch: &Launch, config: u32, done: Done, flags: u16) {
        if done.result == CUDA_SUCCESS {
            // SAFETY: the contract of every hook, which made `launch` of the program's arguments:
            // the driver has read them, and the program's call has not returned.
            unsafe { self.sample_arguments(config, launch.function, launch.passed, done.start, flags) };
        }
    }
}

/// The identifier of a configuration that nobody has seen. Only a launch that succeeded proves that
/// its handle may be asked about.
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
    let cluster = launch.block.map_or(launch.config.cluster, PackedBlock::as_cluster);
    ConfigKey { function, context, launch: LaunchConfig { cluster, ..launch.config } }
}

/// All that tells one configuration from another, the function's handle in place of its identifier,
/// in seven words.
#[derive(Clone, Copy)]
struct Words([u64; 7]);

impl Words {
    #[inline(always)]
    fn of(launch: &Launch, context: u32, epoch: u32) -> Words {
        let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let LaunchConfig { grid, block, cluster, dynamic_shared_bytes } = launch.config;
        let cluster = launch.block.map_or(cluster, PackedBlock::as_cluster);
        Words([
            launch.function as u64,
            two(grid.x, grid.y),
            two(grid.z, block.x),
            two(block.y, block.z),
            two(cluster.x, cluster.y),
            two(cluster.z, dynamic_shared_bytes),
            two(context, epoch),
        ])
    }

    /// Equality in a few instructions; the derived one calls `memcmp`.
    #[inline(always)]
    fn is(&self, other: &Words) -> bool {
        self.0.iter().zip(&other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }

    /// (Without context and epoch: they have to be fetched from memory, and the place can be
    /// fetched meanwhile.)
    #[inline(always)]
    fn place(&self) -> usize {
        let [function, a, b, c, _, d, _] = self.0;
        let mixed = function.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ a.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
            ^ b.wrapping_mul(0xd6e8_feb8_6659_fd93)
            ^ (c ^ d).wrapping_mul(0xa076_1d64_78bd_642f);
        (mixed >> (64 - LOG2_PLACES)) as usize
    }
}

/// Ticks beyond which a sample of the recorder's own time tells of something else: the thread lost
/// its processor.
const LONGEST_COST: u64 = 1 << 21;

const LOG2_PLACES: u32 = 10;

/// The configurations that a thread launched lately, in a direct-mapped cache: a miss costs a look
/// into the shared tables, a hit one cache line.
/// All zeros, it is empty, for no function has the handle 0.
pub struct LaunchCache {
    places: [Known; 1 << LOG2_PLACES],
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Known {
    words: Words,
    config: u32,
    /// Launches until timing is to be thought about.
    until_sample: u32,
}

const _: () = assert!(size_of::<Known>() == 64);

impl LaunchCache {
    #[inline(always)]
    fn place(&mut self, words: &Words) -> Result<&mut Known, ()> {
        let known = &mut self.places[words.place()];
        if known.words.is(words) { Ok(known) } else { Err(()) }
    }

    fn remember(&mut self, words: Words, config: u32, until_sample: u32) {
        self.places[words.place()] = Known { words, config, until_sample };
    }
}
