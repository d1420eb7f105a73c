//! Processes that tests start, each with a time limit.
//!
//! A program under test may hang, and a test that waits for it without a limit uses all of CI's
//! time and does not say why. [`Command`] and [`Child`] have the methods of the standard library's
//! types that tests use. If a process does not end within [`LIMIT`], its process group is killed and
//! the test fails with the command and what it has printed. The limit is no measurement: it is far
//! longer than any process here takes on a busy machine.
//!
//! A process does not outlive its [`Child`]: dropping that kills the process group.
//!
//! `xtask/tests/processes.rs` fails if a test uses the standard library's `Command`.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{CommandEnvs, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time of a process.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Maximum time of a process that compiles crates.
pub const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// Has SIGALRM end the calling process after [`LIMIT`]: for a child that a test forks itself.
pub fn limit_this_process() {
    // SAFETY: a plain system call; the child of a fork may make it.
    unsafe { libc::alarm(LIMIT.as_secs() as u32) };
}

/// The time for which the pipes of a killed process may stay open: a process that has left the
/// group may hold them.
const GRACE: Duration = Duration::from_secs(5);

/// As [`std::process::Command`]; the processes that it starts have a time limit.
pub struct Command {
    inner: std::process::Command,
    limit: Duration,
    /// Whether the process leads a group of its own. One that begins a session in `pre_exec` must
    /// not lead a group before.
    leads_group: bool,
    has_stdin: bool,
    has_stdout: bool,
    has_stderr: bool,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(out)
    }
}

/// Methods that only pass their arguments on.
macro_rules! passed_on {
    ($($(#[$docs:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$docs])*
        pub fn $name(&mut self, $($argument: $type),*) -> &mut Self {
            self.inner.$name($($argument),*);
            self
        }
    )*};
}

impl Command {
    /// A command that runs `program`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            inner: std::process::Command::new(program),
            limit: LIMIT,
            leads_group: true,
            has_stdin: false,
            has_stdout: false,
            has_stderr: false,
        }
    }

    /// Sets another time limit.
    pub fn limit(&mut self, limit: Duration) -> &mut Self {
        self.limit = limit;
        self
    }

    passed_on! {
        /// Adds an argument.
        arg(argument: impl AsRef<OsStr>);
        /// Adds arguments.
        args(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>);
        /// Sets a variable.
        env(name: impl AsRef<OsStr>, value: impl AsRef<OsStr>);
        /// Sets variables.
        envs(variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>);
        /// Removes a variable.
        env_remove(name: impl AsRef<OsStr>);
        /// Removes all variables.
        env_clear();
        /// Sets the folder in which the process starts.
        current_dir(folder: impl AsRef<Path>);
    }

    /// Sets standard input.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.has_stdin = true;
        self.inner.stdin(stdin);
        self
    }

    /// Sets standard output.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.has_stdout = true;
        self.inner.stdout(stdout);
        self
    }

    /// Sets standard error.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.has_stderr = true;
        self.inner.stderr(stderr);
        self
    }

    /// Runs a closure in the new process before the program starts. The process then stays in this
    /// process's group, unless the closure makes it leave.
    ///
    /// # Safety
    ///
    /// As for [`CommandExt::pre_exec`].
    pub unsafe fn pre_exec(
        &mut self,
        run: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> &mut Self {
        self.leads_group = false;
        // SAFETY: promised by the caller.
        unsafe { self.inner.pre_exec(run) };
        self
    }

    /// Has the kernel answer a system call of the process and its children with an error, as
    /// sandboxes do.
    pub fn refuse(&mut self, call: libc::c_long, error: i32) -> &mut Self {
        // SAFETY: the closure makes system calls on its own data only.
        unsafe { self.inner.pre_exec(move || refuse(call, error)) };
        self
    }

    /// The variables that were set or removed.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// Starts the process.
    ///
    /// # Errors
    /// If the system cannot.
    pub fn spawn(&mut self) -> io::Result<Child> {
        if self.leads_group {
            self.inner.process_group(0);
        }
        let inner = self.inner.spawn()?;
        let deadline = Instant::now() + self.limit;
        let watch = Arc::new(Watch::default());
        let (watching, pid) = (Arc::clone(&watch), inner.id());
        std::thread::spawn(move || watching.kill_at(deadline, pid));
        Ok(Child { inner, watch, deadline, name: format!("{self:?}"), limit: self.limit })
    }

    /// Runs the process to its end.
    ///
    /// # Errors
    /// If it cannot be started.
    ///
    /// # Panics
    /// If the time limit has passed.
    #[track_caller]
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Runs the process to its end and returns what it has printed.
    ///
    /// # Errors
    /// If it cannot be started.
    ///
    /// # Panics
    /// If the time limit has passed.
    #[track_caller]
    pub fn output(&mut self) -> io::Result<Output> {
        if !self.has_stdin {
            self.inner.stdin(Stdio::null());
        }
        if !self.has_stdout {
            self.inner.stdout(Stdio::piped());
        }
        if !self.has_stderr {
            self.inner.stderr(Stdio::piped());
        }
        self.spawn()?.wait_with_output()
    }
}

