//! Tensors whose elements are known when a program runs.

use apex_gpu::{Buffer, Device, Launch};
use half::{bf16, f16};

use super::graph::{ElementType, wrong};
use crate::Result;

/// Memory with elements of one of the types that a graph can have.
#[derive(Debug)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Tensor {
    U32(Buffer<u32>),
    Bf16(Buffer<bf16>),
    F16(Buffer<f16>),
    F32(Buffer<f32>),
}

/// A part of a buffer, to read.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "their names say it")]
pub enum View<'a> {
    U32(apex_gpu::View<'a, u32>),
    Bf16(apex_gpu::View<'a, bf16>),
    F16(apex_gpu::View<'a, f16>),
    F32(apex_gpu::View<'a, f32>),
}

macro_rules! conversions {
    ($($kind:ident $type:ty;)*) => { $(
        impl<'a> From<apex_gpu::View<'a, $type>> for View<'a> {
            fn from(view: apex_gpu::View<'a, $type>) -> View<'a> {
                View::$kind(view)
            }
        }
        impl<'a> From<&'a Buffer<$type>> for View<'a> {
            fn from(buffer: &'a Buffer<$type>) -> View<'a> {
                View::$kind(buffer.view())
            }
        }
        impl From<Buffer<$type>> for Tensor {
            fn from(buffer: Buffer<$type>) -> Tensor {
                Tensor::$kind(buffer)
            }
        }
        /// [`Error::Shape`](crate::Error::Shape) if the elements are of another type.
        impl TryFrom<Tensor> for Buffer<$type> {
            type Error = crate::Error;
            fn try_from(tensor: Tensor) -> Result<Buffer<$type>> {
                match tensor {
                    Tensor::$kind(buffer) => Ok(buffer),
                    other => {
                        let (found, wanted) = (other.element(), ElementType::$kind);
                        Err(wrong(format!("a tensor of {found:?} elements is no buffer of {wanted:?}")))
                    }
                }
            }
        }
    )* };
}

conversions! { U32 u32; Bf16 bf16; F16 f16; F32 f32; }

/// The same expression for each type of elements.
macro_rules! for_each_type {
    ($kinds:ident, $tensor:expr, $inner:ident => $result:expr) => {
        match $tensor {
            $kinds::U32($inner) => $result,
            $kinds::Bf16($inner) => $result,
            $kinds::F16($inner) => $result,
            $kinds::F32($inner) => $result,
        }
    };
}

impl<'a> From<&'a Tensor> for View<'a> {
    fn from(tensor: &'a Tensor) -> View<'a> {
        for_each_type!(Tensor, tensor, buffer => buffer.into())
    }
}

impl Tensor {
    /// Zeros.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu): no memory.
    pub fn zeros(device: &Device, element: ElementType, len: usize) -> Result<Tensor> {
        Ok(match element {
            ElementType::U32 => Tensor::U32(device.zeros(len)?),
            ElementType::Bf16 => Tensor::Bf16(device.zeros(len)?),
            ElementType::F16 => Tensor::F16(device.zeros(len)?),
            ElementType::F32 => Tensor::F32(device.zeros(len)?),
        })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        View::from(self).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their type.
    pub fn element(&self) -> ElementType {
        View::from(self).element()
    }

    /// All elements, on the host.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu): an error of the work before it.
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        Ok(match self {
            Tensor::U32(buffer) => buffer.to_vec()?.into_iter().map(f64::from).collect(),
            Tensor::Bf16(buffer) => buffer.to_vec()?.into_iter().map(f64::from).collect(),
            Tensor::F16(buffer) => buffer.to_vec()?.into_iter().map(f64::from).collect(),
            Tensor::F32(buffer) => buffer.to_vec()?.into_iter().map(f64::from).collect(),
        })
    }

    pub(super) fn push<'a>(&'a self, launch: Launch<'a>) -> Launch<'a> {
        for_each_type!(Tensor, self, buffer => launch.arg(buffer))
    }

    pub(super) fn push_mut<'a>(&'a mut self, launch: Launch<'a>) -> Launch<'a> {
        for_each_type!(Tensor, self, buffer => launch.arg(buffer))
    }
}

impl View<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        for_each_type!(View, self, view => view.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their type.
    pub fn element(&self) -> ElementType {
        match self {
            View::U32(_) => ElementType::U32,
            View::Bf16(_) => ElementType::Bf16,
            View::F16(_) => ElementType::F16,
            View::F32(_) => ElementType::F32,
        }
    }

    pub(super) fn address(&self) -> u64 {
        for_each_type!(View, self, view => view.address())
    }
}

impl<'a> View<'a> {
    pub(super) fn push(&self, launch: Launch<'a>) -> Launch<'a> {
        for_each_type!(View, *self, view => launch.arg(view))
    }
}
