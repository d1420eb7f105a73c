//! A socket in the session on which `apex run` answers requests of the injected library.
//!
//! One thread listens, and each request is answered in a thread of its own. Invariant: the program
//! never depends on an answer; without one, the library goes on.

use apex_untrusted::Folder;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Stack of a thread, bytes: the parser of PTX is recursive, within bounds.
const STACK: usize = 16 << 20;

/// The thread that listens.
pub struct Answering {
    thread: JoinHandle<()>,
    ends: Arc<AtomicBool>,
    socket: PathBuf,
    /// Keeps the path of the socket alive.
    _session: File,
}

/// Starts to listen on the socket `name` in a session. `answer` handles one connection; its error
/// only ends that connection.
///
/// # Errors
/// Those of the system: the socket cannot be made.
pub fn start(
    session: &Folder,
    name: &'static str,
    answer: impl Fn(UnixStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<Answering> {
    // The path of a socket is limited to about 100 bytes, the path of a session is not.
    let folder = File::open(session.path())?;
    let socket = PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()));
    let listener = UnixListener::bind(&socket)?;
    let ends = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ends);
    let thread = spawn(name, move || {
        let streams = std::iter::from_fn(|| next(&listener, &end)).flatten();
        let answers = streams.filter_map(|stream| {
            let answer = answer.clone();
            // An error means that the program has closed the connection.
            spawn(name, move || drop(answer(stream))).ok()
        });
        answers.collect::<Vec<_>>().into_iter().for_each(|answer| drop(answer.join()));
    })?;
    Ok(Answering { thread, ends, socket, _session: folder })
}

/// The next connection, or the error of one; `None` after the end, when all that waited have come.
fn next(listener: &UnixListener, ends: &AtomicBool) -> Option<io::Result<UnixStream>> {
    let accepted = listener.accept();
    if ends.load(Ordering::Acquire) {
        // What the program wrote before its end is still heard.
        listener.set_nonblocking(true).ok()?;
        accepted.as_ref().ok()?;
    }
    Some(accepted.map(|(stream, _)| stream))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).stack_size(STACK).spawn(work)
}

impl Answering {
    /// Stops listening, and waits for the answers in progress.
    pub fn finish(self) {
        self.ends.store(true, Ordering::Release);
        // A connection wakes it.
        if UnixStream::connect(&self.socket).is_ok() {
            let _ = self.thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    /// The path of its socket.
    #[cfg(test)]
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }
}
