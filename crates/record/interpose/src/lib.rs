//! `libapex.so`: a `libcuda.so.1` that forwards every call to the real driver and records on the
//! way.
//!
//! The library carries the SONAME `libcuda.so.1`. Preloaded, it is what the dynamic linker hands to
//! everybody who asks for the driver, by `dlopen` or by DT_NEEDED; it exports every entry point of
//! the table in `cuda-abi`.
//!
//! # Reading order
//! `loader`: the first driver call finds the real driver (`apex_conventions::locate`) and fills the
//! slots through which every exported symbol jumps: with the real address, or with a function of
//! `hooks`. `hooks`: decide about a call, forward it, record it. `objects`: what is known of the
//! driver's objects, whether or not anything is recorded. `record`: the session of the process, and
//! what each thread keeps to itself. `timing`: GPU durations. `python`: the interpreter's frames.
//! `native`: those of compiled code. `nvtx`, `ranges`: the ranges that the program names.
//! [`actions`]: calls that a thread makes for the program, and device memory that is kept.
//! `endings`: what precedes `_exit` and `exec`. `driver`: the calls that the library makes on its
//! own account. `switch`: whether calls are recorded. [`flush`]: calls that go past held work let
//! it out first. [`limits`] and `tables`: memory, fixed beforehand. ARCHITECTURE.md has the order
//! in which these may use each other.
//!
//! # Invariants
//! 1. *Inert.* Nothing happens before the first driver call (but that ranges which the program
//!    names are remembered, and that `endings` looks functions up). With `APEX_DISABLE=1`, or
//!    without a session, every slot holds the real address: the library is bare jumps.
//! 2. *Faithful.* A hook forwards the program's own arguments unchanged, and the result comes back
//!    unchanged; but for `--fast`, where the queue makes calls later, in their order, and the
//!    pool serves allocations from what it kept. The program computes what it computes without.
//! 3. *Quiet.* No lock is held across a call into the driver. The launch path takes no lock,
//!    allocates nothing and makes no system call, except when something is seen for the first time
//!    or a chunk of the session file is full.
//! 4. *Unbreakable.* No panic crosses the ABI; where something fails inside (a panic, an
//!    allocation, a session file that somebody truncates), recording ends, and the program goes on.
//!    See `allocator`, `signals` and [`apex_trace::fault`].
//! 5. *Bounded.* Memory is fixed beforehand ([`limits`]); what is not on the launch path runs on a
//!    [`stack`] of our own.
//!
//! # Environment
//! [`apex_conventions::variables`] says what the library reads at the first driver call.
//!
//! Everything else (recording on and off, timing mode and budget, size limit) is in the session's
//! control page ([`apex_trace::control`]), which `apex run` makes before it starts the program.

pub mod actions;
mod allocator;
mod by_path;
mod driver;
mod endings;
mod environment;
pub mod flush;
mod hooks;
mod hot;
pub mod limits;
mod loader;
mod message;
mod native;
mod nvtx;
mod objects;
mod parameters;
mod per_process;
mod python;
mod ranges;
mod record;
mod signals;
pub mod stack;
mod switch;
mod tables;
mod timing;

pub use record::{FIXED_BYTES, THREAD_BYTES};
