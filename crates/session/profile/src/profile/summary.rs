//! Sums over a finished profile, and the order of its lists.

use apex_ordered::Order;
use std::collections::BTreeMap;

use super::build::{RECORD_COST_INTERVAL_NS, RECORD_COST_NS, RecordingCost};
use super::{Activity, Collective, Graph, Profile, Recorder, Sequence, Totals};
use crate::figure::{Figure, total};
use crate::saturating::SaturatingSum as _;
use cuda_launch::{Dim3, LaunchConfig};

/// Repeated sequences that a profile lists.
const SEQUENCES: usize = 100;
/// GPU times of one stream may be off by so much before it is worth a word.
const OVERCOUNTED: f64 = 1.2;

/// The identity of a collective on all ranks: name, grid, block.
pub(super) type CollectiveKey = (String, Dim3, Dim3);

impl Totals {
    /// Computes the totals from the lists of `profile`.
    pub(super) fn sum_up(&mut self, profile: &Profile) {
        let activities = &profile.activities;
        self.span_ns = total(activities.iter().map(|activity| activity.span_ns));
        self.gpu_time_ns = Figure::sum(activities.iter().filter_map(|activity| activity.gpu_time_ns));
        let busy =
            activities.iter().filter_map(|activity| Some(activity.gpu_busy()?.scaled(activity.span_ns)));
        self.gpu_busy = Figure::sum(busy).map(|time| time.scaled(1.0 / self.span_ns));
        let launches = activities.iter().map(|activity| activity.launches).saturating_sum();
        let timed = total(activities.iter().map(|activity| activity.timed_share * activity.launches as f64));
        self.timed_share = timed / launches.max(1) as f64;
        self.wall_ns =
            profile.processes.iter().map(|process| process.start_ns + process.wall_ns).fold(0.0, f64::max);
    }
}

impl Recorder {
    /// Computes the recorder's figures from the lists of `profile` and from the cost of recording.
    pub(super) fn sum_up(&mut self, cost: RecordingCost, profile: &Profile) {
        let recording_ns = |record_ns| cost.measured_ns + cost.unmeasured as f64 * record_ns;
        self.recording_ns = recording_ns(RECORD_COST_NS);
        let wall = total(profile.processes.iter().map(|process| process.wall_ns));
        self.problems.extend(profile.activities.iter().filter_map(|activity| overcounted(profile, activity)));
        let share = |record_ns| (self.timing_ns + recording_ns(record_ns)) / wall;
        let (least, most) = RECORD_COST_INTERVAL_NS;
        let figure = || match cost.unmeasured {
            0 => Figure::sampled(share(0.0), cost.samples, None),
            _ => Figure::predicted(share(RECORD_COST_NS), (share(least), share(most))),
        };
        // Lost records took time too, and without them the end of the process is not known.
        self.overhead_share = (wall > 0.0 && self.lost() == 0).then(figure);
    }
}

/// Says so where kernels of one stream, which cannot overlap, take longer than time has passed, and
/// certainly so: one launch that was slow because the machine was busy, and stands for others that
/// were not timed, says nothing.
fn overcounted(profile: &Profile, activity: &Activity) -> Option<String> {
    let time = activity.gpu_time_ns?;
    let least = time.value - 2.0 * time.standard_error?;
    let is_over = activity.streams == 1 && activity.span_ns > 0.0 && least / activity.span_ns > OVERCOUNTED;
    let why = match time.samples < activity.launches {
        true => {
            "the launches that were timed were slower than the others (record with `--timing all` to time each)"
        }
        false if activity.has_threads => {
            "several threads launch into that stream, and a time holds more than one kernel"
        }
        // Each kernel was timed, and the program ended before the last ones did.
        false => return None,
    };
    is_over.then(|| {
        format!(
            "kernels of process {} cannot have taken as long as it seems, {:.1} times as long as the run, in one stream: {why}",
            profile.processes[activity.process].pid,
            time.value / activity.span_ns
        )
    })
}

