//! When kernels are launched: counts in equal parts of the span of their device, few enough for a
//! picture.
//!
//! Invariant: the parts of a kernel add up to its launch calls in the phases of the activity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Launch calls of a kernel that ran, by when they began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchesOverTime {
    /// Index into [`super::Profile::kernels`].
    pub kernel: usize,
    /// Calls in each of [`Self::PARTS`] equal parts of the activity's span.
    pub parts: Vec<u64>,
}

impl LaunchesOverTime {
    /// Parts of a span.
    pub const PARTS: usize = 60;
}

/// The counts of a device while its process is read.
pub(super) struct LaunchCounts {
    /// Nanoseconds after the process's start.
    span: (u64, u64),
    kernels: BTreeMap<usize, [u64; LaunchesOverTime::PARTS]>,
}

impl LaunchCounts {
    pub fn new(span: (u64, u64)) -> Self {
        Self { span, kernels: BTreeMap::new() }
    }

    /// A launch call that began then.
    pub fn launched(&mut self, kernel: usize, start: u64) {
        let (from, to) = self.span;
        let parts = LaunchesOverTime::PARTS as u128;
        let part = u128::from(start.saturating_sub(from)) * parts / u128::from((to - from).max(1));
        let counts = self.kernels.entry(kernel).or_insert([0; LaunchesOverTime::PARTS]);
        counts[part.min(parts - 1) as usize] += 1;
    }

    pub fn finish(self) -> Vec<LaunchesOverTime> {
        let of = |(kernel, parts): (usize, [u64; LaunchesOverTime::PARTS])| LaunchesOverTime {
            kernel,
            parts: parts.to_vec(),
        };
        self.kernels.into_iter().map(of).collect()
    }
}
