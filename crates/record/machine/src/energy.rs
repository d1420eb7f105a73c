//! How much energy a device took between two moments, as far as its counter tells.
//!
//! The counter of a device does not move all the time: it is set ten times a second, at moments
//! that nobody tells (its *phase* is unknown), and a reading takes milliseconds. A reading is
//! therefore the energy up to a moment at most [`PERIOD_NS`] before its end. So the energy up to a
//! moment is
//! * at least the last reading at or before it, because the counter is never ahead, and
//! * at most the first reading that was made a period later or more, because that one is never
//!   behind the moment.
//!
//! The energy between two moments lies between the differences of these bounds, whatever the power
//! did in between. Nothing is assumed but the period.
//!
//! Invariant: what lies before the first reading or after the last one is not counted, and the
//! window that is returned says so.

use crate::file::Machine;
use crate::quantity::Quantity;

/// The longest time from a moment to the end of the first reading that holds its energy,
/// nanoseconds: on an H200 the counter is set every 100 ms, and a reading took up to 37 ms
/// beside programs (`energy` in data/h200/energy).
pub const PERIOD_NS: u64 = 140_000_000;
/// A device is idle in a record in which its SMs were busy for a smaller share.
const IDLE_SHARE: f64 = 0.005;
/// A record of the idle device is at least so long, nanoseconds.
const IDLE_NS: u64 = 500_000_000;

/// Joules between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joules {
    /// The likeliest value: readings joined by lines, half a period back.
    pub value: f64,
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
    /// Duration of the part of the window between the first and the last reading, nanoseconds.
    pub ns: u64,
}

/// The readings of a device's energy counter.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Moments, and joules since one of them; both ascend.
    readings: Vec<(u64, f64)>,
    /// Power that the device does not exceed, as far as is known.
    most_watts: f64,
}

impl Counter {
    /// The counter of the device at this index; `None` with fewer than two readings.
    ///
    /// Sessions of older versions have its mean power in each record instead, from readings at the
    /// ends of the records.
    pub fn of(machine: &Machine, device: usize) -> Option<Self> {
        let mut readings = told(machine, device);
        if readings.is_empty() {
            readings = from_means(machine, device);
        }
        // A driver that was loaded again counts from zero.
        let reset = readings.windows(2).rposition(|pair| pair[1].1 < pair[0].1);
        readings.drain(..reset.map_or(0, |at| at + 1));
        let most_watts = most_watts(machine, device).unwrap_or_else(|| steepest(&readings));
        (readings.len() >= 2).then_some(Self { readings, most_watts })
    }

    /// The energy between two moments of the machine's monotonic clock, nanoseconds; `None` where
    /// no reading is around any part of them.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Option<Joules> {
        let (from_ns, to_ns) = (from_ns.max(self.first().0), to_ns.min(self.last().0));
        if from_ns >= to_ns {
            return None;
        }
        let ([from_low, from, from_high], [low, to, high]) = (self.up_to(from_ns), self.up_to(to_ns));
        let least = (low - from_high).max(0.0);
        let most = (high - from_low).max(least);
        let value = (to - from).clamp(least, most);
        Some(Joules { value, low: least, high: most, ns: to_ns - from_ns })
    }

    fn first(&self) -> (u64, f64) {
        self.readings[0]
    }

    fn last(&self) -> (u64, f64) {
        self.readings[self.readings.len() - 1]
    }

    /// The energy up to a moment between the first reading and the last one: least, likeliest,
    /// most.
    fn up_to(&self, at_ns: u64) -> [f64; 3] {
        let before = self.readings.partition_point(|&(reading, _)| reading <= at_ns);
        let low = self.readings[before.saturating_sub(1)].1;
        let surely = at_ns.saturating_add(PERIOD_NS);
        let after = self.readings.partition_point(|&(reading, _)| reading < surely);
        let high = match self.readings.get(after) {
            Some(&(_, joules)) => joules,
            None => self.last().1 + self.most_watts * (surely - self.last().0) as f64 / 1e9,
        };
        [low, self.joined(at_ns.saturating_add(PERIOD_NS / 2)).clamp(low, high.max(low)), high.max(low)]
    }

    /// The reading at a moment, if the counter moved evenly between readings, and as before after
    /// the last one.
    fn joined(&self, at_ns: u64) -> f64 {
        let after = self.readings.partition_point(|&(reading, _)| reading <= at_ns);
        let after = after.clamp(1, self.readings.len() - 1);
        let ((from_ns, from), (to_ns, to)) = (self.readings[after - 1], self.readings[after]);
        let share = (at_ns as f64 - from_ns as f64) / (to_ns - from_ns) as f64;
        from + share * (to - from)
    }
}

/// The readings that the records hold.
fn told(machine: &Machine, device: usize) -> Vec<(u64, f64)> {
    let of_device = machine.records.iter().flat_map(|record| &record.devices);
    let mut readings: Vec<(u64, f64)> = of_device
        .filter(|record| record.device == device)
        .flat_map(|record| &record.energy)
        .map(|&(at_ns, millijoules)| (at_ns, millijoules as f64 / 1e3))
        .collect();
    let mut last = 0;
    readings.retain(|&(at_ns, _)| {
        let is_later = at_ns > last;
        last = last.max(at_ns);
        is_later
    });
    readings
}

/// The readings at the ends of records, from the mean power of each, up to a record without.
fn from_means(machine: &Machine, device: usize) -> Vec<(u64, f64)> {
    let mut readings: Vec<(u64, f64)> = Vec::new();
    for record in &machine.records {
        let mean = record.device(device).and_then(|readings| readings.get(Quantity::AveragePower));
        match (mean, readings.last().copied()) {
            (Some(mean), Some((_, joules))) => {
                readings.push((record.to_ns, joules + mean.mean * record.ns() as f64 / 1e9));
            }
            (Some(mean), None) => {
                readings.push((record.from_ns, 0.0));
                readings.push((record.to_ns, mean.mean * record.ns() as f64 / 1e9));
            }
            (None, Some(_)) => break,
            (None, None) => {}
        }
    }
    readings
}

/// Watts that a device does not exceed: its limit, or the most that was read.
fn most_watts(machine: &Machine, device: usize) -> Option<f64> {
    let most = |quantity| {
        let read = machine.records.iter().filter_map(|record| record.device(device)?.get(quantity));
        read.map(|span| span.most).reduce(f64::max)
    };
    most(Quantity::PowerLimit).or_else(|| most(Quantity::Power))
}

/// The highest power between two readings, watts.
fn steepest(readings: &[(u64, f64)]) -> f64 {
    let watts = |pair: &[(u64, f64)]| (pair[1].1 - pair[0].1) * 1e9 / (pair[1].0 - pair[0].0) as f64;
    readings.windows(2).map(watts).fold(0.0, f64::max)
}

/// Watts of the device at this index while nothing ran on it: the least mean of a record in which
/// its SMs were idle. `None` where no record of the session is of an idle device.
pub fn idle_watts(machine: &Machine, device: usize) -> Option<f64> {
    let idle = machine.records.iter().filter(|record| record.ns() >= IDLE_NS).filter_map(|record| {
        let readings = record.device(device)?;
        let busy = readings.get(Quantity::SmUtilization).or(readings.get(Quantity::GpuUtilization))?;
        let power = readings.get(Quantity::AveragePower)?;
        (busy.most < IDLE_SHARE).then_some(power.mean)
    });
    idle.reduce(f64::min)
}
