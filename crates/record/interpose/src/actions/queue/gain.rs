//! The time that the queue saves, and whether it should be open.
//!
//! The queue saves the time of driver calls on its thread instead of the program's, less the time
//! of queueing them, less the time that the program waits for them to be made. If the program waits
//! for the GPU after a few calls, these save only the part that exceeds the wait: the GPU starts no
//! earlier, so the program waits longer instead. (After many calls it may have started earlier.)
//! The sum is computed for windows of some milliseconds in which the program launches; pauses do
//! not count, and neither do the first windows in which the worker tried out something, because
//! that does not last. After a window without a saving, the queue closes for a second, and twice as
//! long after each further one.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Shortest window, nanoseconds.
const WINDOW_NS: u64 = 20_000_000;
/// Fewest calls of a window.
const WINDOW_CALLS: u64 = 64;
/// Time between two looks at the window, nanoseconds, beyond which the program pauses.
const LONGEST_STEP_NS: u64 = 20_000_000;
/// The assumed cost of handing a call over, in nanoseconds.
const HANDING_OVER_NS: u64 = 100;
/// Share of a window that must be gained, percent.
const LEAST_GAIN_PERCENT: u64 = 1;
/// The times for which the queue stays closed, in nanoseconds: the first, and the longest.
const PAUSE_NS: [u64; 2] = [1_000_000_000, 16_000_000_000];
/// Fewer calls than these between two waits for the GPU are few.
const MANY_CALLS: u64 = 16;
/// Most windows that do not count because of trials.
const EXCUSED_WINDOWS: u32 = 16;
/// Launches that the program makes itself between two looks at the clock.
const LOOK_INTERVAL: u64 = 64;

/// See the [module](self). Times are nanoseconds.
#[derive(Default)]
pub struct Gain {
    made: Made,
    waits: AtomicU64,
    wait_ns: AtomicU64,
    /// Launches that the program made itself, because the worker slept.
    passed_by: AtomicU64,
    /// The time of calls that was not gained, because the program then waited as long for the GPU.
    waited_off_ns: AtomicU64,
    row: Row,
    window: Window,
    /// Whether the worker has tried out something in this window, and the windows that did not
    /// count for that.
    has_tried: AtomicBool,
    excused: AtomicU32,
    /// The time at which it may open again, and the length of the next closure.
    opens_at: AtomicU64,
    pause_ns: AtomicU64,
    looks: AtomicU64,
}

/// The sums over the worker's calls: it alone writes them, for each call, to a line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Made {
    calls: AtomicU64,
    call_ns: AtomicU64,
    batches: AtomicU64,
    batched: AtomicU64,
    avoided_ns: AtomicU64,
}

/// The sums at the time when the program last waited for the GPU.
#[derive(Default)]
struct Row {
    calls: AtomicU64,
    call_ns: AtomicU64,
    wait_ns: AtomicU64,
}

/// The time of the last look at the program, its time at work since the window began, and the sums
/// at that moment.
#[derive(Default)]
struct Window {
    looked: AtomicU64,
    lasted: AtomicU64,
    passed_by: AtomicU64,
    calls: AtomicU64,
    call_ns: AtomicU64,
    avoided_ns: AtomicU64,
    wait_ns: AtomicU64,
    waited_off_ns: AtomicU64,
}

impl Gain {
    /// The worker has made a call, which took so long.
    #[inline(always)]
    pub fn made(&self, ns: u64) {
        self.made_as_one(1, ns);
    }

    /// Accounts for calls that the worker made by one of its own in `ns`.
    #[inline(always)]
    pub fn made_as_one(&self, count: u64, ns: u64) {
        // Only the worker adds.
        let Made { calls, call_ns, .. } = &self.made;
        calls.store(calls.load(Relaxed) + count, Relaxed);
        call_ns.store(call_ns.load(Relaxed) + ns, Relaxed);
    }

