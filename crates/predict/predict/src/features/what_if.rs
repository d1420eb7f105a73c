//! A launch of a kernel that was measured when it was launched in another way.

use super::{Sink, Values, full};
use crate::case::Placed;

/// The measurements of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The kernel's duration, in microseconds.
    pub duration_us: f64,
}

/// All features of the new launch; by how much those differ from the measured one's that a launch
/// can change; and what the measured duration says about the kernel.
pub(super) fn put(from: &Placed<'_>, measured: &Measured, to: &Placed<'_>, sink: &mut dyn Sink) {
    full::put(to, sink);
    let mut before = Vec::new();
    full::put_changing(from, &mut Values(&mut before));
    full::put_changing(to, &mut Differences { before: &before, sink });
    let duration = measured.duration_us.log2();
    sink.put("measured", "duration", duration);
    sink.put("measured", "over_bound", duration - from.least_duration_us().log2());
}

/// Passes on by how much values differ from those before.
struct Differences<'a> {
    before: &'a [f32],
    sink: &'a mut dyn Sink,
}

impl Sink for Differences<'_> {
    fn put(&mut self, group: &'static str, name: &'static str, value: f64) {
        let (before, rest) = self.before.split_first().expect("both launches have the same features");
        self.before = rest;
        let group = match group {
            "" => "change",
            "limited_by" => "change_limited_by",
            "bound" => "change_bound",
            "work_share" => "change_work_share",
            _ => "change_work",
        };
        self.sink.put(group, name, value - f64::from(*before));
    }
}
