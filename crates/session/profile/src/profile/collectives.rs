//! The collectives of each process one by one, in the order of their launches: what
//! [`super::by_rank`] matches across ranks.
//!
//! A communicator is identified by what NCCL says in the range of the call (its hash, which is the
//! same on all ranks; NCCL 2.26 and later). Collectives without it are in one series for each
//! stream, because PyTorch has a stream for each communicator. A call inside a group launches when
//! the group ends, outside of the call's range: then the communicator is that of the thread's last
//! calls, if they agree, or the one that the stream had before. An all-to-all is such a group of
//! sends and receives, and runs in the kernel that any of them would: the calls tell with how many
//! ranks it exchanges.
//!
//! Invariants: a launch's place in its series is its sequence number in the process. At most
//! [`MOST`] launches of a process are kept; further ones are counted.

use apex_ordered::Order;
use std::collections::{BTreeMap, HashMap};

use apex_trace::definition::Range;

/// Collectives of a process that are kept: 24 MB.
const MOST: u64 = 1 << 20;

/// The collectives of a process in one communicator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectiveSeries {
    /// Index into [`super::Profile::processes`].
    pub process: usize,
    /// Index into [`super::Profile::devices`]; `None` if unknown.
    pub device: Option<usize>,
    /// What NCCL calls the communicator on all ranks; `None` if it did not say.
    pub communicator: Option<u64>,
    /// Symbols of its kernels.
    pub symbols: Vec<String>,
    /// The launches, in order.
    pub launches: Vec<CollectiveLaunch>,
    /// The launches in the part of the run that the profile is about.
    pub counted: std::ops::Range<usize>,
    /// Launches after these that were not kept.
    pub beyond: u64,
}

/// One collective on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveLaunch {
    /// Index into [`CollectiveSeries::symbols`].
    pub symbol: u32,
    /// Start of the launch call, nanoseconds after the process's start.
    pub start_ns: u64,
    /// Its time on the device, nanoseconds; `None` if this launch was not timed.
    pub ns: Option<u64>,
    /// Of sends and receives in one group: how many of both there are, so with how many ranks
    /// (which may include itself) this one exchanges data. [`ALL`] if the call is an all-to-all.
    pub exchanges: u16,
}

/// Exchanges of a call that NCCL itself names an all-to-all.
pub const ALL: u16 = u16::MAX;

/// A call of NCCL that a kernel of sends and receives runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    Send,
    Receive,
    AllToAll,
}

/// Calls of a thread since its last collective kernel.
#[derive(Default)]
struct Calls {
    communicators: Vec<u64>,
    sends: u16,
    receives: u16,
}

impl Calls {
    fn add(&mut self, communicator: u64, exchange: Option<Exchange>) {
        if !self.communicators.contains(&communicator) && self.communicators.len() < 64 {
            self.communicators.push(communicator);
        }
        match exchange {
            Some(Exchange::Send) => self.sends = self.sends.saturating_add(1),
            Some(Exchange::Receive) => self.receives = self.receives.saturating_add(1),
            Some(Exchange::AllToAll) => (self.sends, self.receives) = (ALL, ALL),
            None => {}
        }
    }
}

/// What tells series of a process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Communicator(u64),
    Stream(u32),
}

/// The series of a process while it is read.
#[derive(Default)]
pub(super) struct AllSeries {
    series: BTreeMap<(Option<usize>, Key), CollectiveSeries>,
    /// Which ranges of the process are sends, receives and all-to-alls.
    exchanges: HashMap<u32, Exchange>,
    /// By thread.
    called: HashMap<u32, Calls>,
    of_stream: HashMap<u32, u64>,
    kept: u64,
}