impl Profile {
    /// Puts what costs most first, and follows the kernels to their new places.
    pub(super) fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.kernels.len()).collect();
        let kernels = &self.kernels;
        order.order_by(|&a, &b| {
            let (a, b) = (&kernels[a], &kernels[b]);
            let time = |kernel: &super::Kernel| kernel.gpu_total_ns().unwrap_or(0.0);
            let same = || {
                let key = |kernel: &super::Kernel| {
                    let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = kernel.launch;
                    (grid, block, dynamic_shared_bytes)
                };
                a.symbol.cmp(&b.symbol).then_with(|| key(a).cmp(&key(b)))
            };
            time(b).total_cmp(&time(a)).then(b.launches.ran().cmp(&a.launches.ran())).then_with(same)
        });
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        self.kernels = order.iter().map(|&old| std::mem::take(&mut self.kernels[old])).collect();
        renumber_kernels(&place, &mut self.graphs, &mut self.sequences, &mut self.activities);
        self.graphs.order_by_key(|graph| (std::cmp::Reverse(graph.launches), graph.process, graph.id));
        self.calls.order_by(|a, b| b.cpu.total_ns.total_cmp(&a.cpu.total_ns).then(a.name.cmp(&b.name)));
        self.copies.order_by_key(|copies| std::cmp::Reverse((copies.bytes, copies.count)));
        self.memory.order_by_key(|memory| std::cmp::Reverse((memory.peak_bytes, memory.allocations)));
        self.streams.order_by_key(|stream| {
            (std::cmp::Reverse(stream.launches + stream.graph_launches), stream.process, stream.id)
        });
        self.sequences.order_by(|a, b| {
            b.covered().cmp(&a.covered()).then(a.kernels.cmp(&b.kernels)).then(a.process.cmp(&b.process))
        });
        self.sequences.truncate(SEQUENCES);
        self.defects.order_by_key(|defect| std::cmp::Reverse(defect.count));
    }
}

impl Profile {
    /// Attributes to waiting the time by which each collective takes longer than on the rank that
    /// takes least: that rank came last. `others` are the times on ranks that are not in the
    /// profile.
    pub(super) fn tell_waiting_for_ranks(&mut self, others: &BTreeMap<CollectiveKey, f64>) {
        let Self { kernels, activities, .. } = self;
        let of = |one: &Collective| -> CollectiveKey {
            let kernel = &kernels[one.kernel];
            (kernel.symbol.clone(), kernel.launch.grid, kernel.launch.block)
        };
        let mut least = others.clone();
        for one in activities.iter().flat_map(|activity| &activity.collectives) {
            let mean = least.entry(of(one)).or_insert(one.mean_ns);
            *mean = mean.min(one.mean_ns);
        }
        for activity in activities {
            let collectives = &activity.collectives;
            let all = total(collectives.iter().map(|one| one.launches as f64 * one.mean_ns));
            let waited =
                total(collectives.iter().map(|one| one.launches as f64 * (one.mean_ns - least[&of(one)])));
            if waited > 0.0 {
                activity.accounts.wait_for_share(waited / all);
                activity.over_time.iter_mut().for_each(|parts| parts.wait_for_share(waited / all));
                activity.phases.iter_mut().for_each(|phase| phase.accounts.wait_for_share(waited / all));
            }
        }
    }
}

