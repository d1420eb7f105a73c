//! The CUDA driver as a program sees it: opened at run time, its functions looked up by symbol.
//!
//! [`library`] opens a driver and calls it; [`device`], [`image`] and [`tensor_map`] the objects
//! that a program creates, each freed when it goes out of scope. Each method makes the driver call
//! that a CUDA C++ program would make at that point, and no other: the bundled programs, the
//! differential test and the clients of tests depend on exact calls. No CUDA library is linked.

pub mod device;
mod error;
pub mod image;
pub mod library;
pub mod tensor_map;

pub use device::Device;
pub use error::{DriverError, Result};
pub use library::Library;
