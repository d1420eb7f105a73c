//! The recorder's clock: the source of [`now`], and its anchors to the system's clocks.

use crate::layout::{ClockAnchor, ClockKind};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ticks of the recorder's clock: the time-stamp counter where it is invariant, else nanoseconds of
/// `CLOCK_MONOTONIC`. Never goes back within a thread; comparable between threads and processes of
/// one machine.
#[inline]
pub fn now() -> u64 {
    TickCounter::decided().now()
}

/// The clock behind [`now`], for frequent readings: it avoids the lookup of the selected source.
#[derive(Clone, Copy, Debug)]
pub struct TickCounter {
    kind: ClockKind,
}

impl TickCounter {
    /// The clock of this process.
    #[inline]
    pub fn decided() -> TickCounter {
        TickCounter { kind: clock_kind() }
    }

    /// As the function [`now`].
    #[inline(always)]
    pub fn now(self) -> u64 {
        match self.kind {
            ClockKind::Tsc => time_stamp_counter(),
            ClockKind::Monotonic => system_ns(libc::CLOCK_MONOTONIC),
        }
    }
}

/// The selected source of [`now`]: a [`ClockKind`], or 0 before the first reading.
static DECIDED: AtomicU32 = AtomicU32::new(0);

/// The source of [`now`] in this process.
#[inline]
pub(crate) fn clock_kind() -> ClockKind {
    ClockKind::from_raw(DECIDED.load(Ordering::Relaxed)).unwrap_or_else(decide)
}

#[cold]
fn decide() -> ClockKind {
    let usable = invariant_tsc() && tsc_is_readable() && kernel_has_not_given_up_tsc();
    let kind = if usable { ClockKind::Tsc } else { ClockKind::Monotonic };
    DECIDED.store(kind as u32, Ordering::Relaxed);
    kind
}

/// Nominal rate of the clock in ticks per second; 0 if the processor does not report it.
pub(crate) fn nominal_hz(kind: ClockKind) -> u64 {
    match kind {
        ClockKind::Tsc => nominal_tsc_hz(),
        ClockKind::Monotonic => 1_000_000_000,
    }
}

/// The same moment on three clocks, to some tens of nanoseconds: the closest of a few tries.
pub(crate) fn anchor() -> ClockAnchor {
    let attempt = || {
        let before = now();
        let monotonic_ns = system_ns(libc::CLOCK_MONOTONIC);
        let after = now();
        let real_ns = system_ns(libc::CLOCK_REALTIME);
        let width = after.saturating_sub(before);
        (width, ClockAnchor { ticks: before + width / 2, monotonic_ns, real_ns })
    };
    let mut best = attempt();
    for _ in 0..3 {
        let next = attempt();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

fn system_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing. It cannot fail for the clocks that this module asks for.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Some sandboxes make reading the counter a SIGSEGV (`prctl(PR_SET_TSC)`).
fn tsc_is_readable() -> bool {
    let mut state: i32 = 0;
    // SAFETY: `PR_GET_TSC` writes an int to the given address.
    let result = unsafe { libc::prctl(libc::PR_GET_TSC, &mut state) };
    result != 0 || state != libc::PR_TSC_SIGSEGV
}

/// Whether the kernel still uses the time-stamp counter. If the counters of several sockets
/// disagree, it takes a slow clock instead. (In virtual machines it has clocks of other names, and
/// those rest on the counter.)
fn kernel_has_not_given_up_tsc() -> bool {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    !source.is_ok_and(|name| matches!(name.trim(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies"))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(
        unused_unsafe,
        reason = "`__cpuid` and `_rdtsc` are unsafe in the oldest compiler that we support"
    )]
    use std::arch::x86_64::{__cpuid, _rdtsc, CpuidResult};

    fn cpuid(leaf: u32) -> CpuidResult {
        // SAFETY: every x86-64 processor has CPUID.
        unsafe { __cpuid(leaf) }
    }

    #[inline]
    pub fn time_stamp_counter() -> u64 {
        // SAFETY: every x86-64 processor has RDTSC.
        unsafe { _rdtsc() }
    }

    /// CPUID 0x80000007, EDX bit 8: constant rate, does not stop.
    pub fn invariant_tsc() -> bool {
        cpuid(0x8000_0000).eax >= 0x8000_0007 && cpuid(0x8000_0007).edx & (1 << 8) != 0
    }

    /// Returns the frequency from CPUID 0x15 (ratio to the crystal, and its frequency), else from
    /// the hypervisor's timing leaf.
    pub fn nominal_tsc_hz() -> u64 {
        if cpuid(0).eax >= 0x15 {
            let leaf = cpuid(0x15);
            if leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0 {
                return u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax);
            }
        }
        let hypervisor = cpuid(1).ecx & (1 << 31) != 0;
        if hypervisor && (0x4000_0010..0x4000_0100).contains(&cpuid(0x4000_0000).eax) {
            return u64::from(cpuid(0x4000_0010).eax) * 1000;
        }
        0
    }
}
#[cfg(target_arch = "x86_64")]
use x86::{invariant_tsc, nominal_tsc_hz, time_stamp_counter};

#[cfg(not(target_arch = "x86_64"))]
mod other {
    pub fn time_stamp_counter() -> u64 {
        0
    }
    pub fn invariant_tsc() -> bool {
        false
    }
    pub fn nominal_tsc_hz() -> u64 {
        0
    }
}
#[cfg(not(target_arch = "x86_64"))]
use other::{invariant_tsc, nominal_tsc_hz, time_stamp_counter};
