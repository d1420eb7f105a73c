//! Launches of kernels over time: counts in equal parts of the span of their device, few enough for
//! a picture.
//!
//! Invariant: the parts of a kernel add up to its launch calls in the phases of the activity.

use serde::Serialize;

/// Launch calls of a kernel that ran, by when they began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// By kernel.
    kernels: Vec<[u64; LaunchesOverTime::PARTS]>,
}

impl LaunchCounts {
    pub fn new(span: (u64, u64)) -> Self {
        Self { span, kernels: Vec::new() }
    }

    /// A launch call that began then.
    pub fn launched(&mut self, kernel: usize, start: u64) {
        let (from, to) = self.span;
        let (since, length) = (start.saturating_sub(from), (to - from).max(1));
        let parts = LaunchesOverTime::PARTS;
        // 64 bits hold nine years of them.
        let part = match since.checked_mul(parts as u64) {
            Some(scaled) => scaled / length,
            None => (u128::from(since) * parts as u128 / u128::from(length)) as u64,
        };
        if self.kernels.len() <= kernel {
            self.kernels.resize(kernel + 1, [0; LaunchesOverTime::PARTS]);
        }
        self.kernels[kernel][part.min(parts as u64 - 1) as usize] += 1;
    }

    pub fn finish(self) -> Vec<LaunchesOverTime> {
        let of = |(kernel, parts): (usize, [u64; LaunchesOverTime::PARTS])| LaunchesOverTime {
            kernel,
            parts: parts.to_vec(),
        };
        let launched =
            |(_, parts): &(usize, [u64; LaunchesOverTime::PARTS])| parts.iter().any(|&count| count > 0);
        self.kernels.into_iter().enumerate().filter(launched).map(of).collect()
    }
}
