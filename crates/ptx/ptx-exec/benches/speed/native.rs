//! The same algorithms in plain Rust: the peers of the CPU device.
//!
//! They are written so that the compiler vectorises them, which is the best that plain Rust gets:
//! where a kernel has a thread for each element, these have a lane of a small array. Each exists
//! twice: as `cargo build --release` compiles it for its default target, and with AVX2 and FMA. The
//! first cannot fuse a multiplication and an addition but by a call of `fmaf`, so it rounds twice.

use std::ops::Range;

/// The instruction set that a peer was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The instructions of the build's target.
    Default,
    /// Also AVX2 and FMA, which the CPU has.
    Features,
}

impl Target {
    /// The targets that this CPU can execute.
    pub fn all() -> Vec<Target> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return vec![Target::Default, Target::Features];
        }
        vec![Target::Default]
    }
}

/// `a * b + c`, rounded once if the target can.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Defines a peer in both versions.
macro_rules! peer {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $ty:ty),*) $(-> $result:ty)? = $body:ident) => {
        $(#[$doc])*
        pub fn $name(target: Target, $($argument: $ty),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn with_features($($argument: $ty),*) $(-> $result)? {
                    $body::<true>($($argument),*)
                }
                if target == Target::Features {
                    assert!(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"));
                    // SAFETY: the CPU has the features.
                    return unsafe { with_features($($argument),*) };
                }
            }
            assert_eq!(target, Target::Default);
            $body::<{ cfg!(target_feature = "fma") }>($($argument),*)
        }
    };
}

peer! {
    /// `y = a x + y`.
    saxpy(a: f32, x: &[f32], y: &mut [f32]) = saxpy_body
}

#[inline(always)]
fn saxpy_body<const FUSED: bool>(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = multiply_add::<FUSED>(a, x, *y);
    }
}

/// Elements that go through the chains side by side: as many as fill the latency of the arithmetic.
const SIDE_BY_SIDE: usize = 8;

peer! {
    /// For each element eight chains of `rounds * 4` multiply-adds, summed.
    fma_chains(start: &[f32], out: &mut [f32], b: f32, c: f32, rounds: u32) = fma_chains_body
}

#[inline(always)]
fn fma_chains_body<const FUSED: bool>(start: &[f32], out: &mut [f32], b: f32, c: f32, rounds: u32) {
    for (start, out) in start.chunks_exact(SIDE_BY_SIDE).zip(out.chunks_exact_mut(SIDE_BY_SIDE)) {
        let mut chains = [[0.0f32; SIDE_BY_SIDE]; 8];
        for (k, chain) in chains.iter_mut().enumerate() {
            for (value, &start) in chain.iter_mut().zip(start) {
                *value = start + k as f32;
            }
        }
        for _ in 0..rounds * 4 {
            for chain in &mut chains {
                for value in chain {
                    *value = multiply_add::<FUSED>(*value, b, c);
                }
            }
        }
        for (lane, out) in out.iter_mut().enumerate() {
            *out = chains.iter().fold(0.0, |sum, chain| sum + chain[lane]);
        }
    }
}

/// Side of a tile.
pub const TILE: usize = 16;

peer! {
    /// Rows of tiles `tiles` of `c = a b` for `n` by `n` matrices, through tiles copied to local
    /// arrays. `c` holds these rows only.
    matmul_tiled(a: &[f32], b: &[f32], c: &mut [f32], n: usize, tiles: Range<usize>) = matmul_body
}

#[inline(always)]
fn matmul_body<const FUSED: bool>(a: &[f32], b: &[f32], c: &mut [f32], n: usize, tiles: Range<usize>) {
    for tile_row in tiles.clone() {
        for tile_column in 0..n / TILE {
            let mut sums = [[0.0f32; TILE]; TILE];
            for start in (0..n).step_by(TILE) {
                let (mut a_tile, mut b_tile) = ([[0.0f32; TILE]; TILE], [[0.0f32; TILE]; TILE]);
                for row in 0..TILE {
                    let from = (tile_row * TILE + row) * n + start;
                    a_tile[row].copy_from_slice(&a[from..from + TILE]);
                    let from = (start + row) * n + tile_column * TILE;
                    b_tile[row].copy_from_slice(&b[from..from + TILE]);
                }
                for (sums, a_row) in sums.iter_mut().zip(&a_tile) {
                    for (&a, b_row) in a_row.iter().zip(&b_tile) {
                        for (sum, &b) in sums.iter_mut().zip(b_row) {
                            *sum = multiply_add::<FUSED>(a, b, *sum);
                        }
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                let to = ((tile_row - tiles.start) * TILE + row) * n + tile_column * TILE;
                c[to..to + TILE].copy_from_slice(sums);
            }
        }
    }
}

/// A picture of the Mandelbrot set.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub width: usize,
    pub height: usize,
    pub limit: u32,
    pub left: f32,
    pub top: f32,
    pub pixel: f32,
}

peer! {
    /// Iterations until each point of `rows` escapes.
    mandelbrot(view: View, rows: Range<usize>, iterations: &mut [u32]) = mandelbrot_body
}

#[inline(always)]
fn mandelbrot_body<const FUSED: bool>(view: View, rows: Range<usize>, iterations: &mut [u32]) {
    for (row, line) in rows.zip(iterations.chunks_exact_mut(view.width)) {
        let cy = multiply_add::<FUSED>(row as f32, view.pixel, view.top);
        for (column, out) in line.iter_mut().enumerate() {
            let cx = multiply_add::<FUSED>(column as f32, view.pixel, view.left);
            let (mut x, mut y, mut count) = (0.0f32, 0.0f32, 0);
            while count < view.limit && x * x + y * y <= 4.0 {
                let next = x * x - y * y + cx;
                y = multiply_add::<FUSED>(2.0 * x, y, cy);
                x = next;
                count += 1;
            }
            *out = count;
        }
    }
}

peer! {
    /// The sum of `values`, in as many partial sums as a warp has lanes.
    sum(values: &[f32]) -> f32 = sum_body
}

#[inline(always)]
fn sum_body<const FUSED: bool>(values: &[f32]) -> f32 {
    let mut sums = [0.0f32; 32];
    let chunks = values.chunks_exact(32);
    let rest: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().sum::<f32>() + rest
}
