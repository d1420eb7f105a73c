//! Control flow of a function: blocks, dominators, loops.
//!
//! [`Flow::of`] splits a [listing](crate::body) into blocks; [`dominators`](Flow::dominators) and
//! [`loops`](Flow::loops) answer questions about them.
//!
//! # Rules
//!
//! 1. *A block is a run of instructions* that is entered at its first and left at its last. Calls,
//!    barriers and guarded instructions that are no branches do not end a block: a thread whose
//!    guard is false goes on.
//! 2. *Every instruction is in exactly one block*, and blocks keep the order of the listing;
//!    unreachable ones are kept. An empty listing has one empty block.
//! 3. *Edges are conservative.* `bra` goes to its label, and on where it has a guard; `brx` goes to
//!    each label of its table; `ret`, `exit` and `trap` leave, and go on where they have a guard. A
//!    branch to what is no label, or to the end of the listing, leaves the function: so does the
//!    end itself.
//! 4. *Block `b` dominates `c`* if every path from the entry to `c` passes `b`. Blocks that the
//!    entry does not reach have no dominator.
//! 5. *A loop is natural*: the blocks that reach a back edge (to a block that dominates its origin)
//!    without passing the head. A cycle that is entered at two places has no head and is no loop.
//! 6. *A range is a loop as it is laid out*: it begins at the target of a backward branch and ends
//!    at the branch. The instruction mix and the estimator use ranges, which need no dominators.
//!
//! Every function here returns for every listing. Dominators take time in blocks times the depth of
//! retreating edges.

mod dominance;
mod loops;

use crate::body::{Body, InstructionId, Operand, Symbol};
use crate::instruction::{Control, Operation};
pub use dominance::Tree;
pub use loops::{Loop, Range, ranges};

/// A block: its place in [`Flow::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

impl BlockId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first instruction.
    pub first: InstructionId,
    /// The instruction after its last.
    pub end: InstructionId,
    /// The blocks that may follow, each once; the one that is fallen into, if any, first.
    pub successors: Vec<BlockId>,
    /// The blocks that may come before.
    pub predecessors: Vec<BlockId>,
    /// Whether a thread may leave the function at its end.
    pub leaves: bool,
}

/// The blocks of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// In the order of the listing; the first is the entry.
    pub blocks: Vec<Block>,
    /// The block of each instruction.
    block_of: Vec<BlockId>,
}

/// Returns the targets of an instruction besides the next, and whether it may leave the function.
fn targets(body: &Body<'_>, at: usize, control: Control) -> (Vec<InstructionId>, bool) {
    let line = &body.lines[at];
    let label = |operand: Option<&Operand<'_>>| match operand {
        Some(Operand::Name(Symbol::Label(label))) => vec![Some(body.target(*label))],
        _ => vec![None],
    };
    let all = match control {
        Control::Next | Control::Call => Vec::new(),
        Control::Branch => label(line.operands.first()),
        Control::BranchIndexed => match line.operands.get(1) {
            Some(Operand::Name(Symbol::BranchTargets(table))) => {
                let labels = &body.branch_targets[table.index()];
                labels.iter().map(|label| label.map(|label| body.target(label))).collect()
            }
            _ => vec![None],
        },
        Control::Return | Control::Exit => vec![None],
    };
    let end = body.lines.len();
    let inside = |target: &Option<InstructionId>| target.filter(|target| target.index() < end);
    (all.iter().filter_map(inside).collect(), all.iter().any(|target| inside(target).is_none()))
}

impl Flow {
    /// The blocks of a listing; `operations` are its instructions'.
    pub fn of(body: &Body<'_>, operations: &[Operation]) -> Flow {
        let length = body.lines.len();
        let mut leads = vec![false; length + 1];
        leads[0] = true;
        let controls: Vec<Control> = operations.iter().map(Operation::control).collect();
        let ends = |at: usize| !matches!(controls[at], Control::Next | Control::Call);
        for at in (0..length).filter(|at| ends(*at)) {
            leads[at + 1] = true;
            targets(body, at, controls[at]).0.iter().for_each(|target| leads[target.index()] = true);
        }
        let starts: Vec<usize> = (0..length.max(1)).filter(|at| leads[*at]).collect();
        let mut block_of = Vec::with_capacity(length);
        let mut blocks: Vec<Block> = Vec::with_capacity(starts.len());
        for (index, &start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(length);
            block_of.resize(end, BlockId(index as u32));
            let (first, end) = (InstructionId(start as u32), InstructionId(end as u32));
            blocks.push(Block {
                first,
                end,
                successors: Vec::new(),
                predecessors: Vec::new(),
                leaves: false,
            });
        }
        let mut flow = Flow { blocks, block_of };
        flow.connect(body, &controls);
        flow
    }

    fn connect(&mut self, body: &Body<'_>, controls: &[Control]) {
        for index in 0..self.blocks.len() {
            let last = self.blocks[index].end.index().checked_sub(1).filter(|_| !controls.is_empty());
            let falls = last.is_none_or(|last| body.lines[last].guard.is_some() || !controls[last].leaves());
            let (targets, mut leaves) =
                last.map_or((Vec::new(), false), |last| targets(body, last, controls[last]));
            let mut successors = Vec::new();
            match falls {
                true if index + 1 < self.blocks.len() => successors.push(BlockId(index as u32 + 1)),
                true => leaves = true,
                false => {}
            }
            successors.extend(targets.iter().map(|target| self.block_of[target.index()]));
            let mut seen = std::collections::HashSet::new();
            successors.retain(|successor| seen.insert(*successor));
            for successor in &successors {
                self.blocks[successor.index()].predecessors.push(BlockId(index as u32));
            }
            self.blocks[index].successors = successors;
            self.blocks[index].leaves = leaves;
        }
    }

    /// The block of an instruction.
    pub fn block_of(&self, instruction: InstructionId) -> BlockId {
        self.block_of[instruction.index()]
    }

    /// A block.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// The blocks, by number.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        (0..self.blocks.len() as u32).map(BlockId)
    }
}
