//! CUB and Thrust: the algorithm, its operator, its type. The caller, not the library, chooses
//! them.

use super::{Name, known, typed};
use crate::outline;
use crate::words::{operation, words};
use crate::{DataType, Identity, Operation, Owner};

pub(super) fn identify(name: &Name<'_>) -> Option<Identity> {
    let function = name.function();
    let is_thrust = name.is_in("thrust") || name.is_in("cuda_cub") || name.text.contains("thrust::cuda_cub");
    let is_device_wide = function.name.starts_with("Device") && function.name.ends_with("Kernel");
    let is_cub = name.is_in("cub") || is_device_wide;
    if !is_thrust && !is_cub {
        return None;
    }
    let algorithm = if is_device_wide {
        let middle = function.name.trim_start_matches("Device").trim_end_matches("Kernel");
        words(middle).join("_")
    } else if function.name == "static_kernel" {
        "for_each".to_owned()
    } else {
        agent(name.text).unwrap_or_else(|| crate::words::readable(function.name))
    };
    let arguments = function.arguments();
    let operator = arguments.iter().find_map(|argument| operator(argument));
    let data = data_type(&arguments, is_device_wide);
    let of_caller = match (is_thrust, name.text.contains("at_cuda_detail")) {
        (_, true) => Owner::PyTorch,
        (true, _) => Owner::Thrust,
        _ => Owner::Cub,
    };
    let what = match (operation(&algorithm), algorithm.as_str()) {
        (Operation::Reduction, _) if algorithm.contains("scan") => Operation::Scan,
        (_, "transform" | "for_each" | "parallel_for") => Operation::Elementwise,
        (Operation::Unknown, _) if algorithm.contains("partition") || algorithm.contains("select") => {
            Operation::Sort
        }
        (found, _) => found,
    };
    let named = match &operator {
        Some(operator) => format!("{algorithm} {operator}"),
        None => algorithm,
    };
    let library = if is_thrust { "thrust" } else { "cub" };
    Some(known(format!("{library} {}", typed(&named, data)), what, data, of_caller))
}

/// The algorithm that Thrust's only kernel runs: `fill` of
/// `__parallel_for::ParallelForAgent<__fill::functor<…>>`.
fn agent(text: &str) -> Option<String> {
    let mut inner = text.split("::__").skip(1).map(|rest| rest.split("::").next().unwrap_or(rest));
    let specific = inner.clone().find(|algorithm| !matches!(*algorithm, "parallel_for"));
    let found = specific.or_else(|| inner.next())?;
    let ends = found.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(found.len());
    Some(found[..ends].trim_start_matches("uninitialized_").to_owned())
}

/// `sum` of `cub::Sum`, `plus` of `thrust::plus<float>`, `max` of `cuda::maximum<void>`.
fn operator(argument: &str) -> Option<&'static str> {
    let path = outline::path(argument);
    Some(match path.last()?.name {
        "Sum" | "plus" | "SumOp" => "sum",
        "Max" | "maximum" | "MaxOp" => "max",
        "Min" | "minimum" | "MinOp" => "min",
        "multiplies" => "product",
        "ArgMax" => "argmax",
        "ArgMin" => "argmin",
        "logical_or" => "or",
        "logical_and" => "and",
        _ => return None,
    })
}

/// The type of the elements: the first in the arguments of a device-wide algorithm, where its
/// policy names it; that of the first pointer elsewhere.
fn data_type(arguments: &[&str], is_device_wide: bool) -> Option<DataType> {
    let leaves =
        || arguments.iter().flat_map(|argument| argument.split(['<', '>', ',', '(', ')'])).map(str::trim);
    let pointer = leaves().filter(|leaf| leaf.ends_with('*')).find_map(DataType::in_cpp);
    let first = || leaves().find_map(DataType::in_cpp);
    let in_pointer = || {
        let text = arguments.iter().find_map(|argument| argument.split_once("device_ptr<"))?.1;
        DataType::first_in(text)
    };
    if is_device_wide { first().or(pointer) } else { pointer.or_else(in_pointer).or_else(first) }
}
