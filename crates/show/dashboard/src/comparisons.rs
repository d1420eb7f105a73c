//! Comparisons of sessions, as `apex diff` makes them.
//!
//! One is made at a time, and the last few are kept: whoever asks again for the same gets the same,
//! unless a session has changed since.

use crate::parameters::{ViewParameters, single};
use crate::problem::Problem;
use crate::reading;
use crate::sessions::{Known, Sessions, fingerprint};
use crate::views::WHOLE;
use apex_http::Request;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Sessions of a side at most.
pub const MOST_RUNS: usize = 16;
/// Comparisons that are kept.
const KEPT: usize = 4;

/// The sides of a comparison: runs before a change and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    before: Vec<Known>,
    after: Vec<Known>,
    wanted: ViewParameters,
}

/// The last comparisons, the oldest first.
#[derive(Default)]
pub struct Comparisons(Mutex<Vec<Compared>>);

struct Compared {
    sides: Sides,
    fingerprints: Vec<Option<u64>>,
    at: Instant,
    took: Duration,
    result: Result<Arc<str>, Problem>,
}

impl Sides {
    /// Parameters of an address that say what is compared.
    pub const PARAMETERS: [&str; 6] = ["before", "after", "phase", "kernel", "window", "rank"];

    /// # Errors
    /// Says which parameter is wrong, or that there is no such session.
    pub fn of(request: &Request, sessions: &Sessions) -> Result<Self, Problem> {
        let wanted = ViewParameters::among(request, &Self::PARAMETERS)?;
        let side = |name| -> Result<Vec<Known>, Problem> {
            let ids = single(request, name)?.unwrap_or_default();
            let ids: Vec<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
            if ids.is_empty() || ids.len() > MOST_RUNS {
                let why = format!("{name}: use 1 to {MOST_RUNS} identifiers of sessions with commas between");
                return Err(why.into());
            }
            ids.into_iter().map(|id| sessions.of(id)).collect()
        };
        Ok(Self { before: side("before")?, after: side("after")?, wanted })
    }

    fn fingerprints(&self) -> Vec<Option<u64>> {
        self.before.iter().chain(&self.after).map(|known| fingerprint(&known.dir)).collect()
    }

    fn compare(&self) -> Result<Arc<str>, Problem> {
        if let Some(gone) =
            self.before.iter().chain(&self.after).find(|known| fingerprint(&known.dir).is_none())
        {
            return Err(Problem::Deleted(gone.gone()));
        }
        let folders = |side: &[Known]| side.iter().map(|known| known.dir.clone()).collect::<Vec<PathBuf>>();
        reading::compare(&folders(&self.before), &folders(&self.after), &self.wanted.filters).map(Arc::from)
    }
}

impl Comparisons {
    /// Compares sessions. Who asks meanwhile waits.
    ///
    /// # Errors
    /// The reason why there is no comparison.
    pub fn of(&self, sides: &Sides) -> Result<Arc<str>, Problem> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprints = sides.fingerprints();
        let known = kept.iter().find(|known| known.sides == *sides);
        if let Some(known) = known.filter(|known| known.is_good(&fingerprints)) {
            return known.result.clone();
        }
        let started = Instant::now();
        let result = sides.compare();
        let (at, took) = (Instant::now(), started.elapsed());
        kept.retain(|known| known.sides != *sides);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push(Compared { sides: sides.clone(), fingerprints, at, took, result: result.clone() });
        result
    }
}

impl Compared {
    /// Whether it needs not be made again.
    fn is_good(&self, fingerprints: &[Option<u64>]) -> bool {
        self.fingerprints == fingerprints || self.at.elapsed() < WHOLE.longest(self.took, 1)
    }
}
