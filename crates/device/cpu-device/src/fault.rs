//! Faults outside of kernels: a copy, a fill or a stream memory operation finds at its execution
//! that its memory no longer exists.
//!
//! The call that submitted the operation has already returned. The fault therefore belongs to the
//! context, as a kernel's does, and the message on standard error names the call.

use crate::error::Error;
use crate::log;
use crate::observation;
use cuda_abi::types::CUDA_ERROR_ILLEGAL_ADDRESS;
use std::fmt;
use std::io::Write;

/// An access to memory that is not there.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The driver function that asked for it.
    pub call: &'static str,
    /// The first address.
    pub address: u64,
    /// The number of bytes accessed.
    pub bytes: u64,
    /// Whether it is a write.
    pub write: bool,
}

impl Access {
    /// Reports the access; `place` says in words what is at its address.
    pub fn fault(self, place: &str) -> Error {
        let Access { address, bytes, write, .. } = self;
        let (call, verb) = (name(self.call), if write { "write" } else { "read" });
        let unit = if bytes == 1 { "byte" } else { "bytes" };
        let text = format!("invalid {verb} of {bytes} {unit} at {address:#x}: {place}");
        tell(format_args!(
            "CUDA_ERROR_ILLEGAL_ADDRESS in {call}\n    {text}\n    keep memory until the work that uses it has been \
             executed"
        ));
        observation::fault_of_call(call, &text, "CUDA_ERROR_ILLEGAL_ADDRESS");
        Error(CUDA_ERROR_ILLEGAL_ADDRESS)
    }
}

/// A driver function as programs name it: `cuMemFree` for `cuMemFree_v2`.
pub fn name(symbol: &'static str) -> &'static str {
    cuda_abi::find(symbol).map_or(symbol, |index| cuda_abi::ENTRY_POINTS[index].base)
}

/// Says something on standard error and in the error log. A program may have closed standard
/// error; it must not become its problem.
pub fn tell(text: fmt::Arguments) {
    log::lock().add(text.to_string());
    let _ = writeln!(std::io::stderr(), "apex: cpu device: {text}");
}
