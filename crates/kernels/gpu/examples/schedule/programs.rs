//! The six programs: their data, their work, and their results in f64.
//!
//! A lane is the stream on which a person would put the work: independent branches have different
//! lanes. Work on buffers of another lane is ordered by the buffers, as always in this crate.

use apex_gpu::{Buffer, Device, Dim3, Kernel, Module, Result};

use crate::Way;

/// A program whose work can be stated in any way.
pub trait Program {
    fn name(&self) -> &'static str;
    /// States the work; run again, it leaves the same.
    fn state(&mut self, way: &mut Way<'_>) -> Result<()>;
    /// Overwrites the result.
    fn poison(&mut self) -> Result<()>;
    fn result(&self) -> Result<Vec<f32>>;
    fn expected(&self) -> Vec<f64>;
}

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        /// The kernels of `kernels.cu`.
        pub struct Kernels { $($name: Kernel),* }

        impl Kernels {
            pub fn new(device: &Device) -> Result<Kernels> {
                let module: Module = device.load_ptx(include_str!("kernels.ptx"))?;
                Ok(Kernels { $($name: module.kernel(stringify!($name))?),* })
            }
        }
    };
}

kernels! {
    square, partial_difference, partial_sum, divide, black_scholes, blur, sobel, maximum, minimum, extend, unsharpen,
    combine, standardize, linear, softmax, add, gather, convolve, pool, average,
}

type Make = for<'k> fn(&Device, &'k Kernels, usize) -> Result<Box<dyn Program + 'k>>;

/// Makes each program in a size: 0 for a try, 1 for kernels that leave much of a GPU free, 2 for
/// ones that do not.
pub const ALL: [Make; 6] = [
    |device, kernels, scale| Ok(Box::new(Squares::new(device, kernels, scale)?)),
    |device, kernels, scale| Ok(Box::new(Options::new(device, kernels, scale)?)),
    |device, kernels, scale| Ok(Box::new(Images::new(device, kernels, scale)?)),
    |device, kernels, scale| Ok(Box::new(Ensemble::new(device, kernels, scale)?)),
    |device, kernels, scale| Ok(Box::new(Hits::new(device, kernels, scale)?)),
    |device, kernels, scale| Ok(Box::new(Network::new(device, kernels, scale)?)),
];

/// Threads of a block, and blocks of partial sums.
const THREADS: u32 = 256;
const PARTS: u32 = 128;

/// Numbers from 0 to 1 that look random.
fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..len).map(next).collect()
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// States a launch of one thread for each of so many elements.
macro_rules! over {
    ($way:ident, $lane:expr, $kernel:expr, $n:expr, $($argument:expr),*) => {{
        let launch = $kernel.over($n).block(THREADS).on($way.stream($lane));
        $(let launch = launch.arg($argument);)*
        // SAFETY: the kernel accesses the elements that its arguments count, which the buffers
        // have.
        unsafe { $way.launch(launch)? }
    }};
}

/// States a launch of blocks.
macro_rules! blocks {
    ($way:ident, $lane:expr, $kernel:expr, $grid:expr, $block:expr, $($argument:expr),*) => {{
        let launch = $kernel.launch($grid, $block).on($way.stream($lane));
        $(let launch = launch.arg($argument);)*
        // SAFETY: as of `over`.
        unsafe { $way.launch(launch)? }
    }};
}

/// The sum of the differences of squares.
struct Squares<'k> {
    k: &'k Kernels,
    n: u32,
    inputs: [Vec<f32>; 2],
    x: [Buffer<f32>; 2],
    squares: [Buffer<f32>; 2],
    parts: Buffer<f32>,
    sum: Buffer<f32>,
}

