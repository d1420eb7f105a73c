//! Kernels that use shared memory, barriers, shuffles and asynchronous copies.

use super::{Block, Kernel, PLAIN, steps};

const TILE: Kernel = Kernel { shared: |s| 4 * s.threads, step_ns: 10.0, ..PLAIN };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        name: "banks_stride",
        family: "banks",
        m: &[1, 2, 8, 32],
        operations: |s| s.n as f64 * (32.0 * 20.0 + s.m as f64 * 16.0),
        ..TILE
    },
    Kernel { name: "banks_broadcast", family: "banks", m: &[8, 64], operations: steps!(20.0), ..TILE },
    Kernel { name: "barrier_ring", family: "barrier", m: &[4, 16, 64], operations: steps!(20.0), ..TILE },
    Kernel {
        name: "shuffle_ring",
        family: "shuffle",
        m: &[8, 64, 256],
        block: Block::Warps,
        operations: steps!(4.0),
        shared: |_| 0,
        ..TILE
    },
    Kernel {
        name: "async_tiles",
        family: "async",
        m: &[1, 8, 32],
        operations: steps!(20.0),
        shared: |s| 8 * s.threads,
        ..TILE
    },
];
