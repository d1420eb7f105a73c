//! Kernels that are limited by arithmetic on registers.

use super::{Element, Kernel, PLAIN, Sizes, steps};

const LONG: &[u32] = &[16, 128, 1024];
const SHORT: &[u32] = &[4, 16, 64];

const SINGLE: Kernel = Kernel { family: "fma_f32", m: LONG, step_ns: 3.0, ..PLAIN };
const DOUBLE: Kernel =
    Kernel { family: "fma_f64", x: Element::F64, out: Element::F64, m: LONG, step_ns: 4.0, ..PLAIN };
const INTEGER: Kernel = Kernel {
    family: "integer",
    y: Element::U32,
    out: Element::U32,
    m: LONG,
    sizes: |s| Sizes { x: 0, y: s.n, out: s.n },
    operations: steps!(2.0),
    step_ns: 3.0,
    ..PLAIN
};
const SPECIAL: Kernel = Kernel { family: "special", m: SHORT, step_ns: 5.0, ..PLAIN };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "fma_f32_1", operations: steps!(1.5), ..SINGLE },
    Kernel { name: "fma_f32_4", operations: steps!(4.5), ..SINGLE },
    Kernel { name: "fma_f32_32", m: SHORT, operations: steps!(33.0), ..SINGLE },
    Kernel { name: "fma_f32_96", m: SHORT, operations: steps!(97.0), ..SINGLE },
    Kernel { name: "fma_f32_32_capped", m: SHORT, operations: steps!(60.0), ..SINGLE },
    Kernel { name: "fma_f64_1", operations: steps!(3.0), ..DOUBLE },
    Kernel { name: "fma_f64_8", operations: steps!(17.0), ..DOUBLE },
    Kernel { name: "fma_f64_8_capped", operations: steps!(17.0), ..DOUBLE },
    Kernel {
        name: "half_fma",
        family: "fma_f16",
        x: Element::F16,
        out: Element::F16,
        sizes: |s| Sizes { x: 2 * s.n, y: 0, out: 2 * s.n },
        operations: steps!(1.5),
        ..SINGLE
    },
    Kernel { name: "integer_mad", ..INTEGER },
    Kernel { name: "integer_bits", operations: steps!(6.0), ..INTEGER },
    Kernel { name: "integer_divide", m: SHORT, operations: steps!(20.0), family: "divide", ..INTEGER },
    Kernel { name: "divide_sqrt", family: "divide_f32", operations: steps!(30.0), ..SPECIAL },
    Kernel { name: "special_fast", operations: steps!(8.0), ..SPECIAL },
    Kernel { name: "special_accurate", operations: steps!(50.0), ..SPECIAL },
    Kernel {
        name: "special_f64",
        family: "special_f64",
        x: Element::F64,
        out: Element::F64,
        operations: steps!(200.0),
        ..SPECIAL
    },
    Kernel { name: "polynomial", family: "polynomial", operations: steps!(18.0), ..SPECIAL },
];