impl<'k> Squares<'k> {
    fn new(device: &Device, k: &'k Kernels, scale: usize) -> Result<Squares<'k>> {
        let n = [1 << 10, 1 << 18, 1 << 24][scale];
        // (One is greater, or the difference would be that of two nearly equal sums.)
        let inputs = [random(1, n).iter().map(|x| x + 1.0).collect(), random(2, n)];
        Ok(Squares {
            k,
            n: n as u32,
            x: [device.upload(&inputs[0])?, device.upload(&inputs[1])?],
            inputs,
            squares: [device.zeros(n)?, device.zeros(n)?],
            parts: device.zeros(PARTS as usize)?,
            sum: device.zeros(1)?,
        })
    }
}

impl Program for Squares<'_> {
    fn name(&self) -> &'static str {
        "squares"
    }

    fn state(&mut self, way: &mut Way<'_>) -> Result<()> {
        let Squares { k, n, x, squares: [first, second], parts, sum, .. } = self;
        over!(way, 0, k.square, *n as usize, &x[0], &mut *first, *n);
        over!(way, 1, k.square, *n as usize, &x[1], &mut *second, *n);
        blocks!(way, 0, k.partial_difference, PARTS, THREADS, &*first, &*second, &mut *parts, *n);
        blocks!(way, 0, k.partial_sum, 1, THREADS, &*parts, &mut *sum, PARTS);
        Ok(())
    }

    fn poison(&mut self) -> Result<()> {
        self.sum.write(&[f32::NAN])
    }

    fn result(&self) -> Result<Vec<f32>> {
        self.sum.to_vec()
    }

    fn expected(&self) -> Vec<f64> {
        let sum = |values: &[f32]| doubles(values).iter().map(|x| x * x).sum::<f64>();
        vec![sum(&self.inputs[0]) - sum(&self.inputs[1])]
    }
}

/// Prices of options on ten stocks.
struct Options<'k> {
    k: &'k Kernels,
    n: u32,
    inputs: Vec<Vec<f32>>,
    prices: Vec<Buffer<f32>>,
    values: Vec<Buffer<f32>>,
}

impl<'k> Options<'k> {
    fn new(device: &Device, k: &'k Kernels, scale: usize) -> Result<Options<'k>> {
        let n = [1 << 8, 1 << 14, 1 << 20][scale];
        let inputs: Vec<Vec<f32>> =
            (0..10).map(|stock| random(10 + stock, n).iter().map(|x| x + 0.5).collect()).collect();
        Ok(Options {
            k,
            n: n as u32,
            prices: inputs.iter().map(|input| device.upload(input)).collect::<Result<_>>()?,
            values: inputs.iter().map(|_| device.zeros(n)).collect::<Result<_>>()?,
            inputs,
        })
    }
}

/// The complementary error function: its series, or its continued fraction where that is better.
fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    let scale = 2.0 / std::f64::consts::PI.sqrt();
    if x < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..120 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return 1.0 - scale * sum;
    }
    let fraction = (1..60).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    scale / 2.0 * (-x * x).exp() / fraction
}

impl Program for Options<'_> {
    fn name(&self) -> &'static str {
        "options"
    }

    fn state(&mut self, way: &mut Way<'_>) -> Result<()> {
        for (lane, (price, value)) in self.prices.iter().zip(&mut self.values).enumerate() {
            over!(way, lane, self.k.black_scholes, self.n as usize, price, value, self.n);
        }
        Ok(())
    }

    fn poison(&mut self) -> Result<()> {
        let wrong = vec![f32::NAN; self.n as usize];
        self.values.iter_mut().try_for_each(|values| values.write(&wrong))
    }

    fn result(&self) -> Result<Vec<f32>> {
        Ok(self.values.iter().map(Buffer::to_vec).collect::<Result<Vec<_>>>()?.concat())
    }

    fn expected(&self) -> Vec<f64> {
        let price = |s: f64| {
            let d1 = (s.ln() + 0.095) / 0.3;
            let normal = |d: f64| 0.5 * erfc(-d * std::f64::consts::FRAC_1_SQRT_2);
            s * normal(d1) - (-0.05f64).exp() * normal(d1 - 0.3)
        };
        self.inputs.concat().iter().map(|s| price(f64::from(*s))).collect()
    }
}

