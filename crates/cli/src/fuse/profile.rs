//! The profile to which `apex fuse --tuned` adds the pairs that it has joined.
//!
//! A profile is of one device and driver. What it has decided about blocks stays.

use crate::{output, tuned, units};
use anyhow::{Context, bail};
use apex_fuse::{Candidate, Joined};
use apex_tune::{Member, Origin, Tuning, document};
use apex_untrusted::{replace, shown};
use launch_condition::Checked;
use ptx_fuse::{NAME, Part};
use std::path::{Path, PathBuf};

/// Longest name of a joined kernel that tells the names of both.
const MOST_NAME: usize = 512;

/// A profile that gets pairs.
pub struct Profile {
    path: PathBuf,
    tuning: Tuning,
    added: u64,
}

impl Profile {
    /// The profile in a file, or a new one of the session's device.
    ///
    /// # Errors
    /// If the file is no profile, not the user's, or of another device or driver than the session.
    pub fn open(path: &Path, session: &apex_profile::Profile) -> anyhow::Result<Self> {
        let Some(device) = session.devices.first() else {
            bail!("the session names no device, and a profile is of one: record it again");
        };
        let (device, driver_version) = (device.name.clone(), device.driver_version);
        let new = Tuning { device, driver_version, ..Tuning::default() };
        let cannot = || format!("cannot add to {}; name another file with --tuned", shown(path));
        let tuning = if path.exists() { tuned::load(path).with_context(cannot)? } else { new.clone() };
        if !tuning.is_of_device_of(&new) {
            bail!(
                "{} is of {} with driver {}, and the session is of {} with driver {}: name another file with --tuned",
                shown(path),
                apex_untrusted::printable(&tuning.device),
                tuning.driver_version,
                apex_untrusted::printable(&new.device),
                new.driver_version
            );
        }
        Ok(Self { path: path.to_owned(), tuning, added: 0 })
    }

    /// Adds a joined kernel.
    ///
    /// # Errors
    /// Why it cannot be applied by `apex run --tuned`.
    pub fn add(&mut self, candidate: &Candidate, joined: &Joined) -> Result<(), &'static str> {
        if candidate.codes.contains(&0) {
            return Err("the program loads machine code, and the proof is about PTX");
        }
        let too_large = "the condition of the proof is too large to be checked at each launch";
        let condition = joined.fused.condition().map_err(|_| too_large)?;
        if Checked::of(&condition).is_none() {
            return Err(too_large);
        }
        let [first, second] =
            [0, 1].map(|at| Member { code: candidate.codes[at], name: candidate.kernels[at].clone() });
        let name = name(&first.name, &second.name);
        let origin = |&(part, place): &(Part, usize)| match part {
            Part::First => Origin::First(place as u32),
            Part::Second => Origin::Second(place as u32),
        };
        self.tuning.add_pair(apex_tune::Pair {
            flowing_bytes: candidate.flowing_bytes,
            parameters: joined.fused.parameters.iter().map(origin).collect(),
            same: joined.same.iter().map(|same| (same.first as u32, same.second as u32)).collect(),
            condition,
            ptx: joined.fused.named(&name).to_string(),
            first,
            second,
            name,
        });
        self.added += 1;
        Ok(())
    }

    /// Writes it, if something was added.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(self) -> anyhow::Result<()> {
        let shown = shown(&self.path);
        if self.added == 0 {
            output::remark(format!("{shown} was not written: no pair can be joined"));
            return Ok(());
        }
        let text = document::write(&self.tuning).context("cannot write the profile as JSON")?;
        replace::in_mode(&self.path, 0o644, text.as_bytes())
            .with_context(|| format!("cannot write {shown}"))?;
        let pairs = units::counted(self.added, "pair is", "pairs are");
        output::remark(format!(
            "{pairs} in {shown}: `apex run --fast=queue --tuned {shown} -- COMMAND` makes each as one launch"
        ));
        Ok(())
    }
}

/// A name that tells both kernels, if it is not too long.
fn name(first: &str, second: &str) -> String {
    let both = format!("{NAME}__{first}__{second}");
    if both.len() <= MOST_NAME { both } else { NAME.to_owned() }
}
