//! Fusion: two launches that wait in the launch queue, one behind the other, are made as one launch
//! of a kernel that does what both do (`apex run --tuned` with `--fast=queue`).
//!
//! The plan has the PTX of the joined kernel and the condition under which its launch stands for
//! both ([`launch_condition::PlannedPair`]). This action knows which functions are those of a pair,
//! loads the joined kernel, and decides about two launches. The queue finds them next to each other
//! and makes the launch.
//!
//! # Contract
//! 1. *Nothing comes between.* Both launches wait in the ring with tickets that follow each other,
//!    in one stream and context, without attributes. A call that could see the state between them
//!    empties the ring first, or has a ticket of its own.
//! 2. *The code is the plan's*, and so are devices and driver, as for
//!    [`reshape`](super::reshape); where that ends (mapped memory), this ends too.
//! 3. *Unknown means no.* Equal grids and blocks, no shared memory, parameters that are said to be
//!    equal are equal, and the condition holds for the joined kernel's parameters; else both
//!    launches are made as the program asks.
//! 4. *The queue's thread loads nothing.* A joined kernel is loaded by a thread of the program when
//!    that makes the first launch of one of both kernels itself, which may load code anyway. It
//!    needs no more local memory than the kernels, so that its first launch does not wait for the
//!    GPU.
//! 5. A joined kernel that the driver refuses once is not launched again.

use super::reshape;
use crate::actions::queue::batch::Node;
use crate::driver::{self, Parameter};
use crate::objects::{Objects, epochs};
use crate::per_process::{OfProcess, PerProcess};
use crate::switch::guarded;
use crate::tables::{push, put};
use apex_trace::layout::ReshapeState;
use apex_trace::{ForkGuard, ProcessFile};
use cuda_abi::types::*;
use cuda_launch::{Dim3, LaunchConfig};
use launch_condition::{Checked, PlannedPair};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of a joined kernel's parameters.
pub const MOST_BYTES: usize = 4096;
/// Most function handles that are known at a time.
const MOST_HANDLES: usize = 1 << 12;
/// Most times that joined kernels are loaded.
const MOST_LOADS: usize = 256;

static FUSION: PerProcess<Fusion> = PerProcess::new();

/// The pairs of a process.
pub struct Fusion {
    pairs: Vec<Pair>,
    state: Mutex<State>,
    /// Whether a joined kernel has been loaded.
    is_ready: AtomicBool,
    file: &'static ProcessFile,
    objects: &'static Objects,
    guard: ForkGuard,
}

/// A pair of the plan.
struct Pair {
    kernels: [(u128, String); 2],
    name: CString,
    ptx: CString,
    parameters: Vec<(bool, u32)>,
    same: Vec<(u32, u32)>,
    condition: Checked,
    /// The driver refused the joined kernel.
    is_refused: AtomicBool,
}

#[derive(Default)]
struct State {
    /// By function handle.
    known: HashMap<u64, Known>,
    loaded: Vec<Loaded>,
}

/// A function that was met: its parts in pairs, by the place of the pair and whether it is the
/// second one.
struct Known {
    epoch: u32,
    roles: Vec<(usize, bool)>,
    local_bytes: u32,
}

/// A joined kernel in a context.
#[derive(Clone)]
struct Loaded {
    pair: usize,
    context: usize,
    epoch: u32,
    function: usize,
    most_threads: u32,
    parameters: Vec<Parameter>,
    bytes: usize,
}

