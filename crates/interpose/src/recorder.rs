//! What a recorded process keeps: its session file, and tables that turn the driver's handles into identifiers.
//!
//! There is one [`Recorder`] in a process, made at the first driver call and never freed. A forked child finds that the
//! one it inherited is not its own ([`ProcessFile::is_ours`]) and makes another; the inherited one is left alone, since
//! locks in it may be held by threads that don't exist in the child.
//!
//! Invariants:
//! 1. The lock `cold` is never held across a call into the driver: the driver may call back, or hold locks of its own.
//! 2. An identifier gets into a table only after its definition is in the file.
//! 3. A handle is forgotten, or its epoch ended, *before* the real call that destroys its object: afterwards the driver may
//!    give the same handle to somebody else.

use crate::capture::Captures;
use crate::graphs::Graphs;
use crate::loader::{say_line, say_once};
use crate::stack::on_own_stack;
use crate::tables::{ConfigKey, ConfigTable, HandleMap, put};
use crate::timing::Timing;
use crate::{driver, environment, hooks, limits, signals, thread};
use apex_trace::ProcessFile;
use apex_trace::control::{Control, MappedControl};
use apex_trace::definition::{Config, Context, Definition, Device, Function, Stream, StreamKind};
use apex_trace::layout::NO_CONFIG;
use cuda_abi::ENTRY_POINTS;
use cuda_abi::types::*;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The session's switch for recording, or [`OFF`]. Never null.
static RECORDING: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const OFF).cast_mut());
static OFF: AtomicU32 = AtomicU32::new(0);

static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());

/// Which process makes or has made [`RECORDER`], and how far it is: the process identifier times 4, plus a stage.
static STAGE: AtomicU64 = AtomicU64::new(0);
const MAKING: u64 = 1;
const MADE: u64 = 2;
const FAILED: u64 = 3;

/// Whether calls are to be recorded now.
#[inline(always)]
pub fn is_recording() -> bool {
    // SAFETY: points to `OFF` or into the session's control page, which stays mapped.
    unsafe { (*RECORDING.load(Relaxed)).load(Relaxed) != 0 }
}

/// Why recording ends before the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The system refused memory.
    NoMemory,
    /// A session file was truncated, or its disk failed.
    FileLost,
    /// A panic.
    Fault,
}

/// Whether recording has ended for this process: its identifier, or 0. (A forked child begins anew.)
static STOPPED: AtomicU32 = AtomicU32::new(0);

/// Ends recording in this process, and says why. Allocates nothing and takes no lock: it is called by the allocator and from a
/// signal handler.
#[cold]
pub fn stop(why: Stop) {
    RECORDING.store((&raw const OFF).cast_mut(), Relaxed);
    let process = std::process::id();
    if STOPPED.swap(process, Relaxed) == process || RECORDER.load(Acquire).is_null() {
        return;
    }
    let line: &[u8] = match why {
        Stop::NoMemory => {
            b"apex: out of memory: from here on this process is not recorded (its limit: `ulimit -v`)\n"
        }
        Stop::FileLost => {
            b"apex: a session file was truncated or its disk failed: from here on this process is not recorded\n"
        }
        Stop::Fault => b"apex: a fault in the recorder: from here on this process is not recorded\n",
    };
    say_line(line);
    // (A lost file is not touched: its mappings may fail, and this may be the handler of such a failure.)
    if why != Stop::FileLost
        && let Some(recorder) = Recorder::made()
    {
        recorder.file.note_loss(if why == Stop::NoMemory { libc::ENOMEM } else { libc::EIO });
    }
}

fn has_stopped() -> bool {
    let stopped = STOPPED.load(Relaxed);
    stopped != 0 && stopped == std::process::id()
}

/// Runs `work`, which is not on the launch path, on a stack of our own. If it panics, recording ends for this process, and the
/// program goes on.
pub fn guarded<R>(work: impl FnOnce() -> R) -> Option<R> {
    on_own_stack(|| caught(work))
}

/// As [`guarded`], on the program's stack: for work that is done often and needs little of it.
pub fn caught<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).inspect_err(|_| stop(Stop::Fault)).ok()
}

