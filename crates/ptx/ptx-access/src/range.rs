//! Byte ranges, from the proof about other blocks.

use apex_reshape::AccessRange;
use launch_condition::Range;

use crate::Fault;

/// The range of an access.
pub(crate) fn of(range: AccessRange, fault: Option<Fault>) -> Range {
    let AccessRange { start, bytes, mut at_most, .. } = range;
    if fault == Some(Fault::Needs) {
        at_most.clear();
    }
    Range { start, bytes, at_most }
}
