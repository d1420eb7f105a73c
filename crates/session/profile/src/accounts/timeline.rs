//! A model of one device's queues, driven by the host's calls.
//!
//! Work starts when its call has returned and the work before it on its stream is done, on the
//! streams that its stream waits for too (the legacy default stream, events). What is modelled
//! stays open to correction until it is *settled* into the
//! [`Ledger`]: when the whole device is known to be done, or when too much is open. Memory is bounded by that, never by the
//! number of records.

use apex_ordered::Gather;
use std::collections::{BTreeMap, VecDeque};

use apex_trace::definition::StreamKind;

use super::host::Host;
use super::idle_samples::{IdleAccount, IdleSampler};
use super::ledger::{Ledger, Use};
use super::{Boundaries, IdleCause, IdleSums, Pauses, PhaseKind};
use crate::figure::{Figure, NINETY_PERCENT};
use crate::observer::{Called, ObservedWork};
use crate::profile::by_id::ById;
use crate::profile::{Activity, Gap};

/// Work and calls that are open before the oldest are settled.
const OPEN: usize = 8192;
/// Gaps that are listed.
const LISTED: usize = 10;
/// The longest time from the end of work to the return of the call that waited for it: 2 to 3 µs on
/// an H200.
const RETURN_NS: u64 = 3_000;
/// A call that waits for longer has waited for work, even where the model says that all was done.
const WAITED_NS: u64 = 50_000;

/// A wait that is longer than what is unknown of the kernels' times by more than this factor was
/// not for them.
const MOST_OFF: f64 = 3.0;

/// The kind of a piece of work. If several run at once, the first kind in this order names the
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    Kernel,
    Collective,
    Copy,
    /// Work of unknown time.
    Unknown,
}

impl Work {
    const ALL: [Self; 4] = [Self::Kernel, Self::Collective, Self::Copy, Self::Unknown];

    fn usage(self) -> Use {
        match self {
            Self::Kernel => Use::Kernels,
            Self::Collective => Use::Collectives,
            Self::Copy => Use::Copies,
            Self::Unknown => Use::Unknown,
        }
    }
}

/// Work that was queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewWork {
    pub stream: u32,
    pub kind: Option<StreamKind>,
    /// The time at which its call returned; its start on the device, if `is_placed`.
    pub ready: u64,
    /// Whether it is known when it ran: nothing else delays it.
    pub is_placed: bool,
    /// Its duration.
    pub taken: u64,
    pub what: Work,
    pub kernel: Option<usize>,
    /// The thread that queued it.
    pub thread: u32,
    /// The part of the run in which its call was made, among the boundaries.
    pub part: usize,
    /// The range of the program that it belongs to.
    pub range: Option<usize>,
    /// Standard error of `taken`, which all work of the kernel shares, and its own standard
    /// deviation.
    pub uncertainty: (f64, f64),
    pub queued: Queued,
}

/// The call that queued work, for observers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Queued {
    /// The start of the call.
    pub start: u64,
    pub called: Called,
    /// Whether this launch was timed.
    pub is_timed: bool,
}

/// Final events, as an observer receives them.
#[derive(Clone)]
pub(crate) enum Seen {
    Stretch(u64, u64, Use),
    /// Its device is not known here.
    Work(ObservedWork),
}

#[derive(Clone, Debug)]
struct Item {
    start: u64,
    end: u64,
    /// Its end may be off by so much to either side.
    off_ns: f64,
    stream: u32,
    thread: u32,
    kernel: Option<u32>,
    range: Option<u32>,
    what: Work,
    /// The part of the run that the device enters with it, where it is the first work of one.
    enters: Option<u32>,
    /// As long as it took when it was queued: what the host sees changes its start and end.
    taken: u64,
    queued: Queued,
}

/// The time at which work begins or ends, and its index among the items.
type Edge = (u64, u32);

#[derive(Clone, Debug)]
struct Stream {
    id: u32,
    kind: Option<StreamKind>,
    free_at: u64,
    /// Nothing begins before: an event of another stream.
    not_before: u64,
    /// Work was queued since the stream was last seen empty.
    open: bool,
}

/// Idle time that has not ended yet.
#[derive(Clone, Debug)]
struct OpenGap {
    start: u64,
    end: u64,
    phase: PhaseKind,
    before: Option<u32>,
    off_ns: f64,
    by: ByCause,
}

/// Nanoseconds, in the order of [`IdleCause::ALL`].
type ByCause = [f64; IdleCause::ALL.len()];

