//! The instruction forms that programs contain, out of all that compute capability 9.0 executes.

use crate::case::Case;
use ptx::forms::{self, Need, Suffix};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The newest target whose forms count, and the newest PTX: the toolkit's with which the corpus is
/// recorded.
const TARGET: u32 = 90;
const VERSION: (u32, u32) = (9, 0);

/// Whether the GPU and its toolkit have what an instance needs.
pub fn is_there(needs: &[Need]) -> bool {
    needs.iter().any(|need| {
        need.target.suffix == Suffix::None && need.target.number <= TARGET && need.version <= VERSION
    })
}

/// Forms of an opcode: all of them, and those that no program has.
#[derive(Debug, Default)]
pub struct Opcode {
    /// The number of mnemonics.
    pub all: usize,
    /// The mnemonics that no program has.
    pub lacking: BTreeSet<String>,
}

/// The forms of every opcode, compared with the programs of these cases.
pub fn of<'c>(cases: impl Iterator<Item = &'c Case>) -> BTreeMap<&'static str, Opcode> {
    let mut present: HashSet<&str> = HashSet::new();
    for case in cases {
        present.extend(case.ptx.split([';', '\n', '{']).filter_map(mnemonic));
    }
    let mut opcodes: BTreeMap<&'static str, Opcode> = BTreeMap::new();
    let mut seen = HashSet::new();
    for form in forms::all() {
        for instance in form.instances().into_iter().filter(|instance| is_there(&instance.needs)) {
            if !seen.insert(instance.mnemonic.clone()) {
                continue;
            }
            let opcode = opcodes.entry(form.opcode).or_default();
            opcode.all += 1;
            if !present.contains(instance.mnemonic.as_str()) {
                opcode.lacking.insert(instance.mnemonic);
            }
        }
    }
    opcodes
}

/// The mnemonic of a statement's instruction: its first word behind a label and a guard.
fn mnemonic(statement: &str) -> Option<&str> {
    statement.split_whitespace().find(|word| !word.starts_with('@') && !word.ends_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    #[test]
    fn forms_are_found_behind_guards_and_labels() {
        let mut kernel = Kernel::new(1, 32);
        kernel.line("again: @!%p0 add.sat.s32 %r0, %r1, %r2;\nneg.s16 %h0, %h1;");
        let case = kernel.finish("some/0".into());
        let opcodes = of([&case].into_iter());
        assert!(
            !opcodes["add"].lacking.contains("add.sat.s32") && opcodes["add"].lacking.contains("add.s32")
        );
        assert_eq!(opcodes["neg"].all - opcodes["neg"].lacking.len(), 1);
        assert!(!opcodes.contains_key("tcgen05"), "needs a newer GPU");
    }
}
