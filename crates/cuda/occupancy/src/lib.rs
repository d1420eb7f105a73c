//! Exact launch arithmetic: theoretical occupancy and its limiter, waves, tail, block efficiency.
//!
//! Everything here is computed, nothing is estimated: the same inputs give what
//! `cuOccupancyMaxActiveBlocksPerMultiprocessor` answers on a real device
//! (`data/h200/device/occupancy.csv.zst` holds it to that). Words are those of the CUDA programming
//! guide and of Nsight Compute.
//!
//! * [`DeviceLimits`]: what a multiprocessor (SM) has to give, by compute capability, corrected by
//!   the attributes that the driver reports.
//! * [`products`]: attributes of devices by name.
//! * [`theoretical`]: how many blocks of a kernel fit on an SM at once, and what stops one more
//!   from fitting.
//! * [`Waves`]: how the blocks of a grid fill the device, wave after wave, and what the last one
//!   leaves idle.
//! * [`what_if`]: which block size is best, and how many registers or bytes less would admit one
//!   more block.
//!
//! ```
//! use cuda_launch::FunctionAttributes;
//! use occupancy::{theoretical, DeviceLimits, Limiter, Waves};
//!
//! let h100 = DeviceLimits::of_compute_capability(9, 0).unwrap();
//! let kernel = FunctionAttributes { registers: 96, ..FunctionAttributes::default() };
//! let occupancy = theoretical(&h100, &kernel, 256, 0);
//! assert_eq!((occupancy.blocks_per_sm, occupancy.warps_per_sm), (2, 16));
//! assert_eq!(occupancy.limiters().collect::<Vec<_>>(), [Limiter::Registers]);
//!
//! let waves = Waves::of_grid(300, occupancy.blocks_per_sm, 132);
//! assert_eq!((waves.full, waves.tail_blocks), (1, 36));
//! ```

mod calculator;
mod limits;
pub mod products;
mod waves;
pub mod what_if;

pub use calculator::{Limiter, Occupancy, theoretical};
pub use limits::DeviceLimits;
pub use waves::{Waves, block_efficiency};
