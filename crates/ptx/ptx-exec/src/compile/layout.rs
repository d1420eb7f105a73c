//! Basic blocks, and the order in which they are laid out.
//!
//! The order serves reconvergence: loops are contiguous, and within a loop body (and at top level)
//! a block comes after the blocks that lead to it. Lanes that are behind therefore have a smaller
//! program counter than those that wait for them at a join, as in "thread frontiers" (Diamos et
//! al., 2011). Unreachable blocks are left out.

use ptx::body::Body;
use ptx::flow::Flow;
use ptx::instruction::{Control, Operation};

/// The properties of a block that determine the layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// First line.
    pub(super) start: usize,
    /// Line after the last.
    pub(super) end: usize,
    /// Whether control may go on to the first successor from the last line.
    pub(super) falls: bool,
    /// Blocks that may follow; the one that is fallen into, if any, is first.
    pub(super) successors: Vec<usize>,
}

/// The blocks of a function in source order, and one more, without lines, for the end of the
/// listing.
pub(super) fn blocks(body: &Body, operations: &[Operation], flow: &Flow) -> Vec<Block> {
    let end = flow.blocks.len();
    let mut blocks: Vec<Block> = Vec::with_capacity(end + 1);
    for (index, block) in flow.blocks.iter().enumerate() {
        let (start, after) = (block.first.index(), block.end.index());
        let last = (after > start).then(|| after - 1);
        let control = last.map_or(Control::Next, |last| operations[last].control());
        let falls = !control.leaves() || last.is_some_and(|last| body.lines[last].guard.is_some());
        let mut successors: Vec<usize> = block.successors.iter().map(|next| next.index()).collect();
        if falls && index + 1 == end {
            successors.insert(0, end);
        } else if block.leaves && !matches!(control, Control::Return | Control::Exit) {
            successors.push(end);
        }
        blocks.push(Block { start, end: after, falls, successors });
    }
    let after = body.lines.len();
    blocks.push(Block { start: after, end: after, falls: true, successors: Vec::new() });
    blocks
}

/// Maximum depth at which loops are distinguished; deeper, the order is topological where possible.
const MAX_LOOP_DEPTH: usize = 32;

/// The reachable blocks, entry first.
pub(super) fn order(blocks: &[Block]) -> Vec<usize> {
    let fresh = Mark { level: 0, index: UNSEEN, low: 0, on_stack: false };
    let mut search = Search { blocks, marks: vec![fresh; blocks.len()] };
    let mut result = Vec::with_capacity(blocks.len());
    // Components still to be laid out, next on top: members (their entry first), and how many loops
    // they are in.
    let mut todo = vec![(search.reachable(), 0)];
    let mut level = 0;
    while let Some((members, depth)) = todo.pop() {
        if members.len() == 1 || depth > MAX_LOOP_DEPTH {
            result.extend(members);
            continue;
        }
        level += 1;
        for &member in &members {
            search.marks[member] = Mark { level, ..fresh };
        }
        // Without the way back to its entry a loop falls into components.
        let way_back = (depth > 0).then_some(members[0]);
        // Last component first: the stack turns them round.
        todo.extend(
            search.components(members[0], way_back).into_iter().map(|component| (component, depth + 1)),
        );
    }
    result
}

const UNSEEN: usize = usize::MAX;

#[derive(Clone, Copy)]
struct Mark {
    /// Blocks of the region that is being searched have the level of their entry.
    level: usize,
    index: usize,
    low: usize,
    on_stack: bool,
}

struct Search<'b> {
    blocks: &'b [Block],
    marks: Vec<Mark>,
}

