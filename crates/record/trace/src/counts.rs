//! The file with the counts and defects of a device: `<pid>-<start>.counts`.
//!
//! It has a header of [`HEADER_BYTES`], then records, each framed like a definition: tag, length,
//! payload, padding to eight bytes. Each record is appended by one write, so a killed process
//! leaves complete records and perhaps the beginning of one. There are few records (a launch of
//! each configuration, and some later ones), so the file is not mapped and no descriptor is kept
//! open. Its bytes count towards the session's limit, like those of process files.

use apex_counts::{Counted, Counts, Defect, Fault, Hotspot, Line, LineCounts, MAX_LINES, Place, Traffic};
use apex_untrusted::folder::{Folder, identity};
use apex_untrusted::read::{self, open_in_place};
use cuda_launch::LaunchConfig;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::codec::{ALIGNMENT, HEAD_BYTES, Input, Output, framed};
use crate::control::{Control, MappedControl};
use crate::error::{Error, Problem, in_file};
use crate::mapping::without_sigxfsz;
use crate::source::{self, SourceFile};

/// The extension of these files.
pub const EXTENSION: &str = "counts";
/// First bytes of such a file.
pub const MAGIC: [u8; 8] = *b"APEXCNT\n";
/// Version of the format that this APEX writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Magic, version, process identifier, start (nanoseconds since 1970), eight bytes of zeros.
pub const HEADER_BYTES: usize = 32;

mod tag {
    pub const LAUNCH: u32 = 1;
    pub const DEFECT: u32 = 2;
    pub const SOURCE: u32 = 3;
    pub const MACHINE_CODE: u32 = 4;
}

/// The counts of one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Name of the kernel, as the driver gives it.
    pub kernel: String,
    /// The configuration; its clusters are not in the file.
    pub launch: LaunchConfig,
    /// The counts.
    pub counted: Counted,
}

/// A file of this process that is written. It appears with the first record.
#[derive(Debug)]
pub struct CountsFile {
    path: PathBuf,
    /// Device and inode, by which the file is known again.
    identity: (u64, u64),
    pid: u32,
    buffer: Vec<u8>,
    /// The session's page, if it has one.
    control: Option<MappedControl>,
}

impl CountsFile {
    /// The file of this process in the session's directory `dir`.
    ///
    /// # Errors
    /// If it cannot be created, or the session's limit is reached; the error names it.
    pub fn create(dir: &Path) -> io::Result<CountsFile> {
        let control = MappedControl::open(dir).ok();
        let pid = std::process::id();
        let mut start =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        // The program may change its directory.
        let dir = std::path::absolute(dir)?;
        let folder = Folder::open(&dir).map_err(|error| in_file("cannot open", &dir, error))?;
        loop {
            let name = format!("{pid}-{start}.{EXTENSION}");
            let path = dir.join(&name);
            take(control.as_deref(), HEADER_BYTES, &path)?;
            match folder.create_new(&name) {
                Ok(mut file) => {
                    let mut header = Vec::with_capacity(HEADER_BYTES);
                    header.extend_from_slice(&MAGIC);
                    header.extend_from_slice(&VERSION.to_le_bytes());
                    header.extend_from_slice(&pid.to_le_bytes());
                    header.extend_from_slice(&start.to_le_bytes());
                    header.resize(HEADER_BYTES, 0);
                    let written = without_sigxfsz(|| file.write_all(&header)).and_then(|()| file.metadata());
                    let metadata = written.map_err(|error| in_file("cannot write", &path, error))?;
                    let identity = identity(&metadata);
                    return Ok(CountsFile { path, identity, pid, buffer: Vec::new(), control });
                }
                Err(error) => {
                    give_back(control.as_deref(), HEADER_BYTES);
                    if error.kind() != io::ErrorKind::AlreadyExists {
                        return Err(in_file("cannot create", &path, error));
                    }
                    start += 1;
                }
            }
        }
    }

    /// Whether the file is this process's own, and not that of the one it was forked from.
    pub fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Appends the counts of a launch.
    ///
    /// # Errors
    /// If they cannot be written, or the session's limit leaves no room; the error names the file.
    pub fn launch(&mut self, launch: &LaunchCounts) -> io::Result<()> {
        self.append(tag::LAUNCH, |out| write_launch(out, launch))
    }

