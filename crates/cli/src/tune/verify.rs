//! `apex tune --verify`: whether the program gets the same results with a profile as without.
//!
//! The program runs twice without the profile and once with it. Each time, the injected library
//! keeps hashes of what reaches the host by copies, and of allocations at their end
//! ([`apex_trace::results`]). A result that differs between the two runs without the profile is
//! different by itself: nothing can be said of it. Any other must be the same with the profile.

use super::runs::Runs;
use super::{Args, Stopped};
use crate::run::{Fast, fast_ways, tuned as applied};
use crate::{exit, loaded, output, tuned, units};
use anyhow::{Context, bail};
use apex_conventions::documents::VERIFIED;
use apex_ordered::Gather;
use apex_trace::results::{self, Hashes, Kind, PIECE, Place, Results};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Runs of the program.
const RUNS: usize = 3;

/// Results that were compared, and the differences.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Verified {
    /// Launches that the profile changed.
    reshaped_launches: u64,
    /// Pairs of launches that were made as one.
    joined_pairs: u64,
    /// Results of each kind that are the same in all runs.
    same: Counts,
    /// Results that differ between two runs without the profile.
    not_repeatable: Counts,
    /// Results that no run can read.
    not_compared: u64,
    /// Bytes of the results that are the same.
    same_bytes: u64,
    /// The first result that the profile changes.
    first_difference: Option<Difference>,
    /// Number of results that it changes.
    differences: u64,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    copies: u64,
    allocations: u64,
}

/// A result that is another one with the profile.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    /// The process, from 0 in the order of their first driver calls.
    process: usize,
    /// The thread, likewise.
    thread: u64,
    /// `copy` or `allocation`.
    kind: &'static str,
    /// Which of the thread's copies or allocations, from 1.
    number: u64,
    /// Its bytes, with the profile and without; `None` if there is none.
    bytes: [Option<u64>; 2],
    /// The first bytes that differ: from an offset, and how many.
    at: Option<(u64, u64)>,
}

/// Verifies a profile.
pub fn execute(args: &Args, path: &Path) -> Result<ExitCode, Stopped> {
    refuse_without_profile(path)?;
    let verified = {
        let runs = Runs::new(&args.command, args.json)?;
        verify(&runs, path, &args.fast)?
    };
    let code = if verified.is_good() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) };
    if args.json {
        output::json(VERIFIED, &verified)?;
    } else {
        output::page(|out| write(out, &verified))?;
    }
    Ok(code)
}

fn refuse_without_profile(path: &Path) -> anyhow::Result<()> {
    let shown = apex_untrusted::shown(path);
    if !path.exists() {
        bail!("there is no profile {shown} to verify: make it with `apex tune`, or name it with -o");
    }
    tuned::load(path).map(drop)
}

fn verify(runs: &Runs<'_>, path: &Path, fast: &[Fast]) -> Result<Verified, Stopped> {
    let run = |number: usize, purpose: &str, options: &[&OsStr]| {
        output::remark(format!("run {number} of {RUNS}: {purpose}"));
        let always = ["--timing", "off", "--no-ptx", "--hash-results"].map(OsStr::new);
        runs.run(&number.to_string(), &[&always[..], options].concat())
    };
    let found = |session: &Path| {
        results::read(session).context("cannot read the hashes of a run").map_err(Stopped::from)
    };
    let first = found(&run(1, "without the profile", &[])?)?;
    let second = found(&run(2, "without the profile again", &[])?)?;
    let fast = format!("--fast={}", fast_ways(fast));
    let mut options = vec![OsStr::new("--tuned"), path.as_os_str()];
    options.extend((fast != "--fast=").then_some(OsStr::new(&fast)));
    let session = run(3, "with the profile", &options)?;
    if !apex_trace::has_process_files(&session) {
        return Err(Stopped::NoLaunch);
    }
    let profile = loaded::just_recorded(&session)?.profile;
    applied::tell(&profile).into_iter().for_each(output::remark);
    let kernels = profile.kernels.iter().filter(|kernel| kernel.asked.is_some());
    let reshaped_launches = kernels.map(|kernel| kernel.launches.calls).sum();
    let reshaping = profile.processes.iter().filter_map(|process| process.reshaping);
    let joined_pairs = reshaping.map(|reshaping| reshaping.joined).sum();
    Ok(Verified { reshaped_launches, joined_pairs, ..compared(&first, &second, &found(&session)?) })
}

