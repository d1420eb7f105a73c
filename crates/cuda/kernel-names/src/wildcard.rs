//! Names with wildcards.

/// Whether `pattern`, in which `*` stands for any characters, matches the whole name.
pub fn is_like(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // The leftmost place of each part leaves the most to those after it.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (name, pattern, alike) in [
            ("abc", "abc", true),
            ("abc", "*", true),
            ("abc", "a*c", true),
            ("aba", "ab*ba", false),
            ("abba", "ab*ba", true),
            ("abab", "*ab", true),
            ("abxb", "a*b*b", true),
            ("abb", "a*b*b", true),
            ("ab", "a*b*b", false),
            ("32×16", "*×*", true),
            ("f<float*>", "f<float*>", true),
            ("", "*", true),
            ("", "", true),
            ("abc", "ab", false),
            ("abc", "bc", false),
        ] {
            assert_eq!(is_like(name, pattern), alike, "{name} {pattern}");
        }
    }
}
