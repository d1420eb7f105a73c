//! Data sets on disk: a folder with `manifest.json`, `kernels.csv` and `launches.csv`.
//!
//! The manifest says what was measured on what, and how; kernels are described once; each launch is a line. Names of columns
//! carry their units. What was not measured is empty, never zero. Files are replaced as a whole, so that a folder holds a data
//! set or the one before; [`DataSet::read`] refuses what is cut off, changed in shape, of another kind or of a newer version, and says
//! what to do.

mod csv;
mod manifest;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use csv::record;
pub use csv::{Appender, Columns, Fields};
pub use manifest::{Clocks, CountersUsed, Counts, DeviceKind, Manifest, Suite};

/// The file that says what the others are.
pub const MANIFEST: &str = "manifest.json";
/// The table of kernels.
pub const KERNELS: &str = "kernels.csv";
/// The table of launches.
pub const LAUNCHES: &str = "launches.csv";

/// Why a data set cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system says no.
    #[error("cannot {doing} {}: {error}", apex_untrusted::shown(path))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error(
        "{}, line {line}: {why}; take the file from where it was made, or collect again into a new folder",
        apex_untrusted::shown(path)
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The manifest is none, or of another version.
    #[error("{}: {why}", apex_untrusted::shown(path))]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Two data sets that must not be mixed.
    #[error("these data sets cannot be merged: {0}")]
    Merge(String),
}

impl Error {
    fn io(doing: &'static str, path: &Path, error: io::Error) -> Error {
        Error::Io { doing, path: path.to_owned(), error }
    }

    fn line(path: &Path, line: u64, why: impl Into<String>) -> Error {
        Error::Line { path: path.to_owned(), line, why: why.into() }
    }
}

record! {
    /// A kernel.
    KernelRow {
        /// Its name.
        kernel: String,
        /// Kernels that do the like: what is held out together.
        family: String,
        /// Registers of a thread.
        registers: u32,
        /// Shared memory of a block that the code declares.
        static_shared_bytes: u32,
        /// Local memory of a thread.
        local_bytes: Option<u32>,
        /// Constant memory that the code declares.
        constant_bytes: Option<u32>,
        /// Threads that a block may have at most.
        max_threads_per_block: Option<u32>,
        /// What its PTX is made of, where there is PTX.
        ptx: PtxMix,
    }
}

/// Static counts of a kernel's PTX; columns `ptx_…`, all empty where there is no PTX.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PtxMix(pub Option<ptx::Mix>);

impl PtxMix {
    fn numbers(mix: &ptx::Mix) -> Vec<u64> {
        let rest = [
            mix.loops,
            mix.predicated,
            mix.global_load_bytes,
            mix.global_store_bytes,
            mix.shared_bytes,
            mix.local_bytes,
            mix.global_bytes_in_loops,
        ];
        [&mix.counts[..], &mix.in_loops, &rest].concat()
    }
}

impl Columns for PtxMix {
    fn names(_: &str, into: &mut Vec<String>) {
        into.extend(ptx::Class::ALL.map(|class| format!("ptx_{}", class.name())));
        into.extend(ptx::Class::ALL.map(|class| format!("ptx_{}_in_loops", class.name())));
        let rest = [
            "loops",
            "predicated",
            "global_load_bytes",
            "global_store_bytes",
            "shared_bytes",
            "local_bytes",
            "global_bytes_in_loops",
        ];
        into.extend(rest.map(|name| format!("ptx_{name}")));
    }

    fn write(&self, into: &mut Vec<String>) {
        let columns = 2 * ptx::Class::ALL.len() + 7;
        match &self.0 {
            Some(mix) => into.extend(Self::numbers(mix).iter().map(u64::to_string)),
            None => into.extend(std::iter::repeat_n(String::new(), columns)),
        }
    }

