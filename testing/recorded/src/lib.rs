//! Sessions that were recorded on a GPU (`data/h200/corpus`), one archive each.
//!
//! An archive is a compressed tar file of a session's folder, in which a process file
//! `PID-START.rec` is stored as `PID-START.columns`: the same content in another order, field by
//! field ([`columns`]), which compresses to two thirds. The times of records are rounded before
//! that ([`ProcessFile::round`]): their last bits are noise, and noise does not
//! compress. Invariants:
//!
//! 1. [`pack`] writes an archive only if unpacking it gives the rounded session, byte for byte.
//! 2. Everything but the times of records is as recorded.
//!
//! `tar` and `xz` do the rest, so both have to be installed.

use apex_pack::columns;
use apex_pack::process_file::ProcessFile;
use std::ffi::OsStr;
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use test_process::Command;

/// Options of `xz`: the bytes of a column are alike, whatever their position is.
const XZ: &str = "xz --lzma2=preset=9e,lc=1,lp=0,pb=0";
/// Options of `tar` that leave out what differs from machine to machine.
const PLAIN: [&str; 5] = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];

/// The archive of a session of the corpus.
pub fn archive(name: &str) -> PathBuf {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/h200/corpus");
    corpus.join(format!("{name}.tar.xz"))
}

/// Unpacks an archive into a new folder.
///
/// # Errors
/// If the folder exists, or the archive is not one that [`pack`] wrote.
pub fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    run(Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(folder))?;
    for path in files(folder, "columns")? {
        let file = columns::decode(&fs::read(&path)?)?;
        fs::write(path.with_extension("rec"), file.to_bytes())?;
        fs::remove_file(path)?;
    }
    Ok(())
}

/// The checksums of the session's files, which are other ones after rounding.
const CHECKSUMS: &str = "checksums";

/// Packs a session's folder, with times rounded to multiples of `unit` ticks.
///
/// # Errors
/// If a process file has a content that the archive would not hold exactly.
pub fn pack(session: &Path, archive: &Path, unit: u64) -> Result<()> {
    let packed = tempfile::tempdir()?;
    for entry in fs::read_dir(session)? {
        let path = entry?.path();
        let target = packed.path().join(path.file_name().unwrap_or_default());
        if path.extension() == Some(OsStr::new("rec")) {
            fs::write(target.with_extension("columns"), in_columns(&fs::read(&path)?, unit)?)?;
        } else if path.file_name() != Some(OsStr::new(CHECKSUMS)) {
            fs::copy(&path, &target)?;
        }
    }
    let names = files(packed.path(), "")?.into_iter().map(|path| path.file_name().map(OsStr::to_owned));
    let mut tar = Command::new("tar");
    tar.args(["-I", XZ, "-cf"]).arg(archive).args(PLAIN).arg("-C").arg(packed.path());
    run(tar.args(names.flatten()))
}

/// A process file in columns, if that holds all of it.
fn in_columns(bytes: &[u8], unit: u64) -> Result<Vec<u8>> {
    let mut file = ProcessFile::from_bytes(bytes)?;
    if file.to_bytes() != bytes {
        return Err(Error::other("the process file has content outside of its chunks"));
    }
    file.round(unit);
    let columns = columns::encode(&file, unit);
    if columns::decode(&columns)? != file {
        return Err(Error::other("the columns do not hold all of the process file"));
    }
    Ok(columns)
}

/// The files of a folder with this extension, or all of them if it is empty, in order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if extension.is_empty() || path.extension() == Some(OsStr::new(extension)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Runs a command that has nothing to print.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(Error::other(format!("{command:?}: {said}"))) }
}
