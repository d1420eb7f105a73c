//! Proves from PTX that a kernel computes the same in blocks of another shape.
//!
//! See `docs/reshape.md` for what is proven and what is refused.
//!
//! ```
//! use apex_reshape::{Proof, Reason};
//! let source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { bar.sync 0; ret; }\n";
//! let module = ptx::parse(source).unwrap();
//! assert_eq!(Proof::of(&module, "k").unwrap_err().reason, Reason::Instruction);
//! ```
//!
//! # Invariants
//! 1. *Unknown means no.*
//! 2. The answer is about the PTX: whoever uses it makes sure that this PTX is the code that runs
//!    ([`virtual_architecture`]).

mod access;
mod callee;
mod code;
mod form;
mod guards;
mod index;
mod interval;
mod judge;
mod known;
mod launch;
mod linear;
mod memory;
mod ranges;
mod refusal;
mod screen;

pub use launch::{Change, Launch};
pub use ranges::{AccessRange, access_ranges};
pub use refusal::{Place, Reason, Refusal};

use code::Code;
use cuda_launch::{Dim3, LaunchConfig};
use known::Poly;
use launch_condition::{Apart, Bound, Checked, Condition, Region, Sum, Term};
use memory::{Duties, Duty};
use ptx::Module;
use ptx::body::Names;
use ptx::flow::Flow;
use ptx::instruction::Operations;

/// The conditions of the proof, each of which tests turn off to see that something fails then.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Thread and block reach values only inside L and T.
    pub index: bool,
    /// What uses T keeps T.
    pub total: bool,
    /// Additional threads do nothing.
    pub guarded: bool,
    /// The guard's limit is at most T in this launch.
    pub bound: bool,
    /// Threads have their own addresses in a buffer.
    pub own: bool,
    /// Buffers are apart.
    pub apart: bool,
    /// Numbers that a launch must keep in order: strides, widths, ranges.
    pub overflow: bool,
    /// No instruction that no proof covers.
    pub instructions: bool,
    /// Atomic operations commute, and their results are dead.
    pub atomics: bool,
}

impl Rules {
    /// All conditions.
    pub const ALL: Rules = Rules {
        index: true,
        total: true,
        guarded: true,
        bound: true,
        own: true,
        apart: true,
        overflow: true,
        instructions: true,
        atomics: true,
    };
}

/// What is proven about a kernel, whatever the launch is, and what a launch must meet.
#[derive(Clone, Debug)]
pub struct Proof {
    most_threads: u32,
    duties: Duties,
    rules: Rules,
}

impl Proof {
    /// Analyses a kernel.
    ///
    /// # Errors
    /// If the result may depend on the launch's shape in any launch.
    pub fn of(module: &Module, kernel: &str) -> Result<Proof, Refusal> {
        Proof::with_rules(module, kernel, Rules::ALL)
    }

    /// The same without some of the conditions: what it then says may be wrong.
    #[doc(hidden)]
    pub fn with_rules(module: &Module, kernel: &str, rules: Rules) -> Result<Proof, Refusal> {
        let function = module.kernel(kernel).ok_or(Refusal::of(Reason::NoCode))?;
        let body = Names::new(module).body(function);
        let operations = Operations::of(&body);
        let flow = Flow::of(&body, &operations);
        screen::check_kernel(module, &body, &flow)?;
        let code = Code::new(module, &body, &operations, &flow);
        callee::check_instructions(&code, &rules)?;
        let indices = index::check(&code, &rules)?;
        let duties = memory::duties(&code, &indices, &rules)?;
        Ok(Proof { most_threads: screen::most_threads(function), duties, rules })
    }

    /// What must hold of a launch, as data for who cannot read PTX. Whoever evaluates it refuses
    /// cooperative launches and clusters, and launches the fewest blocks that hold the threads.
    ///
    /// Where the code does not tell how much of a buffer is accessed, or tells it in more regions
    /// than a launch can check, the allocations around the launch's pointers do.
    ///
    /// # Errors
    /// If a number in it is too large for one, or the pointer of an access is not known.
    pub fn condition(&self) -> Result<Condition, Refusal> {
        let condition = self.condition_by(false)?;
        if Checked::of(&condition).is_some() { Ok(condition) } else { self.condition_by(true) }
    }

