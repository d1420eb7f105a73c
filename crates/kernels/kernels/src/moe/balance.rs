//! The balance of tokens over experts, and the effect of a capacity.

use crate::moe::Shape;

/// Measures to watch while a router learns: an expert that nobody chooses learns nothing, and on
/// several devices all wait for the one with the largest load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// Share of the experts that some token chose.
    pub utilisation: f64,
    /// Entropy of the loads over that of equal loads: 1 if all experts have the same load, 0 if one
    /// has everything.
    pub entropy: f64,
    /// The largest load over the mean: 1 if all are the same, the number of experts if one has
    /// everything.
    pub peak: f64,
}

impl Balance {
    /// The balance of the loads of all experts. `None` if there is no load, or no expert.
    ///
    /// ```
    /// use apex_kernels::moe::Balance;
    ///
    /// let even = Balance::of(&[25, 25, 25, 25]).unwrap();
    /// assert_eq!((even.utilisation, even.peak), (1.0, 1.0));
    /// let uneven = Balance::of(&[50, 50, 0, 0]).unwrap();
    /// assert_eq!((uneven.utilisation, uneven.entropy, uneven.peak), (0.5, 0.5, 2.0));
    /// assert_eq!(Balance::of(&[0, 0]), None);
    /// ```
    pub fn of(loads: &[u32]) -> Option<Balance> {
        let total: f64 = loads.iter().map(|&load| f64::from(load)).sum();
        if total == 0.0 {
            return None;
        }
        let experts = loads.len() as f64;
        let shares = || loads.iter().filter(|&&load| load > 0).map(|&load| f64::from(load) / total);
        let entropy = -shares().map(|share| share * share.ln()).sum::<f64>();
        Some(Balance {
            utilisation: shares().count() as f64 / experts,
            entropy: if loads.len() == 1 { 1.0 } else { entropy / experts.ln() },
            peak: shares().fold(0.0, f64::max) * experts,
        })
    }
}

/// The choices that a [capacity](crate::moe::Options::capacity) drops: none if both are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drops {
    /// Share of all choices that experts did not take.
    pub choices: f64,
    /// Share of the tokens of which no expert took any choice: their outputs are zero.
    pub tokens: f64,
}

impl Drops {
    /// The shares of the counts of a call, those of [`Routing`](crate::moe::Routing). `None` if
    /// there are no tokens.
    ///
    /// ```
    /// use apex_kernels::moe::{Drops, Shape};
    ///
    /// let shape = Shape { tokens: 50, experts: 4, top_k: 2, dim: 4, hidden: 2 };
    /// let drops = Drops::of([25, 5], &shape).unwrap();
    /// assert_eq!((drops.choices, drops.tokens), (0.25, 0.1));
    /// ```
    pub fn of([choices, tokens]: [u32; 2], shape: &Shape) -> Option<Drops> {
        (shape.tokens > 0).then(|| Drops {
            choices: f64::from(choices) / shape.choices() as f64,
            tokens: f64::from(tokens) / shape.tokens as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_at_one_expert_has_no_entropy_and_the_highest_peak() {
        let balance = Balance::of(&[0, 0, 0, 7, 0]).unwrap();
        assert_eq!(balance, Balance { utilisation: 0.2, entropy: 0.0, peak: 5.0 });
    }

    #[test]
    fn a_single_expert_is_always_balanced() {
        assert_eq!(Balance::of(&[3]), Some(Balance { utilisation: 1.0, entropy: 1.0, peak: 1.0 }));
        assert_eq!(Balance::of(&[]), None);
    }

    #[test]
    fn even_loads_have_the_entropy_of_their_number() {
        let balance = Balance::of(&[10; 12]).unwrap();
        assert!((balance.entropy - 1.0).abs() < 1e-12, "{balance:?}");
    }
}
