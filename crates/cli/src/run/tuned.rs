//! `apex run --tuned`: from a profile to the plan that the injected library follows, and what
//! became of it.
//!
//! A profile that cannot be used is no reason not to run the program: the reason is printed, and
//! all launches are made as the program asks.

use super::Recording;
use crate::{output, text, tuned, units};
use anyhow::Context;
use apex_profile::Profile;
use apex_tune::Tuning;
use apex_untrusted::{Folder, read};
use launch_condition::Plan;
use std::io::Write as _;
use std::path::Path;

/// Largest plan that is read, bytes.
const MOST_PLAN_BYTES: u64 = 16 << 20;

/// The plan as bytes; `None` if there is none to follow. Why not is said.
pub fn plan(recording: &Recording) -> Option<Vec<u8>> {
    let read = |path: &Path| read::read(path, MOST_PLAN_BYTES).context("cannot read the plan");
    let plan = match (&recording.tuned, &recording.launch_plan) {
        (Some(path), _) => tuned::load(path).map(|tuning| {
            tell_of_pairs(&tuning, recording);
            tuning.plan().to_bytes()
        }),
        (None, Some(path)) => read(path),
        (None, None) => return None,
    };
    plan.inspect_err(|error| {
        output::remark(format!(
            "--tuned: launches are made as the program asks, because {}",
            output::causes(error)
        ));
    })
    .ok()
}

/// Says that pairs of launches are made as one only where both wait in the launch queue.
fn tell_of_pairs(tuning: &Tuning, recording: &Recording) {
    let pairs = tuning.pairs.len() as u64;
    if pairs > 0 && recording.fast.is_empty() {
        let named = units::counted(pairs, "pair", "pairs");
        output::remark(format!(
            "--tuned: the profile's {named} of kernels {} joined only with --fast=queue, where both launches wait together",
            if pairs == 1 { "is" } else { "are" }
        ));
    }
}

/// Writes a plan into a session.
pub fn write(plan: Option<Vec<u8>>, session: &Folder) -> anyhow::Result<()> {
    let Some(plan) = plan else { return Ok(()) };
    let written = session.create_new(Plan::FILE).and_then(|mut file| file.write_all(&plan));
    written.context("cannot write the plan of launches into the session")
}

/// Says why launches were made as the program asked.
pub fn tell(profile: &Profile) -> Option<String> {
    let why = text::fast::why_not_tuned(profile)?;
    Some(format!("--tuned: launches were made as the program asked, because {why}"))
}
