//! Loops of a function: natural ones, and those that the layout shows.
//!
//! Inner loops come before the loops around them.

use std::collections::BTreeMap;

use super::{BlockId, Flow, Tree};
use crate::body::{Body, InstructionId, Operand, Symbol};
use crate::instruction::{Control, Operation};

/// Most loops of a function that are told; the blocks of each are listed, so their number bounds
/// the space.
const MOST_LOOPS: usize = 1024;

/// A natural loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block through which it is entered.
    pub head: BlockId,
    /// The blocks that go back to the head.
    pub latches: Vec<BlockId>,
    /// Its blocks in the order of the listing, the head included.
    pub blocks: Vec<BlockId>,
    /// The smallest loop around it: its place in the list.
    pub parent: Option<usize>,
}

impl Flow {
    /// The natural loops, inner ones before outer ones.
    pub fn loops(&self, dominators: &Tree) -> Vec<Loop> {
        let mut latches: BTreeMap<BlockId, Vec<BlockId>> = BTreeMap::new();
        for id in self.ids() {
            for &head in &self.block(id).successors {
                if dominators.is_above(head, id) {
                    latches.entry(head).or_default().push(id);
                }
            }
        }
        let one = |(head, latches): (BlockId, Vec<BlockId>)| {
            let blocks = self.inside(head, &latches);
            Loop { head, latches, blocks, parent: None }
        };
        let mut loops: Vec<Loop> = latches.into_iter().take(MOST_LOOPS).map(one).collect();
        loops.sort_by_key(|found| (found.blocks.len(), found.head));
        for index in 0..loops.len() {
            let head = loops[index].head;
            let around = |outer: &Loop| outer.head != head && outer.blocks.binary_search(&head).is_ok();
            loops[index].parent =
                loops.iter().enumerate().skip(index + 1).find(|(_, outer)| around(outer)).map(|(at, _)| at);
        }
        loops
    }

    /// The blocks that reach a latch without passing the head.
    fn inside(&self, head: BlockId, latches: &[BlockId]) -> Vec<BlockId> {
        let mut seen = vec![false; self.blocks.len()];
        seen[head.index()] = true;
        let mut open = latches.to_vec();
        while let Some(block) = open.pop() {
            if !std::mem::replace(&mut seen[block.index()], true) {
                open.extend(&self.block(block).predecessors);
            }
        }
        self.ids().filter(|id| seen[id.index()]).collect()
    }
}

/// A loop as it is laid out: the instructions from the target of a branch to the branch, both
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The instruction that the branch goes back to.
    pub first: InstructionId,
    /// The branch.
    pub last: InstructionId,
}

/// The ranges of a listing, one for each branch to itself or to an earlier instruction, in the
/// order of the branches.
pub fn ranges(body: &Body<'_>, operations: &[Operation]) -> Vec<Range> {
    let ids = (0..).map(InstructionId);
    let backward = ids.zip(&body.lines).zip(operations).filter_map(|((last, line), operation)| {
        let Some(Operand::Name(Symbol::Label(label))) = line.operands.first() else { return None };
        let first = body.target(*label);
        (operation.control() == Control::Branch && first <= last).then_some(Range { first, last })
    });
    backward.collect()
}
