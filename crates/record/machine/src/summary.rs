//! Summarises the records of a session or of a window of it.

use crate::file::Machine;
use crate::quantity::Quantity;
use crate::record::{Device, Readings, Record, Span, overall};
use serde::{Serialize, Serializer};

/// The state of the machine over a time: least, mean and most of each quantity, measured.
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

/// The state of a device over a time, whatever ran on it.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceSummary {
    /// Index into [`Machine::devices`].
    pub index: usize,
    /// The device.
    #[serde(flatten)]
    pub device: Device,
    /// Energy that it took, joules.
    pub energy_j: Option<f64>,
    /// The readings.
    #[serde(serialize_with = "spans")]
    pub readings: Readings,
}

impl DeviceSummary {
    /// Returns the reasons why its clocks were lower than they could be, and the share of the
    /// samples of each; the gravest reason first.
    pub fn reasons(&self) -> Vec<(Quantity, f64)> {
        let share = |quantity| Some((quantity, self.readings.get(quantity)?.mean));
        Quantity::CLOCK_REASONS.into_iter().filter_map(share).filter(|(_, share)| *share > 0.0).collect()
    }
}

impl Summary {
    /// Summarises the records for a program that used the devices with these UUIDs; `None` without
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::DeviceRecord;

    fn readings(values: &[(Quantity, [f64; 3])]) -> Readings {
        let written: std::collections::BTreeMap<_, _> =
            values.iter().map(|(quantity, values)| (quantity.key(), values)).collect();
        serde_json::from_value(serde_json::json!(written)).unwrap()
    }

    /// Readings with this average power, and clocks lowered for power in a share of the samples.
    fn device(device: usize, watts: f64, lowered: f64) -> DeviceRecord {
        let power = (Quantity::AveragePower, [watts - 10.0, watts, watts + 20.0]);
        let reason = (Quantity::CLOCK_REASONS[1], [0.0, lowered, 1.0]);
        DeviceRecord { device, readings: readings(&[power, reason]), ..DeviceRecord::default() }
    }

    /// A second in which two devices ran, and three in which one did.
    fn machine() -> Machine {
        let of = |uuid: &str| Device { uuid: uuid.to_owned(), ..Device::default() };
        let host = |cpus: [f64; 3]| readings(&[(Quantity::MachineCpus, cpus)]);
        let records = vec![
            Record {
                from_ns: 5_000_000_000,
                to_ns: 6_000_000_000,
                cost_ns: 3_000_000,
                host: host([1.0, 2.0, 4.0]),
                devices: vec![device(0, 100.0, 0.5), device(1, 50.0, 0.0)],
            },
            Record {
                from_ns: 6_000_000_000,
                to_ns: 9_000_000_000,
                cost_ns: 5_000_000,
                host: host([0.0, 6.0, 7.0]),
                devices: vec![device(0, 300.0, 0.1)],
            },
        ];
        Machine { devices: ["GPU-a", "GPU-b", "GPU-c"].map(of).to_vec(), records, ..Machine::default() }
    }

    fn span(least: f64, mean: f64, most: f64) -> Option<Span> {
        Some(Span { least, mean, most })
    }

    #[test]
    fn means_are_over_time_and_energy_is_power_times_time() {
        let summary = Summary::of(&machine(), ["GPU-a"]).unwrap();
        assert_eq!((summary.seconds, summary.joined), (4.0, true));
        // 8 ms in 4 s.
        assert_eq!(summary.cost_share, 0.002);
        // (2 + 3 · 6) / 4
        assert_eq!(summary.host.get(Quantity::MachineCpus), span(0.0, 5.0, 7.0));
        let [device] = &summary.devices[..] else { panic!("{:?}", summary.devices) };
        assert_eq!((device.index, device.device.uuid.as_str()), (0, "GPU-a"));
        // 100 W for a second and 300 W for three.
        assert_eq!(device.energy_j, Some(1000.0));
        assert_eq!(device.readings.get(Quantity::AveragePower), span(90.0, 250.0, 320.0));
        let reasons = device.reasons();
        assert_eq!(reasons.len(), 1);
        assert_eq!(reasons[0].0, Quantity::CLOCK_REASONS[1]);
        // (0.5 + 3 · 0.1) / 4
        assert!((reasons[0].1 - 0.2).abs() < 1e-12, "{reasons:?}");
    }

    #[test]
    fn devices_of_other_programs_and_devices_without_readings_are_left_out() {
        let indices = |uuids: &[&str]| {
            let summary = Summary::of(&machine(), uuids.iter().copied()).unwrap();
            let indices = summary.devices.iter().map(|device| device.index).collect::<Vec<_>>();
            (indices, summary.joined)
        };
        assert_eq!(indices(&["GPU-b"]), (vec![1], true));
        assert_eq!(indices(&["GPU-b", "GPU-a"]), (vec![0, 1], true));
        assert_eq!(indices(&["GPU-c"]), (vec![], true), "it has no readings");
        assert_eq!(indices(&["MIG-1"]), (vec![0, 1], false));
        assert_eq!(machine().devices_of(["GPU-c"]), (vec![2], true));
        assert_eq!(machine().devices_of([]), (vec![0, 1, 2], false));
        // It ran for a second, and its clocks were never lowered.
        let other = &Summary::of(&machine(), ["GPU-b"]).unwrap().devices[0];
        assert_eq!((other.energy_j, other.reasons()), (Some(50.0), vec![]));
    }

    #[test]
    fn without_a_time_or_power_there_is_nothing_to_say() {
        let mut machine = machine();
        for record in &mut machine.records {
            record.devices.retain(|device| device.device == 0);
            record.devices[0].readings = readings(&[(Quantity::Temperature, [40.0, 50.0, 60.0])]);
        }
        assert_eq!(Summary::of(&machine, ["GPU-a"]).unwrap().devices[0].energy_j, None);
        machine.records.iter_mut().for_each(|record| record.to_ns = record.from_ns);
        assert!(Summary::of(&machine, ["GPU-a"]).is_none());
        machine.records.clear();
        assert!(Summary::of(&machine, ["GPU-a"]).is_none());
    }

    #[test]
    fn documents_name_least_mean_and_most() {
        let device = &Summary::of(&machine(), ["GPU-a"]).unwrap().devices[0];
        let document = serde_json::to_value(device).unwrap();
        let power = &document["readings"][Quantity::AveragePower.key()];
        assert_eq!(power, &serde_json::json!({ "least": 90.0, "mean": 250.0, "most": 320.0 }));
    }
}