/// Gaps of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// The length from which a gap is listed.
    least: u64,
    open: Option<OpenGap>,
    longest: Vec<Gap>,
    count: u64,
    total: u64,
    /// Idle time since the last work.
    idle_ns: u64,
    /// Idle time until work of a range began.
    by_range: BTreeMap<u32, u64>,
}

/// One device, as one process uses it. Times are nanoseconds after the process's start.
#[derive(Clone)]
pub(crate) struct Timeline {
    span: (u64, u64),
    /// All before is in the ledger.
    settled: u64,
    streams: ById<Stream>,
    items: VecDeque<Item>,
    /// The starts and ends while items are settled.
    edges: [Vec<Edge>; 2],
    host: Host,
    /// Open work and calls at which the oldest are settled.
    most_open: usize,
    /// The part of the run that work was queued of.
    last_part: usize,
    last_thread: u32,
    last_kernel: Option<u32>,
    last_off_ns: f64,
    error_ns: f64,
    variance: f64,
    pub ledger: Ledger,
    gaps: Gaps,
    /// Final events that the observer has not received yet; `None` without an observer.
    seen: Option<Vec<Seen>>,
    /// The host's samples; `None` where there are none.
    samples: Option<IdleSampler>,
}

impl Timeline {
    /// A device whose first work is queued at `span.0` and whose last work or call that waited ends
    /// at `span.1`. Accounts and gaps cover its part `reported`.
    pub fn new(span: (u64, u64), reported: (u64, u64), boundaries: Boundaries) -> Self {
        let span = (span.0, span.1.max(span.0));
        let least = Activity::long_gap_ns((reported.1 - reported.0) as f64) as u64;
        Self {
            span,
            settled: span.0,
            streams: ById::default(),
            items: VecDeque::new(),
            edges: Default::default(),
            host: Host::default(),
            most_open: OPEN,
            last_part: 0,
            last_thread: 0,
            last_kernel: None,
            last_off_ns: 0.0,
            error_ns: 0.0,
            variance: 0.0,
            ledger: Ledger::new(reported, boundaries),
            gaps: Gaps { least: least.max(1), ..Gaps::default() },
            seen: None,
            samples: None,
        }
    }

    /// Starts to sort the host's samples by the idle accounts that they fall into.
    pub fn sort(&mut self, samples: IdleSampler) {
        self.samples = Some(samples);
    }

    /// The host's samples by idle account.
    pub fn take_samples(&mut self) -> Option<IdleSums> {
        self.samples.take().map(IdleSampler::finish)
    }

    /// Starts to collect events for [`Self::tell`].
    pub fn observe(&mut self) {
        self.seen = Some(Vec::new());
    }

    /// Tells what was settled since it was asked before.
    pub fn tell(&mut self, tell: impl FnMut(Seen)) {
        if let Some(seen) = &mut self.seen {
            seen.drain(..).for_each(tell);
        }
    }

    /// A driver call of the host. Calls come in the order of their starts.
    pub fn called(&mut self, thread: u32, start: u64, end: u64, cause: IdleCause) {
        if self.items.len() + self.host.len() >= self.most_open {
            self.settle(start);
            self.most_open = OPEN + 2 * (self.items.len() + self.host.len());
        }
        self.host.called(thread, start, end.max(start), cause);
    }

    /// Work was queued.
    pub fn queue(&mut self, work: NewWork) {
        let free = if work.is_placed { 0 } else { self.free_for(work.stream, work.kind) };
        let start = work.ready.max(free).max(self.settled);
        let end = start.saturating_add(work.taken);
        self.error_ns += work.uncertainty.0;
        self.variance += work.uncertainty.1.powi(2);
        let stream = self.stream(work.stream);
        (stream.kind, stream.free_at, stream.open) = (work.kind, end, true);
        self.last_thread = work.thread;
        let enters = (work.part > self.last_part).then_some(work.part as u32);
        self.last_part = self.last_part.max(work.part);
        self.items.push_back(Item {
            start,
            end,
            what: work.what,
            enters,
            stream: work.stream,
            kernel: work.kernel.map(|kernel| kernel as u32),
            thread: work.thread,
            range: work.range.map(|range| range as u32),
            off_ns: NINETY_PERCENT * (self.error_ns + self.variance.sqrt()),
            taken: work.taken,
            queued: work.queued,
        });
    }

    fn stream(&mut self, id: u32) -> &mut Stream {
        self.streams.entry(id, || Stream { id, kind: None, free_at: 0, not_before: 0, open: false })
    }

