//! Kernels with contiguous memory accesses: copies, sums of vectors, loads and stores of each
//! width.

use super::{Element, Kernel, PLAIN, Sizes, steps};

const COPY: Kernel = Kernel { family: "copy", ..PLAIN };
const AXPY: Kernel = Kernel { family: "axpy", sizes: |s| Sizes { x: s.n, y: s.n, out: s.n }, ..PLAIN };
const LOAD: Kernel = Kernel {
    family: "load",
    m: &[4, 16, 64],
    sizes: |s| Sizes { x: s.n * s.m, y: 0, out: s.n },
    operations: steps!(3.0),
    ..PLAIN
};

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "copy_f32", ..COPY },
    Kernel { name: "copy_v4", sizes: |s| Sizes { x: 4 * s.n, y: 0, out: 4 * s.n }, ..COPY },
    Kernel { name: "copy_f64", x: Element::F64, out: Element::F64, ..COPY },
    Kernel { name: "copy_f16", x: Element::F16, out: Element::F16, ..COPY },
    Kernel { name: "axpy_f32", ..AXPY },
    Kernel { name: "axpy_v4", sizes: |s| Sizes { x: 4 * s.n, y: 4 * s.n, out: 4 * s.n }, ..AXPY },
    Kernel { name: "axpy_f64", x: Element::F64, y: Element::F64, out: Element::F64, ..AXPY },
    Kernel { name: "store_f32", family: "store", sizes: |s| Sizes { x: 0, y: 0, out: s.n }, ..PLAIN },
    Kernel { name: "load_f32", ..LOAD },
    Kernel { name: "load_f32_unrolled", ..LOAD },
    Kernel {
        name: "bytes_widen",
        family: "bytes",
        x: Element::U32,
        out: Element::U32,
        sizes: |s| Sizes { x: s.n.div_ceil(4), y: 0, out: s.n },
        ..PLAIN
    },
];
