//! Launches that repeat in one order.
//!
//! Launches of a stream are collected into segments, which end at any other recorded call of the
//! process. A loop that waits in each of its rounds repeats a segment; one that does not is a
//! segment with a period. Of each step, the repetition with the most recorded arguments is kept.

use apex_trace::layout::{ArgumentSample, NO_CONFIG};
use apex_trace::{Event, Process};
use std::collections::{BTreeMap, HashMap};

/// Launches of a process that are looked at.
const MOST_LAUNCHES: usize = 1 << 17;
/// Launches after which a segment ends.
const LONGEST_SEGMENT: usize = 4096;
/// Fewest and most launches of a step.
const FEWEST: usize = 2;
const MOST: usize = 128;
/// Most different steps of a process that are remembered.
const MOST_REMEMBERED: usize = 1024;
/// Repetitions of a segment that are looked at for arguments.
const LOOKS: usize = 4;

/// A launch, with its recorded arguments, if there are any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Launch {
    pub config: u32,
    pub sample: Option<ArgumentSample>,
}

/// A sequence of launches that repeats.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub launches: Vec<Launch>,
    pub repeats: u64,
}

/// The steps of a process that came at least twice, the most frequent first.
pub(crate) fn of_process(process: &Process, most: usize) -> Vec<Step> {
    let samples = samples(process);
    if samples.is_empty() {
        return Vec::new();
    }
    let (mut steps, mut open) = (Steps::default(), BTreeMap::<u32, Vec<Launch>>::new());
    let (mut seen, mut records) = (0, process.records_by_time());
    while let Some(record) = records.next().filter(|_| seen < MOST_LAUNCHES) {
        match record.event {
            Event::Launch(launch)
                if launch.result == 0 && launch.config != NO_CONFIG && launch.stream != 0 =>
            {
                seen += 1;
                let sample = samples.get(&(record.tid, launch.head.start)).copied();
                let segment = open.entry(launch.stream).or_default();
                segment.push(Launch { config: launch.config, sample });
                if segment.len() >= LONGEST_SEGMENT {
                    steps.add(&std::mem::take(segment));
                }
            }
            Event::Launch(_) | Event::Call(_) | Event::GraphLaunch(_) => {
                std::mem::take(&mut open).values().for_each(|segment| steps.add(segment));
            }
            _ => {}
        }
    }
    open.values().for_each(|segment| steps.add(segment));
    steps.most_frequent(most)
}

/// Arguments by thread and start of their launches.
fn samples(process: &Process) -> HashMap<(u32, u64), ArgumentSample> {
    let sample = |record: apex_trace::Record| match record.event {
        Event::ArgumentSample(sample) if sample.arguments != 0 => {
            Some(((record.tid, sample.head.start), sample))
        }
        _ => None,
    };
    process.records().filter_map(sample).take(MOST_LAUNCHES).collect()
}

/// Steps by the configurations of their launches.
#[derive(Default)]
struct Steps(BTreeMap<Vec<u32>, Step>);

impl Steps {
    fn add(&mut self, segment: &[Launch]) {
        let configs: Vec<u32> = segment.iter().map(|launch| launch.config).collect();
        let period = period(&configs);
        if !(FEWEST..=MOST).contains(&period) {
            return;
        }
        let key = &configs[..period];
        if !self.0.contains_key(key) && self.0.len() >= MOST_REMEMBERED {
            return;
        }
        let step = self.0.entry(key.to_vec()).or_default();
        step.repeats += (segment.len() / period) as u64;
        for repetition in segment.chunks_exact(period).take(LOOKS) {
            if step.launches.is_empty() || known(repetition) > known(&step.launches) {
                step.launches = repetition.to_vec();
            }
        }
    }

    fn most_frequent(self, most: usize) -> Vec<Step> {
        let mut steps: Vec<Step> = self.0.into_values().filter(|step| step.repeats > 1).collect();
        steps.sort_by_key(|step| std::cmp::Reverse(step.repeats));
        steps.truncate(most);
        steps
    }
}

fn known(launches: &[Launch]) -> usize {
    launches.iter().filter(|launch| launch.sample.is_some()).count()
}

/// The length of the unit of which a sequence consists, whose last repetition may be cut: the
/// length of the sequence if it comes less than twice.
fn period(sequence: &[u32]) -> usize {
    // The longest beginning that is an end, too, for each part of the sequence from its beginning.
    let mut borders = vec![0; sequence.len()];
    for at in 1..sequence.len() {
        let mut border: usize = borders[at - 1];
        while border > 0 && sequence[border] != sequence[at] {
            border = borders[border - 1];
        }
        borders[at] = border + usize::from(sequence[border] == sequence[at]);
    }
    let period = sequence.len() - borders.last().copied().unwrap_or(0);
    if 2 * period <= sequence.len() { period } else { sequence.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(configs: &[u32], is_known: bool) -> Vec<Launch> {
        let sample = is_known.then(ArgumentSample::default);
        configs.iter().map(|&config| Launch { config, sample }).collect()
    }

    #[test]
    fn a_loop_has_the_period_of_its_round() {
        assert_eq!(period(&[1, 2, 3, 1, 2, 3, 1, 2, 3]), 3);
        assert_eq!(period(&[1, 2, 3, 1, 2, 3, 1]), 3, "the last round may be cut");
        assert_eq!(period(&[1, 1, 2, 1, 1, 2]), 3);
        assert_eq!(period(&[7, 7, 7, 7]), 1);
        assert_eq!(period(&[1, 2, 3, 1]), 4, "it comes less than twice");
        assert_eq!(period(&[]), 0);
    }

    #[test]
    fn the_repetition_with_most_arguments_is_kept() {
        let mut steps = Steps::default();
        steps.add(&segment(&[1, 2, 3], false));
        steps.add(&segment(&[1, 2, 3, 1, 2, 3], true));
        steps.add(&segment(&[1, 2, 3], false));
        steps.add(&segment(&[4, 5], true));
        steps.add(&segment(&[6; 40], true));
        let [step] = &steps.most_frequent(8)[..] else { panic!("one step that repeats") };
        assert_eq!((step.repeats, step.launches.len(), known(&step.launches)), (4, 3, 3));
    }
}
