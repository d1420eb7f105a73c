//! `types.rs`: handles, aliases, structs and unions.
//!
//! Every struct is complete where the headers say what is in it, with its layout asserted at
//! compile time. Enumerations become integers, since a driver may be newer than the table and
//! return what it does not know.

use super::{Names, head, identifier, standard};
use crate::c::layout::Layout;
use crate::c::{Field, Record, Type, Unit};
use crate::toolkit::Toolkit;
use std::fmt::Write;

/// `types.rs`
pub fn render(toolkit: &Toolkit, names: &Names<'_>) -> String {
    let mut text = head("The driver's types, by CUDA's names, and its constants.", toolkit);
    text.push_str(
        "#![allow(\n    non_camel_case_types, non_snake_case, missing_docs,\n    \
         reason = \"the names are CUDA's, and so is their meaning\"\n)]\n\n\
         pub use crate::constants::*;\npub use crate::result::{result_description, result_name};\n\
         use crate::plain::plain;\nuse core::ffi::{c_char, c_void};\n\n",
    );
    let unit = &toolkit.unit;
    for tag in &unit.enum_order {
        if let Some(name) = names.enumeration(tag) {
            let _ = writeln!(text, "pub type {name} = {};", names.enum_integer(tag));
        }
    }
    for typedef in &unit.typedefs {
        alias(&mut text, typedef, names);
    }
    for tag in &unit.record_order {
        record(&mut text, unit, tag, names);
    }
    text
}

/// A typedef, unless it gave its name to a record or enumeration, or is one of the C library's, or
/// is a mere pointer to an entry point, which `signature` has.
fn alias(text: &mut String, typedef: &crate::c::Typedef, names: &Names<'_>) {
    let name = &typedef.name;
    let takes_name = match &typedef.ty {
        Type::Record(tag) => names.record(tag) == *name,
        Type::Enum(tag) => names.enumeration(tag).as_ref() == Some(name),
        _ => false,
    };
    if !takes_name && standard(name).is_none() && !name.starts_with("PFN_cu") {
        let _ = writeln!(text, "pub type {name} = {};", names.ty(&typedef.ty));
    }
}

fn record(text: &mut String, unit: &Unit, tag: &str, names: &Names<'_>) {
    let Some(record) = unit.records.get(tag) else { return };
    let name = names.record(tag);
    let (Some(fields), Some(layout)) = (&record.fields, &record.layout) else {
        let _ = writeln!(text, "#[repr(C)]\n#[derive(Debug)]\npub struct {name} {{ _opaque: [u8; 0] }}\n");
        return;
    };
    let align = record.align.map_or(String::new(), |align| format!(", align({align})"));
    let debug = if printable(unit, record) { ", Debug" } else { "" };
    let keyword = if record.union { "union" } else { "struct" };
    let _ = writeln!(text, "#[repr(C{align})]\n#[derive(Clone, Copy{debug})]\npub {keyword} {name} {{");
    for field in fields {
        let _ = writeln!(text, "    pub {}: {},", field_name(field), names.ty(&field.ty));
    }
    let Layout { size, align } = layout.whole;
    let _ = writeln!(text, "}}\nplain!({name}: {size}, {align};");
    let at = |(field, offset): (&Field, &u64)| format!("{} at {offset}", field_name(field));
    filled(text, fields.iter().zip(&layout.offsets).map(at));
    text.push_str(");\n\n");
}

/// A list in indented lines of bearable width: `rustfmt` leaves macros alone.
fn filled(text: &mut String, items: impl Iterator<Item = String>) {
    let mut line = String::new();
    for item in items {
        if line.len() + item.len() > 100 {
            let _ = writeln!(text, "   {line},");
            line.clear();
        }
        let comma = if line.is_empty() { "" } else { "," };
        let _ = write!(line, "{comma} {item}");
    }
    let _ = writeln!(text, "   {line}");
}

/// A member's name in Rust. No record of the headers has two anonymous members.
fn field_name(field: &Field) -> String {
    if field.name.is_empty() { "anonymous".to_owned() } else { identifier(&field.name) }
}

/// Whether `Debug` can be derived: no union inside, for nobody knows which member holds.
fn printable(unit: &Unit, record: &Record) -> bool {
    let fields = record.fields.iter().flatten();
    !record.union && fields.into_iter().all(|field| printable_type(unit, &field.ty))
}

fn printable_type(unit: &Unit, ty: &Type) -> bool {
    match ty {
        Type::Array { of, .. } => printable_type(unit, of),
        Type::Named(name) => unit.typedef(name).is_none_or(|typedef| printable_type(unit, &typedef.ty)),
        Type::Record(tag) => unit.records.get(tag).is_none_or(|record| printable(unit, record)),
        _ => true,
    }
}
