//! The kernels of the benchmark suite. They need PTX of CUDA 13: nvcc compiles them.

use crate::{Module, module};

/// Version of the suite. Rows of data sets are comparable if version and [`hash`] are equal:
/// whoever changes inputs or launches raises the version; a change of the kernels changes the hash.
pub const VERSION: u32 = 1;

/// The modules with kernels of the suite.
pub static MODULES: [Module; 10] = [
    module!("suite", "streaming"),
    module!("suite", "access"),
    module!("suite", "arithmetic"),
    module!("suite", "shared"),
    module!("suite", "collective"),
    module!("suite", "grids"),
    module!("suite", "matrices"),
    module!("suite", "control"),
    module!("suite", "rows"),
    module!("suite", "programs"),
];

/// The module that fills the inputs and calibrates the clock.
pub static FILL: Module = module!("suite", "fill");

/// Hash of the PTX of all modules, which identifies the kernels of a data set.
pub fn hash() -> String {
    // FNV-1a.
    let bytes = MODULES.iter().chain([&FILL]).flat_map(|module| module.ptx().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