/// Sharpens what is in focus of an image: two masks and three blurred images, which meet.
struct Images<'k> {
    k: &'k Kernels,
    size: i32,
    input: Vec<f32>,
    image: Buffer<f32>,
    small: Buffer<f32>,
    large: Buffer<f32>,
    blurred: Buffer<f32>,
    sharp: Buffer<f32>,
    small_mask: Buffer<f32>,
    large_mask: Buffer<f32>,
    low: Buffer<u32>,
    high: Buffer<u32>,
    combined: Buffer<f32>,
    out: Buffer<f32>,
}

impl<'k> Images<'k> {
    fn new(device: &Device, k: &'k Kernels, scale: usize) -> Result<Images<'k>> {
        let size = [24, 256, 1024][scale];
        let pixels = size * size;
        let input = random(20, pixels);
        let zeros = || device.zeros::<f32>(pixels);
        Ok(Images {
            k,
            size: size as i32,
            image: device.upload(&input)?,
            input,
            small: zeros()?,
            large: zeros()?,
            blurred: zeros()?,
            sharp: zeros()?,
            small_mask: zeros()?,
            large_mask: zeros()?,
            low: device.zeros(1)?,
            high: device.zeros(1)?,
            combined: zeros()?,
            out: zeros()?,
        })
    }
}

impl Program for Images<'_> {
    fn name(&self) -> &'static str {
        "images"
    }

    fn state(&mut self, way: &mut Way<'_>) -> Result<()> {
        let (k, size) = (self.k, self.size);
        let (n, side) = (size as u32 * size as u32, (size as u32).div_ceil(16));
        let (grid, block) = (Dim3::from((side, side)), Dim3::from((16, 16)));
        blocks!(way, 0, k.blur, grid, block, &self.image, &mut self.small, size, 1i32);
        blocks!(way, 1, k.blur, grid, block, &self.image, &mut self.large, size, 3i32);
        blocks!(way, 2, k.blur, grid, block, &self.image, &mut self.blurred, size, 2i32);
        blocks!(way, 0, k.sobel, grid, block, &self.small, &mut self.small_mask, size);
        blocks!(way, 1, k.sobel, grid, block, &self.large, &mut self.large_mask, size);
        way.clear(3, &mut self.low)?;
        way.clear(1, &mut self.high)?;
        blocks!(way, 3, k.minimum, PARTS, THREADS, &self.large_mask, &mut self.low, n);
        blocks!(way, 1, k.maximum, PARTS, THREADS, &self.large_mask, &mut self.high, n);
        over!(way, 1, k.extend, n as usize, &mut self.large_mask, &self.low, &self.high, n);
        over!(way, 2, k.unsharpen, n as usize, &self.image, &self.blurred, &mut self.sharp, 0.5f32, n);
        let (sharp, combined) = (&self.sharp, &mut self.combined);
        over!(way, 1, k.combine, n as usize, sharp, &self.large, &self.large_mask, &mut *combined, n);
        over!(way, 0, k.combine, n as usize, &self.image, &*combined, &self.small_mask, &mut self.out, n);
        Ok(())
    }

    fn poison(&mut self) -> Result<()> {
        self.out.write(&vec![f32::NAN; self.input.len()])
    }

    fn result(&self) -> Result<Vec<f32>> {
        self.out.to_vec()
    }

    fn expected(&self) -> Vec<f64> {
        let (size, image) = (self.size, doubles(&self.input));
        let at = |image: &[f64], x: i32, y: i32| {
            image[(y.clamp(0, size - 1) * size + x.clamp(0, size - 1)) as usize]
        };
        let each = |value: &dyn Fn(i32, i32) -> f64| -> Vec<f64> {
            (0..size * size).map(|i| value(i % size, i / size)).collect()
        };
        let blur = |radius: i32| {
            each(&|x, y| {
                let sum: f64 = (-radius..=radius)
                    .flat_map(|dy| (-radius..=radius).map(move |dx| (dx, dy)))
                    .map(|(dx, dy)| at(&image, x + dx, y + dy))
                    .sum();
                sum / f64::from((2 * radius + 1).pow(2))
            })
        };
        let sobel = |from: &[f64]| {
            each(&|x, y| {
                let side = |d: i32| if d == 0 { 2.0 } else { 1.0 };
                let across: f64 =
                    (-1..=1).map(|d| side(d) * (at(from, x + 1, y + d) - at(from, x - 1, y + d))).sum();
                let down: f64 =
                    (-1..=1).map(|d| side(d) * (at(from, x + d, y + 1) - at(from, x + d, y - 1))).sum();
                across.hypot(down)
            })
        };
        let (small, large, blurred) = (blur(1), blur(3), blur(2));
        let (small_mask, mut mask) = (sobel(&small), sobel(&large));
        let low = mask.iter().copied().fold(f64::INFINITY, f64::min);
        let high = mask.iter().copied().fold(0.0, f64::max);
        mask.iter_mut().for_each(|x| *x = (5.0 * (*x - low) / (high - low)).min(1.0));
        let combine = |a: f64, b: f64, mask: f64| a * mask + b * (1.0 - mask);
        (0..image.len())
            .map(|i| {
                let sharp = (image[i] * 1.5 - blurred[i] * 0.5).clamp(0.0, 1.0);
                combine(image[i], combine(sharp, large[i], mask[i]), small_mask[i])
            })
            .collect()
    }
}

