//! Kernels with irregular memory accesses: strides, gathers, scatters, pointer chasing, constant
//! and local memory.

use super::{Element, Granule, Kernel, PLAIN, Sizes, steps};

const STRIDE: Kernel = Kernel { family: "stride", m: &[2, 8, 32, 256], ..PLAIN };
const GATHER: Kernel =
    Kernel { family: "gather", y: Element::U32, sizes: |s| Sizes { x: s.n, y: s.n, out: s.n }, ..PLAIN };
const CHASE: Kernel = Kernel {
    y: Element::U32,
    out: Element::U32,
    m: &[8, 32, 128],
    granule: Granule::PowerOfTwo,
    operations: steps!(4.0),
    step_ns: 150.0,
    ..PLAIN
};
const CONSTANT: Kernel =
    Kernel { family: "constant", m: &[16, 64, 256], operations: steps!(4.0), step_ns: 20.0, ..PLAIN };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "stride_load", sizes: |s| Sizes { x: s.n * s.m, y: 0, out: s.n }, ..STRIDE },
    Kernel { name: "stride_store", granule: Granule::RowsOfM(1), ..STRIDE },
    Kernel { name: "gather_random", ..GATHER },
    Kernel { name: "gather_window", m: &[32, 1024, 65536], ..GATHER },
    Kernel { name: "scatter_random", family: "scatter", granule: Granule::PowerOfTwo, ..PLAIN },
    Kernel { name: "chase_global", family: "chase", sizes: |s| Sizes { x: 0, y: s.n, out: s.n }, ..CHASE },
    Kernel {
        name: "chase_shared",
        family: "chase_shared",
        sizes: |s| Sizes { x: 0, y: 1024, out: s.n },
        granule: Granule::One,
        step_ns: 10.0,
        ..CHASE
    },
    Kernel {
        name: "tree_walk",
        family: "tree",
        out: Element::U32,
        m: &[6, 12, 18],
        sizes: |s| Sizes { x: 1 << s.m, y: s.n, out: s.n },
        operations: steps!(6.0),
        step_ns: 100.0,
        ..PLAIN
    },
    Kernel {
        name: "local_array",
        family: "local",
        y: Element::U32,
        m: &[16, 64, 256],
        sizes: |s| Sizes { x: s.n, y: s.n, out: s.n },
        operations: |s| s.n as f64 * (s.m as f64 * 60.0 + 70.0),
        step_ns: 30.0,
        ..PLAIN
    },
    Kernel { name: "constant_uniform", ..CONSTANT },
    Kernel {
        name: "constant_divergent",
        y: Element::U32,
        sizes: |s| Sizes { x: s.n, y: s.n, out: s.n },
        operations: steps!(30.0),
        ..CONSTANT
    },
];
