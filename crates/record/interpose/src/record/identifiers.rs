//! The session's identifiers of contexts, devices, streams, functions, configurations and graphs.
//! Each is defined in the session's file when it is first needed.

use super::Recorder;
use crate::driver::{self, Kernel};
use crate::limits;
use crate::objects::graphs::Content;
use crate::objects::{epochs, streams};
use crate::switch::guarded;
use crate::tables::{ConfigKey, ConfigTable, HandleMap, PackedBlock, put};
use crate::timing::{Calibrated, EMPTY_KERNEL_NS};
use apex_trace::definition::{
    Config, Context, Definition, Device, Function, FunctionCode, Graph, Stream, StreamKind,
};
use apex_trace::layout::NO_CONFIG;
use cuda_abi::types::*;
use cuda_launch::{Dim3, LaunchConfig};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The identifiers that were given so far. Reads of the tables take no lock.
pub struct Identifiers {
    functions: HandleMap,
    streams: HandleMap,
    contexts: HandleMap,
    /// The epoch of entries in `contexts`.
    lifetimes: AtomicU32,
    configs: ConfigTable,
    given: Mutex<Given>,
}

/// The tables that are only needed when something is seen for the first time.
#[derive(Default)]
struct Given {
    /// By digest of the function's definition, so that reloading a module makes no new ones.
    functions: HashMap<u128, u32>,
    /// The functions among them that are NCCL's collectives.
    collectives: HashSet<u32>,
    /// By digest of the graph's handle and content.
    graphs: HashMap<u64, u32>,
    devices: HashMap<CUdevice, u32>,
    contexts: u32,
    streams: u32,
}

