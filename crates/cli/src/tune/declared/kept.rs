//! The file of a search's results: complete T4 at each moment, with the key of the results.
//!
//! It is replaced at most once a second while a search runs, and when the search ends. A file
//! beside it is locked meanwhile: two searches would each replace what the other one has found.

use super::{MOST_BYTES, Search};
use anyhow::{Context, bail};
use apex_machine::nvml::Nvml;
use apex_machine::{Device, Devices as _};
use apex_search::{Key, Measured, Results, difference, t4};
use apex_untrusted::{read, replace};
use std::fs::{Metadata, OpenOptions, TryLockError};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two writes.
const PAUSE: Duration = Duration::from_secs(1);

/// Largest file of the command that is hashed, bytes.
const MOST_HASHED: u64 = 1 << 30;

/// See the [module](self).
pub struct File {
    path: PathBuf,
    key: Key,
    written: Option<Instant>,
    is_stale: bool,
    _lock: Lock,
}

impl File {
    /// The file of a search at this path.
    ///
    /// # Errors
    /// If another search has it.
    pub fn new(search: &Search<'_>, path: PathBuf) -> anyhow::Result<Self> {
        let _lock = Lock::of(&path)?;
        Ok(Self { path, key: key(search)?, written: None, is_stale: false, _lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its results; none if it does not exist.
    ///
    /// # Errors
    /// If they belong to another key, with the difference.
    pub fn read(&self) -> anyhow::Result<Vec<Measured>> {
        let shown = apex_untrusted::shown(&self.path);
        let text = match read::read_to_string(&self.path, MOST_BYTES) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.with_context(|| format!("cannot read {shown}"))?,
        };
        let before = t4::read(&text).with_context(|| format!("cannot use the results in {shown}"))?;
        let Some(key) = before.key else {
            bail!(
                "{shown} has results of another tuner, which do not say what they were measured on: name another file \
                 with -o, or use --replay"
            );
        };
        if let Some(difference) = difference(&key, &self.key) {
            let difference = apex_untrusted::printable(&difference).into_owned();
            bail!(
                "{shown} has results of something else ({difference}): remove it, or name another file with -o"
            );
        }
        Ok(before.results)
    }

    /// Takes new results, and writes them if the last time is long enough ago.
    pub fn keep(&mut self, results: &Results) -> anyhow::Result<()> {
        self.is_stale = true;
        match self.written {
            Some(written) if written.elapsed() < PAUSE => Ok(()),
            _ => self.write(results),
        }
    }

    /// Writes what was not written.
    pub fn finish(&mut self, results: &Results) -> anyhow::Result<()> {
        if self.is_stale { self.write(results) } else { Ok(()) }
    }

    fn write(&mut self, results: &Results) -> anyhow::Result<()> {
        let text = t4::write(&self.key, results.all());
        replace::in_mode(&self.path, 0o644, text.as_bytes())
            .with_context(|| format!("cannot write {}", apex_untrusted::shown(&self.path)))?;
        (self.written, self.is_stale) = (Some(Instant::now()), false);
        Ok(())
    }
}

/// The lock of a file of results: a locked file beside it, which is removed at the end.
struct Lock {
    path: PathBuf,
    _file: std::fs::File,
}

impl Lock {
    fn of(results: &Path) -> anyhow::Result<Self> {
        let mut name = results.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let shown = apex_untrusted::shown(&path);
        loop {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(&path).with_context(|| format!("cannot make {shown}"))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(
                    "another search writes its results into {}: wait for its end, or name another file with -o",
                    apex_untrusted::shown(results)
                ),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {shown}"));
                }
            }
            // (One that has just ended may have removed it.)
            let of = |metadata: Metadata| (metadata.dev(), metadata.ino());
            if path.metadata().ok().map(of) == file.metadata().ok().map(of) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The key of a search's results.
fn key(search: &Search<'_>) -> anyhow::Result<Key> {
    let mut key: Key = search.args.keys.iter().cloned().collect();
    let words: Vec<String> = search.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if !words.is_empty() {
        key.insert("command".to_owned(), words.join(" "));
    }
    for path in &search.args.depends {
        key.insert(format!("file {}", path.display()), hash(path)?);
    }
    for word in search.command.iter().map(Path::new).filter(|path| path.is_file()) {
        key.insert(format!("file {}", word.display()), hash(word)?);
    }
    key.insert("device".to_owned(), devices());
    key.insert("driver".to_owned(), driver());
    Ok(key)
}

/// The hash of a file's content.
fn hash(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = read::open(path, MOST_HASHED).and_then(|mut file| file.read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read {}", apex_untrusted::shown(path)))?;
    Ok(format!("{:016x}", apex_random::hash(0, &bytes)))
}

/// The names of the machine's GPUs, each once.
fn devices() -> String {
    let Some(nvml) = Nvml::load() else { return "none".to_owned() };
    let mut names: Vec<&str> = nvml.list().iter().map(|device: &Device| device.name.as_str()).collect();
    names.dedup();
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").map(|visible| format!(" (visible: {visible})"));
    names.join(", ") + &visible.unwrap_or_default()
}

/// The version of the GPU's driver.
fn driver() -> String {
    let version = std::fs::read_to_string("/sys/module/nvidia/version");
    version.map_or_else(|_| "none".to_owned(), |version| version.trim().to_owned())
}
