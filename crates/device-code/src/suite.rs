//! The kernels of the benchmark suite (`apex collect`).

use crate::Module;

/// Version of the suite. Rows of data sets are comparable if version and [`hash`] are equal: whoever changes inputs or
/// launches raises the version; a change of the kernels changes the hash.
pub const VERSION: u32 = 1;

macro_rules! modules {
    ($($name:literal),*) => {
        /// The modules with kernels of the suite.
        pub const MODULES: &[Module] = &[$(module!($name)),*];
    };
}

macro_rules! module {
    ($name:literal) => {
        Module { name: $name, ptx: include_str!(concat!("../suite/", $name, ".ptx")) }
    };
}

modules!(
    "streaming",
    "access",
    "arithmetic",
    "shared",
    "collective",
    "grids",
    "matrices",
    "control",
    "rows",
    "programs"
);

/// The module that fills the inputs and calibrates the clock.
pub const FILL: Module = module!("fill");

/// Hash of the PTX of all modules, which identifies the kernels of a data set.
pub fn hash() -> String {
    // FNV-1a.
    let bytes = MODULES.iter().chain([&FILL]).flat_map(|module| module.ptx.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