/// Two classifiers of the same rows, whose answers are added.
struct Ensemble<'k> {
    k: &'k Kernels,
    rows: u32,
    input: Vec<f32>,
    weights: [Vec<f32>; 2],
    x: Buffer<f32>,
    scaled: Buffer<f32>,
    w: [Buffer<f32>; 2],
    bias: Buffer<f32>,
    ridge: Buffer<f32>,
    bayes: Buffer<f32>,
    out: Buffer<f32>,
}

const FEATURES: usize = 64;
const CLASSES: usize = 10;

impl<'k> Ensemble<'k> {
    fn new(device: &Device, k: &'k Kernels, scale: usize) -> Result<Ensemble<'k>> {
        let rows = [1 << 6, 1 << 12, 1 << 16][scale];
        let input = random(30, rows * FEATURES);
        let weights = [31, 32]
            .map(|seed| random(seed, CLASSES * FEATURES).iter().map(|w| w - 0.5).collect::<Vec<f32>>());
        let out = || device.zeros::<f32>(rows * CLASSES);
        Ok(Ensemble {
            k,
            rows: rows as u32,
            x: device.upload(&input)?,
            scaled: device.zeros(input.len())?,
            w: [device.upload(&weights[0])?, device.upload(&weights[1])?],
            input,
            weights,
            bias: device.zeros(CLASSES)?,
            ridge: out()?,
            bayes: out()?,
            out: out()?,
        })
    }
}

impl Program for Ensemble<'_> {
    fn name(&self) -> &'static str {
        "ensemble"
    }

    fn state(&mut self, way: &mut Way<'_>) -> Result<()> {
        let (k, rows) = (self.k, self.rows);
        let (f, c) = (FEATURES as u32, CLASSES as u32);
        let (n, all, each) = (rows * c, (rows * c) as usize, rows as usize);
        over!(way, 0, k.standardize, (rows * f) as usize, &self.x, &mut self.scaled, rows * f);
        over!(way, 1, k.linear, all, &self.x, &self.w[1], &self.bias, &mut self.bayes, rows, f, c);
        over!(way, 0, k.linear, all, &self.scaled, &self.w[0], &self.bias, &mut self.ridge, rows, f, c);
        over!(way, 1, k.softmax, each, &mut self.bayes, rows, c);
        over!(way, 0, k.softmax, each, &mut self.ridge, rows, c);
        over!(way, 0, k.add, all, &self.ridge, &self.bayes, &mut self.out, n);
        Ok(())
    }

    fn poison(&mut self) -> Result<()> {
        self.out.write(&vec![f32::NAN; self.rows as usize * CLASSES])
    }

    fn result(&self) -> Result<Vec<f32>> {
        self.out.to_vec()
    }

    fn expected(&self) -> Vec<f64> {
        let (x, w) = (doubles(&self.input), self.weights.each_ref().map(|w| doubles(w)));
        let answer = |row: &[f64], w: &[f64], scaled: bool| -> Vec<f64> {
            let value = |x: f64| if scaled { (x - 0.5) * 12f64.sqrt() } else { x };
            let sums: Vec<f64> =
                w.chunks(FEATURES).map(|w| row.iter().zip(w).map(|(x, w)| value(*x) * w).sum()).collect();
            let most = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = sums.iter().map(|sum| (sum - most).exp()).sum();
            sums.iter().map(|sum| (sum - most).exp() / total).collect()
        };
        let add = |row: &[f64]| {
            let (first, second) = (answer(row, &w[0], true), answer(row, &w[1], false));
            first.into_iter().zip(second).map(|(a, b)| a + b).collect::<Vec<f64>>()
        };
        x.chunks(FEATURES).flat_map(add).collect()
    }
}

