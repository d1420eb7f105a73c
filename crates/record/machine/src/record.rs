//! Readings as plain data, and their merging.

use crate::quantity::Quantity;
use apex_ordered::Order;
use serde::de::{Deserializer, Error as _};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The values of a quantity in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Least.
    pub least: f64,
    /// Mean over time.
    pub mean: f64,
    /// Most.
    pub most: f64,
}

impl Span {
    /// A quantity that was read once.
    pub fn of(value: f64) -> Self {
        Self { least: value, mean: value, most: value }
    }

    /// This and another one, each weighted by its duration.
    fn with(self, own: f64, other: Span, others: f64) -> Self {
        let all = own + others;
        let mean = if all > 0.0 { (self.mean * own + other.mean * others) / all } else { self.mean };
        let (least, most) = (self.least.min(other.least), self.most.max(other.most));
        // A sum of parts may round to just beyond them.
        Self { least, mean: mean.clamp(least, most), most }
    }

    fn is_sound(&self) -> bool {
        self.least.is_finite() && self.most.is_finite() && self.least <= self.mean && self.mean <= self.most
    }
}

/// Decimal digits behind the point that are written.
const PRECISION: f64 = 1e4;

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [least, mean, most] =
            [self.least, self.mean, self.most].map(|value| (value * PRECISION).round() / PRECISION);
        if least == most { mean.serialize(serializer) } else { [least, mean, most].serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            One(f64),
            Three([f64; 3]),
        }
        let span = match Written::deserialize(deserializer)? {
            Written::One(value) => Span::of(value),
            Written::Three([least, mean, most]) => Span { least, mean, most },
        };
        if span.is_sound() {
            Ok(span)
        } else {
            Err(D::Error::custom("no least, mean and most in this order"))
        }
    }
}

/// The readings of an interval. A quantity that the machine does not report is missing. A quantity
/// that the machine does not tell is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings(BTreeMap<Quantity, Span>);

impl Readings {
    /// Returns the values of a quantity; `None` if the machine did not report it.
    pub fn get(&self, quantity: Quantity) -> Option<Span> {
        self.0.get(&quantity).copied()
    }

    /// Adds a value that was read; one that is no number is not known.
    pub fn set(&mut self, quantity: Quantity, value: f64) {
        if value.is_finite() {
            self.0.insert(quantity, Span::of(value));
        }
    }

    /// Iterates over the readings.
    pub fn iter(&self) -> impl Iterator<Item = (Quantity, Span)> {
        self.0.iter().map(|(&quantity, &span)| (quantity, span))
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another interval. A quantity that only one of both has stays as it is there.
    fn merge(&mut self, own: f64, other: &Readings, others: f64) {
        for (quantity, span) in other.iter() {
            self.0.entry(quantity).and_modify(|known| *known = known.with(own, span, others)).or_insert(span);
        }
    }
}

impl Serialize for Readings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (quantity, span) in self.iter() {
            map.serialize_entry(quantity.key(), &span)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Readings {
    /// Skips quantities that this version does not know.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<String, Span>::deserialize(deserializer)?;
        let known = all.into_iter().filter_map(|(key, span)| Some((Quantity::of_key(&key)?, span)));
        Ok(Self(known.collect()))
    }
}

/// A device, as NVML describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// `GPU-…`, by which it is joined with the devices of a session.
    pub uuid: String,
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// Bus identifier, such as `00000000:1B:00.0`.
    pub pci: String,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Highest clock of the SMs.
    pub max_sm_clock_mhz: Option<u32>,
    /// Highest clock of the memory.
    pub max_memory_clock_mhz: Option<u32>,
    /// Temperature from which the hardware lowers the clocks.
    pub slowdown_c: Option<u32>,
}

/// The readings of a device in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Index into [`crate::Machine::devices`].
    pub device: usize,
    /// The readings.
    pub readings: Readings,
    /// Readings of the energy counter in the interval, oldest first: moments of the machine's
    /// monotonic clock in nanoseconds, and millijoules since the driver was loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<(u64, u64)>,
}

