//! `table.rs`: the rows of the entry points, as a macro, and their order by base name.

use super::head;
use crate::toolkit::{Entry, Toolkit};
use std::fmt::Write;

/// `table.rs`
pub fn table(toolkit: &Toolkit) -> String {
    let mut text = head("The table of the driver's entry points, sorted by symbol.", toolkit);
    let _ = writeln!(text, "/// `CUDA_VERSION` of the headers that the table comes from.");
    let _ = writeln!(text, "pub const TOOLKIT_VERSION: u32 = {};\n", toolkit.version);
    let _ = writeln!(
        text,
        "/// Entry points in the table.\npub const COUNT: usize = {};\n",
        toolkit.entries.len()
    );
    text.push_str(MACRO_HEAD);
    for (index, entry) in toolkit.entries.iter().enumerate() {
        let stream = if entry.per_thread { "PerThread" } else { "Legacy" };
        let Entry { symbol, base, version, header, .. } = entry;
        let _ = writeln!(text, "            ({index}, {symbol}, {base}, {version}, {stream}, {header}),");
    }
    text.push_str("        }\n    };\n}\n\n");
    let by_base = by_base(toolkit);
    text.push_str(
        "/// Indices of the declared entry points by base name, legacy before per-thread, then version.\n",
    );
    let _ = writeln!(text, "pub(crate) static BY_BASE: [u16; {}] = {by_base:?};", by_base.len());
    text
}

const MACRO_HEAD: &str = r"/// Hands every row of the table to a macro of this crate: `entry_point_rows!(name args…)` expands
/// to `name! { [args…] rows… }`. A row has the index, the symbol, the base name, the version, the
/// stream mode and the header.
#[doc(hidden)]
#[macro_export]
macro_rules! entry_point_rows {
    ($to:ident $($args:tt)*) => {
        $crate::$to! { [$($args)*]
";

/// Returns the order that `cuda_abi::resolve` searches.
fn by_base(toolkit: &Toolkit) -> Vec<usize> {
    let entries = &toolkit.entries;
    let mut order: Vec<usize> = (0..entries.len()).filter(|&at| entries[at].prototype.is_some()).collect();
    order.sort_by_key(|&at| (&entries[at].base, entries[at].per_thread, entries[at].version));
    order
}
