//! Intermediate results: tables in `partial/`, some for each device, that survive SIGKILL.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::stage::Stage;
use crate::Error;
use apex_dataset::{Appender, Counters, Timing};

/// Their folder in a collection's folder.
pub(super) const FOLDER: &str = "partial";

apex_dataset::record! {
    /// A line of a table of times.
    TimeRecord {
        /// The row's number.
        row: u64,
        /// The number of the device that ran it.
        device: u32,
        /// Its time.
        timing: Timing,
        /// The reason why the time is missing.
        missing: String,
    }
}

apex_dataset::record! {
    /// A line of a table of counters. What its stage does not count is empty.
    CounterRecord {
        /// The row's number.
        row: u64,
        /// The counters.
        counters: Counters,
        /// The reason why a value is missing.
        missing: String,
    }
}

/// The measurements of each row so far.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) times: BTreeMap<u64, TimeRecord>,
    pub(super) counters: BTreeMap<u64, CounterRecord>,
    pub(super) throughput: BTreeMap<u64, CounterRecord>,
}

impl Results {
    /// The measurements of a stage of counting.
    pub(super) fn of(&self, stage: Stage) -> &BTreeMap<u64, CounterRecord> {
        match stage {
            Stage::Counters => &self.counters,
            Stage::Throughput => &self.throughput,
        }
    }

    /// The same, to add to.
    pub(super) fn of_mut(&mut self, stage: Stage) -> &mut BTreeMap<u64, CounterRecord> {
        match stage {
            Stage::Counters => &mut self.counters,
            Stage::Throughput => &mut self.throughput,
        }
    }
}

/// The folder of intermediate results.
pub(super) struct Partial {
    pub(super) folder: PathBuf,
    /// The lock, held while the collection runs.
    _lock: File,
}

impl Partial {
    pub(super) fn open(collection: &Path) -> Result<Partial, Error> {
        let folder = collection.join(FOLDER);
        let io = |doing| {
            let path = folder.clone();
            move |error| apex_dataset::Error::Io { doing, path, error }
        };
        fs::create_dir_all(&folder).map_err(io("make"))?;
        let lock = apex_untrusted::replace::open_or_create(&folder.join("lock")).map_err(io("write into"))?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(Error::Refused(format!(
                "another `apex collect` is at work in {}",
                apex_untrusted::shown(collection)
            )));
        }
        Ok(Partial { folder, _lock: lock })
    }

    pub(super) fn path(&self, table: &str, ordinal: usize) -> PathBuf {
        self.folder.join(format!("{table}-{ordinal}.csv"))
    }

    /// The tables of all devices, including devices that no longer take part.
    pub(super) fn results(&self) -> Result<Results, Error> {
        let mut results = Results::default();
        let entries = fs::read_dir(&self.folder).map_err(|error| apex_dataset::Error::Io {
            doing: "list",
            path: self.folder.clone(),
            error,
        })?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("times-") {
                let (_, records) = Appender::open::<TimeRecord>(&path)?;
                results.times.extend(records.into_iter().map(|record| (record.row, record)));
            }
            for stage in Stage::ALL {
                if name.strip_prefix(stage.table()).is_some_and(|rest| rest.starts_with('-')) {
                    let (_, records) = Appender::open::<CounterRecord>(&path)?;
                    results.of_mut(stage).extend(records.into_iter().map(|record| (record.row, record)));
                }
            }
        }
        Ok(results)
    }
}
