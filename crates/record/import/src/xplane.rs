//! JAX's planes (`*.xplane.pb`): XLA's record of a profile in protocol buffers.
//!
//! A space has planes (a device or the host), a plane has lines (a stream or a thread), and a line
//! has events. Names are numbers that a plane defines behind its lines, so a plane is read as a
//! whole. Times are picoseconds from the line's start, which is in nanoseconds, and are rounded to
//! nanoseconds. Nothing is allocated by a length that the file claims: fields are parts of the
//! file's bytes.

use crate::bounds::MOST_BYTES;
use crate::error::Error;
use crate::model::{Device, Process, Thread, Trace};
use crate::xla::{self, Event, Plane, Xla};
use apex_untrusted::read;
use cuda_launch::attribute;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Bytes of a file that is read, at most: what protocol buffers hold.
const MOST_FILE: u64 = 2 << 30;
/// Messages of XLA that are passed on, and characters of one.
const MOST_MESSAGES: usize = 5;
const MOST_MESSAGE: usize = 200;

/// Reads a file of planes.
///
/// # Errors
/// If it is not one of a CUDA device, damaged, or too large.
pub fn read(path: &Path) -> Result<Trace, Error> {
    let unreadable = |error| Error::Unreadable(path.to_owned(), error);
    let mut bytes = Vec::new();
    let file = read::open(path, MOST_BYTES).map_err(unreadable)?;
    file.take(MOST_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST_FILE {
        return Err(Error::refused(path, "it has more than 2 GiB, which no file of planes has"));
    }
    let mut trace = Trace { tool: "JAX (XLA's xplane.pb)".to_owned(), ..Trace::default() };
    let mut process = Process::default();
    let mut fields = Fields { whole: &bytes, at: 0 };
    while let Some(field) = fields.next() {
        match field {
            Ok((1, Value::Bytes(plane))) => self::plane(plane, &mut process, &mut trace)
                .map_err(|refusal| refusal.of(path, fields.at as u64))?,
            Ok((2 | 3, Value::Bytes(message))) => said(message, &mut trace),
            Ok(_) => {}
            Err(Damage) if trace.events == 0 => return Err(Refusal::Damaged.of(path, fields.at as u64)),
            Err(Damage) => {
                trace.end_early(&format!("byte {} is no field, or the file ends in it", fields.at));
                break;
            }
        }
    }
    if process.frames.is_empty() {
        trace
            .remarks
            .push("this trace has no frames of Python, so no lines of the program are named".to_owned());
    }
    trace.remarks.push(
        "this trace has no paths of files, no sizes of allocations, and not all attributes of the GPU"
            .to_owned(),
    );
    xla::finish(&mut process);
    trace.processes.push(process);
    Ok(trace)
}

/// An error or a warning of XLA.
fn said(message: &[u8], trace: &mut Trace) {
    if trace.remarks.len() < MOST_MESSAGES {
        let text: String = String::from_utf8_lossy(message).chars().take(MOST_MESSAGE).collect();
        trace.remarks.push(format!("XLA says: {}", text.replace('\n', " ")));
    }
}

/// A field does not make sense.
#[derive(Debug, PartialEq, Eq)]
struct Damage;

/// Reason for which a file is not read.
enum Refusal {
    Damaged,
    Because(&'static str),
}

impl From<Damage> for Refusal {
    fn from(_: Damage) -> Self {
        Self::Damaged
    }
}

impl Refusal {
    fn of(self, path: &Path, at: u64) -> Error {
        match self {
            Self::Because(what) => Error::refused(path, what),
            Self::Damaged => {
                let what = "no file of planes is here: it is damaged, or was copied in part".to_owned();
                Error::Damaged { path: path.to_owned(), at, what }
            }
        }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A number of fixed width, which is not needed.
    Fixed,
}

/// The fields of a message.
struct Fields<'a> {
    whole: &'a [u8],
    at: usize,
}

/// The fields of these bytes.
fn fields(whole: &[u8]) -> Fields<'_> {
    Fields { whole, at: 0 }
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Damage> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.whole.get(self.at).ok_or(Damage)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Damage> {
        let length = usize::try_from(length).map_err(|_| Damage)?;
        let end = self.at.checked_add(length).ok_or(Damage)?;
        let part = self.whole.get(self.at..end).ok_or(Damage)?;
        self.at = end;
        Ok(part)
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), Damage> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Damage),
        };
        Ok((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.at < self.whole.len()).then(|| {
            let field = self.field();
            // What follows a field that makes no sense makes none.
            if field.is_err() {
                self.whole = &self.whole[..self.at.min(self.whole.len())];
            }
            field
        })
    }
}

