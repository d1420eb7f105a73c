//! Memory, copies, and the driver calls beside launches.

use super::figure::{NAME, Spread, text};
use apex_ordered::Order;
use apex_profile::{PlaceOverTime, Profile, memory_kind_name, stream_kind_name};
use serde::Serialize;
use std::cmp::Reverse;

/// Entry points that are listed.
const CALLS: usize = 60;
/// Streams that are listed.
const STREAMS: usize = 100;

/// Allocations, copies and calls.
#[derive(Debug, Serialize)]
pub struct MemoryUse<'a> {
    /// By kind, as in the report's JSON.
    kinds: &'a [apex_profile::Memory],
    over_time: Vec<MemoryOverTime<'a>>,
    over_time_left_out: usize,
    copies: Vec<Copies>,
    calls: Vec<Call>,
    calls_left_out: usize,
    streams: Vec<Stream>,
    streams_left_out: usize,
}

/// Allocated memory of a process over time; bytes are measured.
#[derive(Debug, Serialize)]
struct MemoryOverTime<'a> {
    pid: u32,
    rank: Option<usize>,
    /// Pinned memory of the host, or memory of devices.
    on_host: bool,
    /// Where the first part begins, after the session's start.
    start_ns: f64,
    part_ns: f64,
    peak_bytes: u64,
    /// After the session's start.
    peak_at_ns: f64,
    /// Bytes of the peak whose place is that of other allocations of the same call and size.
    inferred_bytes: u64,
    most: &'a [u64],
    least: &'a [u64],
    allocated: &'a [u64],
    places: Vec<Place<'a>>,
    rest: &'a [u64],
}

#[derive(Debug, Serialize)]
struct Place<'a> {
    name: String,
    peak_bytes: u64,
    /// Its part of `most`.
    bytes: &'a [u64],
}

#[derive(Debug, Serialize)]
struct Copies {
    direction: apex_profile::CopyDirection,
    source: &'static str,
    destination: &'static str,
    asynchronous: bool,
    count: u64,
    bytes: u64,
    cpu_ns: f64,
}

#[derive(Debug, Serialize)]
struct Call {
    name: String,
    count: u64,
    failed: u64,
    bytes: u64,
    cpu: Spread,
}

#[derive(Debug, Serialize)]
struct Stream {
    pid: u32,
    device: Option<usize>,
    id: u32,
    kind: &'static str,
    launches: u64,
    graph_launches: u64,
    transfers: u64,
}

impl<'a> MemoryUse<'a> {
    /// With at most so many pictures of memory over time.
    pub fn of(profile: &'a Profile, pictures: usize) -> Self {
        let copies = profile.copies.iter().map(|copies| Copies {
            direction: copies.direction,
            source: memory_kind_name(copies.source),
            destination: memory_kind_name(copies.destination),
            asynchronous: copies.asynchronous,
            count: copies.count,
            bytes: copies.bytes,
            cpu_ns: copies.cpu.total_ns,
        });
        let calls = profile.calls.iter().take(CALLS).map(|call| Call {
            name: text(&call.name, NAME),
            count: call.count,
            failed: call.failed,
            bytes: call.bytes,
            cpu: Spread::of(&call.cpu),
        });
        let streams = profile.streams.iter().take(STREAMS).map(|stream| Stream {
            pid: profile.processes.get(stream.process).map_or(0, |process| process.pid),
            device: stream.device,
            id: stream.id,
            kind: stream_kind_name(stream.kind),
            launches: stream.launches,
            graph_launches: stream.graph_launches,
            transfers: stream.transfers,
        });
        Self {
            kinds: &profile.memory,
            over_time: over_time(profile, pictures),
            over_time_left_out: profile.memory_over_time.len().saturating_sub(pictures),
            copies: copies.collect(),
            calls: calls.collect(),
            calls_left_out: profile.calls.len().saturating_sub(CALLS),
            streams: streams.collect(),
            streams_left_out: profile.streams.len().saturating_sub(STREAMS),
        }
    }
}

/// Those with the highest peaks.
fn over_time(profile: &Profile, most: usize) -> Vec<MemoryOverTime<'_>> {
    let mut all: Vec<&apex_profile::MemoryOverTime> = profile.memory_over_time.iter().collect();
    all.order_by_key(|memory| Reverse(memory.peak_bytes));
    all.into_iter().take(most).map(|memory| MemoryOverTime::of(profile, memory)).collect()
}

impl<'a> MemoryOverTime<'a> {
    fn of(profile: &Profile, memory: &'a apex_profile::MemoryOverTime) -> Self {
        let process = profile.processes.get(memory.process);
        let begun_ns = process.map_or(0.0, |process| process.start_ns);
        let peak = memory.most.iter().position(|&most| most == memory.peak_bytes);
        let place = |place: &'a PlaceOverTime| Place {
            name: text(&place.place, NAME),
            peak_bytes: place.peak_bytes,
            bytes: &place.bytes,
        };
        Self {
            pid: process.map_or(0, |process| process.pid),
            rank: process.and_then(|process| process.rank),
            on_host: memory.on_host,
            start_ns: begun_ns + memory.start_ns,
            part_ns: memory.part_ns,
            peak_bytes: memory.peak_bytes,
            peak_at_ns: begun_ns + memory.peak_at_ns as f64,
            inferred_bytes: peak.and_then(|part| memory.inferred.get(part)).copied().unwrap_or(0),
            most: &memory.most,
            least: &memory.least,
            allocated: &memory.allocated,
            places: memory.places.iter().map(place).collect(),
            rest: &memory.rest,
        }
    }
}