/// Compares the results of two runs without a profile with those of a run with it.
fn compared(first: &[Results], second: &[Results], tuned: &[Results]) -> Verified {
    let mut verified = Verified::default();
    for process in 0..first.len().max(second.len()).max(tuned.len()) {
        let of = [first, second, tuned].map(|run| run.get(process));
        verified.not_compared += of.iter().flatten().map(|results| results.unseen).max().unwrap_or(0);
        let places: BTreeSet<Place> =
            of.iter().flatten().flat_map(|run| run.hashes.keys().copied()).gathered();
        for place in places {
            let [first, second, tuned] = of.map(|run| run.and_then(|run| run.hashes.get(&place)));
            verified.add(process, place, first, second, tuned);
        }
    }
    verified
}

impl Verified {
    fn add(
        &mut self,
        process: usize,
        place: Place,
        first: Option<&Hashes>,
        second: Option<&Hashes>,
        tuned: Option<&Hashes>,
    ) {
        if first != second {
            self.not_repeatable.count(place.kind);
        } else if first == tuned {
            self.same.count(place.kind);
            self.same_bytes += first.map_or(0, |hashes| hashes.bytes);
        } else {
            self.differences += 1;
            self.first_difference.get_or_insert_with(|| Difference::of(process, place, first, tuned));
        }
    }

    /// Whether something was compared that the profile may change, and all is the same.
    fn is_good(&self) -> bool {
        self.differences == 0
            && self.reshaped_launches + self.joined_pairs > 0
            && self.same.copies + self.same.allocations > 0
            && self.not_repeatable.copies == 0
    }
}

impl Counts {
    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Copy => self.copies += 1,
            _ => self.allocations += 1,
        }
    }

    fn shown(&self) -> String {
        let copies = units::counted(self.copies, "copy to the host", "copies to the host");
        format!("{copies} and {}", units::counted(self.allocations, "allocation", "allocations"))
    }
}

impl Difference {
    fn of(process: usize, place: Place, without: Option<&Hashes>, with: Option<&Hashes>) -> Self {
        let kind = if place.kind == Kind::Copy { "copy" } else { "allocation" };
        let bytes = [with, without].map(|hashes| hashes.map(|hashes| hashes.bytes));
        let piece = with.zip(without).and_then(|(with, without)| {
            let pairs = with.pieces.iter().zip(&without.pieces);
            let at = pairs.enumerate().find(|(_, (with, without))| with != without)?.0 as u64 * PIECE as u64;
            Some((at, (with.bytes - at).min(PIECE as u64)))
        });
        let at = piece.filter(|_| bytes[0] == bytes[1]);
        Self { process, thread: place.thread, kind, number: place.number + 1, bytes, at }
    }

    fn shown(&self) -> String {
        let Self { process, thread, kind, number, bytes, .. } = self;
        let which = format!("{kind} {number} of thread {thread} in process {process}");
        match (bytes, self.at) {
            ([Some(bytes), Some(_)], Some((at, length))) => format!(
                "{which}, of {}: the first difference is in bytes {} to {}",
                units::counted(*bytes, "byte", "bytes"),
                units::count(at),
                units::count(at + length - 1)
            ),
            ([with, without], _) => {
                let bytes = |bytes: &Option<u64>| {
                    bytes.map_or("none".to_owned(), |bytes| units::counted(bytes, "byte", "bytes"))
                };
                format!("{which}: {} with the profile, {} without", bytes(with), bytes(without))
            }
        }
    }
}

