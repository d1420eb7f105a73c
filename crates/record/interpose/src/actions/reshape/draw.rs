//! Whose turn it is: launches draw between the program's shape and other ones.
//!
//! Turns go round by round. In a round, each shape has one turn, and the order is drawn anew, so
//! that the shapes meet the same conditions: neither a change of clocks nor a period in the
//! program's own launches favours one of them.

use crate::tables::spread;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Most shapes that take turns, the program's included.
const MOST: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub struct Turns {
    shapes: u32,
    next: AtomicU32,
}

impl Turns {
    /// Turns among this many shapes, the program's first.
    pub fn among(shapes: usize) -> Turns {
        Turns { shapes: shapes.min(MOST) as u32, next: AtomicU32::new(0) }
    }

    /// The shape whose turn it is, from 0; `None` for the program's.
    pub fn next(&self) -> Option<usize> {
        let turn = self.next.fetch_add(1, Relaxed);
        let (round, at) = (turn / self.shapes, turn % self.shapes);
        self.order(round)[at as usize].checked_sub(1).map(usize::from)
    }

    /// The order of the shapes in a round: Fisher and Yates' shuffle.
    fn order(&self, round: u32) -> [u8; MOST] {
        let mut order: [u8; MOST] = std::array::from_fn(|at| at as u8);
        let mut drawn = spread(u64::from(round) + 1);
        for left in (2..=self.shapes as usize).rev() {
            order.swap(left - 1, drawn as usize % left);
            drawn = spread(drawn);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_shape_has_one_turn_in_a_round_and_the_order_changes() {
        for shapes in 2..=6 {
            let turns = Turns::among(shapes);
            let rounds: Vec<Vec<_>> = (0..200).map(|_| (0..shapes).map(|_| turns.next()).collect()).collect();
            for round in &rounds {
                let different: HashSet<_> = round.iter().collect();
                assert_eq!(different.len(), shapes, "{round:?}");
                assert!(round.contains(&None));
            }
            let firsts = rounds.iter().filter(|round| round[0].is_none()).count();
            let expected = 200 / shapes;
            assert!(
                firsts.abs_diff(expected) < expected / 2 + 10,
                "{firsts} of 200 begin with the program's"
            );
        }
    }
}