    /// Returns the time at which work on a stream can begin: after the earlier work on it, after
    /// that of the legacy default stream if the stream is a blocking one, and after that of all
    /// blocking streams if it is the legacy default stream.
    fn free_for(&self, stream: u32, kind: Option<StreamKind>) -> u64 {
        let own = self.streams.get(stream).map_or(0, |own| own.free_at.max(own.not_before));
        let blocks = |other: &Stream| match (kind, other.kind) {
            (Some(StreamKind::NonBlocking), _) | (_, Some(StreamKind::NonBlocking)) => false,
            (Some(StreamKind::LegacyDefault), _) | (_, Some(StreamKind::LegacyDefault)) => true,
            _ => false,
        };
        self.streams.values().filter(|other| blocks(other)).map(|other| other.free_at).fold(own, u64::max)
    }

    /// Returns the time at which the work of a stream is done (of all streams, if `None`).
    pub fn done_at(&self, stream: Option<u32>) -> u64 {
        match stream {
            Some(stream) => self.streams.get(stream).map_or(0, |stream| stream.free_at),
            None => self.streams.values().map(|stream| stream.free_at).max().unwrap_or(0),
        }
    }

    /// A stream waits until then before it goes on.
    pub fn wait_until(&mut self, stream: u32, at: u64) {
        let stream = self.stream(stream);
        stream.not_before = stream.not_before.max(at);
    }

    /// Whether the stream (any, if `None`) has work that was not seen to be done.
    fn is_open(&self, stream: Option<u32>) -> bool {
        match stream {
            Some(stream) => self.streams.get(stream).is_some_and(|stream| stream.open),
            None => self.streams.values().any(|stream| stream.open),
        }
    }

    /// A call from `called` to `returned` waited for the work of a stream, or of all if `None`;
    /// `own_ns` of it may have passed for other reasons, such as the copy that it makes.
    pub fn synchronised(&mut self, stream: Option<u32>, called: u64, returned: u64, own_ns: u64) {
        let whole = stream.is_none_or(|stream| self.streams.values().all(|other| other.id == stream));
        let stream = stream.filter(|_| !whole);
        let seen = returned.saturating_sub(RETURN_NS.saturating_add(own_ns)).max(called);
        let done = self.done_at(stream);
        if self.is_open(stream) && done < seen && seen - called.max(done) > WAITED_NS {
            self.extend(stream, seen, false);
        }
        self.empty_at(stream, returned);
        if whole {
            (self.error_ns, self.variance) = (0.0, 0.0);
            self.settle(returned);
        }
    }

    /// A stream (all, if `None`) was empty at that moment.
    pub fn empty_at(&mut self, stream: Option<u32>, at: u64) {
        if self.done_at(stream) > at {
            for item in self.items.iter_mut().filter(|item| stream.is_none_or(|stream| stream == item.stream))
            {
                item.end = item.end.min(at);
                item.start = item.start.min(item.end);
                item.off_ns = 0.0;
            }
        }
        let of = |other: &&mut Stream| stream.is_none_or(|stream| stream == other.id);
        for stream in self.streams.values_mut().filter(of) {
            stream.free_at = stream.free_at.min(at);
            stream.open = false;
        }
    }

    /// A stream still had work at that moment. Work begins some microseconds after its call and is
    /// seen done some later: only where the model is off by more is it corrected.
    pub fn busy_at(&mut self, stream: u32, at: u64) {
        if self.is_open(Some(stream)) && self.done_at(Some(stream)).saturating_add(WAITED_NS) < at {
            self.extend(Some(stream), at, true);
        }
    }

    /// The last work of a stream (of all, if `None`) took until then. If that is a copy, the kernel
    /// before it took longer, because a copy takes no longer than its bytes need. Unless it
    /// `is_sure` that the device worked, the wait was for something else if the kernels' times are
    /// too certain for that: a driver that returns a pool's memory, for instance.
    fn extend(&mut self, stream: Option<u32>, until: u64, is_sure: bool) {
        let is_of = |item: &Item| stream.is_none_or(|stream| stream == item.stream);
        let Some(last) = self.items.iter().rposition(is_of).filter(|&last| self.items[last].end < until)
        else {
            return;
        };
        let Item { stream: id, what, end, .. } = self.items[last];
        let is_kernel = |item: &Item| item.stream == id && item.what != Work::Copy;
        let kernel = self.items.iter().take(last).rposition(is_kernel).filter(|_| what == Work::Copy);
        let more = until - end;
        if let Some(Item { off_ns, what, .. }) = kernel.map(|kernel| &self.items[kernel]) {
            let is_uncertain = *what == Work::Unknown || more as f64 <= MOST_OFF * off_ns + WAITED_NS as f64;
            if !is_sure && !is_uncertain {
                return;
            }
        }
        let longer = kernel.unwrap_or(last);
        for (at, item) in self.items.iter_mut().enumerate().skip(longer).filter(|(_, item)| item.stream == id)
        {
            let later = if at == longer { 0 } else { more };
            (item.start, item.end) = (item.start.saturating_add(later), item.end.saturating_add(more));
            item.off_ns = 0.0;
        }
        self.stream(id).free_at = until;
    }