    fn read(from: &mut Fields<'_>) -> Result<Self, String> {
        let mut number = || {
            from.parse("empty or a whole number", |text| match text {
                "" => Some(None),
                text => text.parse::<u64>().ok().map(Some),
            })
        };
        let mut numbers = Vec::new();
        for _ in 0..2 * ptx::Class::ALL.len() + 7 {
            numbers.extend(number()?);
        }
        let classes = ptx::Class::ALL.len();
        let rest = match numbers.len() {
            0 => return Ok(PtxMix(None)),
            found if found == 2 * classes + 7 => &numbers[2 * classes..],
            _ => return Err("some columns of the PTX are empty and some are not".to_owned()),
        };
        Ok(PtxMix(Some(ptx::Mix {
            counts: std::array::from_fn(|class| numbers[class]),
            in_loops: std::array::from_fn(|class| numbers[classes + class]),
            loops: rest[0],
            predicated: rest[1],
            global_load_bytes: rest[2],
            global_store_bytes: rest[3],
            shared_bytes: rest[4],
            local_bytes: rest[5],
            global_bytes_in_loops: rest[6],
        })))
    }
}

record! {
    /// A launch, and what was measured of it.
    LaunchRow {
        /// Its number in the collection.
        row: u64,
        /// The kernel's name, as in the table of kernels.
        kernel: String,
        /// Units of work.
        n: Option<u64>,
        /// The kernel's parameter.
        m: Option<u64>,
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// Dynamic shared memory of a block.
        dynamic_shared_bytes: u32,
        /// Bytes that the algorithm has to move, computed from the problem.
        algorithm_bytes: Option<u64>,
        /// Roughly the instructions of all threads, computed from the problem.
        algorithm_operations: Option<f64>,
        /// Blocks that a multiprocessor holds, computed.
        blocks_per_sm: Option<u32>,
        /// Theoretical occupancy, computed.
        theoretical_occupancy_percent: Option<f64>,
        /// Which of the machine's devices ran it.
        device: u32,
        /// Its time.
        timing: Timing,
        /// Its counters.
        counters: Counters,
        /// Empty if everything was measured that the collection measures; else what was not, and why.
        missing: String,
    }
}

record! {
    /// A launch's time, without profiler.
    Timing {
        /// Median of repeats, an empty kernel's time subtracted.
        time_us: Option<f64>,
        /// Distance of the quartiles, as a fraction of the median.
        time_spread: Option<f64>,
        /// Repeats.
        time_samples: Option<u64>,
    }
}

record! {
    /// What a profiler counted in one more run of a launch.
    Counters {
        /// Time under the profiler: of the kernel alone, nothing subtracted.
        profiled_time_us: Option<f64>,
        /// Warps resident on a multiprocessor, as a fraction of the most possible, while it was active.
        achieved_occupancy_percent: Option<f64>,
        /// Cycles in which a multiprocessor had a warp, mean of all.
        sm_active_cycles: Option<f64>,
        /// Cycles that passed, mean of all multiprocessors.
        sm_elapsed_cycles: Option<f64>,
        /// Warps' instructions that were executed, sum of all multiprocessors.
        instructions: Option<f64>,
        /// Threads that took part in an instruction, mean.
        threads_per_instruction: Option<f64>,
        /// Instructions that a multiprocessor issued for each cycle that passed, of the most possible.
        sm_issue_percent: Option<f64>,
        /// The busiest of a multiprocessor's parts, of the most possible.
        sm_throughput_percent: Option<f64>,
        /// The busiest part of the way to memory, of the most possible.
        memory_throughput_percent: Option<f64>,
        /// Bytes read from the device's memory.
        dram_read_bytes: Option<f64>,
        /// Bytes written to the device's memory.
        dram_write_bytes: Option<f64>,
    }
}

impl LaunchRow {
    /// Threads of a block.
    pub fn threads(&self) -> u64 {
        self.block.iter().map(|&side| u64::from(side)).product()
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&side| u64::from(side)).product()
    }
}

