//! The timed launches of a session, by kernel and size.

use crate::compare::{Ratio, Timed, paired_ratios};
use apex_ordered::Order;
use apex_trace::definition::Config;
use apex_trace::layout::{Timing, flags};
use apex_trace::{Event, Process, Session};
use cuda_launch::{Dim3, LaunchConfig};
use launch_condition::size_class;
use std::collections::{BTreeMap, HashMap};

/// A kernel in one size: the hash of its PTX, its name, the block that the program asks for, and
/// the size class.
pub type Key = (u128, String, Dim3, u32);

/// Launches that may be compared: of one process, grid, stream and state of the stream.
type Kind = (usize, Dim3, u32, u16);

/// The timed launches of one kernel in one size: by block.
#[derive(Default)]
pub struct OfSize(HashMap<Dim3, BTreeMap<Kind, Vec<Timed>>>);

/// The timed launches of a session.
pub fn of(session: &Session) -> HashMap<Key, OfSize> {
    let mut found: HashMap<Key, OfSize> = HashMap::new();
    for (at, process) in session.processes.iter().enumerate() {
        for record in process.records() {
            if let Event::Timing(timing) = record.event
                && timing.head.flags & (flags::OF_GRAPH | flags::OF_CALL) == 0
                && let Some(config) = process.definitions.config(timing.config)
                && let Some((key, asked)) = key(process, config)
            {
                let state = timing.head.flags & (flags::STREAM_WAS_IDLE | flags::QUEUED);
                let kind = (at, asked.grid, timing.stream, state);
                let blocks = &mut found.entry(key).or_default().0;
                let times = blocks.entry(config.launch.block).or_default().entry(kind).or_default();
                times.push(timed(process, &timing, config.asked.is_some()));
            }
        }
    }
    found
}

/// What identifies the kernel and size of a configuration, and the launch that the program asked
/// for; `None` if the program did not load PTX.
pub fn key(process: &Process, config: &Config) -> Option<(Key, LaunchConfig)> {
    let (grid, block) = config.asked.unwrap_or((config.launch.grid, config.launch.block));
    let asked = LaunchConfig { grid, block, ..config.launch };
    let code = process.definitions.function_code(config.function)?.ptx;
    let name = process.definitions.function(config.function)?.name.clone();
    (code != 0).then(|| ((code, name, block, size_class(&asked)), asked))
}

fn timed(process: &Process, timing: &Timing, is_other: bool) -> Timed {
    // What the event pair itself costs, by calibration.
    let ns = timing.raw_ns.saturating_sub(timing.correction_ns()) as f64;
    Timed { start_ns: process.clock.ns_since_start(timing.head.start), ns, is_other }
}

impl OfSize {
    /// The time in another block divided by that in the program's own; `None` with too few pairs.
    pub fn ratio(&self, own: Dim3, other: Dim3) -> Option<Ratio> {
        let (own, other) = (self.0.get(&own)?, self.0.get(&other)?);
        let kinds = other.iter().filter_map(|(kind, times)| Some((times, own.get(kind)?)));
        let both = |(other, own): (&Vec<Timed>, &Vec<Timed>)| [&other[..], &own[..]].concat();
        Ratio::of(kinds.flat_map(|kind| paired_ratios(both(kind))).collect())
    }

    /// The median time of launches in a block, in nanoseconds.
    pub fn median_ns(&self, block: Dim3) -> Option<f64> {
        let mut times: Vec<f64> = self.0.get(&block)?.values().flatten().map(|timed| timed.ns).collect();
        times.order_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }
}
