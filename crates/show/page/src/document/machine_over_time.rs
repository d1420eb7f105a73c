//! The state of the machine over time: series that a reader can see, of a stated length.

use super::Source;
use super::figure::{NAME, text};
use apex_machine::{Readings, Record, Summary, Unit as MachineUnit, downsample};
use serde::Serialize;

/// Most devices that have series.
const DEVICES: usize = 16;
/// Least parts of the time that a device's series have.
const LEAST_PARTS: usize = 20;

/// State of the machine, with everything that ran on it; measured.
#[derive(Debug, Serialize)]
pub struct MachineOverTime {
    /// Begin of the first part, nanoseconds since the session's start.
    from_ns: f64,
    /// End of each part, likewise.
    to_ns: Vec<f64>,
    /// Whether the devices are known to be the program's.
    joined: bool,
    /// CPU time of sampling, as a share of one processor.
    cost_share: f64,
    devices: Vec<DeviceOverTime>,
    devices_left_out: usize,
    host: Vec<MachineSeries>,
}

#[derive(Debug, Serialize)]
struct DeviceOverTime {
    name: String,
    uuid: String,
    energy_j: Option<f64>,
    max_sm_clock_mhz: Option<u32>,
    slowdown_c: Option<u32>,
    series: Vec<MachineSeries>,
}

/// A quantity over time.
#[derive(Debug, Serialize)]
struct MachineSeries {
    quantity: &'static str,
    label: &'static str,
    unit: MachineUnit,
    least: f64,
    mean: f64,
    most: f64,
    /// Reading in each part; `null` where there is none.
    means: Vec<Option<f64>>,
    /// Least and most of each part, where parts are made of several samples.
    leasts: Option<Vec<Option<f64>>>,
    mosts: Option<Vec<Option<f64>>>,
}

impl MachineOverTime {
    /// In at most `parts` parts, less of many devices; `None` where nothing was recorded.
    pub fn of(source: &Source<'_>, parts: usize) -> Option<Self> {
        let uuids = source.whole.devices.iter().map(|device| device.uuid.as_str());
        let summary = Summary::of(source.machine, uuids)?;
        let shown = summary.devices.len().clamp(1, DEVICES);
        let records = downsample(&source.machine.records, (2 * parts / (shown + 1)).max(LEAST_PARTS));
        let since = |at: u64| at.saturating_sub(source.origin_ns) as f64;
        let devices = summary.devices.iter().take(DEVICES).map(|device| DeviceOverTime {
            name: text(&device.device.name, NAME),
            uuid: text(&device.device.uuid, NAME),
            energy_j: device.energy_j.map(rounded),
            max_sm_clock_mhz: device.device.max_sm_clock_mhz,
            slowdown_c: device.device.slowdown_c,
            series: all_series(&device.readings, &records, |record| record.device(device.index)),
        });
        Some(Self {
            from_ns: records.first().map_or(0.0, |record| since(record.from_ns)),
            to_ns: records.iter().map(|record| since(record.to_ns)).collect(),
            joined: summary.joined,
            cost_share: rounded(summary.cost_share),
            devices: devices.collect(),
            devices_left_out: summary.devices.len().saturating_sub(DEVICES),
            host: all_series(&summary.host, &records, |record| Some(&record.host)),
        })
    }
}

/// The series of a device or of the host, but for those that are zero all the time.
fn all_series<'a>(
    whole: &Readings,
    records: &'a [Record],
    readings: impl Fn(&'a Record) -> Option<&'a Readings>,
) -> Vec<MachineSeries> {
    let told = whole.iter().filter(|(_, span)| span.least != 0.0 || span.most != 0.0);
    let series = told.map(|(quantity, span)| {
        let spans: Vec<_> = records
            .iter()
            .map(|record| readings(record).and_then(|readings| readings.get(quantity)))
            .collect();
        let varies = spans.iter().flatten().any(|span| span.least < span.most);
        let ends = |of: fn(apex_machine::Span) -> f64| {
            spans.iter().map(|span| span.map(|span| rounded(of(span)))).collect::<Vec<_>>()
        };
        MachineSeries {
            quantity: quantity.key(),
            label: quantity.label(),
            unit: quantity.unit(),
            least: rounded(span.least),
            mean: rounded(span.mean),
            most: rounded(span.most),
            means: ends(|span| span.mean),
            leasts: varies.then(|| ends(|span| span.least)),
            mosts: varies.then(|| ends(|span| span.most)),
        }
    });
    series.collect()
}

/// Four significant digits: more than a picture has.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    if digits >= 0 {
        let power = 10f64.powi(digits);
        (value * power).round() / power
    } else {
        let power = 10f64.powi(-digits);
        (value / power).round() * power
    }
}
