//! Features left out at random while a network is trained, so that it does not lean on any one of them: dropout of the
//! inputs (Srivastava et al., 2014), without its rescaling, since nothing is left out when the network is used and a
//! standardised feature that is left out is at its mean.

use super::real::Real;
use apex_random::Random;

/// What is left out of a minibatch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Omission {
    /// The part of the features, 0 for none.
    pub part: f64,
    /// Determines which.
    pub seed: u64,
}

impl Omission {
    /// Leaves features out of a chunk of standardised ones; which, depends on its position in the minibatch.
    pub(super) fn apply<T: Real>(self, chunk: usize, features: &mut [T]) {
        if self.part > 0.0 {
            let mut random = Random::for_purpose(self.seed, 2 + chunk as u64);
            for feature in features {
                if random.uniform() < self.part {
                    *feature = T::of(0.0);
                }
            }
        }
    }
}