    /// Moves all until then into the ledger.
    fn settle(&mut self, until: u64) {
        let until = until.min(self.span.1);
        if until <= self.settled {
            return;
        }
        let [mut begins, mut ends] = std::mem::take(&mut self.edges);
        for (item, place) in self.items.iter().zip(0..) {
            let (start, end) = (item.start.max(self.settled), item.end.min(until));
            // Work of no length counts where a part of the run begins with it.
            let turns = item.enters.is_some() && item.end <= until;
            if start < end || turns {
                begins.push((start, place));
                ends.push((end.max(start), place));
            }
        }
        // (With one stream, they are in order.)
        begins.sort_unstable();
        ends.sort_unstable();
        let mut running = [0u32; Work::ALL.len()];
        let (mut at, mut begun) = (self.settled, begins.iter().peekable());
        for &(end, ended) in &ends {
            // Where one ends and another begins at once, the device is not idle between.
            while let Some((time, item)) = begun.next_if(|&&(time, _)| time <= end) {
                at = self.pass(at, *time, &running, Some(*item));
                let item = &self.items[*item as usize];
                running[item.what as usize] += 1;
                if let Some(part) = item.enters {
                    self.ledger.enter(part as usize, at);
                }
            }
            at = self.pass(at, end, &running, None);
            let item = &self.items[ended as usize];
            running[item.what as usize] -= 1;
            (self.last_kernel, self.last_off_ns) = (item.kernel, item.off_ns);
        }
        if at < until {
            self.stretch(at, until, &running, None);
        }
        begins.clear();
        ends.clear();
        (self.settled, self.edges) = (until, [begins, ends]);
        let Self { items, seen, .. } = self;
        let mut done = Vec::new();
        items.retain(|item| {
            let stays = item.end > until;
            if seen.is_some() && !stays {
                done.push(item.observed(item.end));
            }
            stays
        });
        self.see(done);
        self.host.forget(until);
    }

    /// Moves the time from one edge to the next into the ledger. Returns the later one.
    fn pass(&mut self, from: u64, to: u64, running: &[u32; 4], next: Option<u32>) -> u64 {
        if from < to {
            self.stretch(from, to, running, next);
        }
        to
    }

    /// A stretch of time in which the same work runs; `next` is what begins at its end.
    fn stretch(&mut self, from: u64, to: u64, running: &[u32; 4], next: Option<u32>) {
        if let Some(work) = Work::ALL.into_iter().find(|&work| running[work as usize] > 0) {
            self.gaps.close(None);
            self.ledger.add(from, to, work.usage());
            saw(&mut self.seen, self.ledger.span, from, to, work.usage());
            return;
        }
        let next = next.map(|next| &self.items[next as usize]);
        let thread = next.map_or(self.last_thread, |next| next.thread);
        let mut by = ByCause::default();
        let (before, off_ns) = (self.last_kernel, self.last_off_ns);
        let Self { host, ledger, seen, samples, .. } = self;
        let (start, end) = (from.max(ledger.span.0), to.min(ledger.span.1));
        self.gaps.idle_ns += to - from;
        if start < end {
            let (phase, is_pause) = (ledger.phase(), end - start >= Pauses::LEAST_NS);
            host.explain(start, end, thread, |from, to, cause| {
                by[cause as usize] += (to - from) as f64;
                ledger.add(from, to, Use::Idle(cause));
                saw(seen, ledger.span, from, to, Use::Idle(cause));
                if let Some(samples) = samples {
                    samples.add((from, to), thread, IdleAccount { phase, cause, is_pause });
                }
            });
            self.gaps.idle(OpenGap { start, end, phase, before, off_ns, by });
        }
        if let Some(next) = next {
            self.gaps.end_with(next.range);
            self.gaps.close(next.kernel);
        }
    }

    /// Settles the rest of the span.
    pub fn end(&mut self) {
        self.settle(self.span.1);
        self.gaps.close(None);
        if self.seen.is_some() {
            // How long unknown work lasts beyond the span is no estimate of anything.
            let known = |item: &Item| if item.what == Work::Unknown { self.span.1 } else { item.end };
            let left = self.items.iter().map(|item| item.observed(known(item))).collect();
            self.see(left);
        }
    }

