//! Data sets on disk: a folder with `manifest.json`, `kernels.csv` and `launches.csv`.
//!
//! The manifest says what was measured, on which device and how. Each kernel is described once, and
//! each launch is a line. Names of columns carry their units. A field that was not measured is
//! empty, never zero. [`DataSet::write`] replaces whole files, so a folder holds this data set or
//! the previous one. [`DataSet::read`] refuses a file that is cut off, has other columns or is of a
//! newer version, and says what to do.
//!
//! * [`KernelRow`], [`LaunchRow`]: the rows.
//! * [`Manifest`]: the manifest.
//! * [`Columns`], [`record!`], [`Appender`]: any other table of records.

mod csv;
mod manifest;
mod rows;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub use csv::{Appender, Columns, Fields};
pub use manifest::{Clocks, CountersUsed, Counts, DeviceKind, Manifest, Suite};
pub use rows::{Counters, KernelRow, LaunchRow, PtxMix, Timing};

/// The file that describes the others.
pub const MANIFEST: &str = "manifest.json";
/// The table of kernels.
pub const KERNELS: &str = "kernels.csv";
/// The table of launches.
pub const LAUNCHES: &str = "launches.csv";

/// The reason why a data set cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses.
    #[error("cannot {doing} {}: {error}", apex_untrusted::shown(path))]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file has unexpected content.
    #[error(
        "{}, line {line}: {why}; take the file from where it was made, or collect again into a new folder",
        apex_untrusted::shown(path)
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The fault.
        why: String,
    },
    /// The manifest is not one, or has another version.
    #[error("{}: {why}", apex_untrusted::shown(path))]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
}

impl Error {
    fn io(doing: &'static str, path: &Path, error: io::Error) -> Error {
        Error::Io { doing, path: path.to_owned(), error }
    }

    fn line(path: &Path, line: u64, why: impl Into<String>) -> Error {
        Error::Line { path: path.to_owned(), line, why: why.into() }
    }
}

/// A data set.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSet {
    /// The manifest.
    pub manifest: Manifest,
    /// Its kernels.
    pub kernels: Vec<KernelRow>,
    /// Its launches.
    pub launches: Vec<LaunchRow>,
}

impl DataSet {
    /// Reads a folder.
    ///
    /// # Errors
    /// [`Error`] with the file and line that have unexpected content.
    pub fn read(folder: &Path) -> Result<DataSet, Error> {
        let manifest = Manifest::read(&folder.join(MANIFEST))?;
        let kernels: Vec<KernelRow> = csv::read(&folder.join(KERNELS))?;
        let path = folder.join(LAUNCHES);
        let launches: Vec<LaunchRow> = csv::read(&path)?;
        let known: BTreeSet<&str> = kernels.iter().map(|kernel| &*kernel.kernel).collect();
        // Names may span lines, so the line is not known here.
        if let Some(row) = launches.iter().find(|row| !known.contains(&*row.kernel)) {
            let why = format!("row {} is of kernel `{}`, which {KERNELS} does not have", row.row, row.kernel);
            return Err(Error::Manifest { path, why });
        }
        if let Some(pair) = launches.windows(2).find(|pair| pair[0].row >= pair[1].row) {
            let why =
                format!("row {} follows row {}: the file was put together by hand", pair[1].row, pair[0].row);
            return Err(Error::Manifest { path, why });
        }
        let (found, said) = (launches.len() as u64, manifest.counts.rows);
        if found != said {
            let why = format!(
                "the file has {found} launches and {MANIFEST} says {said}: one of them is not this data set's"
            );
            return Err(Error::Manifest { path, why });
        }
        Ok(DataSet { manifest, kernels, launches })
    }

    /// Writes a folder, replacing each file at once; the manifest last.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, error))?;
        replace(&folder.join(KERNELS), &csv::to_text(&self.kernels))?;
        replace(&folder.join(LAUNCHES), &csv::to_text(&self.launches))?;
        self.manifest.write(&folder.join(MANIFEST))
    }
}

/// Reads one table.
///
/// # Errors
/// [`Error`] with the line that has unexpected content.
pub fn read_table<T: Columns>(path: &Path) -> Result<Vec<T>, Error> {
    csv::read(path)
}

