//! `manifest.json`: the description of a data set, its device, and the way in which it was
//! measured.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Error, LaunchRow};

/// Says that a JSON document is a manifest.
const FORMAT: &str = "apex.dataset";
/// The version of the format: raised when a reader of the one before would misunderstand.
const VERSION: u64 = 1;

/// The kind of device that the rows were measured on. Rows of different kinds are never mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A GPU.
    Gpu,
    /// APEX's CPU device: times say nothing about any GPU.
    CpuDevice,
}

/// The source of the kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// `apex` for APEX's own suite, else the program that launched them.
    pub name: String,
    /// The version of the suite.
    pub version: u32,
    /// Of its PTX; empty where there is none.
    pub ptx_hash: String,
}

/// Numbers of launches by the measurements that they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Launches.
    pub rows: u64,
    /// With a time.
    pub timed: u64,
    /// With counters.
    pub counted: u64,
    /// With throughput.
    #[serde(default)]
    pub throughput: u64,
}

impl Counts {
    /// Counts.
    pub fn of(launches: &[LaunchRow]) -> Counts {
        let having = |has: fn(&LaunchRow) -> bool| launches.iter().filter(|row| has(row)).count() as u64;
        Counts {
            rows: launches.len() as u64,
            timed: having(|row| row.timing.time_us.is_some()),
            counted: having(|row| row.counters.achieved_occupancy_percent.is_some()),
            throughput: having(|row| row.counters.sm_throughput_percent.is_some()),
        }
    }
}

/// The output of `nvidia-smi` at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// The time, UTC.
    pub at: String,
    /// Column of `nvidia-smi` and value, for each device in order.
    pub devices: Vec<BTreeMap<String, String>>,
}

/// The way in which counters were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountersUsed {
    /// The profiler's own name and version.
    pub tool: String,
    /// The metrics that it was asked for.
    pub metrics: Vec<String>,
    /// The number of runs of a kernel for them, if the profiler gives it.
    pub passes: Option<u32>,
}

/// The description of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `apex.dataset`.
    pub format: String,
    /// The version of the format.
    pub version: u64,
    /// Version of APEX that wrote it.
    pub apex_version: String,
    /// The kind of device that the rows were measured on.
    pub device_kind: DeviceKind,
    /// Name of the device.
    pub device_name: String,
    /// Devices that took part.
    pub devices: u32,
    /// Memory of one device.
    pub device_memory_bytes: u64,
    /// Number and value of each `CUdevice_attribute` that the driver tells.
    pub device_attributes: BTreeMap<u32, i32>,
    /// The result of `cuDriverGetVersion`.
    pub cuda_version: u32,
    /// The source of the kernels.
    pub suite: Suite,
    /// Seed of the launches.
    pub seed: u64,
    /// Rows that were asked for.
    pub planned_rows: u64,
    /// Families that were asked for; empty for all.
    pub families: Vec<String>,
    /// The command line.
    pub command: String,
    /// The start of the collection, UTC.
    pub started: String,
    /// The time of the last writing, UTC.
    pub written: String,
    /// Whether everything that was asked for was tried.
    pub complete: bool,
    /// Numbers of launches by the measurements that they have.
    pub counts: Counts,
    /// Duration of an empty kernel between two events, which is subtracted from times; one value
    /// per calibration.
    pub empty_kernel_us: Vec<f64>,
    /// Median duration of empty kernels under the profiler; one value per device and run. Every
    /// `profiled_time_us` contains it, and no `time_us` does.
    #[serde(default)]
    pub empty_kernel_profiled_us: Vec<f64>,
    /// Clocks and temperatures seen on the way.
    pub clocks: Vec<Clocks>,
    /// The way in which counters were taken; `null` if none were.
    pub counters: Option<CountersUsed>,
    /// The way in which throughput was taken; `null` if it was not.
    #[serde(default)]
    pub throughput: Option<CountersUsed>,
}

impl Manifest {
    /// An empty one for a device.
    pub fn new(device_kind: DeviceKind, device_name: &str, suite: Suite) -> Manifest {
        Manifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            apex_version: env!("CARGO_PKG_VERSION").to_owned(),
            device_kind,
            device_name: device_name.to_owned(),
            devices: 1,
            device_memory_bytes: 0,
            device_attributes: BTreeMap::new(),
            cuda_version: 0,
            suite,
            seed: 0,
            planned_rows: 0,
            families: Vec::new(),
            command: String::new(),
            started: String::new(),
            written: String::new(),
            complete: false,
            counts: Counts::default(),
            empty_kernel_us: Vec::new(),
            empty_kernel_profiled_us: Vec::new(),
            clocks: Vec::new(),
            counters: None,
            throughput: None,
        }
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).expect("a manifest has no keys but text and numbers");
        super::replace(path, &(text + "\n"))
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// A file that is none, or of a newer format.
    pub fn read(path: &Path) -> Result<Manifest, Error> {
        let wrong = |why: String| Error::Manifest { path: path.to_owned(), why };
        let text = apex_untrusted::read::read_to_string(path, apex_untrusted::read::MANIFEST)
            .map_err(|error| Error::io("read", path, error))?;
        let document: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
            wrong(format!("not JSON ({error}): the file is cut off or of something else; collect again into a new folder"))
        })?;
        if document["format"] != FORMAT {
            return Err(wrong(format!("this is no data set of APEX: `format` is not `{FORMAT}`")));
        }
        match document["version"].as_u64() {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => {
                let why = format!(
                    "the data set is of version {newer}, and this APEX reads up to {VERSION}: use a newer APEX"
                );
                return Err(wrong(why));
            }
            _ => return Err(wrong(format!("`version` is not {VERSION}"))),
        }
        serde_json::from_value(document)
            .map_err(|error| wrong(format!("not as version {VERSION} has it: {error}")))
    }
}
