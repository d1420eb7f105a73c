//! The duties of a proof at one launch.

use crate::Rules;
use crate::access::Region;
use crate::known::{MOST_THREADS, Values};
use crate::launch::{Change, Launch, is_valid, threads};
use crate::memory::{Duties, Duty};
use crate::refusal::{Reason, Refusal};
use cuda_launch::{Dim3, LaunchConfig};

/// Memory as addresses: the first, and the one after the last.
type Extent = (i128, i128);

/// Decides about one shape.
pub(crate) fn judge(
    duties: &Duties,
    rules: &Rules,
    most_threads: u32,
    launch: &Launch<'_>,
    block: Dim3,
) -> Result<(LaunchConfig, Change), Refusal> {
    let asked = &launch.config;
    if launch.cooperative || asked.blocks_per_cluster() > 1 || !asked.cluster.is_empty() || !is_valid(asked) {
        return Err(Refusal::of(Reason::Launch));
    }
    let shaped = asked.with_block(block).ok_or(Refusal::of(Reason::Shape))?;
    let is_allowed = is_valid(&shaped) && shaped.threads_per_block() <= u64::from(most_threads);
    let counts =
        |launch: &LaunchConfig| threads(launch).iter().all(|&along| i128::from(along) <= MOST_THREADS);
    if !is_allowed || !counts(asked) || !counts(&shaped) {
        return Err(Refusal::of(Reason::Shape));
    }
    let at = Values { threads: threads(asked), parameters: launch.parameters };
    let after = threads(&shaped);
    for axis in (0..3).filter(|axis| at.threads[*axis] != after[*axis]) {
        check_axis(duties, rules, axis, &at)?;
    }
    for (duty, refusal) in &duties.duties {
        if !holds(duty, duties, rules, &at, launch) {
            return Err(refusal.clone());
        }
    }
    Ok((shaped, if after == at.threads { Change::SameThreads } else { Change::MoreThreads }))
}

/// Whether there may be more threads along an axis.
fn check_axis(duties: &Duties, rules: &Rules, axis: usize, at: &Values<'_>) -> Result<(), Refusal> {
    if let Some(refusal) = &duties.same_threads[axis] {
        return Err(refusal.clone());
    }
    for limit in duties.limits.iter().filter(|limit| limit.axis == axis && rules.bound) {
        let is_within = limit.limit.value(at).is_some_and(|value| value <= at.threads[axis].into());
        if !is_within {
            return Err(Refusal { reason: Reason::Bound, place: limit.place.clone() });
        }
    }
    Ok(())
}

fn holds(duty: &Duty, duties: &Duties, rules: &Rules, at: &Values<'_>, launch: &Launch<'_>) -> bool {
    match duty {
        Duty::AtMost(need) => {
            let both = need.less.value(at).zip(need.more.value(at));
            !rules.overflow || both.is_some_and(|(less, more)| less <= more)
        }
        Duty::Apart { first, second, or_same } => {
            let [first, second] = [&duties.regions[*first], &duties.regions[*second]];
            are_apart(first, second, *or_same, at, launch)
        }
    }
}

/// Whether two regions are apart: what they touch, or the allocations that they lie in.
fn are_apart(first: &Region, second: &Region, or_same: bool, at: &Values<'_>, launch: &Launch<'_>) -> bool {
    let (own, other) = (extent(first, at), extent(second, at));
    if let (Some(a), Some(b)) = (own, other)
        && or_same
        && a.0 == b.0
    {
        return true;
    }
    let all = |region: &Region, extent: Option<Extent>| -> Vec<Vec<Extent>> {
        let lies_in = allocations(region, at, launch);
        extent.map(|extent| vec![extent]).into_iter().chain(lies_in).collect()
    };
    let (own, other) = (all(first, own), all(second, other));
    own.iter().any(|own| other.iter().any(|other| are_disjoint(own, other)))
}

fn are_disjoint(own: &[Extent], other: &[Extent]) -> bool {
    own.iter().all(|a| other.iter().all(|b| a.1 <= b.0 || b.1 <= a.0 || a.0 >= a.1 || b.0 >= b.1))
}

/// The memory that a region takes in a launch.
fn extent(region: &Region, at: &Values<'_>) -> Option<Extent> {
    let (start, bytes) = region.extent.as_ref()?;
    let (start, bytes) = (start.value(at)?, bytes.value(at)?);
    let end = start.checked_add(bytes)?;
    (i64::try_from(start).is_ok() && i64::try_from(end).is_ok()).then_some((start, end))
}

/// The allocations in which a region lies, if all of them are known.
fn allocations(region: &Region, at: &Values<'_>, launch: &Launch<'_>) -> Option<Vec<Extent>> {
    let one = |offset: &u32| {
        let bytes = at.parameters.get(*offset as usize..)?.first_chunk::<8>()?;
        let (base, size) = (launch.allocation)(u64::from_le_bytes(*bytes))?;
        Some((i128::from(base), i128::from(base) + i128::from(size)))
    };
    let all: Vec<Extent> = region.pointers.iter().map(one).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}
