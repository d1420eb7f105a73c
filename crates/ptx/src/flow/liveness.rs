//! Which registers are live where a block begins and ends.

use super::{BlockId, Flow};
use crate::body::{Body, RegisterId};
use crate::instruction::Operation;

/// Most bits that the sets of live registers may take together.
pub const MOST_BITS: usize = 1 << 30;

/// The live registers of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Words of the set of a block; 0 where everything counts as live.
    words: usize,
    entries: Vec<u64>,
    exits: Vec<u64>,
}

impl Flow {
    /// The live registers of the listing that the blocks are of.
    pub fn liveness(&self, body: &Body<'_>, operations: &[Operation]) -> Liveness {
        let words = body.registers.len().div_ceil(64);
        let size = words * self.blocks.len();
        if size.saturating_mul(64) > MOST_BITS {
            return Liveness { words: 0, entries: Vec::new(), exits: Vec::new() };
        }
        let (mut read, mut written) = (vec![0u64; size], vec![0u64; size]);
        for (index, block) in self.blocks.iter().enumerate() {
            let place = |id: RegisterId| (index * words + id.index() / 64, 1u64 << (id.index() % 64));
            let range = block.first.index()..block.end.index();
            for (line, operation) in body.lines[range.clone()].iter().zip(&operations[range]) {
                operation.reads(line, body, &mut |id| {
                    let (word, bit) = place(id);
                    read[word] |= bit & !written[word];
                });
                operation.writes(line, body, &mut |id| {
                    let (word, bit) = place(id);
                    written[word] |= bit;
                });
            }
        }
        let mut liveness = Liveness { words, entries: read.clone(), exits: vec![0; size] };
        let mut open: Vec<BlockId> = self.ids().collect();
        let mut waits = vec![true; self.blocks.len()];
        while let Some(id) = open.pop() {
            waits[id.index()] = false;
            let mut changed = false;
            for word in 0..words {
                let at = id.index() * words + word;
                let after = |successor: &BlockId| liveness.entries[successor.index() * words + word];
                let exit = self.block(id).successors.iter().map(after).fold(0, |all, more| all | more);
                let entry = read[at] | exit & !written[at];
                changed |= entry != liveness.entries[at];
                (liveness.exits[at], liveness.entries[at]) = (exit, entry);
            }
            if changed {
                for &before in &self.block(id).predecessors {
                    if !std::mem::replace(&mut waits[before.index()], true) {
                        open.push(before);
                    }
                }
            }
        }
        liveness
    }
}

impl Liveness {
    /// Whether a register is live where a block begins.
    pub fn at_entry(&self, block: BlockId, register: RegisterId) -> bool {
        self.has(&self.entries, block, register)
    }

    /// Whether a register is live where a block ends.
    pub fn at_exit(&self, block: BlockId, register: RegisterId) -> bool {
        self.has(&self.exits, block, register)
    }

    fn has(&self, sets: &[u64], block: BlockId, register: RegisterId) -> bool {
        if self.words == 0 {
            return true;
        }
        let word = sets[block.index() * self.words + register.index() / 64];
        word >> (register.index() % 64) & 1 == 1
    }
}
