//! Modules whose PTX is too new for the driver or the GPU (`apex run --universal`).
//!
//! `apex run` listens on a socket in the session. When the driver refuses a module for a reason
//! that its header may be, this action sends the image there, and receives offers of machine code
//! or PTX that computes the same, or none. It knows nothing of PTX.
//!
//! # Contract
//! 1. *The driver decides first.* Only a module that it has refused is sent.
//! 2. *The program's error stays* if there is no answer in time, if no exact change suffices, or if
//!    the driver refuses all that is offered.
//! 3. *Bounded.* Each offer is waited for at most [`PATIENCE`] and has at most [`MOST_BYTES`], and
//!    there are at most [`MOST_OFFERS`].

use super::ask::connect;
use crate::driver;
use apex_conventions::universal::{MOST_BYTES, PATIENCE, Request, SOCKET};
use cuda_abi::types::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

pub use apex_conventions::universal::is_wanted;

/// Whether the reason for a result may be that PTX is too new: for the driver, for the GPU, or in a
/// fatbin without anything older.
pub fn is_too_new(result: CUresult) -> bool {
    matches!(
        result,
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION | CUDA_ERROR_INVALID_PTX | CUDA_ERROR_NO_BINARY_FOR_GPU
    )
}

/// Maximum number of offers for an image.
const MOST_OFFERS: usize = 4;

/// What `apex run` offers in place of an image.
pub struct Offers {
    stream: UnixStream,
    left: usize,
}

/// Asks for offers in place of an image that the driver has refused with `result`; `None` if nobody
/// answers.
pub fn offers(result: CUresult, image: &[u8]) -> Option<Offers> {
    let request = Request {
        capability: driver::architecture(),
        driver_version: driver::version(),
        result,
        bytes: image.len() as u64,
    };
    let mut stream = connect(SOCKET, PATIENCE)?;
    stream.write_all(&request.to_bytes()).ok()?;
    stream.write_all(image).ok()?;
    Some(Offers { stream, left: MOST_OFFERS })
}

impl Offers {
    /// The next offer, a zero byte at its end; `None` if there is none.
    pub fn another(&mut self) -> Option<Vec<u8>> {
        self.left = self.left.checked_sub(1)?;
        let mut length = [0; 8];
        self.stream.read_exact(&mut length).ok()?;
        let length = usize::try_from(u64::from_le_bytes(length)).ok().filter(|&bytes| bytes > 0)?;
        if length > MOST_BYTES {
            return None;
        }
        let mut code = vec![0; length + 1];
        self.stream.read_exact(&mut code[..length]).ok()?;
        Some(code)
    }

    /// Tells `apex run` whether the driver has loaded the last offer.
    pub fn tell(&mut self, is_loaded: bool) {
        let _ = self.stream.write_all(&[u8::from(is_loaded)]);
    }
}
