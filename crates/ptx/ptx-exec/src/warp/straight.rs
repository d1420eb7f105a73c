//! Executes straight runs: steps that access only registers and memory, for several warps at once.
//!
//! In a straight run (see [`Step::is_straight`]), no guard and no other path has to be considered,
//! so the steps follow each other directly. What an access learns about addresses is kept for the
//! rest of the run.

use crate::code::{Op, Step};
use crate::memory::access::{RunAccess, RunRegular};
use crate::memory::spaces::AccessFault;
use crate::operands::{AccessArgs, Space};
use crate::registers::lanes::Lanes;
use crate::warp::Surroundings;

/// A straight run that ended at an access.
pub(crate) struct Refused {
    /// The access, counted from the start of the run.
    pub(crate) step: usize,
    /// The index of the warp whose access was refused. Those before it have executed the access.
    pub(crate) warp: usize,
    pub(crate) space: Space,
    pub(crate) fault: Box<AccessFault>,
}

/// Executes straight steps, each for all of `warps`.
///
/// # Safety
///
/// As for the handlers of the steps: `warps` are frames of their function, and `around` has the
/// block's memory.
#[inline(always)]
pub(crate) unsafe fn straight(
    steps: &[Step],
    warps: &[Lanes],
    around: &mut Surroundings,
) -> Result<(), Box<Refused>> {
    around.spaces.forget_patterns();
    let mut index = steps.first().map_or(0, |first| usize::from(first.idle));
    while let Some(step) = steps.get(index) {
        match &step.op {
            // SAFETY: the caller's promise.
            Op::Lanes { run, args, .. } => unsafe { run(warps, args) },
            Op::Access { run, regular, args } => {
                // SAFETY: the caller's promise.
                unsafe { access(*run, *regular, args, warps, around) }.map_err(|(warp, fault)| {
                    Box::new(Refused { step: index, warp, space: args.space, fault })
                })?;
            }
            // No other step is straight.
            _ => {}
        }
        index += 1 + usize::from(step.idle_after);
    }
    Ok(())
}

/// Accesses memory for each of `warps` of which a lane acts. Of one that is refused it come the
/// index, and why; those before it have accessed memory. A deferred
/// [`prologue`](crate::warp::prologue) is flushed if it is needed.
///
/// # Safety
///
/// As for the handlers.
#[inline(always)]
pub(crate) unsafe fn access(
    run: RunAccess,
    regular: Option<RunRegular>,
    args: &AccessArgs,
    warps: &[Lanes],
    around: &mut Surroundings,
) -> Result<(), (usize, Box<AccessFault>)> {
    // SAFETY: the caller's promise.
    if regular.is_some_and(|regular| unsafe { regular(warps, around.spaces, args) }) {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { around.flush_prologue(warps) };
    let spaces = &mut *around.spaces;
    for (index, lanes) in warps.iter().enumerate().filter(|(_, lanes)| lanes.mask != 0) {
        spaces.warp_local = lanes.local;
        // SAFETY: the caller's promise.
        unsafe { run(lanes, spaces, args) }.map_err(|fault| (index, fault))?;
    }
    Ok(())
}