    /// Appends a defect. Of one that is there already the larger count holds.
    ///
    /// # Errors
    /// If it cannot be written, or the session's limit leaves no room; the error names the file.
    pub fn defect(&mut self, defect: &Defect) -> io::Result<()> {
        self.append(tag::DEFECT, |out| {
            out.string(&defect.kind);
            out.string(&defect.kernel);
            out.string(&defect.text);
            write_place(out, &defect.place);
            out.list(defect.other.as_slice(), write_place);
            out.u64(defect.count);
            out.u64(defect.places);
        })
    }

    /// Appends the name of a kernel of which parts were executed as machine code.
    ///
    /// # Errors
    /// If it cannot be written, or the session's limit leaves no room; the error names the file.
    pub fn machine_code(&mut self, kernel: &str) -> io::Result<()> {
        self.append(tag::MACHINE_CODE, |out| out.string(kernel))
    }

    /// Keeps the text of a source file in the session, where that keeps code (`apex run --code`),
    /// and appends what became of it.
    ///
    /// # Errors
    /// If the record cannot be written, or the session's limit leaves no room; the error names the
    /// file. A source file that cannot be read or kept is no error: the record says why.
    pub fn source(&mut self, name: &str) -> io::Result<()> {
        let Some(control) = self.control.as_deref().filter(|control| control.keeps_code()) else {
            return Ok(());
        };
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let kept = source::keep(dir, control, Path::new(name)).map_err(|error| error.to_string());
        self.append(tag::SOURCE, |out| {
            out.string(name);
            let (hash, why) = kept.as_ref().map_or_else(|why| (0, &**why), |hash| (*hash, ""));
            out.bytes(&hash.to_le_bytes());
            out.string(why);
        })
    }

    fn append(&mut self, tag: u32, fill: impl FnOnce(&mut Output<'_>)) -> io::Result<()> {
        let no_memory = || in_file("cannot write", &self.path, io::ErrorKind::OutOfMemory.into());
        let bytes = framed(&mut self.buffer, tag, fill).ok_or_else(no_memory)?;
        take(self.control.as_deref(), bytes.len(), &self.path)?;
        let written = reopened(&self.path, self.identity).and_then(|(mut file, end)| {
            // Half a record, of which the rest found no space, would end the file for its readers.
            without_sigxfsz(|| file.write_all(bytes)).inspect_err(|_| drop(file.set_len(end)))
        });
        written.map_err(|error| in_file("cannot write", &self.path, error))
    }
}

/// The file, open at its end, and where that is; unless another one was put in its place.
fn reopened(path: &Path, known: (u64, u64)) -> io::Result<(File, u64)> {
    let mut file = open_in_place(path)?;
    if identity(&file.metadata()?) != known {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    let end = file.seek(SeekFrom::End(0))?;
    Ok((file, end))
}

/// Takes bytes out of the session's limit.
fn take(control: Option<&Control>, bytes: usize, path: &Path) -> io::Result<()> {
    if control.is_none_or(|control| control.take(bytes as u64)) {
        return Ok(());
    }
    let error = io::Error::other("the session's size limit is reached");
    Err(in_file("cannot write", path, error))
}

fn give_back(control: Option<&Control>, bytes: usize) {
    control.inspect(|control| control.give_back(bytes as u64));
}

fn write_launch(out: &mut Output<'_>, launch: &LaunchCounts) {
    let LaunchCounts { kernel, launch, counted } = launch;
    let Counted { counts, hotspots, lines, lines_left_out, watched, executed } = counted;
    let u64s = |out: &mut Output<'_>, list: &[u64]| out.list(list, |out, &value| out.u64(value));
    out.string(kernel);
    out.u32s(&launch.grid.to_array());
    out.u32s(&launch.block.to_array());
    out.u32(launch.dynamic_shared_bytes);
    u64s(out, &counts.warp_instructions);
    u64s(out, &counts.thread_instructions);
    u64s(out, &counts.operations);
    out.list(counts.traffic.as_flattened(), |out, traffic| {
        let Traffic { requests, threads, bytes, transactions, excess } = *traffic;
        [requests, threads, bytes, transactions, excess].into_iter().for_each(|value| out.u64(value));
    });
    u64s(out, &[counts.not_predicated_off, counts.branches, counts.divergent_branches]);
    out.list(hotspots, |out, hotspot| {
        out.u32(hotspot.fault as u32);
        write_place(out, &hotspot.place);
        [hotspot.events, hotspot.total, hotspot.excess].into_iter().for_each(|value| out.u64(value));
    });
    out.u64(*watched);
    out.u64(*executed);
    write_lines(out, lines);
    out.u64(*lines_left_out);
}

/// Names of files, each once, and then the lines: place of the name, line, number of counts,
/// counts.
fn write_lines(out: &mut Output<'_>, lines: &[Line]) {
    let lines = &lines[..lines.len().min(MAX_LINES)];
    let mut names: Vec<&str> = lines.iter().map(|line| &*line.file).collect();
    names.sort_unstable();
    names.dedup();
    out.list(&names, |out, name| out.string(name));
    out.list(lines, |out, Line { file, line, counts }| {
        // The name is among them.
        let place = names.binary_search(&&**file).unwrap_or_default();
        [place as u64, u64::from(*line), LineCounts::VALUES as u64].into_iter().for_each(|v| out.short(v));
        counts.values().into_iter().for_each(|value| out.short(value));
    });
}

fn write_place(out: &mut Output<'_>, place: &Place) {
    out.string(&place.instruction);
    out.u32(place.ptx_line);
    out.string(&place.file);
    out.u32(place.line);
}

/// The content of a process's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Its identifier.
    pub pid: u32,
    /// Launches that were counted, in the order of their ends.
    pub launches: Vec<LaunchCounts>,
    /// Defects, each once.
    pub defects: Vec<Defect>,
    /// Kernels of which parts were executed as machine code.
    pub machine_code: Vec<String>,
    /// Source files that its kernels' line tables name, where the session keeps code.
    pub sources: Vec<SourceFile>,
}

impl ProcessCounts {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If a newer APEX wrote it. What is wrong with it is a problem, and the rest is returned.
    pub fn read(path: &Path) -> Result<(ProcessCounts, Vec<Problem>), Error> {
        match read::read(path, read::COUNTS) {
            Ok(bytes) => ProcessCounts::from_bytes(path, &bytes),
            Err(error) => {
                let what = format!("cannot be read: {error}; what was counted is missing");
                Ok((ProcessCounts::default(), vec![Problem { path: path.to_owned(), offset: None, what }]))
            }
        }
    }

