//! A progress line on stderr, shown on a terminal after one second.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time between two changes of the line, and before the first.
const STEP: Duration = Duration::from_secs(1);
/// The time between two lines if stderr is no terminal.
const SELDOM: Duration = Duration::from_secs(30);

/// Does `work`, which counts records into what it is given, and shows meanwhile that it is `doing`
/// something.
pub fn show<T>(doing: &str, work: impl FnOnce(&AtomicU64) -> T) -> T {
    let records = AtomicU64::new(0);
    if !std::io::stderr().is_terminal() {
        return work(&records);
    }
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        let records = &records;
        scope.spawn(move || {
            let started = Instant::now();
            while waiting.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
                line(doing, started.elapsed(), records.load(Ordering::Relaxed));
            }
            if started.elapsed() > STEP {
                eprint!("\r\x1b[K");
            }
        });
        // Dropped when the work ends, even by a panic, so that the thread always ends too.
        let _done = done;
        work(records)
    })
}

/// Does `work`, which takes minutes, while a line says how far it is: on a terminal in place,
/// elsewhere line after line.
pub fn watch<T>(mut line: impl FnMut(Duration) -> String + Send, work: impl FnOnce() -> T) -> T {
    let on_terminal = std::io::stderr().is_terminal();
    let step = if on_terminal { STEP } else { SELDOM };
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let started = Instant::now();
            while waiting.recv_timeout(step) == Err(RecvTimeoutError::Timeout) {
                let (begin, end) = if on_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
                // A terminal that is gone is no reason to fail.
                let _ = write!(std::io::stderr(), "{begin}apex: {}{end}", line(started.elapsed()));
            }
            if on_terminal && started.elapsed() > step {
                eprint!("\r\x1b[K");
            }
        });
        // Dropped when the work ends, even by a panic, so that the thread always ends too.
        let _done = done;
        work()
    })
}

/// Draws the progress in `width` characters.
pub fn bar(done: usize, planned: usize, width: usize) -> String {
    let full = (done * width).checked_div(planned).unwrap_or(0).min(width);
    format!("[{}{}]", "#".repeat(full), ".".repeat(width - full))
}

fn line(doing: &str, elapsed: Duration, records: u64) {
    let counted = match records {
        0 => String::new(),
        records => format!(", {} records", crate::units::count(records)),
    };
    // A terminal that is gone is no reason to fail.
    let _ = write!(std::io::stderr(), "\r\x1b[Kapex: {doing}{counted}, {} s", elapsed.as_secs());
}
