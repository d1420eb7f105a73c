//! Kernel names for people.
//!
//! The driver names a kernel as its compiler did: mangled (C++, Itanium ABI) or plain (Triton, `extern "C"`). Full names
//! of template kernels run to thousands of characters, so tables use [`shortened`] ones.

use cpp_demangle::{DemangleOptions, Symbol};

/// The name in C++, with parameter types but without return type; the symbol itself if it is not mangled, or mangled in
/// another way.
pub fn demangled(symbol: &str) -> String {
    if !symbol.starts_with("_Z") {
        return symbol.to_owned();
    }
    let options = DemangleOptions::new().no_return_type();
    Symbol::new(symbol)
        .ok()
        .and_then(|name| name.demangle_with_options(&options).ok())
        .unwrap_or_else(|| symbol.to_owned())
}

/// A demangled name for tables: without namespaces and parameters, template arguments collapsed to `<…>`; cut to 60
/// characters.
pub fn shortened(name: &str) -> String {
    let flat = collapse(&name.replace("(anonymous namespace)::", ""));
    // A conversion such as `operator()` keeps its parentheses; parameters do not.
    let end = match flat.find("operator()") {
        Some(at) => at + "operator()".len(),
        None => flat.find('(').unwrap_or(flat.len()),
    };
    let base = flat[..end].trim_end();
    let base = base.rsplit("::").find(|part| !part.is_empty()).unwrap_or(base);
    let base = base.rsplit(' ').next().unwrap_or(base);
    if base.is_empty() { cut(name) } else { cut(base) }
}

/// Replaces everything between matching angle brackets by an ellipsis. Operators are told from brackets by what precedes
/// them.
fn collapse(name: &str) -> String {
    let mut flat = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut previous = ' ';
    for c in name.chars() {
        let of_operator = matches!(c, '<' | '>')
            && (flat.ends_with("operator")
                || flat.ends_with("operator<")
                || flat.ends_with("operator>")
                || flat.ends_with("operator-"));
        match c {
            '<' if !of_operator || depth > 0 => {
                if depth == 0 {
                    flat.push_str("<…>");
                }
                depth += 1;
            }
            // The arrow of a pointer to member or of a trailing return type is no bracket.
            '>' if depth > 0 && previous != '-' => depth -= 1,
            _ if depth == 0 => flat.push(c),
            _ => {}
        }
        previous = c;
    }
    flat
}

fn cut(name: &str) -> String {
    const MOST: usize = 60;
    match name.char_indices().nth(MOST) {
        None => name.to_owned(),
        Some(_) => name.chars().take(MOST - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay() {
        for name in ["vector_add", "triton_poi_fused_add_0", "", "_notmangled", "_Z"] {
            assert_eq!(demangled(name), name);
        }
    }

    #[test]
    fn mangled_names_are_read() {
        assert_eq!(
            demangled("_Z10vector_addPKfS0_Pfi"),
            "vector_add(float const*, float const*, float*, int)"
        );
        assert_eq!(shortened("vector_add(float const*, float const*, float*, int)"), "vector_add");
    }

    #[test]
    fn templates_collapse() {
        let name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, \
                    std::array<char*, 1ul>>(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)";
        assert_eq!(shortened(name), "vectorized_elementwise_kernel<…>");
        assert_eq!(shortened("void (anonymous namespace)::softmax<float, (bool)1>(float*)"), "softmax<…>");
        assert_eq!(shortened("ns::Op<int>::operator()(int) const"), "operator()");
        assert_eq!(shortened("cutlass::Kernel2<cutlass_80_gemm>"), "Kernel2<…>");
    }

    #[test]
    fn long_names_are_cut() {
        let short = shortened(&"k".repeat(200));
        assert_eq!(short.chars().count(), 60);
        assert!(short.ends_with('…'));
    }

    proptest! {
        #[test]
        fn no_name_panics(name in any::<String>(), mangled in "_Z[A-Za-z0-9_]{0,40}", brackets in "[<>():operat a-]{0,40}") {
            for text in [&name, &mangled, &brackets] {
                let short = shortened(&demangled(text));
                prop_assert!(short.chars().count() <= 60);
            }
        }
    }
}
