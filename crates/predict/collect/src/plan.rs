//! Selects the launches of a collection. The same seed, kernel and device always give the same
//! launches.
//!
//! Each kernel has its own list of launches. Eight consecutive ones have the same problem (`n`,
//! `m`): five of them have a worker for each unit, three have fewer workers, each of which computes
//! several units. A data set therefore shows how the time depends on the launch alone, from one
//! block to many waves. Kernels take turns, so that every prefix of a collection contains all of
//! them. The list of a kernel does not depend on the requests for other kernels.
//!
//! A launch that would take too much time or memory, according to a rough estimate ([`Bounds`]), is
//! left out.

use crate::suite::{self, Block, Kernel, Shape, Worker};
use apex_random::Random;
use cuda_launch::{Dim3, LaunchConfig};

/// Launches that share a problem.
const GROUP: u64 = 8;
/// The number of these with a worker for each unit.
const NATURAL: u64 = 5;
/// Threads of blocks that can have any number.
const THREADS: [u32; 20] =
    [16, 32, 48, 64, 96, 100, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1000, 1024];
/// Dynamic shared memory beyond what a kernel uses, in KiB: it changes occupancy alone.
const EXTRA_SHARED_KIB: [u64; 6] = [4, 16, 32, 64, 100, 160];

/// Threads of a multiprocessor that make progress at the same time, and the least shared memory
/// that it has for its blocks.
const THREADS_AT_WORK: f64 = 1024.0;
const SHARED_BYTES: u64 = 160 << 10;

/// The properties of a device on which the plan depends. Rates are conservative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Bytes of each input and of the output.
    pub pool_bytes: u64,
    /// Bytes that are moved in a second.
    pub bytes_per_second: f64,
    /// Instructions of single threads that are executed in a second.
    pub operations_per_second: f64,
    /// Threads that make progress at the same time.
    pub resident_threads: f64,
    /// Seconds that a launch may take.
    pub seconds: f64,
}

impl Bounds {
    /// Returns the bounds of a GPU with this number of multiprocessors and of free bytes.
    pub fn of_gpu(multiprocessors: u32, free_bytes: u64) -> Bounds {
        let sms = f64::from(multiprocessors.max(1));
        Bounds {
            // Five pools and the output; a power of two keeps the plan the same while free memory
            // varies a little.
            pool_bytes: 1 << (free_bytes / 12).clamp(1 << 22, 512 << 20).ilog2(),
            bytes_per_second: 8e9 * sms,
            operations_per_second: 4e10 * sms,
            resident_threads: THREADS_AT_WORK * sms,
            seconds: 0.02,
        }
    }

    /// Bounds of the CPU device: small enough for tests.
    pub const CPU: Bounds = Bounds {
        pool_bytes: 1 << 20,
        bytes_per_second: 2e8,
        operations_per_second: 5e7,
        resident_threads: 1e6,
        seconds: 0.02,
    };

    /// Roughly how long a launch takes, in seconds, whose blocks have so much dynamic shared
    /// memory.
    fn seconds_of(&self, kernel: &Kernel, shape: Shape, dynamic_shared: u64) -> f64 {
        let operations = (kernel.operations)(shape);
        let multiprocessors = self.resident_threads / THREADS_AT_WORK;
        let fitting = (SHARED_BYTES / dynamic_shared.max(1)).max(1) * shape.threads;
        let workers = (shape.blocks * shape.threads) as f64;
        let workers = workers.min(self.resident_threads).min(multiprocessors * fitting as f64);
        let alone = operations * kernel.step_ns * 1e-9 / workers;
        (kernel.bytes(shape) as f64 / self.bytes_per_second)
            .max(operations / self.operations_per_second)
            .max(alone)
    }

    fn admits(&self, kernel: &Kernel, shape: Shape, dynamic_shared: u64) -> bool {
        kernel.pool_bytes(shape) <= self.pool_bytes
            && self.seconds_of(kernel, shape, dynamic_shared) <= self.seconds
    }
}

/// The device's limits for a kernel, according to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub dynamic_shared_bytes: u64,
}

/// A launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Units.
    pub n: u32,
    /// The kernel's parameter.
    pub m: u32,
    /// The configuration.
    pub config: LaunchConfig,
}

