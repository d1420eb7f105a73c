//! When a device is busy: a model of its queue, driven by the host's calls.
//!
//! A launch starts when its call has returned and the launches before it on its stream are done; it takes its kernel's
//! mean time. The device is busy while any stream is. A synchronisation that the model says had to wait corrects it: the
//! work was done when the call returned. After a launch of unknown time nothing is said until a synchronisation has shown
//! that the device is done. Idle time is laid to what the host did meanwhile: its driver calls, and for the rest its own
//! code.

use std::collections::HashMap;

use super::{Activity, Gap, IdleCause};
use crate::figure::{Figure, NINETY_PERCENT, total};

/// Gaps that are listed.
const LISTED: usize = 10;

/// What a launch takes, as far as samples tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Mean over launches, nanoseconds.
    pub mean_ns: f64,
    /// Standard error of the mean.
    pub error_ns: f64,
    /// Standard deviation of one launch.
    pub deviation_ns: f64,
}

/// How far off the end of queued work may be.
#[derive(Clone, Copy, Debug, Default)]
struct Uncertainty {
    /// Errors of means: a kernel's is the same for all its launches, so they add up.
    error_ns: f64,
    /// Launches vary independently, so their variances add up.
    variance: f64,
}

impl Taken {
    /// As short and as long as `launches` such launches may be on average.
    pub fn ends(self, launches: u64) -> [Self; 2] {
        let off = NINETY_PERCENT * (self.error_ns + self.deviation_ns / (launches.max(1) as f64).sqrt());
        [(self.mean_ns - off).max(0.0), self.mean_ns + off].map(|mean_ns| Self { mean_ns, ..self })
    }
}

impl Uncertainty {
    fn add(&mut self, taken: &Taken) {
        self.error_ns += taken.error_ns;
        self.variance += taken.deviation_ns.powi(2);
    }

    /// To either side, for an interval of 90 %.
    fn off_ns(self) -> f64 {
        NINETY_PERCENT * (self.error_ns + self.variance.sqrt())
    }
}

/// One device, as one process uses it. Times are nanoseconds after the process's start.
#[derive(Clone)]
pub(crate) struct Queue {
    start: f64,
    end: f64,
    /// When the work of each stream is done.
    free_at: HashMap<u32, f64>,
    /// The device is busy from here …
    busy_from: f64,
    /// … to here …
    busy_until: f64,
    /// … and a synchronisation has seen the end.
    end_was_seen: bool,
    /// Launches of unknown time may still run.
    unknown: bool,
    /// There were launches of unknown time.
    had_unknown: bool,
    /// Of the work since the device was last seen idle.
    uncertainty: Uncertainty,
    /// When the call of the last launch returned: its work cannot have ended before.
    last_returned: f64,
    /// Work of all launches, nanoseconds.
    work_ns: f64,
    last_kernel: Option<usize>,
    /// Time of driver calls since `busy_until`, by [`IdleCause`].
    calls_ns: [f64; IdleCause::ALL.len()],
    /// Idle time, by [`IdleCause`].
    idle_ns: [f64; IdleCause::ALL.len()],
    /// Busy time in each part of the span.
    busy_ns: [f64; Activity::CHUNKS],
    gaps: Vec<Gap>,
    long_gaps: u64,
}

impl Queue {
    /// A queue whose first launch begins at `start` and whose last launch or synchronisation ends at `end`.
    pub fn new(start: f64, end: f64) -> Self {
        Self {
            start,
            end,
            free_at: HashMap::new(),
            busy_from: start,
            busy_until: start,
            end_was_seen: false,
            unknown: false,
            had_unknown: false,
            uncertainty: Uncertainty::default(),
            last_returned: start,
            work_ns: 0.0,
            last_kernel: None,
            calls_ns: [0.0; IdleCause::ALL.len()],
            idle_ns: [0.0; IdleCause::ALL.len()],
            busy_ns: [0.0; Activity::CHUNKS],
            gaps: Vec::new(),
            long_gaps: 0,
        }
    }

    /// A driver call of the host.
    pub fn called(&mut self, cause: IdleCause, called: f64, returned: f64) {
        self.calls_ns[cause as usize] += (returned - called.max(self.busy_until)).max(0.0);
    }

