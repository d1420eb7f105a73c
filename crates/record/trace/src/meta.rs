//! `session.json`: the command of a run, the machine, and the end of the run.

use crate::error::{Error, Problem, in_file};
use crate::reader::META_FILE;
use apex_untrusted::{Folder, read};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Version of the format that this APEX writes, and the newest that it reads.
pub const SCHEMA: u32 = 1;

/// Facts about a session that `apex run` writes when it starts, and again when the program has
/// ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the APEX that recorded.
    pub apex_version: String,
    /// The program and its arguments, as given.
    pub command: Vec<String>,
    /// Directory in which it was started.
    pub cwd: String,
    /// Process identifier of the program; of `apex` itself until it is started.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The start, in nanoseconds since 1970.
    pub started_real_ns: u64,
    /// The end, in nanoseconds since 1970; `None` while it runs, or if `apex` was killed.
    pub ended_real_ns: Option<u64>,
    /// The way in which it ended.
    pub exit: Option<Exit>,
    /// The device that executed the kernels: `gpu` or `cpu`.
    pub device: String,
    /// The kernels that were timed: `off`, `sampled` or `all`.
    pub timing: String,
    /// The machine.
    #[serde(default)]
    pub host: Host,
    /// The rank that was recorded, where each rank has an `apex run` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<RecordedRank>,
    /// The ranks of processes, by process identifier, where traces of other profilers or the names
    /// of their files tell them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ranks: BTreeMap<u32, u32>,
    /// Modules that the driver refused, and what `apex run --universal` did about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub universal: Vec<Refused>,
    /// Calls that asked for the compute capability and got another one than the driver's (`apex run
    /// --capability`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capability: Vec<ToldCapability>,
    /// The profilers whose traces the session was made of, with their versions. Empty if APEX
    /// recorded it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imported: Vec<String>,
    /// Whether the CPU device looked for defects (`apex run --check`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked: bool,
    /// Whether `apex attach` watched a process that ran already: then the session has no launches,
    /// and how the process ended is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// Identifier of the `apex attach` that watched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_by: Option<u32>,
}

/// A rank of a job, as its launcher named it to `apex run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRank {
    /// The rank.
    pub rank: u32,
    /// Processes of the job; `None` if the launcher does not say.
    pub world_size: Option<u32>,
    /// Number of restarts of the job before.
    pub restarts: u32,
    /// The job's name, if it has one.
    pub job: Option<String>,
}

/// A module that the driver refused under `apex run --universal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// Its first kernels.
    pub kernels: Vec<String>,
    /// The device's compute capability: 80 for 8.0.
    pub capability: u32,
    /// The driver's result.
    pub result: u32,
    /// Version and target of the module.
    pub before: String,
    /// What was loaded in its place: version and target of PTX, or machine code and who assembled
    /// it; `None` if the program got the driver's error.
    pub after: Option<String>,
    /// Whether machine code was: nothing of the module was changed then.
    pub assembled: bool,
    /// Why the ptxas that was asked for machine code, or that the user names, did not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptxas: Option<String>,
    /// The replaced instructions.
    pub changes: Vec<Replaced>,
    /// What nothing replaces, or only approximately.
    pub blocked: Vec<Lacking>,
    /// What kernels cost after the changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<LoweredCost>,
}

/// What a lowered kernel costs against the original: instructions that all warps of a launch of 64
/// blocks execute, predicted from the PTX without knowing the parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoweredCost {
    /// The kernel.
    pub kernel: String,
    /// Instructions of the original, predicted.
    pub before: f64,
    /// Instructions of the lowered kernel, predicted.
    pub after: f64,
}

// The counts are finite.
impl Eq for LoweredCost {}

/// A call that asked for the compute capability and got another answer than the driver's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct ToldCapability {
    /// Path of the library or program whose code made it.
    pub library: String,
    /// The call.
    pub call: String,
    /// The driver's answer.
    pub real: String,
    /// What it was told.
    pub told: String,
}

/// An instruction that was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replaced {
    /// Its function.
    pub function: String,
    /// Its line in the module's PTX, from 1.
    pub line: u32,
    /// The instruction, special register or directive.
    pub form: String,
    /// The row of the table of docs/universal.md.
    pub row: String,
    /// Whether the results are the same.
    pub exact: bool,
}

/// An instruction that the device does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lacking {
    /// Its function.
    pub function: String,
    /// Its line in the module's PTX, from 1.
    pub line: u32,
    /// The instruction, special register or directive.
    pub form: String,
    /// The alternatives that have it: `PTX 8.0 and sm_90a`.
    pub needs: Vec<String>,
}

