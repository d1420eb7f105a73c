//! The computation of each kernel of the suite, written again for the host from the kernel's
//! purpose.
//!
//! In double precision where floating-point numbers come out. Where the way of a computation
//! depends on rounding (when a point leaves a circle), in the kernel's own single precision,
//! operation by operation.

use apex_collect::bench::pool_seed;
use apex_collect::fill::{double, single, word};
use apex_collect::plan::Launch;
use apex_collect::suite::{Element, Kernel};

/// An output.
pub struct Reference {
    /// All elements.
    pub values: Vec<f64>,
    /// The tolerance of the kernel's result: relative for numbers above 1, else absolute.
    pub tolerance: f64,
}

/// Inputs and sizes of a launch.
struct Inputs {
    kernel: Kernel,
    n: usize,
    m: usize,
    threads: usize,
    blocks: usize,
}

impl Inputs {
    fn number(element: Element, second: bool, index: usize) -> f64 {
        let (index, seed) = (index as u32, pool_seed(element, second));
        match element {
            Element::F32 => single(index, seed).into(),
            Element::F64 => double(index, seed),
            Element::F16 => half::f16::from_f32(single(index, seed)).to_f64(),
            Element::U32 => word(index, seed).into(),
        }
    }

    fn x(&self, index: usize) -> f64 {
        Self::number(self.kernel.x, false, index)
    }

    fn y(&self, index: usize) -> f64 {
        Self::number(self.kernel.y, true, index)
    }

    /// The second input where it holds words.
    fn word(&self, index: usize) -> usize {
        word(index as u32, pool_seed(Element::U32, true)) as usize
    }

