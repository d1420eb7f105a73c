//! A batch of launches for a profiler: written by the collection, made by this program as the profiler's child.

use std::path::Path;

use cudarc::driver::sys;
use gpu::{Choice, Device};

use crate::bench::Bench;
use crate::dataset::{self, Columns, Fields};
use crate::plan::{Bounds, Launch};
use crate::{Error, suite};

dataset::record! {
    /// A launch.
    BatchRow {
        /// Its number in the collection.
        row: u64,
        /// The kernel's name.
        kernel: String,
        /// Units.
        n: u32,
        /// The kernel's parameter.
        m: u32,
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// Dynamic shared memory of a block.
        dynamic_shared_bytes: u32,
    }
}

impl BatchRow {
    fn launch(&self) -> Launch {
        let BatchRow { n, m, grid, block, dynamic_shared_bytes: dynamic_shared, .. } = *self;
        Launch { n, m, grid, block, dynamic_shared }
    }
}

/// Makes the launches of the batch in `file` on a device, each twice: once to warm up, once marked for the profiler.
///
/// # Errors
/// A file that is none, or what the driver says.
pub fn run(file: &Path, choice: Choice, ordinal: usize) -> Result<u64, Error> {
    let rows: Vec<BatchRow> = dataset::read_table(file)?;
    let device = Device::open_as(ordinal, choice)?;
    let kernel_of = |row: &BatchRow| {
        let found = suite::kernels().find(|kernel| kernel.name == row.kernel);
        found
            .ok_or_else(|| Error::Refused(format!("{}: there is no kernel `{}`", file.display(), row.kernel)))
    };
    let kernels = rows.iter().map(kernel_of).collect::<Result<Vec<_>, _>>()?;
    let used = rows.iter().zip(&kernels).map(|(row, kernel)| kernel.pool_bytes(row.launch().shape()));
    let pool_bytes = used.max().unwrap_or(4).next_multiple_of(1 << 20);
    let mut bench = Bench::open(&device, &Bounds { pool_bytes, ..Bounds::CPU })?;
    for (row, kernel) in rows.iter().zip(&kernels) {
        let (loaded, launch) = (bench.load(kernel)?, row.launch());
        bench.reset_output(kernel, &launch)?;
        bench.launch(&loaded, &launch)?;
        device.synchronize()?;
        // SAFETY: no preconditions; without a profiler nothing happens, and failure only leaves the launch unmarked, which
        // the collection notices.
        let _ = unsafe { sys::cuProfilerStart() };
        bench.launch(&loaded, &launch)?;
        device.synchronize()?;
        // SAFETY: as above.
        let _ = unsafe { sys::cuProfilerStop() };
    }
    Ok(rows.len() as u64)
}
