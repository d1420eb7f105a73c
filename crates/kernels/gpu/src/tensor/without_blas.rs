//! The replacement of cuBLAS in a build without it.

use super::matmul::Backend;
use super::{Number, Tensor};
use crate::error::Result;

impl<T: Number> Tensor<T> {
    /// The implementation of products of this type.
    pub(super) fn cublas_backend(&self) -> Backend {
        Backend::Own("built without the feature `cublas`".to_owned())
    }

    /// Nothing is multiplied.
    pub(super) fn multiply_with_cublas(&self, _: &Tensor<T>, _: &mut Tensor<T>) -> Option<Result<()>> {
        None
    }
}