    /// Reads the contents of a file; `path` is for messages.
    ///
    /// # Errors
    /// If a newer APEX wrote it.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<(ProcessCounts, Vec<Problem>), Error> {
        let mut found = ProcessCounts::default();
        let mut problems = Vec::new();
        let mut complain = |offset: usize, what: &str| {
            problems.push(Problem {
                path: path.to_owned(),
                offset: Some(offset as u64),
                what: what.to_owned(),
            });
        };
        let Some((header, _)) = bytes.split_at_checked(HEADER_BYTES).filter(|_| bytes.starts_with(&MAGIC))
        else {
            complain(
                0,
                "not a file of counts, or the process ended while it made it; nothing was read from it",
            );
            return Ok((found, problems));
        };
        let mut fields = Input(&header[MAGIC.len()..]);
        let version = fields.u32().unwrap_or(0);
        if version > VERSION {
            return Err(Error::Newer { path: path.to_owned(), version, supported: VERSION });
        }
        found.pid = fields.u32().unwrap_or(0);
        let mut offset = HEADER_BYTES;
        while offset < bytes.len() {
            let Some((tag, payload)) = record(&bytes[offset..]) else {
                complain(
                    offset,
                    "ends inside a record: the process was ended while it wrote, or the disk was full",
                );
                break;
            };
            if let Err(what) = found.take(tag, payload) {
                complain(offset, &format!("a damaged record ({what}) was left out"));
            }
            offset += (HEAD_BYTES + payload.len()).next_multiple_of(ALIGNMENT);
        }
        Ok((found, problems))
    }

    /// Adds a record. One of an unknown sort is left out.
    fn take(&mut self, tag: u32, payload: &[u8]) -> Result<(), String> {
        let mut input = Input(payload);
        match tag {
            tag::LAUNCH => self.launches.push(read_launch(&mut input)?),
            tag::DEFECT => {
                let defect = read_defect(&mut input)?;
                let same = |known: &&mut Defect| {
                    (&known.kind, &known.kernel, &known.place, &known.other)
                        == (&defect.kind, &defect.kernel, &defect.place, &defect.other)
                };
                match self.defects.iter_mut().find(same) {
                    Some(known) => {
                        known.count = known.count.max(defect.count);
                        known.places = known.places.max(defect.places);
                    }
                    None => self.defects.push(defect),
                }
            }
            tag::MACHINE_CODE => self.machine_code.push(input.string()?),
            tag::SOURCE => {
                let (name, hash, why) = (input.string()?, input.u128()?, input.string()?);
                let kept = if why.is_empty() { Ok(hash) } else { Err(why) };
                self.sources.push(SourceFile { name, kept });
            }
            _ => {}
        }
        Ok(())
    }
}