    fn each(&self, f: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..self.n).map(f).collect()
    }

    /// Starts at the unit's first input and does m steps.
    fn steps(&self, step: impl Fn(f64, usize) -> f64) -> Vec<f64> {
        self.each(|i| (0..self.m).fold(self.x(i), &step))
    }

    /// The same for words.
    fn word_steps(&self, step: impl Fn(u32, u32) -> u32) -> Vec<f64> {
        self.each(|i| (0..self.m as u32).fold(self.word(i) as u32, &step).into())
    }

    /// n rows of m elements, each made of its row.
    fn rows(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let row = |i: usize| (0..self.m).map(|k| self.x(i * self.m + k)).collect::<Vec<_>>();
        (0..self.n).flat_map(|i| f(&row(i))).collect()
    }

    /// Cells of a plane of width m: row, column, height.
    fn cells(&self, f: impl Fn(i64, i64, i64) -> f64) -> Vec<f64> {
        let height = (self.n / self.m) as i64;
        let cell = |i: usize| f((i / self.m) as i64, (i % self.m) as i64, height);
        self.each(cell)
    }

    /// The first input as such a plane, clamped at its edges.
    fn clamped(&self, row: i64, column: i64, height: i64) -> f64 {
        let (row, column) = (row.clamp(0, height - 1), column.clamp(0, self.m as i64 - 1));
        self.x(row as usize * self.m + column as usize)
    }

    fn convolution(&self, side: i64) -> Vec<f64> {
        self.cells(|row, column, height| {
            let places =
                (0..side * side).map(|k| (k, row + k / side - side / 2, column + k % side - side / 2));
            let inside = places.filter(|&(_, r, c)| r >= 0 && r < height && c >= 0 && c < self.m as i64);
            inside.map(|(k, r, c)| self.clamped(r, c, height) * self.y(k as usize)).sum()
        })
    }

    fn transpose(&self) -> Vec<f64> {
        let height = self.n / self.m;
        self.each(|i| self.x(i % height * self.m + i / height))
    }

    fn product(&self) -> Vec<f64> {
        let m = self.m;
        let y: Vec<f64> = (0..m * m).map(|i| self.y(i)).collect();
        let row = |i: usize| (0..m).map(|k| self.x(i * m + k)).collect::<Vec<_>>();
        let product =
            |x: Vec<f64>| (0..m).map(|c| (0..m).map(|k| x[k] * y[k * m + c]).sum()).collect::<Vec<f64>>();
        (0..self.n / m).flat_map(|i| product(row(i))).collect()
    }

    /// For each block, the sum of what its threads visit.
    fn block_sums(&self, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.blocks];
        (0..self.n).for_each(|i| sums[i / self.threads % self.blocks] += value(i));
        sums
    }

    /// Inclusive sums within tiles.
    fn scan(&self, tile: usize) -> Vec<f64> {
        self.each(|i| (i / tile * tile..=i).map(|k| self.x(k)).sum())
    }

    /// Counters of size m (at most n are used by some kernels), combined from (counter, value) of
    /// each unit.
    fn counters(
        &self,
        size: usize,
        of: impl Fn(usize) -> (usize, u32),
        combine: fn(u32, u32) -> u32,
    ) -> Vec<f64> {
        let mut counters = vec![0u32; size];
        for i in 0..self.n {
            let (counter, value) = of(i);
            counters[counter] = combine(counters[counter], value);
        }
        counters.into_iter().map(f64::from).collect()
    }

    /// Chains of fused multiply-adds.
    fn chains(&self, chains: usize) -> Vec<f64> {
        let chain = |seed: f64| (0..self.m).fold(seed, |value, _| value * 0.75 + 0.125);
        self.each(|i| (0..chains).map(|c| chain(self.x(i) + c as f64)).sum())
    }

    fn tiles(&self, f: impl Fn(&dyn Fn(usize) -> f64, usize, usize) -> f64) -> Vec<f64> {
        self.each(|i| {
            let first = i / self.threads * self.threads;
            let tile = |k: usize| if first + k < self.n { self.x(first + k) } else { 0.0 };
            f(&tile, i - first, self.threads.min(self.n - first))
        })
    }

    /// m rounds of averaging with the next of a tile.
    fn ring(&self, tile: usize) -> Vec<f64> {
        let mut values: Vec<f64> =
            (0..self.n.div_ceil(tile) * tile).map(|k| if k < self.n { self.x(k) } else { 0.0 }).collect();
        for _ in 0..self.m {
            for tile in values.chunks_mut(tile) {
                let first = tile[0];
                let next = |k: usize| tile.get(k + 1).copied().unwrap_or(first);
                let round: Vec<f64> = (0..tile.len()).map(|k| 0.5 * (tile[k] + next(k))).collect();
                tile.copy_from_slice(&round);
            }
        }
        values.truncate(self.n);
        values
    }

    fn boxes(&self, radius: i64) -> Vec<f64> {
        let offsets: Vec<(i64, i64)> =
            (-radius..=radius).flat_map(|r| (-radius..=radius).map(move |c| (r, c))).collect();
        self.cells(|row, column, height| {
            offsets.iter().map(|(r, c)| self.clamped(row + r, column + c, height)).sum()
        })
    }

    /// A volume of planes of m by m, its edges repeated.
    fn volume(&self) -> Vec<f64> {
        let (m, depth) = (self.m as i64, (self.n / self.m / self.m) as i64);
        let at = |z: i64, y: i64, x: i64| {
            let (z, y, x) = (z.clamp(0, depth - 1), y.clamp(0, m - 1), x.clamp(0, m - 1));
            self.x((z * m * m + y * m + x) as usize)
        };
        self.each(|i| {
            let (z, y, x) = (i as i64 / m / m, i as i64 / m % m, i as i64 % m);
            let around = [(0, 0, 1), (0, 0, -1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)];
            let sum: f64 = around.iter().map(|(dz, dy, dx)| at(z + dz, y + dy, x + dx)).sum();
            0.25 * at(z, y, x) + 0.125 * sum
        })
    }

    /// Tiles of 16 by 16, each m times the product of its two inputs.
    fn fragments(&self) -> Vec<f64> {
        self.each(|i| {
            let (base, row, column) = (i / 256 * 256, i % 256 / 16, i % 16);
            let terms = (0..16).map(|k| self.x(base + row * 16 + k) * self.y(base + k * 16 + column));
            terms.sum::<f64>() * self.m as f64
        })
    }

    /// Returns the result of this number of damped steps for each unit.
    fn damped(&self, steps: impl Fn(usize) -> usize) -> Vec<f64> {
        self.each(|i| (0..steps(i)).fold(self.x(i), |value, _| value * 0.75 + 0.125))
    }

    fn sorted(&self, tile: usize) -> Vec<f64> {
        let mut values = self.each(|i| self.x(i));
        values.chunks_mut(tile).for_each(|tile| tile.sort_by(f64::total_cmp));
        values
    }

    /// A row divided by its root mean square, times the second input.
    fn scaled(&self, row: &[f64]) -> Vec<f64> {
        let mean_square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        row.iter().enumerate().map(|(k, x)| x / (mean_square + 1e-5).sqrt() * self.y(k)).collect()
    }

    fn attention(&self) -> Vec<f64> {
        let vector = |second: bool, row: usize| -> Vec<f64> {
            (0..16).map(|d| Self::number(Element::F32, second, row * 16 + d)).collect()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let query = |i: usize| {
            let query = vector(false, i);
            let weights: Vec<f64> = (0..self.m).map(|k| dot(&query, &vector(true, k)).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sums = vec![0.0; 16];
            for (k, weight) in weights.iter().enumerate() {
                let value = vector(true, self.m + k);
                sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight / total * value);
            }
            sums
        };
        (0..self.n).flat_map(query).collect()
    }

    fn sparse(&self, entries: impl Fn(usize) -> usize, at: impl Fn(usize, usize) -> usize) -> Vec<f64> {
        self.each(|row| {
            let entry = |k| self.x(at(row, k)) * self.x(self.word(at(row, k)) % self.n);
            (0..entries(row)).map(entry).sum()
        })
    }

    fn constant(&self, index: impl Fn(usize, usize) -> usize) -> Vec<f64> {
        const TABLE: [f64; 16] = [
            0.5, -0.25, 0.125, 1.5, -1.0, 0.75, 2.0, -0.5, 0.375, 0.625, -1.25, 0.875, 1.125, -0.75, 0.25,
            1.0,
        ];
        self.each(|i| (0..self.m).fold(self.x(i), |sum, k| sum * 0.5 + TABLE[index(i, k) % 16]))
    }

    fn bodies(&self) -> Vec<f64> {
        self.each(|i| {
            let pull = |k| {
                let (dx, dy) = (self.x(k) - self.x(i), self.y(k) - self.y(i));
                dx * (dx * dx + dy * dy + 0.01).powf(-1.5)
            };
            (0..self.m).map(pull).sum()
        })
    }
}

