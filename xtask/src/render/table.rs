//! `table.rs`: the macro that lists the entry points, and what is known of each; `index.rs`: their
//! numbers by name.

use super::head;
use crate::toolkit::{Entry, Toolkit};
use std::fmt::Write;

/// `table.rs`
pub fn table(toolkit: &Toolkit) -> String {
    let mut text = head("The table of the driver's entry points, sorted by symbol.", toolkit);
    text.push_str("use crate::{EntryPoint, Header::*, StreamMode::*, entry};\n\n");
    let _ = writeln!(text, "/// `CUDA_VERSION` of the headers that the table comes from.");
    let _ = writeln!(text, "pub const TOOLKIT_VERSION: u32 = {};\n", toolkit.version);
    let _ = writeln!(
        text,
        "/// Entry points in the table.\npub const COUNT: usize = {};\n",
        toolkit.entries.len()
    );
    text.push_str(MACRO_HEAD);
    for (index, entry) in toolkit.entries.iter().enumerate() {
        let _ = writeln!(text, "            ({index}, {}),", entry.symbol);
    }
    text.push_str("        ] }\n    };\n}\n\n");
    text.push_str("/// What is known of each entry point, at its index.\n");
    text.push_str("pub static ENTRY_POINTS: [EntryPoint; COUNT] = [\n");
    for entry in &toolkit.entries {
        let stream = if entry.per_thread { "PerThread" } else { "Legacy" };
        let Entry { symbol, base, version, header, .. } = entry;
        let _ = writeln!(text, "    entry({symbol:?}, {base:?}, {version}, {stream}, {header}),");
    }
    text.push_str("];\n\n");
    let by_base = by_base(toolkit);
    text.push_str(
        "/// Indices of the declared entry points by base name, legacy before per-thread, then version.\n",
    );
    let _ = writeln!(text, "pub(crate) static BY_BASE: [u16; {}] = {by_base:?};", by_base.len());
    text
}

const MACRO_HEAD: &str = r#"/// Hands the whole table to another macro: `for_each_entry_point!(callback, args…)` expands to
/// `callback! { args… [ (0, cuArray3DCreate), (1, …), … ] }`, an index literal and the symbol for
/// each entry point.
///
/// ```
/// macro_rules! count {
///     ([ $(($index:literal, $symbol:ident),)* ]) => { [$(stringify!($symbol)),*].len() };
/// }
/// assert_eq!(cuda_abi::for_each_entry_point!(count), cuda_abi::COUNT);
/// ```
#[macro_export]
macro_rules! for_each_entry_point {
    ($($callback:ident)::+ $(, $args:tt)* $(,)?) => {
        $($callback)::+! { $($args)* [
"#;

/// What `cuda_abi::resolve` searches.
fn by_base(toolkit: &Toolkit) -> Vec<usize> {
    let entries = &toolkit.entries;
    let mut order: Vec<usize> = (0..entries.len()).filter(|&at| entries[at].prototype.is_some()).collect();
    order.sort_by_key(|&at| (&entries[at].base, entries[at].per_thread, entries[at].version));
    order
}

/// `index.rs`
pub fn index(toolkit: &Toolkit) -> String {
    let mut text = head("Each entry point's index in the table, by its symbol.", toolkit);
    text.push_str(
        "#![allow(non_upper_case_globals, missing_docs, reason = \"the names are CUDA's, and so is their meaning\")]\n\n",
    );
    for (index, entry) in toolkit.entries.iter().enumerate() {
        let _ = writeln!(text, "pub const {}: usize = {index};", entry.symbol);
    }
    text
}