/// Moments after which what was known of handles may be wrong. Each only ever grows.
#[derive(Default)]
pub struct Epochs {
    /// Ends when a module or library is unloaded, a function's attributes change, or a context goes: functions' handles.
    pub modules: AtomicU32,
    /// Ends when a stream or context goes: what threads remember of streams.
    pub streams: AtomicU32,
    /// Ends when a context goes or may have gone: what threads remember of their current context.
    pub contexts: AtomicU32,
    /// Ends when memory is allocated on the host, registered or freed: what threads remember of addresses.
    pub memory: AtomicU32,
}

/// See the [module](self).
#[repr(C, align(64))]
pub struct Recorder {
    // What every launch looks at: one cache line.
    /// See [`Epochs`].
    pub epochs: Epochs,
    /// Streams that are being captured.
    pub captures: Captures,
    /// The session's control page.
    pub control: &'static Control,
    /// The session file of this process.
    pub file: ProcessFile,
    /// Executable graphs.
    pub graphs: Graphs,
    /// GPU durations.
    pub timing: Timing,
    functions: HandleMap,
    streams: HandleMap,
    contexts: HandleMap,
    /// The epoch of entries in `contexts`.
    lifetimes: AtomicU32,
    configs: ConfigTable,
    cold: Mutex<Cold>,
}

/// What is only needed when something is seen for the first time.
#[derive(Default)]
struct Cold {
    /// Function identifiers by digest of their definition, so that reloading a module makes no new ones.
    functions: HashMap<u128, u32>,
    /// Names by handle, for drivers that can't tell them.
    names: HashMap<u64, Box<str>>,
    /// What function attributes were set to, by handle.
    attributes: HashMap<(u64, CUfunction_attribute), i32>,
    legacy: HashMap<u64, LegacyShape>,
    /// Flags of the streams that the program made, by handle.
    stream_flags: HashMap<u64, u32>,
    devices: HashMap<CUdevice, u32>,
    /// Handles of primary contexts.
    primaries: HashMap<CUdevice, u64>,
    contexts: u32,
    streams: u32,
}

