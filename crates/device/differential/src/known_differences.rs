//! Known differences between the CPU device and the recorded GPU, with their reasons.
//!
//! A line: program `|` slot `|` reason. In program and slot, `*` stands for any text. Empty lines
//! and those that begin with `#` are skipped.

use anyhow::{Context, Result, bail};
use std::path::Path;

/// The name of the file in a corpus's folder.
pub const FILE: &str = "known-differences.txt";

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Name of a program, or pattern.
    pub program: String,
    /// Slot of the results, or pattern.
    pub slot: String,
    /// The reason for the difference.
    pub reason: String,
}

impl Known {
    /// Whether the line is about a slot of a program.
    pub fn covers(&self, program: &str, slot: &str) -> bool {
        matches(&self.program, program) && matches(&self.slot, slot)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(behind) = name.strip_prefix(head) else { return false };
    let mut starts = behind.char_indices().map(|(at, _)| at).chain([behind.len()]);
    starts.any(|at| matches(rest, &behind[at..]))
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
        let parts: Vec<&str> = line.splitn(3, '|').map(str::trim).collect();
        let [program, slot, reason] = parts.as_slice() else {
            bail!("line {}: `program | slot | reason` is wanted", number + 1);
        };
        let [program, slot, reason] = [program, slot, reason].map(|part| (*part).to_owned());
        known.push(Known { program, slot, reason });
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_program_a_slot_and_a_reason() {
        let known = parse("# comment\n\nex2.approx.f32 | * | the last bit\ncvt.* | constant | all of them\n")
            .unwrap();
        assert_eq!(known.len(), 2);
        assert!(
            known[0].covers("ex2.approx.f32", "guarded") && !known[0].covers("ex2.approx.ftz.f32", "guarded")
        );
        assert!(
            known[1].covers("cvt.rn.f32.s32", "constant") && !known[1].covers("cvt.rn.f32.s32", "guarded")
        );
        assert!(!known[1].covers("add.f32", "constant"));
        assert_eq!(known[1].reason, "all of them");
        assert!(matches("set.*.f16.*", "set.eq.and.f16.b32") && !matches("set.*.f16.*", "set.eq.u32.f16"));
        assert!(parse("ex2.approx.f32 | *\n").is_err());
    }
}