    /// Work has its final form. Where it is known when it ran, it was not queued in that order.
    fn see(&mut self, mut work: Vec<ObservedWork>) {
        let Some(seen) = &mut self.seen else { return };
        if self.ledger.is_measured {
            work.sort_by_key(|work| work.start);
        }
        seen.extend(work.into_iter().map(Seen::Work));
    }

    /// Returns the device's idle time before work of each range.
    pub fn idle_of_ranges(&self) -> impl Iterator<Item = (usize, u64)> {
        self.gaps.by_range.iter().map(|(&range, &idle)| (range as usize, idle))
    }

    /// The longest gaps, how many there are of that length, and their time.
    pub fn gaps(self) -> (Vec<Gap>, u64, f64) {
        (self.gaps.longest, self.gaps.count, self.gaps.total as f64)
    }
}

/// Keeps a stretch for who observes, as far as it is accounted for.
fn saw(seen: &mut Option<Vec<Seen>>, span: (u64, u64), from: u64, to: u64, on: Use) {
    let (from, to) = (from.max(span.0), to.min(span.1));
    if let Some(seen) = seen.as_mut().filter(|_| from < to) {
        seen.push(Seen::Stretch(from, to, on));
    }
}

impl Item {
    fn observed(&self, end: u64) -> ObservedWork {
        let Queued { start: call_start, called, is_timed } = self.queued;
        ObservedWork {
            device: None,
            stream: self.stream,
            start: self.start,
            end: end.max(self.start),
            on: self.what.usage(),
            called,
            is_timed: is_timed && self.end - self.start == self.taken,
            off_ns: self.off_ns,
            thread: self.thread,
            call_start,
        }
    }
}

impl Gaps {
    /// More idle time: of the open gap, where it follows on that.
    fn idle(&mut self, more: OpenGap) {
        match &mut self.open {
            Some(open) if open.end == more.start => {
                open.end = more.end;
                open.by.iter_mut().zip(more.by).for_each(|(sum, time)| *sum += time);
            }
            open => *open = Some(more),
        }
    }

    /// The open gap ends with work of a range.
    fn end_with(&mut self, range: Option<u32>) {
        if let Some(range) = range {
            *self.by_range.entry(range).or_default() += self.idle_ns;
        }
    }

    /// The open gap has ended, with the launch of `after`.
    fn close(&mut self, after: Option<u32>) {
        self.idle_ns = 0;
        // What comes before the first work lies between no two.
        let listed = |gap: &OpenGap| gap.before.is_some() && gap.end - gap.start >= self.least;
        let Some(gap) = self.open.take().filter(listed) else { return };
        let length = gap.end - gap.start;
        self.count += 1;
        self.total += length;
        let (length, off) = (length as f64, gap.off_ns);
        let duration_ns = if off == 0.0 {
            Figure::measured(length)
        } else {
            Figure::predicted(length, ((length - off).max(0.0), length + off))
        };
        let OpenGap { start, phase, before, by, .. } = gap;
        let by = IdleCause::ALL.into_iter().zip(by).filter(|&(_, time)| time > 0.0).gathered();
        let [before, after] = [before, after].map(|kernel| kernel.map(|kernel| kernel as usize));
        self.longest.push(Gap { start_ns: start as f64, duration_ns, phase, before, after, by });
        self.longest.sort_by(|a, b| b.duration_ns.value.total_cmp(&a.duration_ns.value));
        self.longest.truncate(LISTED);
    }
}

/// A device with work that takes as long as on average, as short and as long as it may.
pub(crate) struct Model(pub [Timeline; 3]);

impl Model {
    /// See [`Timeline::new`].
    pub fn new(span: (u64, u64), reported: (u64, u64), boundaries: &Boundaries) -> Self {
        Self([(); 3].map(|()| Timeline::new(span, reported, boundaries.clone())))
    }

    /// The one with work that takes as long as on average.
    pub fn usual(&mut self) -> &mut Timeline {
        &mut self.0[0]
    }

    /// Does the same to all three.
    pub fn each(&mut self, change: impl FnMut(&mut Timeline)) {
        self.0.iter_mut().for_each(change);
    }

    /// Queues work that takes so long: on average, at least, at most.
    pub fn queue(&mut self, work: NewWork, taken: [u64; 3]) {
        for (timeline, taken) in self.0.iter_mut().zip(taken) {
            timeline.queue(NewWork { taken, ..work });
        }
    }
}