impl Recorder {
    /// The recorder of this process, made if need be. `None` if there is no session or its files can't be used.
    pub fn start() -> Option<&'static Recorder> {
        let session = environment::session()?;
        let mine = u64::from(std::process::id()) * 4;
        loop {
            let seen = STAGE.load(Acquire);
            match seen.checked_sub(mine) {
                Some(MADE) => return Recorder::existing(),
                Some(FAILED) => return None,
                // Another thread is at it: file work only, so this ends.
                Some(MAKING) => std::thread::yield_now(),
                // Nobody, or the process that this one was forked from.
                _ => {
                    if STAGE.compare_exchange(seen, mine + MAKING, Acquire, Relaxed).is_ok() {
                        let made = guarded(|| Recorder::make(&session)).flatten();
                        STAGE.store(mine + if made.is_some() { MADE } else { FAILED }, Release);
                        return made;
                    }
                }
            }
        }
    }

    /// The recorder of this process, if it has been made and recording has not ended for good.
    #[inline]
    pub fn existing() -> Option<&'static Recorder> {
        Recorder::made().filter(|_| !has_stopped())
    }

    /// The recorder of this process, if it has been made.
    #[inline]
    pub fn made() -> Option<&'static Recorder> {
        // SAFETY: null or a leaked recorder, published with release.
        unsafe { RECORDER.load(Acquire).as_ref() }.filter(|recorder| recorder.file.is_ours())
    }

    fn make(session: &Path) -> Option<&'static Recorder> {
        signals::watch_for_losses();
        match Recorder::with_tables(session) {
            Ok(recorder) => Some(recorder.publish()),
            Err(error) => {
                say_once(&format!("this process is not recorded: {error}"));
                RECORDING.store((&raw const OFF).cast_mut(), Relaxed);
                None
            }
        }
    }

    /// Reserves the tables and makes the session file.
    fn with_tables(session: &Path) -> io::Result<Box<Recorder>> {
        limits::leave_room()?;
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let map = |capacity| HandleMap::new(capacity).ok_or_else(no_memory);
        let (functions, streams) = (map(limits::FUNCTION_HANDLES)?, map(limits::STREAM_HANDLES)?);
        let contexts = map(limits::CONTEXT_HANDLES)?;
        let configs = ConfigTable::new(limits::CONFIG_PLACES).ok_or_else(no_memory)?;
        let graphs = Graphs::new().ok_or_else(no_memory)?;
        let timing = Timing::new().ok_or_else(no_memory)?;
        let control = MappedControl::open(session)?.leak();
        Ok(Box::new(Recorder {
            file: ProcessFile::create(session, Some(control))?,
            control,
            epochs: Epochs::default(),
            captures: Captures::default(),
            graphs,
            timing,
            functions,
            streams,
            contexts,
            lifetimes: AtomicU32::new(0),
            configs,
            cold: Mutex::default(),
        }))
    }

    fn publish(self: Box<Recorder>) -> &'static Recorder {
        let recorder = Box::leak(self);
        for (index, _) in hooks::table().iter().enumerate().filter(|(_, hook)| hook.is_some()) {
            let text = ENTRY_POINTS[index].symbol.to_owned();
            recorder.file.define(&Definition::Name { id: api(index), text });
        }
        RECORDER.store(recorder, Release);
        if has_stopped() {
            // Before there was a file to note it in.
            recorder.file.note_loss(libc::ENOMEM);
            say_once("out of memory: this process is not recorded (its limit: `ulimit -v`)");
        } else {
            RECORDING.store((&raw const recorder.control.recording).cast_mut(), Relaxed);
        }
        recorder
    }

    fn cold(&self) -> MutexGuard<'_, Cold> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The identifier of the context `handle`, which is current in the calling thread; 0 if it can't be defined.
    pub fn context(&self, handle: CUcontext) -> u32 {
        let key = handle as u64;
        if key == 0 {
            return 0;
        }
        if let Some(id) = self.known_context(handle) {
            return id;
        }
        let epoch = self.lifetimes.load(Acquire);
        let device = driver::current_device().map_or(0, |device| self.device(device));
        let mut cold = self.cold();
        if let Some(id) = self.known_context(handle) {
            return id;
        }
        let id = cold.contexts + 1;
        let definition = Context { id, handle: key, device, ..Context::default() };
        let enter = || self.contexts.insert(key, epoch, id);
        self.define_next(&mut cold.contexts, id, Definition::Context(definition), enter)
    }

    /// Defines the current context again, now that it is calibrated.
    pub fn calibrated(&self, id: u32, pair_busy_ns: u32, pair_idle_ns: u32) {
        let handle = driver::current_context() as u64;
        let device = driver::current_device().map_or(0, |device| self.device(device));
        self.file.define(&Definition::Context(Context { id, handle, device, pair_busy_ns, pair_idle_ns }));
    }

    fn device(&self, device: CUdevice) -> u32 {
        if let Some(&id) = self.cold().devices.get(&device) {
            return id;
        }
        let description = driver::describe_device(device);
        let mut cold = self.cold();
        let next = cold.devices.len() as u32 + 1;
        if let Some(&id) = cold.devices.get(&device) {
            return id;
        }
        if !self.file.define(&Definition::Device(Device { id: next, ..description })) {
            return 0;
        }
        put(&mut cold.devices, device, next);
        next
    }

    /// Writes the definition with identifier `id`; if that works, counts it and enters it.
    fn define_next(&self, count: &mut u32, id: u32, definition: Definition, enter: impl FnOnce()) -> u32 {
        if !self.file.define(&definition) {
            return 0;
        }
        *count = id;
        enter();
        id
    }

    /// A stream was made, perhaps under the handle of one that went with its context. How it was made is noted, for while it
    /// is capturing the driver must not be asked: asking for a capturing stream's flags ends the capture (580.159.04,
    /// `data/captures-h200.csv`).
    pub fn note_stream(&self, stream: CUstream, flags: u32) {
        let mut cold = self.cold();
        self.streams.remove(stream as u64);
        if cold.stream_flags.len() < limits::STREAM_HANDLES {
            put(&mut cold.stream_flags, stream as u64, flags);
        }
    }

    /// The kind of a stream that the program made; `None` if it was not seen being made and is capturing now.
    fn stream_kind(&self, stream: CUstream) -> Option<StreamKind> {
        let noted = self.cold().stream_flags.get(&(stream as u64)).copied();
        let flags = match noted {
            Some(flags) => flags,
            None if self.captures.any() && driver::is_capturing(stream) => return None,
            None => driver::stream_flags(stream)?,
        };
        let is_parallel = flags & CU_STREAM_NON_BLOCKING != 0;
        Some(if is_parallel { StreamKind::NonBlocking } else { StreamKind::Blocking })
    }

    /// The identifier of a stream; 0 if it is not known and can't be asked about because it is capturing. `context` is the
    /// calling thread's, and `stream` is as [`normalised`] gives it.
    pub fn stream(&self, stream: CUstream, context: u32, thread: u32) -> u32 {
        let key = stream_key(stream, context, thread);
        if let Some(id) = self.streams.get(key, 0) {
            return id;
        }
        let (kind, context) = match stream as usize {
            LEGACY => (StreamKind::LegacyDefault, context),
            PER_THREAD => (StreamKind::PerThreadDefault, context),
            _ => {
                let Some(kind) = self.stream_kind(stream) else { return 0 };
                let its_own = driver::stream_context(stream).and_then(|handle| self.known_context(handle));
                (kind, its_own.unwrap_or(context))
            }
        };
        let mut cold = self.cold();
        if let Some(id) = self.streams.get(key, 0) {
            return id;
        }
        let id = cold.streams + 1;
        let definition = Definition::Stream(Stream { id, handle: stream as u64, context, kind });
        self.define_next(&mut cold.streams, id, definition, || self.streams.insert(key, 0, id))
    }

    /// Forgets a stream that is about to be destroyed.
    pub fn forget_stream(&self, stream: CUstream) {
        let mut cold = self.cold();
        cold.stream_flags.remove(&(stream as u64));
        self.streams.remove(stream as u64);
        self.epochs.streams.fetch_add(1, Release);
    }

    /// The identifier of a context that is known already.
    pub fn known_context(&self, context: CUcontext) -> Option<u32> {
        self.contexts.get(context as u64, self.lifetimes.load(Acquire))
    }

    /// Forgets a context that is about to be destroyed, and all handles that may belong to it.
    pub fn forget_context(&self, context: CUcontext) {
        if let Some(id) = self.known_context(context) {
            self.timing.forget_context(id);
        }
        let cold = self.cold();
        self.contexts.remove(context as u64);
        drop(cold);
        self.end_epochs();
    }

    /// Forgets all contexts: one of them is about to be destroyed, and it can't be told which.
    pub fn forget_all_contexts(&self) {
        self.timing.forget_all_contexts();
        self.lifetimes.fetch_add(1, Release);
        self.end_epochs();
    }

    fn end_epochs(&self) {
        self.epochs.contexts.fetch_add(1, Release);
        self.epochs.streams.fetch_add(1, Release);
        self.forget_functions();
    }

    /// Notes that `context` is the primary context of `device`.
    pub fn note_primary(&self, device: CUdevice, context: CUcontext) {
        if !context.is_null() {
            put(&mut self.cold().primaries, device, context as u64);
        }
    }

    /// Forgets the primary context of `device`, which is about to be, or has been, destroyed.
    pub fn forget_primary(&self, device: CUdevice) {
        let primary = self.cold().primaries.remove(&device);
        match primary {
            Some(context) => self.forget_context(context as CUcontext),
            None => self.forget_all_contexts(),
        }
    }

    /// Notes that an attribute of a function or kernel was set. Only a change counts: some libraries set the same value
    /// before every launch.
    pub fn note_attribute(&self, handle: u64, attribute: CUfunction_attribute, value: i32) {
        let mut cold = self.cold();
        if cold.attributes.len() >= limits::ATTRIBUTES {
            cold.attributes.clear();
        }
        let before = cold.attributes.get(&(handle, attribute)).copied();
        put(&mut cold.attributes, (handle, attribute), value);
        drop(cold);
        if before != Some(value) {
            self.forget_functions();
        }
    }

    /// Ends the epoch of function handles: code is about to be unloaded, or attributes have changed.
    pub fn forget_functions(&self) {
        self.epochs.modules.fetch_add(1, Release);
    }

    /// Remembers the name under which the program asked for a function or kernel.
    pub fn note_name(&self, handle: u64, name: impl FnOnce() -> String) {
        if driver::tells_names() {
            return;
        }
        let name = name().into_boxed_str();
        let mut cold = self.cold();
        if cold.names.len() < limits::REMEMBERED_NAMES || cold.names.contains_key(&handle) {
            put(&mut cold.names, handle, name);
        }
    }

    /// The identifier of the function behind a handle that was launched with success; 0 if it can't be defined.
    pub fn function(&self, handle: CUfunction) -> u32 {
        let (key, epoch) = (handle as u64, self.epochs.modules.load(Acquire));
        if let Some(id) = self.functions.get(key, epoch) {
            return id;
        }
        let description = self.describe(handle);
        let digest = digest(&description);
        let mut cold = self.cold();
        let id = match cold.functions.get(&digest) {
            Some(&id) => id,
            None if cold.functions.len() >= limits::FUNCTIONS => return 0,
            None => {
                let id = cold.functions.len() as u32 + 1;
                if !self.file.define(&Definition::Function(Function { id, ..description })) {
                    return 0;
                }
                put(&mut cold.functions, digest, id);
                id
            }
        };
        self.functions.insert(key, epoch, id);
        id
    }

    /// The identifier of a function that is known already. Asks nobody.
    pub fn known_function(&self, handle: CUfunction) -> Option<u32> {
        self.functions.get(handle as u64, self.epochs.modules.load(Acquire))
    }

    /// The handle may be a function or a library's kernel (`CUkernel`): launches take both, the queries functions only.
    fn describe(&self, handle: CUfunction) -> Function {
        let mut function = handle;
        let mut description = driver::describe_function(function);
        if !description.attributes_known
            && let Some(of_kernel) = driver::function_of_kernel(handle.cast())
        {
            function = of_kernel;
            description = driver::describe_function(function);
        }
        let remembered = || self.cold().names.get(&(handle as u64)).map(|name| name.to_string());
        description.name = driver::function_name(function)
            .or_else(remembered)
            .unwrap_or_else(|| UNKNOWN_FUNCTION.to_owned());
        description
    }

    /// What the program set on `function` for the oldest way to launch.
    pub fn legacy_shape(&self, function: CUfunction) -> LegacyShape {
        self.cold().legacy.get(&(function as u64)).copied().unwrap_or_default()
    }

    /// The program sets something on `function` for the oldest way to launch.
    pub fn change_legacy_shape(&self, function: CUfunction, change: impl FnOnce(&mut LegacyShape)) {
        let mut cold = self.cold();
        if cold.legacy.len() >= limits::ATTRIBUTES {
            cold.legacy.clear();
        }
        let mut shape = cold.legacy.get(&(function as u64)).copied().unwrap_or_default();
        change(&mut shape);
        put(&mut cold.legacy, function as u64, shape);
    }

    /// The identifier of a configuration that is known already. Takes no lock.
    #[inline]
    pub fn known_config(&self, key: &ConfigKey) -> Option<u32> {
        self.configs.get(key)
    }

    /// The identifier of a configuration, or [`NO_CONFIG`]. A launch beyond the table's capacity is counted. `handle` is the
    /// function's.
    pub fn config(&self, key: &ConfigKey, handle: CUfunction) -> u32 {
        if let Some(id) = self.known_config(key) {
            return id;
        }
        if self.configs.is_full() {
            self.file.count_config_overflow();
            return NO_CONFIG;
        }
        let cluster = if key.cluster == [0; 3] { driver::required_cluster(handle) } else { key.cluster };
        let _cold = self.cold();
        let define = |id| {
            self.file.define(&Definition::Config(Config {
                id,
                function: key.function,
                context: key.context,
                grid: key.grid,
                block: key.block,
                cluster,
                dynamic_shared: key.dynamic_shared,
            }))
        };
        self.configs.insert(key, define).unwrap_or(NO_CONFIG)
    }
}

