//! A root service that sets clocks for users who may not.
//!
//! A client connects to a Unix socket. The kernel identifies its user (`SO_PEERCRED`); only users
//! whom the administrator named are served. The client claims a device and sets its clock, through
//! a [`Setter`] of the service. The claim ends with the connection, so the clock is released
//! whatever ends the client. If the service is killed, its watchdogs release the clocks.
//!
//! Requests and replies are lines of at most [`MOST_LINE`] bytes: `claim UUID`, `set MHZ`,
//! `release`, `forget`, `end`; `ok`, `ok released` (a clock was left by an earlier run, and was
//! released), `no: REASON`, `refused CODE` (of NVML), `left` (the clock could not be released).

use crate::{Claim, Gpu, NotSet, Nvml, Setter};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Where clients find the service.
pub const SOCKET: &str = "/run/apex-power.sock";
/// Maximum length of a line, bytes, with its end.
pub(crate) const MOST_LINE: usize = 128;
/// Maximum number of clients at a time.
const MOST_CLIENTS: usize = 64;
/// Time between two checks of the watchdog while a client sends nothing.
const LOOK: Duration = Duration::from_secs(1);
/// Number of [`LOOK`] periods after which a client that has claimed nothing is disconnected.
const LOOKS_TO_CLAIM: u32 = 10;

/// The service.
pub struct Helper {
    /// The file or the name of NVML.
    pub library: PathBuf,
    /// The folder of claims.
    pub claims: PathBuf,
    /// The users who are served, by number.
    pub users: Vec<u32>,
    /// The command line that starts a watchdog for the device with this UUID
    /// ([`crate::Watchdog::start`]).
    pub watchdog: fn(library: &Path, uuid: &str) -> Vec<OsString>,
    /// Receives a log line.
    pub log: fn(String),
}

/// Decrements the number of clients when it is dropped.
struct Counted(Arc<AtomicUsize>);

/// How many clients there are, of users who are served and of others.
#[derive(Default)]
struct Clients {
    served: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Helper {
    /// Serves clients until the process ends.
    pub fn serve(self, listener: &UnixListener) -> ! {
        let (this, clients) = (Arc::new(self), Clients::default());
        loop {
            // Too many open files or threads are a state that passes.
            if let Err(error) = Self::accept(&this, &clients, listener) {
                (this.log)(format!("a client was not served: {error}"));
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Starts a thread for the next client. Users who are not served are counted apart: they cannot
    /// take the places of those who are.
    fn accept(this: &Arc<Self>, clients: &Clients, listener: &UnixListener) -> io::Result<()> {
        let (stream, _) = listener.accept()?;
        let user = user_of(&stream)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        let is_served = this.users.contains(&user);
        let alike = if is_served { &clients.served } else { &clients.refused };
        let counted = Counted(Arc::clone(alike));
        if alike.fetch_add(1, SeqCst) >= MOST_CLIENTS {
            return Err(io::Error::other(format!(
                "user {user}: there are {MOST_CLIENTS} such clients already"
            )));
        }
        let this = Arc::clone(this);
        std::thread::Builder::new().spawn(move || {
            let _counted = counted;
            // A broken connection is the end of the client.
            let _ = this.client(user, stream);
        })?;
        Ok(())
    }

    fn client(&self, user: u32, mut stream: UnixStream) -> io::Result<()> {
        let mut lines = Lines::default();
        // Even a refusal waits for the request: the client may still be writing.
        let line = (0..LOOKS_TO_CLAIM).find_map(|_| lines.next(&mut stream).transpose());
        let line = line.transpose()?.unwrap_or_default();
        if !self.users.contains(&user) {
            (self.log)(format!("user {user} may not set clocks"));
            return reply(&mut stream, &format!("no: the helper does not serve user {user}"));
        }
        let claimed = self.claim(&line);
        let (mut setter, was_left) = match claimed {
            Ok(claimed) => claimed,
            Err(why) => return reply(&mut stream, &format!("no: {why}")),
        };
        (self.log)(format!("user {user} governs {}", setter.gpu().uuid));
        reply(&mut stream, if was_left { "ok released" } else { "ok" })?;
        let is_over = obey(&mut setter, &mut lines, &mut stream);
        let is_left = setter.end();
        (self.log)(format!("user {user} has ended"));
        is_over.and_then(|()| reply(&mut stream, if is_left { "left" } else { "ok" }))
    }

    /// Claims the device that the client wants.
    fn claim(&self, line: &str) -> Result<(Setter, bool), String> {
        let uuid = line.strip_prefix("claim ").ok_or("claim a device first")?;
        let gpus = Nvml::open(&self.library).map_or_else(Vec::new, |nvml| nvml.gpus());
        let gpu = gpus.into_iter().find(|gpu| gpu.uuid == uuid && !gpu.is_divided);
        self.start(gpu.ok_or("there is no such device")?)
    }

    fn start(&self, gpu: Gpu) -> Result<(Setter, bool), String> {
        let claim = Claim::take(&self.claims, &gpu.uuid).map_err(|error| error.to_string())?;
        let claim = claim.ok_or("another run governs it")?;
        if gpu.is_set().map_err(|error| error.to_string())? && !claim.is_noted().unwrap_or(false) {
            return Err("another tool has set its clock".into());
        }
        let watchdog = (self.watchdog)(&self.library, &gpu.uuid);
        Setter::start(gpu, claim, &watchdog).map_err(|error| error.to_string())
    }
}

/// Obeys the client until it sends `end`.
fn obey(setter: &mut Setter, lines: &mut Lines, stream: &mut UnixStream) -> io::Result<()> {
    loop {
        let Some(line) = lines.next(stream)? else {
            if setter.is_watched() {
                continue;
            }
            return Err(io::Error::other("the watchdog has ended"));
        };
        let done = match line.split_once(' ') {
            None if line == "end" => return Ok(()),
            None if line == "release" => setter.release(),
            None if line == "forget" => setter.forget(),
            Some(("set", mhz)) => match mhz.parse().ok().filter(|mhz| setter.gpu().clocks.contains(mhz)) {
                Some(mhz) => setter.set(Some(mhz)),
                None => {
                    reply(stream, "no: this is no legal clock")?;
                    continue;
                }
            },
            _ => {
                reply(stream, "no: this is no request")?;
                continue;
            }
        };
        match done {
            Ok(()) => reply(stream, "ok")?,
            Err(NotSet::Refused(error)) => reply(stream, &format!("refused {}", error.code))?,
            Err(NotSet::Denied(why)) => reply(stream, &format!("no: {why}"))?,
            Err(NotSet::Unwatched(error)) => return Err(error),
        }
    }
}

fn reply(stream: &mut UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// The user at the other end of a connection, according to the kernel.
fn user_of(stream: &UnixStream) -> io::Result<u32> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the socket is open, the structure is writable and has the length that is stated.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    if done == 0 { Ok(found.uid) } else { Err(io::Error::last_os_error()) }
}

/// Splits a stream into lines of bounded length.
#[derive(Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// The next line; `None` if none arrives within the stream's read timeout.
    ///
    /// # Errors
    /// If the stream ends, or a line is too long or not UTF-8.
    pub(crate) fn next(&mut self, stream: &mut impl Read) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.0.drain(..=end).collect();
                let line = String::from_utf8(line).map_err(io::Error::other)?;
                return Ok(Some(line.trim_end().to_owned()));
            }
            if self.0.len() >= MOST_LINE {
                return Err(io::Error::other("a line is too long"));
            }
            let mut piece = [0; MOST_LINE];
            match stream.read(&mut piece[..MOST_LINE - self.0.len()]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.0.extend(&piece[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
