//! Functions that device code calls and nobody defines: `printf`, `malloc`, and the device runtime.

pub(crate) mod builtin;
pub(crate) mod device_runtime;
pub(crate) mod printf;
