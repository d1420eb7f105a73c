//! Kernels that process the rows of a matrix, dense or sparse: softmax, normalisation, attention,
//! embeddings.

use super::{Block, Element, Kernel, PLAIN, Sizes, Worker, steps};

const ROWS: Kernel = Kernel {
    m: &[64, 777, 4096],
    sizes: |s| Sizes { x: s.n * s.m, y: s.m, out: s.n * s.m },
    operations: steps!(20.0),
    step_ns: 20.0,
    ..PLAIN
};
const OF_BLOCKS: Kernel = Kernel {
    worker: Worker::Block,
    shared: |s| 4 * s.threads,
    operations: |s| s.n as f64 * (20.0 * s.m as f64 + 400.0 * s.threads as f64),
    ..ROWS
};
const OF_WARPS: Kernel = Kernel { block: Block::Warps, worker: Worker::Warp, ..ROWS };
const SPARSE: Kernel = Kernel {
    family: "sparse",
    y: Element::U32,
    m: &[8, 32, 128],
    sizes: |s| Sizes { x: s.n * s.m, y: s.n * s.m, out: s.n },
    operations: steps!(15.0),
    step_ns: 250.0,
    ..PLAIN
};
const ATTENTION: Kernel = Kernel {
    family: "attention",
    m: &[64, 256, 1024],
    sizes: |s| Sizes { x: 16 * s.n, y: 32 * s.m, out: 16 * s.n },
    step_ns: 6.0,
    ..PLAIN
};

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "softmax_block", family: "softmax", ..OF_BLOCKS },
    Kernel { name: "softmax_warp", family: "softmax", ..OF_WARPS },
    Kernel { name: "layernorm_block", family: "norm", ..OF_BLOCKS },
    Kernel { name: "rmsnorm_warp", family: "norm", ..OF_WARPS },
    Kernel {
        name: "gelu",
        family: "gelu",
        sizes: |s| Sizes { x: s.n, y: s.m, out: s.n },
        operations: |s| 40.0 * s.n as f64,
        ..ROWS
    },
    Kernel {
        name: "embedding",
        family: "embedding",
        y: Element::U32,
        sizes: |s| Sizes { x: s.n * s.m, y: s.n, out: s.n * s.m },
        operations: steps!(4.0),
        ..OF_WARPS
    },
    Kernel {
        name: "argmax_warp",
        family: "argmax",
        out: Element::U32,
        sizes: |s| Sizes { x: s.n * s.m, y: 0, out: s.n },
        ..OF_WARPS
    },
    Kernel { name: "sparse_thread", ..SPARSE },
    Kernel { name: "sparse_warp", block: Block::Warps, worker: Worker::Warp, ..SPARSE },
    Kernel { name: "sparse_columns", family: "sparse_columns", ..SPARSE },
    Kernel {
        name: "recurrence",
        family: "recurrence",
        m: &[16, 128, 1024],
        sizes: |s| Sizes { x: s.n * s.m, y: 0, out: s.n * s.m },
        operations: steps!(5.0),
        step_ns: 60.0,
        ..PLAIN
    },
    Kernel { name: "attention", operations: steps!(90.0), ..ATTENTION },
    Kernel { name: "attention_capped", operations: steps!(120.0), ..ATTENTION },
];
