//! Memory, copies, and the driver calls beside launches.

use super::figure::{NAME, Spread, text};
use apex_profile::{Profile, memory_kind_name, stream_kind_name};
use serde::Serialize;

/// Entry points that are listed.
const CALLS: usize = 60;
/// Streams that are listed.
const STREAMS: usize = 100;

/// What was allocated, copied and called.
#[derive(Debug, Serialize)]
pub struct Memory<'a> {
    /// By kind, as in the report's JSON.
    kinds: &'a [apex_profile::Memory],
    copies: Vec<Copies>,
    calls: Vec<Call>,
    calls_left_out: usize,
    streams: Vec<Stream>,
    streams_left_out: usize,
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

impl<'a> Memory<'a> {
    pub fn of(profile: &'a Profile) -> Self {
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
            copies: copies.collect(),
            calls: calls.collect(),
            calls_left_out: profile.calls.len().saturating_sub(CALLS),
            streams: streams.collect(),
            streams_left_out: profile.streams.len().saturating_sub(STREAMS),
        }
    }
}
