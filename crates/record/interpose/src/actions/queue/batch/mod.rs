//! Batches: launches that wait go out as one executable graph.
//!
//! A launch takes the driver, and the GPU's front end, some microseconds; a node of a graph takes a
//! tenth of that. Where many launches wait in a row, and the same ones came before, the queue's
//! thread launches them as a chain of kernel nodes ([`Chain`]), in which only the parameters that
//! changed are set.
//!
//! # Contract
//! 1. *Order.* A chain runs its kernels one after the other, as a stream does (or some beside
//!    others, where nobody can see a difference: [`schedule`](crate::actions::schedule)), and is
//!    launched into the stream into which all its launches were made, between the calls before and
//!    after them. So whatever orders that stream orders the chain. Only launches without
//!    attributes that no plan changes, next to each other in the ring, in one stream and one
//!    context, go into a batch; an event, a copy, a memset or a launch into another stream ends it.
//! 2. *Progress.* Nothing waits for more launches: a batch is made of those that wait already, and
//!    where they are too few, or end in the middle, they are launched one by one.
//! 3. *The same launches.* A launch is told by its [`Print`], which ends with the epochs of code,
//!    streams and contexts and with each change of a function's attributes; the chain remembers
//!    function, dimensions and parameters of each node besides. Chains are dropped before a context
//!    ends or code is unloaded ([`DROP_ALL`]), and nothing is batched any more once the program
//!    gives a stream attributes of its own or makes a green context: nodes would not have them.
//! 4. *Errors.* Where the driver refuses to make, change or launch a graph, the launches are made
//!    one by one, and return what they return.
//! 5. *Use.* [`gain`] stops it where launches one by one take less.
//!
//! Batches begin and end at calls of other kinds, where the program waited, and where a longer run
//! is cut: behind the pair of launches whose prints give the least number ([`cut`]). So a run that
//! repeats is cut at the same places wherever the look at it begins.

mod gain;
mod scheduling;

use super::Kind;
use super::accepted::{Layout, Print};
use super::ring::Ring;
use crate::actions::schedule::edges::Edges;
use crate::actions::{fusion, reshape};
use crate::driver::{Chain, ChainedKernel, function_of};
use crate::tables::{push, put, spread};
use crate::timing::wants_all;
use apex_trace::Control;
use cuda_abi::types::*;
use gain::BatchGain;
use scheduling::{Plan, Scheduling};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::copy_nonoverlapping;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Most and fewest launches of a batch.
pub const MOST: usize = 32;
const FEWEST: usize = 8;
/// The number of times that a sequence must have come before a graph is made of it.
const SIGHTINGS: u32 = 2;
/// The intervals between batches of a sequence that are launched one by one, so that their kernels
/// are timed: at first, and from [`SETTLED_USES`] on. A program of short kernels waits for such a
/// batch several times as long.
const SINGLE_INTERVALS: [u32; 2] = [16, 64];
/// Uses of a graph after which its kernels have been timed often enough.
const SETTLED_USES: u32 = 128;
/// Calls that are made one by one, where there are no batches, before that is asked again.
const CALLS_BETWEEN_LOOKS: usize = 256;
/// Most nodes of all graphs together: a node takes the driver some 10 KiB.
const MOST_NODES: usize = 4096;
/// Most sequences that are remembered.
const MOST_SEQUENCES: usize = 1 << 14;

/// A call that is a launch, as a batch sees it.
#[derive(Clone, Copy)]
pub struct Node {
    /// All that tells it from other launches but its parameters.
    pub print: Print,
    /// A function, or a library's kernel.
    pub function: CUfunction,
    /// Grid, block, and bytes of dynamic shared memory.
    pub dimensions: [u32; 7],
    /// The stream into which it is launched.
    pub stream: CUstream,
    /// The positions of its parameters in `parameters`.
    pub layout: &'static Layout,
    /// Its parameters.
    pub parameters: *const u8,
}

impl Node {
    /// The bytes of its parameters.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the launch's parameters lie there, as its layout says.
        unsafe { std::slice::from_raw_parts(self.parameters, self.layout.bytes) }
    }
}

/// The functions by which batches treat a call that may be a launch.
pub struct OfLaunch {
    /// The launch, if it can be part of a batch.
    ///
    /// # Safety
    /// The arguments are those that were written for the call.
    pub node: unsafe fn(arguments: *mut u8) -> Option<Node>,
    /// Records the launch as one that was made, from `start` to `end` in ticks.
    ///
    /// # Safety
    /// As for `node`.
    pub record: unsafe fn(arguments: *mut u8, start: u64, end: u64),
    /// Makes this launch and the one behind it as one launch, in the context of both, and records
    /// that; false if they are to be made one by one.
    ///
    /// # Safety
    /// As for `node`, for both.
    pub join: unsafe fn(context: CUcontext, first: *mut u8, second: Behind) -> bool,
}

