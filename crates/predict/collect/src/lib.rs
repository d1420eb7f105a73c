//! The benchmark suite: its kernels, how they are launched and measured.
//!
//! ```text
//! suite ─► plan ─► bench ─► measure (times)  ─► collection ─► a data set (apex-dataset)
//!                     └───► batch under ncu (counters) ─┘
//! ```
//!
//! * [`suite`]: the kernels, and what must be known of each to launch it.
//! * [`plan`]: which launches are made. A plan is seeded and bounded, and the same for the same
//!   device.
//! * [`mod@bench`]: the suite on a device: code, inputs, outputs.
//! * [`measure`]: how long a launch takes.
//! * [`ncu`], [`batch`]: the counters that a profiler reads for a launch.
//! * [`collection`]: the whole measurement, which can be resumed.
//!
//! The suite runs on the CPU device too, which is how it is tested. Its data sets say so, and are
//! never mixed with a GPU's.

pub mod batch;
pub mod bench;
pub mod collection;
pub mod fill;
mod machine;
pub mod measure;
pub mod ncu;
pub mod plan;
pub mod suite;

/// The reason why a collection does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device or its driver.
    #[error(transparent)]
    Gpu(#[from] apex_gpu::Error),
    /// The data set's files.
    #[error(transparent)]
    DataSet(#[from] apex_dataset::Error),
    /// The request cannot be satisfied.
    #[error("{0}")]
    Refused(String),
}