/// Definitions of a plane: names of events and of their stats.
#[derive(Default)]
struct Names<'a> {
    events: HashMap<u64, &'a [u8]>,
    stats: HashMap<u64, &'a [u8]>,
}

/// An entry of a map from numbers to messages that have a name.
fn entry(bytes: &[u8]) -> Result<(u64, &[u8]), Damage> {
    let (mut id, mut name): (u64, &[u8]) = (0, b"");
    for field in fields(bytes) {
        match field? {
            (1, Value::Number(number)) => id = number,
            (2, Value::Bytes(message)) => {
                for field in fields(message) {
                    if let (2, Value::Bytes(text)) = field? {
                        name = text;
                    }
                }
            }
            _ => {}
        }
    }
    Ok((id, name))
}

/// The value of a stat: a number, or a text.
#[derive(Clone, Copy)]
enum Stat<'a> {
    Number(u64),
    Text(&'a [u8]),
}

impl<'a> Stat<'a> {
    /// The stat with its name.
    fn of(bytes: &'a [u8], names: &Names<'a>) -> Result<Option<(&'a [u8], Self)>, Damage> {
        let (mut id, mut value) = (0, None);
        for field in fields(bytes) {
            match field? {
                (1, Value::Number(number)) => id = number,
                (3 | 4, Value::Number(number)) => value = Some(Stat::Number(number)),
                (5 | 6, Value::Bytes(text)) => value = Some(Stat::Text(text)),
                // Texts that occur often are names.
                (7, Value::Number(of)) => value = names.stats.get(&of).map(|text| Stat::Text(text)),
                _ => {}
            }
        }
        Ok(names.stats.get(&id).zip(value).map(|(name, value)| (*name, value)))
    }

    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Text(text) => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
            }
        }
    }

    fn text(self) -> &'a str {
        match self {
            Self::Text(text) => std::str::from_utf8(text).unwrap_or_default(),
            Self::Number(_) => "",
        }
    }
}

/// Reads a plane.
fn plane(bytes: &[u8], process: &mut Process, trace: &mut Trace) -> Result<(), Refusal> {
    let (mut name, mut names) = (String::new(), Names::default());
    let (mut lines, mut stats) = (Vec::new(), Vec::new());
    for field in fields(bytes) {
        match field? {
            (2, Value::Bytes(text)) => name = String::from_utf8_lossy(text).into_owned(),
            (3, Value::Bytes(line)) => lines.push(line),
            (4, Value::Bytes(bytes)) => drop(entry(bytes).map(|(id, name)| names.events.insert(id, name))?),
            (5, Value::Bytes(bytes)) => drop(entry(bytes).map(|(id, name)| names.stats.insert(id, name))?),
            (6, Value::Bytes(stat)) => stats.push(stat),
            _ => {}
        }
    }
    if name == "Task Environment" {
        return Ok(began(&stats, &names, process)?);
    }
    match Plane::of(&name) {
        Some(Plane::Tpu) => return Err(Refusal::Because(xla::TPU)),
        Some(Plane::Gpu(ordinal)) => device(ordinal, &stats, &names, process)?,
        Some(Plane::Host) => {}
        None => return Ok(()),
    }
    let plane = Plane::of(&name).unwrap_or(Plane::Host);
    lines.into_iter().try_for_each(|line| self::line(line, plane, &names, process, trace))
}

/// Start of the profile, in nanoseconds since 1970.
fn began(stats: &[&[u8]], names: &Names<'_>, process: &mut Process) -> Result<(), Damage> {
    for stat in stats {
        if let Some((b"profile_start_time", value)) = Stat::of(stat, names)? {
            process.epoch_ns = i64::try_from(value.number()).unwrap_or(0);
        }
    }
    Ok(())
}

