//! Products of matrices and vectors.

use super::{Block, Element, Granule, Kernel, PLAIN, Sizes, Worker, steps};
use cuda_launch::Dim3;

const PRODUCT: Kernel = Kernel {
    family: "product",
    block: Block::Plane,
    m: &[48, 256, 1000],
    granule: Granule::RowsOfM(1),
    sizes: |s| Sizes { x: s.n, y: s.m * s.m, out: s.n },
    operations: steps!(5.0),
    step_ns: 15.0,
    ..PLAIN
};
const TILED: Kernel =
    Kernel { family: "product_tiled", worker: Worker::Block, operations: steps!(4.0), ..PRODUCT };
const BLOCKED: Kernel = Kernel {
    block: Block::Fixed(Dim3::new(16, 16, 1)),
    units: |s| s.m.div_ceil(64) * (s.n / s.m).div_ceil(64),
    ..TILED
};
const TENSOR: Kernel = Kernel {
    family: "tensor",
    x: Element::F16,
    y: Element::F16,
    block: Block::Warps,
    worker: Worker::Warp,
    m: &[64, 256, 1024],
    granule: Granule::RowsOfM(16),
    operations: steps!(0.1),
    step_ns: 100.0,
    ..PRODUCT
};
const MATVEC: Kernel = Kernel {
    family: "matvec",
    m: &[32, 256, 2048],
    sizes: |s| Sizes { x: s.n * s.m, y: s.m, out: s.n },
    operations: steps!(4.0),
    step_ns: 40.0,
    ..PLAIN
};

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "product_naive", ..PRODUCT },
    Kernel {
        name: "product_tiled_8",
        block: Block::Fixed(Dim3::new(8, 8, 1)),
        units: |s| s.m.div_ceil(8) * (s.n / s.m).div_ceil(8),
        ..TILED
    },
    Kernel {
        name: "product_tiled_16",
        block: Block::Fixed(Dim3::new(16, 16, 1)),
        units: |s| s.m.div_ceil(16) * (s.n / s.m).div_ceil(16),
        ..TILED
    },
    Kernel {
        name: "product_tiled_32",
        block: Block::Fixed(Dim3::new(32, 32, 1)),
        units: |s| s.m.div_ceil(32) * (s.n / s.m).div_ceil(32),
        ..TILED
    },
    Kernel { name: "product_registers", operations: steps!(2.0), ..BLOCKED },
    Kernel { name: "product_registers_capped", operations: steps!(8.0), ..BLOCKED },
    Kernel { name: "tensor_1", units: |s| s.n / 256, ..TENSOR },
    Kernel { name: "tensor_4", units: |s| s.n / 1024, ..TENSOR },
    Kernel {
        name: "tensor_chain",
        family: "tensor_chain",
        m: &[16, 128, 1024],
        granule: Granule::Multiple(256),
        units: |s| s.n / 256,
        sizes: |s| Sizes { x: s.n, y: s.n, out: s.n },
        operations: |s| s.n as f64 / 8.0 * (s.m as f64 + 8.0),
        step_ns: 20.0,
        ..TENSOR
    },
    Kernel { name: "matvec_thread", ..MATVEC },
    Kernel { name: "matvec_warp", block: Block::Warps, worker: Worker::Warp, ..MATVEC },
];
