//! The property that all generated structs and unions share: zero bytes are a valid value, and the
//! layout is that of C.

/// A type of which all-zero bytes are a value, as after C's `memset(&x, 0, sizeof x)`: null
/// pointers, no functions, first enumerators.
///
/// ```
/// use cuda_abi::{Plain, types::CUlaunchConfig};
/// let config = CUlaunchConfig { gridDimX: 8, gridDimY: 1, gridDimZ: 1, ..Plain::zeroed() };
/// assert!(config.attrs.is_null());
/// ```
///
/// # Safety
/// All-zero bytes are a valid value of the type.
pub unsafe trait Plain: Copy {
    /// All bytes zero.
    fn zeroed() -> Self {
        // SAFETY: the implementor promises that zeros are a value.
        unsafe { core::mem::zeroed() }
    }
}

/// `plain!(NAME: SIZE, ALIGN; FIELD at OFFSET, …)`, for a generated record: makes it [`Plain`], and
/// the compiler check that it is laid out as the C headers have it.
macro_rules! plain {
    ($name:ident: $size:literal, $align:literal; $($field:ident at $offset:literal),*) => {
        // SAFETY: the generator makes records of integers, floats, raw pointers, optional
        // functions, arrays of these and other such records, and nothing else.
        unsafe impl $crate::Plain for $name {}
        const _: () = {
            assert!(size_of::<$name>() == $size && align_of::<$name>() == $align);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
pub(crate) use plain;
