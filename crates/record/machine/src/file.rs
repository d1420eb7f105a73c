//! The session's file: lines of JSON, appended one by one.
//!
//! The first line names the format, a line defines each device before a record names it, and each
//! other line is a [`Record`]. Each line is written by one call, so that a process that is killed
//! leaves whole lines and at most one torn one at the end. When the file has reached its size,
//! neighbouring records are merged and a new file takes its place: at any moment, one of both is
//! there.

use crate::record::{Device, DeviceRecord, Record, downsample};
use apex_conventions::documents::MACHINE;
use apex_ordered::Order;
use apex_trace::Meta;
use apex_untrusted::folder::identity;
use apex_untrusted::lines::{self, Unread};
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
/// The beginnings of lines.
const BEGINNINGS: [&str; 3] = ["{\"schema\":\"", "{\"device\":{", "{\"record\":{"];
/// The place of a device's line in them.
const DEVICE: usize = 1;
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

    /// Whether it has no member that this version knows.
    fn is_empty(&self) -> bool {
        self.schema.is_none() && self.device.is_none() && self.record.is_none()
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
        if !apex_trace::is_joined(dir) {
            return Self::read_one(dir);
        }
        let mut hosts: Vec<String> = Vec::new();
        let mut whole = Self::default();
        for member in apex_trace::members(dir) {
            let read = Self::read_one(&member.dir);
            // Several members of a host read the same devices.
            if read.records.is_empty() || !member.host.is_empty() && hosts.contains(&member.host) {
                continue;
            }
            hosts.push(member.host);
            whole.take_host(read, member.offset_ns);
        }
        whole
    }

    /// Takes what was read of another host of a joined session: its devices' readings, at the same
    /// times as the records of the first host. The readings of a host stay those of the first one.
    fn take_host(&mut self, mut other: Self, offset_ns: i64) {
        let devices = self.devices.len();
        for record in &mut other.records {
            record.from_ns = record.from_ns.saturating_add_signed(offset_ns);
            record.to_ns = record.to_ns.saturating_add_signed(offset_ns);
            for device in &mut record.devices {
                device.device += devices;
                let moments = device.energy.iter_mut();
                moments.for_each(|(at_ns, _)| *at_ns = at_ns.saturating_add_signed(offset_ns));
            }
        }
        self.devices.append(&mut other.devices);
        self.problems.append(&mut other.problems);
        if self.records.is_empty() {
            self.records = other.records;
            return;
        }
        for record in other.records {
            let middle = record.from_ns + record.ns() / 2;
            let at = self.records.partition_point(|known| known.to_ns <= middle);
            let Some(known) = self.records.get_mut(at).filter(|known| known.from_ns <= middle) else {
                continue;
            };
            let is_new = |device: &DeviceRecord| known.devices.iter().all(|one| one.device != device.device);
            let mut new: Vec<DeviceRecord> = record.devices.into_iter().filter(is_new).collect();
            known.devices.append(&mut new);
        }
    }

    /// Reads the file of a session that is not joined.
    fn read_one(dir: &Path) -> Self {
        let mut watcher = Watcher::new(dir);
        watcher.look();
        if watcher.is_cut && Meta::has_ended(dir) {
            let what = match watcher.machine.records.is_empty() && watcher.lines == 0 {
                true => "is empty: what the machine did meanwhile is not known",
                false => "is cut: its end is missing, and what the machine did then is not known",
            };
            watcher.machine.problem(&watcher.path, what);
        }
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
        let first = serde_json::Deserializer::from_slice(line).into_iter::<Line>().next();
        let first = first.ok_or("damaged: it is empty")?;
        let bytes = line;
        let line = first.map_err(|error| format!("damaged: {error}"))?;
        if line.is_empty() && lines::kind(bytes, &BEGINNINGS).is_some() {
            return Err("damaged: it has no member that is known".to_owned());
        }
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
        record.devices.order_by_key(|device| device.device);
        record.devices.dedup_by_key(|device| device.device);
        record.devices.iter_mut().for_each(DeviceRecord::keep_ascending);
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
    unread: Unread,
    /// Whether there is no whole line at the end.
    is_cut: bool,
    machine: Machine,
}

impl Watcher {
    /// Will follow the file of the session in `dir`.
    pub fn new(dir: &Path) -> Self {
        let (path, unread, machine) = (dir.join(FILE), Unread::default(), Machine::default());
        Self { path, read: None, lines: 0, unread, is_cut: false, machine }
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
            (self.machine, self.lines, self.unread) = (Machine::default(), 0, Unread::default());
        }
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        file.take(MOST_READ).read_to_end(&mut bytes)?;
        // What is behind the last end of a line is a line that is being written.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in bytes[..whole].split_inclusive(|&byte| byte == b'\n') {
            self.lines += 1;
            self.take(line.strip_suffix(b"\n").unwrap_or(line));
        }
        self.is_cut = whole < bytes.len() || self.lines == 0;
        self.machine.problems.clear();
        if let Some(said) = self.unread.said() {
            let what = format!("{said}; what the machine did in the time of such lines is not known");
            self.machine.problem(&self.path, &what);
        }
        self.read = Some((identity(&found), at + whole as u64));
        Ok(())
    }
    /// Takes a line, or the sound ones of lines between which the break was destroyed.
    fn take(&mut self, line: &[u8]) {
        let is_sound = line.is_empty() || serde_json::from_slice::<Line>(line).is_ok();
        let pieces = if is_sound { vec![line] } else { lines::pieces(line, &BEGINNINGS) };
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            let Err(what) = self.machine.take(piece) else { continue };
            self.unread.add(self.lines, &what);
            // Devices are numbered by their order: one that is lost keeps its number.
            if lines::kind(piece, &BEGINNINGS) == Some(DEVICE) && self.machine.devices.len() < MOST_DEVICES {
                self.machine.devices.push(Device::default());
            }
        }
    }
}
