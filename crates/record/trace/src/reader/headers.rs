//! A session without its records: the content of the first pages of its files.
//!
//! This takes the same time however long the program ran.

use crate::error::{Error, Problem};
use crate::joined::folders;
use crate::layout::{ChunkHeader, ChunkKind, HEADER_BYTES};
use crate::reader::header::{ChunkHead, FirstPage, Header, chunk_offset};
use crate::reader::process::Process;
use crate::reader::source::{Opened, Source};
use crate::reader::{Session, is_of_known_version, list, members};
use std::path::Path;

/// The headers of a session.
#[derive(Debug)]
pub struct Headers {
    /// The session. Its processes have no records, definitions or threads.
    pub session: Session,
    /// Whether a process recorded anything.
    pub has_records: bool,
}

impl Headers {
    /// Reads the first pages of the files in `dir`, and the heads of chunks up to the first one
    /// with records.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn read(dir: &Path) -> Result<Headers, Error> {
        let own = folders(dir);
        let [one] = &own[..] else { return Self::read_joined(dir) };
        if one == dir { Self::read_one(dir) } else { Self::read_joined(dir) }
    }

    /// Reads the headers of a session that is joined of others.
    fn read_joined(dir: &Path) -> Result<Headers, Error> {
        let mut whole = Headers { session: Session::empty(dir), has_records: false };
        for member in members(dir) {
            let Headers { session, has_records } = Self::read_one(&member.dir)?;
            whole.session.take(&member, session);
            whole.has_records |= has_records;
        }
        Ok(whole)
    }

    /// Reads the headers of a session that is not joined.
    pub(super) fn read_one(dir: &Path) -> Result<Headers, Error> {
        let (paths, _) = list(dir)?;
        let is_known = is_of_known_version(dir);
        let (mut processes, mut problems, mut has_records) = (Vec::new(), Vec::new(), false);
        for path in paths {
            match read_file(&path, is_known, &mut has_records)? {
                Ok((process, faults)) => {
                    let problem = |(offset, what)| Problem { path: path.clone(), offset: Some(offset), what };
                    problems.extend(faults.into_iter().map(problem));
                    processes.push(process);
                }
                Err(what) => problems.push(Problem { path, offset: None, what }),
            }
        }
        let session = Session { processes, problems, ..Session::empty(dir) };
        Ok(Headers { session, has_records })
    }

    /// Records lost in all processes, for whatever reason; saturates.
    pub fn lost(&self) -> u64 {
        let of = |process: &Process| process.dropped.saturating_add(process.overwritten);
        self.session.processes.iter().map(of).fold(0, u64::saturating_add)
    }
}

/// Fields of a header that hold what cannot be.
type Faults = Vec<(u64, String)>;

/// The process of a file and the faults of its header, or what is wrong with the file.
fn read_file(
    path: &Path,
    is_known: bool,
    has_records: &mut bool,
) -> Result<Result<(Process, Faults), String>, Error> {
    let source = Source::Path(path.to_owned());
    let file = match source.open() {
        Ok(file) => file,
        Err(error) => return Ok(Err(format!("cannot be opened: {error}"))),
    };
    let mut page = Vec::new();
    if let Err(error) = file.read(0, HEADER_BYTES, &mut page) {
        return Ok(Err(format!("cannot be read: {error}")));
    }
    let FirstPage::Header(header) = FirstPage::parse(&page, path, is_known)? else {
        return Ok(Err("holds no process".to_owned()));
    };
    *has_records = *has_records || holds_records(&file, &header);
    let mut header = *header;
    let faults = std::mem::take(&mut header.faults);
    Ok(Ok((Process::of_header(header, path.to_owned(), source), faults)))
}

fn holds_records(file: &Opened, header: &Header) -> bool {
    let mut bytes = Vec::new();
    let chunks = u32::try_from(header.chunks).unwrap_or(u32::MAX);
    (0..chunks)
        .map_while(|chunk| {
            file.read(chunk_offset(chunk), size_of::<ChunkHeader>(), &mut bytes).ok()?;
            ChunkHead::parse(&bytes)
        })
        .any(|head| head.kind() == Some(ChunkKind::Records) && head.payload_bytes() > 0)
}
