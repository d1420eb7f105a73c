//! A call of the program as a value.
//!
//! # Contract
//! A [`Call`] is an entry point and arguments that meet the contract of the driver's function of
//! that name: the pointers that the function reads are valid for reading, its out-parameters that
//! are not null are valid for writing, for as long as the call is not forwarded. Whoever makes one
//! vouches for that ([`Call::new`]); a hook may, because the program that entered it keeps to that
//! function's contract. The entry point's type is held against `cuda_abi::signature` by
//! [`super::table`]. [`Call::forward`] consumes the value, and the compiler warns of a call that is
//! dropped. So nothing is done twice: a call is made again only where the driver refused it for lack
//! of memory, and then it has done nothing.

use crate::actions::pool::{self, work};
use crate::driver::real_at;
use cuda_abi::types::{CUDA_ERROR_OUT_OF_MEMORY, CUresult};

/// A function type of the driver's.
///
/// # Safety
/// `call` calls `self` with the arguments in their order, and does nothing else.
pub unsafe trait Function: Copy {
    /// The arguments, as a tuple.
    type Arguments: Copy;

    /// Calls it.
    ///
    /// # Safety
    /// The function's own contract.
    unsafe fn call(self, arguments: Self::Arguments) -> CUresult;
}

macro_rules! functions {
    ($(($($argument:ident),*))*) => {$(
        // SAFETY: the tuple's fields are the arguments, in order.
        unsafe impl<$($argument: Copy),*> Function for unsafe extern "C" fn($($argument),*) -> CUresult {
            type Arguments = ($($argument,)*);

            #[inline(always)]
            #[allow(non_snake_case, reason = "one name for the type and the value")]
            unsafe fn call(self, ($($argument,)*): Self::Arguments) -> CUresult {
                // SAFETY: by contract.
                unsafe { self($($argument),*) }
            }
        }
    )*};
}
functions! {
    () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H) (A, B, C, D, E, F, G, H, I) (A, B, C, D, E, F, G, H, I, J)
    (A, B, C, D, E, F, G, H, I, J, K)
}

/// See the [module](self).
#[must_use = "a call that is dropped is never made"]
pub struct Call<F: Function, const INDEX: usize>(F::Arguments);

impl<F: Function, const INDEX: usize> Call<F, INDEX> {
    /// The call of the entry point at `INDEX` with these arguments.
    ///
    /// # Safety
    /// `F` is the type of that entry point, and the arguments meet its contract.
    #[inline(always)]
    pub unsafe fn new(arguments: F::Arguments) -> Call<F, INDEX> {
        Call(arguments)
    }

    /// Makes the call in the real driver; once more if that has no device memory left and the pool
    /// has some to give back.
    #[inline(always)]
    pub fn forward(self) -> CUresult {
        let mut result = self.make();
        if result == CUDA_ERROR_OUT_OF_MEMORY && pool::give_all_back() {
            result = self.make();
        }
        if const { work::may_submit(INDEX) } {
            work::submitted();
        }
        result
    }

    #[inline(always)]
    fn make(&self) -> CUresult {
        // SAFETY: the contract of `new`, and that of the table of real entry points. A call that
        // was refused has done nothing with its arguments.
        unsafe { real_at::<F>(INDEX).call(self.0) }
    }
}
