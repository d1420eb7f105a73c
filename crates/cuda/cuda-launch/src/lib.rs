//! The description of a CUDA launch, made once for everybody who records, checks, predicts or
//! executes one.
//!
//! * [`Dim3`]: blocks of a grid, threads of a block.
//! * [`LaunchConfig`]: grid, block, cluster and dynamic shared memory, and the same threads in
//!   other blocks ([`LaunchConfig::with_block`]).
//! * [`FunctionAttributes`]: what the driver says of a kernel.
//! * [`DeviceAttributes`]: what the driver says of a device, by name.
//!
//! Names are those of the CUDA programming guide; a plain number names its unit (`_bytes`, `_khz`,
//! `_bits`). Nothing here panics on any number, because numbers come from files and programs too:
//! counts saturate, and what does not follow is `None`.
//!
//! ```
//! use cuda_launch::{Dim3, LaunchConfig};
//!
//! let launch = LaunchConfig::new((100, 3), 256);
//! assert_eq!(launch.blocks(), 300);
//! assert_eq!(launch.to_string(), "<<<(100, 3, 1), (256, 1, 1), 0>>>");
//!
//! let wider = launch.with_block(512.into()).unwrap();
//! assert_eq!(wider.grid, Dim3::new(50, 3, 1));
//! ```

mod config;
mod device;
mod dim3;
mod function;

pub use config::{LaunchConfig, LaunchLimit, LimitExceeded};
pub use device::{DeviceAttributes, attribute, compute_capability};
pub use dim3::Dim3;
pub use function::{Carveout, FunctionAttributes};
