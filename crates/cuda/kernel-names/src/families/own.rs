//! Kernels of the user: names that no library has.

use super::{Name, known};
use crate::outline;
use crate::words::operation;
use crate::{DataType, Identity, MOST_SHORT, Owner};

pub(super) fn identify(name: &Name<'_>) -> Identity {
    let function = name.function();
    if function.name.is_empty() {
        return known(name.text.to_owned(), crate::Operation::Unknown, None, Owner::Own);
    }
    // An operator's name alone says nothing: its class does.
    let before = name.path.iter().rev().nth(1).filter(|_| function.name.starts_with("operator"));
    let base =
        before.map_or_else(|| function.name.to_owned(), |class| format!("{}::{}", class.name, function.name));
    let arguments = function.arguments();
    let data = arguments
        .iter()
        .find_map(|argument| DataType::in_cpp(argument))
        .or_else(|| function.parameters.and_then(pointer));
    known(with_arguments(&base, &arguments), operation(&base), data, Owner::Own)
}

/// The type of the first parameter that is a pointer.
pub(super) fn pointer(parameters: &str) -> Option<DataType> {
    outline::list(parameters)
        .into_iter()
        .filter(|parameter| parameter.contains('*'))
        .find_map(DataType::in_cpp)
}

/// `reduce<float, 256>`; arguments that do not fit give way to an ellipsis.
fn with_arguments(base: &str, arguments: &[&str]) -> String {
    if arguments.is_empty() {
        return base.to_owned();
    }
    let short: Vec<String> = arguments.iter().map(|argument| argument_text(argument)).collect();
    for kept in (1..=short.len()).rev() {
        let more = if kept < short.len() { ", …" } else { "" };
        let text = format!("{base}<{}{more}>", short[..kept].join(", "));
        if text.chars().count() <= MOST_SHORT {
            return text;
        }
    }
    format!("{base}<…>")
}

/// A type's usual name, a class without namespaces and arguments, anything else as it stands.
fn argument_text(argument: &str) -> String {
    if let Some(data) = DataType::in_cpp(argument) {
        return data.cpp().to_owned();
    }
    match outline::path(argument).last() {
        Some(part) if !part.is_lambda() && !part.name.is_empty() => part.name.to_owned(),
        _ => argument.to_owned(),
    }
}
