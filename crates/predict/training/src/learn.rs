//! Networks from examples: ensembles, merged into one network each.
//!
//! The members of an ensemble begin with different weights, and each is trained on different
//! families. So their errors differ where the families do not determine the answer. Members are
//! trained side by side, each by one thread; which thread trains which does not matter.

use crate::Error;
use apex_model::network::{Activation, Network, Target};
use apex_model::train::{self, Examples, PointLoss, TargetLoss};
use apex_ordered::Gather;
use apex_random::Random;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Weight of durations in the loss, relative to fractions.
const REAL_WEIGHT: f32 = 3.0;

/// The way in which a model is made.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Networks that are trained and merged.
    pub members: usize,
    /// Widths of a member's hidden layers.
    pub hidden: &'static [usize],
    /// Passes over the examples.
    pub epochs: usize,
    /// Highest step size.
    pub learning_rate: f64,
    /// Decay of weights.
    pub weight_decay: f64,
    /// Fraction of the features that is left out of each example (input dropout).
    pub input_dropout: f64,
    /// Fraction of the families that a member is trained on.
    pub share: f64,
}

/// The state that the training runs of one model share with those of others.
pub struct WorkerPool<'a> {
    /// Threads.
    pub threads: usize,
    /// Members that were trained.
    pub done: &'a AtomicUsize,
    /// The caller sets it to stop training.
    pub stop: &'a AtomicBool,
}

impl Recipe {
    /// A network for `targets`, trained on examples whose families are `groups`.
    ///
    /// # Errors
    /// [`Error`] if the examples cannot be learned from, or [`Error::Stopped`].
    pub fn learn(
        &self,
        examples: &Examples,
        groups: &[usize],
        targets: &[Target],
        seed: u64,
        pool: &WorkerPool<'_>,
    ) -> Result<Network, Error> {
        let members: Vec<Mutex<Option<Network>>> = (0..self.members).map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), Error> {
            loop {
                let member = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = members.get(member) else { return Ok(()) };
                let network = self.member(member, examples, groups, targets, seed, pool.stop)?;
                *place.lock().expect("no thread panics while it holds it") = Some(network);
                pool.done.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..pool.threads.clamp(1, self.members)).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        let trained =
            members.into_iter().map(|place| place.into_inner().expect("not held").expect("trained"));
        Ok(Network::mean_of(&trained.collect::<Vec<_>>())?)
    }

    fn member(
        &self,
        member: usize,
        examples: &Examples,
        groups: &[usize],
        targets: &[Target],
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Network, Error> {
        let seed = seed.wrapping_mul(1000).wrapping_add(member as u64);
        let mut network =
            Network::new(examples.inputs().columns(), self.hidden, Activation::Silu, targets.to_vec(), seed)?;
        // Taken over all examples, so that all members scale alike.
        network.fit_scaling(examples.inputs(), examples.targets())?;
        let own = examples.select(&drawn(groups, self.share, seed));
        let losses = targets.iter().map(|target| TargetLoss {
            point: match target.range {
                apex_model::network::Range::Fraction => PointLoss::CrossEntropy,
                apex_model::network::Range::Real => PointLoss::Huber { delta: 0.3 },
            },
            weight: if target.range == apex_model::network::Range::Real { REAL_WEIGHT } else { 1.0 },
        });
        let options = train::Options {
            seed,
            epochs: self.epochs,
            learning_rate: self.learning_rate,
            weight_decay: self.weight_decay,
            input_dropout: self.input_dropout,
            patience: usize::MAX,
            losses: losses.collect(),
            threads: 1,
            ..train::Options::for_network(&network)
        };
        let goes_on = |_: &train::Epoch| match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        train::train(&mut network, &own, None, &options, goes_on)?;
        if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(network) }
    }
}

/// The positions of those whose family is among a random part of the families.
fn drawn(groups: &[usize], share: f64, seed: u64) -> Vec<usize> {
    let mut families: Vec<usize> = groups.iter().copied().gathered::<BTreeSet<_>>().into_iter().collect();
    Random::for_purpose(seed, 2).shuffle(&mut families);
    let wanted = (families.len() as f64 * share).ceil() as usize;
    let chosen: BTreeSet<usize> = families.into_iter().take(wanted.max(1)).gathered();
    (0..groups.len()).filter(|&position| chosen.contains(&groups[position])).collect()
}
