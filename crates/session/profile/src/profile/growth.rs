//! Growth of steps: ever more launches for each launch of a kernel that each step makes equally
//! often.
//!
//! Steps of which each is longer than the one before are not found as repetitions, so growth is
//! told from launches over time. In a program whose steps grow, launches per second stay about the
//! same, and those of a kernel that a step makes once become rare. The busy part of the span is
//! divided into [`GROUPS`] groups; a kernel's share of the launches must fall from each group to
//! the next. Launches are counted exactly.

use super::LaunchesOverTime;
use crate::saturating::SaturatingSum as _;

/// Groups of parts of the span that are compared.
const GROUPS: usize = 6;
/// Minimum launches of a kernel in them.
const LAUNCHES: u64 = 24;
/// Minimum growth.
const LEAST: f64 = 1.5;
/// Minimum kernels whose share falls likewise: one alone may have a reason of its own.
const KERNELS: usize = 3;

/// Launches of all kernels for each launch of one of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The kernel that is counted against: index into [`super::Profile::kernels`].
    pub kernel: usize,
    /// In the first sixth of the busy time.
    pub first: f64,
    /// In the last sixth.
    pub last: f64,
    /// In all of it.
    pub mean: f64,
}

impl Growth {
    /// The growth that these launches show, against the rarest kernel; `None` where there is none.
    pub(super) fn of(launches: &[LaunchesOverTime]) -> Option<Self> {
        let at =
            |part: usize| launches.iter().map(|of| of.parts.get(part).copied().unwrap_or(0)).saturating_sum();
        let all: Vec<u64> = (0..LaunchesOverTime::PARTS).map(at).collect();
        let most = *all.iter().max()?;
        let is_busy = |&part: &usize| all[part] > most / 2;
        let (start, end) = ((0..all.len()).find(is_busy)?, (0..all.len()).rev().find(is_busy)? + 1);
        if end - start < 2 * GROUPS {
            return None;
        }
        let group = |counts: &[u64]| -> Vec<u64> {
            let part = |group: usize| start + (end - start) * group / GROUPS;
            (0..GROUPS).map(|at| counts[part(at)..part(at + 1)].iter().copied().saturating_sum()).collect()
        };
        let totals = group(&all);
        let growth = |of: &LaunchesOverTime| {
            let counts = group(&of.parts);
            let launches = counts.iter().copied().saturating_sum();
            let ratios: Vec<f64> =
                totals.iter().zip(&counts).map(|(all, own)| *all as f64 / (*own).max(1) as f64).collect();
            let grows = ratios.windows(2).all(|pair| pair[1] > pair[0]);
            let (first, last) = (*ratios.first()?, *ratios.last()?);
            let mean = totals.iter().copied().saturating_sum() as f64 / launches.max(1) as f64;
            let is_growth = launches >= LAUNCHES && grows && last >= LEAST * first && !counts.contains(&0);
            is_growth.then_some((launches, Self { kernel: of.kernel, first, last, mean }))
        };
        let found: Vec<_> = launches.iter().filter_map(growth).collect();
        let rarest = found.iter().min_by_key(|(launches, _)| *launches)?;
        (found.len() >= KERNELS).then_some(rarest.1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Growth, LaunchesOverTime};

    /// Launches of four kernels that each step makes once, and of one that step `n` makes `n` times
    /// what `more` says, at 400 launches in each part.
    fn steps(more: impl Fn(usize) -> usize) -> Vec<LaunchesOverTime> {
        let mut parts = vec![vec![0; LaunchesOverTime::PARTS]; 5];
        let mut launched = 0;
        for step in 0.. {
            for kernel in (0..4).chain(std::iter::repeat_n(4, more(step))) {
                let Some(part) = Some(launched / 400).filter(|part| *part < LaunchesOverTime::PARTS) else {
                    let list = parts.into_iter().enumerate();
                    return list.map(|(kernel, parts)| LaunchesOverTime { kernel, parts }).collect();
                };
                parts[kernel][part] += 1;
                launched += 1;
            }
        }
        unreachable!("steps launch something")
    }

    #[test]
    fn steps_that_make_ever_more_launches_grow() {
        let growth = Growth::of(&steps(|step| step)).expect("growth");
        assert!(growth.kernel < 4 && growth.last > 2.0 * growth.first, "{growth:?}");
        assert!((growth.first..growth.last).contains(&growth.mean));
    }

    #[test]
    fn other_steps_do_not() {
        assert_eq!(Growth::of(&steps(|_| 10)), None);
        assert_eq!(Growth::of(&steps(|step| 8 + step % 5)), None);
        assert_eq!(Growth::of(&steps(|step| 100 / (step + 1))), None);
        // Training, then a validation that makes other launches.
        assert_eq!(Growth::of(&steps(|step| if step > 200 { 60 } else { 6 })), None);
        assert_eq!(Growth::of(&[]), None);
    }
}
