//! `constants.rs`: enumerators and constant macros, by CUDA's names.

use super::{Names, head};
use crate::c::{self, Type, expr::Constant};
use crate::toolkit::Toolkit;
use std::fmt::Write;

/// `constants.rs`
pub fn render(toolkit: &Toolkit, names: &Names<'_>) -> String {
    let mut text = head("The values of the driver's enumerations and macros, by CUDA's names.", toolkit);
    text.push_str(
        "#![allow(missing_docs, non_upper_case_globals, reason = \"the names are CUDA's, and so is their meaning\")]\n\n\
         use crate::types::*;\nuse core::ffi::c_void;\n\n",
    );
    let unit = &toolkit.unit;
    for tag in &unit.enum_order {
        let ty = names.enumeration(tag).unwrap_or_else(|| names.enum_integer(tag).to_owned());
        for (name, value) in &unit.enums[tag].values {
            let _ = writeln!(text, "pub const {name}: {ty} = {value};");
        }
        text.push('\n');
    }
    let mut scope = unit.clone();
    for found in &unit.macros {
        let shouted = found.name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        if !shouted || found.name.starts_with('_') || !toolkit.own(&found.place) {
            continue;
        }
        // A macro that is not a constant (an attribute, a calling convention) is left out.
        if let Ok(constant) = c::parse::constant_of(&mut scope, &found.body) {
            let _ = writeln!(text, "pub const {}: {};", found.name, typed(toolkit, names, &constant));
        }
    }
    text.push('\n');
    results(&mut text, toolkit);
    text
}

/// Type and value, as after `const NAME: `.
fn typed(toolkit: &Toolkit, names: &Names<'_>, constant: &Constant) -> String {
    let value = constant.value;
    match &constant.ty {
        Some(ty) => match toolkit.unit.canonical(ty) {
            Type::Pointer { .. } => format!("{} = core::ptr::without_provenance_mut({value})", names.ty(ty)),
            _ => format!("{} = {value}", names.ty(ty)),
        },
        None if value < 0 => format!("i32 = {value}"),
        None if value <= i128::from(u32::MAX) => format!("u32 = {value}"),
        None => format!("u64 = {value}"),
    }
}

/// The names of `CUresult`'s values, for `result_name`.
fn results(text: &mut String, toolkit: &Toolkit) {
    let tag = match toolkit.unit.typedef("CUresult").map(|typedef| &typedef.ty) {
        Some(Type::Enum(tag)) => tag.as_str(),
        _ => "",
    };
    let mut values = toolkit.unit.enums.get(tag).map_or(Vec::new(), |found| found.values.clone());
    values.sort_by_key(|(_, value)| *value);
    let _ = writeln!(text, "/// The codes that the driver returns, ascending, with their names.");
    let _ = writeln!(text, "pub(crate) static RESULT_NAMES: [(CUresult, &str); {}] = [", values.len());
    for (name, _) in values {
        let _ = writeln!(text, "    ({name}, {name:?}),");
    }
    text.push_str("];\n");
}