impl AllSeries {
    /// Without series yet, of a process with these ranges.
    pub fn of<'r>(ranges: impl Iterator<Item = &'r Range>) -> Self {
        let exchange = |range: &Range| {
            let exchange = match range.name.as_str() {
                "ncclSend" => Exchange::Send,
                "ncclRecv" => Exchange::Receive,
                "ncclAlltoAll" => Exchange::AllToAll,
                _ => return None,
            };
            (range.domain == "NCCL").then_some((range.id, exchange))
        };
        Self { exchanges: ranges.filter_map(exchange).collect(), ..Self::default() }
    }

    /// A thread begins a call of NCCL in this communicator, in this range.
    pub fn called(&mut self, thread: u32, range: u32, communicator: u64) {
        let exchange = self.exchanges.get(&range).copied();
        self.called.entry(thread).or_default().add(communicator, exchange);
    }

    /// A thread launches a collective's kernel, in the part of the run that the profile is about if
    /// it `counts`.
    pub fn launched(
        &mut self,
        thread: u32,
        (device, stream): (Option<usize>, u32),
        symbol: &str,
        launch: CollectiveLaunch,
        counts: bool,
    ) {
        let called = self.called.insert(thread, Calls::default()).unwrap_or_default();
        let communicator = match called.communicators[..] {
            [one] => Some(one),
            _ => self.of_stream.get(&stream).copied(),
        };
        let key = communicator.map_or(Key::Stream(stream), Key::Communicator);
        self.of_stream.extend(communicator.map(|communicator| (stream, communicator)));
        let new = || CollectiveSeries { device, communicator, ..CollectiveSeries::default() };
        let series = self.series.entry((device, key)).or_insert_with(new);
        if self.kept == MOST {
            series.beyond += u64::from(counts);
            return;
        }
        self.kept += 1;
        let symbol = series.symbol(symbol);
        let at = series.launches.len();
        let exchanges = called.sends.min(called.receives);
        series.launches.push(CollectiveLaunch { symbol, exchanges, ..launch });
        let first = if series.counted.is_empty() { at } else { series.counted.start };
        series.counted = if counts { first..at + 1 } else { series.counted.clone() };
    }

    /// The series in the order of their first launches.
    pub fn finish(self) -> Vec<CollectiveSeries> {
        let mut all: Vec<CollectiveSeries> = self.series.into_values().collect();
        all.order_by_key(|series| series.launches.first().map(|launch| launch.start_ns));
        all
    }
}

impl CollectiveSeries {
    fn symbol(&mut self, symbol: &str) -> u32 {
        let known = self.symbols.iter().position(|known| known == symbol);
        known.unwrap_or_else(|| {
            self.symbols.push(symbol.to_owned());
            self.symbols.len() - 1
        }) as u32
    }

    /// The symbol of a launch's kernel.
    pub fn symbol_of(&self, launch: &CollectiveLaunch) -> &str {
        self.symbols.get(launch.symbol as usize).map_or("", String::as_str)
    }

    /// Counts launches from a moment on alone, nanoseconds after the process's start.
    pub(super) fn begin_at(&mut self, start_ns: f64) {
        let first = self.launches.partition_point(|launch| (launch.start_ns as f64) < start_ns);
        self.counted.start = first.clamp(self.counted.start, self.counted.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCH: CollectiveLaunch = CollectiveLaunch { symbol: 0, start_ns: 0, ns: None, exchanges: 0 };

    /// The series by communicator, with the starts of their launches.
    fn told(all: AllSeries) -> Vec<(Option<u64>, Vec<u64>)> {
        let starts =
            |series: &CollectiveSeries| series.launches.iter().map(|launch| launch.start_ns).collect();
        all.finish().iter().map(|series| (series.communicator, starts(series))).collect()
    }

    #[test]
    fn a_launch_belongs_to_the_communicator_of_its_call_or_else_of_its_stream() {
        let mut all = AllSeries::default();
        let mut at = 0;
        let mut launch = |all: &mut AllSeries, thread, stream| {
            at += 1;
            let launch = CollectiveLaunch { start_ns: at, ..LAUNCH };
            all.launched(thread, (Some(0), stream), "reduce", launch, true);
        };
        all.called(1, 0, 7);
        launch(&mut all, 1, 3);
        // The kernels of a group of calls, one of a stream that is known.
        all.called(1, 0, 7);
        all.called(1, 0, 9);
        launch(&mut all, 1, 3);
        launch(&mut all, 1, 4);
        // Another thread's call says nothing of this one.
        all.called(2, 0, 9);
        launch(&mut all, 1, 4);
        launch(&mut all, 2, 5);
        assert_eq!(told(all), [(Some(7), vec![1, 2]), (None, vec![3, 4]), (Some(9), vec![5])]);
    }

    #[test]
    fn a_part_begins_at_its_first_launch() {
        let mut all = AllSeries::default();
        for at in 1..=5 {
            let launch = CollectiveLaunch { start_ns: 10 * at, ..LAUNCH };
            all.launched(1, (None, 1), "r", launch, (2..5).contains(&at));
        }
        let mut series = all.finish().remove(0);
        for (from, counted) in [(0.0, 1..4), (20.0, 1..4), (21.0, 2..4), (60.0, 4..4)] {
            series.begin_at(from);
            assert_eq!(series.counted, counted);
        }
    }
}
