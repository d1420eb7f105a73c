//! Launches, copies, events, and the time that they take.
//!
//! Each stream has a clock in nanoseconds. A kernel moves it by the number at the end of its name
//! (`spin_5000`), or by nothing; `apex_empty` by 400, and `apex_delay` by what it is given. An
//! event takes its reading. A pair of events reads [`PAIR_NS`] more than what lies between.
//!
//! Where the host takes time (`FAKE_HOST_TIME`), it has a clock too, which calls move. Work begins
//! when it has been launched, and is done when the host's clock has passed its end.

use crate::busy;
use crate::objects::current;
use crate::world::{Event, Node, NodeKind, is_set, number_of, world};
use crate::{count, not_ready, result};
use cuda_abi::types::*;
use cuda_abi::{Plain, index};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The time by which a pair's reading exceeds the time between its events.
pub const PAIR_NS: u64 = 2800;
/// The host's time for a launch, if that counts.
const LAUNCH_NS: u64 = 3000;
/// The host's time for recording an event, if that counts.
const RECORD_NS: u64 = 1000;
/// Time of a kernel that takes what its one parameter says.
const AS_GIVEN: u32 = u32::MAX - 1;

/// Streams that are being captured.
pub static CAPTURING: AtomicU32 = AtomicU32::new(0);
/// Calls that must not be made while a stream is, or with an event that is gone.
pub static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

const PLACES: usize = 1 << 12;
/// By place of a function: nanoseconds that it takes, plus 1; 0 where there is none.
static FUNCTIONS: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];
/// By place of a stream, the default streams in front.
static CLOCKS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
/// Streams whose last work is a delay, which an event has to follow.
static DELAYED: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
/// The host's clock.
static HOST: AtomicU64 = AtomicU64::new(0);
/// The time up to which a clock's work is known to be done, if work is slow.
static DONE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Called by everything that must not be called during a capture.
pub fn spoils_captures() {
    if CAPTURING.load(Ordering::Relaxed) != 0 {
        VIOLATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn note_function(place: Option<usize>, name: &str) {
    let ns = match name {
        "apex_empty" => 400,
        "apex_delay" => AS_GIVEN,
        _ => name.rsplit('_').next().and_then(|number| number.parse().ok()).unwrap_or(0),
    };
    if let Some(place) = place {
        FUNCTIONS[place].store(ns + 1, Ordering::Relaxed);
    }
}

pub fn forget_function(place: Option<usize>) {
    if let Some(place) = place {
        FUNCTIONS[place].store(0, Ordering::Relaxed);
    }
}

/// Handles are read without the world's lock: launches are meant to be quick.
fn function_ns(function: CUfunction) -> Option<u32> {
    const FUNCTION_BASE: u64 = 0x5000_0000_0000 + 4 * 0x10_0000_0000;
    const KERNEL_BASE: u64 = 0x5000_0000_0000 + 5 * 0x10_0000_0000;
    let mut handle = function as u64;
    if handle >= KERNEL_BASE {
        handle = world().kernels.get(handle)?.function;
    }
    let place = handle.checked_sub(FUNCTION_BASE)? / 256;
    FUNCTIONS.get(place as usize)?.load(Ordering::Relaxed).checked_sub(1)
}

fn clock(stream: CUstream) -> usize {
    const STREAM_BASE: u64 = 0x5000_0000_0000 + 6 * 0x10_0000_0000;
    match stream as u64 {
        special @ 0..=2 => special.max(1) as usize,
        handle => (handle.saturating_sub(STREAM_BASE) / 256 + 3) as usize % PLACES,
    }
}

fn is_slow() -> bool {
    static SLOW: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| is_set("FAKE_SLOW"));
    *SLOW
}

fn is_busy() -> bool {
    static BUSY: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| is_set("FAKE_BUSY"));
    *BUSY
}

/// Threads of a block below which kernels take four times as long; 0 if they never do.
fn least_threads() -> u32 {
    static THREADS: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| number_of("FAKE_LEAST_THREADS").unwrap_or(0));
    *THREADS as u32
}

/// Whether the host's calls take time.
fn host_takes_time() -> bool {
    static TAKES: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| is_set("FAKE_HOST_TIME"));
    *TAKES
}

/// Spends `host_ns` on the host, and then adds `ns` of work to the stream. Returns the stream's
/// clock after that.
fn submit(clock: usize, host_ns: u64, ns: u64) -> u64 {
    if !host_takes_time() {
        return CLOCKS[clock].fetch_add(ns, Ordering::Relaxed) + ns;
    }
    let now = HOST.fetch_add(host_ns, Ordering::Relaxed) + host_ns;
    let after = |at: u64| at.max(now) + ns;
    CLOCKS[clock].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(after(at))).map_or(0, after)
}