/// Writes one table, replacing it at once.
///
/// # Errors
/// The system's error.
pub fn write_table<T: Columns>(path: &Path, records: &[T]) -> Result<(), Error> {
    replace(path, &csv::to_text(records))
}

/// Replaces a file's contents at once.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    apex_untrusted::replace::bytes(path, text.as_bytes()).map_err(|error| Error::io("write", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> DataSet {
        let suite = Suite { name: "sample".into(), version: 1, ptx_hash: String::new() };
        let kernel =
            |name: &str, ptx| KernelRow { kernel: name.into(), ptx: PtxMix(ptx), ..KernelRow::default() };
        let launch = |row, kernel: &str| LaunchRow {
            row,
            kernel: kernel.into(),
            grid: 7.into(),
            timing: Timing { time_us: Some(1.25), ..Timing::default() },
            ..LaunchRow::default()
        };
        let mut data_set = DataSet {
            manifest: Manifest::new(DeviceKind::Gpu, "a device", suite),
            kernels: vec![kernel("f", Some(ptx::Mix::default())), kernel("g<int, 3>", None)],
            launches: vec![launch(0, "f"), launch(1, "g<int, 3>"), launch(2, "f")],
        };
        data_set.manifest.counts = Counts::of(&data_set.launches);
        data_set
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        sample().write(folder.path()).unwrap();
        assert_eq!(DataSet::read(folder.path()).unwrap(), sample());
    }

    #[test]
    fn numbers_that_occur_twice_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut twice = sample();
        twice.launches[2].row = 1;
        twice.write(folder.path()).unwrap();
        let error = DataSet::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("launches.csv") && error.contains("row 1 follows row 1"), "{error}");
    }

    #[test]
    fn a_number_of_launches_that_the_manifest_does_not_say_is_told_with_both_files() {
        let folder = tempfile::tempdir().unwrap();
        sample().write(folder.path()).unwrap();
        let mut manifest = sample().manifest;
        manifest.counts.rows = 0;
        manifest.write(&folder.path().join(MANIFEST)).unwrap();
        let error = DataSet::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(MANIFEST) && error.contains(LAUNCHES), "{error}");
    }

    /// The damage to one byte of a file.
    #[derive(Clone, Copy, Debug)]
    enum Damage {
        Truncated,
        Inserted(u8),
        Replaced(u8),
    }

    fn damage() -> impl Strategy<Value = Damage> {
        let byte = |bytes: &'static [u8]| prop::sample::select(bytes);
        prop_oneof![
            Just(Damage::Truncated),
            byte(b"\",\n\r\xff0-e").prop_map(Damage::Inserted),
            byte(b"\",\n\r\xff0-e{").prop_map(Damage::Replaced),
        ]
    }

    proptest! {
        #[test]
        fn damage_never_panics(
            file in prop::sample::select(&[MANIFEST, KERNELS, LAUNCHES][..]),
            damage in damage(),
            at in any::<prop::sample::Index>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            sample().write(folder.path()).unwrap();
            let path = folder.path().join(file);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            match damage {
                Damage::Truncated => bytes.truncate(at),
                Damage::Inserted(byte) => bytes.insert(at, byte),
                Damage::Replaced(byte) => bytes[at] = byte,
            }
            std::fs::write(&path, bytes).unwrap();
            if let Err(error) = DataSet::read(folder.path()) {
                prop_assert!(error.to_string().contains(file), "{}", error);
            }
        }
    }

    /// Each column has its line in the documentation, where each kind of instruction is named once.
    #[test]
    fn every_column_is_documented() {
        let page = include_str!("../../../../docs/dataset.md");
        let mut names = Vec::new();
        KernelRow::names("", &mut names);
        LaunchRow::names("", &mut names);
        for name in names {
            let documented = match (name.strip_prefix("ptx_"), name.strip_suffix("_in_loops")) {
                (Some(_), Some(class)) if class != "ptx_global_bytes" => class,
                _ => &name,
            };
            assert!(page.contains(&format!("`{documented}`")), "docs/dataset.md does not have `{name}`");
        }
    }
}