impl OfProcess for Fusion {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

/// Takes the pairs of the plan. False if there is no memory for them, or one cannot be checked.
pub fn start(pairs: Vec<PlannedPair>, file: &'static ProcessFile, objects: &'static Objects) -> bool {
    let make = || {
        let pairs = pairs.into_iter().map(Pair::of).collect::<Option<_>>()?;
        let (state, is_ready) = (Mutex::default(), AtomicBool::new(false));
        Some(Box::new(Fusion { pairs, state, is_ready, file, objects, guard: ForkGuard::new().ok()? }))
    };
    FUSION.get_or_make(make, |_| {}).is_some()
}

/// Whether launches may be made as one.
#[inline]
pub fn is_ready() -> bool {
    FUSION.get().is_some_and(|fusion| fusion.is_ready.load(Acquire))
}

/// Whether launches of a function may be made as one with others.
#[inline]
pub fn may_join(function: CUfunction) -> bool {
    let ready = FUSION.get().filter(|fusion| fusion.is_ready.load(Acquire));
    ready.is_some_and(|fusion| fusion.lock().roles(function).is_some_and(|roles| !roles.is_empty()))
}

/// The calling thread, which is one of the program's, is about to launch a function itself.
pub fn meet(function: CUfunction) {
    if let Some(fusion) = FUSION.get()
        && !function.is_null()
        && !fusion.objects.captures.any()
        && !reshape::is_closed()
    {
        guarded(|| fusion.meet(function));
    }
}

/// The joined kernel by which two launches, made into one context, are made; its parameters are
/// written to `to`, and their bytes returned.
pub fn joined(context: CUcontext, nodes: [&Node; 2], to: &mut [u8; MOST_BYTES]) -> Option<Joined> {
    FUSION.get().filter(|_| !reshape::is_closed())?.joined(context, nodes, to)
}

/// A launch that stands for two.
pub struct Joined {
    /// The joined kernel.
    pub function: CUfunction,
    /// Bytes of its parameters.
    pub bytes: usize,
    pair: &'static Pair,
}

impl Joined {
    /// The driver has made the launch, or refused it.
    pub fn is_done(&self, result: CUresult) {
        let Some(fusion) = FUSION.get() else { return };
        if result == CUDA_SUCCESS {
            fusion.file.count_joined();
            fusion.file.set_reshape_state(ReshapeState::On);
        } else {
            self.pair.is_refused.store(true, Relaxed);
        }
    }
}

impl Pair {
    fn of(planned: PlannedPair) -> Option<Pair> {
        let PlannedPair { kernels, name, ptx, parameters, same, condition } = planned;
        Some(Pair {
            kernels,
            name: CString::new(name).ok()?,
            ptx: CString::new(ptx).ok()?,
            parameters,
            same,
            condition: Checked::of(&condition)?,
            is_refused: AtomicBool::new(false),
        })
    }
}

impl State {
    fn roles(&self, function: CUfunction) -> Option<&[(usize, bool)]> {
        let epoch = epochs().modules.load(Acquire);
        let known = self.known.get(&(function as u64)).filter(|known| known.epoch == epoch)?;
        Some(&known.roles)
    }

    /// The local memory of a pair's kernel, if one that lives was met.
    fn local_bytes(&self, role: (usize, bool)) -> Option<u32> {
        let epoch = epochs().modules.load(Acquire);
        let living = self.known.values().filter(|known| known.epoch == epoch && known.roles.contains(&role));
        living.map(|known| known.local_bytes).max()
    }

    fn loaded(&self, pair: usize, context: CUcontext) -> Option<&Loaded> {
        let epoch = epochs().contexts.load(Acquire);
        let is_it = |one: &&Loaded| (one.pair, one.context, one.epoch) == (pair, context as usize, epoch);
        self.loaded.iter().find(is_it)
    }
}

impl Fusion {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, function: CUfunction) {
        let epoch = epochs().modules.load(Acquire);
        let roles = self.lock().roles(function).map(<[_]>::to_vec);
        let roles = roles.unwrap_or_else(|| self.find(function, epoch));
        for (pair, _) in roles {
            self.load(pair);
        }
    }

    /// Looks up a function that is met for the first time. No lock is held during a call into the
    /// driver.
    fn find(&self, function: CUfunction, epoch: u32) -> Vec<(usize, bool)> {
        let code = self.objects.ptx_behind(function);
        let has_code = |pair: &Pair| pair.kernels.iter().any(|(known, _)| Some(*known) == code);
        let (mut roles, mut local_bytes) = (Vec::new(), 0);
        if self.pairs.iter().any(has_code) && reshape::is_of_this_driver() {
            let name = self.objects.describe_function(function).name;
            let attributes = driver::function_of(function).and_then(driver::function_attributes);
            local_bytes = attributes.map_or(0, |attributes| attributes.local_bytes);
            for (place, pair) in self.pairs.iter().enumerate() {
                for (at, (known, named)) in pair.kernels.iter().enumerate() {
                    if Some(*known) == code && *named == name {
                        push(&mut roles, (place, at == 1));
                    }
                }
            }
        }
        let mut state = self.lock();
        if state.known.len() >= MOST_HANDLES {
            state.known.clear();
        }
        put(&mut state.known, function as u64, Known { epoch, roles: roles.clone(), local_bytes });
        roles
    }