/// The launch behind another one: how to see it, and its arguments.
pub type Behind = (unsafe fn(*mut u8) -> Option<Node>, *mut u8);

/// Whether nothing may be batched in this process any more.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Nothing is batched from here on: the program has given streams or contexts properties that nodes
/// of a graph would not have.
pub fn forbid() {
    FORBIDDEN.store(true, Release);
}

/// Entry points that batches neglect although they must not; see [`neglect`].
static NEGLECTED: OnceLock<fn(&str) -> bool> = OnceLock::new();

/// Has batches neglect what `which` names: what a test does to see whether it would notice. To be
/// called before the first driver call.
///
/// `batch-order` exchanges launches, `batch-parameters` leaves one without its new parameters,
/// `batch-stream` takes launches of other streams along, `batch-kernels` takes sequences for each
/// other that are as long, and `batch-edges` leaves out what a GPU orders nodes by.
pub fn neglect(which: fn(&str) -> bool) {
    NEGLECTED.get_or_init(|| which);
}

fn heeds(what: &str) -> bool {
    !NEGLECTED.get().is_some_and(|neglects| neglects(what))
}

/// Drops all graphs: what the queue's thread does when this comes to its turn among the calls.
pub const DROP_ALL: Kind = Kind { make: drop_all, launch: None };

/// # Safety
/// None: there are no arguments.
unsafe fn drop_all(_: *mut u8, scratch: &mut super::Scratch) -> CUresult {
    scratch.batches.clear();
    CUDA_SUCCESS
}

/// The batches of a queue's thread.
pub struct Batches {
    control: &'static Control,
    gain: BatchGain,
    /// Runs launches beside others, if that is wanted.
    scheduling: Option<Scheduling>,
    /// The number of times that each sequence came, by [`key`].
    sightings: HashMap<u64, u32>,
    chains: HashMap<u64, Known>,
    /// Nodes of all chains.
    nodes: usize,
    /// Launches that are made one by one before batches are looked for again.
    singles: usize,
    /// Whether the last call that was made ended a sequence.
    is_at_boundary: bool,
    found: Vec<Node>,
}

// SAFETY: the pointers of what was found mean nothing between calls.
unsafe impl Send for Batches {}

/// A sequence with a graph.
struct Known {
    chain: Chain,
    kernels: Vec<Held>,
    uses: u32,
    edges: Edges,
}

/// A node of a graph, and the parameters that it has.
struct Held {
    handle: CUfunction,
    kernel: ChainedKernel,
    layout: &'static Layout,
    parameters: Vec<u8>,
}

/// The next step for the calls that wait.
pub enum Next {
    /// The next one is made alone.
    Single,
    /// Launch this number of launches as this batch.
    Batch(Plan, usize),
}

impl Batches {
    /// None yet.
    pub fn new(stays_on: bool, control: &'static Control) -> Batches {
        Batches {
            control,
            gain: BatchGain::new(stays_on),
            scheduling: Scheduling::new(stays_on),
            sightings: HashMap::new(),
            chains: HashMap::new(),
            nodes: 0,
            singles: 0,
            is_at_boundary: true,
            found: Vec::new(),
        }
    }

    /// Drops all graphs.
    pub fn clear(&mut self) {
        self.chains.clear();
        self.nodes = 0;
        self.scheduling.iter_mut().for_each(Scheduling::clear);
    }

    /// Whether the next call is made alone: it was decided before.
    #[inline(always)]
    pub fn is_decided(&mut self) -> bool {
        let is_decided = self.singles > 0;
        self.singles -= usize::from(is_decided);
        is_decided
    }