/// A data set.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSet {
    /// What it is.
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
    /// Which file and line is not what it should be.
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
                "the file has {found} launches and the manifest says {said}: one of them is not this data set's"
            );
            return Err(Error::Manifest { path, why });
        }
        Ok(DataSet { manifest, kernels, launches })
    }

    /// Writes a folder, replacing each file at once; the manifest last.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, error))?;
        replace(&folder.join(KERNELS), &csv::to_text(&self.kernels))?;
        replace(&folder.join(LAUNCHES), &csv::to_text(&self.launches))?;
        self.manifest.write(&folder.join(MANIFEST))
    }

    /// Adds the rows of another data set of the same kind of device, name of device and suite, numbered on.
    ///
    /// # Errors
    /// What differs. Then nothing was added.
    pub fn merge(&mut self, other: DataSet) -> Result<(), Error> {
        let same = |what: &str, mine: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
            let (mine, theirs) = (format!("{mine:?}"), format!("{theirs:?}"));
            let differ = || Error::Merge(format!("{what} is {mine} in one and {theirs} in the other"));
            if mine == theirs { Ok(()) } else { Err(differ()) }
        };
        same("the kind of device", &self.manifest.device_kind, &other.manifest.device_kind)?;
        same("the device", &self.manifest.device_name, &other.manifest.device_name)?;
        same("the suite", &self.manifest.suite, &other.manifest.suite)?;
        for kernel in other.kernels {
            match self.kernels.iter().find(|known| known.kernel == kernel.kernel) {
                Some(known) => same(&format!("kernel `{}`", kernel.kernel), known, &kernel)?,
                None => self.kernels.push(kernel),
            }
        }
        let next = self.launches.iter().map(|row| row.row + 1).max().unwrap_or(0);
        let numbered = |(number, row): (u64, LaunchRow)| LaunchRow { row: number, ..row };
        self.launches.extend((next..).zip(other.launches).map(numbered));
        self.manifest.counts = Counts::of(&self.launches);
        Ok(())
    }
}

/// Reads one table.
///
/// # Errors
/// Which line is not what it should be.
pub fn read_table<T: Columns>(path: &Path) -> Result<Vec<T>, Error> {
    csv::read(path)
}

/// Writes one table, replacing it at once.
///
/// # Errors
/// What the system says.
pub fn write_table<T: Columns>(path: &Path, records: &[T]) -> Result<(), Error> {
    replace(path, &csv::to_text(records))
}

/// The records of a CSV text as fields, for tables of others. Ends at what is not CSV.
pub(crate) fn fields(text: &str) -> impl Iterator<Item = Vec<String>> + '_ {
    csv::fields(text)
}

/// Replaces a file's contents at once.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    apex_untrusted::replace::bytes(path, text.as_bytes()).map_err(|error| Error::io("write", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn sample() -> DataSet {
        let suite = Suite { name: "sample".into(), version: 1, ptx_hash: String::new() };
        let kernel =
            |name: &str, ptx| KernelRow { kernel: name.into(), ptx: PtxMix(ptx), ..KernelRow::default() };
        let launch = |row, kernel: &str| LaunchRow {
            row,
            kernel: kernel.into(),
            grid: [7, 1, 1],
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
    fn damage_never_panics() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::of(11, "damage");
        for _ in 0..200 {
            sample().write(folder.path()).unwrap();
            let path = folder.path().join(random.choose(&[MANIFEST, KERNELS, LAUNCHES]));
            let mut bytes = std::fs::read(&path).unwrap();
            match random.below(3) {
                0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                1 => {
                    bytes.insert(random.below(bytes.len() as u64) as usize, random.choose(b"\",\n\r\xff0-e"))
                }
                _ => {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.choose(b"\",\n\r\xff0-e{");
                }
            }
            std::fs::write(&path, bytes).unwrap();
            if let Err(error) = DataSet::read(folder.path()) {
                assert!(error.to_string().contains(&*path.file_name().unwrap().to_string_lossy()), "{error}");
            }
        }
    }

    /// Each column has its line in the documentation; of the kinds of instructions, each is named once.
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