    /// The condition, with all memory by its allocations if that is possible.
    fn condition_by(&self, allocations: bool) -> Result<Condition, Refusal> {
        let duties = &self.duties;
        let mut condition = Condition {
            same_threads: std::array::from_fn(|axis| duties.same_threads[axis].is_some()),
            ..Condition::default()
        };
        for limit in &duties.limits {
            let sum = limit.limit.sum().ok_or(Refusal::of(Reason::Overflow))?;
            condition.bounds.push(Bound { axis: limit.axis as u8, limit: sum });
        }
        // Along an axis without either, nothing is done by anyone.
        let is_limited = |axis: usize| duties.limits.iter().any(|limit| limit.axis == axis);
        for axis in (0..3).filter(|axis| !is_limited(*axis) && duties.same_threads[*axis].is_none()) {
            condition.bounds.push(Bound { axis: axis as u8, limit: Sum::default() });
        }
        for (duty, refusal) in &duties.duties {
            add(duty, duties, allocations, &mut condition).ok_or_else(|| refusal.clone())?;
        }
        Ok(condition)
    }

    /// The blocks that are worth trying for a launch; [`judge`](Proof::judge) decides about each.
    pub fn candidates(&self, launch: &LaunchConfig) -> Vec<Dim3> {
        launch::blocks(launch, self.most_threads)
    }

    /// Decides whether a launch may be made in blocks of this shape, in a grid of the fewest blocks
    /// that hold its threads along each axis ([`LaunchConfig::with_block`]).
    ///
    /// # Errors
    /// If the result might differ, or the new launch would be invalid.
    pub fn judge(&self, launch: &Launch<'_>, block: Dim3) -> Result<(LaunchConfig, Change), Refusal> {
        judge::judge(&self.duties, &self.rules, self.most_threads, launch, block)
    }
}

/// Adds a duty to a condition; nothing if it cannot be said there.
fn add(duty: &Duty, duties: &Duties, allocations: bool, condition: &mut Condition) -> Option<()> {
    match duty {
        // (Sums are evaluated in 64 bits: what is greater is refused.)
        Duty::AtMost(need) => {
            let last = Poly::number(i64::MAX.into());
            let is_beyond = need.more.constant().is_some_and(|more| more > i64::MAX.into());
            let more = if is_beyond { &last } else { &need.more };
            condition.at_most.push((need.less.sum()?, more.sum()?));
        }
        Duty::Apart { first, second, or_same } => {
            let [first, second] =
                [first, second].map(|region| memory_of(&duties.regions[*region], allocations));
            let (first, second) = (first?, second?);
            // What lies in an allocation begins somewhere in it.
            let is_told = first.iter().chain(&second).all(|region| region.bytes.is_some());
            for one in &first {
                for other in &second {
                    let first = place(one, condition)?;
                    let second = place(other, condition)?;
                    let apart = Apart { first, second, or_same: *or_same && is_told };
                    if !condition.apart.contains(&apart) {
                        condition.apart.push(apart);
                    }
                }
            }
        }
    }
    Some(())
}

/// The memory of a region as a condition says it: what the code tells, or the allocations around
/// its pointers, if those are preferred or the code does not tell; nothing if there is neither.
fn memory_of(region: &access::Region, allocations: bool) -> Option<Vec<Region>> {
    let by_code = region.extent.as_ref().filter(|_| !allocations || region.pointers.is_empty());
    if let Some((start, bytes)) = by_code {
        return Some(vec![Region { start: start.sum()?, bytes: Some(bytes.sum()?) }]);
    }
    let pointer = |&offset: &u32| Term::Parameter { offset, bytes: 8, signed: false };
    let around = |offset| Region { start: Sum::of(1, pointer(offset)), bytes: None };
    let all: Vec<Region> = region.pointers.iter().map(around).collect();
    (!all.is_empty()).then_some(all)
}

/// The place of a region in a condition, which gets it if it has none like it.
fn place(region: &Region, condition: &mut Condition) -> Option<u8> {
    let known = condition.regions.iter().position(|known| known == region);
    let place = u8::try_from(known.unwrap_or(condition.regions.len())).ok()?;
    if known.is_none() {
        condition.regions.push(region.clone());
    }
    Some(place)
}

/// The virtual architecture for which a module is written, such as `sm_80`. Machine code that was
/// compiled for another one may be of other source code (`__CUDA_ARCH__`), about which a proof from
/// this PTX says nothing.
pub fn virtual_architecture(module: &Module) -> Option<&str> {
    module.target.first().map(|name| &**name)
}
