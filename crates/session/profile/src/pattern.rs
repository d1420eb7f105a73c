//! Kernels of a profile by name.

use apex_ordered::Gather;
use std::collections::BTreeSet;

use apex_kernel_names::{function_name, is_like};
use regex_lite::Regex;

use crate::profile::{Kernel, Profile};

/// Names of kernels.
///
/// `regex:EXPRESSION` (of the crate `regex-lite`) matches kernels whose short or full name contains
/// a match. Any other pattern must match a whole name: the short name, the function's name (without
/// namespaces, template arguments and parameters), the full name, or the driver's name; `*`
/// matches any characters.
#[derive(Clone, Debug)]
pub struct KernelPattern {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Found(Regex),
    Whole(String),
}

impl std::str::FromStr for KernelPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let matcher = match text.strip_prefix("regex:") {
            Some(expression) => Matcher::Found(
                Regex::new(expression)
                    .map_err(|error| format!("`{expression}` is no regular expression: {error}"))?,
            ),
            None if text.is_empty() => return Err("an empty name names no kernel".to_owned()),
            None => Matcher::Whole(text.to_owned()),
        };
        Ok(Self { text: text.to_owned(), matcher })
    }
}

impl PartialEq for KernelPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for KernelPattern {}

impl KernelPattern {
    /// The pattern as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches this kernel.
    pub fn matches(&self, kernel: &Kernel) -> bool {
        let Kernel { short_name, name, symbol, .. } = kernel;
        match &self.matcher {
            Matcher::Found(regex) => regex.is_match(short_name) || regex.is_match(name),
            Matcher::Whole(pattern) => {
                [short_name, name, symbol, &function_name(symbol)].iter().any(|name| is_like(name, pattern))
            }
        }
    }
}

impl Profile {
    /// Indices of the launched kernels that any of the patterns matches.
    pub fn kernels_named(&self, patterns: &[KernelPattern]) -> BTreeSet<usize> {
        let meant =
            |kernel: &Kernel| kernel.launches.any() && patterns.iter().any(|pattern| pattern.matches(kernel));
        (0..self.kernels.len()).filter(|&at| meant(&self.kernels[at])).gathered()
    }

    /// The profile with only these kernels. Totals, accounts, phases, calls and sequences do not
    /// change, so that shares still refer to the whole job.
    pub fn of_kernels(&self, kept: &BTreeSet<usize>) -> Self {
        let mut profile = self.clone();
        for (_, kernel) in profile.kernels.iter_mut().enumerate().filter(|(at, _)| !kept.contains(at)) {
            kernel.forget_launches();
        }
        profile.graphs.retain(|graph| graph.kernels.iter().any(|(kernel, _)| kept.contains(kernel)));
        for activity in &mut profile.activities {
            activity.collectives.retain(|collective| kept.contains(&collective.kernel));
        }
        profile.defects.retain(|defect| kept.iter().any(|&at| self.kernels[at].symbol == defect.kernel));
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(symbol: &str) -> Kernel {
        let known = apex_kernel_names::identify(symbol);
        Kernel {
            name: known.name,
            short_name: known.short_name,
            symbol: symbol.to_owned(),
            ..Kernel::default()
        }
    }

    #[test]
    fn names_are_whole_and_expressions_are_found() {
        let add = kernel("_Z10vector_addPKfS0_Pfi");
        let of = |text: &str| text.parse::<KernelPattern>().expect("a pattern").matches(&add);
        for text in [
            "vector_add",
            "vector_add(float const*, float const*, float*, int)",
            "_Z10vector_addPKfS0_Pfi",
            "vector*",
            "*add",
            "v*c*_a*d",
            "regex:^vector_add$",
            "regex:float.*int",
            "regex:tor_",
        ] {
            assert!(of(text), "{text}");
        }
        for text in ["vector", "add", "Vector_add", "vector*x", "*sub*", "regex:^add", "v*_*_*"] {
            assert!(!of(text), "{text}");
        }
        assert!("regex:(".parse::<KernelPattern>().is_err() && "".parse::<KernelPattern>().is_err());
    }
}
