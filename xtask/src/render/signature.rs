//! `signature.rs`: each entry point's type, by its symbol.

use super::{Names, head};
use crate::toolkit::Toolkit;
use std::fmt::Write;

/// `signature.rs`
pub fn render(toolkit: &Toolkit, names: &Names<'_>) -> String {
    let mut text = head("Each declared entry point's type, by its symbol.", toolkit);
    text.push_str(
        "#![allow(non_camel_case_types, non_snake_case, missing_docs, reason = \"the names are CUDA's, and so is their meaning\")]\n\n\
         use crate::types::*;\nuse core::ffi::{c_char, c_void};\n\n",
    );
    for entry in &toolkit.entries {
        if let Some(prototype) = &entry.prototype {
            let _ = writeln!(text, "pub type {} = {};", entry.symbol, names.function(prototype));
        }
    }
    text
}