    /// Loads the joined kernel of a pair into the current context, if both kernels were met.
    fn load(&self, place: usize) {
        let pair = &self.pairs[place];
        let context = driver::current_context();
        let local_bytes = {
            let state = self.lock();
            let is_done = state.loaded(place, context).is_some() || state.loaded.len() >= MOST_LOADS;
            if is_done || context.is_null() || pair.is_refused.load(Relaxed) {
                return;
            }
            let [first, second] = [false, true].map(|part| state.local_bytes((place, part)));
            let Some((first, second)) = first.zip(second) else { return };
            first.max(second)
        };
        let epoch = epochs().contexts.load(Acquire);
        match Loaded::of(place, pair, context, epoch, local_bytes) {
            Some(loaded) => {
                push(&mut self.lock().loaded, loaded);
                self.is_ready.store(true, Release);
            }
            None => pair.is_refused.store(true, Relaxed),
        }
    }

    fn joined(
        &'static self,
        context: CUcontext,
        nodes: [&Node; 2],
        to: &mut [u8; MOST_BYTES],
    ) -> Option<Joined> {
        let [first, second] = nodes;
        let [.., shared] = first.dimensions;
        if first.stream != second.stream || first.dimensions != second.dimensions || shared != 0 {
            return None;
        }
        let loaded = {
            let state = self.lock();
            let (own, other) = (state.roles(first.function)?, state.roles(second.function)?);
            let is_it = |&&(pair, is_second): &&(usize, bool)| !is_second && other.contains(&(pair, true));
            let &(pair, _) = own.iter().find(is_it)?;
            state.loaded(pair, context)?.clone()
        };
        let pair = &self.pairs[loaded.pair];
        if pair.is_refused.load(Relaxed) || !pair.are_same(nodes) {
            return None;
        }
        loaded.copy(pair, nodes, to)?;
        let [x, y, z, block_x, block_y, block_z, _] = first.dimensions;
        let (grid, block) = (Dim3::new(x, y, z), Dim3::new(block_x, block_y, block_z));
        let asked = LaunchConfig { grid, block, cluster: Dim3::ZERO, dynamic_shared_bytes: 0 };
        let around = |address| {
            let (base, bytes) = driver::allocation_around(address)?;
            Some((base, bytes as u64))
        };
        let holds = block.count() <= u64::from(loaded.most_threads)
            && pair.condition.reshaped(&asked, block, &to[..loaded.bytes], around).is_some();
        if !holds {
            self.file.count_reshape_refused();
            return None;
        }
        Some(Joined { function: loaded.function as CUfunction, bytes: loaded.bytes, pair })
    }
}

impl Pair {
    /// Whether parameters that must have one value have one in these launches.
    fn are_same(&self, [first, second]: [&Node; 2]) -> bool {
        self.same.iter().all(|&(one, other)| {
            let pair = parameter(first, one).zip(parameter(second, other));
            pair.is_some_and(|(one, other)| one == other)
        })
    }
}

/// The bytes of a launch's parameter.
fn parameter(node: &Node, place: u32) -> Option<&[u8]> {
    let &Parameter { offset, bytes } = node.layout.parameters().get(place as usize)?;
    node.bytes().get(offset as usize..(offset + bytes) as usize)
}

impl Loaded {
    /// Loads a joined kernel into the current context; `None` if the driver refuses, or if it is
    /// not what the plan says.
    fn of(place: usize, pair: &Pair, context: CUcontext, epoch: u32, local_bytes: u32) -> Option<Loaded> {
        let function = driver::load_kernel(&pair.ptx, &pair.name)?;
        let attributes = driver::function_attributes(function)?;
        let parameters = driver::parameters(function, pair.parameters.len() + 1)?;
        let end = |one: &Parameter| one.offset as usize + one.bytes as usize;
        let bytes = parameters.iter().map(end).max().unwrap_or(0);
        let is_it = parameters.len() == pair.parameters.len()
            && bytes <= MOST_BYTES
            && attributes.static_shared_bytes == 0
            && attributes.local_bytes <= local_bytes;
        is_it.then_some(Loaded {
            pair: place,
            context: context as usize,
            epoch,
            function: function as usize,
            most_threads: attributes.max_threads_per_block,
            parameters,
            bytes,
        })
    }

    /// Copies the parameters of both launches to those of the joined one; `None` if they are not as
    /// large.
    fn copy(&self, pair: &Pair, nodes: [&Node; 2], to: &mut [u8; MOST_BYTES]) -> Option<()> {
        to[..self.bytes].fill(0);
        for (&(is_second, place), own) in pair.parameters.iter().zip(&self.parameters) {
            let from = parameter(nodes[usize::from(is_second)], place)?;
            let range = own.offset as usize..own.offset as usize + own.bytes as usize;
            to.get_mut(range).filter(|to| to.len() == from.len())?.copy_from_slice(from);
        }
        Some(())
    }
}
