//! Writes the archive of a session.

use apex_ordered::Order;
use apex_trace::control::CONTROL_FILE;
use apex_trace::{JOINED_FILE, META_FILE, is_joined, numbered};
use apex_untrusted::read;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Summary of a packing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Files in the archive.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Writes the archive of the session in `session` to `out`: its files of which `is_part` knows the
/// name, and those of its members. In the archive they lie in a folder named like the session.
///
/// # Errors
/// If a file cannot be read or the archive cannot be written.
pub fn pack(session: &Path, out: File, is_part: impl Fn(&OsStr) -> bool) -> io::Result<Packed> {
    let root = name_of(session);
    let mut tar = Builder::new(GzEncoder::new(BufWriter::new(out), Compression::default()));
    let mut packed = Packed::default();
    let members = if is_joined(session) { numbered(session) } else { Vec::new() };
    let members = members.into_iter().map(|(number, dir)| (root.join(format!("{number:04}")), dir));
    for (to, from) in std::iter::once((root.clone(), session.to_owned())).chain(members) {
        for name in files(&from, &is_part)? {
            packed.bytes += append(&mut tar, &from.join(&name), &to.join(&name))?;
            packed.files += 1;
        }
    }
    tar.into_inner()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(packed)
}

/// The name of the session's folder, which is that of the folder in the archive.
fn name_of(session: &Path) -> PathBuf {
    let name = session.canonicalize().ok().and_then(|path| path.file_name().map(OsStr::to_owned));
    name.unwrap_or_else(|| OsString::from("session")).into()
}

/// The files of a folder that belong to a session: what tells what it is comes first.
fn files(dir: &Path, is_part: &impl Fn(&OsStr) -> bool) -> io::Result<Vec<OsString>> {
    let first = [JOINED_FILE, META_FILE, CONTROL_FILE];
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() && (name == JOINED_FILE || is_part(&name)) {
            names.push(name);
        }
    }
    names.order_by_key(|name| {
        (first.iter().position(|&one| name == one).unwrap_or(first.len()), name.clone())
    });
    Ok(names)
}

/// Appends a file, as long as it is now: one that grows meanwhile is cut, one that shrinks is
/// filled with zeros. Returns its bytes.
fn append(tar: &mut Builder<impl Write>, from: &Path, to: &Path) -> io::Result<u64> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", apex_untrusted::shown(from)));
    let file = read::open(from, u64::MAX).map_err(named)?;
    let length = file.metadata().map_err(named)?.len();
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(length);
    let content = file.chain(io::repeat(0)).take(length);
    tar.append_data(&mut header, to, content)?;
    Ok(length)
}