/// What `cuFuncSetBlockShape` and `cuFuncSetSharedSize` left with a function.
#[derive(Clone, Copy, Debug)]
pub struct LegacyShape {
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
}

impl Default for LegacyShape {
    fn default() -> LegacyShape {
        LegacyShape { block: [1; 3], dynamic_shared: 0 }
    }
}

/// The name of a function of which neither the driver nor an earlier call told it.
pub const UNKNOWN_FUNCTION: &str = "(unknown)";

/// The identifier of an entry point's name.
#[inline(always)]
pub const fn api(index: usize) -> u32 {
    index as u32 + 1
}

/// `CU_STREAM_LEGACY`
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

/// The stream that `stream` means to an entry point, with the default streams told apart: stream 0 is the thread's own
/// in the per-thread forms, and the legacy one otherwise.
#[inline(always)]
pub fn normalised(stream: CUstream, per_thread: bool) -> CUstream {
    match stream as usize {
        0 if per_thread => PER_THREAD as CUstream,
        0 => LEGACY as CUstream,
        _ => stream,
    }
}

/// The thread to which a [`normalised`] stream belongs: the calling one for its default stream, else 0.
pub fn origin(stream: CUstream) -> u32 {
    if stream as usize == PER_THREAD { thread::id() } else { 0 }
}

