//! Small complete programs: n-body, option prices, encryption, edit distance.

use super::{Element, Kernel, PLAIN, Sizes, steps};

const BODIES: Kernel = Kernel {
    family: "bodies",
    m: &[64, 512, 4096],
    sizes: |s| Sizes { x: s.n.max(s.m), y: s.n.max(s.m), out: s.n },
    operations: steps!(10.0),
    step_ns: 6.0,
    ..PLAIN
};
const WORDS: Kernel = Kernel {
    y: Element::U32,
    out: Element::U32,
    sizes: |s| Sizes { x: 0, y: s.n, out: s.n },
    step_ns: 3.0,
    ..PLAIN
};
const PAIRS: Kernel =
    Kernel { m: &[8, 64, 512], sizes: |s| Sizes { x: s.n, y: s.n, out: s.n }, step_ns: 3.0, ..PLAIN };

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "bodies_global", ..BODIES },
    Kernel { name: "bodies_shared", shared: |s| 8 * s.threads, ..BODIES },
    Kernel {
        name: "monte_carlo",
        family: "monte_carlo",
        m: &[16, 128, 1024],
        operations: steps!(20.0),
        ..WORDS
    },
    Kernel { name: "option_price", family: "option", m: &[1], operations: |s| 150.0 * s.n as f64, ..PAIRS },
    Kernel { name: "chacha", family: "chacha", m: &[1, 10, 100], operations: steps!(96.0), ..WORDS },
    Kernel { name: "chacha_capped", family: "chacha", m: &[1, 10, 100], operations: steps!(200.0), ..WORDS },
    Kernel { name: "oscillator", family: "oscillator", operations: steps!(40.0), ..PAIRS },
    Kernel { name: "complex_powers", family: "complex", operations: steps!(40.0), ..PAIRS },
    Kernel {
        name: "edit_distance",
        family: "edit_distance",
        m: &[8, 16, 32],
        operations: |s| s.n as f64 * (s.m * s.m) as f64 * 15.0,
        step_ns: 20.0,
        ..WORDS
    },
];