/// Returns the output of `launch` of `kernel`.
pub fn of(kernel: &Kernel, launch: &Launch) -> Reference {
    let (n, m) = (launch.n as usize, launch.m as usize);
    let inputs = Inputs {
        kernel: *kernel,
        n,
        m,
        threads: launch.config.threads_per_block() as usize,
        blocks: launch.config.blocks() as usize,
    };
    let exact = |values| Reference { values, tolerance: 0.0 };
    let close = |values| Reference { values, tolerance: 2e-5 };
    let sums = |values, terms: usize| Reference { values, tolerance: 1e-6 * (terms as f64).sqrt().max(20.0) };
    let rough = |values| Reference { values, tolerance: 4e-3 };
    let half = |values| Reference { values, tolerance: 4e-3 };
    let i = &inputs;
    match kernel.name {
        "copy_f32" | "copy_f64" | "copy_f16" => exact(i.each(|k| i.x(k))),
        "copy_v4" => exact((0..4 * n).map(|k| i.x(k)).collect()),
        "axpy_f32" | "axpy_f64" => close(i.each(|k| 2.5 * i.x(k) + i.y(k))),
        "axpy_v4" => close((0..4 * n).map(|k| 2.5 * i.x(k) + i.y(k)).collect()),
        "store_f32" => exact(i.each(|k| (k % 1024 + m) as f64)),
        "load_f32" | "load_f32_unrolled" => sums(i.each(|k| (0..m).map(|j| i.x(j * n + k)).sum()), m),
        "bytes_widen" => {
            let byte = |k: usize| (word(k as u32 / 4, pool_seed(Element::U32, false)) >> (k % 4 * 8)) as u8;
            exact(i.each(|k| f64::from(u32::from(byte(k)) * 257)))
        }

        "stride_load" => exact(i.each(|k| i.x(k * m))),
        "stride_store" => exact(i.each(|k| i.x(k % m * (n / m) + k / m))),
        "gather_random" => exact(i.each(|k| i.x(i.word(k) % n))),
        "gather_window" => exact(i.each(|k| i.x((k / m * m + i.word(k) % m).min(n - 1)))),
        "scatter_random" => {
            let mut values = vec![0.0; n];
            (0..n).for_each(|k| values[(k as u32).wrapping_mul(2_654_435_761) as usize & (n - 1)] = i.x(k));
            exact(values)
        }
        "chase_global" => exact(i.each(|k| (0..m).fold(k, |at, step| (i.word(at) + step) & (n - 1)) as f64)),
        "chase_shared" => {
            exact(i.each(|k| (0..m).fold(k & 1023, |at, step| (i.word(at) + step) & 1023) as f64))
        }
        "tree_walk" => {
            let child = |node: usize, key: f64| 2 * node + if i.x(node) < key { 2 } else { 1 };
            exact(i.each(|k| (0..m).fold(0, |node, _| child(node, i.y(k))) as f64))
        }
        "local_array" => close(i.each(|k| {
            let mut own: Vec<f64> = (0..32).map(|j| i.x(k) * f64::from(j)).collect();
            let mut at = i.word(k) as u32;
            let mut step = || {
                at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let value = own[(at >> 27) as usize];
                own[(at >> 22) as usize & 31] = value * 0.5 + 0.25;
                value
            };
            (0..m).map(|_| step()).sum()
        })),
        "constant_uniform" => close(i.constant(|_, k| k)),
        "constant_divergent" => close(i.constant(|unit, k| i.word(unit) + 7 * k)),

        "fma_f32_1" | "fma_f64_1" => close(i.chains(1)),
        "fma_f32_4" => close(i.chains(4)),
        "fma_f64_8" | "fma_f64_8_capped" => close(i.chains(8)),
        "fma_f32_32" | "fma_f32_32_capped" => close(i.chains(32)),
        "fma_f32_96" => close(i.chains(96)),
        "half_fma" => {
            let chain = |seed: f64| (0..m).fold(seed, |value, _| value * 0.75 + 0.125);
            half((0..2 * n).map(|k| chain(i.x(k))).collect())
        }
        "integer_mad" => {
            exact(i.word_steps(|value, _| value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)))
        }
        "integer_bits" => {
            exact(i.word_steps(|value, k| value.rotate_left(7) ^ (value & k) ^ value.count_ones()))
        }
        "integer_divide" => exact(i.word_steps(|value, k| 0x9e37_79b9 / ((value & 1023) + 1) + k)),
        "divide_sqrt" => close(i.steps(|v, _| (v * v + 1.0).sqrt() / (2.0 + v * v))),
        "special_fast" => rough(i.steps(|v, _| 0.5 * v.sin() + 0.25 * (-v * v).exp())),
        "special_accurate" => close(i.steps(|v, _| 0.5 * v.sin() + 0.25 * (2.0 + v).ln())),
        "special_f64" => close(i.steps(|v, _| 0.5 * v.tanh() + 0.25 * (-v * v).exp())),
        "polynomial" => {
            let term = |degree: u32| 0.03 * f64::from(degree % 5);
            close(i.steps(|v, _| (0..16).fold(0.01, |sum, degree| sum * v * 0.5 + term(degree))))
        }

        "banks_stride" => close(i.tiles(|tile, t, _| (0..32).map(|k| tile((t * m + k) % i.threads)).sum())),
        "banks_broadcast" => close(i.tiles(|tile, _, _| (0..m).map(|k| tile(k % i.threads)).sum())),
        "async_tiles" => close(i.tiles(|tile, t, filled| (0..m).map(|k| tile((t + k) % filled)).sum())),
        "barrier_ring" => close(i.ring(i.threads)),
        "shuffle_ring" => close(i.ring(32)),

        "reduce_shared" | "reduce_shuffle" => sums(i.block_sums(|k| i.x(k)), n),
        "reduce_atomic" => sums(vec![(0..n).map(|k| i.x(k)).sum()], n),
        "dot_f64" => sums(i.block_sums(|k| i.x(k) * i.y(k)), 1),
        "scan_shared" => sums(i.scan(m), m),
        "scan_shuffle" => sums(i.scan(32), 32),
        "histogram_global" | "histogram_shared" => {
            exact(i.counters(m, |k| (i.word(k) % m, 1), u32::wrapping_add))
        }
        "atomic_add" => exact(i.counters(m.min(n), |k| (k % m, k as u32 & 7), u32::wrapping_add)),
        "atomic_max" => exact(i.counters(m.min(n), |k| (k % m, i.word(k) as u32), u32::max)),
        "atomic_swap" => exact(i.counters(m, |k| (i.word(k) % m, i.word(k) as u32), u32::max)),
        "vote_count" => {
            let positive = |w: usize| (w * 32..n.min(w * 32 + 32)).filter(|&k| i.x(k) > 0.0).count() as f64;
            exact((0..n.div_ceil(32)).map(positive).collect())
        }

        "stencil_line" | "stencil_line_shared" => close(i.each(|k| {
            let places = k as i64 - m as i64..=k as i64 + m as i64;
            places.map(|at| i.x(at.clamp(0, n as i64 - 1) as usize)).sum()
        })),
        "stencil_plane_5" => close(i.cells(|r, c, height| {
            let around = [(0, -1), (0, 1), (-1, 0), (1, 0)].map(|(dr, dc)| i.clamped(r + dr, c + dc, height));
            0.5 * i.clamped(r, c, height) + 0.125 * around.iter().sum::<f64>()
        })),
        "stencil_plane_box3" => close(i.boxes(1)),
        "stencil_plane_box7" => close(i.boxes(3)),
        "stencil_volume_7" => close(i.volume()),
        "convolution_3" => close(i.convolution(3)),
        "convolution_7" => close(i.convolution(7)),
        "convolution_5_tiled" => close(i.convolution(5)),
        "transpose_naive" | "transpose_conflicts" | "transpose_padded" => exact(i.transpose()),

        "product_naive"
        | "product_tiled_8"
        | "product_tiled_16"
        | "product_tiled_32"
        | "product_registers"
        | "product_registers_capped"
        | "tensor_1"
        | "tensor_4" => sums(i.product(), m),
        "tensor_chain" => sums(i.fragments(), 16 * m),
        "matvec_thread" | "matvec_warp" => {
            sums(i.rows(|row| vec![row.iter().enumerate().map(|(k, x)| x * i.y(k)).sum()]), m)
        }

        "branch_ways" => close(i.each(|k| {
            let way = 0.01 * (k % m) as f64;
            (0..64).fold(i.x(k), |value, _| value * 0.75 + way)
        })),
        "branch_loop" => close(i.damped(|k| i.word(k) % m)),
        "branch_warps" => close(i.damped(|k| if (k / 32).is_multiple_of(8) { m } else { 1 })),
        "collatz" => exact(i.each(|k| {
            let next = |&value: &usize| Some(if value % 2 == 0 { value / 2 } else { 3 * value + 1 });
            let steps =
                std::iter::successors(Some(i.word(k) % 4096 + 1), next).take_while(|&value| value != 1);
            steps.take(m).count() as f64
        })),
        "mandelbrot" => exact(i.each(|k| escape((i.x(k) as f32).mul_add(1.5, -0.5), i.y(k) as f32, m))),
        "bitonic_block" => exact(i.sorted(i.threads)),
        "bitonic_pass" => exact(i.each(|k| {
            let (own, other) = (i.x(k), i.x(k ^ m));
            if k & m == 0 { own.min(other) } else { own.max(other) }
        })),
        "insertion_sort" => exact(Inputs { n: 8 * n, ..inputs }.sorted(8)),

        "softmax_block" | "softmax_warp" => close(i.rows(|row| {
            let weights: Vec<f64> = row.iter().map(|x| x.exp()).collect();
            let total: f64 = weights.iter().sum();
            weights.iter().map(|weight| weight / total).collect()
        })),
        "layernorm_block" => close(i.rows(|row| {
            let mean = row.iter().sum::<f64>() / m as f64;
            i.scaled(&row.iter().map(|x| x - mean).collect::<Vec<_>>())
        })),
        "rmsnorm_warp" => close(i.rows(|row| i.scaled(row))),
        "gelu" => close(i.each(|k| {
            let value = i.x(k) + i.y(k % m);
            value * normal_below(value)
        })),
        "embedding" => exact((0..n * m).map(|k| i.x(i.word(k / m) % n * m + k % m)).collect()),
        "argmax_warp" => exact(i.rows(|row| {
            let first_largest = (0..m).fold(0, |best, k| if row[k] > row[best] { k } else { best });
            vec![first_largest as f64]
        })),
        "sparse_thread" | "sparse_warp" => sums(i.sparse(|row| i.word(row) % m + 1, |row, k| row * m + k), m),
        "sparse_columns" => sums(i.sparse(|_| m, |row, k| k * n + row), m),
        "recurrence" => {
            let mut state = vec![0.0; n];
            close(
                (0..n * m)
                    .map(|k| {
                        state[k % n] = state[k % n] * 0.9 + 0.1 * i.x(k);
                        state[k % n]
                    })
                    .collect(),
            )
        }
        "attention" | "attention_capped" => close(i.attention()),

        "bodies_global" | "bodies_shared" => Reference { values: i.bodies(), tolerance: 2e-4 },
        "monte_carlo" => exact(i.each(|k| inside(i.word(k) as u32 | 1, m))),
        "option_price" => Reference { values: i.each(|k| option_price(i.x(k), i.y(k))), tolerance: 1e-4 },
        "chacha" | "chacha_capped" => exact(i.each(|k| chacha(i.word(k) as u32, m))),
        "oscillator" => close(i.each(|k| oscillator(i.x(k), i.y(k), m))),
        "complex_powers" => close(i.each(|k| complex_powers(i.x(k), i.y(k), m))),
        "edit_distance" => exact(i.each(|k| edit_distance(i.word(k) as u64, m))),
        other => panic!("{other} has no reference"),
    }
}