/// Whether a [`normalised`] stream is the legacy default stream, which can't be captured.
#[inline(always)]
pub fn is_legacy(stream: CUstream) -> bool {
    stream as usize == LEGACY
}

/// Handles of streams are the driver's pointers; default streams, which each context or thread has its own of, get
/// numbers that are no pointers.
fn stream_key(stream: CUstream, context: u32, thread: u32) -> u64 {
    let own = |thread: u32| 1 << 63 | u64::from(context) << 32 | u64::from(thread);
    match stream as usize {
        LEGACY => own(0),
        PER_THREAD => own(thread),
        handle => handle as u64,
    }
}

/// 128 bits that stand for a function's name and attributes.
fn digest(function: &Function) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        let Function { id: _, name, registers, static_shared, local, constant, max_threads, .. } = function;
        (seed, name, registers, static_shared, local, constant, max_threads).hash(&mut hasher);
        let Function { max_dynamic_shared, carveout, binary_version, ptx_version, attributes_known, .. } =
            function;
        (max_dynamic_shared, carveout, binary_version, ptx_version, attributes_known).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_recording_and_goes_no_further() {
        static ON: AtomicU32 = AtomicU32::new(1);
        RECORDING.store((&raw const ON).cast_mut(), Relaxed);
        assert_eq!(guarded(|| 7), Some(7));
        assert!(is_recording());
        assert_eq!(guarded(|| -> u32 { panic!("a fault of ours") }), None);
        assert!(!is_recording());
    }

    #[test]
    fn default_streams_are_told_apart_from_each_other_and_from_handles() {
        let null = null_mut();
        let (legacy, own) = (normalised(null, false), normalised(null, true));
        assert!(is_legacy(legacy) && !is_legacy(own));
        let handle = 0x5555_0000_1000 as CUstream;
        assert_eq!((normalised(handle, true), normalised(own, false)), (handle, own));
        let keys = [
            stream_key(legacy, 1, 7),
            stream_key(legacy, 2, 7),
            stream_key(own, 1, 7),
            stream_key(own, 1, 8),
            stream_key(own, 2, 7),
            stream_key(handle, 1, 7),
        ];
        let distinct: std::collections::HashSet<u64> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(
            stream_key(legacy, 1, 7),
            stream_key(legacy, 1, 8),
            "all threads share a context's legacy stream"
        );
        assert_eq!(stream_key(handle, 1, 7), stream_key(handle, 2, 8), "a handle is one stream everywhere");
    }
}