/// Whether this launch comes after those that are allowed.
fn is_refused() -> bool {
    static ALLOWED: std::sync::LazyLock<Option<u64>> =
        std::sync::LazyLock::new(|| std::env::var("FAKE_REFUSES_AFTER").ok()?.parse().ok());
    static LAUNCHES: AtomicU64 = AtomicU64::new(0);
    ALLOWED.is_some_and(|allowed| LAUNCHES.fetch_add(1, Ordering::Relaxed) >= allowed)
}

/// Whether delays are refused from now on.
fn refuses_delays() -> bool {
    static ALLOWED: std::sync::LazyLock<Option<usize>> =
        std::sync::LazyLock::new(|| number_of("FAKE_REFUSES_DELAYS_AFTER"));
    static DELAYS: AtomicUsize = AtomicUsize::new(0);
    ALLOWED.is_some_and(|allowed| DELAYS.fetch_add(1, Ordering::Relaxed) >= allowed)
}

/// Whether a stream is another context's than the current one; asked for where launches need not be
/// quick.
fn is_foreign(stream: CUstream) -> bool {
    static IS_STRICT: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| is_set("FAKE_STRICT_CONTEXTS"));
    *IS_STRICT && world().streams.get(stream as u64).is_some_and(|stream| stream.context != current())
}

fn is_done(clock: usize, at: u64) -> bool {
    if host_takes_time() {
        return at <= HOST.load(Ordering::Relaxed);
    }
    !is_slow() || at <= DONE[clock].load(Ordering::Relaxed)
}

