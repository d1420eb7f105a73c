//! Access sets of one launch.

use launch_condition::Given;

use crate::sets::{Base, Memory, Use};

/// Where accesses of a launch lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// In these addresses, with what is done there.
    Ranges(Vec<(Use, std::ops::Range<u64>)>),
    /// In the allocation around this address; nowhere if there is none.
    Allocation(u64),
    /// In a variable of the module.
    Variable(String),
}

impl Memory {
    /// Where the accesses lie in a launch; `None` if the launch has too few parameters.
    pub fn at(&self, given: &Given<'_>) -> Option<Extent> {
        let range = |(access, range): &(Use, launch_condition::Range)| Some((*access, range.at(given)?));
        if let Some(ranges) = &self.ranges
            && let Some(ranges) = ranges.iter().map(range).collect()
        {
            return Some(Extent::Ranges(ranges));
        }
        match &self.base {
            Base::Parameter { offset, .. } => Some(Extent::Allocation(given.word(*offset, 8)?)),
            Base::Variable(name) => Some(Extent::Variable(name.clone())),
        }
    }
}