impl Launch {
    /// The sizes that determine the work.
    pub fn shape(&self) -> Shape {
        let (blocks, threads) = (self.config.blocks(), self.config.threads_per_block());
        Shape { n: self.n.into(), m: self.m.into(), blocks, threads }
    }
}

/// A place in the plan.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Number in the collection, from 0.
    pub number: u64,
    /// The kernel, as an index into the plan's kernels.
    pub kernel: usize,
    /// The launch.
    pub launch: Launch,
}

/// The rows of a collection: `rows` of them, of `kernels` in turn.
pub fn rows(kernels: &[(Kernel, Allowed)], bounds: &Bounds, seed: u64, rows: u64) -> Vec<Row> {
    let kernel_of = |number: u64| (number % kernels.len() as u64) as usize;
    let row = |number: u64| {
        let (kernel, allowed) = &kernels[kernel_of(number)];
        let launch = launch(kernel, allowed, bounds, seed, number / kernels.len() as u64);
        Row { number, kernel: kernel_of(number), launch }
    };
    if kernels.is_empty() { Vec::new() } else { (0..rows).map(row).collect() }
}

/// Launch `index` of a kernel's list.
fn launch(kernel: &Kernel, allowed: &Allowed, bounds: &Bounds, seed: u64, index: u64) -> Launch {
    let (group, place) = (index / GROUP, index % GROUP);
    let mut of_problem = Random::named(seed, &format!("{} problem {group}", kernel.name));
    let mut random = Random::named(seed, &format!("{} launch {index}", kernel.name));
    let (n, m) = problem(kernel, allowed, bounds, &mut of_problem);
    let block = block(kernel, allowed, m, &mut random);
    let threads = block.count() as u32;
    let natural = kernel.natural_blocks(n.into(), m, threads);
    let mut blocks = match place < NATURAL {
        true => natural,
        false => random.logarithmic(1.0, natural as f64).round() as u64,
    };
    let shape = |blocks| Shape { n: n.into(), m: m.into(), blocks, threads: threads.into() };
    while blocks < natural && !bounds.admits(kernel, shape(blocks), (kernel.shared)(shape(blocks))) {
        blocks = (blocks * 2).min(natural);
    }
    let grid = grid(kernel, n, m, block, blocks, &mut random);
    let used = (kernel.shared)(shape(blocks));
    let extra = match random.below(4) {
        0 => random.choose(&EXTRA_SHARED_KIB) << 10,
        _ => 0,
    };
    let more = used + extra;
    let dynamic_shared_bytes =
        match more <= allowed.dynamic_shared_bytes && bounds.admits(kernel, shape(blocks), more) {
            true => more,
            false => used,
        };
    let config = LaunchConfig::new(grid, block).with_dynamic_shared_bytes(dynamic_shared_bytes as u32);
    Launch { n, m, config }
}

/// Units and parameter: sizes from small to what the bounds admit with a worker for each unit.
fn problem(kernel: &Kernel, allowed: &Allowed, bounds: &Bounds, random: &mut Random) -> (u32, u32) {
    let mut choices: Vec<u32> = kernel.m.to_vec();
    choices.retain(|&m| kernel.block != Block::AtLeastM || m <= allowed.threads);
    let admitted = |n: u64, m: u32| {
        [32, allowed.threads].into_iter().all(|threads| {
            let blocks = kernel.natural_blocks(n, m, threads);
            let shape = Shape { n, m: m.into(), blocks, threads: threads.into() };
            bounds.admits(kernel, shape, (kernel.shared)(shape)) && blocks <= 1 << 30
        })
    };
    let smallest = |m: u32| kernel.granule.round(1, m);
    // A parameter for which even the smallest problem is too much is left to larger devices.
    choices.retain(|&m| admitted(smallest(m), m));
    let m = if choices.is_empty() { kernel.m[0] } else { random.choose(&choices) };
    let mut largest = smallest(m);
    while largest < 1 << 29 && admitted(kernel.granule.round(largest * 2, m), m) {
        largest *= 2;
    }
    // Most launches should be more than what it takes to start one.
    let common = match kernel.worker {
        Worker::Thread => 1 << 13,
        Worker::Warp => 1 << 8,
        Worker::Block => 1 << 6,
    };
    let low = smallest(m).max(random.choose(&[64, common, common, common]).min(largest));
    let n = random.logarithmic(low as f64, (largest as f64 * 2.0).max(low as f64 + 1.0)) as u64;
    let mut n = kernel.granule.round(n, m);
    while n > smallest(m) && !admitted(n, m) {
        n = kernel.granule.round(n / 2, m);
    }
    (n as u32, m)
}