/// Replaces places in a list of kernels by the places that `place` says.
pub(super) fn renumber_kernels(
    place: &[usize],
    graphs: &mut [Graph],
    sequences: &mut [Sequence],
    activities: &mut [Activity],
) {
    let graphs = graphs.iter_mut().flat_map(|graph| graph.kernels.iter_mut().map(|(kernel, _)| kernel));
    let sequences = sequences.iter_mut().flat_map(|sequence| sequence.kernels.iter_mut());
    for activity in activities.iter_mut() {
        let phases =
            activity.phases.iter_mut().flat_map(|phase| &mut phase.kernels).map(|(kernel, _)| kernel);
        let collectives = activity.collectives.iter_mut().map(|collective| &mut collective.kernel);
        let over_time = activity.launches_over_time.iter_mut().map(|launches| &mut launches.kernel);
        let growth = activity.growth.iter_mut().map(|growth| &mut growth.kernel);
        phases.chain(collectives).chain(over_time).chain(growth).for_each(|kernel| *kernel = place[*kernel]);
    }
    let gaps = activities.iter_mut().flat_map(|activity| activity.gaps.iter_mut());
    let ends = gaps.flat_map(|gap| gap.before.iter_mut().chain(gap.after.iter_mut()));
    for kernel in graphs.chain(sequences).chain(ends) {
        *kernel = place[*kernel];
    }
}

#[cfg(test)]
mod tests {
    use super::super::Process;
    use super::*;
    use crate::figure::Provenance;

    #[test]
    fn what_recording_cost_is_not_known_where_records_were_lost() {
        let processes = vec![Process { wall_ns: 1e6, ..Process::default() }];
        let profile = Profile { processes, ..Profile::default() };
        let mut recorder = Recorder { records: 100, ..Recorder::default() };
        let cost = RecordingCost { unmeasured: 100, ..RecordingCost::default() };
        recorder.sum_up(cost, &profile);
        assert!((recorder.overhead_share.unwrap().value - 100.0 * RECORD_COST_NS / 1e6).abs() < 1e-12);
        let mut recorder = Recorder { timing_ns: 1e9, dropped: 1, ..recorder };
        recorder.sum_up(cost, &profile);
        assert_eq!(recorder.overhead_share, None);
    }

    #[test]
    fn times_that_cannot_be_are_named_where_chance_does_not_explain_them() {
        let processes = vec![Process { pid: 7, ..Process::default() }];
        let profile = Profile { processes, ..Profile::default() };
        let said = |error, launches, has_threads| {
            let gpu_time_ns = Some(Figure::sampled(1400.0, 10, error));
            // (Each kernel has a time, which does not mean that each launch has one.)
            let share = Activity { streams: 1, span_ns: 1000.0, timed_share: 1.0, ..Activity::default() };
            overcounted(&profile, &Activity { gpu_time_ns, launches, has_threads, ..share })
        };
        for has_threads in [false, true] {
            let some = said(Some(50.0), 43, has_threads).unwrap();
            assert!(some.contains("process 7 cannot have taken as long as it seems, 1.4 times"), "{some}");
            assert!(some.contains("the launches that were timed were slower"), "{some}");
        }
        assert!(said(Some(50.0), 10, true).unwrap().contains("several threads launch into that stream"));
        assert_eq!(said(Some(50.0), 10, false), None, "one thread's kernels do not overlap in its stream");
        assert_eq!(said(Some(150.0), 43, false), None);
        assert_eq!(said(None, 43, false), None);
    }

    #[test]
    fn what_recording_cost_is_measured_where_every_process_took_its_own_time() {
        let processes = vec![Process { wall_ns: 1e6, ..Process::default() }];
        let profile = Profile { processes, ..Profile::default() };
        let mut recorder = Recorder { records: 100, timing_ns: 500.0, ..Recorder::default() };
        let mut cost = RecordingCost { samples: 20, measured_ns: 100.0 * 45.0, unmeasured: 0 };
        recorder.sum_up(cost, &profile);
        assert_eq!(recorder.recording_ns, 4500.0);
        let share = recorder.overhead_share.unwrap();
        assert_eq!((share.provenance(), share.samples), (Provenance::Measured, 20));
        assert!((share.value - 5000.0 / 1e6).abs() < 1e-12);
        cost.unmeasured = 10;
        recorder.sum_up(cost, &profile);
        let share = recorder.overhead_share.unwrap();
        assert_eq!(share.provenance(), Provenance::Predicted, "a part is estimated");
        assert!((share.value - (5000.0 + 10.0 * RECORD_COST_NS) / 1e6).abs() < 1e-12);
    }
}