impl Identifiers {
    /// `None` if there is no memory for the tables.
    pub fn new() -> Option<Identifiers> {
        Some(Identifiers {
            functions: HandleMap::new(limits::FUNCTION_HANDLES)?,
            streams: HandleMap::new(limits::STREAM_HANDLES)?,
            contexts: HandleMap::new(limits::CONTEXT_HANDLES)?,
            lifetimes: AtomicU32::new(0),
            configs: ConfigTable::new(limits::CONFIG_PLACES)?,
            given: Mutex::default(),
        })
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        // A panic while it was held leaves the maps valid: every step of their changes is.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// Writes the definition with identifier `id`; if that works, counts it and enters it.
    fn define_next(&self, count: &mut u32, id: u32, definition: Definition, enter: impl FnOnce()) -> u32 {
        if !self.file.define(&definition) {
            return 0;
        }
        *count = id;
        enter();
        id
    }

    /// The identifier of the context `handle`, which is current in the calling thread; 0 if it
    /// cannot be defined.
    pub fn context(&self, handle: CUcontext) -> u32 {
        let key = handle as u64;
        if key == 0 {
            return 0;
        }
        if let Some(id) = self.known_context(handle) {
            return id;
        }
        let known = &self.identifiers;
        let epoch = known.lifetimes.load(Acquire);
        let device = driver::current_device().map_or(0, |device| self.device(device));
        let mut given = known.given();
        if let Some(id) = self.known_context(handle) {
            return id;
        }
        let id = given.contexts + 1;
        let definition = Context { id, handle: key, device, ..Context::default() };
        let enter = || known.contexts.insert(key, epoch, id);
        self.define_next(&mut given.contexts, id, Definition::Context(definition), enter)
    }

    /// The identifier of a context that is known already.
    pub fn known_context(&self, context: CUcontext) -> Option<u32> {
        self.identifiers.contexts.get(context as u64, self.identifiers.lifetimes.load(Acquire))
    }

    /// Before a launch that may be the first in its context: calibrates it.
    pub fn prepare_timing(&self, context: u32) {
        self.calibrated(context, self.timing.prepare(context));
    }

    /// Notes a calibration, and defines the current context again where it succeeded.
    pub fn calibrated(&self, id: u32, calibrated: Option<Calibrated>) {
        let Some(Calibrated { ticks, found }) = calibrated else { return };
        self.file.add_timing_ticks(ticks);
        if let Some(found) = found {
            let handle = driver::current_context() as u64;
            let device = driver::current_device().map_or(0, |device| self.device(device));
            let [pair_busy_ns, pair_idle_ns] =
                [found.cost.busy, found.cost.idle].map(|ns| ns + EMPTY_KERNEL_NS);
            self.file.define(&Definition::Context(Context {
                id,
                handle,
                device,
                pair_busy_ns,
                pair_idle_ns,
            }));
        }
    }

    /// Forgets a context that is about to be destroyed. The caller holds a pause of the timing.
    pub fn forget_context(&self, context: CUcontext) {
        if let Some(id) = self.known_context(context) {
            self.timing.forget_context(id);
        }
        let _given = self.identifiers.given();
        self.identifiers.contexts.remove(context as u64);
    }

    /// Forgets all contexts: one of them is about to be destroyed, and nobody knows which. The
    /// caller holds a pause of the timing.
    pub fn forget_all_contexts(&self) {
        self.timing.forget_all_contexts();
        self.identifiers.lifetimes.fetch_add(1, Release);
    }

    fn device(&self, device: CUdevice) -> u32 {
        if let Some(&id) = self.identifiers.given().devices.get(&device) {
            return id;
        }
        // A context of which nobody saw how it was made.
        self.objects.devices.note(device);
        let description = driver::describe_device(device);
        let mut given = self.identifiers.given();
        let next = given.devices.len() as u32 + 1;
        if let Some(&id) = given.devices.get(&device) {
            return id;
        }
        if !self.file.define(&Definition::Device(Device { id: next, ..description })) {
            return 0;
        }
        put(&mut given.devices, device, next);
        next
    }

    /// The identifier of a stream; 0 if it is not known and cannot be asked about because it is
    /// capturing. `context` is the calling thread's, and `stream` is as [`streams::normalised`]
    /// gives it.
    pub fn stream(&self, stream: CUstream, context: u32, thread: u32) -> u32 {
        let (known, key) = (&self.identifiers, streams::key(stream, context, thread));
        if let Some(id) = known.streams.get(key, 0) {
            return id;
        }
        let Some(kind) = self.objects.stream_kind(stream) else { return 0 };
        let is_made = matches!(kind, StreamKind::Blocking | StreamKind::NonBlocking);
        let its_own = || driver::stream_context(stream).and_then(|handle| self.known_context(handle));
        let context = is_made.then(its_own).flatten().unwrap_or(context);
        let mut given = known.given();
        if let Some(id) = known.streams.get(key, 0) {
            return id;
        }
        let id = given.streams + 1;
        let definition = Definition::Stream(Stream { id, handle: stream as u64, context, kind });
        self.define_next(&mut given.streams, id, definition, || known.streams.insert(key, 0, id))
    }

    /// Forgets a stream that was made, perhaps under the handle of one that was destroyed with its
    /// context, or that is about to be destroyed.
    pub fn forget_stream(&self, stream: CUstream) {
        let _given = self.identifiers.given();
        self.identifiers.streams.remove(stream as u64);
    }

    /// The identifier of the function behind a handle that was launched with success; 0 if it
    /// cannot be defined.
    pub fn function(&self, handle: CUfunction) -> u32 {
        let (key, epoch) = (handle as u64, epochs().modules.load(Acquire));
        if let Some(id) = self.identifiers.functions.get(key, epoch) {
            return id;
        }
        let description = self.objects.describe_function(handle);
        let code = self.objects.image_of(handle);
        let ptx = code.as_ref().and_then(|code| code.ptx).unwrap_or(0);
        let image = code.and_then(|code| code.hash);
        let digest = digest(&description, image);
        let mut given = self.identifiers.given();
        let id = match given.functions.get(&digest) {
            Some(&id) => id,
            None if given.functions.len() >= limits::FUNCTIONS => return 0,
            None => {
                let id = given.functions.len() as u32 + 1;
                let is_collective = is_collective(&description.name);
                if !self.file.define(&Definition::Function(Function { id, ..description })) {
                    return 0;
                }
                if let Some(image) = image {
                    self.file.define(&Definition::FunctionCode(FunctionCode { id, image, ptx }));
                }
                put(&mut given.functions, digest, id);
                if is_collective && given.collectives.try_reserve(1).is_ok() {
                    given.collectives.insert(id);
                }
                id
            }
        };
        self.identifiers.functions.insert(key, epoch, id);
        id
    }

    /// The identifier of a function that is known already. Asks nobody.
    pub fn known_function(&self, handle: CUfunction) -> Option<u32> {
        self.identifiers.functions.get(handle as u64, epochs().modules.load(Acquire))
    }

    /// The identifier of a configuration that is known already. Takes no lock.
    #[inline]
    pub fn known_config(&self, key: &ConfigKey) -> Option<u32> {
        self.identifiers.configs.get(key)
    }

    /// The identifier of a configuration, or [`NO_CONFIG`]. A launch beyond the table's capacity is
    /// counted. `handle` is the function's.
    pub fn config(&self, key: &ConfigKey, handle: CUfunction) -> u32 {
        if let Some(id) = self.known_config(key) {
            return id;
        }
        if self.identifiers.configs.is_full() {
            self.file.count_config_overflow();
            return NO_CONFIG;
        }
        let mut launch = key.launch;
        let block = PackedBlock::in_cluster(launch.cluster);
        if launch.cluster == Dim3::ZERO {
            launch.cluster = driver::required_cluster(handle);
        } else if block.is_some() {
            launch.cluster = Dim3::ZERO;
        }
        let required = self.objects.required_block(handle);
        launch.block = required.unwrap_or(launch.block);
        let reshaped = block.and_then(|block| launch.with_block(block));
        let asked = reshaped.map(|_| (launch.grid, launch.block));
        launch = reshaped.unwrap_or(launch);
        let given = self.identifiers.given();
        let define = |id| {
            self.file.define(&Definition::Config(Config {
                id,
                function: key.function,
                context: key.context,
                launch,
                requires_block: required.is_some(),
                asked,
            }))
        };
        let id = self.identifiers.configs.insert(key, define).unwrap_or(NO_CONFIG);
        if given.collectives.contains(&key.function) {
            self.timing.set_collective(id);
        }
        id
    }

    /// The configuration of what a graph's kernel node launches, or [`NO_CONFIG`].
    pub fn config_of_node(&self, kernel: &Kernel, node: CUgraphNode) -> u32 {
        let current = driver::current_context();
        let context = if kernel.context.is_null() || kernel.context == current {
            self.context(current)
        } else {
            self.known_context(kernel.context).unwrap_or(0)
        };
        let function = self.function(kernel.function);
        if function == 0 {
            return NO_CONFIG;
        }
        let key = ConfigKey {
            function,
            context,
            launch: LaunchConfig { cluster: driver::node_cluster(node), ..kernel.launch },
        };
        self.config(&key, kernel.function)
    }

    /// The identifier of what a launch of `graph` does; 0 for a graph that was not seen being made.
    pub fn graph(&self, graph: CUgraphExec) -> u32 {
        let graphs = &self.objects.graphs;
        let look_up =
            || guarded(|| graphs.number(graph, |content| self.define_graph(graph, content))).unwrap_or(0);
        graphs.known(graph).unwrap_or_else(look_up)
    }

    fn define_graph(&self, graph: CUgraphExec, content: Content) -> u32 {
        let mut hasher = DefaultHasher::new();
        (graph as u64, &content).hash(&mut hasher);
        let digest = hasher.finish();
        let mut given = self.identifiers.given();
        if let Some(&id) = given.graphs.get(&digest) {
            return id;
        }
        if given.graphs.len() >= limits::GRAPHS {
            return 0;
        }
        let id = given.graphs.len() as u32 + 1;
        let Content { kernels, copies, sets, others, opaque } = content;
        let definition = Graph { id, handle: graph as u64, kernels, copies, sets, others, opaque };
        if !self.file.define(&Definition::Graph(definition)) {
            return 0;
        }
        put(&mut given.graphs, digest, id);
        id
    }

    /// Whether a launch of the graph in `context` is to be timed.
    pub fn times_graph(&self, graph: u32, context: u32) -> bool {
        if graph == 0 || self.timing.is_off() {
            return false;
        }
        if self.timing.is_new(context) {
            guarded(|| self.prepare_timing(context));
        }
        self.timing.decide_graph(graph, context)
    }
}

/// Whether a symbol is one of NCCL's kernels. Their names are mangled, so prefixes stand inside.
fn is_collective(symbol: &str) -> bool {
    ["ncclDevKernel_", "ncclSymkDevKernel_", "ncclSymDevKernel_", "ncclKernel_"]
        .iter()
        .any(|name| symbol.contains(name))
}

/// 128 bits that stand for a function's name, attributes and image.
fn digest(function: &Function, image: Option<u128>) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, &function.name, function.attributes, image).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}
