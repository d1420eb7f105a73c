//! How much memory single instructions access, for users who are not interested in other shapes.

use launch_condition::Sum;
use ptx::Module;
use ptx::body::{InstructionId, Names};
use ptx::flow::Flow;
use ptx::instruction::Operations;

use crate::code::Code;
use crate::guards::Guards;
use crate::{Rules, access, callee, screen};

/// The memory that the threads of a launch access with one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRange {
    /// The instruction: its place in the kernel's listing.
    pub at: InstructionId,
    /// The first address.
    pub start: Sum,
    /// Bytes from there; not above 0 if no thread makes the access.
    pub bytes: Sum,
    /// Pairs of which the first is at most the second, or the range says nothing about the launch.
    pub at_most: Vec<(Sum, Sum)>,
}

/// The ranges of a kernel's accesses that are sums of what is known at a launch; none of a kernel
/// with an instruction that no proof covers.
pub fn access_ranges(module: &Module, kernel: &str) -> Vec<AccessRange> {
    let Some(function) = module.kernel(kernel) else { return Vec::new() };
    let body = Names::new(module).body(function);
    let operations = Operations::of(&body);
    let flow = Flow::of(&body, &operations);
    if screen::check_kernel(module, &body, &flow).is_err() {
        return Vec::new();
    }
    let code = Code::new(module, &body, &operations, &flow);
    // (What becomes of the results of atomic operations does not matter here.)
    let rules = Rules { atomics: false, ..Rules::ALL };
    if callee::check_instructions(&code, &rules).is_err() {
        return Vec::new();
    }
    access::find(&code, &Guards::of(&code)).iter().filter_map(range).collect()
}

fn range(access: &access::Access) -> Option<AccessRange> {
    let (region, needs) = access.region();
    let (start, bytes) = region.extent?;
    let pair = |need: &crate::linear::Need| Some((need.less.sum()?, need.more.sum()?));
    let at_most = needs.iter().map(pair).collect::<Option<_>>()?;
    Some(AccessRange { at: access.at, start: start.sum()?, bytes: bytes.sum()?, at_most })
}
