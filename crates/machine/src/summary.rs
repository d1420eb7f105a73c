//! Summarises the records of a session or of a window of it.

use crate::file::Machine;
use crate::quantity::Quantity;
use crate::record::{Device, Readings, Record, Span, overall};
use serde::{Serialize, Serializer};

/// What the machine did over a time: least, mean and most of each quantity, measured.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Time that the records are of, seconds.
    pub seconds: f64,
    /// CPU time that sampling took, as a share of one processor.
    pub cost_share: f64,
    /// The host.
    #[serde(serialize_with = "spans")]
    pub host: Readings,
    /// The devices that the program used; all of the machine where none of them is known by its
    /// UUID, as under MIG.
    pub devices: Vec<DeviceSummary>,
    /// Whether these devices are known to be the program's.
    pub joined: bool,
}

/// What a device did over a time, by everything that ran on it.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceSummary {
    /// Index into [`Machine::devices`].
    pub index: usize,
    /// The device.
    #[serde(flatten)]
    pub device: Device,
    /// Energy that it took, joules.
    pub energy_j: Option<f64>,
    /// What was read.
    #[serde(serialize_with = "spans")]
    pub readings: Readings,
}

impl DeviceSummary {
    /// Why its clocks were lower than they could be, and for which share of the samples; the
    /// gravest reason first.
    pub fn reasons(&self) -> Vec<(Quantity, f64)> {
        let share = |quantity| Some((quantity, self.readings.get(quantity)?.mean));
        Quantity::CLOCK_REASONS.into_iter().filter_map(share).filter(|(_, share)| *share > 0.0).collect()
    }
}

impl Summary {
    /// What the records say of a program that used the devices with these UUIDs; `None` without
    /// records.
    pub fn of<'a>(machine: &Machine, uuids: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let (devices, joined) = machine.devices_of(uuids);
        let records = &machine.records;
        let ns: u64 = records.iter().map(Record::ns).fold(0, u64::saturating_add);
        if ns == 0 {
            return None;
        }
        let cost_ns = records.iter().fold(0, |sum: u64, record| sum.saturating_add(record.cost_ns));
        let of_device = |index: usize| DeviceSummary {
            index,
            device: machine.devices[index].clone(),
            energy_j: energy(records, index),
            readings: overall(records, Some(index)),
        };
        Some(Self {
            seconds: ns as f64 / 1e9,
            cost_share: cost_ns as f64 / ns as f64,
            host: overall(records, None),
            devices: devices
                .into_iter()
                .map(of_device)
                .filter(|device| !device.readings.is_empty())
                .collect(),
            joined,
        })
    }
}

impl Machine {
    /// Indices of the devices with these UUIDs, and `true`; of all devices, and `false`, where none
    /// has one of these.
    pub fn devices_of<'a>(&self, uuids: impl IntoIterator<Item = &'a str>) -> (Vec<usize>, bool) {
        let wanted: Vec<&str> = uuids.into_iter().collect();
        let all = 0..self.devices.len();
        let own: Vec<usize> =
            all.clone().filter(|&index| wanted.contains(&self.devices[index].uuid.as_str())).collect();
        if own.is_empty() { (all.collect(), false) } else { (own, true) }
    }
}

/// Joules that a device took in the records that say so; `None` where none does.
fn energy(records: &[Record], device: usize) -> Option<f64> {
    let joules = records.iter().filter_map(|record| {
        let watts = record.device(device)?.get(Quantity::AveragePower)?.mean;
        Some(watts * record.ns() as f64 / 1e9)
    });
    let joules: Vec<f64> = joules.collect();
    (!joules.is_empty()).then(|| joules.iter().sum())
}

/// Readings with the names of `least`, `mean` and `most`, for documents.
pub fn spans<S: Serializer>(readings: &Readings, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named {
        least: f64,
        mean: f64,
        most: f64,
    }
    serializer.collect_map(
        readings
            .iter()
            .map(|(quantity, Span { least, mean, most })| (quantity.key(), Named { least, mean, most })),
    )
}