/// Hubs and authorities of a graph: two products of sparse matrices in each of some rounds.
struct Hits<'k> {
    k: &'k Kernels,
    n: u32,
    /// The graph's matrix and its transpose: starts of rows, columns.
    matrices: [(Vec<u32>, Vec<u32>); 2],
    starts: [Buffer<u32>; 2],
    columns: [Buffer<u32>; 2],
    ones: Buffer<f32>,
    /// Hubs and authorities.
    values: [Buffer<f32>; 2],
    products: [Buffer<f32>; 2],
    parts: [Buffer<f32>; 2],
    sums: [Buffer<f32>; 2],
}

const ROUNDS: usize = 5;
const DEGREE: usize = 8;

impl<'k> Hits<'k> {
    fn new(device: &Device, k: &'k Kernels, scale: usize) -> Result<Hits<'k>> {
        let n: usize = [1 << 8, 1 << 14, 1 << 19][scale];
        let columns: Vec<u32> =
            random(40, n * DEGREE).iter().map(|x| (x * n as f32) as u32 % n as u32).collect();
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); n];
        columns.iter().enumerate().for_each(|(i, column)| rows[*column as usize].push((i / DEGREE) as u32));
        let mut starts = vec![0];
        rows.iter().for_each(|row| starts.push(starts[starts.len() - 1] + row.len() as u32));
        let plain = (0..=n).map(|row| (row * DEGREE) as u32).collect();
        let matrices = [(plain, columns), (starts, rows.concat())];
        let ones = vec![1.0f32; n];
        let two = |len: usize| -> Result<[Buffer<f32>; 2]> { Ok([device.zeros(len)?, device.zeros(len)?]) };
        Ok(Hits {
            k,
            n: n as u32,
            starts: [device.upload(&matrices[0].0)?, device.upload(&matrices[1].0)?],
            columns: [device.upload(&matrices[0].1)?, device.upload(&matrices[1].1)?],
            matrices,
            ones: device.upload(&ones)?,
            values: two(n)?,
            products: two(n)?,
            parts: two(PARTS as usize)?,
            sums: two(1)?,
        })
    }
}

