//! Ground truth: a suite of benchmark kernels, how they are launched and measured, and the data sets that come of it.
//!
//! ```text
//! suite ─► plan ─► bench ─► measure (times)  ─► collection ─► dataset
//!                     └───► batch under ncu (counters) ─┘
//! ```
//!
//! * [`suite`]: the kernels, and what has to be known of each.
//! * [`plan`]: which launches are made: seeded, bounded, the same for the same device.
//! * [`mod@bench`]: the suite on a device: code, inputs, outputs.
//! * [`measure`]: how long a launch takes.
//! * [`ncu`], [`batch`]: what a profiler counts in it.
//! * [`collection`]: all of it, resumable.
//! * [`dataset`]: what is kept, on disk.
//!
//! It runs on the CPU device too, which is how it is tested; what is measured there is marked and never mixed with a GPU's.

pub mod batch;
pub mod bench;
pub mod collection;
pub mod dataset;
mod machine;
pub mod measure;
pub mod ncu;
pub mod plan;
pub mod random;
pub mod suite;

/// Why a collection does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device or its driver.
    #[error(transparent)]
    Gpu(#[from] apex_gpu::Error),
    /// The data set's files.
    #[error(transparent)]
    DataSet(#[from] dataset::Error),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
}
