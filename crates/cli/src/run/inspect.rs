//! Determines the kind of file that a command is, as far as it decides whether a library can be
//! preloaded into it.
//!
//! Reads a few hundred bytes of the file; any bytes give an answer.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A command's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `#!`: run by this interpreter.
    Script(PathBuf),
    /// An ELF file.
    Elf {
        /// Its dynamic linker; `None` in a statically linked program.
        linker: Option<String>,
        /// Whether it is for this machine's architecture (and 64 bits wide).
        native: bool,
        /// Whether it runs with other rights than its caller's, so that the dynamic linker ignores
        /// LD_PRELOAD.
        privileged: bool,
    },
    /// Something else, or unreadable.
    Unknown,
}

impl Program {
    /// Reads the file.
    pub fn of(path: &Path) -> Self {
        let Ok(file) = apex_untrusted::read::open(path, u64::MAX) else { return Program::Unknown };
        let mut head = [0u8; 4096];
        let length = file.read_at(&mut head, 0).unwrap_or(0);
        let head = &head[..length];
        if let Some(line) = head.strip_prefix(b"#!") {
            return script(line);
        }
        if !head.starts_with(b"\x7fELF") {
            return Program::Unknown;
        }
        let Some(header) = Header::parse(head) else {
            return Program::Elf { linker: None, native: false, privileged: false };
        };
        let linker = header.interpreter(&file);
        Program::Elf { linker, native: header.machine == MACHINE, privileged: privileged(path, &file) }
    }

    /// Returns the reason why a library cannot be preloaded into it, if so.
    pub fn obstacle(&self) -> Option<String> {
        match self {
            Program::Elf { native: false, .. } => {
                Some("it is not a 64-bit program of this machine's architecture, and libapex.so is".into())
            }
            Program::Elf { linker: None, .. } => {
                Some("it is statically linked: no dynamic linker runs that could load libapex.so".into())
            }
            Program::Elf { privileged: true, .. } => Some(
                "it is set-user-ID or has file capabilities: the dynamic linker ignores LD_PRELOAD there"
                    .into(),
            ),
            Program::Elf { linker: Some(linker), .. } if linker.contains("musl") => Some(
                "it uses musl's dynamic linker, and libapex.so needs glibc: link it to glibc to record it"
                    .into(),
            ),
            _ => None,
        }
    }
}

/// The file that a shell would execute for `command`: the path if it contains a slash, otherwise
/// the first match in PATH.
pub fn resolve(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Path::new(command).is_file().then(|| command.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|file| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// `#! /usr/bin/env -S python3 -u`: the interpreter is what `env` looks up.
fn script(line: &[u8]) -> Program {
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let Some(interpreter) = words.next() else { return Program::Unknown };
    if Path::new(interpreter).file_name() == Some(OsStr::new("env"))
        && let Some(command) = words.find(|word| !word.as_bytes().starts_with(b"-"))
    {
        return Program::Script(resolve(command).unwrap_or_else(|| command.into()));
    }
    Program::Script(interpreter.into())
}

/// The parts of a 64-bit little-endian ELF header that lead to the program headers.
struct Header {
    machine: u16,
    segments_at: u64,
    segment_bytes: u16,
    segments: u16,
}

impl Header {
    fn parse(head: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let is_64_bit_little_endian = head.get(4..6)? == [2, 1];
        is_64_bit_little_endian.then_some(())?;
        Some(Self {
            machine: half(18)?,
            segments_at: u64::from_le_bytes(head.get(32..40)?.try_into().ok()?),
            segment_bytes: half(54)?,
            segments: half(56)?,
        })
    }

    /// The text of the PT_INTERP segment.
    fn interpreter(&self, file: &File) -> Option<String> {
        const PT_INTERP: u32 = 3;
        (0..u64::from(self.segments)).find_map(|index| {
            let mut segment = [0u8; 56];
            let at = self.segments_at.checked_add(index * u64::from(self.segment_bytes))?;
            file.read_exact_at(&mut segment, at).ok()?;
            let word = |at: usize| u64::from_le_bytes(segment[at..at + 8].try_into().unwrap_or_default());
            if u32::from_le_bytes(segment[..4].try_into().ok()?) != PT_INTERP {
                return None;
            }
            let mut text = vec![0; word(32).min(4096) as usize];
            file.read_exact_at(&mut text, word(8)).ok()?;
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            Some(String::from_utf8_lossy(&text[..end]).into_owned())
        })
    }
}

fn privileged(path: &Path, file: &File) -> bool {
    let by_mode = file.metadata().is_ok_and(|meta| {
        let others_right = meta.mode() & 0o4000 != 0 && meta.uid() != effective_user();
        others_right || meta.mode() & 0o2000 != 0
    });
    by_mode || has_capabilities(path)
}

fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let attribute = c"security.capability";
    // SAFETY: both strings end with a zero byte; with size 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), attribute.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_native_dynamic_program() {
        let program = Program::of(&std::env::current_exe().unwrap());
        let Program::Elf { linker: Some(linker), native: true, privileged: false } = &program else {
            panic!("{program:?}")
        };
        assert!(linker.contains("ld-linux"), "{linker}");
        assert_eq!(program.obstacle(), None);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        for (line, expected) in [
            ("#!/bin/sh -e\n", Some(PathBuf::from("/bin/sh"))),
            ("#! /usr/bin/env -S sh -u\necho", resolve(OsStr::new("sh"))),
            ("#!/usr/bin/env no-such-interpreter", Some("no-such-interpreter".into())),
        ] {
            std::fs::write(&path, line).unwrap();
            assert_eq!(Program::of(&path), Program::Script(expected.unwrap()), "{line}");
        }
        std::fs::write(&path, "#!").unwrap();
        assert_eq!(Program::of(&path), Program::Unknown);
    }

    /// A header cut or damaged anywhere must give an answer, never a panic.
    #[test]
    fn damaged_files_are_answered() {
        let original = std::fs::read(std::env::current_exe().unwrap()).unwrap()[..1024].to_vec();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        for cut in (0..original.len()).step_by(3) {
            std::fs::write(&path, &original[..cut]).unwrap();
            Program::of(&path);
        }
        for at in 0..128 {
            let mut damaged = original.clone();
            damaged[at] = 0xff;
            std::fs::write(&path, &damaged).unwrap();
            Program::of(&path);
        }
    }
}