impl Search<'_> {
    fn reachable(&self) -> Vec<usize> {
        let mut seen = vec![false; self.blocks.len()];
        let mut open = vec![0];
        let mut found = Vec::new();
        while let Some(block) = open.pop() {
            if !std::mem::replace(&mut seen[block], true) {
                found.push(block);
                open.extend(&self.blocks[block].successors);
            }
        }
        found
    }

    /// Strongly connected components of the blocks at the level of `entry`, edges to `way_back`
    /// left out, in reverse topological order; the first member of each is where the search entered
    /// it. Tarjan's algorithm, without recursion.
    fn components(&mut self, entry: usize, way_back: Option<usize>) -> Vec<Vec<usize>> {
        let level = self.marks[entry].level;
        let (mut stack, mut components, mut next) = (Vec::new(), Vec::new(), 0);
        // Blocks on the path, each with how many of its successors have been looked at.
        let mut path = vec![(entry, 0)];
        while let Some((block, looked)) = path.last_mut() {
            let block = *block;
            if *looked == 0 {
                self.marks[block] = Mark { level, index: next, low: next, on_stack: true };
                next += 1;
                stack.push(block);
            }
            // From the back: what is fallen into is finished last, and so laid out next.
            let successors = &self.blocks[block].successors;
            let successor = successors.len().checked_sub(*looked + 1).map(|index| successors[index]);
            *looked += 1;
            if let Some(to) = successor {
                let mark = self.marks[to];
                if Some(to) == way_back || mark.level != level {
                    continue;
                }
                if mark.index == UNSEEN {
                    path.push((to, 0));
                } else if mark.on_stack {
                    self.marks[block].low = self.marks[block].low.min(mark.index);
                }
                continue;
            }
            path.pop();
            let mark = self.marks[block];
            if let Some(&(parent, _)) = path.last() {
                self.marks[parent].low = self.marks[parent].low.min(mark.low);
            }
            if mark.low == mark.index {
                let at = stack.iter().rposition(|&member| member == block).unwrap_or(0);
                let component = stack.split_off(at);
                component.iter().for_each(|&member| self.marks[member].on_stack = false);
                components.push(component);
            }
        }
        components
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(edges: &[&[usize]]) -> Vec<Block> {
        edges.iter().map(|successors| Block { successors: successors.to_vec(), ..Block::default() }).collect()
    }

    #[test]
    fn a_join_comes_after_both_branches() {
        // The else branch (3) stands behind the join (2) in the source.
        assert_eq!(order(&blocks(&[&[1, 3], &[2], &[], &[2]])), [0, 1, 3, 2]);
    }

    #[test]
    fn what_follows_a_loop_comes_after_all_of_it() {
        // 1 is the head of a loop with two ways back and two ways out.
        let order = order(&blocks(&[&[1], &[5, 2], &[3, 4], &[1], &[5, 1], &[]]));
        assert_eq!(order[..2], [0, 1]);
        assert_eq!(order[5], 5);
    }

    #[test]
    fn an_inner_loop_stays_together() {
        // 1..=4 outer, 2..=3 inner; 4 is the outer latch, reached from the inner head.
        assert_eq!(order(&blocks(&[&[1], &[2, 5], &[3, 4], &[2], &[1], &[]])), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn the_entry_may_be_a_loop_and_loops_may_have_two_entries() {
        assert_eq!(order(&blocks(&[&[1, 0], &[]])), [0, 1]);
        assert_eq!(order(&blocks(&[&[1, 2], &[2], &[3, 1], &[]])).len(), 4);
    }

    #[test]
    fn unreachable_blocks_are_left_out_and_depth_is_bounded() {
        assert_eq!(order(&blocks(&[&[], &[0]])), [0]);
        // 200 loops nested in each other: block i loops back to each block before it.
        let nested: Vec<Vec<usize>> =
            (0..200).map(|i| (0..=i + 1).rev().filter(|&j| j < 200).collect()).collect();
        let slices: Vec<&[usize]> = nested.iter().map(Vec::as_slice).collect();
        let mut order = order(&blocks(&slices));
        order.sort_unstable();
        assert_eq!(order, (0..200).collect::<Vec<_>>());
    }
}
