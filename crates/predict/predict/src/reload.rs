//! Models that are replaced while they are in use.
//!
//! A [`Folder`] holds the models in use and looks, whenever it is told to, whether the files still
//! are those that they came from. New ones are loaded beside them and swapped in whole; old ones
//! live until their last user drops them. Files that cannot be used change
//! nothing. A [`Watch`] is a folder with a thread that looks five times a second.
//!
//! *When files count as new.* Length, times and inode of each file make its stamp. When a stamp
//! differs, or is so young that the file may have been written again within one tick of the file
//! system's clock, the contents are compared: a file that was touched, or replaced by an equal one,
//! is not new.
//!
//! *When files count as broken.* A file that is being written looks broken until it is complete. So
//! a failure counts when the next look finds the same stamps; each state of the files is refused
//! once.

use crate::{LoadError, Models};
use apex_untrusted::read;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// The files of a folder of models.
const FILES: [&str; 3] = Models::FILES;

/// The time between two looks.
const STEP: Duration = Duration::from_millis(200);

/// A file whose time of change is younger may change again without a new time: file systems' clocks
/// tick every few milliseconds, some every two seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// The result of a look at the files.
#[derive(Debug)]
pub enum Event {
    /// The files were replaced: their models are in use now.
    Replaced,
    /// The files were replaced by some that cannot be used: the models are those from before.
    Refused(LoadError),
}

/// The identity of a file's version, known without reading it: length, seconds and nanoseconds of
/// its last modification and of its last change, device, inode. `None` if the file does not exist.
type Stamp = Option<[i64; 7]>;

/// A folder with models, and the models in use.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    models: Arc<Models>,
    /// Stamps of the files that were judged last.
    stamps: [Stamp; FILES.len()],
    /// Whether these stamps were old enough that they would differ if the files had changed since.
    settled: bool,
    /// Hash of the contents that are in use or were refused.
    judged: u64,
    /// Stamps of files that could not be used at the first look.
    doubtful: Option<[Stamp; FILES.len()]>,
}

impl Folder {
    /// Loads the models of a folder.
    ///
    /// # Errors
    /// As [`Models::load`].
    pub fn open(path: &Path) -> Result<Folder, LoadError> {
        // Stamps first: what changes while it is read is looked at again.
        let stamps = stamps(path);
        let settled = settled(path);
        let judged = contents(path);
        let models = Arc::new(Models::load(path)?);
        Ok(Folder { path: path.to_owned(), models, stamps, settled, judged, doubtful: None })
    }

    /// The models in use.
    pub fn models(&self) -> Arc<Models> {
        Arc::clone(&self.models)
    }

    /// Looks at the files once, and swaps the models if there are new ones.
    pub fn look(&mut self) -> Option<Event> {
        let (found, settled) = (stamps(&self.path), settled(&self.path));
        if found == self.stamps && self.settled {
            return None;
        }
        let contents = contents(&self.path);
        if contents == self.judged {
            (self.stamps, self.settled, self.doubtful) = (found, settled, None);
            return None;
        }
        let event = match Models::load(&self.path) {
            Ok(models) => {
                self.models = Arc::new(models);
                Event::Replaced
            }
            Err(_) if self.doubtful != Some(found) => {
                self.doubtful = Some(found);
                return None;
            }
            Err(error) => Event::Refused(error),
        };
        (self.stamps, self.settled, self.judged, self.doubtful) = (found, settled, contents, None);
        Some(event)
    }
}

fn stamps(folder: &Path) -> [Stamp; FILES.len()] {
    FILES.map(|file| {
        let data = std::fs::metadata(folder.join(file)).ok()?;
        let numbers = [data.len(), data.dev(), data.ino()].map(u64::cast_signed);
        let [length, device, inode] = numbers;
        Some([length, data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec(), device, inode])
    })
}

/// Whether the files changed last so long ago that a further change would show in their times.
fn settled(folder: &Path) -> bool {
    FILES.iter().filter_map(|file| std::fs::metadata(folder.join(file)).ok()).all(|data| {
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(data.ctime().max(0).cast_unsigned());
        changed.elapsed().is_ok_and(|age| age > SETTLED)
    })
}

/// A hash of all files' contents; a file that cannot be read counts as a content of its own.
fn contents(folder: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in FILES {
        match read::read(&folder.join(file), read::MODEL) {
            Ok(bytes) => {
                hasher.write_u8(1);
                hasher.write_usize(bytes.len());
                hasher.write(&bytes);
            }
            Err(_) => hasher.write_u8(0),
        }
    }
    hasher.finish()
}

/// A [`Folder`] that is looked at in a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    models: Arc<RwLock<Arc<Models>>>,
    /// Taken when it ends: that the sender is gone tells the thread to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Loads the models of a folder and begins to look. What is found is given to `told`, in the
    /// watching thread, after the models are in use.
    ///
    /// # Errors
    /// As [`Models::load`].
    pub fn start(path: &Path, mut told: impl FnMut(Event) + Send + 'static) -> Result<Watch, LoadError> {
        let mut folder = Folder::open(path)?;
        let models = Arc::new(RwLock::new(folder.models()));
        let shared = Arc::clone(&models);
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                let Some(event) = folder.look() else { continue };
                *shared.write().unwrap_or_else(PoisonError::into_inner) = folder.models();
                told(event);
            }
        });
        Ok(Watch { models, stop: Some(stop), thread: Some(thread) })
    }

    /// The models in use at this moment. Ask again for each case, or each line.
    pub fn models(&self) -> Arc<Models> {
        Arc::clone(&self.models.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Only `told` could have panicked, and its message has been printed.
            let _ = thread.join();
        }
    }
}
