//! Batches that PyTorch's data loader puts together from rows of tensors, one by one.
//!
//! The loader's samples tell it: nothing runs inside of the loader but its own functions, which
//! stack tensors, and lines of the dataset that only index. Then the remedy is no other process
//! that does the same, but one indexing for each batch.

use std::fmt;

use super::remedy_of_case;
use apex_profile::{HostFrame, Profile};

/// The loader's files.
const LOADER: &str = "torch/utils/data/";
/// The loader's functions that put samples together, and the one for tensors.
const COLLATE: &str = "torch/utils/data/_utils/collate.py";
const OF_TENSORS: &str = "collate_tensor_fn";
/// Least share of the loader's samples in which it takes and stacks rows.
const LEAST: f64 = 0.8;

/// A function, the frames that it called, innermost first, and the samples of this stack.
pub(super) type Inside<'p> = (&'p HostFrame, &'p [HostFrame], u64);

/// Rows of tensors that are taken one by one.
pub(super) struct Rows {
    share: f64,
    is_on_device: bool,
}

/// The rows that these stacks of the loader, each with its samples, take; `None` where they show
/// anything else.
pub(super) fn of<'p>(profile: &Profile, stacks: impl Iterator<Item = Inside<'p>>) -> Option<Rows> {
    let is_on_device = collates_on_device(profile);
    let (mut all, mut of_rows, mut is_of_tensors) = (0u64, 0u64, is_on_device);
    for (function, inner, samples) in stacks {
        if !function.frame.file.contains(LOADER) {
            return None;
        }
        all = all.saturating_add(samples);
        if takes_rows(profile, inner, is_on_device) {
            of_rows = of_rows.saturating_add(samples);
        }
        is_of_tensors |=
            inner.iter().any(|frame| is_collate(&frame.frame.file) && frame.frame.function == OF_TENSORS);
    }
    let share = of_rows as f64 / all.max(1) as f64;
    (is_of_tensors && share >= LEAST).then_some(Rows { share, is_on_device })
}

/// Whether the frames inside of the loader are its own, and lines that only index: any line, where
/// the rows are on the device, else those whose text has no call.
fn takes_rows(profile: &Profile, inner: &[HostFrame], is_on_device: bool) -> bool {
    let only_indexes = |frame: &HostFrame| {
        is_on_device || profile.quote(&frame.frame).is_some_and(|line| !line.contains('('))
    };
    let is_innermost_known = inner.first().is_none_or(|frame| frame.is_of_library() || only_indexes(frame));
    let is_of_loader = |frame: &HostFrame| !frame.is_native && frame.frame.file.contains(LOADER);
    is_innermost_known && inner.iter().filter(|frame| frame.is_of_library()).all(is_of_loader)
}

/// Whether kernels are launched where the loader puts samples together.
fn collates_on_device(profile: &Profile) -> bool {
    let launched = profile.kernels.iter().filter(|kernel| kernel.launches.any());
    let stacks =
        launched.flat_map(|kernel| &kernel.stacks).filter_map(|of| profile.call_stacks.get(of.stack));
    stacks.flat_map(|stack| &stack.frames).any(|frame| is_collate(&frame.file))
}

fn is_collate(file: &str) -> bool {
    file.contains(COLLATE)
}

impl Rows {
    /// The change for this program.
    pub fn change(&self, profile: &Profile) -> Option<String> {
        remedy_of_case(profile, "known-host-work/rows")
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_on_device { "on the GPU" } else { "in memory" };
        let share = super::super::percent(self.share);
        write!(to, "in {share} of these samples it takes rows of tensors {place} one by one, and stacks them")
    }
}
