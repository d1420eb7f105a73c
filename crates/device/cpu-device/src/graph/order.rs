//! The order in which a launch executes a graph's nodes: that of instantiation or, with
//! `APEX_CPU_GRAPH_ORDER`, a random one of those that the edges allow, drawn for each launch. This
//! shows whether a program relies on an order for which its graph has no edge.

use apex_conventions::variables::CPU_GRAPH_ORDER;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reorders nodes at random if `APEX_CPU_GRAPH_ORDER` is set. `edges` returns the handle of a node
/// and those of the nodes before it.
pub fn draw<N>(nodes: &mut Vec<N>, edges: impl Fn(&N) -> (u64, &[u64])) {
    static SEED: LazyLock<Option<u64>> = LazyLock::new(|| CPU_GRAPH_ORDER.value()?.to_str()?.parse().ok());
    static LAUNCHES: AtomicU64 = AtomicU64::new(0);
    if let Some(seed) = *SEED {
        let launch = LAUNCHES.fetch_add(1, Ordering::Relaxed);
        *nodes = drawn(std::mem::take(nodes), mixed(seed ^ mixed(launch)), edges);
    }
}

fn drawn<N>(nodes: Vec<N>, seed: u64, edges: impl Fn(&N) -> (u64, &[u64])) -> Vec<N> {
    let (mut waiting, mut drawn, mut state) = (nodes, Vec::new(), seed);
    while !waiting.is_empty() {
        let is_ready = |node: &N| {
            let (_, before) = edges(node);
            !waiting.iter().any(|other| before.contains(&edges(other).0))
        };
        let ready: Vec<usize> = (0..waiting.len()).filter(|&at| is_ready(&waiting[at])).collect();
        state = mixed(state);
        // A graph with a cycle is never instantiated.
        let at = ready.get(state as usize % ready.len().max(1)).copied().unwrap_or(0);
        drawn.push(waiting.remove(at));
    }
    drawn
}

/// The next state of SplitMix64, mixed.
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_that_the_edges_allow_is_drawn_and_no_other() {
        // 1 before 2 and 3, both before 4; 5 alone.
        let nodes: Vec<(u64, Vec<u64>)> =
            vec![(1, vec![]), (2, vec![1]), (3, vec![1]), (4, vec![2, 3]), (5, vec![])];
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let order: Vec<u64> = drawn(nodes.clone(), mixed(seed), |node| (node.0, &node.1))
                .iter()
                .map(|node| node.0)
                .collect();
            let place = |of: u64| order.iter().position(|&handle| handle == of).unwrap();
            assert!(nodes.iter().all(|(handle, after)| after.iter().all(|&one| place(one) < place(*handle))));
            orders.insert(order);
        }
        assert_eq!(orders.len(), 10, "two orders of the diamond, and five places for the node alone");
    }
}