fn block(kernel: &Kernel, allowed: &Allowed, m: u32, random: &mut Random) -> Dim3 {
    let fits = |threads: &u32| {
        *threads <= allowed.threads
            && match kernel.block {
                Block::AtLeastM => *threads >= m,
                Block::Warps => threads.is_multiple_of(32),
                Block::PowerOfTwo => threads.is_power_of_two(),
                Block::Plane | Block::Volume => threads.is_multiple_of(16),
                Block::Any | Block::Fixed(_) => true,
            }
    };
    if let Block::Fixed(block) = kernel.block {
        return block;
    }
    let mut choices: Vec<u32> = THREADS.into_iter().filter(fits).collect();
    choices.extend((kernel.block == Block::AtLeastM).then_some(m));
    let threads = random.choose(&choices);
    let dimensions = match kernel.block {
        Block::Plane => 2,
        Block::Volume => 3,
        _ => random.choose(&[1, 1, 1, 1, 2, 2, 3]),
    };
    // Threads are split such that x, whose neighbours are in one warp, is seldom narrow.
    let z = if dimensions < 3 { 1 } else { divisor(threads, 8, random) };
    let y = if dimensions < 2 { 1 } else { divisor(threads / z, 32, random) };
    Dim3::new(threads / z / y, y, z)
}

/// A divisor of `number` that is at most `most`.
fn divisor(number: u32, most: u32, random: &mut Random) -> u32 {
    let divisors: Vec<u32> = (1..=most.min(number)).filter(|&side| number.is_multiple_of(side)).collect();
    random.choose(&divisors)
}

/// Returns a grid of about `blocks` blocks; for planes and volumes, in their proportions.
fn grid(kernel: &Kernel, n: u32, m: u32, block: Dim3, blocks: u64, random: &mut Random) -> Dim3 {
    let planes = |width: u32, height: u32, depth: u32| {
        let full = [width.div_ceil(block.x), height.div_ceil(block.y), depth.div_ceil(block.z)];
        let x = u64::from(full[0]).min(blocks);
        let y = u64::from(full[1]).min((blocks / x).max(1)).min(65_535);
        let z = u64::from(full[2]).min((blocks / x / y).max(1)).min(65_535);
        Dim3::new(x as u32, y as u32, z as u32)
    };
    match kernel.block {
        Block::Plane => planes(m, n / m, 1),
        Block::Volume => planes(m, m, n / m / m),
        _ => {
            let dimensions = random.choose(&[1, 1, 1, 1, 2, 2, 3]);
            let side = |random: &mut Random, most: u64| random.logarithmic(1.0, most as f64).round() as u64;
            let y = if dimensions < 2 { 1 } else { side(random, blocks.min(64)) };
            let z = if dimensions < 3 { 1 } else { side(random, (blocks / y).clamp(1, 16)) };
            Dim3::new(blocks.div_ceil(y * z) as u32, y as u32, z as u32)
        }
    }
}