impl Program for Hits<'_> {
    fn name(&self) -> &'static str {
        "hits"
    }

    fn state(&mut self, way: &mut Way<'_>) -> Result<()> {
        let (k, n) = (self.k, self.n);
        for side in 0..2 {
            way.copy(side, &mut self.values[side], &self.ones)?;
        }
        for _ in 0..ROUNDS {
            for side in 0..2 {
                // Hubs sum what they point to, authorities what points to them.
                let (starts, columns) = (&self.starts[side], &self.columns[side]);
                let (from, to) = (&self.values[1 - side], &mut self.products[side]);
                over!(way, side, k.gather, n as usize, starts, columns, from, &mut *to, n);
                let (parts, sum) = (&mut self.parts[side], &mut self.sums[side]);
                blocks!(way, side, k.partial_sum, PARTS, THREADS, &*to, &mut *parts, n);
                blocks!(way, side, k.partial_sum, 1, THREADS, &*parts, &mut *sum, PARTS);
            }
            for side in 0..2 {
                let (product, sum) = (&self.products[side], &self.sums[side]);
                over!(way, side, k.divide, n as usize, product, sum, &mut self.values[side], n);
            }
        }
        Ok(())
    }

    fn poison(&mut self) -> Result<()> {
        let wrong = vec![f32::NAN; self.n as usize];
        self.values.iter_mut().try_for_each(|values| values.write(&wrong))
    }

    fn result(&self) -> Result<Vec<f32>> {
        Ok([self.values[0].to_vec()?, self.values[1].to_vec()?].concat())
    }

    fn expected(&self) -> Vec<f64> {
        let n = self.n as usize;
        let product = |(starts, columns): &(Vec<u32>, Vec<u32>), x: &[f64]| -> Vec<f64> {
            let row = |i: usize| starts[i] as usize..starts[i + 1] as usize;
            let sums: Vec<f64> =
                (0..n).map(|i| columns[row(i)].iter().map(|column| x[*column as usize]).sum()).collect();
            let total: f64 = sums.iter().sum();
            sums.iter().map(|sum| sum / total).collect()
        };
        let mut values = [vec![1.0; n], vec![1.0; n]];
        for _ in 0..ROUNDS {
            values = [product(&self.matrices[0], &values[1]), product(&self.matrices[1], &values[0])];
        }
        values.concat()
    }
}

/// Two towers of convolutions over two images, which meet in a dense layer.
struct Network<'k> {
    k: &'k Kernels,
    size: i32,
    inputs: [Vec<f32>; 2],
    weights: [Vec<f32>; 3],
    images: [Buffer<f32>; 2],
    w: [Buffer<f32>; 3],
    bias: Buffer<f32>,
    first: [Buffer<f32>; 2],
    pooled: [Buffer<f32>; 2],
    second: [Buffer<f32>; 2],
    means: Buffer<f32>,
    out: Buffer<f32>,
}

/// Channels behind the first and the second convolution.
const CHANNELS: [usize; 2] = [8, 16];

