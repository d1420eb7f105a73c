//! What ranks do on other ranks' GPUs: copies over a link beside the collectives, and contexts
//! there.
//!
//! A session says that a copy was between two devices, not which: the other end is known where a
//! process uses one device beside its own. Its streams tell which devices it uses.

use apex_ordered::Gather;
use std::collections::BTreeSet;

use serde::Serialize;

use super::late::LEAST_WAITING;
use super::{ByRank, Profile, RankRow};
use crate::PhaseKind;
use crate::profile::{CopyDirection, Stream};

/// A rank that copies between its GPU and another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// Index into [`ByRank::ranks`] of the rank that copies.
    pub row: usize,
    /// The same of the rank whose GPU is the other end; `None` if it is not known.
    pub other: Option<usize>,
    /// Number of copies: measured.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes in each iteration of the steady state; `None` where launches do not repeat.
    pub bytes_per_step: Option<f64>,
    /// Share of all waiting that is for one of the two ranks; `None` if the other end is not known.
    pub waiting_share: Option<f64>,
    /// Whether the copies may be what the ranks wait for: no single rank is late, these two have
    /// most of the waiting between them, and each at least an even share.
    pub is_cause: bool,
}

/// A rank that uses the GPU of another rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guest {
    /// Index into [`ByRank::ranks`] of the rank.
    pub row: usize,
    /// The same of the rank whose GPU it is.
    pub of: usize,
    /// Launches on it.
    pub launches: u64,
    /// Asynchronous copies and sets in its streams.
    pub transfers: u64,
}

impl Profile {
    /// The copies of ranks between their GPU and others.
    pub(super) fn links(&self, by_rank: &ByRank) -> Vec<Link> {
        let rows = first_rows(by_rank);
        rows.into_iter().filter_map(|row| self.link(by_rank, row)).collect()
    }

    fn link(&self, by_rank: &ByRank, row: usize) -> Option<Link> {
        let rank = &by_rank.ranks[row];
        let activity =
            self.activities.iter().find(|one| (one.process, one.device) == (rank.process, rank.device))?;
        let sum = |kind: Option<PhaseKind>| {
            let phases = activity.phases.iter().filter(|phase| kind.is_none_or(|kind| phase.kind == kind));
            let calls = phases.flat_map(|phase| &phase.calls);
            let peer = calls.filter(|call| call.direction == Some(CopyDirection::PeerToPeer));
            peer.fold((0u64, 0u64), |(copies, bytes), call| {
                (copies.saturating_add(call.count), bytes.saturating_add(call.bytes))
            })
        };
        let (copies, bytes) = sum(None);
        if copies == 0 {
            return None;
        }
        let in_steps = sum(Some(PhaseKind::Steady)).1 as f64;
        let bytes_per_step = (rank.steps > 0).then(|| in_steps / rank.steps as f64);
        let other = self.other_end(by_rank, rank);
        let ends = other.map(|other| [rank, &by_rank.ranks[other]]);
        let all = by_rank.waiting_ns();
        let waiting_share = ends.filter(|_| all > 0.0).map(|ends| waiting_ns(&ends) / all);
        let is_cause = by_rank.late.is_none()
            && in_steps > 0.0
            && ends.is_some_and(|ends| have_most_of_the_waiting(by_rank, &ends));
        Some(Link { row, other, copies, bytes, bytes_per_step, waiting_share, is_cause })
    }

    /// The rank whose GPU a rank uses beside its own, if that is one GPU.
    fn other_end(&self, by_rank: &ByRank, rank: &RankRow) -> Option<usize> {
        let others = self.other_devices(rank);
        let [device] = others.iter().copied().collect::<Vec<_>>()[..] else { return None };
        owner(by_rank, rank.process, device)
    }

    /// The devices on which a process has a stream, except its own.
    fn other_devices(&self, rank: &RankRow) -> BTreeSet<usize> {
        let streams = self.streams.iter().filter(|stream| stream.process == rank.process);
        streams.filter_map(|stream| stream.device).filter(|&device| Some(device) != rank.device).gathered()
    }

    /// The ranks that use another rank's GPU without working on it.
    pub(super) fn guests(&self, by_rank: &ByRank) -> Vec<Guest> {
        let mut guests = Vec::new();
        for row in first_rows(by_rank) {
            let rank = &by_rank.ranks[row];
            for device in self.other_devices(rank) {
                let works = |other: &RankRow| (other.process, other.device) == (rank.process, Some(device));
                if let Some(of) = owner(by_rank, rank.process, device)
                    && !by_rank.ranks.iter().any(works)
                {
                    let (launches, transfers) = self.work_there(rank.process, device);
                    guests.push(Guest { row, of, launches, transfers });
                }
            }
        }
        guests
    }

    /// Launches and transfers of a process in its streams on a device.
    fn work_there(&self, process: usize, device: usize) -> (u64, u64) {
        let there = |stream: &&Stream| (stream.process, stream.device) == (process, Some(device));
        let streams = self.streams.iter().filter(there);
        streams.fold((0, 0), |(launches, transfers), stream| {
            let launched = stream.launches.saturating_add(stream.graph_launches);
            (launched.saturating_add(launches), stream.transfers.saturating_add(transfers))
        })
    }
}

/// The first row of each process: calls are counted by process, and each row has them.
fn first_rows(by_rank: &ByRank) -> Vec<usize> {
    let mut met = BTreeSet::new();
    (0..by_rank.ranks.len()).filter(|&row| met.insert(by_rank.ranks[row].process)).collect()
}

/// The rank of another process that works on a device.
fn owner(by_rank: &ByRank, process: usize, device: usize) -> Option<usize> {
    by_rank.ranks.iter().position(|row| row.process != process && row.device == Some(device))
}

fn waiting_ns(rows: &[&RankRow]) -> f64 {
    crate::total(rows.iter().map(|row| row.caused_ns))
}

/// Whether two of more ranks have most of the waiting between them: at least half-way between an
/// even share of two and all of it, each of them an even share, and enough for anybody to matter.
fn have_most_of_the_waiting(by_rank: &ByRank, ends: &[&RankRow; 2]) -> bool {
    let (all, even) = (by_rank.waiting_ns(), 1.0 / by_rank.processes() as f64);
    let is_end = |row: &&RankRow| ends.iter().any(|end| end.process == row.process);
    let others = by_rank.ranks.iter().filter(|row| !is_end(row));
    let span = crate::total(others.map(|row| row.accounts.span_ns));
    by_rank.processes() > 2
        && waiting_ns(ends) >= (0.5 + even) * all
        && waiting_ns(ends) >= LEAST_WAITING * span
        && ends.iter().all(|end| end.caused_ns >= even * all)
}