/// Readings of the energy counter that a merged record keeps.
const MOST_ENERGY: usize = 32;

impl DeviceRecord {
    /// Adds the record of the same device that comes after it.
    fn merge(&mut self, own: f64, next: &DeviceRecord, others: f64) {
        self.readings.merge(own, &next.readings, others);
        self.energy.extend_from_slice(&next.energy);
        while self.energy.len() > MOST_ENERGY {
            let last = self.energy.len() - 1;
            let mut index = 0..;
            self.energy.retain(|_| index.next().is_some_and(|at| at % 2 == 0 || at == last));
        }
    }

    /// Leaves out readings of the energy counter that go back in time.
    pub(crate) fn keep_ascending(&mut self) {
        let mut last = 0;
        self.energy.retain(|&(at_ns, _)| {
            let is_later = at_ns > last;
            last = last.max(at_ns);
            is_later
        });
    }

    /// Whether nothing was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.readings.is_empty() && self.energy.is_empty()
    }
}

/// The readings of the machine in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Begin, nanoseconds of the machine's monotonic clock.
    pub from_ns: u64,
    /// End, likewise.
    pub to_ns: u64,
    /// CPU time that the sampler took for it.
    #[serde(default)]
    pub cost_ns: u64,
    /// The host.
    #[serde(default)]
    pub host: Readings,
    /// Devices, by ascending index.
    #[serde(default)]
    pub devices: Vec<DeviceRecord>,
}

impl Record {
    /// Duration.
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// Returns the readings of a device.
    pub fn device(&self, device: usize) -> Option<&Readings> {
        self.devices.iter().find(|record| record.device == device).map(|record| &record.readings)
    }

    /// Adds the record that comes after it.
    fn merge(&mut self, next: &Record) {
        let (own, others) = (self.ns() as f64, next.ns() as f64);
        self.host.merge(own, &next.host, others);
        for record in &next.devices {
            match self.devices.iter_mut().find(|known| known.device == record.device) {
                Some(known) => known.merge(own, record, others),
                None => self.devices.push(record.clone()),
            }
        }
        self.devices.order_by_key(|record| record.device);
        self.to_ns = self.to_ns.max(next.to_ns);
        self.cost_ns = self.cost_ns.saturating_add(next.cost_ns);
    }
}

/// Merges neighbours until no more than `most` records are left, all of about the same duration.
pub fn downsample(records: &[Record], most: usize) -> Vec<Record> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return Vec::new() };
    if records.len() <= most {
        return records.to_vec();
    }
    let (begin, span) = (first.from_ns, last.to_ns.saturating_sub(first.from_ns).max(1));
    let part = |record: &Record| {
        let middle = (record.from_ns / 2 + record.to_ns / 2).saturating_sub(begin);
        u128::from(middle) * most.max(1) as u128 / u128::from(span)
    };
    let mut merged: Vec<(u128, Record)> = Vec::new();
    for record in records {
        let part = part(record).min(most.max(1) as u128 - 1);
        match merged.last_mut() {
            Some((known, into)) if *known == part => into.merge(record),
            _ => merged.push((part, record.clone())),
        }
    }
    merged.into_iter().map(|(_, record)| record).collect()
}

/// Least, mean over time and most of each quantity, of a device or of the host (`None`). Each mean
/// is over the records that have the quantity.
pub fn overall(records: &[Record], device: Option<usize>) -> Readings {
    let mut sums: BTreeMap<Quantity, (Span, f64)> = BTreeMap::new();
    for record in records {
        let readings = device.map_or(Some(&record.host), |device| record.device(device));
        let ns = record.ns() as f64;
        for (quantity, span) in readings.into_iter().flat_map(Readings::iter) {
            let merge = |(known, weight): &mut (Span, f64)| {
                *known = known.with(*weight, span, ns);
                *weight += ns;
            };
            sums.entry(quantity).and_modify(merge).or_insert((span, ns));
        }
    }
    Readings(sums.into_iter().map(|(quantity, (span, _))| (quantity, span)).collect())
}
