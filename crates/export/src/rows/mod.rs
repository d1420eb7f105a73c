//! The tables that a session has: one row a launch, a call, or a kernel.
//!
//! Each table names its columns once, with what they mean; a row is an array as long as that list. Rows of launches and
//! calls come process by process, in the order of the process's file: by time within a thread.

pub mod calls;
pub mod kernels;
pub mod launches;

use crate::table::Cell;
use cuda_launch::Dim3;

fn axis(extent: Option<Dim3>, axis: usize) -> Cell<'static> {
    extent.map(|extent| extent.to_array()[axis]).into()
}
