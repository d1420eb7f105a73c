//! Stencils, filters, transposes.

use super::{Block, Granule, Kernel, PLAIN, Sizes, Worker, steps};
use cuda_launch::Dim3;

const LINE: Kernel =
    Kernel { family: "stencil_line", m: &[1, 4, 16], operations: steps!(12.0), step_ns: 20.0, ..PLAIN };
const PLANE: Kernel = Kernel {
    family: "stencil_plane",
    block: Block::Plane,
    m: &[64, 500, 2048],
    granule: Granule::RowsOfM(1),
    operations: |s| 20.0 * s.n as f64,
    step_ns: 20.0,
    ..PLAIN
};
const CONVOLUTION: Kernel =
    Kernel { family: "convolution", sizes: |s| Sizes { x: s.n, y: 49, out: s.n }, ..PLANE };
const TRANSPOSE: Kernel = Kernel { family: "transpose", ..PLANE };
const TILES: Kernel = Kernel {
    block: Block::Fixed(Dim3::new(32, 8, 1)),
    worker: Worker::Block,
    units: |s| s.m.div_ceil(32) * (s.n / s.m).div_ceil(32),
    ..TRANSPOSE
};

pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "stencil_line", ..LINE },
    Kernel { name: "stencil_line_shared", shared: |s| 4 * (s.threads + 2 * s.m), ..LINE },
    Kernel { name: "stencil_plane_5", ..PLANE },
    Kernel { name: "stencil_plane_box3", operations: |s| 50.0 * s.n as f64, ..PLANE },
    Kernel { name: "stencil_plane_box7", operations: |s| 250.0 * s.n as f64, ..PLANE },
    Kernel {
        name: "stencil_volume_7",
        family: "stencil_volume",
        block: Block::Volume,
        m: &[16, 100, 256],
        granule: Granule::PlanesOfM,
        operations: |s| 30.0 * s.n as f64,
        ..PLANE
    },
    Kernel { name: "convolution_3", operations: |s| 60.0 * s.n as f64, ..CONVOLUTION },
    Kernel { name: "convolution_7", operations: |s| 300.0 * s.n as f64, ..CONVOLUTION },
    Kernel {
        name: "convolution_5_tiled",
        block: Block::Fixed(Dim3::new(16, 16, 1)),
        worker: Worker::Block,
        units: |s| s.m.div_ceil(16) * (s.n / s.m).div_ceil(16),
        operations: |s| 120.0 * s.n as f64,
        ..CONVOLUTION
    },
    Kernel { name: "transpose_naive", ..TRANSPOSE },
    Kernel { name: "transpose_conflicts", ..TILES },
    Kernel { name: "transpose_padded", ..TILES },
];
