//! The state that the driver keeps for each thread of the program.
//!
//! Programs call the driver from destructors of `thread_local` objects, from exit handlers and from
//! destructors of static objects. By then Rust has dropped its own thread-local values that need
//! dropping, and another look at them panics. So a thread's state is a heap object, found through a
//! plain word, and a `pthread` key frees it: its destructors run after those of C++, and the state
//! passes on to the last of the rounds in which they run.

use crate::headroom;
use cuda_abi::types::*;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

thread_local! {
    /// The thread's state; null before it is first used. It must not need to be dropped.
    static STATE: Cell<*const State> = const { Cell::new(std::ptr::null()) };
}

/// Rounds in which a thread that ends calls the destructors of keys
/// (`PTHREAD_DESTRUCTOR_ITERATIONS` of glibc).
const ROUNDS: u32 = 4;

/// Stack that executing a kernel or compiling a module may take, bytes, with a margin.
const AMPLE_STACK: usize = 256 << 10;

/// A thread's state.
pub struct State {
    /// Unique over the life of the process.
    pub id: u64,
    /// Its contexts, by handle, the current one last.
    pub contexts: RefCell<Vec<u64>>,
    /// Kept by `stream`: the thread's own default stream in each context where it has used one.
    pub streams: RefCell<Vec<Arc<dyn Any + Send + Sync>>>,
    /// How calls that could disturb a capture are taken.
    pub capture_mode: Cell<CUstreamCaptureMode>,
    /// The nodes that the last `cuStreamGetCaptureInfo` pointed at: they stay until this thread's
    /// next call.
    pub reported_nodes: RefCell<Vec<CUgraphNode>>,
    /// The driver function that the thread is in; empty outside of all.
    pub call: Cell<&'static str>,
    /// Rounds of destructors that are left.
    rounds: Cell<u32>,
    /// The addresses of the thread's stack: empty if unknown, `None` if not determined yet.
    stack: RefCell<Option<Range<usize>>>,
}

impl State {
    fn new() -> State {
        static IDS: AtomicU64 = AtomicU64::new(1);
        State {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            contexts: RefCell::default(),
            streams: RefCell::default(),
            capture_mode: Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL),
            reported_nodes: RefCell::default(),
            call: Cell::new(""),
            rounds: Cell::new(ROUNDS),
            stack: RefCell::default(),
        }
    }
}

/// Looks at the calling thread's state.
#[inline]
pub fn with<T>(look: impl FnOnce(&State) -> T) -> T {
    let mut state = STATE.get();
    if state.is_null() {
        state = begin();
    }
    // SAFETY: only this thread frees its state, in its key's last destructor, where it forgets the
    // address too.
    look(unsafe { &*state })
}

/// Gives the thread a state. Without a key, it is never freed.
#[cold]
fn begin() -> *const State {
    let state = Box::into_raw(Box::new(State::new()));
    STATE.set(state);
    if let Some(key) = key() {
        // SAFETY: the key exists for good.
        unsafe { libc::pthread_setspecific(key, state.cast()) };
    }
    state
}

/// The key whose destructors free threads' states, if the process had one left.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the destructor takes what `begin` sets, and is never unloaded: the library is
        // linked so.
        (unsafe { libc::pthread_key_create(&mut key, Some(end)) } == 0).then_some(key)
    })
}

/// The destructor of the key. Those of other keys may call the driver: the state waits for the last
/// round.
unsafe extern "C" fn end(state: *mut c_void) {
    let state = state.cast::<State>();
    // SAFETY: the key holds what `begin` made, until it is freed below.
    let rounds = &unsafe { &*state }.rounds;
    rounds.set(rounds.get() - 1);
    let again = rounds.get() > 0
        // SAFETY: the key exists for good.
        && key().is_some_and(|key| unsafe { libc::pthread_setspecific(key, state.cast()) } == 0);
    if !again {
        STATE.set(std::ptr::null());
        // SAFETY: `begin` made it of a box, and nothing leads to it any more.
        drop(unsafe { Box::from_raw(state) });
    }
}

/// The calling thread's id.
pub fn id() -> u64 {
    with(|state| state.id)
}

/// The driver function that the calling thread is in; empty outside of all.
pub fn call() -> &'static str {
    with(|state| state.call.get())
}

/// Returns the addresses of the calling thread's stack; empty if the system does not tell.
pub fn stack() -> Range<usize> {
    let (mut attributes, mut start, mut bytes) = (std::mem::MaybeUninit::uninit(), std::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised by the first call, if it succeeds, and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return 0..0;
        }
        libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    start as usize..start as usize + bytes
}

/// Whether the calling thread has stack enough to execute kernels and compile modules. Programs
/// have threads with less, and run fibers on stacks of their own, which count as too small.
pub fn has_ample_stack() -> bool {
    let marker = 0u8;
    let here = (&raw const marker) as usize;
    let stack = with(|state| state.stack.borrow_mut().get_or_insert_with(stack).clone());
    stack.contains(&here) && here - stack.start >= AMPLE_STACK
}

/// Does `work` on the calling thread, or on one made for it where the stack is too small.
pub fn on_ample_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if has_ample_stack() {
        return work();
    }
    // The closure stays with the caller where the system has no thread.
    let slot = Mutex::new(Some(work));
    let take = || slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let spawned = std::thread::scope(|scope| {
        let thread = headroom::for_thread().then(std::thread::Builder::new)?;
        let thread = thread.spawn_scoped(scope, || take().map(|work| work())).ok()?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    spawned.unwrap_or_else(|| take().expect("no thread has begun it")())
}

/// Does `work` under the name of a driver function, or of what acts in its place.
pub fn in_call<T>(call: &'static str, work: impl FnOnce() -> T) -> T {
    let before = with(|state| state.call.replace(call));
    let outcome = work();
    with(|state| state.call.set(before));
    outcome
}
