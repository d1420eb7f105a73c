//! Access sets of one launch.

use cuda_launch::LaunchConfig;

use crate::sets::{Base, Memory, Use};

/// What is known about a launch.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Grid and block.
    pub config: LaunchConfig,
    /// The parameters as the kernel gets them.
    pub parameters: &'a [u8],
}

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

impl Given<'_> {
    /// A number of 1 to 8 bytes in the parameters.
    pub(crate) fn word(&self, offset: u32, bytes: u8) -> Option<u64> {
        let (start, bytes) = (offset as usize, usize::from(bytes));
        let found = self.parameters.get(start..start.checked_add(bytes)?)?;
        let mut word = [0; 8];
        word.get_mut(..bytes)?.copy_from_slice(found);
        Some(u64::from_le_bytes(word))
    }
}

impl Memory {
    /// Where the accesses lie in a launch; nothing if the launch has too few parameters.
    pub fn at(&self, given: &Given<'_>) -> Option<Extent> {
        let range = |(access, range): &(Use, crate::Range)| Some((*access, range.at(given)?));
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