/// Steps until a point leaves the circle.
fn escape(a: f32, b: f32, most: usize) -> f64 {
    let (mut re, mut im) = (0f32, 0f32);
    let mut step = || {
        let (re2, im2) = (re * re, im * im);
        let inside = re2 + im2 <= 4.0;
        (re, im) = ((re2 - im2) + a, (2.0 * re).mul_add(im, b));
        inside
    };
    (0..most).take_while(|_| step()).count() as f64
}

/// Points within the circle.
fn inside(mut state: u32, points: usize) -> f64 {
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 24) as f32
    };
    let mut point = || {
        let (a, b) = (draw(), draw());
        a.mul_add(a, b * b) < 1.0
    };
    (0..points).filter(|_| point()).count() as f64
}

/// The standard normal distribution, by its series around zero; for arguments up to 5.
fn normal_below(d: f64) -> f64 {
    let mut term = d;
    let mut sum = d;
    for k in 1..200 {
        term *= d * d / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 + sum * (-d * d / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

fn option_price(x: f64, y: f64) -> f64 {
    let (price, strike, rate, deviation) = (30.0 + 10.0 * x, 30.0 + 10.0 * y, 0.02f64, 0.3);
    let d1 = ((price / strike).ln() + rate + 0.5 * deviation * deviation) / deviation;
    price * normal_below(d1) - strike * (-rate).exp() * normal_below(d1 - deviation)
}

fn chacha(seed: u32, rounds: usize) -> f64 {
    let mut s: [u32; 16] = std::array::from_fn(|k| seed.wrapping_add((k as u32).wrapping_mul(0x9e37_79b9)));
    let mut mix = |a: usize, b: usize, c: usize, d: usize| {
        for (to, from, target, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
            s[to] = s[to].wrapping_add(s[from]);
            s[target] = (s[target] ^ s[to]).rotate_left(by);
        }
    };
    for _ in 0..rounds {
        (0..4).for_each(|k| mix(k, k + 4, k + 8, k + 12));
        (0..4).for_each(|k| mix(k, (k + 1) % 4 + 4, (k + 2) % 4 + 8, (k + 3) % 4 + 12));
    }
    s.iter().fold(0, |mixed, word| mixed ^ word).into()
}

/// The exact solution's fourth-order approximation: Runge and Kutta's classical method.
fn oscillator(place: f64, speed: f64, steps: usize) -> f64 {
    let slope = |[p, v]: [f64; 2]| [v, -p - 0.5 * v];
    let along = |[p, v]: [f64; 2], [dp, dv]: [f64; 2], by: f64| [p + by * dp, v + by * dv];
    let step = 0.05;
    let next = |state: [f64; 2]| {
        let k1 = slope(state);
        let k2 = slope(along(state, k1, step / 2.0));
        let k3 = slope(along(state, k2, step / 2.0));
        let k4 = slope(along(state, k3, step));
        std::array::from_fn(|d| state[d] + step / 6.0 * (k1[d] + 2.0 * k2[d] + 2.0 * k3[d] + k4[d]))
    };
    (0..steps).fold([place, speed], |state, _| next(state))[0]
}

fn complex_powers(x: f64, y: f64, steps: usize) -> f64 {
    let next = |(re, im): (f64, f64)| ((re * re - im * im) * 0.5 + 0.05, re * im + 0.1);
    let sequence = |c: i32| (0..steps).fold((0.5 * x + 0.01 * f64::from(c), 0.5 * y), |z, _| next(z));
    (0..8).map(sequence).map(|(re, im)| re + im).sum()
}

fn edit_distance(seed: u64, letters: usize) -> f64 {
    let first = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let second = first.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let letter = |string: u64, k: usize| (string >> (2 * k)) & 3;
    let mut table = vec![vec![0; letters + 1]; letters + 1];
    for j in 0..=letters {
        for k in 0..=letters {
            table[j][k] = match (j, k) {
                (0, k) => k,
                (j, 0) => j,
                (j, k) => {
                    let differs = usize::from(letter(first, k - 1) != letter(second, j - 1));
                    (table[j - 1][k] + 1).min(table[j][k - 1] + 1).min(table[j - 1][k - 1] + differs)
                }
            };
        }
    }
    table[letters][letters] as f64
}
