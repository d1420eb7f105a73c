//! Dropout of the inputs (Srivastava et al., 2014): training leaves features out at random, so that
//! a network does not depend on any single one.
//!
//! The original's rescaling is absent, because prediction leaves nothing out. A standardised
//! feature that is left out is 0, its mean.

use super::real::Real;
use apex_random::Random;

/// The dropout of one minibatch.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputDropout {
    /// Fraction of the features that are left out.
    pub fraction: f64,
    /// Determines which.
    pub seed: u64,
}

impl InputDropout {
    /// Leaves features out of a chunk of standardised ones. The chunk's position in the minibatch
    /// determines which.
    pub(super) fn apply<T: Real>(self, chunk: usize, features: &mut [T]) {
        if self.fraction > 0.0 {
            let mut random = Random::for_purpose(self.seed, 2 + chunk as u64);
            for feature in features {
                if random.uniform() < self.fraction {
                    *feature = T::of(0.0);
                }
            }
        }
    }
}