/// Description of a plane's device.
fn device(ordinal: u32, stats: &[&[u8]], names: &Names<'_>, process: &mut Process) -> Result<(), Refusal> {
    let mut device = Device::default();
    for stat in stats {
        let Some((name, value)) = Stat::of(stat, names)? else { continue };
        let attribute = match name {
            b"device_vendor" if value.text() == "AMD" => return Err(Refusal::Because(xla::AMD)),
            b"gpu_device_name" | b"device_name" => {
                device.name = value.text().chars().take(256).collect();
                continue;
            }
            b"memory_size" => {
                device.memory_bytes = value.number();
                continue;
            }
            b"core_count" => attribute::MULTIPROCESSOR_COUNT,
            b"compute_cap_major" => attribute::COMPUTE_CAPABILITY_MAJOR,
            b"compute_cap_minor" => attribute::COMPUTE_CAPABILITY_MINOR,
            _ => continue,
        };
        if let Ok(value) = i32::try_from(value.number()) {
            device.attributes.push((attribute, value));
        }
    }
    if process.devices.len() < 1024 {
        process.devices.insert(ordinal, device);
    }
    Ok(())
}

/// Reads a line.
fn line(
    bytes: &[u8],
    plane: Plane,
    names: &Names<'_>,
    process: &mut Process,
    trace: &mut Trace,
) -> Result<(), Refusal> {
    let (mut id, mut name, mut display, mut began) = (0, "", "", 0_i64);
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    for field in fields(bytes) {
        match field? {
            (1, Value::Number(number)) => id = number,
            (2, Value::Bytes(bytes)) => name = text(bytes),
            (3, Value::Number(ns)) => began = ns.cast_signed(),
            (11, Value::Bytes(bytes)) => display = text(bytes),
            _ => {}
        }
    }
    let name = if display.is_empty() { name } else { display };
    let thread = Thread { process: 0, id };
    if plane == Plane::Host && !name.is_empty() && process.thread_names.len() < 100_000 {
        process.thread_names.insert(thread, name.chars().take(64).collect());
    }
    for field in fields(bytes) {
        let (4, Value::Bytes(bytes)) = field? else { continue };
        trace.events += 1;
        let Some(event) = event(bytes, began, names)? else {
            trace.leave_out("sums of events without a time");
            continue;
        };
        let mut xla = Xla { process, trace };
        let done = match plane {
            Plane::Gpu(ordinal) => xla.on_device(ordinal, xla::stream_of(name), &event),
            Plane::Host | Plane::Tpu => xla.on_host(thread, &event),
        };
        done.map_err(Refusal::Because)?;
    }
    Ok(())
}

/// Reads an event; `None` for the sum of several, which has no time.
fn event<'a>(bytes: &'a [u8], began: i64, names: &Names<'a>) -> Result<Option<Event<'a>>, Damage> {
    let mut event = Event { start: began, ..Event::default() };
    let mut is_sum = false;
    for field in fields(bytes) {
        match field? {
            (1, Value::Number(id)) => {
                let name = names.events.get(&id).copied().unwrap_or_default();
                event.name = std::str::from_utf8(name).unwrap_or("(no UTF-8)");
            }
            (2, Value::Number(ps)) => event.start = began.saturating_add(nanoseconds(ps).cast_signed()),
            (3, Value::Number(ps)) => event.ns = nanoseconds(ps),
            (4, Value::Bytes(stat)) => {
                if let Some((name, value)) = Stat::of(stat, names)? {
                    match name {
                        b"correlation_id" => event.correlation = value.number(),
                        b"context_id" => event.context = xla::context(value.text()),
                        b"kernel_details" | b"memcpy_details" | b"memset_details" => {
                            event.details = value.text();
                        }
                        b"step_num" => event.has_step = true,
                        _ => {}
                    }
                }
            }
            (5, Value::Number(_)) => is_sum = true,
            _ => {}
        }
    }
    Ok((!is_sum).then_some(event))
}

/// Picoseconds, rounded to nanoseconds.
fn nanoseconds(ps: u64) -> u64 {
    ps / 1000 + u64::from(ps % 1000 >= 500)
}
