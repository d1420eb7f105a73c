//! Kernels whose threads cooperate: reductions, scans, histograms and atomics.

use super::{Before, Block, Element, Kernel, PLAIN, Sizes, steps};

const REDUCE: Kernel =
    Kernel { family: "reduce", sizes: |s| Sizes { x: s.n, y: 0, out: s.blocks }, step_ns: 100.0, ..PLAIN };
const COUNT: Kernel = Kernel {
    family: "histogram",
    y: Element::U32,
    out: Element::U32,
    before: Before::Zero,
    m: &[16, 256, 4096],
    sizes: |s| Sizes { x: 0, y: s.n, out: s.m },
    operations: |s| 60.0 * s.n as f64,
    ..PLAIN
};
const ATOMIC: Kernel =
    Kernel { family: "atomic", m: &[1, 64, 65536], operations: |s| 100.0 * s.n as f64, ..COUNT };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "reduce_shared", shared: |s| 4 * s.threads, ..REDUCE },
    Kernel { name: "reduce_shuffle", block: Block::Warps, ..REDUCE },
    Kernel {
        name: "reduce_atomic",
        before: Before::Zero,
        sizes: |s| Sizes { x: s.n, y: 0, out: 1 },
        operations: |s| 4.0 * s.n as f64 + 60.0 * (s.blocks * s.threads) as f64,
        ..REDUCE
    },
    Kernel {
        name: "dot_f64",
        family: "dot",
        x: Element::F64,
        y: Element::F64,
        out: Element::F64,
        sizes: |s| Sizes { x: s.n, y: s.n, out: s.blocks },
        shared: |s| 8 * s.threads,
        ..REDUCE
    },
    Kernel {
        name: "scan_shared",
        family: "scan",
        block: Block::AtLeastM,
        m: &[16, 128, 512],
        shared: |s| 4 * s.threads,
        operations: |s| s.n as f64 * (s.m as f64).log2() * 20.0,
        step_ns: 10.0,
        ..PLAIN
    },
    Kernel {
        name: "scan_shuffle",
        family: "scan",
        block: Block::Warps,
        operations: |s| 20.0 * s.n as f64,
        ..PLAIN
    },
    Kernel { name: "histogram_global", ..COUNT },
    Kernel { name: "histogram_shared", shared: |s| 4 * s.m, ..COUNT },
    Kernel { name: "atomic_add", sizes: |s| Sizes { x: 0, y: 0, out: s.m.min(s.n) }, ..ATOMIC },
    Kernel { name: "atomic_max", sizes: |s| Sizes { x: 0, y: s.n, out: s.m.min(s.n) }, ..ATOMIC },
    Kernel { name: "atomic_swap", family: "atomic_swap", m: &[256, 65536], ..ATOMIC },
    Kernel {
        name: "vote_count",
        family: "vote",
        block: Block::Warps,
        out: Element::U32,
        sizes: |s| Sizes { x: s.n, y: 0, out: s.n.div_ceil(32) },
        operations: steps!(4.0),
        ..PLAIN
    },
];
