//! The problems of one file.

use crate::error::Problem;
use std::path::Path;

/// Problems reported of one file; more are counted.
const MAX_PROBLEMS: usize = 20;

/// A list that has an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    unreported: u64,
}

impl Problems {
    pub fn add(&mut self, path: &Path, offset: impl Into<Option<u64>>, what: impl Into<String>) {
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(Problem { path: path.to_owned(), offset: offset.into(), what: what.into() });
        } else {
            self.unreported += 1;
        }
    }

    /// These, and then the others.
    pub fn and(&self, others: &Problems) -> Problems {
        let mut all = self.clone();
        for problem in &others.list {
            all.add(&problem.path, problem.offset, problem.what.as_str());
        }
        all.unreported += others.unreported;
        all
    }

    /// The list, at whose end stands how many more there are.
    pub fn finish(mut self, path: &Path) -> Vec<Problem> {
        if self.unreported > 0 {
            let what = format!("{} more problems like these", self.unreported);
            self.list.push(Problem { path: path.to_owned(), offset: None, what });
        }
        self.list
    }
}
