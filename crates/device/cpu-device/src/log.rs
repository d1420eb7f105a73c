//! The driver's error log, for programs that read it (`cuLogs…`).
//!
//! It contains the newest [`MOST`] messages, as NVIDIA's does. Messages are numbered from 0, and an
//! iterator is the number of the next message to read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Messages that are kept.
const MOST: usize = 100;

/// Stands before messages of which older ones are gone, or have no room.
const TRUNCATED: &str = "older messages are left out";

/// Messages, the oldest first.
pub struct Log {
    kept: VecDeque<String>,
    next: u32,
}

/// The log of this process.
pub fn lock() -> MutexGuard<'static, Log> {
    static LOG: Mutex<Log> = Mutex::new(Log { kept: VecDeque::new(), next: 0 });
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Adds a message.
    pub fn add(&mut self, message: String) {
        if self.kept.len() == MOST {
            self.kept.pop_front();
        }
        self.kept.push_back(message);
        self.next = self.next.wrapping_add(1);
    }

    /// The iterator behind the last message.
    pub fn end(&self) -> u32 {
        self.next
    }

    /// The messages from the iterator `from` on, or all that are kept, a line break behind each; as
    /// many of the newest as fit into `room` bytes. `None` if there are messages and not even one
    /// fits.
    pub fn text(&self, from: Option<u32>, room: usize) -> Option<String> {
        let oldest = self.next.wrapping_sub(self.kept.len() as u32);
        let wanted = self.next.wrapping_sub(from.unwrap_or(oldest)) as usize;
        let skipped = self.kept.len().saturating_sub(wanted);
        let mut lost = wanted > self.kept.len();
        let mut left = room;
        let mut taken = Vec::new();
        for message in self.kept.iter().skip(skipped).rev() {
            // The note about what is missing needs room too.
            if message.len() + 1 > left.saturating_sub(TRUNCATED.len() + 1) {
                lost = true;
                break;
            }
            left -= message.len() + 1;
            taken.push(message.as_str());
        }
        if taken.is_empty() && wanted > 0 && lost {
            return None;
        }
        taken.extend(lost.then_some(TRUNCATED));
        Some(taken.iter().rev().map(|message| format!("{message}\n")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(messages: usize) -> Log {
        let mut log = Log { kept: VecDeque::new(), next: u32::MAX - 1 };
        (0..messages).for_each(|number| log.add(format!("message {number}")));
        log
    }

    #[test]
    fn what_came_since_an_iterator_is_read() {
        let mut log = filled(2);
        assert_eq!(log.text(None, 1000).unwrap(), "message 0\nmessage 1\n");
        let end = log.end();
        assert_eq!(log.text(Some(end), 1000).unwrap(), "");
        log.add("a new one".to_owned());
        assert_eq!(log.text(Some(end), 1000).unwrap(), "a new one\n");
    }

    #[test]
    fn what_is_gone_or_does_not_fit_is_said() {
        let log = filled(MOST + 5);
        let all = log.text(Some(log.end().wrapping_sub(MOST as u32 + 5)), 1 << 20).unwrap();
        assert!(all.starts_with("older messages are left out\nmessage 5\n"), "{all}");
        let some = log.text(None, 60).unwrap();
        assert_eq!(some, "older messages are left out\nmessage 103\nmessage 104\n");
        assert!(some.len() <= 60);
        assert_eq!(log.text(None, 20), None);
        assert_eq!(log.text(Some(log.end()), 0).unwrap(), "");
    }
}
