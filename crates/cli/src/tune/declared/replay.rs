//! Times from the results of an earlier tuning.

use apex_search::{Ask, Invalid, Measure, Outcome, Results, Stop};

/// Answers with what a file says.
pub struct Replay {
    pub results: Results,
}

impl Measure for Replay {
    fn measure(&mut self, ask: Ask) -> Result<Outcome, Stop> {
        let missing = || Outcome::Failed(Invalid::Runtime, "the file has no result of it".to_owned());
        Ok(self.results.get(ask.number).cloned().unwrap_or_else(missing))
    }
}
