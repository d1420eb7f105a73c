//! Source files: the text that kernels were compiled from, kept in a session that keeps code
//! (`apex run --code`).
//!
//! Line tables of kernels name files. The text of such a file is kept when a device first counts
//! what its lines do: once for each content, as `<hash>.source`, within the limits that images have
//! too ([`crate::image`]). A line table may come from anybody and name any file of the user's, so
//! only names that source code has are opened, and only text of at most [`MOST_BYTES`] is kept.

use crate::control::Control;
use crate::image::keep_file;
use crate::joined::folders;
use apex_untrusted::read;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

/// The extension of these files.
pub const EXTENSION: &str = "source";
/// Largest source file that is kept.
pub const MOST_BYTES: u64 = 1 << 20;
/// The extensions of source files.
pub const ENDINGS: [&str; 21] = [
    "c", "cc", "cpp", "cu", "cuf", "cuh", "cxx", "f90", "h", "hh", "hpp", "hxx", "inc", "inl", "ipp", "jl",
    "mojo", "ptx", "py", "rs", "tcc",
];

/// A source file, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name, as the line table has it.
    pub name: String,
    /// The hash of its text, or why that is not kept.
    pub kept: Result<u128, String>,
}

/// The name of the file that holds a text.
pub fn file_name(hash: u128) -> String {
    format!("{hash:032x}.{EXTENSION}")
}

/// Keeps the text of the file at `path` in the session in `dir`; returns its hash.
///
/// # Errors
/// If it is no source file, if it cannot be read or written, or if a limit leaves no room.
pub fn keep(dir: &Path, control: &Control, path: &Path) -> io::Result<u128> {
    let ending = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    if !ending.is_some_and(|ending| ENDINGS.contains(&&*ending)) {
        return Err(io::Error::other("its name is not that of a source file"));
    }
    let text = read::read_to_string(path, MOST_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("there is no such file"),
        _ => error,
    })?;
    if text.contains('\0') {
        return Err(io::Error::other("it is not text"));
    }
    let hash = hash(&text);
    keep_file(dir, control, &file_name(hash), text.as_bytes())?;
    Ok(hash)
}

/// Reads the text of this hash in the session in `dir`.
///
/// # Errors
/// If there is none, if it cannot be read, or if it is not the text that was kept.
pub fn read(dir: &Path, hash: u128) -> io::Result<String> {
    let found = folders(dir).into_iter().map(|dir| dir.join(file_name(hash))).find(|path| path.exists());
    let path = found.unwrap_or_else(|| dir.join(file_name(hash)));
    let text = read::read_to_string(&path, MOST_BYTES)?;
    if self::hash(&text) != hash {
        return Err(io::Error::other("it is not what was recorded"));
    }
    Ok(text)
}

fn hash(text: &str) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MappedControl;
    use crate::control::Settings;
    use std::sync::atomic::Ordering::Relaxed;

    fn session(code_max_bytes: u64) -> (tempfile::TempDir, MappedControl) {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { code_max_bytes, ..Settings::default() };
        let control = MappedControl::create(dir.path(), settings).unwrap();
        (dir, control)
    }

    #[test]
    fn a_text_is_kept_once_under_any_name_and_stays_when_its_file_changes() {
        let (dir, control) = session(100);
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one.cu", "other.PY"].map(|name| folder.path().join(name));
        std::fs::write(&one, "a\nb\n").unwrap();
        std::fs::write(&other, "a\nb\n").unwrap();
        let hash = keep(dir.path(), &control, &one).unwrap();
        assert_eq!(keep(dir.path(), &control, &other).unwrap(), hash);
        assert_eq!((control.code.used_bytes.load(Relaxed), control.code.kept.load(Relaxed)), (4, 0));
        std::fs::write(&one, "changed").unwrap();
        std::fs::remove_file(&other).unwrap();
        assert_eq!(read(dir.path(), hash).unwrap(), "a\nb\n");
        assert_ne!(keep(dir.path(), &control, &one).unwrap(), hash);
        // A file that somebody changes in the session is not shown.
        std::fs::write(dir.path().join(file_name(hash)), "forged").unwrap();
        assert!(read(dir.path(), hash).is_err());
    }

    #[test]
    fn what_is_no_source_text_is_not_kept_and_the_error_says_why() {
        let (dir, control) = session(10);
        let folder = tempfile::tempdir().unwrap();
        for (name, content, why) in [
            ("id_rsa", &b"key"[..], "not that of a source file"),
            ("a.so", b"key", "not that of a source file"),
            ("latin.cu", b"\xe4", "not UTF-8"),
            ("zero.cu", b"a\0b", "not text"),
            ("long.cu", &[b'a'; 11], "limit of --code"),
            ("huge.cu", &[b'a'; (MOST_BYTES + 1) as usize], "at most 1 MiB"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let error = keep(dir.path(), &control, &path).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
        let error = keep(dir.path(), &control, &folder.path().join("none.cu")).unwrap_err().to_string();
        assert_eq!(error, "there is no such file");
        std::fs::create_dir(folder.path().join("folder.cu")).unwrap();
        assert!(keep(dir.path(), &control, &folder.path().join("folder.cu")).is_err());
        assert_eq!(control.code.used_bytes.load(Relaxed), 0);
    }
}