impl<'k> Network<'k> {
    fn new(device: &Device, k: &'k Kernels, scale: usize) -> Result<Network<'k>> {
        let size = [16, 64, 256][scale];
        let pixels = size * size;
        let inputs = [random(50, pixels), random(51, pixels)];
        let lens = [CHANNELS[0] * 9, CHANNELS[0] * CHANNELS[1] * 9, CLASSES * 2 * CHANNELS[1]];
        let mut seed = 52..;
        let weights = lens
            .map(|len| random(seed.next().unwrap_or(0), len).iter().map(|w| w - 0.4).collect::<Vec<f32>>());
        let two = |len: usize| -> Result<[Buffer<f32>; 2]> { Ok([device.zeros(len)?, device.zeros(len)?]) };
        Ok(Network {
            k,
            size: size as i32,
            images: [device.upload(&inputs[0])?, device.upload(&inputs[1])?],
            w: [device.upload(&weights[0])?, device.upload(&weights[1])?, device.upload(&weights[2])?],
            inputs,
            weights,
            bias: device.zeros(CLASSES)?,
            first: two(CHANNELS[0] * pixels)?,
            pooled: two(CHANNELS[0] * pixels / 4)?,
            second: two(CHANNELS[1] * pixels / 4)?,
            means: device.zeros(2 * CHANNELS[1])?,
            out: device.zeros(CLASSES)?,
        })
    }
}

/// A convolution in f64, as `convolve` computes it.
fn convolve(image: &[f64], w: &[f64], size: i32, from: usize, to: usize) -> Vec<f64> {
    let pixels = (size * size) as usize;
    let value = |i: usize| {
        let (c, x, y) = (i / pixels, (i % pixels) as i32 % size, (i % pixels) as i32 / size);
        let mut sum = 0.0;
        for channel in 0..from {
            for k in 0..9 {
                let (u, v) = (x + k % 3 - 1, y + k / 3 - 1);
                if (0..size).contains(&u) && (0..size).contains(&v) {
                    let weight = w[(c * from + channel) * 9 + k as usize];
                    sum += image[channel * pixels + (v * size + u) as usize] * weight;
                }
            }
        }
        sum.max(0.0)
    };
    (0..to * pixels).map(value).collect()
}

impl Program for Network<'_> {
    fn name(&self) -> &'static str {
        "network"
    }

    fn state(&mut self, way: &mut Way<'_>) -> Result<()> {
        let (k, size, half) = (self.k, self.size, self.size / 2);
        let grid = |size: i32, channels: usize| {
            Dim3::from(((size as u32).div_ceil(16), (size as u32).div_ceil(16), channels as u32))
        };
        let (block, [one, two]) = (Dim3::from((16, 16)), CHANNELS);
        for tower in 0..2 {
            let first = &mut self.first[tower];
            let (image, w) = (&self.images[tower], &self.w);
            blocks!(
                way,
                tower,
                k.convolve,
                grid(size, one),
                block,
                image,
                &w[0],
                &mut *first,
                size,
                1i32,
                one as i32
            );
            let pooled = &mut self.pooled[tower];
            blocks!(way, tower, k.pool, grid(half, one), block, &*first, &mut *pooled, half);
            let second = &mut self.second[tower];
            let (from, to) = (one as i32, two as i32);
            blocks!(
                way,
                tower,
                k.convolve,
                grid(half, two),
                block,
                &*pooled,
                &w[1],
                &mut *second,
                half,
                from,
                to
            );
            let means = self.means.slice_mut(tower * two..(tower + 1) * two);
            blocks!(way, tower, k.average, two as u32, THREADS, &*second, means, (half * half) as u32);
        }
        let (features, classes) = (2 * two as u32, CLASSES as u32);
        over!(
            way,
            0,
            k.linear,
            CLASSES,
            &self.means,
            &self.w[2],
            &self.bias,
            &mut self.out,
            1u32,
            features,
            classes
        );
        Ok(())
    }

    fn poison(&mut self) -> Result<()> {
        self.out.write(&[f32::NAN; CLASSES])
    }

    fn result(&self) -> Result<Vec<f32>> {
        self.out.to_vec()
    }

    fn expected(&self) -> Vec<f64> {
        let (size, half) = (self.size, self.size / 2);
        let w = self.weights.each_ref().map(|w| doubles(w));
        let tower = |image: &Vec<f32>| -> Vec<f64> {
            let first = convolve(&doubles(image), &w[0], size, 1, CHANNELS[0]);
            let pixels = (half * half) as usize;
            let pooled: Vec<f64> = (0..CHANNELS[0] * pixels)
                .map(|i| {
                    let (c, x, y) = (i / pixels, i % pixels % half as usize, i % pixels / half as usize);
                    let corner = c * 4 * pixels + 2 * y * size as usize + 2 * x;
                    let four = [corner, corner + 1, corner + size as usize, corner + size as usize + 1];
                    four.map(|at| first[at]).into_iter().fold(0.0, f64::max)
                })
                .collect();
            let second = convolve(&pooled, &w[1], half, CHANNELS[0], CHANNELS[1]);
            second.chunks(pixels).map(|channel| channel.iter().sum::<f64>() / pixels as f64).collect()
        };
        let means: Vec<f64> = self.inputs.iter().flat_map(tower).collect();
        w[2].chunks(means.len()).map(|w| w.iter().zip(&means).map(|(w, x)| w * x).sum()).collect()
    }
}
