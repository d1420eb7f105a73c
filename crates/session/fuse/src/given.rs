//! The arguments of a recorded launch, with addresses that stand for the recorded allocations.

use apex_trace::definition::Arguments;
use apex_trace::layout::NUMBERED_POINTERS;
use cuda_launch::LaunchConfig;
use std::collections::BTreeMap;

/// Bits of an address within an allocation.
const ALLOCATION_BITS: u32 = 40;

/// The shape and arguments of one launch.
#[derive(Clone, Debug)]
pub struct Given {
    /// Grid and block.
    pub launch: LaunchConfig,
    /// The parameters, in their order.
    pub arguments: Vec<Argument>,
    /// The sizes of the allocations that pointers point into, in bytes, by their numbers.
    pub allocations: BTreeMap<u8, u64>,
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its offset in the parameter space.
    pub offset: u32,
    /// Its bytes, with addresses as [`address`] gives them.
    pub bytes: Vec<u8>,
    /// The number of the allocation and the offset in it, if all of it is one pointer.
    pub pointer: Option<(u8, u64)>,
    /// Whether there are pointers in it besides other numbers.
    pub is_mixed: bool,
}

/// The address that stands for a place in an allocation.
pub fn address(allocation: u8, offset: u64) -> u64 {
    ((u64::from(allocation) + 1) << ALLOCATION_BITS).wrapping_add(offset)
}

impl Given {
    /// `None` if an allocation has no number, or the record is damaged.
    pub fn of(
        launch: LaunchConfig,
        recorded: &Arguments,
        numbers: &[u8; NUMBERED_POINTERS],
    ) -> Option<Given> {
        let mut bytes = recorded.bytes.clone();
        let mut allocations = BTreeMap::new();
        if recorded.pointers.len() > NUMBERED_POINTERS {
            return None;
        }
        for (pointer, &number) in recorded.pointers.iter().zip(numbers) {
            let at = pointer.at as usize;
            let fits = number != 0 && pointer.offset < 1 << ALLOCATION_BITS;
            let word = bytes.get_mut(at..at.checked_add(8)?).filter(|_| fits)?;
            word.copy_from_slice(&address(number, pointer.offset).to_le_bytes());
            allocations.insert(number, pointer.allocation_bytes);
        }
        let argument = |&(offset, length): &(u32, u32)| {
            let end = offset.checked_add(length)?;
            let value = bytes.get(offset as usize..end as usize)?.to_vec();
            let mut inside =
                recorded.pointers.iter().zip(numbers).filter(|(one, _)| (offset..end).contains(&one.at));
            let first = inside.next();
            let whole = first.filter(|_| length == 8).map(|(one, &number)| (number, one.offset));
            Some(Argument {
                offset,
                bytes: value,
                is_mixed: first.is_some() && whole.is_none(),
                pointer: whole,
            })
        };
        let arguments = recorded.parameters.iter().map(argument).collect::<Option<_>>()?;
        Some(Given { launch, arguments, allocations })
    }

    /// The parameter space.
    pub fn packed(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for argument in &self.arguments {
            bytes.resize(bytes.len().max(argument.offset as usize), 0);
            bytes.extend(&argument.bytes);
        }
        bytes
    }
}

/// The allocation of these sizes around an address.
pub fn around(allocations: &BTreeMap<u8, u64>, address: u64) -> Option<(u64, u64)> {
    let number = u8::try_from((address >> ALLOCATION_BITS).checked_sub(1)?).ok()?;
    let bytes = *allocations.get(&number)?;
    Some((self::address(number, 0), bytes))
}
