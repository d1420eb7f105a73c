//! The rank that the others wait for, in a sentence, and what was matched to find it.

use crate::text::figures;
use crate::text::verdict::capitalised;

use apex_machine::{Quantity, Summary};
use apex_profile::{ByRank, Guest, LateCause, LateRank, Link, Matching, Profile, RankRow, units};

/// Minimum share by which a clock is lower than another one, to be named.
const LOWER: f64 = 0.02;

/// The first line: which rank is late, what it did, what the others waited.
pub fn first(profile: &Profile, by_rank: &ByRank, machine: Option<&Summary>) -> String {
    let Matching { matched, launched, together, .. } = by_rank.matching;
    let Some(late) = &by_rank.late else {
        if let Some(cause) = by_rank.links.iter().find_map(|link| link_as_cause(profile, by_rank, link)) {
            return cause;
        }
        let why = match (launched, matched) {
            (0, _) => "they launched no collectives of NCCL",
            (_, 0) => "no collective was matched",
            _ if together * 2 > matched => "they come to most collectives together",
            _ => "none of them has most of the waiting, or the others hardly wait for it",
        };
        return format!("No rank is known to be late: {why}.");
    };
    let row = &by_rank.ranks[late.row];
    format!(
        "{} comes last to {} of {} collectives, and the others wait {} of their time for it: {}.",
        capitalised(&who(profile, row)),
        units::count(late.last),
        units::count(late.of),
        figures::share(&late.share),
        cause(profile, by_rank, late, machine)
    )
}

/// How the two figures of one wait differ, where a rank is late: the first line has the measured
/// one, verdicts, findings and accounts the other.
pub fn two_figures(by_rank: &ByRank) -> Option<String> {
    let late = by_rank.late.as_ref()?;
    Some(format!(
        "Waiting has two figures: {} of the others' time is in the {} compared collectives beyond the shortest of them, also \
         while other kernels run beside; in {} their GPUs do nothing but wait, in all collectives (the account \"waiting for \
         another rank\"), and a balanced job gains no more than that.",
        figures::share(&late.share),
        units::count(by_rank.matching.matched),
        figures::share(&late.exposed),
    ))
}

/// The first line where the ends of a link are what the ranks wait for.
fn link_as_cause(profile: &Profile, by_rank: &ByRank, link: &Link) -> Option<String> {
    let (other, share) = (link.other.filter(|_| link.is_cause)?, link.waiting_share?);
    let [one, other] = [link.row, other].map(|row| who(profile, &by_rank.ranks[row]));
    Some(format!(
        "{} of all waiting is for {one} and {other}: the first one copies {} between their GPUs, beside the collectives.",
        units::share(share),
        volume(link)
    ))
}

fn volume(link: &Link) -> String {
    match link.bytes_per_step {
        Some(bytes) => format!("{} in each step", units::bytes(bytes as u64)),
        None => format!("{} in all", units::bytes(link.bytes)),
    }
}

/// What ranks do on other ranks' GPUs, a sentence for each: copies, and contexts.
pub fn on_other_gpus(profile: &Profile, by_rank: &ByRank) -> Vec<String> {
    let name = |row: usize| who(profile, &by_rank.ranks[row]);
    // The cause is in the first line.
    let links = by_rank.links.iter().filter(|link| !link.is_cause).map(|link| {
        let end = link.other.map_or("other GPUs".to_owned(), |other| format!("that of {}", name(other)));
        format!(
            "{} copies {} between its GPU and {end}, beside the collectives.",
            capitalised(&name(link.row)),
            volume(link)
        )
    });
    let guests = by_rank.guests.iter().map(|guest| context_there(guest, &name));
    links.chain(guests).collect()
}

fn context_there(guest: &Guest, name: &dyn Fn(usize) -> String) -> String {
    format!(
        "{} uses the GPU of {}, too ({}, {}): its context there takes some hundred megabytes of that GPU's memory. If this is \
         not meant, select the rank's own GPU before the first CUDA call (torch.cuda.set_device), or show it no other one \
         (CUDA_VISIBLE_DEVICES).",
        capitalised(&name(guest.row)),
        name(guest.of),
        units::counted(guest.launches, "launch", "launches"),
        units::counted(guest.transfers, "copy or set", "copies and sets"),
    )
}

/// A rank as a sentence names it: `rank 1 (process 651, GPU 1)`.
pub fn who(profile: &Profile, row: &RankRow) -> String {
    let mut activities = profile.activities.iter();
    let is_of =
        |activity: &&apex_profile::Activity| activity.process == row.process && activity.device == row.device;
    activities
        .find(is_of)
        .map_or_else(|| format!("process {}", row.pid), |found| profile.user_in_words(found))
}

/// What the late rank did instead of arriving.
fn cause(profile: &Profile, by_rank: &ByRank, late: &LateRank, machine: Option<&Summary>) -> String {
    let clocks = match late.cause {
        LateCause::SlowerKernels => clocks(profile, by_rank, late, machine),
        _ => None,
    };
    format!("{late}{}", clocks.unwrap_or_default())
}

