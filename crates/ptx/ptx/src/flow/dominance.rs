//! Dominators, by the algorithm of Cooper, Harvey and Kennedy (2001).

use super::{BlockId, Flow};

/// A tree of dominators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The parent of each block; the root's is itself. A block that the entry does not reach has
    /// none.
    parents: Vec<Option<usize>>,
    /// Distance from the root.
    depths: Vec<usize>,
}

impl Flow {
    /// The tree of dominators; its root is the entry.
    pub fn dominators(&self) -> Tree {
        const ENTRY: usize = 0;
        let order = self.reverse_postorder();
        let mut places = vec![usize::MAX; self.blocks.len()];
        order.iter().enumerate().for_each(|(place, id)| places[id.index()] = place);
        let mut parents: Vec<Option<usize>> = vec![None; self.blocks.len()];
        parents[ENTRY] = Some(ENTRY);
        let mut changed = true;
        while changed {
            changed = false;
            for &id in &order[1..] {
                let predecessors = self.block(id).predecessors.iter().map(|id| id.index());
                let mut known = predecessors.filter(|&b| parents[b].is_some());
                let Some(first) = known.next() else { continue };
                let parent = known.fold(first, |a, b| meet(a, b, &parents, &places));
                changed |= parents[id.index()] != Some(parent);
                parents[id.index()] = Some(parent);
            }
        }
        let mut depths = vec![0; self.blocks.len()];
        // Parents come before their children in this order.
        for id in &order[1..] {
            depths[id.index()] = parents[id.index()].map_or(0, |parent| depths[parent] + 1);
        }
        Tree { parents, depths }
    }

    /// The blocks that the entry reaches; a block comes before its successors, except along the
    /// back edges of loops.
    pub fn reverse_postorder(&self) -> Vec<BlockId> {
        let successors = |id: BlockId| self.block(id).successors.iter().copied();
        let entry = BlockId(0);
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::new();
        seen[entry.index()] = true;
        let mut path = vec![(entry, successors(entry))];
        while let Some((block, rest)) = path.last_mut() {
            match rest.next() {
                Some(next) if !seen[next.index()] => {
                    seen[next.index()] = true;
                    path.push((next, successors(next)));
                }
                Some(_) => {}
                None => {
                    order.push(*block);
                    path.pop();
                }
            }
        }
        order.reverse();
        order
    }
}

impl Tree {
    /// The immediate dominator of a block; the entry and blocks that it does not reach have none.
    pub fn parent(&self, block: BlockId) -> Option<BlockId> {
        let parent = self.parents[block.index()].filter(|parent| *parent != block.index())?;
        Some(BlockId(parent as u32))
    }

    /// Whether `upper` dominates `lower`. A block that the entry reaches dominates itself.
    pub fn is_above(&self, upper: BlockId, lower: BlockId) -> bool {
        let (upper, mut node) = (upper.index(), lower.index());
        if self.parents[upper].is_none() || self.parents[node].is_none() {
            return false;
        }
        while self.depths[node] > self.depths[upper] {
            let Some(parent) = self.parents[node] else { return false };
            node = parent;
        }
        node == upper
    }

    /// Whether the block is in the tree: reached from the entry, or reaching the way out.
    pub fn contains(&self, block: BlockId) -> bool {
        self.parents[block.index()].is_some()
    }
}

/// The nearest node above both.
fn meet(mut a: usize, mut b: usize, parents: &[Option<usize>], places: &[usize]) -> usize {
    while a != b {
        let lower = if places[a] > places[b] { &mut a } else { &mut b };
        match parents[*lower] {
            Some(parent) => *lower = parent,
            None => return a.min(b),
        }
    }
    a
}
