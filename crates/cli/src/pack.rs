//! `apex pack` and `apex unpack`: a session as one compressed file, and back.
//!
//! Every command that reads a session reads the file, too ([`crate::import::opened`]).

use crate::{output, progress, session, units};
use anyhow::{Context, bail};
use apex_conventions::documents::PACK;
use apex_pack::{ENDING, Limits, Unpacked};
use apex_trace::{Session, has_process_files, is_joined, is_session};
use apex_untrusted::Folder;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Packs a session into one compressed file, which every command reads.
///
/// The file is a tar archive compressed by gzip. It holds all of the session: records, notes,
/// samples of the machine, and what `--code` kept. Like the session, it tells the command line and
/// the machine's name.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex pack before                   writes before.tar.gz
  apex pack before -o mail.tar.gz
  apex pack before --force           replaces before.tar.gz
  apex report before.tar.gz          reports on it without unpacking it first
  apex diff before.tar.gz after.tar.gz")]
pub struct PackArgs {
    /// Session folder [default: the newest session in this folder]
    session: Option<PathBuf>,
    /// File to write [default: SESSION.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is there already
    #[arg(long, value_parser = FalseyValueParser::new())]
    force: bool,
    #[arg(long, help = format!("Print JSON (schema {PACK})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// Unpacks a packed session into a folder.
///
/// It also reads archives that `tar` made of a session's folder: plain, or compressed by gzip, xz or
/// zstd. Links, devices, paths that leave the folder and files beyond the limit are refused; files
/// that are none of a session's are left out.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex unpack before.tar.gz              makes the session folder before
  apex unpack mail.tar.gz -o theirs
  apex unpack long-run.tar.gz --limit 200G")]
pub struct UnpackArgs {
    /// The archive
    archive: PathBuf,
    /// Session folder to create [default: the archive's name without its ending]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Maximum size of the unpacked session
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = units::parse_size)]
    limit: u64,
    #[arg(long, help = format!("Print JSON (schema {PACK})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(serialize_with = "output::path_in_document")]
    session: &'a Path,
    #[serde(serialize_with = "output::path_in_document")]
    archive: &'a Path,
    files: u64,
    bytes: u64,
    archive_bytes: u64,
    left_out: u64,
}

/// Runs `apex pack`.
pub fn pack(args: &PackArgs) -> anyhow::Result<ExitCode> {
    let dir = session::choose(args.session.as_deref())?;
    let shown = apex_untrusted::shown(&dir);
    if !is_session(&dir) && !is_joined(&dir) {
        if has_process_files(&dir) {
            bail!(
                "{shown} has records, but not the mark of a session, which its file `control` begins with: `apex \
                 report {shown}` reads what is left; copy the file from where the session was recorded, and pack it \
                 then"
            );
        }
        bail!("{shown} is no session folder: name one that `apex run` or `apex import` made");
    }
    if let Some(pid) = apex_live::running(&Session::open(&dir)?).first() {
        bail!("{shown} is still recorded by process {pid}: wait for its end");
    }
    let to = args.output.clone().map_or_else(|| beside(&dir), Ok)?;
    session::refuse_output(&dir, &to)?;
    if !args.force && to.symlink_metadata().is_ok() {
        let to = apex_untrusted::shown(&to);
        bail!("{to} is there already: name another file with -o, or replace it with --force");
    }
    let mut packed = None;
    let written = progress::show(&format!("packing {shown}"), |_| {
        apex_untrusted::replace::file(&to, |file| {
            packed = Some(apex_pack::pack(&dir, file, session::is_copied)?);
            Ok(())
        })
    });
    written.with_context(|| format!("cannot write {}", apex_untrusted::shown(&to)))?;
    let packed = packed.unwrap_or_default();
    let archive_bytes = to.metadata().map_or(0, |file| file.len());
    if args.json {
        let (files, bytes) = (packed.files, packed.bytes);
        let document = Document { session: &dir, archive: &to, files, bytes, archive_bytes, left_out: 0 };
        return output::json(PACK, &document);
    }
    let (to, size) = (apex_untrusted::shown(&to), units::bytes(archive_bytes));
    output::remark(format!(
        "packed {} in {size}; read it with `apex report {to}`",
        units::counted(packed.files, "file", "files")
    ));
    output::page(|out| writeln!(out, "{to}"))
}

/// The archive's path beside a session.
fn beside(dir: &Path) -> anyhow::Result<PathBuf> {
    let name = dir.canonicalize()?;
    let mut name = name.file_name().map(OsString::from).context("name the file to write with -o")?;
    name.push(format!(".{ENDING}"));
    Ok(name.into())
}

/// Runs `apex unpack`.
pub fn unpack(args: &UnpackArgs) -> anyhow::Result<ExitCode> {
    if matches!(args.archive.try_exists(), Ok(false)) {
        bail!("there is no file {}: name the archive of a session", apex_untrusted::shown(&args.archive));
    }
    let archive = &args.archive;
    let name = stem(archive);
    let to = args.output.clone().unwrap_or_else(|| PathBuf::from(&name));
    let fresh = session::Fresh::make(Some(&to), &name)?;
    let limits = Limits { bytes: args.limit, ..Limits::default() };
    let unpacked = match unpacked_into(archive, &fresh.folder, limits) {
        Ok(unpacked) => unpacked,
        Err(error) => {
            fresh.discard_all();
            return Err(error);
        }
    };
    let Unpacked { files, bytes, left_out } = unpacked;
    if args.json {
        let archive_bytes = archive.metadata().map_or(0, |file| file.len());
        let document = Document { session: &to, archive, files, bytes, archive_bytes, left_out };
        return output::json(PACK, &document);
    }
    tell(&unpacked);
    output::page(|out| writeln!(out, "{}", apex_untrusted::shown(&to)))
}

/// Unpacks an archive into a new folder.
///
/// # Errors
/// If it is refused or damaged: with its place.
pub fn unpacked_into(archive: &Path, folder: &Folder, limits: Limits) -> anyhow::Result<Unpacked> {
    let doing = format!("unpacking {}", apex_untrusted::shown(archive));
    Ok(progress::show(&doing, |_| apex_pack::unpack(archive, folder, limits, session::is_copied))?)
}

/// Says what was left out.
pub fn tell(unpacked: &Unpacked) {
    if unpacked.left_out > 0 {
        let files = units::counted(unpacked.left_out, "file of the archive is", "files of the archive are");
        output::remark(format!("{files} none of a session's, and left out"));
    }
}

/// The name of an archive without its endings.
fn stem(archive: &Path) -> OsString {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let ending = [".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.zst", ".tar"];
    let stem = ending.iter().find_map(|ending| name.strip_suffix(ending)).filter(|stem| !stem.is_empty());
    stem.map_or_else(|| OsString::from(format!("{name}.session")), OsString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_without_its_ending_is_the_session() {
        for (archive, session) in [
            ("a/before.tar.gz", "before"),
            ("x.y.tgz", "x.y"),
            (".tar", ".tar.session"),
            ("plain", "plain.session"),
        ] {
            assert_eq!(stem(Path::new(archive)), session);
        }
    }
}
