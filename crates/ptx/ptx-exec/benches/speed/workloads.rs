//! The workloads: each as a kernel and as its peers, on data of its own.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::LazyLock;

use std::sync::atomic::AtomicBool;

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::{Engine, KernelId, LaunchParams, LaunchStats, Linked, WatchOptions, watch};

use crate::device::{Device, pack};
use crate::native::{self, Target, View};

/// The way in which a kernel is run.
#[derive(Clone, Copy)]
pub enum How {
    Plain,
    /// Without machine code.
    Interpreted,
    Watched(WatchOptions),
}

/// Something to measure.
pub struct Workload {
    pub name: &'static str,
    /// The kind of workload, and its size.
    pub about: String,
    /// The goal for the kernel's time, as a multiple of the peer's.
    pub goal: Option<f64>,
    /// Runs the kernel on this number of threads, watched according to the options.
    pub kernel: Box<dyn Fn(usize, How) -> LaunchStats>,
    /// Runs the peer on this number of threads.
    pub peer: Box<dyn Fn(Target, usize)>,
}

/// A launch that does nothing.
pub struct EmptyLaunch {
    pub about: &'static str,
    pub blocks: u32,
    pub run: Box<dyn Fn(usize) -> LaunchStats>,
}

const KERNELS: &str = include_str!("kernels.ptx");

/// The memory that kernels work on.
static DEVICE: LazyLock<Device> = LazyLock::new(Device::default);

/// A kernel of the PTX with its parameters.
struct Launch {
    linked: Linked,
    interpreted: Linked,
    kernel: KernelId,
    params: Vec<u8>,
    grid: [u32; 3],
    block: [u32; 3],
}

impl Launch {
    fn new(name: &str, grid: [u32; 3], block: [u32; 3], values: &[Vec<u8>]) -> Launch {
        let linked = DEVICE.load(KERNELS);
        let kernel = linked.program().kernel(name).expect("the PTX has the kernel");
        let params = pack(&linked, kernel, values);
        let interpreted = DEVICE.load(KERNELS).with_engine(Engine::Interpreter);
        Launch { linked, interpreted, kernel, params, grid, block }
    }

    fn run(&self, workers: usize) -> LaunchStats {
        self.run_by(workers, How::Plain)
    }

    fn run_by(&self, workers: usize, how: How) -> LaunchStats {
        let params = LaunchParams {
            config: LaunchConfig::new(self.grid, self.block),
            cooperative: false,
            stack: 1024,
            workers,
            params: &self.params,
        };
        let outcome = match how {
            How::Plain => DEVICE.run(&self.linked, self.kernel, &params),
            How::Interpreted => DEVICE.run(&self.interpreted, self.kernel, &params),
            How::Watched(options) => {
                watch(&self.linked, self.kernel, &params, &*DEVICE, &AtomicBool::new(false), options).0
            }
        };
        outcome.expect("the kernel runs")
    }
}