    /// A launch; `taken` is `None` where its kernel's time is not known.
    pub fn launch(
        &mut self,
        stream: u32,
        (called, returned): (f64, f64),
        kernel: Option<usize>,
        taken: Option<Taken>,
    ) {
        self.called(IdleCause::Launching, called, returned);
        if returned > self.busy_until && !self.unknown {
            self.idle(returned, kernel);
        }
        let free_at = self.free_at.entry(stream).or_insert(returned);
        *free_at = free_at.max(returned) + taken.map_or(0.0, |taken| taken.mean_ns);
        if *free_at >= self.busy_until {
            self.busy_until = *free_at;
            self.end_was_seen = false;
        }
        if let Some(taken) = &taken {
            self.uncertainty.add(taken);
            self.work_ns += taken.mean_ns;
        }
        self.unknown |= taken.is_none();
        self.had_unknown |= taken.is_none();
        self.last_returned = returned;
        self.last_kernel = kernel;
        self.calls_ns = Default::default();
    }

    /// A call from `called` to `returned` that waited for the work of a stream, or of all if `None`.
    pub fn synchronised(&mut self, stream: Option<u32>, called: f64, returned: f64) {
        match stream {
            Some(stream) if self.free_at.keys().any(|&other| other != stream) => {
                if let Some(free_at) = self.free_at.get_mut(&stream).filter(|free_at| **free_at > called) {
                    *free_at = returned;
                    self.busy_until = self.free_at.values().copied().fold(self.busy_from, f64::max);
                    self.calls_ns = Default::default();
                }
            }
            _ => {
                if self.unknown || self.busy_until > called {
                    self.busy_until = returned.max(self.busy_from);
                    self.end_was_seen = true;
                    self.unknown = false;
                    self.uncertainty = Uncertainty::default();
                    self.calls_ns = Default::default();
                }
                self.free_at.values_mut().for_each(|free_at| *free_at = free_at.min(returned));
            }
        }
    }

    /// The device was idle from the end of its work until `until`, when `next` came.
    fn idle(&mut self, until: f64, next: Option<usize>) {
        let (from, length) = (self.busy_until, until - self.busy_until);
        if length >= Activity::LONG_GAP_NS {
            self.idle_ns[IdleCause::LongGap as usize] += length;
            self.long_gaps += 1;
            let duration_ns =
                if self.end_was_seen { Figure::measured(length) } else { self.gap(length, until) };
            self.gaps.push(Gap { start_ns: from, duration_ns, before: self.last_kernel, after: next });
            self.gaps.sort_by(|a, b| b.duration_ns.value.total_cmp(&a.duration_ns.value));
            self.gaps.truncate(LISTED);
        } else {
            self.explain(length);
        }
        self.was_busy();
        self.uncertainty = Uncertainty::default();
        self.busy_from = until;
        self.busy_until = until;
        self.end_was_seen = false;
    }

    /// The length of a gap up to `until` whose beginning is modelled.
    fn gap(&self, length: f64, until: f64) -> Figure {
        let off = self.uncertainty.off_ns();
        let longest = (until - self.last_returned).max(0.0);
        Figure::predicted(length, ((length - off).max(0.0), (length + off).min(longest)))
    }

    /// The idle share, as modelled; `short` and `long` are the same queue with launches that are as short and as long as they
    /// may be. Streams may overlap less than is modelled, at the worst not at all. Launches of unknown time may take all of
    /// the time.
    fn idle_share(&self, short: &Self, long: &Self) -> Figure {
        let span = self.end - self.start;
        let one_by_one = (1.0 - long.work_ns / span).clamp(0.0, 1.0);
        let least = if self.had_unknown { 0.0 } else { long.modelled().min(one_by_one) };
        Figure::predicted(self.modelled(), (least, short.modelled()))
    }

    /// Modelled idle time over the span.
    fn modelled(&self) -> f64 {
        (total(self.idle_ns) / (self.end - self.start)).min(1.0)
    }

    /// Lays idle time to the driver calls in it, and the rest to the host's code. Calls of several threads at once share
    /// the time.
    fn explain(&mut self, length: f64) {
        let called: f64 = self.calls_ns.iter().sum();
        let share = if called > length { length / called } else { 1.0 };
        for (idle, call) in self.idle_ns.iter_mut().zip(self.calls_ns) {
            *idle += call * share;
        }
        self.idle_ns[IdleCause::HostCode as usize] += (length - called).max(0.0);
    }

