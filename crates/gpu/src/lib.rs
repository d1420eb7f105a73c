//! CUDA from Rust, with or without a GPU.
mod buffer;
mod cache;
mod compiler;
mod device;
mod driver;
mod error;
mod launch;
mod libraries;
mod module;
mod source;
mod stream;
mod tensor;
mod uses;

pub use buffer::{Buffer, Pinned, View, ViewMut};
pub use cache::Cached;
pub use device::{Device, Limits};
pub use driver::{Choice, Kind};
pub use error::{Error, Result};
pub use launch::{Argument, Attributes, Kernel, Launch};
pub use module::Module;
pub use source::{CacheFolder, Source};
pub use stream::{Event, Stream};
pub use tensor::{Backend, Float, Number, Tensor};
