//! The facts about a launch on which conditions are evaluated.

use cuda_launch::LaunchConfig;

/// The launch's shape and arguments.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Grid and block.
    pub config: LaunchConfig,
    /// The parameters as the kernel gets them.
    pub parameters: &'a [u8],
}

impl Given<'_> {
    /// A number of 1 to 8 bytes in the parameters; `None` if they end before.
    pub fn word(&self, offset: u32, bytes: u8) -> Option<u64> {
        let (start, bytes) = (offset as usize, usize::from(bytes));
        let found = self.parameters.get(start..start.checked_add(bytes)?)?;
        let mut word = [0; 8];
        word.get_mut(..bytes)?.copy_from_slice(found);
        Some(u64::from_le_bytes(word))
    }
}
