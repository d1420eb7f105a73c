//! Definitions: what the identifiers in records stand for.
//!
//! In a chunk of kind `Definitions` each is `u32 tag, u32 payload bytes, payload`, padded to 8 bytes. Identifiers
//! count from 1 within a process and within a tag.

/// What an identifier stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// The name of a driver entry point, as exported (`cuLaunchKernel_ptsz`).
    Name {
        /// Its identifier.
        id: u32,
        /// The symbol.
        text: String,
    },
    /// A device.
    Device(Device),
    /// A context.
    Context(Context),
    /// A stream.
    Stream(Stream),
    /// A kernel.
    Function(Function),
    /// A kernel in one launch configuration.
    Config(Config),
    /// An executable graph, or its state after an update (which gets a new identifier).
    Graph(Graph),
}

/// A device, as the driver describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Its identifier.
    pub id: u32,
    /// Ordinal in the process.
    pub ordinal: u32,
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// `cuDriverGetVersion`.
    pub driver_version: u32,
    /// Global memory, bytes.
    pub total_memory: u64,
    /// `(CUdevice_attribute, value)` for the attributes that APEX uses.
    pub attributes: Vec<(u32, i32)>,
}

/// A context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Its identifier.
    pub id: u32,
    /// The driver's handle.
    pub handle: u64,
    /// A device identifier, 0 if unknown.
    pub device: u32,
    /// What an event pair around an empty kernel reads on a busy stream, ns; 0 if not calibrated.
    pub pair_busy_ns: u32,
    /// The same on an idle stream, ns; 0 if not calibrated.
    pub pair_idle_ns: u32,
}

/// Which stream a handle names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamKind {
    /// The legacy default stream.
    #[default]
    LegacyDefault = 0,
    /// The calling thread's default stream.
    PerThreadDefault = 1,
    /// A stream that synchronises with the legacy default stream.
    Blocking = 2,
    /// A stream made with `CU_STREAM_NON_BLOCKING`.
    NonBlocking = 3,
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Its identifier.
    pub id: u32,
    /// The driver's handle (handles are reused after a stream is destroyed; identifiers are not).
    pub handle: u64,
    /// A context identifier, 0 if unknown.
    pub context: u32,
    /// Which sort.
    pub kind: StreamKind,
}

/// A kernel and its attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its identifier.
    pub id: u32,
    /// Name as the driver gives it: mangled where the program's compiler mangles.
    pub name: String,
    /// Registers of a thread; 0 if unknown.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub static_shared: u32,
    /// Local memory of a thread, bytes.
    pub local: u32,
    /// Constant memory, bytes.
    pub constant: u32,
    /// Most threads that a block of this kernel may have.
    pub max_threads: u32,
    /// Most dynamic shared memory that a launch may ask for, bytes.
    pub max_dynamic_shared: u32,
    /// Preferred shared-memory carve-out, percent of the maximum; -1 for the driver's default.
    pub carveout: i32,
    /// Architecture of the machine code, such as 90.
    pub binary_version: u32,
    /// Architecture of the PTX it came from, such as 80.
    pub ptx_version: u32,
    /// False where the attributes could not be read (then the numbers above are 0).
    pub attributes_known: bool,
}

/// A kernel in one launch configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its identifier.
    pub id: u32,
    /// A function identifier.
    pub function: u32,
    /// A context identifier, 0 if unknown.
    pub context: u32,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z; zeros without one.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
}

/// What one launch of an executable graph does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Its identifier.
    pub id: u32,
    /// The driver's `CUgraphExec`.
    pub handle: u64,
    /// `(configuration identifier, nodes)` of its kernel nodes, child graphs included.
    pub kernels: Vec<(u32, u32)>,
    /// Copy nodes.
    pub copies: u32,
    /// Set nodes.
    pub sets: u32,
    /// Other nodes.
    pub others: u32,
    /// Nodes whose work the host cannot know: conditional bodies, device-launched graphs.
    pub opaque: u32,
}
