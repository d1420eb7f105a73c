//! CuPy and Numba: kernels made from Python.

use super::{Name, known, typed};
use crate::words::operation;
use crate::{DataType, Identity, Operation, Owner, Traits, Types};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    cupy(name.text).or_else(|| numba(name))
}

/// `cupy_multiply__float32_float_float32`: the operation and the types of its arguments, the result
/// last.
fn cupy(text: &str) -> Option<Identity> {
    let rest = text.strip_prefix("cupy_").or_else(|| text.strip_prefix("cupyx_"))?;
    let (function, arguments) = rest.split_once("__").unwrap_or((rest, ""));
    let types: Vec<DataType> = arguments.split('_').filter_map(DataType::in_code).collect();
    let (input, output) = (types.first().copied(), types.last().copied());
    let operation = match operation(function) {
        Operation::Copy if input != output => Operation::Cast,
        other => other,
    };
    let identity = known(format!("cupy {}", typed(function, input)), operation, input, Owner::CuPy);
    Some(identity.with(|traits| Traits { types: Types { output, ..traits.types }, ..traits }))
}

/// `cudapy::__main__::add[abi:v1]…(Array<float, 1, C, mutable, aligned>, …)`: the user's own.
fn numba(name: &Name<'_>) -> Option<Identity> {
    if !name.text.starts_with("cudapy::") && !name.text.contains("[abi:") {
        return None;
    }
    let mut parts = name
        .path
        .iter()
        .map(|part| part.name)
        .filter(|part| !matches!(*part, "cudapy" | "numba_cuda") && !part.is_empty());
    let last = parts.next_back()?;
    let function = last.split('[').next().filter(|function| !function.is_empty()).unwrap_or(last);
    let data =
        name.text.split("Array<").nth(1).and_then(|rest| DataType::in_cpp(rest.split([',', '>']).next()?));
    Some(known(typed(function, data), operation(function), data, Owner::Own))
}
