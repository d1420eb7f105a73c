//! Frames of call stacks, read from the memory of a process: this one or another one.
//!
//! Contract: **nothing of the process is dereferenced**. The kernel copies every byte ([`memory`])
//! and answers with an error where there is no memory, and chains are followed for a bounded number
//! of steps. What is read may be garbage; it gives no frames or wrong ones, never a fault.
//!
//! The injected library reads its own process with this crate: what it uses allocates nothing
//! except where a function says so, and the crate depends only on `trace` and libc.

pub mod memory;
pub mod native;
pub mod python;
