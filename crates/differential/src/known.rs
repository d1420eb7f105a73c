//! Known differences: what the CPU device does otherwise than the recorded GPU, and why.
//!
//! A line: name of a form, or the beginning of names with a `*` behind it; white space; the reason. Empty lines and
//! those that begin with `#` say nothing.

use anyhow::{Context, Result, bail};
use std::path::Path;

/// The name of the file in a corpus's folder.
pub const FILE: &str = "known-differences.txt";

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Form, or prefix with `*`.
    pub pattern: String,
    /// Why it differs.
    pub reason: String,
}

impl Known {
    /// Whether the line is about a form.
    pub fn covers(&self, form: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(prefix) => form.starts_with(prefix),
            None => form == self.pattern,
        }
    }
}

/// Reads the file of a corpus's folder; where there is none, nothing is known.
pub fn read(folder: &Path) -> Result<Vec<Known>> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    parse(&std::fs::read_to_string(&path)?).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((pattern, reason)) = line.split_once(char::is_whitespace) else {
            bail!("line {}: a form without a reason", number + 1);
        };
        known.push(Known { pattern: pattern.to_owned(), reason: reason.trim().to_owned() });
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_form_and_a_reason() {
        let known = parse("# comment\n\nex2.approx.f32   the last bit\ncvt.*  all of them\n").unwrap();
        assert_eq!(known.len(), 2);
        assert!(known[0].covers("ex2.approx.f32") && !known[0].covers("ex2.approx.ftz.f32"));
        assert!(known[1].covers("cvt.rn.f32.s32") && !known[1].covers("add.f32"));
        assert_eq!(known[1].reason, "all of them");
        assert!(parse("lonely\n").is_err());
    }
}
