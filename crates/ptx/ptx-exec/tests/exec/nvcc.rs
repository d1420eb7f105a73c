//! Compares programs that use tensor cores and asynchronous copies (`tests/nvcc`, compiled by nvcc)
//! as executed with the same computations in `f64` or in integers.

use std::path::Path;

use cuda_launch::LaunchConfig;
use ptx_exec::{LaunchParams, Linked};

use crate::device::{Device, pack};
use apex_random::Random;

const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90"];

/// Loads the PTX of `program` for `architecture`.
fn load(device: &Device, program: &str, architecture: &str) -> Linked {
    let name = format!("tests/nvcc/{program}.{architecture}.ptx");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    device.load(&std::fs::read_to_string(path).unwrap())
}

/// A launch of one of a program's kernels.
struct Launch<'a> {
    name: &'a str,
    grid: [u32; 3],
    threads: u32,
    shared: u32,
}

impl Launch<'_> {
    fn run(&self, device: &Device, linked: &Linked, arguments: &[Vec<u8>]) {
        let kernel = linked.program().kernel(self.name).unwrap_or_else(|| panic!("no kernel {}", self.name));
        let params = LaunchParams {
            config: LaunchConfig::new(self.grid, [self.threads, 1, 1]).with_dynamic_shared_bytes(self.shared),
            cooperative: false,
            stack: 4096,
            workers: 0,
            params: &pack(linked, kernel, arguments),
        };
        device.run(linked, kernel, &params).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

fn pointer(address: u64) -> Vec<u8> {
    address.to_le_bytes().into()
}

fn int(value: usize) -> Vec<u8> {
    (value as u32).to_le_bytes().into()
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Half,
    Bfloat,
    Single,
    Double,
    Byte,
    Int,
}

impl Type {
    fn bytes(self) -> usize {
        match self {
            Type::Byte => 1,
            Type::Half | Type::Bfloat => 2,
            Type::Single | Type::Int => 4,
            Type::Double => 8,
        }
    }

    /// A random number that the type holds exactly; of the short floats so few bits that their sums
    /// are exact, too.
    fn random(self, random: &mut Random) -> f64 {
        let any = random.bits() as i64 >> 8;
        match self {
            Type::Half => (any % 512) as f64 / 64.0,
            Type::Bfloat => (any % 128) as f64 / 16.0,
            Type::Single => f64::from((any % 4_000_000) as f32 / 1_000_000.0),
            Type::Double => any as f64 * 2f64.powi(-54),
            Type::Byte => f64::from(any as i8),
            Type::Int => f64::from(any as i32 / 4),
        }
    }

    fn encode(self, value: f64) -> Vec<u8> {
        let single = (value as f32).to_bits();
        match self {
            // Normal numbers lose 13 bits of the fraction, and have another bias.
            Type::Half if value == 0.0 => vec![0; 2],
            Type::Half => {
                let magnitude = ((single & 0x7fff_ffff) >> 13) - (112 << 10);
                ((single >> 16 & 0x8000 | magnitude) as u16).to_le_bytes().into()
            }
            Type::Bfloat => ((single >> 16) as u16).to_le_bytes().into(),
            Type::Single => single.to_le_bytes().into(),
            Type::Double => value.to_le_bytes().into(),
            Type::Byte => (value as i8).to_le_bytes().into(),
            Type::Int => (value as i32).to_le_bytes().into(),
        }
    }

    fn decode(self, bytes: &[u8]) -> f64 {
        match self {
            Type::Single => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
            Type::Double => f64::from_le_bytes(bytes.try_into().unwrap()),
            _ => i32::from_le_bytes(bytes.try_into().unwrap()).into(),
        }
    }
}

/// A kernel that multiplies matrices: tiles of a block, types of the factors and of the rest.
struct Product {
    name: &'static str,
    tile: (usize, usize),
    threads: u32,
    factor: Type,
    result: Type,
    /// Whether B lies by columns.
    by_columns: bool,
    /// Whether it computes 2 a b + c rather than a b.
    adds: bool,
    /// Largest error for each unit of the sum of magnitudes.
    tolerance: f64,
}

impl Product {
    fn check(&self) {
        for architecture in ARCHITECTURES {
            let device = Device::default();
            let linked = load(&device, "matrices", architecture);
            self.check_sizes(&device, &linked, (64, 96, 80));
            self.check_sizes(&device, &linked, (32, 32, 16));
        }
    }

    fn check_sizes(&self, device: &Device, linked: &Linked, (m, n, k): (usize, usize, usize)) {
        let mut random = Random::new(0xab5 + n as u64);
        let mut matrix =
            |cells: usize, ty: Type| -> Vec<f64> { (0..cells).map(|_| ty.random(&mut random)).collect() };
        let (a, b, c) = (matrix(m * k, self.factor), matrix(k * n, self.factor), matrix(m * n, self.result));
        let upload = |values: &[f64], ty: Type| {
            device.upload(&values.iter().flat_map(|&value| ty.encode(value)).collect::<Vec<u8>>())
        };
        let d = device.allocate((m * n * self.result.bytes()) as u64, true);
        let mut arguments = vec![pointer(upload(&a, self.factor)), pointer(upload(&b, self.factor))];
        arguments.extend(self.adds.then(|| pointer(upload(&c, self.result))));
        arguments.extend([pointer(d), int(n), int(k)]);
        let grid = [(n / self.tile.1) as u32, (m / self.tile.0) as u32, 1];
        Launch { name: self.name, grid, threads: self.threads, shared: 0 }.run(device, linked, &arguments);
        let found = device.download(d, m * n * self.result.bytes());
        for (cell, bytes) in found.chunks_exact(self.result.bytes()).enumerate() {
            let (row, column) = (cell / n, cell % n);
            let start = if self.adds { c[cell] } else { 0.0 };
            let scale = if self.adds { 2.0 } else { 1.0 };
            let (mut exact, mut magnitude) = (start, start.abs());
            for l in 0..k {
                let right = if self.by_columns { b[column * k + l] } else { b[l * n + column] };
                let product = scale * self.factor_value(a[row * k + l]) * self.factor_value(right);
                (exact, magnitude) = (exact + product, magnitude + product.abs());
            }
            if self.result == Type::Int {
                exact = f64::from(exact as i64 as i32);
            }
            let found = self.result.decode(bytes);
            let error = (found - exact).abs();
            assert!(
                error <= magnitude * self.tolerance,
                "{} ({row}, {column}): {found} instead of {exact}",
                self.name
            );
        }
    }

    /// Returns the kernel's value of a factor: `.tf32` has ten bits of fraction, rounded to
    /// nearest, ties away from zero.
    fn factor_value(&self, value: f64) -> f64 {
        match self.factor {
            Type::Single => f32::from_bits(((value as f32).to_bits() + 0x1000) & !0x1fff).into(),
            _ => value,
        }
    }
}

#[test]
fn fragments_of_halves() {
    let product = Product {
        name: "wmma_half",
        tile: (16, 16),
        threads: 32,
        factor: Type::Half,
        result: Type::Single,
        by_columns: true,
        adds: true,
        // The sum is exact until C is added.
        tolerance: 2f64.powi(-23),
    };
    product.check();
    Product { name: "wmma_half_tall", tile: (32, 8), by_columns: false, ..product }.check();
    Product { name: "wmma_half_wide", tile: (8, 32), by_columns: false, ..product }.check();
}

#[test]
fn fragments_of_other_types() {
    let product = Product {
        name: "wmma_bfloat",
        tile: (16, 16),
        threads: 32,
        factor: Type::Bfloat,
        result: Type::Single,
        by_columns: false,
        adds: true,
        tolerance: 2f64.powi(-23),
    };
    product.check();
    let (name, by_columns) = ("wmma_bytes", true);
    Product { name, by_columns, factor: Type::Byte, result: Type::Int, tolerance: 0.0, ..product }.check();
    let (factor, result) = (Type::Double, Type::Double);
    Product { name: "wmma_double", tile: (8, 8), factor, result, tolerance: 2f64.powi(-45), ..product }
        .check();
    // Ten steps of eight products, each cut at 2^-25 of its largest addend and at its own last bit.
    let tolerance = 2f64.powi(-19);
    Product { name: "wmma_tf32", factor: Type::Single, adds: false, tolerance, ..product }.check();
}

#[test]
fn products_by_hand() {
    Product {
        name: "mma_half",
        tile: (32, 32),
        threads: 128,
        factor: Type::Half,
        result: Type::Single,
        by_columns: false,
        adds: false,
        tolerance: 0.0,
    }
    .check();
}

/// Runs a kernel of `asynchronous.cu` with blocks of `threads` threads of which `width` sum.
fn sums_tiles(name: &str, architecture: &str, (threads, width): (usize, usize), shared: usize) {
    let (blocks, tiles) = (3, 7);
    let device = Device::default();
    let linked = load(&device, "asynchronous", architecture);
    let mut random = Random::new(77);
    let values: Vec<i32> = (0..blocks * tiles * width).map(|_| random.bits() as i32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (from, to) = (device.upload(&bytes), device.allocate((4 * blocks * width) as u64, true));
    let grid = [blocks as u32, 1, 1];
    let launch = Launch { name, grid, threads: threads as u32, shared: shared as u32 };
    launch.run(&device, &linked, &[pointer(from), pointer(to), int(tiles)]);
    let found = device.download(to, 4 * blocks * width);
    for (index, sum) in found.chunks_exact(4).enumerate() {
        let (block, thread) = (index / width, index % width);
        let expected = (0..tiles).fold(0i32, |sum, tile| {
            sum.wrapping_add(values[(block * tiles + tile) * width + (thread + tile) % width])
        });
        assert_eq!(i32::from_le_bytes(sum.try_into().unwrap()), expected, "{name} {architecture} {index}");
    }
}

#[test]
fn copies_that_are_waited_for() {
    for architecture in ARCHITECTURES {
        for threads in [32, 96, 100] {
            let tile = 4 * threads;
            sums_tiles("group_copy", architecture, (threads, threads), tile);
            sums_tiles("barrier_copy", architecture, (threads, threads), tile);
            sums_tiles("pipeline_copy", architecture, (threads, threads), 2 * tile);
        }
        for threads in [64, 128] {
            sums_tiles("split_pipeline", architecture, (threads, threads / 2), 4 * threads);
        }
    }
}

#[test]
fn bulk_copies() {
    for threads in [32, 64, 160] {
        sums_tiles("bulk_copy", "sm_90", (threads, threads), 4 * threads);
    }
}
