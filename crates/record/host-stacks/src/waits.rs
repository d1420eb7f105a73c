//! Determines the object that a thread waits for, from its system call.

use crate::linux::{self, Call};
use crate::record::{Doing, WaitsFor};
use apex_call_frames::memory::{Memory, half_at};
use std::ops::Range;

/// The global lock of a Python interpreter, as far as it matters for a wait.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The addresses on which threads wait for it.
    pub addresses: Range<u64>,
    /// The thread that holds it.
    pub holder: Option<u32>,
}

/// Returns the state of a thread of `pid` that waits in this call.
pub fn waiting(pid: u32, call: &Call, lock: impl FnOnce() -> Option<Lock>) -> Doing {
    let waits_for = match call.number.map(i64::from) {
        Some(libc::SYS_futex) => futex(call.arguments[0], lock),
        Some(libc::SYS_poll | libc::SYS_ppoll) => poll(pid, call.arguments),
        // Without descriptors, the timeout alone ends it: `time.sleep` before Python 3.11.
        Some(libc::SYS_select | libc::SYS_pselect6) if call.arguments[0] == 0 => WaitsFor::Sleep,
        Some(
            libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2,
        ) => WaitsFor::Ready,
        Some(libc::SYS_nanosleep | libc::SYS_clock_nanosleep) => WaitsFor::Sleep,
        Some(libc::SYS_wait4 | libc::SYS_waitid) => WaitsFor::Child,
        Some(
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_pread64
            | libc::SYS_preadv
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_connect
            | libc::SYS_ioctl
            | libc::SYS_flock
            | libc::SYS_fsync
            | libc::SYS_fdatasync,
        ) => descriptor(pid, call.arguments[0]),
        _ => WaitsFor::Unknown,
    };
    Doing::Waiting { syscall: call.number, r#for: waits_for }
}

fn futex(address: u64, lock: impl FnOnce() -> Option<Lock>) -> WaitsFor {
    match lock() {
        Some(lock) if lock.addresses.contains(&address) => WaitsFor::Gil { holder: lock.holder },
        _ => WaitsFor::Futex { address },
    }
}

/// A wait for one descriptor says for which.
fn poll(pid: u32, [first, count, ..]: [u64; 6]) -> WaitsFor {
    if count == 0 {
        return WaitsFor::Sleep;
    }
    let mut entry = [0; 8];
    if count == 1 && Memory::of(pid).read(first, &mut entry) {
        return descriptor(pid, half_at(&entry, 0).into());
    }
    WaitsFor::Ready
}

fn descriptor(pid: u32, number: u64) -> WaitsFor {
    let Some(target) = linux::descriptor(pid, number) else { return WaitsFor::Unknown };
    let target = target.to_string_lossy().into_owned();
    WaitsFor::Descriptor { what: kind(&target).to_owned(), target }
}

/// Returns the kind of a descriptor from its text in /proc.
fn kind(target: &str) -> &str {
    match target {
        device if device.starts_with("/dev/") => "device",
        file if file.starts_with('/') => "file",
        other => {
            other.trim_start_matches("anon_inode:").trim_matches(['[', ']']).split(':').next().unwrap_or("")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn futex_call(address: u64) -> Call {
        Call { number: Some(202), arguments: [address, 0, 0, 0, 0, 0], ..Call::default() }
    }

    #[test]
    fn a_futex_of_the_global_lock_is_a_wait_for_it() {
        let lock = || Some(Lock { addresses: 100..200, holder: Some(7) });
        let waits = |call: &Call| match waiting(1, call, lock) {
            Doing::Waiting { r#for, .. } => r#for,
            Doing::Running => panic!("it waits"),
        };
        assert_eq!(waits(&futex_call(150)), WaitsFor::Gil { holder: Some(7) });
        assert_eq!(waits(&futex_call(200)), WaitsFor::Futex { address: 200 });
        assert_eq!(waits(&Call { number: Some(230), ..Call::default() }), WaitsFor::Sleep);
        let select = |count| Call { number: Some(23), arguments: [count, 0, 0, 0, 0, 0], ..Call::default() };
        assert_eq!((waits(&select(0)), waits(&select(4))), (WaitsFor::Sleep, WaitsFor::Ready));
        assert_eq!(waits(&Call::default()), WaitsFor::Unknown);
    }

    #[test]
    fn descriptors_say_what_they_are() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader) as u64;
        let WaitsFor::Descriptor { what, target } = descriptor(std::process::id(), fd) else {
            panic!("no descriptor")
        };
        assert_eq!((&*what, target.starts_with("pipe:[")), ("pipe", true));
        let kinds = ["socket:[1]", "anon_inode:[eventfd]", "/dev/nvidia0", "/tmp/x", "anon_inode:bpf"];
        assert_eq!(kinds.map(kind), ["socket", "eventfd", "device", "file", "bpf"]);
        assert_eq!(descriptor(std::process::id(), u64::MAX), WaitsFor::Unknown);
    }
}
