//! Tensors that a case copies boxes or pixels of, by tensor maps (TMA).
//!
//! A [`Tensor`] is a description without addresses, so that a recorded case can be run again
//! anywhere; the driver encodes its map when the buffers of the case have been allocated.

use apex_driver::tensor_map::{Layout, encode};
use apex_driver::{DriverError, library::Library};
use cuda_abi::types::*;
use serde::{Deserialize, Serialize};

/// A tensor in one of a case's buffers, and the box of it that one copy moves. The innermost
/// dimension comes first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// The buffer.
    pub buffer: Buffer,
    /// Bytes from its start.
    pub offset: usize,
    /// The type of elements.
    pub element: Element,
    /// Elements along each dimension.
    pub sizes: Vec<u64>,
    /// Bytes from an element to the next along each dimension but the first.
    pub strides: Vec<u64>,
    /// Elements that the box spans along each dimension; of pixels channels and pixels alone.
    pub spans: Vec<u32>,
    /// The box has every element, every second, … along each dimension.
    pub steps: Vec<u32>,
    /// Permutation of shared memory: none, or within 32, 64 or 128 bytes.
    pub swizzle: u32,
    /// Whether NaNs stand for elements outside, in place of zeros.
    pub nan: bool,
    /// The first and the last pixel along each inner dimension, where copies go through pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corners: Option<[Vec<i32>; 2]>,
}

/// A buffer of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// That of the inputs.
    Inputs,
    /// That of the results.
    Results,
}

/// The type of a tensor's elements: the names are those of `CU_TENSOR_MAP_DATA_TYPE_…` in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "signedness and bits")]
pub enum Element {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F32,
    F64,
    F32Ftz,
    Tf32,
    Tf32Ftz,
}

impl Element {
    fn cuda(self) -> CUtensorMapDataType {
        match self {
            Element::U8 => CU_TENSOR_MAP_DATA_TYPE_UINT8,
            Element::U16 => CU_TENSOR_MAP_DATA_TYPE_UINT16,
            Element::U32 => CU_TENSOR_MAP_DATA_TYPE_UINT32,
            Element::S32 => CU_TENSOR_MAP_DATA_TYPE_INT32,
            Element::U64 => CU_TENSOR_MAP_DATA_TYPE_UINT64,
            Element::S64 => CU_TENSOR_MAP_DATA_TYPE_INT64,
            Element::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Element::Bf16 => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            Element::F32 => CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            Element::F64 => CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
            Element::F32Ftz => CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
            Element::Tf32 => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            Element::Tf32Ftz => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::U64 | Element::S64 | Element::F64 => 8,
            _ => 4,
        }
    }

    /// Whether elements are numbers of floating point.
    pub fn is_float(self) -> bool {
        !matches!(
            self,
            Element::U8 | Element::U16 | Element::U32 | Element::S32 | Element::U64 | Element::S64
        )
    }
}

impl Tensor {
    /// Bytes that one copy moves. The step along the first dimension has no effect.
    pub fn box_bytes(&self) -> usize {
        let counts = self.spans.iter().zip(&self.steps).enumerate().map(|(axis, (span, step))| {
            let skips = axis > 0 && self.corners.is_none();
            if skips { span.div_ceil(*step) as usize } else { *span as usize }
        });
        counts.product::<usize>() * self.element.bytes()
    }

    /// The map of the tensor, if the buffers of the case have these addresses.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn map(&self, driver: Library, inputs: u64, results: u64) -> Result<[u8; 128], DriverError> {
        let start = match self.buffer {
            Buffer::Inputs => inputs,
            Buffer::Results => results,
        };
        let corners = self.corners.as_ref().map(|[lower, upper]| (lower.as_slice(), upper.as_slice()));
        encode(
            driver,
            &Layout {
                address: start + self.offset as u64,
                data_type: self.element.cuda(),
                sizes: &self.sizes,
                strides: &self.strides,
                spans: &self.spans,
                steps: &self.steps,
                swizzle: self.swizzle as CUtensorMapSwizzle,
                nan: self.nan,
                corners,
            },
        )
    }
}
