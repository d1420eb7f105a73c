//! What the queue gains, and when it is worth having it open.
//!
//! The queue gains the time that the driver's calls take on its thread instead of the program's,
//! less the time that handing over takes, and less the time that the program waits for calls to be
//! made. The sum is drawn up for windows of some milliseconds, when the program waits. After a
//! window without gain the queue closes for a second, and twice as long after each further one.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Shortest window, nanoseconds.
const WINDOW_NS: u64 = 20_000_000;
/// Fewest calls of a window.
const WINDOW_CALLS: u64 = 64;
/// What handing a call over is taken to cost, nanoseconds.
const HANDING_OVER_NS: u64 = 100;
/// Share of a window that must be gained, percent.
const LEAST_GAIN_PERCENT: u64 = 1;
/// How long the queue stays closed, nanoseconds: at first, and at most.
const PAUSE_NS: [u64; 2] = [1_000_000_000, 16_000_000_000];
/// Launches between two looks at the clock while the queue is closed.
const LOOK_INTERVAL: u64 = 64;

/// See the [module](self). Times are nanoseconds.
#[derive(Default)]
pub struct Gain {
    calls: AtomicU64,
    call_ns: AtomicU64,
    waits: AtomicU64,
    wait_ns: AtomicU64,
    window: Window,
    /// When it may open again, and how long it stays closed next time.
    opens_at: AtomicU64,
    pause_ns: AtomicU64,
    looks: AtomicU64,
}

/// When a window began, and what the sums were then.
#[derive(Default)]
struct Window {
    begun: AtomicU64,
    calls: AtomicU64,
    call_ns: AtomicU64,
    wait_ns: AtomicU64,
}

impl Gain {
    /// The worker has made a call, which took so long.
    #[inline(always)]
    pub fn made(&self, ns: u64) {
        // Only the worker adds.
        self.calls.store(self.calls.load(Relaxed) + 1, Relaxed);
        self.call_ns.store(self.call_ns.load(Relaxed) + ns, Relaxed);
    }

    /// The program has waited for calls to be made. False if the window that ends here gained too
    /// little.
    pub fn waited(&self, begun: u64, now: u64) -> bool {
        self.waits.fetch_add(1, Relaxed);
        self.wait_ns.fetch_add(now.saturating_sub(begun), Relaxed);
        let window = &self.window;
        let lasted = now.saturating_sub(window.begun.load(Relaxed));
        let calls = self.calls.load(Relaxed).saturating_sub(window.calls.load(Relaxed));
        if lasted < WINDOW_NS || calls < WINDOW_CALLS {
            return true;
        }
        let call_ns = self.call_ns.load(Relaxed).saturating_sub(window.call_ns.load(Relaxed));
        let wait_ns = self.wait_ns.load(Relaxed).saturating_sub(window.wait_ns.load(Relaxed));
        let gained = call_ns.saturating_sub(wait_ns + calls * HANDING_OVER_NS);
        self.begin_window(now);
        let is_gained = gained * 100 >= lasted * LEAST_GAIN_PERCENT;
        if is_gained {
            self.pause_ns.store(PAUSE_NS[0], Relaxed);
        }
        is_gained
    }

    /// The queue has been opened.
    pub fn opened(&self, now: u64) {
        self.begin_window(now);
    }

    /// The queue has been closed for a while.
    pub fn closed(&self, now: u64) {
        let pause = self.pause_ns.load(Relaxed).max(PAUSE_NS[0]);
        self.pause_ns.store((pause * 2).min(PAUSE_NS[1]), Relaxed);
        self.opens_at.store(now + pause, Relaxed);
    }

    /// Whether the closed queue should look at the clock: one of some launches.
    pub fn is_worth_a_look(&self) -> bool {
        self.looks.fetch_add(1, Relaxed).is_multiple_of(LOOK_INTERVAL)
    }

    /// Whether the closed queue may open.
    pub fn may_open(&self, now: u64) -> bool {
        now >= self.opens_at.load(Relaxed)
    }

    /// Time that the driver's calls took on the worker, nanoseconds.
    pub fn call_ns(&self) -> u64 {
        self.call_ns.load(Relaxed)
    }

    /// How often the program waited for calls to be made.
    pub fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// How long, nanoseconds.
    pub fn wait_ns(&self) -> u64 {
        self.wait_ns.load(Relaxed)
    }

    fn begin_window(&self, now: u64) {
        let window = &self.window;
        window.begun.store(now, Relaxed);
        window.calls.store(self.calls.load(Relaxed), Relaxed);
        window.call_ns.store(self.call_ns.load(Relaxed), Relaxed);
        window.wait_ns.store(self.wait_ns.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A gain after a window of 100 ms in which so many calls took 4 µs each, and the program
    /// waited so long in all.
    fn after(calls: u64, wait_ns: u64) -> (Gain, bool) {
        let gain = Gain::default();
        gain.opened(0);
        (0..calls).for_each(|_| gain.made(4000));
        let stays = gain.waited(100 * MS - wait_ns, 100 * MS);
        (gain, stays)
    }

    #[test]
    fn a_queue_that_takes_work_off_the_program_stays_open() {
        let (gain, stays) = after(10_000, 5 * MS);
        assert!(stays);
        assert_eq!((gain.call_ns(), gain.waits(), gain.wait_ns()), (40 * MS, 1, 5 * MS));
    }

    #[test]
    fn a_queue_whose_calls_are_all_waited_for_closes_and_opens_ever_later() {
        let (gain, stays) = after(5000, 20 * MS);
        assert!(!stays);
        gain.closed(0);
        assert!(!gain.may_open(999 * MS) && gain.may_open(1000 * MS));
        gain.closed(0);
        assert!(!gain.may_open(1999 * MS) && gain.may_open(2000 * MS));
        (0..10).for_each(|_| gain.closed(0));
        assert!(gain.may_open(16_000 * MS));
    }

    #[test]
    fn a_few_calls_say_nothing() {
        assert!(after(WINDOW_CALLS - 1, 90 * MS).1);
        assert!(!after(WINDOW_CALLS, 90 * MS).1);
    }
}
