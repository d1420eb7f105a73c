//! The program as a child process: it starts as it would without APEX, receives each signal once,
//! and determines how `apex` exits.
//!
//! APEX blocks the signals that it relays and takes them one by one with `sigtimedwait`, so there
//! is no handler and no race. The child gets the signal mask and the dispositions that APEX was
//! started with. It is in APEX's process group, so the terminal's signals (Ctrl-C, Ctrl-\, hang-up)
//! reach it directly.

use std::cell::Cell;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Signals that are passed on to the program.
const RELAYED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// The signals by which a user ends a program.
const INTERRUPTS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Whether SIGPIPE was ignored when APEX started, before the Rust runtime made it so.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_SIGPIPE: extern "C" fn() = remember_sigpipe;

extern "C" fn remember_sigpipe() {
    // SAFETY: `sigaction` is plain data, for which zeros are valid; a null new action only reads
    // the old one.
    let ignored = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut old) == 0
            && old.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether SIGXFSZ was ignored when APEX started.
static SIGXFSZ_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Makes writing beyond the limit on file sizes (`ulimit -f`) an error that does not end this
/// process. The program gets the signal as it was.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal runs no code.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    SIGXFSZ_WAS_IGNORED.store(before == libc::SIG_IGN, Ordering::Relaxed);
}

/// The signals that APEX takes for the program, blocked; and how they were before.
pub struct Signals {
    taken: libc::sigset_t,
    /// One of [`INTERRUPTS`] came while the program ran.
    interrupted: Cell<bool>,
    mask_before: libc::sigset_t,
    sigchld_before: libc::sigaction,
}