    /// Accounts for `launches` launches that the worker made as one batch in `ns`; alone, they
    /// would have taken `avoided` ns longer.
    pub fn made_batch(&self, launches: u64, ns: u64, avoided: u64) {
        let Made { calls, call_ns, batches, batched, avoided_ns } = &self.made;
        let sums =
            [(calls, launches), (call_ns, ns), (batches, 1), (batched, launches), (avoided_ns, avoided)];
        for (sum, more) in sums {
            sum.store(sum.load(Relaxed) + more, Relaxed);
        }
    }

    /// The worker tries out something, which takes longer than what it does later.
    pub fn tries(&self) {
        self.has_tried.store(true, Relaxed);
    }

    /// The program has waited for calls to be made. False if the window that ends here gained too
    /// little.
    pub fn waited(&self, begun: u64, now: u64) -> bool {
        self.waits.fetch_add(1, Relaxed);
        self.wait_ns.fetch_add(now.saturating_sub(begun), Relaxed);
        self.is_gained(now)
    }

    /// The program has waited for the GPU. False if the window that ends here gained too little.
    pub fn waited_for_gpu(&self, begun: u64, now: u64) -> bool {
        let advance = |sum: &AtomicU64, then: &AtomicU64| {
            let sum = sum.load(Relaxed);
            sum.saturating_sub(then.swap(sum, Relaxed))
        };
        let calls = advance(&self.made.calls, &self.row.calls);
        let taken = advance(&self.made.call_ns, &self.row.call_ns);
        let lost = advance(&self.wait_ns, &self.row.wait_ns) + calls * HANDING_OVER_NS;
        if calls < MANY_CALLS {
            let waited_off = taken.saturating_sub(lost).min(now.saturating_sub(begun));
            self.waited_off_ns.fetch_add(waited_off, Relaxed);
        }
        self.is_gained(now)
    }

    /// The program makes a launch itself, because the worker sleeps. True if it is time to look at
    /// the window: once in a while.
    #[inline(always)]
    pub fn passed_by(&self) -> bool {
        (self.passed_by.fetch_add(1, Relaxed) + 1).is_multiple_of(LOOK_INTERVAL)
    }

    /// False if a window ends here that gained too little.
    pub fn is_gained(&self, now: u64) -> bool {
        let window = &self.window;
        let step = now.saturating_sub(window.looked.swap(now, Relaxed)).min(LONGEST_STEP_NS);
        let lasted = window.lasted.fetch_add(step, Relaxed) + step;
        let since = |sum: &AtomicU64, then: &AtomicU64| sum.load(Relaxed).saturating_sub(then.load(Relaxed));
        let calls = since(&self.made.calls, &window.calls);
        if lasted < WINDOW_NS || calls + since(&self.passed_by, &window.passed_by) < WINDOW_CALLS {
            return true;
        }
        let lost = since(&self.wait_ns, &window.wait_ns)
            + since(&self.waited_off_ns, &window.waited_off_ns)
            + calls * HANDING_OVER_NS;
        // (Without the queue, the program would have made the launches of a batch one by one.)
        let taken =
            since(&self.made.call_ns, &window.call_ns) + since(&self.made.avoided_ns, &window.avoided_ns);
        let gained = taken.saturating_sub(lost);
        self.begin_window(now);
        let is_gained = gained * 100 >= lasted * LEAST_GAIN_PERCENT;
        if is_gained {
            self.pause_ns.store(PAUSE_NS[0], Relaxed);
        }
        let has_tried = self.has_tried.swap(false, Relaxed);
        is_gained || has_tried && self.excused.fetch_add(1, Relaxed) < EXCUSED_WINDOWS
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
        self.opens_in(now) == 0
    }

    /// Returns the time for which the closed queue stays closed from now on, in nanoseconds.
    pub fn opens_in(&self, now: u64) -> u64 {
        self.opens_at.load(Relaxed).saturating_sub(now)
    }

    /// Time that the driver's calls took on the worker, nanoseconds.
    pub fn call_ns(&self) -> u64 {
        self.made.call_ns.load(Relaxed)
    }

    /// Batches, launches that went out in them, and how much longer these would have taken alone.
    pub fn batches(&self) -> [u64; 3] {
        let Made { batches, batched, avoided_ns, .. } = &self.made;
        [batches, batched, avoided_ns].map(|sum| sum.load(Relaxed))
    }