/// Tag and payload of the record at the start of `bytes`.
fn record(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut head = Input(bytes);
    let (tag, length) = (head.u32().ok()?, head.u32().ok()? as usize);
    Some((tag, bytes.get(HEAD_BYTES..HEAD_BYTES.checked_add(length)?)?))
}

fn read_launch(input: &mut Input<'_>) -> Result<LaunchCounts, String> {
    Ok(LaunchCounts {
        kernel: input.string()?,
        launch: LaunchConfig::new(input.dim3()?, input.dim3()?).with_dynamic_shared_bytes(input.u32()?),
        counted: Counted {
            counts: read_counts(input)?,
            // Of a fault that this version does not know nothing can be said.
            hotspots: input.list(read_hotspot)?.into_iter().flatten().collect(),
            // Earlier versions counted whole launches.
            watched: input.u64().unwrap_or(0),
            executed: input.u64().unwrap_or(0),
            // Earlier versions counted no lines.
            lines: if input.0.is_empty() { Vec::new() } else { read_lines(input)? },
            lines_left_out: input.u64().unwrap_or(0),
        },
    })
}

fn read_lines(input: &mut Input<'_>) -> Result<Vec<Line>, String> {
    // One copy of a name for all its lines, however many a damaged file claims.
    let names = input.list(|input| input.string().map(Arc::<str>::from))?;
    input.list(|input| {
        let file = usize::try_from(input.short()?).ok().and_then(|place| names.get(place));
        let file = file.cloned().ok_or_else(|| "a line of a file that is not named".to_owned())?;
        let line = u32::try_from(input.short()?).map_err(|_| "a line beyond any file".to_owned())?;
        let more = input.short()?.checked_sub(LineCounts::VALUES as u64);
        let mut counts = LineCounts::default();
        for count in counts.values_mut() {
            *count = input.short()?;
        }
        // Counts that a later version adds.
        for _ in 0..more.ok_or_else(|| "a line without all its counts".to_owned())? {
            input.short()?;
        }
        Ok(Line { file, line, counts })
    })
}

fn read_counts(input: &mut Input<'_>) -> Result<Counts, String> {
    let mut counts = Counts {
        warp_instructions: first(&input.list(Input::u64)?),
        thread_instructions: first(&input.list(Input::u64)?),
        operations: first(&input.list(Input::u64)?),
        ..Counts::default()
    };
    let traffic = input.list(|input| {
        Ok(Traffic {
            requests: input.u64()?,
            threads: input.u64()?,
            bytes: input.u64()?,
            transactions: input.u64()?,
            excess: input.u64()?,
        })
    })?;
    counts.traffic.as_flattened_mut().iter_mut().zip(traffic).for_each(|(place, traffic)| *place = traffic);
    [counts.not_predicated_off, counts.branches, counts.divergent_branches] = first(&input.list(Input::u64)?);
    Ok(counts)
}

/// The first values of a list; zeros where it is shorter.
fn first<const N: usize>(list: &[u64]) -> [u64; N] {
    std::array::from_fn(|index| list.get(index).copied().unwrap_or(0))
}

fn read_hotspot(input: &mut Input<'_>) -> Result<Option<Hotspot>, String> {
    let fault = input.u32()?;
    let (place, events, total, excess) = (read_place(input)?, input.u64()?, input.u64()?, input.u64()?);
    let fault = Fault::ALL.into_iter().find(|known| *known as u32 == fault);
    Ok(fault.map(|fault| Hotspot { fault, place, events, total, excess }))
}

fn read_defect(input: &mut Input<'_>) -> Result<Defect, String> {
    Ok(Defect {
        kind: input.string()?,
        kernel: input.string()?,
        text: input.string()?,
        place: read_place(input)?,
        other: input.list(read_place)?.into_iter().next(),
        count: input.u64()?,
        // Earlier versions told each place by itself.
        places: input.u64().unwrap_or(1),
    })
}

fn read_place(input: &mut Input<'_>) -> Result<Place, String> {
    Ok(Place {
        instruction: input.string()?,
        ptx_line: input.u32()?,
        file: input.string()?,
        line: input.u32()?,
    })
}
