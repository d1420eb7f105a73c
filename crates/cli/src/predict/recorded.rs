//! Measured launches: the configurations of a session, or the rows of a data set, with their
//! durations.

use super::device::MANIFEST;
use crate::loaded;
use apex_dataset::DataSet;
use apex_predict::Device;
use apex_predict::lines::Question;
use apex_predict_session::programs::{Programs, Recorded as Known};
use apex_predict_session::recorded::Trained;
use std::collections::HashMap;
use std::path::Path;

/// A launch that was made.
pub struct Recorded {
    /// Its configuration, and what it took.
    pub asked: Question,
    /// The part of its kernel's code that is known.
    pub known: Known,
    /// GPU time of all launches like it, nanoseconds; none where they were not timed.
    pub total_ns: Option<f64>,
}

/// The launches of a session or data set.
pub struct Recording {
    /// The device that they ran on, or why there are no predictions for it.
    pub device: Result<Device, String>,
    /// In the order of the session's report, or of the rows.
    pub launches: Vec<Recorded>,
}

impl Recording {
    /// Reads a folder.
    ///
    /// # Errors
    /// If it is neither a session nor a data set, or cannot be read.
    pub fn read(path: &Path, trained: Trained) -> anyhow::Result<Self> {
        if path.join(MANIFEST).is_file() { of_data_set(path, trained) } else { of_session(path, trained) }
    }

    /// Leaves out what took place on another device: what launches took there says nothing about
    /// this one.
    pub fn predicted_for(mut self, device: &Device) -> Self {
        if self.device.as_ref() != Ok(device) {
            self.launches.iter_mut().for_each(|launch| launch.asked.measured_us = None);
        }
        self
    }
}

fn of_session(path: &Path, trained: Trained) -> anyhow::Result<Recording> {
    let profile = loaded::read_all(path)?.profile;
    let device = trained.among(&profile.devices);
    let programs = Programs::of(&profile);
    let name = device.as_ref().ok().map(|device| &device.name);
    let launch = |recorded: &apex_profile::Kernel| {
        let ran_on = recorded.device.and_then(|index| profile.devices.get(index));
        let here = ran_on.is_some_and(|ran_on| Some(&ran_on.name) == name);
        let measured = apex_predict_session::recorded::measured_duration_ns(recorded).filter(|_| here);
        let measured_us = measured.map(|time| time.value / 1e3);
        let (launch, kernel) = (recorded.launch, recorded.attributes);
        let asked = Question { name: Some(recorded.short_name.clone()), launch, kernel, measured_us };
        Recorded { asked, known: programs.recorded(recorded), total_ns: recorded.gpu_total_ns() }
    };
    let launches = profile.kernels.iter().map(launch).collect();
    Ok(Recording { device, launches })
}

fn of_data_set(path: &Path, trained: Trained) -> anyhow::Result<Recording> {
    let set = DataSet::read(path)?;
    let attributes: Vec<_> = set.manifest.device_attributes.iter().map(|(&id, &value)| (id, value)).collect();
    let device = trained.device(&set.manifest.device_name, &attributes);
    let kernels: HashMap<_, _> = set.kernels.iter().map(|kernel| (kernel.kernel.as_str(), kernel)).collect();
    let launch = |row: &apex_dataset::LaunchRow| {
        let known = kernels.get(row.kernel.as_str());
        let (kernel, launch) = (known.map(|known| known.attributes()), row.config());
        let measured_us = row.counters.profiled_time_us;
        let code = known.and_then(|known| known.ptx.0.clone()).map_or(Known::Kernel, Known::Mix);
        let asked = Question { name: Some(row.kernel.clone()), launch, kernel, measured_us };
        Recorded { asked, known: code, total_ns: None }
    };
    let launches = set.launches.iter().map(launch).collect();
    Ok(Recording { device, launches })
}