/// The kernels of these families; all if none is named.
///
/// # Errors
/// The name of a family that there is not.
pub fn select(families: &[String]) -> Result<Vec<Kernel>, String> {
    let known = suite::families();
    if let Some(unknown) = families.iter().find(|family| !known.contains(&family.as_str())) {
        return Err(format!("there is no family `{unknown}`; the families are {}", known.join(", ")));
    }
    let wanted =
        |kernel: &Kernel| families.is_empty() || families.iter().any(|family| family == kernel.family);
    Ok(suite::kernels().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const H200: Bounds = Bounds {
        pool_bytes: 512 << 20,
        bytes_per_second: 1e12,
        operations_per_second: 5e12,
        resident_threads: 135_168.0,
        seconds: 0.02,
    };
    const ALLOWED: Allowed = Allowed { threads: 1024, dynamic_shared_bytes: 200 << 10 };

    fn all(bounds: &Bounds, rows_wanted: u64) -> (Vec<(Kernel, Allowed)>, Vec<Row>) {
        let kernels: Vec<_> = suite::kernels().map(|kernel| (kernel, ALLOWED)).collect();
        let planned = rows(&kernels, bounds, 1, rows_wanted);
        (kernels, planned)
    }

    #[test]
    fn every_launch_is_allowed_and_bounded() {
        for bounds in [H200, Bounds::CPU] {
            let (kernels, planned) = all(&bounds, 8000);
            for row in planned {
                let (kernel, launch) = (&kernels[row.kernel].0, row.launch);
                let LaunchConfig { grid, block: made, dynamic_shared_bytes, .. } = launch.config;
                let threads = made.count() as u32;
                let right = match kernel.block {
                    Block::Fixed(block) => made == block,
                    Block::Warps => threads.is_multiple_of(32),
                    Block::PowerOfTwo => threads.is_power_of_two(),
                    Block::AtLeastM => threads >= launch.m,
                    Block::Any | Block::Plane | Block::Volume => true,
                };
                assert!(right && (16..=1024).contains(&threads), "{}: {launch:?}", kernel.name);
                assert_eq!(
                    kernel.granule.round(launch.n.into(), launch.m),
                    u64::from(launch.n),
                    "{}",
                    kernel.name
                );
                assert!(!grid.is_empty() && grid.y < 65_536 && grid.z < 65_536);
                assert!(made.z <= 64 && launch.n > 0 && launch.m > 0);
                assert!(u64::from(dynamic_shared_bytes) >= (kernel.shared)(launch.shape()));
                let used = kernel.pool_bytes(launch.shape());
                assert!(used <= bounds.pool_bytes, "{}: {launch:?} uses {used} bytes", kernel.name);
                let seconds = bounds.seconds_of(kernel, launch.shape(), dynamic_shared_bytes.into());
                assert!(seconds < 3.0 * bounds.seconds, "{}: {launch:?} takes {seconds} s", kernel.name);
            }
        }
    }

    #[test]
    fn launches_are_many_and_various() {
        let (kernels, planned) = all(&H200, 8000);
        let mut threads = BTreeSet::new();
        let mut dimensions = BTreeSet::new();
        let (mut single, mut many, mut extra) = (0, 0, 0);
        for row in &planned {
            let (launch, config) = (row.launch, row.launch.config);
            threads.insert(config.threads_per_block());
            dimensions.insert(config.block.to_array().iter().filter(|&&side| side > 1).count());
            single += u32::from(config.blocks() < 132);
            many += u32::from(config.blocks() > 132 * 64);
            extra += u32::from(
                u64::from(config.dynamic_shared_bytes) > (kernels[row.kernel].0.shared)(launch.shape()),
            );
        }
        assert!(threads.len() >= 20 && dimensions.len() == 3, "{threads:?} {dimensions:?}");
        assert!(single > 1000 && many > 1000 && extra > 1000, "{single} {many} {extra}");
        let distinct: BTreeSet<String> =
            planned.iter().map(|row| format!("{} {:?}", row.kernel, row.launch)).collect();
        assert!(distinct.len() > 7000, "{}", distinct.len());
    }

    #[test]
    fn a_kernels_launches_do_not_depend_on_the_others() {
        let (_, planned) = all(&H200, 4000);
        let alone: Vec<_> =
            select(&["scan".into()]).unwrap().into_iter().map(|kernel| (kernel, ALLOWED)).collect();
        let scans = rows(&alone, &H200, 1, 20);
        let place = suite::kernels().position(|kernel| kernel.name == alone[0].0.name).unwrap();
        let among: Vec<Launch> =
            planned.iter().filter(|row| row.kernel == place).map(|row| row.launch).collect();
        let of_first: Vec<Launch> =
            scans.iter().filter(|row| row.kernel == 0).map(|row| row.launch).collect();
        assert_eq!(of_first[..], among[..of_first.len()]);
    }

    #[test]
    fn groups_share_their_problem_and_seeds_change_it() {
        let kernel = select(&["scan".into()]).unwrap()[0];
        let at = |seed, index| launch(&kernel, &ALLOWED, &H200, seed, index);
        assert!((1..GROUP).all(|index| (at(1, index).n, at(1, index).m) == (at(1, 0).n, at(1, 0).m)));
        assert_ne!(at(1, 0).n, at(1, GROUP).n);
        assert_ne!(at(1, 0).n, at(2, 0).n);
    }

    #[test]
    fn unknown_families_are_named() {
        let error = select(&["copy".into(), "cpoy".into()]).unwrap_err();
        assert!(error.contains("`cpoy`") && error.contains("transpose"), "{error}");
    }
}
