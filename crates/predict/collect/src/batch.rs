//! A batch of launches for a profiler: the collection writes it, and this program makes the
//! launches as the profiler's child.

use cuda_launch::{Dim3, LaunchConfig};
use std::path::Path;

use apex_gpu::{Choice, Device};
use cudarc::driver::sys;

use crate::Error;
use crate::bench::Bench;
use crate::plan::{Bounds, Launch};
use crate::suite;

apex_dataset::record! {
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
        grid: Dim3,
        /// Threads of a block.
        block: Dim3,
        /// Dynamic shared memory of a block.
        dynamic_shared_bytes: u32,
    }
}

impl BatchRow {
    fn launch(&self) -> Launch {
        let BatchRow { n, m, grid, block, dynamic_shared_bytes, .. } = *self;
        Launch {
            n,
            m,
            config: LaunchConfig::new(grid, block).with_dynamic_shared_bytes(dynamic_shared_bytes),
        }
    }
}

/// Sizes of pools are multiples of this.
const GRANULE: u64 = 1 << 20;
/// The empty kernel, which is not a row of a collection.
const EMPTY: &str = "empty";

/// A launch of the kernel that does nothing, as [`crate::measure`] times it.
pub(crate) fn empty() -> BatchRow {
    BatchRow { kernel: EMPTY.to_owned(), grid: 1.into(), block: 32.into(), ..BatchRow::default() }
}

/// Makes the launches of the batch in `file` on a device, each twice: once to warm up, once marked
/// for the profiler. Each has pools of its own, no larger than it needs: a profiler that runs a
/// launch many times saves and restores memory between.
///
/// # Errors
/// If the file is not a batch, or the driver fails.
pub fn run(file: &Path, choice: Choice, ordinal: usize) -> Result<u64, Error> {
    let rows: Vec<BatchRow> = apex_dataset::read_table(file)?;
    let device = Device::open_as(ordinal, choice)?;
    // None for the kernel that does nothing.
    let kernel_of = |row: &BatchRow| match suite::kernels().find(|kernel| kernel.name == row.kernel) {
        None if row.kernel == EMPTY => Ok(None),
        None => Err(Error::Refused(format!(
            "{}: there is no kernel `{}`",
            apex_untrusted::shown(file),
            row.kernel
        ))),
        found => Ok(found),
    };
    let kernels = rows.iter().map(kernel_of).collect::<Result<Vec<_>, _>>()?;
    let mut bench = Bench::open(&device, &Bounds::CPU)?;
    for (row, kernel) in rows.iter().zip(&kernels) {
        match kernel {
            Some(kernel) => {
                let (loaded, launch) = (bench.load(kernel)?, row.launch());
                bench.resize(kernel.pool_bytes(launch.shape()).next_multiple_of(GRANULE));
                bench.reset_output(kernel, &launch)?;
                twice(&device, || bench.launch(&loaded, &launch))?;
            }
            None => {
                let empty = bench.empty()?;
                // SAFETY: the kernel does nothing.
                twice(&device, || unsafe { empty.launch(row.grid, row.block).launch() })?;
            }
        }
    }
    Ok(rows.len() as u64)
}

/// Launches to warm up, and again for the profiler.
fn twice(device: &Device, mut launch: impl FnMut() -> apex_gpu::Result<()>) -> apex_gpu::Result<()> {
    launch()?;
    device.synchronize()?;
    // SAFETY: no preconditions; without a profiler nothing happens, and failure only leaves the
    // launch unmarked, which the collection notices.
    let _ = unsafe { sys::cuProfilerStart() };
    launch()?;
    device.synchronize()?;
    // SAFETY: as above.
    let _ = unsafe { sys::cuProfilerStop() };
    Ok(())
}