    /// Lays the busy time that has ended into the parts of the span.
    fn was_busy(&mut self) {
        let width = (self.end - self.start) / Activity::CHUNKS as f64;
        let (from, until) = (self.busy_from.max(self.start), self.busy_until.min(self.end));
        if width <= 0.0 || until <= from {
            return;
        }
        let part = |at: f64| (((at - self.start) / width) as usize).min(Activity::CHUNKS - 1);
        for index in part(from)..=part(until) {
            let begin = self.start + index as f64 * width;
            self.busy_ns[index] += (until.min(begin + width) - from.max(begin)).max(0.0);
        }
    }

    /// After the last launch.
    fn end(&mut self) {
        self.was_busy();
        self.explain((self.end - self.busy_until).max(0.0));
    }

    /// Fills in what the model says; idle time and utilisation only where `activity.timed_share` allows it. `ends` are the same
    /// queue with launches that are as short and as long as they may be.
    pub fn finish(mut self, mut ends: [Self; 2], activity: &mut Activity) {
        let span = self.end - self.start;
        activity.gaps = std::mem::take(&mut self.gaps);
        activity.long_gaps = self.long_gaps;
        activity.long_gaps_ns = self.idle_ns[IdleCause::LongGap as usize];
        if activity.timed_share >= Activity::NEARLY_ALL && span > 0.0 {
            self.end();
            ends.iter_mut().for_each(Self::end);
            activity.idle_share = Some(self.idle_share(&ends[0], &ends[1]));
            activity.idle_by =
                IdleCause::ALL.into_iter().zip(self.idle_ns).filter(|(_, time)| *time > 0.0).collect();
            let width = span / Activity::CHUNKS as f64;
            activity.busy = self.busy_ns.iter().map(|busy| (busy / width).clamp(0.0, 1.0)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::figure::Provenance;

    /// All launches take so long.
    fn exactly(mean_ns: f64) -> Taken {
        Taken { mean_ns, error_ns: 0.0, deviation_ns: 0.0 }
    }

    /// A queue whose launches take exactly as long as is said.
    fn finished(queue: Queue) -> Activity {
        let mut activity = Activity { timed_share: 1.0, ..Activity::default() };
        let ends = [queue.clone(), queue.clone()];
        queue.finish(ends, &mut activity);
        activity
    }

    fn idle(queue: Queue) -> f64 {
        finished(queue).idle_share.expect("all is timed").value
    }

    #[test]
    fn launches_queue_up_on_a_stream() {
        let mut queue = Queue::new(0.0, 100.0);
        queue.launch(1, (10.0, 10.0), None, Some(exactly(30.0)));
        queue.launch(1, (20.0, 20.0), None, Some(exactly(30.0)));
        // Busy from 10 to 70.
        queue.launch(1, (90.0, 90.0), None, Some(exactly(10.0)));
        assert!((idle(queue) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn streams_overlap() {
        let mut queue = Queue::new(0.0, 100.0);
        queue.launch(1, (0.0, 0.0), None, Some(exactly(60.0)));
        queue.launch(2, (0.0, 0.0), None, Some(exactly(60.0)));
        assert!((idle(queue) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_synchronisation_that_waited_corrects_the_model() {
        for (called, returned, expected) in [(10.0, 80.0, 0.2), (10.0, 20.0, 0.8), (60.0, 61.0, 0.5)] {
            let mut queue = Queue::new(0.0, 100.0);
            queue.launch(1, (0.0, 0.0), None, Some(exactly(50.0)));
            queue.synchronised(None, called, returned);
            assert!((idle(queue) - expected).abs() < 1e-9, "called at {called}");
        }
    }

    #[test]
    fn a_synchronisation_of_one_stream_leaves_the_others() {
        let mut queue = Queue::new(0.0, 100.0);
        queue.launch(1, (0.0, 0.0), None, Some(exactly(50.0)));
        queue.launch(2, (0.0, 0.0), None, Some(exactly(90.0)));
        queue.synchronised(Some(1), 10.0, 60.0);
        assert!((idle(queue) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_gap_after_a_synchronisation_is_measured() {
        let second = 1e9;
        let mut queue = Queue::new(0.0, 10.0 * second);
        queue.launch(1, (0.0, 0.0), Some(3), None);
        queue.synchronised(Some(1), 1.0, second);
        queue.launch(1, (3.0 * second, 3.0 * second), Some(4), Some(exactly(second)));
        queue.launch(1, (4.6 * second, 4.6 * second), Some(5), Some(exactly(second)));
        let activity = finished(queue);
        assert_eq!((activity.long_gaps, activity.long_gaps_ns.round()), (2, 2.6e9));
        let longest = &activity.gaps[0];
        assert_eq!((longest.start_ns, longest.duration_ns.value), (second, 2.0 * second));
        assert_eq!((longest.before, longest.after), (Some(3), Some(4)));
        assert_eq!(longest.duration_ns.provenance(), Provenance::Measured);
        assert_eq!(activity.gaps[1].duration_ns.provenance(), Provenance::Predicted);
    }

    #[test]
    fn a_queue_does_not_begin_at_the_start_of_the_process() {
        // From 1000 to 1100: idle, busy from 1010 to 1040, idle, busy from 1090.
        let mut queue = Queue::new(1000.0, 1100.0);
        queue.launch(1, (1000.0, 1010.0), None, Some(exactly(30.0)));
        queue.called(IdleCause::Allocating, 1020.0, 1050.0);
        queue.launch(1, (1080.0, 1090.0), None, Some(exactly(10.0)));
        let activity = finished(queue);
        assert!((activity.idle_share.expect("all is timed").value - 0.6).abs() < 1e-9);
        let by: Vec<_> = activity.idle_by.into_iter().collect();
        let expected =
            [(IdleCause::Launching, 20.0), (IdleCause::Allocating, 10.0), (IdleCause::HostCode, 30.0)];
        assert_eq!(by, expected);
        let busy = |from: usize, to: usize| activity.busy[from..to].iter().sum::<f64>() * 100.0 / 30.0;
        assert_eq!(activity.busy.len(), 30);
        let [first, working, waiting, last] = [busy(0, 3), busy(3, 12), busy(12, 27), busy(27, 30)];
        assert!(first.abs() < 1e-9 && waiting.abs() < 1e-9, "{:?}", activity.busy);
        assert!((working - 30.0).abs() < 1e-9 && (last - 10.0).abs() < 1e-9, "{:?}", activity.busy);
    }

    #[test]
    fn a_gap_is_as_uncertain_as_the_work_before_it() {
        let second = 1e9;
        let taken = Taken { mean_ns: second, error_ns: 0.01 * second, deviation_ns: 0.1 * second };
        let gap = |launches: usize, mean_ns: f64| {
            let mut queue = Queue::new(0.0, 20.0 * second);
            (0..launches).for_each(|_| queue.launch(1, (0.0, 0.0), None, Some(Taken { mean_ns, ..taken })));
            queue.launch(1, (9.0 * second, 9.0 * second), None, Some(taken));
            let figure = finished(queue).gaps[0].duration_ns;
            (figure.value / second, figure.interval().map(|(low, high)| (low / second, high / second)))
        };
        let close = |found: (f64, Option<(f64, f64)>), length: f64, off: f64| {
            let (low, high) = found.1.expect("it is modelled");
            assert!((found.0 - length).abs() < 1e-9, "{found:?}");
            assert!((low - (length - off)).abs() < 1e-9 && (high - (length + off)).abs() < 1e-9, "{found:?}");
        };
        close(gap(1, second), 8.0, NINETY_PERCENT * 0.11);
        // Errors of the mean add up, what launches vary by adds up as squares.
        close(gap(4, second), 5.0, NINETY_PERCENT * (0.04 + 0.2));
        // The work cannot end before the call of its launch has.
        let (length, interval) = gap(1, 0.05 * second);
        assert!((length - 8.95).abs() < 1e-9 && interval.expect("it is modelled").1 == 9.0, "{interval:?}");
    }

    #[test]
    fn the_idle_share_lies_between_long_launches_one_by_one_and_short_ones_that_overlap() {
        let taken =
            Taken { mean_ns: 40.0, error_ns: 3.0 / NINETY_PERCENT, deviation_ns: 2.0 / NINETY_PERCENT };
        let [short, long] = taken.ends(4);
        assert!(
            (short.mean_ns - 36.0).abs() < 1e-9 && (long.mean_ns - 44.0).abs() < 1e-9,
            "{short:?} {long:?}"
        );
        let queue = |taken| {
            let mut queue = Queue::new(0.0, 100.0);
            queue.launch(1, (0.0, 0.0), None, Some(taken));
            queue.launch(2, (10.0, 10.0), None, Some(taken));
            queue
        };
        let mut activity = Activity { timed_share: 1.0, ..Activity::default() };
        queue(taken).finish([queue(short), queue(long)], &mut activity);
        let idle = activity.idle_share.expect("all is timed");
        let (low, high) = idle.interval().expect("it is modelled");
        // Busy from 0 to 50; at most twice 44, at least from 0 to 46.
        assert!((idle.value - 0.5).abs() < 1e-9, "{idle:?}");
        assert!((low - 0.12).abs() < 1e-9 && (high - 0.54).abs() < 1e-9, "{idle:?}");
    }

    #[test]
    fn launches_of_unknown_time_may_take_all_of_it() {
        let mut queue = Queue::new(0.0, 100.0);
        queue.launch(1, (0.0, 0.0), None, Some(exactly(10.0)));
        queue.launch(2, (0.0, 0.0), None, None);
        queue.synchronised(None, 5.0, 20.0);
        let idle = finished(queue).idle_share.expect("nearly all is timed");
        assert_eq!(idle.interval(), Some((0.0, 0.8)));
    }

    #[test]
    fn idle_time_is_laid_to_what_the_host_did() {
        let mut queue = Queue::new(0.0, 100.0);
        queue.launch(1, (0.0, 10.0), None, Some(exactly(10.0)));
        // Busy from 10 to 20: only the second half of this call is idle time.
        queue.called(IdleCause::Allocating, 15.0, 25.0);
        queue.called(IdleCause::Transferring, 30.0, 40.0);
        queue.launch(1, (45.0, 50.0), None, Some(exactly(10.0)));
        queue.called(IdleCause::Synchronising, 90.0, 100.0);
        let by = finished(queue).idle_by;
        let expected = [
            (IdleCause::Launching, 15.0),
            (IdleCause::Allocating, 5.0),
            (IdleCause::Transferring, 10.0),
            (IdleCause::Synchronising, 10.0),
            (IdleCause::HostCode, 40.0),
        ];
        assert_eq!(by.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn calls_of_several_threads_share_the_time() {
        let mut queue = Queue::new(0.0, 30.0);
        queue.called(IdleCause::Allocating, 0.0, 20.0);
        queue.called(IdleCause::Transferring, 0.0, 20.0);
        queue.launch(1, (20.0, 20.0), None, Some(exactly(10.0)));
        let by = finished(queue).idle_by;
        assert_eq!(
            by.into_iter().collect::<Vec<_>>(),
            [(IdleCause::Allocating, 10.0), (IdleCause::Transferring, 10.0)]
        );
    }

    #[test]
    fn after_a_launch_of_unknown_time_nothing_is_said() {
        let mut queue = Queue::new(0.0, 10e9);
        queue.launch(1, (0.0, 0.0), None, None);
        queue.launch(1, (9e9, 9e9), None, Some(exactly(1.0)));
        assert_eq!(finished(queue).long_gaps, 0);
    }

    #[test]
    fn too_few_timed_launches_give_no_idle_time() {
        let mut activity = Activity { timed_share: 0.94, ..Activity::default() };
        let queue = || Queue::new(0.0, 1.0);
        queue().finish([queue(), queue()], &mut activity);
        assert!(activity.idle_share.is_none() && activity.busy.is_empty());
    }

    proptest! {
        #[test]
        fn busy_parts_and_idle_time_add_up(steps in prop::collection::vec((0u32..3, 0.0f64..50.0, 0.0f64..80.0, 0u8..5), 1..60)) {
            let end: f64 = steps.iter().map(|step| step.1).sum::<f64>() + 200.0;
            let mut queue = Queue::new(0.0, end);
            let mut now = 0.0;
            for (stream, pause, duration, sort) in steps {
                now += pause;
                match sort {
                    0 => queue.synchronised(Some(stream), now, now + duration),
                    1 => queue.synchronised(None, now, now + duration),
                    2 => queue.called(IdleCause::Allocating, now, now + pause),
                    _ => queue.launch(stream, (now, now), None, Some(exactly(duration))),
                }
                if sort < 2 {
                    now += duration.min(3.0);
                }
            }
            let activity = finished(queue);
            let busy = activity.busy.iter().sum::<f64>() / Activity::CHUNKS as f64;
            let idle = activity.idle_share.expect("all is timed").value;
            let explained = activity.idle_by.values().sum::<f64>() / end;
            prop_assert!((explained - idle).abs() < 1e-6, "{:?}", activity.idle_by);
            prop_assert!((0.0..=1.0).contains(&idle));
            prop_assert!((busy + idle - 1.0).abs() < 1e-6, "busy {busy}, idle {idle}");
        }
    }
}
