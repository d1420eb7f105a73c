//! The driver's objects, by handle. A handle is reused as soon as its object is gone, lowest first.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Objects of one kind.
pub struct Slab<T> {
    base: u64,
    places: Vec<Option<T>>,
}

/// Distance between handles.
const STRIDE: u64 = 256;

impl<T> Slab<T> {
    pub const fn new(kind: u64) -> Slab<T> {
        Slab { base: 0x5000_0000_0000 + kind * 0x10_0000_0000, places: Vec::new() }
    }

    pub fn add(&mut self, object: T) -> u64 {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(object);
        self.base + place as u64 * STRIDE
    }

    /// The place of a handle, whether or not there is an object.
    pub fn place(&self, handle: u64) -> Option<usize> {
        let offset = handle.checked_sub(self.base)?;
        (offset.is_multiple_of(STRIDE)).then_some((offset / STRIDE) as usize)
    }

    pub fn get(&mut self, handle: u64) -> Option<&mut T> {
        let place = self.place(handle)?;
        self.places.get_mut(place)?.as_mut()
    }

    pub fn remove(&mut self, handle: u64) -> Option<T> {
        let place = self.place(handle)?;
        self.places.get_mut(place)?.take()
    }

    pub fn handles(&self) -> Vec<u64> {
        let is_alive =
            |(place, object): (usize, &Option<T>)| object.as_ref().map(|_| self.base + place as u64 * STRIDE);
        self.places.iter().enumerate().filter_map(is_alive).collect()
    }
}

/// The content of an image that a program loaded.
#[derive(Clone)]
pub struct Image {
    /// The names of its functions are looked up in this.
    pub text: String,
    /// Its machine code.
    pub code: Vec<Vec<u8>>,
}

/// The inputs of a linker, and its output.
#[derive(Default)]
pub struct Linker {
    pub inputs: Vec<u8>,
    pub image: Vec<u8>,
}

/// A function's code.
pub struct Function {
    pub name: std::ffi::CString,
    /// Those that the tables of its machine code say; others have none.
    pub parameters: Vec<fatbin::cubin::Parameter>,
    pub module: u64,
    pub dynamic_limit: i32,
    pub block: [u32; 3],
}

/// A library's kernel: no function, though launches take it for one.
pub struct Kernel {
    pub library: u64,
    pub function: u64,
}

pub struct Stream {
    pub flags: u32,
    pub context: u64,
    pub graph: Option<u64>,
}

pub struct Event {
    pub recorded_ns: Option<u64>,
    pub stream: u64,
}

#[derive(Clone)]
pub struct Node {
    pub kind: NodeKind,
}

#[derive(Clone)]
pub enum NodeKind {
    Kernel(cuda_abi::types::CUDA_KERNEL_NODE_PARAMS),
    Copy,
    Set,
    Child(u64),
}

// SAFETY: the pointers in parameters are only handed out again.
unsafe impl Send for Node {}

#[derive(Default)]
pub struct Graph {
    pub nodes: Vec<u64>,
}

pub struct World {
    pub contexts: Slab<()>,
    pub primary: Option<u64>,
    pub modules: Slab<Image>,
    pub libraries: Slab<Image>,
    pub linkers: Slab<Linker>,
    pub functions: Slab<Function>,
    pub kernels: Slab<Kernel>,
    pub streams: Slab<Stream>,
    pub events: Slab<Event>,
    pub graphs: Slab<Graph>,
    pub nodes: Slab<Node>,
    pub executables: Slab<()>,
    pub next_address: u64,
    /// Bytes of the allocations, by address.
    pub memory: BTreeMap<u64, usize>,
    /// Host addresses that are pinned.
    pub registered: Vec<u64>,
}

static WORLD: Mutex<World> = Mutex::new(World {
    contexts: Slab::new(1),
    primary: None,
    modules: Slab::new(2),
    libraries: Slab::new(3),
    linkers: Slab::new(11),
    functions: Slab::new(4),
    kernels: Slab::new(5),
    streams: Slab::new(6),
    events: Slab::new(7),
    graphs: Slab::new(8),
    nodes: Slab::new(9),
    executables: Slab::new(10),
    next_address: 0x7000_0000_0000,
    memory: BTreeMap::new(),
    registered: Vec::new(),
});

pub fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The lock that a forking thread holds meanwhile.
    static HELD: RefCell<Option<MutexGuard<'static, World>>> = const { RefCell::new(None) };
}

/// Lets a program fork at any moment: the thread that forks waits for the others' calls, so that the
/// child, in which those threads are missing, does not wait for them for ever.
pub fn survive_forks() {
    extern "C" fn before() {
        HELD.with_borrow_mut(|held| *held = Some(world()));
    }
    extern "C" fn after() {
        HELD.with_borrow_mut(|held| *held = None);
    }
    static REGISTERED: Once = Once::new();
    // SAFETY: the functions stay loaded as long as the driver, which is never unloaded.
    REGISTERED.call_once(|| unsafe { _ = libc::pthread_atfork(Some(before), Some(after), Some(after)) });
}

/// The number that an environment variable of the driver's holds.
pub fn number_of(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Whether an environment variable of the driver's is set.
pub fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}