    /// Decides on the next step for the calls that wait in the ring. The thread that takes calls
    /// out asks. Whoever made calls has waited at the ticket `waited_at` for those before.
    pub fn next(
        &mut self,
        ring: &Ring,
        waited_at: u64,
        context: CUcontext,
        pointers: &mut [*mut c_void],
        now: u64,
    ) -> Next {
        if FORBIDDEN.load(Acquire) || wants_all(self.control) || !self.gain.is_on(now) {
            return self.one_by_one(CALLS_BETWEEN_LOOKS);
        }
        let made = ring.made();
        let mut end = self.find(ring, context);
        let count = self.found.len();
        if end == End::Empty && waited_at == made + count as u64 {
            end = End::Boundary;
        }
        let was_at_boundary =
            std::mem::replace(&mut self.is_at_boundary, end != End::Empty) || waited_at == made;
        // A sequence that begins anywhere and is short comes so by chance.
        let is_whole = match end {
            End::Boundary => was_at_boundary,
            End::Cut => true,
            End::Empty => false,
        };
        if !is_whole || count < FEWEST {
            return self.one_by_one(count);
        }
        let key = if heeds("batch-kernels") {
            self.found.iter().fold(1, |key, node| spread(key ^ node.print.word()))
        } else {
            count as u64
        };
        if !self.chains.contains_key(&key) && !self.came_often(key) {
            return self.one_by_one(count);
        }
        let chain = Plan::chain(key);
        let plan =
            self.scheduling.as_mut().map_or(chain, |scheduling| scheduling.plan(key, &self.found, now));
        let key = plan.key;
        if !self.chains.contains_key(&key) && !self.make(&plan, context, pointers, now) {
            return self.one_by_one(count);
        }
        let Some(known) = self.chains.get_mut(&key) else { return self.one_by_one(count) };
        known.uses = known.uses.wrapping_add(1);
        if known.uses.is_multiple_of(SINGLE_INTERVALS[usize::from(known.uses > SETTLED_USES)]) {
            return self.one_by_one(count);
        }
        let has_edges = known.edges == plan.edges || !heeds("schedule-pattern");
        if !has_edges || !known.take(&self.found, context, pointers) {
            self.forget(key, now);
            return self.one_by_one(count);
        }
        Next::Batch(plan, count)
    }

    /// The next `count` calls are made alone, the first of them now.
    fn one_by_one(&mut self, count: usize) -> Next {
        self.singles = count.saturating_sub(1);
        Next::Single
    }

    /// Collects the launches that wait in a row, up to where a sequence ends.
    fn find(&mut self, ring: &Ring, context: CUcontext) -> End {
        self.found.clear();
        while self.found.len() < MOST {
            let Some(call) = ring.peek(self.found.len()) else { return End::Empty };
            // SAFETY: the arguments are those that were put in with this call.
            let node = call.kind.launch.as_ref().and_then(|launch| unsafe { (launch.node)(call.arguments) });
            let fits = |node: &Node| {
                let stream = self.found.first().map_or(node.stream, |first| first.stream);
                call.context == context && (node.stream == stream || !heeds("batch-stream"))
            };
            let may_change =
                |node: &Node| reshape::may_reshape(node.function) || fusion::may_join(node.function);
            let Some(node) = node.filter(|node| fits(node) && !may_change(node)) else {
                // (A first call that is no launch is made alone.)
                return End::Boundary;
            };
            if !push(&mut self.found, node) {
                return End::Empty;
            }
        }
        self.found.truncate(cut(&self.found));
        End::Cut
    }

    /// Counts a sequence; whether it came often enough for a graph.
    fn came_often(&mut self, key: u64) -> bool {
        if self.sightings.len() >= MOST_SEQUENCES {
            self.sightings.clear();
        }
        let seen = self.sightings.get(&key).copied().unwrap_or(0) + 1;
        put(&mut self.sightings, key, seen);
        seen > SIGHTINGS
    }

    /// Makes a graph of what was found.
    fn make(&mut self, plan: &Plan, context: CUcontext, pointers: &mut [*mut c_void], now: u64) -> bool {
        if self.nodes + self.found.len() > MOST_NODES {
            self.clear();
            self.sightings.clear();
            return false;
        }
        let known = Known::of(&self.found, plan.edges, context, pointers);
        let is_made = known.is_some_and(|known| {
            self.nodes += known.kernels.len();
            put(&mut self.chains, plan.key, known)
        });
        if !is_made {
            // It is not tried again for long.
            put(&mut self.sightings, plan.sequence, 0);
            self.gain.refused(now);
        }
        is_made
    }

    fn forget(&mut self, key: u64, now: u64) {
        if let Some(known) = self.chains.remove(&key) {
            self.nodes -= known.kernels.len();
        }
        self.gain.refused(now);
    }

    /// Launches the batch that [`Batches::next`] named. False if the driver refuses; then nothing
    /// was launched, and the launches are made one by one.
    pub fn launch(&mut self, plan: &Plan, now: u64) -> bool {
        let stream = self.found.first().map(|first| first.stream);
        let is_launched = stream.zip(self.chains.get(&plan.key)).is_some_and(|(stream, known)| {
            let launch = || known.chain.launch(stream);
            match &mut self.scheduling {
                Some(scheduling) => scheduling.launch(plan, stream, self.found.len(), launch),
                None => launch(),
            }
        });
        if !is_launched {
            self.forget(plan.key, now);
            self.one_by_one(self.found.len());
        }
        is_launched
    }

    /// A call that was made alone took so long.
    #[inline(always)]
    pub fn was_single(&mut self, ns: u64) {
        self.gain.single(ns);
    }

