//! Functors of ATen, in the template arguments of its elementwise, reduction and `foreach` kernels.
//!
//! A functor is a class (`CUDAFunctor_add<float>`), a class around another (`BinaryFunctor<…,
//! MulFunctor<float>>`), or a lambda inside a function
//! (`direct_copy_kernel_cuda(…)::{lambda()#3}::operator()() const::{lambda(float)#1}`), whose
//! innermost parameters are the types. Functions that only pass a functor on are looked through.

use crate::DataType;
use crate::outline::{self, Part};
use crate::words::readable;

/// The operation and types of a functor.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Functor {
    /// A readable name; empty where there is none.
    pub name: String,
    /// Parameters' types, or those of its template.
    pub types: Vec<DataType>,
    /// The function or class, as it stands there.
    pub identifier: String,
}

/// Classes and functions around the functor that computes: the functor is their last or first
/// argument.
const AROUND: [&str; 13] = [
    "cuda_take_put_kernel",
    "gpu_index_kernel",
    "BinaryFunctor",
    "AUnaryFunctor",
    "BUnaryFunctor",
    "func_wrapper_t",
    "gpu_kernel_impl_nocast",
    "gpu_kernel_impl",
    "gpu_kernel",
    "gpu_kernel_with_scalars",
    "opmath_symmetric_gpu_kernel_with_scalars",
    "launch_unrolled_kernel",
    "jitted_gpu_kernel",
];

/// Depth to which functors are looked through.
const MOST_AROUND: usize = 8;

/// Returns the operation and types of the functor in a template argument.
pub(super) fn of(argument: &str) -> Functor {
    of_depth(argument, MOST_AROUND)
}

fn of_depth(argument: &str, depth: usize) -> Functor {
    let path = outline::path(argument);
    let Some(part) = path.iter().find(|part| is_named(part)).or(path.last()) else {
        return Functor::default();
    };
    if depth > 0 && AROUND.contains(&part.name) {
        let inner = part.arguments().into_iter().rfind(|inner| !is_plain(inner));
        if let Some(inner) =
            inner.map(|inner| of_depth(inner, depth - 1)).filter(|inner| !inner.name.is_empty())
        {
            // The functor inside may compute in another type than its operands have.
            let outer = types_of(part);
            let types = if outer.is_empty() { inner.types } else { outer };
            return Functor { types, ..inner };
        }
    }
    let types = match path.iter().rev().find(|part| part.is_lambda()) {
        Some(lambda) => lambda.parameters.map_or_else(Vec::new, types_in),
        None => Vec::new(),
    };
    let types = if types.is_empty() { types_of(part) } else { types };
    Functor { name: readable(part.name), types, identifier: part.name.to_owned() }
}

/// A function or class, and not a namespace around it.
fn is_named(part: &Part<'_>) -> bool {
    !part.is_lambda() && part.name != "operator()" && (part.arguments.is_some() || part.parameters.is_some())
}

/// A number or a data type.
fn is_plain(argument: &str) -> bool {
    argument.bytes().all(|byte| byte.is_ascii_digit()) || DataType::in_cpp(argument).is_some()
}

fn types_of(part: &Part<'_>) -> Vec<DataType> {
    part.arguments().into_iter().filter_map(DataType::in_cpp).collect()
}

/// The types of parameters; none where they are addresses of bytes.
fn types_in(list: &str) -> Vec<DataType> {
    if list.contains("char*") || list.contains("char const*") {
        return Vec::new();
    }
    outline::list(list).into_iter().filter_map(DataType::in_cpp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functors_are_found_wherever_they_are() {
        for (text, name, first) in [
            ("at::native::CUDAFunctor_add<c10::Half>", "add", DataType::F16),
            (
                "at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>",
                "mul",
                DataType::F32,
            ),
            (
                "at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}\
                 ::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&, int \
                 const&)::{lambda(int)#1}",
                "copy",
                DataType::F32,
            ),
            (
                "at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)\
                 ::{lambda(float, float)#1}>",
                "sum",
                DataType::F32,
            ),
        ] {
            let found = of(text);
            assert_eq!((found.name.as_str(), found.types.first()), (name, Some(&first)), "{text}");
        }
    }
}