/// Does what a launch does: takes time, or becomes a node.
fn run(parameters: CUDA_KERNEL_NODE_PARAMS, stream: CUstream) -> CUresult {
    let Some(mut ns) = function_ns(parameters.func) else { return CUDA_ERROR_INVALID_HANDLE };
    let is_delay = ns == AS_GIVEN;
    if DELAYED[clock(stream)].swap(is_delay, Ordering::Relaxed) {
        VIOLATIONS.fetch_add(1, Ordering::Relaxed);
    }
    if is_delay {
        spoils_captures();
        if refuses_delays() {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        // SAFETY: the one who launches it keeps to the driver's contract: one number.
        ns = unsafe { parameters.kernelParams.read().cast::<u32>().read() };
    }
    let threads = parameters.blockDimX * parameters.blockDimY * parameters.blockDimZ;
    if !is_delay && threads < least_threads() {
        ns *= 4;
    }
    if CAPTURING.load(Ordering::Relaxed) != 0 && capture(stream, NodeKind::Kernel(parameters)) {
        return CUDA_SUCCESS;
    }
    if is_foreign(stream) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if is_refused() {
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    submit(clock(stream), LAUNCH_NS, ns.into());
    if is_busy() {
        busy::work();
    }
    CUDA_SUCCESS
}

/// Adds a node to the graph that `stream` is captured into, if it is.
fn capture(stream: CUstream, kind: NodeKind) -> bool {
    let mut world = world();
    let Some(graph) = world.streams.get(stream as u64).and_then(|stream| stream.graph) else { return false };
    let node = world.nodes.add(Node { kind });
    world.graphs.get(graph).expect("a captured graph lives").nodes.push(node);
    true
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe extern "C" fn launch(
    function: CUfunction,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: CUstream,
    given: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    count(index::cuLaunchKernel);
    let parameters = parameters(function, [gx, gy, gz], [bx, by, bz], shared);
    run(CUDA_KERNEL_NODE_PARAMS { kernelParams: given, ..parameters }, stream)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe extern "C" fn launch_per_thread(
    function: CUfunction,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: CUstream,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    count(index::cuLaunchKernel_ptsz);
    run(parameters(function, [gx, gy, gz], [bx, by, bz], shared), stream)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe extern "C" fn launch_cooperative(
    function: CUfunction,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: CUstream,
    _: *mut *mut c_void,
) -> CUresult {
    run(parameters(function, [gx, gy, gz], [bx, by, bz], shared), stream)
}

pub unsafe extern "C" fn launch_ex(
    config: *const CUlaunchConfig,
    function: CUfunction,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    let Some(config) = (unsafe { config.as_ref() }) else { return CUDA_ERROR_INVALID_VALUE };
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    run(parameters(function, grid, block, config.sharedMemBytes), config.hStream)
}

pub unsafe extern "C" fn launch_grid(function: CUfunction, width: i32, height: i32) -> CUresult {
    run(parameters(function, [width as u32, height as u32, 1], [1; 3], 0), std::ptr::null_mut())
}

fn parameters(func: CUfunction, grid: [u32; 3], block: [u32; 3], shared: u32) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func,
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shared,
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    }
}

pub unsafe extern "C" fn copy_to_device(
    _: CUdeviceptr,
    _: *const c_void,
    _: usize,
    stream: CUstream,
) -> CUresult {
    capture(stream, NodeKind::Copy);
    CUDA_SUCCESS
}

pub unsafe extern "C" fn copy_on_device(
    _: CUdeviceptr,
    _: CUdeviceptr,
    _: usize,
    stream: CUstream,
) -> CUresult {
    capture(stream, NodeKind::Copy);
    CUDA_SUCCESS
}

pub unsafe extern "C" fn copy_between_devices(
    _: CUdeviceptr,
    _: CUcontext,
    _: CUdeviceptr,
    _: CUcontext,
    _: usize,
    stream: CUstream,
) -> CUresult {
    capture(stream, NodeKind::Copy);
    CUDA_SUCCESS
}

pub unsafe extern "C" fn copy_from_device(_: *mut c_void, _: CUdeviceptr, _: usize) -> CUresult {
    CUDA_SUCCESS
}

pub unsafe extern "C" fn set_32(_: CUdeviceptr, _: u32, _: usize, stream: CUstream) -> CUresult {
    capture(stream, NodeKind::Set);
    CUDA_SUCCESS
}

/// Runs the function at once, on the calling thread: a driver may.
pub unsafe extern "C" fn host_function(_: CUstream, function: CUhostFn, data: *mut c_void) -> CUresult {
    if let Some(function) = function {
        // SAFETY: the caller keeps to the driver's contract.
        unsafe { function(data) };
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn create_event(event: *mut CUevent, _: u32) -> CUresult {
    count(index::cuEventCreate);
    spoils_captures();
    let handle = world().events.add(Event { recorded_ns: None, stream: 0 });
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *event = handle as CUevent };
    result((current() != 0).then_some(()), CUDA_ERROR_INVALID_CONTEXT)
}

pub unsafe extern "C" fn destroy_event(event: CUevent) -> CUresult {
    result(world().events.remove(event as u64).map(drop), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn record_event(event: CUevent, stream: CUstream) -> CUresult {
    count(index::cuEventRecord);
    spoils_captures();
    DELAYED[clock(stream)].store(false, Ordering::Relaxed);
    let now = submit(clock(stream), RECORD_NS, 0);
    let mut world = world();
    let Some(event) = world.events.get(event as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    *event = Event { recorded_ns: Some(now), stream: stream as u64 };
    CUDA_SUCCESS
}

/// Returns the time at which the event was recorded, and whether it is done.
fn state(event: CUevent) -> Result<(u64, bool), CUresult> {
    let mut world = world();
    // The real driver does not survive this.
    let event = world.events.get(event as u64).ok_or_else(|| {
        VIOLATIONS.fetch_add(1, Ordering::Relaxed);
        CUDA_ERROR_INVALID_HANDLE
    })?;
    let at = event.recorded_ns.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    Ok((at, is_done(clock(event.stream as CUstream), at)))
}

pub unsafe extern "C" fn query_event(event: CUevent) -> CUresult {
    spoils_captures();
    match state(event) {
        Ok((_, true)) => CUDA_SUCCESS,
        Ok((_, false)) => not_ready(index::cuEventQuery),
        Err(error) => error,
    }
}

pub unsafe extern "C" fn elapsed(milliseconds: *mut f32, before: CUevent, after: CUevent) -> CUresult {
    spoils_captures();
    match (state(before), state(after)) {
        (Ok((before, true)), Ok((after, true))) => {
            // SAFETY: the caller keeps to the driver's contract.
            unsafe { *milliseconds = ((after - before + PAIR_NS) as f64 / 1e6) as f32 };
            CUDA_SUCCESS
        }
        (Ok(_), Ok(_)) => not_ready(index::cuEventElapsedTime),
        (Err(error), _) | (_, Err(error)) => error,
    }
}

pub unsafe extern "C" fn query_stream(stream: CUstream) -> CUresult {
    spoils_captures();
    let clock = clock(stream);
    let at = CLOCKS[clock].load(Ordering::Relaxed);
    if is_done(clock, at) { CUDA_SUCCESS } else { not_ready(index::cuStreamQuery) }
}

pub unsafe extern "C" fn synchronize_stream(stream: CUstream) -> CUresult {
    spoils_captures();
    wait_for(clock(stream));
    CUDA_SUCCESS
}

/// Waits for what a stream has to do.
fn wait_for(clock: usize) {
    let at = CLOCKS[clock].load(Ordering::Relaxed);
    DONE[clock].store(at, Ordering::Relaxed);
    HOST.fetch_max(at, Ordering::Relaxed);
}

pub unsafe extern "C" fn synchronize() -> CUresult {
    spoils_captures();
    (0..PLACES).for_each(wait_for);
    if is_busy() {
        (0..3).for_each(|_| busy::work());
    }
    CUDA_SUCCESS
}

/// Adds the time of a graph's nodes to a stream.
pub fn run_graph(stream: CUstream, functions: &[CUfunction]) {
    let ns: u64 = functions.iter().filter_map(|&function| function_ns(function)).map(u64::from).sum();
    submit(clock(stream), LAUNCH_NS, ns);
}
