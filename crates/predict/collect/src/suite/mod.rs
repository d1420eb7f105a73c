//! The suite: kernels of many kinds, and the requirements of a correct launch of each.
//!
//! The crate `apex-device-code` holds their CUDA C++ and PTX. Every kernel takes two inputs, an
//! output, a number of units `n` and a parameter `m`, and does all units for any grid and every
//! block that [`Kernel::block`] admits. So one launch is one well-defined amount of work: kernel,
//! `n`, `m`, grid and block.
//!
//! Each file here describes the kernels of the module of the same name ([`MODULES`]).

mod access;
mod arithmetic;
mod collective;
mod control;
mod grids;
mod matrices;
mod programs;
mod rows;
mod shared;
mod streaming;

pub use apex_device_code::suite::{FILL, MODULES, VERSION, hash};

/// The type of the elements of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// `float`, from -1 to below 1 where it is an input.
    F32,
    /// `double`, likewise.
    F64,
    /// `__half`, likewise.
    F16,
    /// `unsigned`, all values.
    U32,
}

impl Element {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Element::F32 | Element::U32 => 4,
            Element::F64 => 8,
            Element::F16 => 2,
        }
    }
}

/// The content of the output before a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// All bits set: every element is written.
    Marked,
    /// Zeros: the kernel adds to them.
    Zero,
}

/// Blocks that a kernel is right for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Any, of one to three dimensions.
    Any,
    /// At least `m` threads.
    AtLeastM,
    /// Multiples of 32 threads.
    Warps,
    /// A power of two.
    PowerOfTwo,
    /// Threads along x and y (and z) are cells of a plane (a volume).
    Plane,
    /// Likewise.
    Volume,
    /// This one.
    Fixed(Dim3),
}

/// The threads that process one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// A thread.
    Thread,
    /// A warp.
    Warp,
    /// A block.
    Block,
}

/// The condition on `n`, which is positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// Anything.
    One,
    /// A multiple of this number times `m`.
    RowsOfM(u32),
    /// A multiple of `m` squared.
    PlanesOfM,
    /// A multiple of this.
    Multiple(u32),
    /// A power of two.
    PowerOfTwo,
}

impl Granule {
    /// The largest allowed `n` that is at most `n`; the smallest that there is if none is.
    pub fn round(self, n: u64, m: u32) -> u64 {
        let m = u64::from(m);
        let multiple = match self {
            Granule::One => 1,
            Granule::RowsOfM(rows) => m * u64::from(rows),
            Granule::PlanesOfM => m * m,
            Granule::Multiple(of) => u64::from(of),
            Granule::PowerOfTwo => return 1 << n.max(1).ilog2(),
        };
        (n / multiple).max(1) * multiple
    }
}

/// The sizes that determine the work of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Units.
    pub n: u64,
    /// The kernel's parameter.
    pub m: u64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u64,
}

/// Elements that a launch uses at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Elements of the first input.
    pub x: u64,
    /// Elements of the second input.
    pub y: u64,
    /// Elements of the output; each is written.
    pub out: u64,
}

/// A kernel of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its name in the PTX.
    pub name: &'static str,
    /// Kernels that do the same or the like: what is held out together.
    pub family: &'static str,
    /// The module that has it: an index into [`MODULES`].
    pub module: usize,
    /// Elements of the first input.
    pub x: Element,
    /// Elements of the second input.
    pub y: Element,
    /// Elements of the output.
    pub out: Element,
    /// The content of the output before a launch.
    pub before: Before,
    /// Blocks it can be launched with.
    pub block: Block,
    /// The threads that process one unit.
    pub worker: Worker,
    /// Units of that size, if they are not `n`.
    pub units: fn(Shape) -> u64,
    /// Values of `m`.
    pub m: &'static [u32],
    /// The condition on `n`.
    pub granule: Granule,
    /// Dynamic shared memory that it uses, in bytes.
    pub shared: fn(Shape) -> u64,
    /// Elements that it uses.
    pub sizes: fn(Shape) -> Sizes,
    /// Roughly the instructions that do the work, of all threads together.
    pub operations: fn(Shape) -> f64,
    /// Roughly how long a lone thread takes for one of them, in nanoseconds.
    pub step_ns: f64,
}