    /// Accounts for `launches` launches that went out together and took `ns`, all work for them
    /// included. Returns the time that they would have taken longer alone, computed, in ns. A batch
    /// that is timed takes longer, once; batches are not judged by it.
    pub fn was_batch(&mut self, plan: &Plan, launches: usize, ns: u64, now: u64) -> u64 {
        if plan.is_timed() {
            return self.gain.trial(launches as u64, ns);
        }
        // What the GPU saves is gained too.
        let avoided = self.gain.batch(launches as u64, ns.saturating_sub(plan.way.saved_ns), now);
        avoided + plan.way.saved_ns.saturating_sub(ns)
    }
}

/// The reason why a sequence ends.
#[derive(PartialEq, Eq)]
enum End {
    /// A call of another kind comes, or the program waits.
    Boundary,
    /// It goes on, and was cut.
    Cut,
    /// Nothing more waits.
    Empty,
}

/// Returns the number of a continuing run's launches that make a batch: up to the last of those
/// that, with the one before, have the least number.
fn cut(run: &[Node]) -> usize {
    let number = |at: usize| spread(run[at].print.word() ^ run[at - 1].print.word().rotate_left(32));
    (FEWEST..=run.len()).rev().min_by_key(|&count| number(count - 1)).unwrap_or(run.len())
}

impl Known {
    /// A graph of these launches; `None` if the driver refuses, or without memory.
    fn of(nodes: &[Node], edges: Edges, context: CUcontext, pointers: &mut [*mut c_void]) -> Option<Known> {
        let mut chain = Chain::new()?;
        let mut kernels = Vec::new();
        kernels.try_reserve_exact(nodes.len()).ok()?;
        for (node, behind) in nodes.iter().zip(edges.0) {
            let kernel =
                ChainedKernel { function: function_of(node.function)?, dimensions: node.dimensions, context };
            let mut parameters = Vec::new();
            parameters.try_reserve_exact(node.layout.bytes).ok()?;
            parameters.resize(node.layout.bytes, 0);
            let mut held = Held { handle: node.function, kernel, layout: node.layout, parameters };
            held.take(node);
            let behind = if heeds("batch-edges") { behind } else { 0 };
            // SAFETY: the launch was accepted with these dimensions in this context, and the
            // pointers are those of its parameters.
            if !unsafe { chain.add(held.kernel, held.pointers(pointers), behind) } {
                return None;
            }
            kernels.push(held);
        }
        chain.finish().then_some(Known { chain, kernels, uses: 0, edges })
    }

    /// Gives the nodes the parameters of these launches. False, and the graph must not be used, if
    /// it is not theirs, or if the driver refuses.
    fn take(&mut self, nodes: &[Node], context: CUcontext, pointers: &mut [*mut c_void]) -> bool {
        let is_theirs = self.kernels.len() == nodes.len()
            && self.kernels.iter().zip(nodes).all(|(held, node)| held.is_of(node, context));
        if !is_theirs {
            return false;
        }
        for (at, held) in self.kernels.iter_mut().enumerate() {
            let exchanged =
                nodes.get(at ^ 1).filter(|other| !heeds("batch-order") && held.is_of(other, context));
            let Some(node) = exchanged.or(nodes.get(at)) else { return false };
            let is_left_out = at + 1 == nodes.len() && !heeds("batch-parameters");
            if held.take(node) && !is_left_out {
                // SAFETY: the node's own kernel, and pointers to its parameters.
                if !unsafe { self.chain.set(at, held.kernel, held.pointers(pointers)) } {
                    return false;
                }
            }
        }
        true
    }
}

impl Held {
    fn is_of(&self, node: &Node, context: CUcontext) -> bool {
        let is_same_kernel = self.handle == node.function
            && self.kernel.dimensions == node.dimensions
            && self.kernel.context == context;
        (is_same_kernel || !heeds("batch-kernels")) && std::ptr::eq(self.layout, node.layout)
    }

    /// Copies the parameters of a launch; whether any of them changed.
    fn take(&mut self, node: &Node) -> bool {
        let mut has_changed = false;
        for parameter in self.layout.parameters() {
            let (at, bytes) = (parameter.offset as usize, parameter.bytes as usize);
            // SAFETY: the launch's parameters lie there, as its layout says.
            let given = unsafe { std::slice::from_raw_parts(node.parameters.add(at), bytes) };
            let held = &mut self.parameters[at..at + bytes];
            if held != given {
                // SAFETY: as long, and apart.
                unsafe { copy_nonoverlapping(given.as_ptr(), held.as_mut_ptr(), bytes) };
                has_changed = true;
            }
        }
        has_changed
    }

    /// The addresses of the parameters, written to `pointers`, which has room for those of any
    /// launch.
    fn pointers(&mut self, pointers: &mut [*mut c_void]) -> *mut *mut c_void {
        for (pointer, parameter) in pointers.iter_mut().zip(self.layout.parameters()) {
            *pointer = self.parameters[parameter.offset as usize..].as_mut_ptr().cast();
        }
        pointers.as_mut_ptr()
    }
}
