//! Launches that functions of a cause make, in a program that waits for its launches.
//!
//! Samples of the host miss a function whose frames change while they are read, as many short calls
//! of Python do. The call stacks of launches do not. Where the program is launch-bound, launching
//! is what takes the idle time, so it is divided among the launches: a function that makes a fifth
//! of them has a fifth of it.

use super::super::host_function::of_what;
use super::super::{Draft, confidence, job_saving, percent};
use super::{Known, is_worth, likely_ns, runs_ahead, share_where, with_kernels};
use crate::finding::{Evidence, Level, Observed, Saving, Unit};
use apex_knowledge::Cause;
use apex_profile::{CallStack, Figure, Frame, HostFrame, Kernel, Profile, StackCount, total};

/// Returns the finding that launches support for a cause about functions of the host; `None` where
/// its functions launch little, or their launches are needed. `lost` is the idle time for which
/// launching is too slow.
pub(super) fn known<'k>(
    profile: &Profile,
    lost: Figure,
    cause: &'k Cause,
    remedy: &'k str,
) -> Option<Known<'k>> {
    if !cause.launches {
        return None;
    }
    let stacks: Vec<StackCount> = profile
        .kernels
        .iter()
        .flat_map(|kernel| kernel.stacks.iter().copied())
        .filter(|count| function_in(profile, count, cause).is_some())
        .collect();
    let function = function_in(profile, stacks.first()?, cause)?;
    let made = total(profile.kernels.iter().map(|kernel| made_by(profile, kernel, cause)));
    let share = (made / profile.totals.launches.max(1) as f64).min(1.0);
    let (time, saves) = (lost.scaled(share), cause.saves);
    let (low, high) = time.bounds();
    // Divided and not sampled.
    let time = Figure::predicted(time.value, (low, high));
    // The host launches while the device is busy, too.
    let whole = (share * profile.totals.span_ns).min(lost.value).max(time.value);
    let likely = whole * saves.likely;
    let figure = Figure::predicted(likely, (low * saves.least, (high * saves.most).max(likely)));
    let function = HostFrame { frame: function.clone(), is_native: false }.qualified_name();
    let from = profile.main_place(&stacks).map_or_else(String::new, |place| format!(", called from {place}"));
    let launches = format!("{} of the launches", percent(share));
    let doing = format!("the host makes {launches} in `{function}`{from}");
    let saving = Saving {
        observed: Some(Observed { time_ns: time, doing }),
        beyond: Some(Figure::predicted(0.0, (0.0, runs_ahead(profile, time.value)))),
        ..job_saving(profile, figure.at_most(profile.totals.span_ns))
    };
    let saving = with_kernels(profile, cause, saving);
    if !is_worth(profile, &saving) {
        return None;
    }
    let waits = percent(lost.value / profile.totals.span_ns.max(1.0));
    let draft = Draft {
        summary: format!(
            "{launches} are made in `{function}`{from}, and the GPU waits for launches {waits} {}: {}",
            of_what(profile),
            cause.meaning.trim_end_matches('.')
        ),
        evidence: vec![
            Evidence::new(format!("launches made in `{function}`"), Figure::measured(share), Unit::Share)
                .decrease_towards(0.0),
        ],
        kernels: Vec::new(),
        change: None,
        confidence: confidence(
            Level::Low,
            "call stacks show which launches the function makes; that each costs the same idle time is assumed",
        ),
        saving,
    };
    let saves_ns = likely_ns(&draft.saving);
    Some(Known { cause, remedy, draft, saves_ns })
}

/// Launches of a kernel that the functions of a cause make.
fn made_by(profile: &Profile, kernel: &Kernel, cause: &Cause) -> f64 {
    let share = share_where(&kernel.stacks, |count| function_in(profile, count, cause).is_some());
    kernel.launches.calls as f64 * share.unwrap_or(0.0)
}

/// The outermost function that the cause is about among those of libraries that the program's
/// innermost line calls: what a library calls back is the program's own work.
fn function_in<'p>(profile: &'p Profile, count: &StackCount, cause: &Cause) -> Option<&'p Frame> {
    let CallStack { frames, .. } = profile.call_stacks.get(count.stack)?;
    let called = frames.iter().take_while(|frame| frame.is_of_library());
    called.filter(|frame| cause.names_host(&frame.file, &frame.function)).last()
}
