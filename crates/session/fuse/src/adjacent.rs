//! Launches that follow each other.
//!
//! Two launches are adjacent if they are in one stream, have the same grid and block, and no other
//! launch or call of the process was recorded between them, in whatever thread or stream. So no
//! recorded work can depend on the state between them.

use apex_trace::layout::{ArgumentSample, Launch, NO_CONFIG, flags};
use apex_trace::{Event, Session};
use std::collections::{BTreeMap, HashMap};

/// Most different pairs of a session.
const MOST_PAIRS: usize = 1000;

/// Two configurations whose launches follow each other.
pub struct Pair {
    /// The process, by its place in the session.
    pub process: usize,
    /// Both configurations.
    pub configs: [u32; 2],
    /// How often they follow each other.
    pub times: u64,
    /// The recorded arguments of both in one of these launches.
    pub samples: Option<[ArgumentSample; 2]>,
}

/// The pairs of a session.
pub fn pairs(session: &Session) -> Vec<Pair> {
    let mut all = BTreeMap::new();
    for (at, process) in session.processes.iter().enumerate() {
        let sample = |record: apex_trace::Record| match record.event {
            Event::ArgumentSample(sample) if sample.arguments != 0 => {
                Some(((record.tid, sample.head.start), sample))
            }
            _ => None,
        };
        let samples: HashMap<(u32, u64), ArgumentSample> = process.records().filter_map(sample).collect();
        let mut last: Option<(u32, Launch)> = None;
        for record in process.records_by_time() {
            let launch = match record.event {
                Event::Launch(launch) => launch,
                Event::Call(_) | Event::GraphLaunch(_) => {
                    last = None;
                    continue;
                }
                _ => continue,
            };
            let before = last.replace((record.tid, launch));
            let Some((tid, before)) = before.filter(|(_, before)| follows(before, &launch)) else { continue };
            if all.len() >= MOST_PAIRS && !all.contains_key(&(at, before.config, launch.config)) {
                continue;
            }
            let pair = all.entry((at, before.config, launch.config)).or_insert(Pair {
                process: at,
                configs: [before.config, launch.config],
                times: 0,
                samples: None,
            });
            pair.times += 1;
            if pair.samples.is_none() {
                let first = samples.get(&(tid, before.head.start));
                let second = samples.get(&(record.tid, launch.head.start));
                pair.samples = first.zip(second).map(|(first, second)| [*first, *second]);
            }
        }
    }
    all.into_values().collect()
}

/// Whether both launches ran in one stream that is known: neither into a graph that is captured,
/// nor as cooperative ones.
fn follows(before: &Launch, launch: &Launch) -> bool {
    let is_other = |one: &Launch| one.head.flags & (flags::CAPTURED | flags::COOPERATIVE) != 0;
    let is_known =
        |one: &Launch| one.result == 0 && one.config != NO_CONFIG && one.stream != 0 && !is_other(one);
    is_known(before) && is_known(launch) && before.stream == launch.stream
}
