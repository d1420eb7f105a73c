//! Counters by Nsight Compute: `ncu` runs this program again, which makes a batch of launches, and
//! its table is read back.
//!
//! [`METRICS`] are chosen such that a kernel is run once for all of them: then nothing has to be
//! saved and restored, and the caches are as a repeated launch finds them (`--cache-control none`,
//! after a run that is not profiled). On an H200 (2026-11-21, ncu 2025.3.1) they took one pass,
//! some 30 ms a launch and 2 s a batch. [`THROUGHPUT`] takes ten passes, 0.3 s a launch, and memory
//! is restored between them, so it is asked for in a run of its own. Four GPUs of a machine
//! together were not faster at either than one, while each profiler saw them all; now it sees its
//! own alone. Clocks are left as they are. Each line of the table must be the next launch of the
//! batch: same kernel, grid and block.

use cuda_launch::Dim3;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use apex_dataset::Counters;

/// The metrics of every launch.
pub const METRICS: [&str; 9] = [
    "gpu__time_duration.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.avg",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
];

/// The metrics of a separate run, if throughput is wanted.
pub const THROUGHPUT: [&str; 2] = [
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
];

/// The folders in which `ncu` is searched besides the search path.
const PLACES: [&str; 2] = ["/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu"];

/// The profiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ncu {
    /// The program.
    pub path: PathBuf,
    /// Its version.
    pub version: String,
}

/// A launch of the profiler's table.
#[derive(Clone, Debug, PartialEq)]
pub struct Profiled {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// The counters.
    pub counters: Counters,
    /// The number of runs of the kernel for that, if the profiler gives it.
    pub passes: Option<u32>,
}

/// The outcome of a run of the profiler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The launches that it has, in order.
    pub launches: Vec<Profiled>,
    /// The largest number of runs of a kernel, if the profiler gives it.
    pub passes: Option<u32>,
    /// The reason why there are no more, if there was a failure.
    pub failure: Option<String>,
}

impl Ncu {
    /// Finds the profiler: `named`, else in the search path or where it is usually installed.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn find(named: Option<&Path>) -> Result<Ncu, String> {
        let in_path = || {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
            folders.into_iter().map(|folder| folder.join("ncu"))
        };
        let path = match named {
            Some(path) => path.to_owned(),
            None => in_path()
                .chain(PLACES.map(PathBuf::from))
                .find(|path| path.is_file())
                .ok_or("Nsight Compute's `ncu` was not found: install it, or name it with --ncu")?,
        };
        let said = Command::new(&path).arg("--version").output();
        let said = said.map_err(|error| format!("{} does not run: {error}", apex_untrusted::shown(&path)))?;
        let text = String::from_utf8_lossy(&said.stdout);
        let version =
            text.lines().find_map(|line| line.strip_prefix("Version ")).unwrap_or("of unknown version");
        Ok(Ncu { path, version: format!("Nsight Compute {version}") })
    }

    /// Runs `command` under the profiler, which takes the metrics of what it marks. `visible` is
    /// the GPU that both see, if not all; `folder` is for the profiler's own files.
    pub fn run(&self, metrics: &[&str], command: &[&OsStr], visible: Option<&str>, folder: &Path) -> Batch {
        let log = folder.join("ncu.log");
        let failed = |failure: String| Batch { failure: Some(failure), ..Batch::default() };
        let _ = std::fs::remove_file(&log);
        let mut ncu = Command::new(&self.path);
        ncu.args(["--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none"]);
        ncu.args(["--metrics", &metrics.join(","), "--csv", "--page", "raw", "--print-units", "base"]);
        ncu.arg("--log-file").arg(&log).args(command);
        // Profilers of other devices wait for each other by a lock in this folder.
        ncu.env("TMPDIR", folder).env("LC_ALL", "C").stdin(Stdio::null());
        ncu.envs(visible.map(|device| ("CUDA_VISIBLE_DEVICES", device)));
        let output = match ncu.output() {
            Ok(output) => output,
            Err(error) => {
                return failed(format!("{} does not run: {error}", apex_untrusted::shown(&self.path)));
            }
        };
        let text = std::fs::read(&log).unwrap_or_default();
        let mut batch = parse(&String::from_utf8_lossy(&text));
        if !output.status.success() {
            let said = last_words(&text, &output.stdout, &output.stderr);
            batch.failure = Some(format!("ncu ended with {}: {said}", output.status));
        }
        batch
    }
}

/// The lines that say what went wrong.
fn last_words(log: &[u8], stdout: &[u8], stderr: &[u8]) -> String {
    let texts = [log, stdout, stderr].map(String::from_utf8_lossy);
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    let error = |line: &&str| line.contains("==ERROR==") || line.starts_with("apex:");
    let telling: Vec<&str> = lines.iter().copied().filter(error).take(3).collect();
    match telling.is_empty() {
        true => lines.last().map_or_else(|| "it said nothing".to_owned(), |line| (*line).to_owned()),
        false => telling.join(" "),
    }
}

