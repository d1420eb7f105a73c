//! A launch as it would be with another grid, block or memory.

use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig};

/// A change of a launch; `None` keeps the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The new grid.
    pub grid: Option<Dim3>,
    /// The new block.
    pub block: Option<Dim3>,
    /// The new dynamic shared memory of a block.
    pub dynamic_shared_bytes: Option<u32>,
    /// The new registers of a thread.
    pub registers: Option<u32>,
}

impl Change {
    /// The launch that it makes of another. A new block alone keeps the threads
    /// ([`LaunchConfig::with_block`]).
    ///
    /// # Errors
    /// If the grid does not follow from the block.
    pub fn apply_to_launch(&self, launch: LaunchConfig) -> Result<LaunchConfig, String> {
        let launch = match (self.grid, self.block) {
            (Some(grid), block) => LaunchConfig { grid, block: block.unwrap_or(launch.block), ..launch },
            (None, None) => launch,
            (None, Some(block)) => {
                launch.with_block(block).ok_or("the grid does not follow from this block: give grid=, too")?
            }
        };
        let dynamic_shared_bytes = self.dynamic_shared_bytes.unwrap_or(launch.dynamic_shared_bytes);
        Ok(LaunchConfig { dynamic_shared_bytes, ..launch })
    }

    /// Applies the change to a kernel's attributes.
    ///
    /// # Errors
    /// If it changes registers that are not known.
    pub fn apply_to_kernel(
        &self,
        kernel: Option<FunctionAttributes>,
    ) -> Result<Option<FunctionAttributes>, String> {
        match (self.registers, kernel) {
            (Some(registers), Some(kernel)) => Ok(Some(FunctionAttributes { registers, ..kernel })),
            (Some(_), None) => Err("registers can be changed only where they are known".to_owned()),
            (None, kernel) => Ok(kernel),
        }
    }
}