/// The way in which a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The program exited with this status.
    Code(i32),
    /// The program was ended by this signal.
    Signal(i32),
}

/// The machine on which a session was recorded. Empty or zero where it could not be found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Logical processors that the program could use.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
}

impl Host {
    /// This machine.
    pub fn here() -> Host {
        let first_line = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let field = |path, name: &str| {
            let file = fs::read_to_string(path).unwrap_or_default();
            let line = file.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory_kib = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
        Host {
            name: first_line("/proc/sys/kernel/hostname"),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: field("/proc/cpuinfo", "model name"),
            cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
            memory_bytes: u64::saturating_mul(memory_kib, 1024),
        }
    }
}

impl Meta {
    /// Writes it into the session's folder: the file there is the old one or the new one, whole, at
    /// any moment.
    pub fn store(&self, folder: &Folder) -> io::Result<()> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        let stored = folder.replace(META_FILE, 0o600, &json);
        stored.map_err(|error| in_file("cannot write", &folder.path().join(META_FILE), error))
    }

    /// Whether this version of APEX recorded, or an older one.
    pub(crate) fn is_known(&self) -> bool {
        is_known(&self.apex_version)
    }

    /// Whether nothing more is recorded of the program. How it ended, nobody knows of one whose
    /// trace was imported, or that was watched for a while.
    pub fn is_over(&self) -> bool {
        self.exit.is_some() || !self.imported.is_empty() || self.attached && self.ended_real_ns.is_some()
    }

    /// The process that runs as long as the session is recorded: the program, or the `apex attach`
    /// that watches it.
    pub fn recorded_by(&self) -> Option<u32> {
        if self.attached { self.watched_by } else { self.pid }
    }

    /// Whether the session in a folder is one of `apex attach`.
    pub fn is_attached(dir: &Path) -> bool {
        Meta::load(dir).is_ok_and(|(meta, _)| meta.is_some_and(|meta| meta.attached))
    }

    /// Whether the session in a folder says that its program has ended.
    pub fn has_ended(dir: &Path) -> bool {
        Meta::load(dir).is_ok_and(|(meta, _)| meta.is_some_and(|meta| meta.is_over()))
    }

    /// Reads it; none, with a problem, if it is missing or damaged. An error if a newer APEX wrote
    /// it.
    pub(crate) fn load(dir: &Path) -> Result<(Option<Meta>, Vec<Problem>), Error> {
        #[derive(Deserialize)]
        struct Schema {
            schema: u32,
            #[serde(default)]
            apex_version: String,
        }
        let path = dir.join(META_FILE);
        let problem = |what: String| Ok((None, vec![Problem { path: path.clone(), offset: None, what }]));
        let json = match read::read(&path, read::SESSION_JSON) {
            Ok(json) => json,
            Err(error) => return problem(format!("cannot be read: {error}; what was run is unknown")),
        };
        match serde_json::from_slice(&json) {
            Ok(Schema { schema, apex_version }) if schema > SCHEMA && !is_known(&apex_version) => {
                return Err(Error::Newer { path, version: schema, supported: SCHEMA });
            }
            _ => {}
        }
        match serde_json::from_slice::<Meta>(&json) {
            Ok(meta) if meta.schema != SCHEMA => {
                let what = format!("is damaged: its schema is {}, and it is read as {SCHEMA}", meta.schema);
                let problem = Problem { path, offset: None, what };
                Ok((Some(meta), vec![problem]))
            }
            Ok(meta) => Ok((Some(meta), Vec::new())),
            Err(error) => problem(format!("is damaged: {error}; what was run is unknown")),
        }
    }
}

/// Whether a version of APEX, such as `0.9.1`, is this one or an older one.
fn is_known(version: &str) -> bool {
    let numbers = |version: &str| -> Option<Vec<u32>> {
        version.split(['.', '-']).take(3).map(|number| number.parse().ok()).collect()
    };
    let (found, own) = (numbers(version), numbers(env!("CARGO_PKG_VERSION")));
    found.is_some_and(|found| found.len() == 3 && own.is_some_and(|own| found <= own))
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn a_later_version_and_no_version_are_not_known() {
        let own = env!("CARGO_PKG_VERSION");
        for (version, expected) in
            [(own, true), ("0.0.0", true), ("99.0.0", false), ("", false), ("0.0", false), ("x.y.z", false)]
        {
            assert_eq!(is_known(version), expected, "{version}");
        }
    }
}