/// How much lower its clock was, where NVML's readings say so.
fn clocks(profile: &Profile, by_rank: &ByRank, late: &LateRank, machine: Option<&Summary>) -> Option<String> {
    let clock = |row: &RankRow| {
        let uuid = &profile.devices.get(row.device?)?.uuid;
        let device = machine?.devices.iter().find(|known| known.device.uuid == *uuid)?;
        Some(device.readings.get(Quantity::SmClock)?.mean)
    };
    let own = &by_rank.ranks[late.row];
    let others: Vec<f64> =
        by_rank.ranks.iter().filter(|row| row.process != own.process).filter_map(clock).collect();
    let (own, mean) = (clock(own)?, others.iter().sum::<f64>() / others.len().max(1) as f64);
    (own < (1.0 - LOWER) * mean).then(|| format!("; its SM clock is {own:.0} MHz, theirs {mean:.0} MHz"))
}

/// What became of the collectives.
pub fn matching(by_rank: &ByRank) -> String {
    let Matching { launched, matched, together, untimed, alone, unmatched, ambiguous, others } =
        by_rank.matching;
    let named = by_rank.communicators.iter().filter(|one| one.id.is_some()).count();
    let of = by_rank.communicators.len();
    let how = match of - named {
        0 => "NCCL's identifiers".to_owned(),
        unnamed if named == 0 => format!(
            "the order of first use, because NCCL did not identify {}",
            if unnamed == 1 { "it" } else { "them" }
        ),
        unnamed => format!("NCCL's identifiers, {unnamed} of them by the order of first use"),
    };
    let parts = [
        (together, "arrived together"),
        (untimed, "not timed on each rank"),
        (alone, "recorded on one rank alone"),
        (unmatched, "without a counterpart"),
        (ambiguous, "ambiguous"),
        (others, "of kinds that do not synchronise all ranks"),
    ];
    let parts = parts.into_iter().filter(|&(count, _)| count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| format!("{} {what}", units::count(count))).collect();
    let rest = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!(
        "{} in {} (matched by {how}), {} matched and timed{rest}.",
        units::counted(launched, "collective", "collectives"),
        units::counted(of as u64, "communicator", "communicators"),
        units::count(matched),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::{Accounts, Activity, Figure, Process};

    /// Four ranks with a GPU each, of which the last copies to the GPU of the first.
    fn with_link(is_cause: bool) -> (Profile, ByRank) {
        let process = |rank| Process { pid: 650 + rank as u32, rank: Some(rank), ..Process::default() };
        let activity = |rank| Activity {
            process: rank,
            device: Some(rank),
            ordinal: Some(rank as u32),
            ..Activity::default()
        };
        let (processes, activities) = ((0..4).map(process).collect(), (0..4).map(activity).collect());
        let profile = Profile { processes, activities, ..Profile::default() };
        let row = |rank| RankRow {
            rank: Some(rank),
            process: rank,
            pid: 650 + rank as u32,
            device: Some(rank),
            accounts: Accounts::default(),
            busy: Figure::measured(0.0),
            steps: 0,
            step_ns: None,
            late: 0,
            waited_ns: 0.0,
            caused_ns: 0.0,
        };
        let (row_of_copies, bytes) = (3, 80 << 30);
        let link = Link {
            row: row_of_copies,
            other: Some(0),
            copies: 160,
            bytes,
            bytes_per_step: Some((4_u64 << 30) as f64),
            waiting_share: Some(0.963),
            is_cause,
        };
        let by_rank = ByRank {
            ranks: (0..4).map(row).collect(),
            world_size: Some(4),
            communicators: Vec::new(),
            matching: Matching { launched: 9, matched: 9, ..Matching::default() },
            late: None,
            links: vec![link],
            guests: vec![Guest { row: row_of_copies, of: 0, launches: 1, transfers: 2 }],
        };
        (profile, by_rank)
    }

    #[test]
    fn a_link_whose_ends_the_others_wait_for_is_the_first_line() {
        let (profile, by_rank) = with_link(true);
        assert_eq!(
            first(&profile, &by_rank, None),
            "96% of all waiting is for rank 3 (process 653, GPU 3) and rank 0 (process 650, GPU 0): the first one copies \
             4.00 GiB in each step between their GPUs, beside the collectives."
        );
        let others = on_other_gpus(&profile, &by_rank);
        assert_eq!(others.len(), 1, "{others:?}");
        assert!(
            others[0].starts_with(
                "Rank 3 (process 653, GPU 3) uses the GPU of rank 0 (process 650, GPU 0), too (1 launch, 2 copies and sets)"
            ),
            "{others:?}"
        );
    }

    #[test]
    fn copies_that_nobody_waits_for_are_a_fact() {
        let (profile, by_rank) = with_link(false);
        assert!(first(&profile, &by_rank, None).starts_with("No rank is known to be late"));
        assert_eq!(
            on_other_gpus(&profile, &by_rank)[0],
            "Rank 3 (process 653, GPU 3) copies 4.00 GiB in each step between its GPU and that of rank 0 (process 650, \
             GPU 0), beside the collectives."
        );
    }
}
