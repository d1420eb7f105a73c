//! The element types of tensors.

use half::{bf16, f16};

/// Elements of tensors that kernels read and write: [`half::bf16`] or [`half::f16`].
pub trait Element: sealed::Element {}
impl Element for bf16 {}
impl Element for f16 {}

mod sealed {
    pub trait Element: bytemuck::Pod {
        /// As kernels' names have it.
        const NAME: &'static str;
    }
    impl Element for half::bf16 {
        const NAME: &'static str = "bf16";
    }
    impl Element for half::f16 {
        const NAME: &'static str = "f16";
    }
}