fn long(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn word(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn single(value: f32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// Random numbers in `[-1, 1)`.
fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.signed()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(address: u64, count: usize) -> Vec<f32> {
    let bytes = DEVICE.download(address, 4 * count);
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

/// Stops the benchmark if a result is further from the reference than `bound`, relative to `scale`.
fn check(what: &str, found: &[f32], expected: impl Iterator<Item = (f64, f64)>, bound: f64) {
    for (index, (&found, (expected, scale))) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs() / scale;
        assert!(error <= bound, "{what}: element {index} is {found}, not {expected}");
    }
}

/// Runs `work` on parts of a slice, one on each of `threads` threads; it also gets the index of the
/// part's first unit.
fn in_parts<T: Send>(slice: &mut [T], unit: usize, threads: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let units = (slice.len() / unit).div_ceil(threads);
    std::thread::scope(|scope| {
        let work = &work;
        let mut parts = slice.chunks_mut(units * unit).enumerate();
        let first = parts.next();
        for (index, part) in parts {
            scope.spawn(move || work(index * units, part));
        }
        if let Some((_, part)) = first {
            work(0, part);
        }
    });
}

/// Makes a workload.
pub type Make = fn() -> Workload;

/// The workloads by name; making one checks what its kernel and its peer compute.
pub const ALL: [(&str, Make); 6] = [
    ("saxpy", || saxpy("saxpy", 1 << 24, Some(3.0))),
    ("saxpy_in_cache", || saxpy("saxpy_in_cache", 1 << 17, None)),
    ("fma_chains", fma_chains),
    ("matmul_tiled", matmul),
    ("mandelbrot", mandelbrot),
    ("reduce_shuffle", reduction),
];

fn saxpy(name: &'static str, n: usize, goal: Option<f64>) -> Workload {
    let a = 0.75f32;
    let (x, y) = (random(1, n), random(2, n));
    let (device_x, device_y) = (DEVICE.upload(&bytes(&x)), DEVICE.upload(&bytes(&y)));
    let values = [single(a), long(device_x), long(device_y), word(n as u32)];
    let launch = Launch::new("saxpy", [(n as u32).div_ceil(256), 1, 1], [256, 1, 1], &values);
    launch.run(2);
    let expected = |x: &f32, y: &f32| {
        let exact = f64::from(a) * f64::from(*x) + f64::from(*y);
        (exact, exact.abs().max(1e-3))
    };
    let references: Vec<_> = x.iter().zip(&y).map(|(x, y)| expected(x, y)).collect();
    check("saxpy", &floats(device_y, n), references.iter().copied(), 1e-4);
    let mut native_y = y.clone();
    native::saxpy(Target::Default, a, &x, &mut native_y);
    check("saxpy in Rust", &native_y, references.iter().copied(), 1e-4);
    let native_y = RefCell::new(native_y);
    Workload {
        name,
        about: format!("memory: {} Ki elements, 2 arrays", n >> 10),
        goal,
        kernel: Box::new(move |workers, how| launch.run_by(workers, how)),
        peer: Box::new(move |target, threads| {
            in_parts(&mut native_y.borrow_mut(), 1, threads, |first, part| {
                native::saxpy(target, a, &x[first..first + part.len()], part);
            });
        }),
    }
}

fn fma_chains() -> Workload {
    let (n, rounds, b, c) = (1 << 13, 256, 0.9375f32, 0.03125f32);
    let start = random(3, n);
    let (input, output) = (DEVICE.upload(&bytes(&start)), DEVICE.allocate(4 * n as u64, true));
    let values = [long(input), long(output), single(b), single(c), word(rounds)];
    let launch = Launch::new("fma_chains", [n as u32 / 256, 1, 1], [256, 1, 1], &values);
    launch.run(2);
    let exact: Vec<_> = start
        .iter()
        .map(|&start| {
            let chain = |k: u32| {
                let mut value = f64::from(start) + f64::from(k);
                for _ in 0..4 * rounds {
                    value = value * f64::from(b) + f64::from(c);
                }
                value
            };
            ((0..8).map(chain).sum::<f64>(), 1.0)
        })
        .collect();
    check("fma_chains", &floats(output, n), exact.iter().copied(), 1e-4);
    let mut native_out = vec![0.0; n];
    native::fma_chains(Target::Default, &start, &mut native_out, b, c, rounds);
    check("fma_chains in Rust", &native_out, exact.iter().copied(), 1e-4);
    let native_out = RefCell::new(native_out);
    Workload {
        name: "fma_chains",
        about: format!("registers: {n} threads, 8 chains of {} multiply-adds", 4 * rounds),
        goal: Some(5.0),
        kernel: Box::new(move |workers, how| launch.run_by(workers, how)),
        peer: Box::new(move |target, threads| {
            in_parts(&mut native_out.borrow_mut(), 8, threads, |first, part| {
                native::fma_chains(target, &start[8 * first..8 * first + part.len()], part, b, c, rounds);
            });
        }),
    }
}

fn matmul() -> Workload {
    let n = 512;
    let (a, b) = (random(4, n * n), random(5, n * n));
    let (device_a, device_b) = (DEVICE.upload(&bytes(&a)), DEVICE.upload(&bytes(&b)));
    let device_c = DEVICE.allocate(4 * (n * n) as u64, true);
    let values = [long(device_a), long(device_b), long(device_c), word(n as u32)];
    let side = (n / native::TILE) as u32;
    let launch = Launch::new("matmul_tiled", [side, side, 1], [16, 16, 1], &values);
    launch.run(2);
    let exact = |index: usize| {
        let (row, column) = (index / n, index % n);
        let products = (0..n).map(|k| f64::from(a[row * n + k]) * f64::from(b[k * n + column]));
        (products.sum::<f64>(), n as f64)
    };
    let exact: Vec<_> = (0..n * n).map(exact).collect();
    check("matmul_tiled", &floats(device_c, n * n), exact.iter().copied(), 1e-6);
    let mut native_c = vec![0.0; n * n];
    native::matmul_tiled(Target::Default, &a, &b, &mut native_c, n, 0..n / native::TILE);
    check("matmul_tiled in Rust", &native_c, exact.iter().copied(), 1e-6);
    let native_c = RefCell::new(native_c);
    Workload {
        name: "matmul_tiled",
        about: format!("shared memory: {n} by {n}, tiles of 16 by 16"),
        goal: Some(12.0),
        kernel: Box::new(move |workers, how| launch.run_by(workers, how)),
        peer: Box::new(move |target, threads| {
            let unit = n * native::TILE;
            in_parts(&mut native_c.borrow_mut(), unit, threads, |first, part| {
                native::matmul_tiled(target, &a, &b, part, n, first..first + part.len() / unit);
            });
        }),
    }
}

fn mandelbrot() -> Workload {
    let view = View { width: 512, height: 256, limit: 200, left: -2.25, top: -0.75, pixel: 1.5 / 256.0 };
    let count = view.width * view.height;
    let output = DEVICE.allocate(4 * count as u64, true);
    let values = [
        long(output),
        word(view.width as u32),
        word(view.height as u32),
        word(view.limit),
        single(view.left),
        single(view.top),
        single(view.pixel),
    ];
    let grid = [view.width as u32 / 32, view.height as u32 / 8, 1];
    let launch = Launch::new("mandelbrot", grid, [32, 8, 1], &values);
    launch.run(2);
    let escape = |index: usize| {
        let cx = f64::from(view.left) + (index % view.width) as f64 * f64::from(view.pixel);
        let cy = f64::from(view.top) + (index / view.width) as f64 * f64::from(view.pixel);
        let (mut x, mut y, mut count) = (0.0, 0.0, 0);
        while count < view.limit && x * x + y * y <= 4.0 {
            (x, y, count) = (x * x - y * y + cx, 2.0 * x * y + cy, count + 1);
        }
        count
    };
    let exact: Vec<u32> = (0..count).map(escape).collect();
    // Orbits that take long to escape tell single precision from double.
    let agree = |found: &[u32]| found.iter().zip(&exact).filter(|(found, exact)| found == exact).count();
    let found: Vec<u32> = floats(output, count).iter().map(|bits| bits.to_bits()).collect();
    assert!(agree(&found) * 100 >= 98 * count, "mandelbrot: {} of {count} points agree", agree(&found));
    let mut native_out = vec![0; count];
    native::mandelbrot(Target::Default, view, 0..view.height, &mut native_out);
    assert!(agree(&native_out) * 100 >= 98 * count, "mandelbrot in Rust");
    let native_out = RefCell::new(native_out);
    Workload {
        name: "mandelbrot",
        about: format!("divergence: {} by {}, up to {} iterations", view.width, view.height, view.limit),
        goal: None,
        kernel: Box::new(move |workers, how| launch.run_by(workers, how)),
        peer: Box::new(move |target, threads| {
            in_parts(&mut native_out.borrow_mut(), view.width, threads, |first, part| {
                native::mandelbrot(target, view, first..first + part.len() / view.width, part);
            });
        }),
    }
}

fn reduction() -> Workload {
    let (n, blocks) = (1 << 20, 256u32);
    let values = random(6, n);
    let (input, output) = (DEVICE.upload(&bytes(&values)), DEVICE.allocate(4 * u64::from(blocks), true));
    let launch = Launch::new(
        "reduce_shuffle",
        [blocks, 1, 1],
        [256, 1, 1],
        &[long(input), long(output), word(n as u32)],
    );
    launch.run(2);
    let exact = values.iter().map(|&value| f64::from(value)).sum::<f64>();
    let found = floats(output, blocks as usize).iter().sum::<f32>();
    check("reduce_shuffle", &[found], std::iter::once((exact, n as f64)), 1e-8);
    check(
        "reduce_shuffle in Rust",
        &[native::sum(Target::Default, &values)],
        std::iter::once((exact, n as f64)),
        1e-8,
    );
    let values = Rc::new(RefCell::new(values));
    Workload {
        name: "reduce_shuffle",
        about: format!("warp instructions: the sum of {} Ki elements in {blocks} blocks", n >> 10),
        goal: None,
        kernel: Box::new(move |workers, how| launch.run_by(workers, how)),
        peer: Box::new(move |target, threads| {
            in_parts(&mut values.borrow_mut(), 1, threads, |_, part| {
                std::hint::black_box(native::sum(target, part));
            });
        }),
    }
}

/// Launches that show what launches and blocks cost themselves.
pub fn launches() -> Vec<EmptyLaunch> {
    let launch = |about, blocks, threads| {
        let launch = Launch::new("empty", [blocks, 1, 1], [threads, 1, 1], &[]);
        EmptyLaunch { about, blocks, run: Box::new(move |workers| launch.run(workers)) }
    };
    vec![
        launch("one block of 32 threads", 1, 32),
        launch("one block of 1024 threads", 1, 1024),
        launch("10,000 blocks of 32 threads", 10_000, 32),
        launch("10,000 blocks of 256 threads", 10_000, 256),
    ]
}
