//! Memory as the lanes of a warp see it.
//!
//! `spaces` checks every access; `access` has the loads, stores and atomics of all lanes, `atomics`
//! those that need more, `bulk` and `mbarrier` asynchronous copies and the objects that they are
//! waited for with. `shadow` remembers which bytes were written, `pieces` moves what several
//! threads of the host access.

pub(crate) mod access;
pub(crate) mod atomics;
pub(crate) mod bulk;
pub(crate) mod mbarrier;
pub(crate) mod pieces;
pub(crate) mod shadow;
pub(crate) mod spaces;
