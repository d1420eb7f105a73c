//! The fixed limits of the memory that recording uses.
//!
//! A process uses at most [`crate::FIXED_BYTES`], less than 60 MiB, nearly all of it address space
//! that is touched only as far as it is used (6 MiB in a process that fills the table of
//! configurations). Each thread that makes recorded calls uses [`crate::THREAD_BYTES`], 70 KiB, and
//! one mapped chunk of the session file ([`apex_trace::layout::CHUNK_BYTES`]). Tables do not grow
//! beyond their capacity: further records are still written, with the identifier for "unknown" (0),
//! and configurations beyond the table are counted.

use crate::tables::ConfigTable;
use std::io;

/// Places in the table of launch configurations; half of them are used.
pub const CONFIG_PLACES: usize = 1 << 17;
/// Most launch configurations that get an identifier.
pub const CONFIGS: usize = ConfigTable::capacity(CONFIG_PLACES);
/// Most distinct functions that get an identifier.
pub const FUNCTIONS: usize = 1 << 14;
/// Function handles that are known at a time.
pub const FUNCTION_HANDLES: usize = 1 << 15;
/// Stream handles that are known at a time.
pub const STREAM_HANDLES: usize = 1 << 14;
/// Executable graphs that are known at a time.
pub const GRAPH_HANDLES: usize = 1 << 14;
/// Most states of executable graphs that get an identifier.
pub const GRAPHS: usize = 1 << 16;
/// Most kernel nodes, over all executable graphs, whose updates can be followed one by one.
pub const GRAPH_NODES: usize = 1 << 18;
/// Contexts that are known at a time.
pub const CONTEXT_HANDLES: usize = 1 << 8;
/// Most function names that are remembered for a driver that can't tell them (before 12.3).
pub const REMEMBERED_NAMES: usize = 1 << 12;
/// Most function attributes whose values are remembered.
pub const ATTRIBUTES: usize = 1 << 14;
/// Longest name that is kept, bytes; longer ones are cut.
pub const NAME_BYTES: usize = 4096;
/// Event pairs of a context.
pub const EVENT_PAIRS: usize = 512;
/// Event pairs whose reading a thread may still be waiting for.
pub const PENDING_PAIRS: usize = 64;
/// Most code objects of the Python interpreter that get an identifier.
pub const PYTHON_CODES: usize = 1 << 14;
/// Most call stacks that get an identifier.
pub const CALL_STACKS: usize = 1 << 14;
/// Most executable files and libraries that get an identifier.
pub const MODULES: usize = 1 << 12;
/// Most ranges that get an identifier.
pub const RANGES: usize = 1 << 13;
/// Longest name of a range that is kept, bytes; longer ones are cut.
pub const RANGE_NAME_BYTES: usize = 192;
/// Most handles of modules, libraries, kernels and functions whose images are known.
pub const ORIGINS: usize = 1 << 14;
/// Most allocations at a time of which scheduling knows.
pub const ALLOCATIONS: usize = 1 << 16;
/// Most parameters of a kernel whose launches run beside others.
pub const SCHEDULED_PARAMETERS: usize = 256;
/// Most images of which it is known whether the session has them.
pub const IMAGES: usize = 1 << 11;
/// Most different arguments of a configuration that are kept.
pub const ARGUMENTS_OF_CONFIG: usize = 32;
/// Most different arguments of all configurations together.
pub const ARGUMENTS: usize = 1 << 13;
/// Linkers at a time whose inputs are held.
pub const LINKERS: usize = 1 << 6;
/// Most bytes of these inputs together.
pub const LINK_BYTES: usize = 16 << 20;
/// Largest plan of launches that is read, bytes: that of some hundred kernels and joined kernels.
/// (What actions take comes on top of [`crate::FIXED_BYTES`].)
pub const PLAN_BYTES: usize = 2 << 20;
/// Functions whose place in the plan is known at a time.
pub const PLANNED_HANDLES: usize = 1 << 10;
/// Most functions of the plan over the life of the process, 2 KiB each.
pub const PLANNED_FUNCTIONS: usize = 1 << 7;
/// Streams that may be capturing at a time and still be told apart.
pub const CAPTURES: usize = 1 << 10;

/// Bytes of an entry in one of the hash maps, buckets and slack included (a generous estimate).
const MAP_ENTRY_BYTES: usize = 64;

/// Bytes of all hash maps at their limits, names included.
pub const MAP_BYTES: usize = (FUNCTIONS
    + GRAPHS
    + GRAPH_HANDLES
    + GRAPH_NODES
    + 2 * ATTRIBUTES
    + STREAM_HANDLES
    + REMEMBERED_NAMES
    + PYTHON_CODES
    + CALL_STACKS
    + MODULES
    + ORIGINS
    + IMAGES
    + 2 * ARGUMENTS
    + 3 * RANGES)
    * MAP_ENTRY_BYTES
    + RANGES * RANGE_NAME_BYTES
    + REMEMBERED_NAMES * NAME_BYTES;

/// Address space that is reserved when recording starts: the tables, a stack or two, the first
/// chunks.
const RESERVED_AT_START: u64 = 24 << 20;

/// An error if the process's address space is limited (`ulimit -v`) and recording would take more
/// than a quarter of what the limit leaves: what remains is the program's.
pub fn leave_room() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    if !is_known || limit.rlim_cur == libc::RLIM_INFINITY {
        return Ok(());
    }
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').next().and_then(|size| size.parse().ok()).unwrap_or(0);
    let left = limit.rlim_cur.saturating_sub(pages * 4096);
    if left / 4 >= RESERVED_AT_START {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "its address space limit (`ulimit -v`) leaves {} MiB, and recording needs a quarter of {} MiB",
        left >> 20,
        (4 * RESERVED_AT_START) >> 20
    )))
}
