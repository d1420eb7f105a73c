//! The session's file: lines of JSON, appended one by one.
//!
//! The first line names the format, a line defines each device before a record names it, and each
//! other line is a [`Record`]. Each line is written by one call, so that a process that is killed
//! leaves whole lines and at most one torn one at the end. When the file has reached its size,
//! neighbouring records are merged and a new file takes its place: at any moment, one of both is
//! there.

use crate::record::{Device, Record, downsample};
use apex_conventions::documents::MACHINE;
use apex_untrusted::folder::identity;
use apex_untrusted::{Folder, read};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Its name in a session's folder.
pub const FILE: &str = "machine.jsonl";
/// Most bytes that are written.
pub(crate) const MOST_BYTES: u64 = 4 << 20;
/// Most bytes that are read.
const MOST_READ: u64 = 4 * MOST_BYTES;
/// Devices that are read: more than machines have.
const MOST_DEVICES: usize = 256;
/// Problems that are kept.
const MOST_PROBLEMS: usize = 20;

/// A line of the file: one of these.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Device>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<Record>,
}

impl Line {
    fn head() -> Self {
        Self { schema: Some(MACHINE.to_string()), ..Self::default() }
    }

    fn device(device: &Device) -> Self {
        Self { device: Some(device.clone()), ..Self::default() }
    }

    fn record(record: Record) -> Self {
        Self { record: Some(record), ..Self::default() }
    }

    fn append(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        serde_json::to_writer(&mut *bytes, self)?;
        bytes.push(b'\n');
        Ok(())
    }
}

/// Appends to a session's file.
#[derive(Debug)]
pub struct Writer {
    folder: Folder,
    file: Option<File>,
    devices: Vec<Device>,
    bytes: u64,
    most_bytes: u64,
}

impl Writer {
    /// Will make the file in this folder with the first record. It will have at most `most_bytes`.
    pub fn new(folder: Folder, most_bytes: u64) -> Self {
        Self { folder, file: None, devices: Vec::new(), bytes: 0, most_bytes }
    }

    /// Adds a device, which has the next index.
    ///
    /// # Errors
    /// Those of the system.
    pub fn device(&mut self, device: &Device) -> io::Result<()> {
        self.devices.push(device.clone());
        if self.file.is_some() { self.write(&Line::device(device)) } else { Ok(()) }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Those of the system. The file then has a torn last line at most, and must not be written to
    /// any more.
    pub fn record(&mut self, record: Record) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(self.folder.create_new(FILE)?);
            self.write_head()?;
        }
        self.write(&Line::record(record))?;
        if self.bytes > self.most_bytes { self.thin() } else { Ok(()) }
    }

    fn write_head(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.head(&mut bytes)?;
        self.write_bytes(&bytes)
    }

    fn head(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        Line::head().append(bytes)?;
        self.devices.iter().try_for_each(|device| Line::device(device).append(bytes))
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = Vec::new();
        line.append(&mut bytes)?;
        self.write_bytes(&bytes)
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Replaces the file by one of half its size at most.
    fn thin(&mut self) -> io::Result<()> {
        let path = self.folder.path().join(FILE);
        let records = Machine::read(self.folder.path()).records;
        let mut most = records.len();
        let bytes = loop {
            most /= 2;
            let mut bytes = Vec::new();
            self.head(&mut bytes)?;
            let merged = downsample(&records, most);
            merged.into_iter().try_for_each(|record| Line::record(record).append(&mut bytes))?;
            if bytes.len() as u64 <= self.most_bytes / 2 || most <= 1 {
                break bytes;
            }
        };
        self.folder.replace(FILE, 0o600, &bytes)?;
        let mut options = File::options();
        self.file = Some(options.append(true).custom_flags(libc::O_NOFOLLOW).open(path)?);
        self.bytes = bytes.len() as u64;
        Ok(())
    }
}

/// The state of the machine while a session was recorded. Empty if it is not known. Empty where
/// that is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// The devices that NVML showed.
    pub devices: Vec<Device>,
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// The problems of the file, a sentence each.
    pub problems: Vec<String>,
}

impl Machine {
    /// Reads the file of the session in `dir`. A session without one is no problem: the program
    /// was short, or the session is older than this.
    pub fn read(dir: &Path) -> Self {
        let mut watcher = Watcher::new(dir);
        watcher.look();
        watcher.machine
    }

    /// The records that end after a moment of the monotonic clock.
    pub fn since(&self, from_ns: u64) -> &[Record] {
        &self.records[self.records.partition_point(|record| record.to_ns <= from_ns)..]
    }

    /// Returns the records that lie in a window of the monotonic clock, at least in part.
    #[must_use]
    pub fn window(&self, from_ns: u64, to_ns: u64) -> Self {
        let records = self.since(from_ns);
        let records = &records[..records.partition_point(|record| record.from_ns < to_ns)];
        Self { devices: self.devices.clone(), records: records.to_vec(), problems: self.problems.clone() }
    }

    fn problem(&mut self, path: &Path, what: &str) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(format!("{}: {what}", apex_untrusted::shown(path)));
        }
    }

    /// Takes a line, or says what is wrong with it.
    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let line: Line = serde_json::from_slice(line).map_err(|error| format!("damaged: {error}"))?;
        line.schema.map_or(Ok(()), |schema| MACHINE.check(&schema))?;
        if let Some(device) = line.device {
            if self.devices.len() == MOST_DEVICES {
                return Err(format!("it has more than {MOST_DEVICES} devices"));
            }
            self.devices.push(device);
        }
        let Some(mut record) = line.record else { return Ok(()) };
        let last = self.records.last().map_or(0, |record| record.to_ns);
        if record.from_ns < last || record.to_ns <= record.from_ns {
            return Err("a record that goes back in time".to_owned());
        }
        let known = self.devices.len();
        record.devices.retain(|device| device.device < known);
        record.devices.sort_by_key(|device| device.device);
        record.devices.dedup_by_key(|device| device.device);
        self.records.push(record);
        Ok(())
    }
}

/// Follows a session's file while it grows: each look reads what is new.
#[derive(Debug)]
pub struct Watcher {
    path: PathBuf,
    /// Device and inode of the file that was read, and how far.
    read: Option<((u64, u64), u64)>,
    lines: u64,
    machine: Machine,
}

impl Watcher {
    /// Will follow the file of the session in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE), read: None, lines: 0, machine: Machine::default() }
    }

    /// Reads what is new, and returns all that is known.
    pub fn look(&mut self) -> &Machine {
        match self.read_on() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let path = self.path.clone();
                self.machine.problems.clear();
                self.machine.problem(&path, &format!("cannot be read: {error}"));
            }
        }
        &self.machine
    }

    fn read_on(&mut self) -> io::Result<()> {
        let mut file = read::open(&self.path, MOST_READ)?;
        let found = file.metadata()?;
        let same = self.read.filter(|(known, at)| *known == identity(&found) && *at <= found.len());
        let at = same.map_or(0, |(_, at)| at);
        if same.is_none() {
            (self.machine, self.lines) = (Machine::default(), 0);
        }
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        file.take(MOST_READ).read_to_end(&mut bytes)?;
        // What is behind the last end of a line is a line that is being written.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            self.lines += 1;
            if let Err(what) = self.machine.take(line) {
                let path = self.path.clone();
                self.machine.problem(&path, &format!("line {}: {what}", self.lines));
            }
        }
        self.read = Some((identity(&found), at + whole as u64));
        Ok(())
    }
}
