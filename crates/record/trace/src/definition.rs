//! Definitions: the meaning of the identifiers in records.
//!
//! In a chunk of kind `Definitions` each is `u32 tag, u32 payload bytes, payload`, padded to 8
//! bytes. Identifiers count from 1 within a process and within a tag.

use crate::python::PythonCode;
use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig};

/// The meaning of an identifier.
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
    /// A code object of the Python interpreter.
    PythonCode(PythonCode),
    /// An executable file or library that call stacks go through.
    Module(Module),
    /// A call stack.
    CallStack(CallStack),
    /// A range that the program names.
    Range(Range),
    /// The image that a function is from.
    FunctionCode(FunctionCode),
    /// The arguments of a kernel in a launch.
    Arguments(Arguments),
    /// The memory to which a kernel's arguments point in a launch.
    ArgumentMemory(ArgumentMemory),
    /// A variable of the program's environment.
    Variable(Variable),
}

/// A variable of the program's environment ([`crate::environment`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// Its identifier.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
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
    /// Global memory.
    pub memory_bytes: u64,
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
    /// The reading of an event pair around an empty kernel on a busy stream, in ns; 0 if not
    /// calibrated.
    pub pair_busy_ns: u32,
    /// The same on an idle stream, ns; 0 if not calibrated.
    pub pair_idle_ns: u32,
}

/// The kind of stream that a handle names.
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
    /// The kind of stream.
    pub kind: StreamKind,
}

/// A kernel and its attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its identifier.
    pub id: u32,
    /// Name as the driver gives it: mangled where the program's compiler mangles.
    pub name: String,
    /// Its attributes; `None` where they could not be read. The file does not hold its barriers.
    pub attributes: Option<FunctionAttributes>,
}

/// The image that a function is from: what the program loaded, as [`crate::image`] keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCode {
    /// The function's identifier.
    pub id: u32,
    /// The image's hash.
    pub image: u128,
    /// A hash of the PTX text that the program gave the driver; 0 if it gave machine code.
    pub ptx: u128,
}

/// The kinds of memory that the pointers among a kernel's arguments pointed to in the first launch
/// of a configuration. It holds no addresses and no values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArgumentMemory {
    /// The configuration.
    pub id: u32,
    /// The parameter, from 0, and a raw [`MemoryKind`](crate::layout::MemoryKind); a structure may
    /// have several.
    pub parameters: Vec<(u32, u32)>,
}

/// The arguments of a kernel in a launch (`apex run --code`): the bytes of its parameters, without
/// addresses, and never the content of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arguments {
    /// Its identifier.
    pub id: u32,
    /// The configuration of the launch.
    pub config: u32,
    /// The offset and size of each parameter in `bytes`.
    pub parameters: Vec<(u32, u32)>,
    /// The parameters as the kernel gets them, with zeros in place of pointers.
    pub bytes: Vec<u8>,
    /// The pointers to device memory in them.
    pub pointers: Vec<Pointer>,
}

/// A pointer among a kernel's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// The offset of its eight bytes in [`Arguments::bytes`].
    pub at: u32,
    /// The number of the allocation among those that the arguments point into: they count from 0,
    /// in the order of the pointers.
    pub allocation: u32,
    /// Bytes of the allocation.
    pub allocation_bytes: u64,
    /// The offset of the target from the allocation's start, in bytes.
    pub offset: u64,
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
    /// The configuration. If the code requires a block, it is here, though the program need not
    /// name it.
    pub launch: LaunchConfig,
    /// Whether the code requires this block (`.reqntid`).
    pub requires_block: bool,
    /// The grid and block that the program asked for, if APEX launches these threads in other
    /// blocks (`apex run --tuned`).
    pub asked: Option<(Dim3, Dim3)>,
}

/// The work of one launch of an executable graph.
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

/// A range that the program names (NVTX), inside of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// Its identifier.
    pub id: u32,
    /// The range around it, which has a smaller identifier; 0 if there is none.
    pub parent: u32,
    /// Its domain's name; empty for the default domain.
    pub domain: String,
    /// Its name. Where a range has held many others whose names differ in numbers alone, each `#`
    /// stands for a number.
    pub name: String,
}

impl Range {
    /// The name with `#` in place of each number: the one that ranges share which differ in numbers
    /// alone, where there are many.
    pub fn without_numbers(&self) -> String {
        without_numbers(&self.name)
    }
}

/// The text with `#` in place of each number.
pub fn without_numbers(text: &str) -> String {
    let mut form = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '0'..='9' if form.ends_with('#') => {}
            '0'..='9' => form.push('#'),
            other => form.push(other),
        }
    }
    form
}

/// The frames of one thread at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallStack {
    /// Its identifier.
    pub id: u32,
    /// The thread's name, which tells what it does where it has no frames.
    pub thread: String,
    /// Frames of the Python interpreter, innermost first.
    pub python: Vec<PythonFrame>,
    /// Frames of compiled code, innermost first; of a thread of the Python interpreter, those that
    /// the innermost frame of the interpreter called.
    pub native: Vec<NativeFrame>,
    /// Whether there are outer frames of the Python interpreter that were not kept.
    pub is_cut: bool,
}

/// A frame of compiled code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NativeFrame {
    /// A [`Module`] identifier.
    pub module: u32,
    /// An address inside of the call instruction, as the module's file counts addresses.
    pub address: u64,
}

/// An executable file or library as it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its identifier.
    pub id: u32,
    /// Its file's path.
    pub path: String,
    /// The identifier that the linker gave this build (`NT_GNU_BUILD_ID`), in hexadecimal digits;
    /// empty if it has none.
    pub build_id: String,
    /// Bytes of the file when the module was defined; 0 if unknown.
    pub bytes: u64,
    /// The time of the file's last modification by then, in nanoseconds since 1970; 0 if unknown.
    pub modified_ns: u64,
}

/// A frame of the Python interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// A [`PythonCode`] identifier.
    pub code: u32,
    /// The instruction that is executed: bytes after the first one; -2 before the first.
    pub offset: i32,
}
