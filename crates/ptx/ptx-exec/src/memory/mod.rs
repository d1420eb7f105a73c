//! Memory accesses of the lanes of a warp.
//!
//! `spaces` checks every access; `access` has the loads, stores and simple atomics of all lanes,
//! `atomics` the other atomics, `bulk`, `tensor`, `reduce` and `mbarrier` asynchronous copies and
//! their barriers.
//! `shadow` records which bytes were written; `single_copy` copies memory that several host threads
//! access.

pub(crate) mod access;
pub(crate) mod atomics;
pub(crate) mod bulk;
pub(crate) mod kept;
pub(crate) mod mbarrier;
pub(crate) mod reduce;
pub(crate) mod shadow;
pub(crate) mod single_copy;
pub(crate) mod spaces;
pub(crate) mod tensor;