/// The most common kind of kernel: elementwise, with one input.
const PLAIN: Kernel = Kernel {
    name: "",
    family: "",
    module: 0,
    x: Element::F32,
    y: Element::F32,
    out: Element::F32,
    before: Before::Marked,
    block: Block::Any,
    worker: Worker::Thread,
    units: |s| s.n,
    m: &[1],
    granule: Granule::One,
    shared: |_| 0,
    sizes: |s| Sizes { x: s.n, y: 0, out: s.n },
    operations: |s| 4.0 * s.n as f64,
    step_ns: 50.0,
};

/// `n` units of `m` steps each, with this number of instructions a step.
macro_rules! steps {
    ($each:expr) => {
        |s| s.n as f64 * (s.m as f64 * $each + 4.0)
    };
}
use cuda_launch::Dim3;
use steps;

/// The kernels of each module, in the order of [`MODULES`].
const TABLES: [&[Kernel]; 10] = [
    streaming::KERNELS,
    access::KERNELS,
    arithmetic::KERNELS,
    shared::KERNELS,
    collective::KERNELS,
    grids::KERNELS,
    matrices::KERNELS,
    control::KERNELS,
    rows::KERNELS,
    programs::KERNELS,
];

/// All kernels, in an order that does not change within a [`VERSION`].
pub fn kernels() -> impl Iterator<Item = Kernel> {
    let numbered = TABLES.iter().enumerate();
    numbered.flat_map(|(module, table)| table.iter().map(move |kernel| Kernel { module, ..*kernel }))
}

/// The families, in order, each once.
pub fn families() -> Vec<&'static str> {
    let mut families: Vec<&str> = kernels().map(|kernel| kernel.family).collect();
    families.dedup();
    families
}

impl Kernel {
    /// Bytes that the algorithm has to move between memory and the multiprocessors: each element
    /// used, once.
    pub fn bytes(&self, shape: Shape) -> u64 {
        let sizes = (self.sizes)(shape);
        sizes.x * self.x.bytes() + sizes.y * self.y.bytes() + sizes.out * self.out.bytes()
    }

    /// Bytes of the largest of inputs and output that a launch uses.
    pub fn pool_bytes(&self, shape: Shape) -> u64 {
        let sizes = (self.sizes)(shape);
        (sizes.x * self.x.bytes()).max(sizes.y * self.y.bytes()).max(sizes.out * self.out.bytes())
    }

    /// Blocks of a grid that has one worker for each unit.
    pub fn natural_blocks(&self, n: u64, m: u32, threads: u32) -> u64 {
        let threads = u64::from(threads);
        let units = (self.units)(Shape { n, m: m.into(), blocks: 1, threads });
        let workers = match self.worker {
            Worker::Thread => threads,
            Worker::Warp => (threads / 32).max(1),
            Worker::Block => 1,
        };
        units.div_ceil(workers).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_tables_name_the_kernels_that_the_ptx_has() {
        assert_eq!(TABLES.len(), MODULES.len());
        for (index, module) in MODULES.iter().enumerate() {
            let parsed =
                ptx::parse(module.ptx()).unwrap_or_else(|error| panic!("{}: {error:?}", module.name()));
            let present: BTreeSet<String> =
                parsed.functions().map(|function| function.name.to_string()).collect();
            let described = kernels().filter(|kernel| kernel.module == index);
            let described: BTreeSet<String> = described.map(|kernel| kernel.name.to_owned()).collect();
            assert_eq!(described, present, "left: the table, right: {}.ptx", module.name());
        }
    }

    #[test]
    fn names_are_unique_and_families_stand_together() {
        let names: Vec<_> = kernels().map(|kernel| kernel.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let families = families();
        assert_eq!(families.iter().collect::<BTreeSet<_>>().len(), families.len());
        assert!(families.len() >= 30, "{}", families.len());
    }

    #[test]
    fn granules_round_down_to_what_is_allowed() {
        assert_eq!(Granule::One.round(7, 3), 7);
        assert_eq!(Granule::RowsOfM(16).round(1000, 16), 768);
        assert_eq!(Granule::RowsOfM(16).round(5, 16), 256);
        assert_eq!(Granule::PlanesOfM.round(100, 4), 96);
        assert_eq!(Granule::PowerOfTwo.round(1000, 1), 512);
        assert_eq!(Granule::Multiple(32).round(100, 1), 96);
    }
}
