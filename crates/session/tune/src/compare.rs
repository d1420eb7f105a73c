//! Compares the times of two shapes by pairs of launches.
//!
//! Launches of both shapes alternate at random within one run. A pair is two timed launches of
//! different shapes, next to each other in time, of one size and one stream's state, so that
//! clocks, temperature and other work are as equal as they can be. [`Ratio`] is what they say.

use apex_ordered::Order;
pub(crate) use apex_search::rounded;
pub use apex_search::{LEAST_PAIRS, Ratio};

/// A timed launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Start of its call, in nanoseconds since the process's start.
    pub start_ns: u64,
    /// Its time on the GPU.
    pub ns: f64,
    /// Whether it was made in the other shape, not in the program's.
    pub is_other: bool,
}

/// The ratios of pairs among launches that may be compared with each other.
pub fn paired_ratios(mut launches: Vec<Timed>) -> Vec<f64> {
    launches.order_by_key(|launch| launch.start_ns);
    let mut ratios = Vec::new();
    let mut waiting: Option<Timed> = None;
    for launch in launches {
        match waiting.take() {
            Some(before) if before.is_other != launch.is_other => {
                let (own, other) = if launch.is_other { (before, launch) } else { (launch, before) };
                ratios.push(other.ns.max(1.0) / own.ns.max(1.0));
            }
            _ => waiting = Some(launch),
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(start_ns: u64, ns: f64, is_other: bool) -> Timed {
        Timed { start_ns, ns, is_other }
    }

    #[test]
    fn neighbours_of_different_shapes_are_pairs() {
        let launches = vec![
            timed(5, 50.0, true),
            timed(1, 100.0, false),
            timed(2, 110.0, false),
            timed(3, 55.0, true),
            timed(4, 200.0, false),
            timed(6, 60.0, true),
        ];
        assert_eq!(paired_ratios(launches), [0.5, 0.25], "110 with 55, 200 with 50; 100 and 60 are alone");
    }
}
