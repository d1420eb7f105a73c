//! Descents: from a configuration to a better one that differs in one parameter, again and again.

use super::{Stop, Trials, random};
use crate::space::Number;

/// Descents start from this many of the first sample.
const STARTS: usize = 3;

/// Parameters that a change of the best changes: 2 or 3.
const CHANGED: u64 = 2;

/// A sample, descents from its best, and then from changes of the best.
pub fn search(trials: &mut Trials<'_>) -> Result<(), Stop> {
    let until = trials.limit();
    random(trials, (until / 10).max(STARTS))?;
    for (start, _) in trials.best(STARTS) {
        descend(trials, start, until)?;
    }
    let mut fruitless = 0;
    while trials.made().len() < until && fruitless < 100 {
        let before = trials.made().len();
        let start = changed_best(trials);
        descend(trials, start, until)?;
        fruitless = if trials.made().len() == before { fruitless + 1 } else { 0 };
    }
    Ok(())
}

/// Moves to the first neighbour that is better, until none is. Returns the end of the descent.
pub fn descend(trials: &mut Trials<'_>, start: Number, until: usize) -> Result<Number, Stop> {
    let mut at = start;
    let mut cost = trials.cost(at)?;
    loop {
        let mut neighbours = trials.space().neighbours(at);
        trials.random.shuffle(&mut neighbours);
        let mut better = None;
        for neighbour in neighbours {
            if trials.made().len() >= until {
                return Ok(at);
            }
            let found = trials.cost(neighbour)?;
            if found < cost {
                better = Some((neighbour, found));
                break;
            }
        }
        match better {
            Some(found) => (at, cost) = found,
            None => return Ok(at),
        }
    }
}

/// The best configuration with other values of two or three parameters; another one at random if
/// nothing has succeeded.
fn changed_best(trials: &mut Trials<'_>) -> Number {
    let Some(&(best, _)) = trials.best(1).first() else {
        return trials.draw().unwrap_or(0);
    };
    let mut at = best;
    for _ in 0..CHANGED + trials.random.below(2) {
        let neighbours = trials.space().neighbours(at);
        if !neighbours.is_empty() {
            at = trials.random.choose(&neighbours);
        }
    }
    at
}
