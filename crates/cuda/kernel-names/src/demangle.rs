//! From mangled symbols to C++, with a bound on the text that hostile symbols expand to.

use std::fmt;

use cpp_demangle::{DemangleOptions, Symbol};

/// Maximum number of bytes of a demangled name; a symbol that expands to more stays as it is.
pub const MOST_DEMANGLED: usize = 1 << 16;

/// Maximum number of bytes of a symbol that is demangled.
const MOST_MANGLED: usize = 1 << 14;

/// The name in C++, with parameter types but without return type; the symbol itself if it is not
/// mangled, or mangled in another way.
pub fn demangled(symbol: &str) -> String {
    if !symbol.starts_with("_Z") || symbol.len() > MOST_MANGLED {
        return symbol.to_owned();
    }
    let options = DemangleOptions::new().no_return_type().hide_expression_literal_types();
    let mut text = Bounded::default();
    match Symbol::new(symbol).map(|parsed| parsed.structured_demangle(&mut text, &options)) {
        Ok(Ok(())) => text.0,
        _ => symbol.to_owned(),
    }
}

/// The name of a function of the host in its language, without parameters: C++, and Rust's older
/// names; the symbol itself if it is mangled in another way.
pub fn host_function_name(symbol: &str) -> String {
    if !symbol.starts_with("_Z") || symbol.len() > MOST_MANGLED {
        return symbol.to_owned();
    }
    let options = DemangleOptions::new().no_params().no_return_type().hide_expression_literal_types();
    let mut text = Bounded::default();
    let name = match Symbol::new(symbol).map(|parsed| parsed.structured_demangle(&mut text, &options)) {
        Ok(Ok(())) => text.0.replace("(anonymous namespace)::", ""),
        _ => return symbol.to_owned(),
    };
    // Rust's end in a digest.
    match name.rsplit_once("::h") {
        Some((path, digest)) if digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            path.to_owned()
        }
        _ => name,
    }
}

/// Text that refuses to grow beyond [`MOST_DEMANGLED`].
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > MOST_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}

/// A demangled name as the rest of the crate reads it, whoever wrote it: anonymous namespaces and
/// casts of template arguments gone, lambdas as `{lambda(float)#1}` (Nsight Compute writes
/// `[lambda(float) (instance 1)]`), cut where it is longer than [`MOST_DEMANGLED`].
pub(crate) fn plain(name: &str) -> String {
    let end = (0..=MOST_DEMANGLED.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    let mut text = name[..end].replace("(anonymous namespace)::", "").replace("<unnamed>::", "");
    text = text.replace("operator ()", "operator()");
    for cast in ["(int)", "(bool)", "(unsigned int)", "(long)", "(unsigned long)"] {
        for before in ["<", ", "] {
            text = text.replace(&format!("{before}{cast}"), before);
        }
    }
    if text.contains("[lambda") {
        text = text.replace("[lambda", "{lambda").replace(" (instance ", "#").replace(")]", "}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_mangled_names_are_read() {
        for name in ["vector_add", "triton_poi_fused_add_0", "", "_notmangled", "_Z"] {
            assert_eq!(demangled(name), name);
        }
        assert_eq!(
            demangled("_Z10vector_addPKfS0_Pfi"),
            "vector_add(float const*, float const*, float*, int)"
        );
    }

    #[test]
    fn functions_of_the_host_have_names_without_parameters() {
        for (symbol, name) in [
            ("main", "main"),
            ("_ZN5model4stepEPfi", "model::step"),
            ("_ZN12_GLOBAL__N_16launchEv", "launch"),
            ("_ZN3app3run17h0123456789abcdefE", "app::run"),
            ("_Zbroken", "_Zbroken"),
        ] {
            assert_eq!(host_function_name(symbol), name);
        }
    }

    #[test]
    fn both_ways_to_write_a_name_read_alike() {
        assert_eq!(
            plain("void at::<unnamed>::k<(int)4, f()::[lambda(float) (instance 1)]>(int, T2)"),
            plain("void at::(anonymous namespace)::k<4, f()::{lambda(float)#1}>(int, T2)")
        );
    }

    /// Each pair of types repeats the one before twice: the text doubles with each level.
    #[test]
    fn a_symbol_that_expands_without_end_stays_as_it_is() {
        let pairs: String = (0..60).map(|level| format!("1PI{0}{0}E", substitution(level))).collect();
        let symbol = format!("_Z1fI1PIiiE{pairs}Evv");
        assert!(demangled(&symbol).len() <= MOST_DEMANGLED);
    }

    fn substitution(index: usize) -> String {
        match index {
            0 => "S_".to_owned(),
            n => {
                format!("S{}_", char::from_digit((n as u32 - 1) % 36, 36).unwrap_or('0').to_ascii_uppercase())
            }
        }
    }
}