/// Writes what was found.
fn write(out: &mut dyn Write, verified: &Verified) -> io::Result<()> {
    let Verified { same, not_repeatable, not_compared, first_difference, differences, .. } = verified;
    let reshaped = units::counted(verified.reshaped_launches, "launch was", "launches were");
    writeln!(out, "{reshaped} made in other blocks.")?;
    if verified.joined_pairs > 0 {
        let joined = units::counted(verified.joined_pairs, "pair of launches was", "pairs of launches were");
        writeln!(out, "{joined} made as one launch.")?;
    }
    if let Some(first) = first_difference {
        let changed = units::counted(*differences, "result is", "results are");
        writeln!(out, "{changed} DIFFERENT with the profile. The first one is {}.", first.shown())?;
        writeln!(out, "Do not use the profile.")?;
    }
    writeln!(out, "The same bit by bit: {}, {}.", same.shown(), units::bytes(verified.same_bytes))?;
    if *not_repeatable != Counts::default() {
        let what = "not the same in two runs without the profile, so that nothing is known of them";
        writeln!(out, "Not repeatable: {} ({what}).", not_repeatable.shown())?;
    }
    if *not_compared > 0 {
        let what =
            "of planes, volumes, arrays or batches, while a graph is captured, or of memory that is gone";
        writeln!(out, "Not compared: {} ({what}).", units::counted(*not_compared, "result", "results"))?;
    }
    writeln!(out, "What kernels write into the host's memory, with no copy, is not seen.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Place = Place { kind: Kind::Copy, thread: 0, number: 0 };
    const ALLOCATION: Place = Place { kind: Kind::Allocation, thread: 0, number: 0 };

    fn run(hashes: &[(Place, &[u64])]) -> Vec<Results> {
        let of = |&(place, pieces): &(Place, &[u64])| {
            let bytes = pieces.len() as u64 * PIECE as u64 - 96;
            (place, Hashes { bytes, pieces: pieces.to_vec() })
        };
        vec![Results { hashes: hashes.iter().map(of).collect(), ..Results::default() }]
    }

    #[test]
    fn what_only_the_profile_changes_is_a_difference() {
        let original = run(&[(COPY, &[1, 2, 3]), (ALLOCATION, &[4])]);
        let same = Verified { reshaped_launches: 1, ..compared(&original, &original, &original) };
        assert_eq!((same.same.copies, same.same.allocations, same.is_good()), (1, 1, true));
        let tuned = run(&[(COPY, &[1, 2, 7]), (ALLOCATION, &[4])]);
        let found = compared(&original, &original, &tuned);
        let first = found.first_difference.as_ref().expect("a difference");
        assert_eq!((found.differences, first.at, found.is_good()), (1, Some((8192, 4000)), false));
        assert!(first.shown().contains("copy 1 of thread 0"), "{}", first.shown());
        let missing = compared(&original, &original, &run(&[(ALLOCATION, &[4])]));
        assert_eq!(missing.first_difference.map(|first| first.bytes), Some([None, Some(12_192)]));
        let longer = compared(&original, &original, &run(&[(COPY, &[1, 2, 3, 4]), (ALLOCATION, &[4])]));
        assert_eq!(longer.first_difference.map(|first| first.at), Some(None));
    }

    #[test]
    fn what_differs_by_itself_is_none() {
        let (one, other) =
            (run(&[(COPY, &[1]), (ALLOCATION, &[4])]), run(&[(COPY, &[2]), (ALLOCATION, &[4])]));
        let found = Verified {
            reshaped_launches: 1,
            ..compared(&one, &other, &run(&[(COPY, &[3]), (ALLOCATION, &[4])]))
        };
        assert_eq!((found.differences, found.not_repeatable.copies, found.same.allocations), (0, 1, 1));
        assert!(!found.is_good(), "a result that reaches the program is not known to be the same");
    }

    #[test]
    fn nothing_compared_is_not_good() {
        assert!(!Verified { reshaped_launches: 1, ..compared(&[], &[], &[]) }.is_good());
        let original = run(&[(COPY, &[1])]);
        assert!(!compared(&original, &original, &original).is_good(), "no launch was changed");
    }
}