/// Installs a filter that answers a system call of this process with an error.
fn refuse(call: libc::c_long, error: i32) -> io::Result<()> {
    // The call's number is the first field of what the filter sees.
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        statement(LOAD_NUMBER, 0, 0, 0),
        statement(IF_EQUAL, 0, 1, call as u32),
        statement(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        statement(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain system calls; `program` is valid for reading.
    let is_installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if is_installed { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Kills the process group at its deadline, unless the process was waited for before.
#[derive(Debug, Default)]
struct Watch {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The process was waited for: its number may belong to another one.
    is_reaped: bool,
    /// The deadline has passed.
    is_late: bool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill_at(&self, deadline: Instant, pid: u32) {
        let state = self.lock();
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.ended.wait_timeout_while(state, left, |state| !state.is_reaped);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if !state.is_reaped {
            state.is_late = true;
            kill_group(pid);
        }
    }
}

/// Kills a process that has not been waited for, and its group if it leads one.
fn kill_group(pid: u32) {
    let pid = pid.cast_signed();
    // SAFETY: plain system calls. The number belongs to a child that has not been waited for.
    unsafe {
        if libc::getpgid(pid) == pid {
            libc::kill(-pid, libc::SIGKILL);
        }
        libc::kill(pid, libc::SIGKILL);
    }
}

/// As [`std::process::Child`], with a time limit; dropping it kills the process group.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    watch: Arc<Watch>,
    deadline: Instant,
    name: String,
    limit: Duration,
}

impl Deref for Child {
    type Target = std::process::Child;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl DerefMut for Child {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

impl Child {
    /// Waits for the end of the process.
    ///
    /// # Errors
    /// If the system cannot.
    ///
    /// # Panics
    /// If the time limit has passed.
    #[track_caller]
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let (status, is_late) = self.reap()?;
        assert!(!is_late || std::thread::panicking(), "{}", self.complaint(&[]));
        Ok(status)
    }

    /// The status of the process if it has ended.
    ///
    /// # Errors
    /// If the system cannot tell.
    ///
    /// # Panics
    /// If the time limit has passed.
    #[track_caller]
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut state = self.watch.lock();
        let status = self.inner.try_wait()?;
        state.is_reaped |= status.is_some();
        let is_late = state.is_late;
        drop(state);
        self.watch.ended.notify_all();
        assert!(!is_late, "{}", self.complaint(&[]));
        Ok(status)
    }

    /// Waits for the end of the process and returns what it has printed.
    ///
    /// # Errors
    /// If the system cannot.
    ///
    /// # Panics
    /// If the time limit has passed; the message contains what the process has printed.
    #[track_caller]
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.inner.stdin.take());
        let out = self.inner.stdout.take().map(all_of);
        let err = self.inner.stderr.take().map(all_of);
        let read = |pipe: Option<Receiver<Vec<u8>>>| pipe.map_or((Vec::new(), true), |pipe| self.read(&pipe));
        let [stdout, stderr] = [out, err].map(read);
        let (status, is_late) = self.reap()?;
        assert!(!is_late && stdout.1 && stderr.1, "{}", self.complaint(&[&stdout.0, &stderr.0]));
        Ok(Output { status, stdout: stdout.0, stderr: stderr.0 })
    }

    /// Reads a pipe until it is closed, or until the process has been killed; returns whether it
    /// was closed.
    fn read(&self, pipe: &Receiver<Vec<u8>>) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        loop {
            let left = (self.deadline + GRACE).saturating_duration_since(Instant::now());
            match pipe.recv_timeout(left) {
                Ok(part) => bytes.extend(part),
                Err(error) => return (bytes, error == RecvTimeoutError::Disconnected),
            }
        }
    }

    /// Waits for the end of the process; returns its status, and whether it was killed for its time.
    fn reap(&mut self) -> io::Result<(ExitStatus, bool)> {
        drop(self.inner.stdin.take());
        wait_without_reaping(self.inner.id());
        let mut state = self.watch.lock();
        let status = self.inner.wait()?;
        state.is_reaped = true;
        let is_late = state.is_late;
        drop(state);
        self.watch.ended.notify_all();
        Ok((status, is_late))
    }

    fn complaint(&self, printed: &[&[u8]]) -> String {
        let printed: Vec<_> = printed.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        format!("{} did not end within {:?} and was killed\n{}", self.name, self.limit, printed.concat())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let state = self.watch.lock();
        if !state.is_reaped {
            kill_group(self.inner.id());
        }
        drop(state);
        // A second wait returns the status of the first.
        let _ = self.reap();
    }
}

/// Waits until a child has ended, and leaves its status to a later wait. Returns at once if it was
/// waited for already.
fn wait_without_reaping(pid: u32) {
    loop {
        // SAFETY: zeros are valid for this plain structure, and the system only writes to it.
        let result = unsafe {
            let mut info = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if result == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Reads a pipe in a thread of its own, part by part.
fn all_of(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut part = vec![0; 1 << 16];
        loop {
            match pipe.read(&mut part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(bytes) if sender.send(part[..bytes].to_vec()).is_err() => return,
                Ok(_) => {}
            }
        }
    });
    receiver
}