/// Reads what the profiler printed: messages, then a table with a line of names and one of units.
pub fn parse(text: &str) -> Batch {
    let Some(start) = text.find("\"ID\",") else {
        return Batch { failure: Some("ncu printed no table".to_owned()), ..Batch::default() };
    };
    let mut lines = apex_csv::records(&text[start..]).map_while(|(_, record)| record.ok());
    let names = lines.next().unwrap_or_default();
    let launches: Vec<Profiled> = lines.skip(1).map_while(|values| profiled(&names, &values)).collect();
    let passes = launches.iter().filter_map(|launch| launch.passes).max();
    Batch { launches, passes, failure: None }
}

fn profiled(names: &[Option<String>], values: &[Option<String>]) -> Option<Profiled> {
    let columns: HashMap<&str, &str> = texts(names).zip(texts(values)).collect();
    let number = |name: &str| {
        let text = columns.get(name)?.replace(',', "");
        text.parse().ok().filter(|value: &f64| value.is_finite())
    };
    let counters = Counters {
        profiled_time_us: number("gpu__time_duration.sum").map(|ns| ns / 1000.0),
        achieved_occupancy_percent: number("sm__warps_active.avg.pct_of_peak_sustained_active"),
        sm_active_cycles: number("sm__cycles_active.avg"),
        sm_elapsed_cycles: number("sm__cycles_elapsed.avg"),
        instructions: number("smsp__inst_executed.sum"),
        threads_per_instruction: number("smsp__thread_inst_executed_per_inst_executed.ratio"),
        sm_issue_percent: number("sm__inst_issued.avg.pct_of_peak_sustained_elapsed"),
        sm_throughput_percent: number("sm__throughput.avg.pct_of_peak_sustained_elapsed"),
        memory_throughput_percent: number("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
        dram_read_bytes: number("dram__bytes_read.sum"),
        dram_write_bytes: number("dram__bytes_write.sum"),
    };
    Some(Profiled {
        kernel: (*columns.get("Kernel Name")?).to_owned(),
        grid: sides(columns.get("Grid Size")?)?,
        block: sides(columns.get("Block Size")?)?,
        counters,
        passes: number("profiler__replayer_passes").map(|passes| passes as u32),
    })
}

fn texts(fields: &[Option<String>]) -> impl Iterator<Item = &str> {
    fields.iter().map(|field| field.as_deref().unwrap_or_default())
}

/// From `(256, 1, 1)`.
fn sides(text: &str) -> Option<Dim3> {
    let numbers = text.trim_matches(['(', ')']).split(',').map(|side| side.trim().parse().ok());
    let sides: [u32; 3] = numbers.collect::<Option<Vec<u32>>>()?.try_into().ok()?;
    Some(sides.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"==PROF== Connected to process 4711 (/usr/bin/apex)
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","profiler__replayer_passes","sm__cycles_active.avg","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","ns","pass","cycle","%"
"0","4711","apex","127.0.0.1","copy_f32","1","13","(256, 1, 1)","(1024, 2, 1)","0","9.0","12,345","1","1,000.5","87.25"
"1","4711","apex","127.0.0.1","axpy_f32","1","13","(32, 4, 2)","(7, 1, 1)","0","9.0","2000","2","n/a","12.5"
"#;

    #[test]
    fn the_table_is_read() {
        let batch = parse(LOG);
        assert_eq!((batch.passes, batch.failure), (Some(2), None));
        let [copy, axpy] = &batch.launches[..] else { panic!("two launches") };
        assert_eq!((&*copy.kernel, copy.grid, copy.block), ("copy_f32", (1024, 2).into(), 256.into()));
        assert_eq!(copy.counters.profiled_time_us, Some(12.345));
        assert_eq!(copy.counters.sm_active_cycles, Some(1000.5));
        assert_eq!(copy.counters.achieved_occupancy_percent, Some(87.25));
        assert_eq!(axpy.block, [32, 4, 2].into());
        assert_eq!(axpy.counters.sm_active_cycles, None, "n/a is not measured");
        assert_eq!(axpy.counters.instructions, None, "a column that is not there is not measured");
    }

    #[test]
    fn a_table_that_is_cut_off_gives_what_is_whole() {
        for end in 0..LOG.len() {
            let batch = parse(&LOG[..end]);
            assert!(batch.launches.len() <= 2);
        }
        assert_eq!(parse("==ERROR== no permission").failure.as_deref(), Some("ncu printed no table"));
    }

    #[test]
    fn errors_are_found_among_what_was_said() {
        let said = last_words(b"==PROF== x\n==ERROR== ERR_NVGPUCTRPERM: no permission\n", b"", b"noise\n");
        assert_eq!(said, "==ERROR== ERR_NVGPUCTRPERM: no permission");
        assert_eq!(last_words(b"", b"", b""), "it said nothing");
    }
}
