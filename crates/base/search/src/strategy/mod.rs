//! Strategies: in which order configurations are measured.
//!
//! A strategy is a loop that asks [`Trials`] for the cost of one configuration after another, until
//! that refuses. Costs are positive; a configuration that fails costs infinitely much. What a
//! strategy does depends on the space, the seed, the number of trials and the costs alone, so that
//! a search which was interrupted goes on where it was, once the costs that are known are given
//! again.

mod descend;
mod guided;
mod trials;

use crate::space::Number;
pub use trials::{Stop, Trials};

/// A strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// All configurations, in the order of the space.
    Exhaustive,
    /// Configurations at random, none of them twice.
    Random,
    /// A tenth of the trials at random, then descents from the best three, then from changes of the
    /// best one.
    Descend,
    /// A model of what was measured chooses the next configuration, in the whole space.
    #[default]
    Model,
}

impl Strategy {
    /// All strategies with their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("model", Self::Model),
        ("descend", Self::Descend),
        ("random", Self::Random),
        ("exhaustive", Self::Exhaustive),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, strategy)| *strategy == self);
        found.map_or("", |(name, _)| name)
    }

    /// Measures until the trials are over, which is the error.
    pub fn search(self, trials: &mut Trials<'_>) -> Stop {
        let done = match self {
            Self::Exhaustive => exhaustive(trials),
            Self::Random => random(trials, usize::MAX),
            Self::Descend => descend::search(trials),
            Self::Model => guided::search(trials),
        };
        match done.and_then(|()| exhaustive(trials)) {
            Ok(()) => Stop::Done,
            Err(stop) => stop,
        }
    }
}

fn exhaustive(trials: &mut Trials<'_>) -> Result<(), Stop> {
    (0..trials.space().len() as Number).try_for_each(|number| trials.cost(number).map(drop))
}

/// Measures as many configurations at random, if the space has them.
fn random(trials: &mut Trials<'_>, count: usize) -> Result<(), Stop> {
    for _ in 0..count.min(trials.space().len()) {
        let Some(number) = trials.draw() else { break };
        trials.cost(number)?;
    }
    Ok(())
}