impl Signals {
    /// Blocks them. Called once, while the process has one thread: another one would take SIGCHLD,
    /// and nobody would see that the program has ended.
    pub fn block() -> Self {
        // SAFETY: signal sets, actions and flags are plain data, for which zeros are valid; every
        // pointer is to such a local; the signal numbers are valid, so no call can fail.
        unsafe {
            let mut this: Self = std::mem::zeroed();
            libc::sigemptyset(&raw mut this.taken);
            for signal in RELAYED.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(&raw mut this.taken, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const this.taken, &raw mut this.mask_before);
            // Were SIGCHLD ignored, the kernel would throw the program's exit status away.
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGCHLD, &raw const default, &raw mut this.sigchld_before);
            this
        }
    }

    /// Starts the program with the signals as they were before [`Signals::block`].
    ///
    /// # Errors
    /// Those of `execvp`.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.hand_on(command).spawn()
    }

    /// Becomes the program, with the signals as they were. Returns only if that failed, and why.
    pub fn replace(&self, command: &mut Command) -> io::Error {
        self.hand_on(command).exec()
    }

    fn hand_on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let (mask, sigchld) = (self.mask_before, self.sigchld_before);
        let ignore_sigpipe = SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed);
        let obey_sigxfsz = !SIGXFSZ_WAS_IGNORED.load(Ordering::Relaxed);
        let restore = move || {
            // SAFETY: pointers to captured plain data; a null pointer means that the old value is
            // not wanted.
            unsafe {
                libc::sigaction(libc::SIGCHLD, &raw const sigchld, std::ptr::null_mut());
                if ignore_sigpipe {
                    libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                }
                if obey_sigxfsz {
                    libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: the closure may run between fork and exec: it makes async-signal-safe calls only.
        unsafe { command.pre_exec(restore) }
    }

    /// Waits for the program to end and relays signals meanwhile. `look` is called after each wait
    /// that it asked for: it returns how long to wait before it is called again, or `None` for
    /// never.
    ///
    /// # Errors
    /// Those of `waitpid`.
    pub fn wait(
        &self,
        child: &mut Child,
        mut look: impl FnMut() -> Option<Duration>,
    ) -> io::Result<ExitStatus> {
        let mut pause = look();
        loop {
            match self.next(pause) {
                Some(signal) => {
                    self.note(&signal);
                    relay(&signal, child);
                }
                None => pause = look(),
            }
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
        }
    }

    /// The program has ended: from here on, a signal that ends programs ends this process. One that
    /// came before was the program's.
    pub fn end_by_signals(&self) {
        while let Some(signal) = self.next(Some(Duration::ZERO)) {
            self.note(&signal);
        }
        // SAFETY: pointers to locals and fields that are initialised; the numbers are valid.
        unsafe {
            let mut mask = self.taken;
            for signal in INTERRUPTS {
                if libc::sigismember(&raw const self.mask_before, signal) == 0 {
                    libc::sigdelset(&raw mut mask, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
        }
    }

    /// A signal that came before the program was started and that ends this process.
    pub fn ends_before_start(&self) -> Option<i32> {
        // SAFETY: signal sets and actions are plain data, for which zeros are valid; every pointer
        // is to such a local, and the numbers are valid.
        let is_due = |signal: i32| unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigpending(&raw mut pending);
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            libc::sigismember(&raw const pending, signal) == 1
                && libc::sigismember(&raw const self.mask_before, signal) == 0
                && action.sa_sigaction != libc::SIG_IGN
        };
        INTERRUPTS.into_iter().find(|&signal| is_due(signal))
    }

    /// Whether a signal that ends programs came while one was waited for.
    pub fn interrupted(&self) -> bool {
        self.interrupted.get()
    }

    fn note(&self, signal: &libc::siginfo_t) {
        self.interrupted.set(self.interrupted.get() || INTERRUPTS.contains(&signal.si_signo));
    }

    /// Waits for a signal that ends programs, which then does not end this process.
    pub fn wait_for_interrupt(&self) {
        // SAFETY: an initialised set; a null pointer means that the old mask is not wanted.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.taken, std::ptr::null_mut()) };
        while self.next(None).is_none_or(|signal| !INTERRUPTS.contains(&signal.si_signo)) {}
    }

    /// The next signal, or `None` when `pause` has passed (or something else woke us).
    fn next(&self, pause: Option<Duration>) -> Option<libc::siginfo_t> {
        let pause = pause.map(|pause| libc::timespec {
            tv_sec: pause.as_secs().cast_signed(),
            tv_nsec: pause.subsec_nanos().into(),
        });
        let timeout = pause.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `siginfo_t` is plain data, for which zeros are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is initialised, `info` is writable, `timeout` is null or points to a
        // `timespec` that lives on.
        let signal = unsafe { libc::sigtimedwait(&raw const self.taken, &raw mut info, timeout) };
        (signal > 0).then_some(info)
    }
}

/// Passes a signal on, unless the child has it already or sent it itself.
fn relay(info: &libc::siginfo_t, child: &Child) {
    let pid = child.id().cast_signed();
    if info.si_signo == libc::SIGCHLD {
        return;
    }
    // What the kernel sends by itself comes from the terminal, for the whole foreground group.
    let from_terminal = info.si_code == libc::SI_KERNEL;
    // SAFETY: these calls take integers; the child has not been waited for, so its identifier is
    // still its own.
    unsafe {
        let same_group = libc::getpgid(pid) == libc::getpgrp();
        // SAFETY (of the union): a signal that is not the kernel's carries its sender.
        let from_child = !from_terminal && info.si_pid() == pid;
        if !(from_terminal && same_group || from_child) {
            libc::kill(pid, info.si_signo);
        }
    }
}

/// Ends this process by a signal, with its default action and without a core file.
pub fn end_by(signal: i32) -> ! {
    // SAFETY: plain system calls on locals; a second core file, ours, must not replace the
    // program's.
    unsafe {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::raise(signal);
    }
    // Still here: as process 1 of a container, whom signals spare.
    std::process::exit(128 + signal);
}

/// Ends this process the way the program ended: by the same exit code, or by the same signal.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        end_by(signal);
    }
    // SAFETY: ends the process. Nothing waits in a buffer, and a thread may be in a driver's
    // library, whose functions for the process's end must then not run.
    unsafe { libc::_exit(status.code().unwrap_or(crate::exit::FAILED.into())) }
}
