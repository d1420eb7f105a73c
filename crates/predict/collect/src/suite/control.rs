//! Kernels with divergent branches, and sorting.

use super::{Block, Element, Granule, Kernel, PLAIN, Sizes, steps};

const BRANCH: Kernel = Kernel { step_ns: 3.0, ..PLAIN };
const ESCAPE: Kernel = Kernel { out: Element::U32, operations: steps!(10.0), step_ns: 4.0, ..PLAIN };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "branch_ways", family: "branch", m: &[2, 8, 32], operations: steps!(70.0), ..BRANCH },
    Kernel {
        name: "branch_loop",
        family: "branch_loop",
        y: Element::U32,
        m: &[32, 256, 1024],
        sizes: |s| Sizes { x: s.n, y: s.n, out: s.n },
        operations: steps!(2.0),
        ..BRANCH
    },
    Kernel {
        name: "branch_warps",
        family: "branch_loop",
        m: &[256, 2048],
        operations: steps!(2.0),
        ..BRANCH
    },
    Kernel {
        name: "collatz",
        family: "collatz",
        y: Element::U32,
        m: &[50, 300],
        sizes: |s| Sizes { x: 0, y: s.n, out: s.n },
        ..ESCAPE
    },
    Kernel {
        name: "mandelbrot",
        family: "mandelbrot",
        m: &[50, 500, 2000],
        sizes: |s| Sizes { x: s.n, y: s.n, out: s.n },
        ..ESCAPE
    },
    Kernel {
        name: "bitonic_block",
        family: "sort",
        block: Block::PowerOfTwo,
        shared: |s| 4 * s.threads,
        operations: |s| s.n as f64 * (s.threads as f64).log2().powi(2) * 10.0,
        step_ns: 10.0,
        ..PLAIN
    },
    Kernel {
        name: "bitonic_pass",
        family: "sort",
        m: &[1, 64, 4096],
        granule: Granule::RowsOfM(2),
        operations: |s| 8.0 * s.n as f64,
        ..PLAIN
    },
    Kernel {
        name: "insertion_sort",
        family: "insertion",
        sizes: |s| Sizes { x: 8 * s.n, y: 0, out: 8 * s.n },
        operations: |s| 300.0 * s.n as f64,
        step_ns: 10.0,
        ..PLAIN
    },
];
