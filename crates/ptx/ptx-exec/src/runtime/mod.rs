//! Functions that device code calls and the device provides: `printf`, `malloc`, the device
//! runtime.

pub(crate) mod builtin;
pub(crate) mod device_runtime;
pub(crate) mod printf;