    /// Returns the number of times that the program waited for calls to be made.
    pub fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// Returns the time of these waits, in nanoseconds.
    pub fn wait_ns(&self) -> u64 {
        self.wait_ns.load(Relaxed)
    }

    fn begin_window(&self, now: u64) {
        let window = &self.window;
        window.looked.store(now, Relaxed);
        window.lasted.store(0, Relaxed);
        window.passed_by.store(self.passed_by.load(Relaxed), Relaxed);
        window.calls.store(self.made.calls.load(Relaxed), Relaxed);
        window.call_ns.store(self.made.call_ns.load(Relaxed), Relaxed);
        window.avoided_ns.store(self.made.avoided_ns.load(Relaxed), Relaxed);
        window.wait_ns.store(self.wait_ns.load(Relaxed), Relaxed);
        window.waited_off_ns.store(self.waited_off_ns.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns a gain after a window of 100 ms, in steps of 10 ms, in which `calls` calls took 4 µs
    /// each, and the program waited `wait_ns` in all.
    fn after(calls: u64, wait_ns: u64) -> (Gain, bool) {
        let gain = Gain::default();
        gain.opened(0);
        let mut stays = true;
        for step in 1..=10 {
            (0..calls / 10).for_each(|_| gain.made(4000));
            stays &= gain.waited(step * 10 * MS - wait_ns / 10, step * 10 * MS);
        }
        (gain, stays)
    }

    #[test]
    fn a_queue_that_takes_work_off_the_program_stays_open() {
        let (gain, stays) = after(10_000, 5 * MS);
        assert!(stays);
        assert_eq!((gain.call_ns(), gain.waits(), gain.wait_ns()), (40 * MS, 10, 5 * MS));
    }

    /// Whether a queue stays open in a program of 10 ms that again and again queues `calls` calls
    /// of 4 µs, finds all of them made, and then waits `gpu_ns` for the GPU.
    fn stays_with_rows_of(calls: u64, gpu_ns: u64) -> bool {
        let gain = Gain::default();
        gain.opened(0);
        (1..=1000).all(|row| {
            (0..calls).for_each(|_| gain.made(4000));
            let now = row * 100_000;
            gain.waited_for_gpu(now - gpu_ns, now)
        })
    }

    #[test]
    fn windows_of_trials_do_not_close_it_for_a_while() {
        let gain = Gain::default();
        gain.opened(0);
        let closes = (1..=40).position(|window| {
            gain.tries();
            (0..WINDOW_CALLS).for_each(|_| gain.made(4000));
            !gain.waited((window - 1) * 20 * MS, window * 20 * MS)
        });
        assert_eq!(closes, Some(EXCUSED_WINDOWS as usize));
    }

    #[test]
    fn a_few_calls_gain_only_what_is_more_than_the_wait_that_follows() {
        assert!(!stays_with_rows_of(1, 10_000) && !stays_with_rows_of(5, 30_000));
        assert!(stays_with_rows_of(5, 10_000));
        assert!(stays_with_rows_of(MANY_CALLS, 90_000));
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
        assert!(after(WINDOW_CALLS - 10, 90 * MS).1);
        assert!(!after(WINDOW_CALLS * 10, 90 * MS).1);
    }

    #[test]
    fn a_pause_of_the_program_does_not_count() {
        let gain = Gain::default();
        gain.opened(0);
        (0..100).for_each(|_| gain.made(4000));
        // 0.4 ms gained: less than 1% of a minute, and more than 1% of what the program worked.
        assert!(gain.waited(59_999 * MS, 60_000 * MS - MS + 1000));
    }

    /// A window that gains nothing but what `made` adds: whether the queue stays open after 20 ms.
    fn stays_after(made: impl FnOnce(&Gain)) -> bool {
        let gain = Gain::default();
        gain.opened(5 * MS);
        made(&gain);
        gain.is_gained(25 * MS)
    }

    #[test]
    fn a_window_lasts_20_ms_of_the_program_s_work() {
        let lasting = |looks: &[u64]| {
            let gain = Gain::default();
            gain.opened(1_000 * MS);
            (0..WINDOW_CALLS).for_each(|_| gain.made(100));
            looks.iter().map(|ns| gain.is_gained(1_000 * MS + ns)).collect::<Vec<_>>()
        };
        assert_eq!(lasting(&[20 * MS]), [false]);
        assert_eq!(lasting(&[20 * MS - 1, 20 * MS]), [true, false]);
        // Looks add up, and the next window begins with the last one: it has no calls yet.
        assert_eq!(lasting(&[5 * MS, 10 * MS, 21 * MS, 60 * MS]), [true, true, false, true]);
        // A pause counts as 20 ms at most: 0.3 ms are 1% of 30 ms, and less than 1% of 30.001 ms.
        let after_a_pause = |work_ns: u64| {
            let gain = Gain::default();
            gain.opened(0);
            gain.is_gained(work_ns);
            (0..WINDOW_CALLS).for_each(|_| gain.made(100));
            gain.made(300_100);
            gain.is_gained(600_000 * MS)
        };
        assert!(after_a_pause(10 * MS) && !after_a_pause(10 * MS + 1_000));
    }

    #[test]
    fn a_window_has_64_calls_or_launches_that_passed_by() {
        let stays = |calls: u64, passed_by: u64| {
            stays_after(|gain| {
                (0..calls).for_each(|_| gain.made(100));
                (0..passed_by).for_each(|_| _ = gain.passed_by());
            })
        };
        assert!(stays(63, 0) && stays(0, 63) && stays(40, 23));
        assert!(!stays(64, 0) && !stays(0, 64) && !stays(40, 24));
    }

    #[test]
    fn a_hundredth_of_a_window_must_be_gained() {
        // 64 calls cost 100 ns each to hand over; 0.2 ms are 1% of 20 ms.
        let made = |gain: &Gain, ns: u64| {
            (1..WINDOW_CALLS).for_each(|_| gain.made(100));
            gain.made(100 + ns);
        };
        assert!(stays_after(|gain| made(gain, 200_000)) && !stays_after(|gain| made(gain, 199_999)));
        // What the program waits for calls is not gained, ...
        let waited = |ns: u64| {
            stays_after(|gain| {
                made(gain, 300_000);
                assert!(gain.waited(6 * MS - ns, 6 * MS), "the window goes on");
            })
        };
        assert!(waited(100_000) && !waited(100_001));
        // ... nor what it then waits for the GPU instead.
        let waited_for_gpu = |ns: u64| {
            stays_after(|gain| {
                gain.made(300_100);
                assert!(gain.waited_for_gpu(6 * MS - ns, 6 * MS), "the window goes on");
                (1..WINDOW_CALLS).for_each(|_| gain.made(100));
            })
        };
        assert!(waited_for_gpu(100_000) && !waited_for_gpu(100_001));
    }

    #[test]
    fn a_batch_gains_what_its_launches_would_have_taken_alone() {
        let stays = |avoided| stays_after(|gain| gain.made_batch(WINDOW_CALLS, 56_400, avoided));
        // 56.4 µs less 6.4 µs of handing over, and 0.15 ms avoided.
        assert!(stays(150_000) && !stays(149_999));
        let gain = Gain::default();
        gain.made(1_000);
        gain.made_batch(3, 500, 70);
        gain.made_batch(2, 50, 7);
        assert_eq!((gain.batches(), gain.call_ns()), ([2, 5, 77], 1_550));
    }

    #[test]
    fn what_few_calls_took_is_waited_off_up_to_the_wait_for_the_gpu() {
        let waited_off = |calls: u64, waited_ns: u64, gpu_ns: u64| {
            let gain = Gain::default();
            (0..calls).for_each(|_| gain.made(4_000));
            gain.waited(MS, MS + waited_ns);
            gain.waited_for_gpu(2 * MS, 2 * MS + gpu_ns);
            gain.waited_off_ns.load(Relaxed)
        };
        // 15 calls of 4 µs less 0.1 µs each; 16 are many.
        assert_eq!(waited_off(15, 0, MS), 58_500);
        assert_eq!(waited_off(16, 0, MS), 0);
        assert_eq!(waited_off(15, 8_500, MS), 50_000, "the program has waited for a part already");
        assert_eq!(waited_off(15, 70_000, MS), 0);
        assert_eq!(waited_off(15, 0, 20_000), 20_000);
        // Each wait counts the calls since the last one.
        let gain = Gain::default();
        for row in 1..=3 {
            (0..10).for_each(|_| gain.made(1_100));
            gain.waited(row * MS, row * MS + 2_000);
            gain.waited_for_gpu(row * MS, row * MS + 100_000);
            assert_eq!(gain.waited_off_ns.load(Relaxed), row * 8_000);
        }
    }

    #[test]
    fn each_window_counts_for_itself() {
        // A window in which everything happens that a sum counts, and gains much.
        let gain = Gain::default();
        gain.opened(0);
        let rich = |gain: &Gain| {
            gain.made_batch(50, 900_000, 800_000);
            gain.waited(0, 50_000);
            gain.made(400_000);
            gain.waited_for_gpu(0, 30_000);
            (0..WINDOW_CALLS).for_each(|_| _ = gain.passed_by());
        };
        rich(&gain);
        assert!(gain.is_gained(20 * MS));
        // One with no call, however long.
        assert!(gain.is_gained(60 * MS) && gain.is_gained(90 * MS));
        // One with as little as it takes, and one with a nanosecond less.
        let few = |ns: u64| {
            (1..WINDOW_CALLS).for_each(|_| gain.made(100));
            gain.made(100 + ns);
        };
        gain.opened(100 * MS);
        few(200_000);
        assert!(gain.is_gained(120 * MS));
        few(199_999);
        assert!(!gain.is_gained(140 * MS));
        // What happened while the queue was closed does not count either.
        rich(&gain);
        gain.opened(1_000 * MS);
        few(199_999);
        assert!(!gain.is_gained(1_020 * MS));
    }

    #[test]
    fn a_window_that_gains_makes_the_next_pause_the_shortest() {
        let gain = Gain::default();
        let pause = || {
            gain.closed(7 * MS);
            (gain.opens_in(7 * MS) / MS, gain.opens_in(1_000 * MS) / MS)
        };
        assert_eq!([pause(), pause(), pause()], [(1_000, 7), (2_000, 1_007), (4_000, 3_007)]);
        assert!(
            !gain.may_open(4_007 * MS - 1) && gain.may_open(4_007 * MS) && gain.opens_in(9_000 * MS) == 0
        );
        // A window that gains too little changes nothing.
        gain.opened(0);
        (0..WINDOW_CALLS).for_each(|_| gain.made(100));
        assert!(!gain.is_gained(20 * MS));
        assert_eq!(pause().0, 8_000);
        gain.opened(0);
        (0..WINDOW_CALLS).for_each(|_| gain.made(10_000));
        assert!(gain.is_gained(20 * MS));
        assert_eq!([pause().0, pause().0, pause().0, pause().0], [1_000, 2_000, 4_000, 8_000]);
        assert_eq!([pause().0, pause().0], [16_000, 16_000]);
    }

    #[test]
    fn a_closed_queue_looks_at_the_clock_for_one_launch_of_64() {
        let gain = Gain::default();
        let looks: Vec<u64> = (0..200).filter(|_| gain.is_worth_a_look()).collect();
        assert_eq!(looks, [0, 64, 128, 192]);
        let passed: Vec<u64> = (1..=200).filter(|_| gain.passed_by()).collect();
        assert_eq!(passed, [64, 128, 192]);
    }

    #[test]
    fn a_queue_that_all_launches_pass_by_closes() {
        let gain = Gain::default();
        gain.opened(0);
        let looks = (1..=1000).filter(|_| gain.passed_by()).count();
        assert_eq!(looks as u64, 1000 / LOOK_INTERVAL);
        assert!(!gain.is_gained(WINDOW_NS));
    }
}
