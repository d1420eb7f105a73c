//! Checks of the system: space, limits, clocks, the C library, containers.

use super::Check;
use crate::units;
use apex_trace::control::{CONTROL_FILE, MappedControl, Settings};
use apex_untrusted::Folder;
use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

/// Less free space than this is worth a warning: some millions of launches.
const LOW_SPACE: u64 = 1 << 30;

pub(super) fn checks(dir: &Path) -> Vec<Check> {
    vec![
        session_folder(dir),
        space(dir),
        file_size(),
        memory_lock(),
        shared_memory(),
        clock(),
        c_library(),
        container(),
        host_stacks(),
    ]
}

/// Makes a real session folder with its mapped page, and removes it.
fn session_folder(dir: &Path) -> Check {
    const ID: &str = "session-folder";
    let trial = dir.join(format!(".apex-doctor-{}", std::process::id()));
    let made = Folder::make(&trial).and_then(|folder| {
        let made = MappedControl::create_in(&folder, Settings::default()).map(drop);
        // What could not be made need not be removed, and what others have made must not be.
        let _ = folder.remove(CONTROL_FILE).and_then(|()| std::fs::remove_dir(&trial));
        made
    });
    match made {
        Ok(()) => Check::ok(ID, format!("{} can hold a session", apex_untrusted::shown(dir))),
        Err(error) => Check::fail(
            ID,
            format!("{} cannot hold a session: {error}", apex_untrusted::shown(dir)),
            "choose a folder on a local disk with `apex run -o DIR`",
        ),
    }
}

fn space(dir: &Path) -> Check {
    const ID: &str = "disk-space";
    match free_and_total(dir) {
        Some((free, _)) if free < LOW_SPACE => Check::warn(
            ID,
            format!("{} free in {}", units::bytes(free), apex_untrusted::shown(dir)),
            "records without space are dropped and counted; limit the session with --max-size, or choose \
                another folder",
        ),
        Some((free, _)) => {
            Check::ok(ID, format!("{} free in {}", units::bytes(free), apex_untrusted::shown(dir)))
        }
        None => Check::warn(
            ID,
            format!("the free space of {} is unknown", apex_untrusted::shown(dir)),
            "check that it exists",
        ),
    }
}

/// Free and total bytes of a file system.
fn free_and_total(path: &Path) -> Option<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: `statvfs` is plain data; the path ends with a zero byte.
    let stat = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut stat) == 0).then_some(stat)
    }?;
    Some((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

/// The soft limit of a resource; `None` if unlimited.
fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a local `rlimit`; on failure it stays unlimited.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn file_size() -> Check {
    const ID: &str = "file-size-limit";
    match limit(libc::RLIMIT_FSIZE) {
        None => Check::ok(ID, "unlimited"),
        Some(bytes) => Check::warn(
            ID,
            format!("files may grow to {} (ulimit -f)", units::bytes(bytes)),
            "raise it, or limit the session to less with --max-size",
        ),
    }
}

fn memory_lock() -> Check {
    let found = limit(libc::RLIMIT_MEMLOCK).map_or("unlimited".into(), units::bytes);
    Check::ok("locked-memory", format!("{found} (APEX locks none; RDMA and GPUDirect programs do)"))
}

fn shared_memory() -> Check {
    const ID: &str = "shared-memory";
    match free_and_total(Path::new("/dev/shm")) {
        Some((_, total)) if total <= 64 << 20 => Check::warn(
            ID,
            format!("/dev/shm is {} (APEX uses none)", units::bytes(total)),
            "data loaders with worker processes need more: docker run --shm-size=8g",
        ),
        Some((_, total)) => Check::ok(ID, format!("/dev/shm is {}", units::bytes(total))),
        None => Check::ok(ID, "no /dev/shm (APEX uses none)"),
    }
}

fn clock() -> Check {
    const ID: &str = "clock";
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let invariant =
        ["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.split_whitespace().any(|f| f == *flag));
    if invariant {
        Check::ok(ID, "invariant time-stamp counter")
    } else {
        Check::ok(ID, "clock_gettime (no invariant time-stamp counter): each record takes about 20 ns longer")
    }
}

fn c_library() -> Check {
    // SAFETY: returns a constant string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    let musl = std::fs::read_dir("/lib").into_iter().flatten().flatten();
    let musl = musl.map(|entry| entry.file_name()).find(|name| name.as_bytes().starts_with(b"ld-musl-"));
    match musl {
        Some(linker) => Check::warn(
            "libc",
            format!("glibc {version}, and musl's {} beside it", linker.to_string_lossy()),
            "programs built for musl are not recorded: build them for glibc",
        ),
        None => Check::ok("libc", format!("glibc {version}")),
    }
}

fn container() -> Check {
    let inside = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let filtered = status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    let found = match (inside, filtered) {
        (false, false) => "none",
        (true, false) => "in a container",
        (false, true) => "system calls are filtered (seccomp)",
        (true, true) => "in a container, system calls are filtered (seccomp)",
    };
    match read_own_memory() {
        Ok(()) => {
            Check::ok("container", format!("{found}; APEX needs neither ptrace nor counter permission"))
        }
        Err(error) => Check::warn(
            "container",
            format!("{found}; the system call process_vm_readv is refused ({error})"),
            "reports do not show the places in Python and C++ from which kernels are launched: allow the call in the \
             sandbox's filter",
        ),
    }
}

/// Reads memory of a child as `apex run` samples the call stacks of a program's threads.
fn host_stacks() -> Check {
    const ID: &str = "host-stacks";
    const ADVICE: &str = "sessions do not say what the host did while the GPU waited: allow `apex` to trace the programs \
                          that it starts (kernel.yama.ptrace_scope 0 or 1, or CAP_SYS_PTRACE)";
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope =
        scope.map_or("no Yama".to_owned(), |scope| format!("Yama's ptrace_scope is {}", scope.trim()));
    match refusal_to_read_a_child() {
        Err(error) => Check::warn(ID, format!("unknown: `cat` does not run ({error})"), ADVICE),
        Ok(None) => Check::ok(
            ID,
            format!(
                "stacks of Python threads and of threads that wait are read with process_vm_readv, without \
                 stopping them ({scope}); {}",
                match apex_host_stacks::refusal_of_running() {
                    None => "those of compiled code that runs with perf_event_open".to_owned(),
                    Some(why) => format!(
                        "not those of compiled code that runs: {why}; allow it by CAP_PERFMON, or \
                         kernel.perf_event_paranoid 2"
                    ),
                }
            ),
        ),
        Ok(Some(why)) => Check::warn(ID, format!("{why} ({scope})"), ADVICE),
    }
}

fn refusal_to_read_a_child() -> std::io::Result<Option<String>> {
    let mut child = std::process::Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    if let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) {
        // It answers when it is loaded, and ends when its standard input does.
        stdin.write_all(b"\n")?;
        stdout.read_exact(&mut [0])?;
        let refusal = apex_host_stacks::refusal(child.id());
        drop(stdin);
        child.wait()?;
        return Ok(refusal);
    }
    Ok(None)
}

/// Reads memory of this process as the recorder reads call stacks.
fn read_own_memory() -> std::io::Result<()> {
    let (from, mut to) = (7u64, 0u64);
    let remote = libc::iovec { iov_base: (&raw const from).cast_mut().cast(), iov_len: size_of_val(&from) };
    let local = libc::iovec { iov_base: (&raw mut to).cast(), iov_len: size_of_val(&to) };
    // SAFETY: both pieces are variables of this function, of these lengths.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if read < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
