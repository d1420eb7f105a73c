//! Dominators and post-dominators: the algorithm of Cooper, Harvey and Kennedy (2001).

use super::{BlockId, Flow};

/// A tree of dominators or post-dominators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The parent of each node; the root's is itself. The way out of the function is a node of its
    /// own, the last.
    parents: Vec<Option<usize>>,
    /// Distance from the root.
    depths: Vec<usize>,
    /// The way out of the function, of post-dominators.
    out: Option<usize>,
}

impl Flow {
    /// The tree of dominators; its root is the entry.
    pub fn dominators(&self) -> Tree {
        let successors = |block: usize| self.blocks[block].successors.iter().map(|id| id.index()).collect();
        Tree::of(self.blocks.len(), 0, None, successors)
    }

    /// The blocks that the entry reaches, each before those that it leads to but for the way back
    /// in loops.
    pub fn reverse_postorder(&self) -> Vec<BlockId> {
        let successors = |block: usize| self.blocks[block].successors.iter().map(|id| id.index()).collect();
        let order = reverse_postorder(self.blocks.len(), 0, &successors);
        order.into_iter().map(|block| BlockId(block as u32)).collect()
    }

    /// The tree of post-dominators; its root is the way out of the function.
    pub fn post_dominators(&self) -> Tree {
        let out = self.blocks.len();
        let backwards = |block: usize| -> Vec<usize> {
            match block == out {
                true => self.ids().filter(|id| self.block(*id).leaves).map(BlockId::index).collect(),
                false => self.blocks[block].predecessors.iter().map(|id| id.index()).collect(),
            }
        };
        Tree::of(out + 1, out, Some(out), backwards)
    }
}

impl Tree {
    fn of(nodes: usize, root: usize, out: Option<usize>, successors: impl Fn(usize) -> Vec<usize>) -> Tree {
        let order = reverse_postorder(nodes, root, &successors);
        let mut places = vec![usize::MAX; nodes];
        order.iter().enumerate().for_each(|(place, &node)| places[node] = place);
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        for &node in &order {
            successors(node).into_iter().for_each(|next| before[next].push(node));
        }
        let mut parents: Vec<Option<usize>> = vec![None; nodes];
        parents[root] = Some(root);
        let mut changed = true;
        while changed {
            changed = false;
            for &node in order.iter().filter(|&&node| node != root) {
                let mut known = before[node].iter().copied().filter(|&b| parents[b].is_some());
                let Some(first) = known.next() else { continue };
                let parent = known.fold(first, |a, b| meet(a, b, &parents, &places));
                changed |= parents[node] != Some(parent);
                parents[node] = Some(parent);
            }
        }
        let mut depths = vec![0; nodes];
        // Parents come before their children in this order.
        for &node in order.iter().filter(|&&node| node != root) {
            depths[node] = parents[node].map_or(0, |parent| depths[parent] + 1);
        }
        Tree { parents, depths, out }
    }

    /// The nearest block that dominates (or post-dominates) another; none of the root, of what has
    /// none, and where only the way out of the function post-dominates.
    pub fn parent(&self, block: BlockId) -> Option<BlockId> {
        let parent = self.parents[block.index()].filter(|parent| *parent != block.index())?;
        (self.out != Some(parent)).then_some(BlockId(parent as u32))
    }

    /// Whether `upper` dominates (or post-dominates) `lower`; every block in the tree does so to
    /// itself.
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

/// The nodes that the root reaches, each before those that it leads to but for the way back in
/// loops.
fn reverse_postorder(nodes: usize, root: usize, successors: &impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut seen = vec![false; nodes];
    let mut order = Vec::new();
    seen[root] = true;
    let mut path = vec![(root, successors(root).into_iter())];
    while let Some((node, rest)) = path.last_mut() {
        match rest.next() {
            Some(next) if !seen[next] => {
                seen[next] = true;
                path.push((next, successors(next).into_iter()));
            }
            Some(_) => {}
            None => {
                order.push(*node);
                path.pop();
            }
        }
    }
    order.reverse();
    order
}
