//! How much of a trace is read, and times that cannot overflow.

/// Events of one kind that are read, at most. (Forty million take about two gigabytes.)
pub const MOST_EVENTS: usize = 40_000_000;
/// Bytes of all names together, at most.
pub const MOST_TEXT: usize = 256 << 20;

/// The end of something that starts then and lasts so long.
pub fn end(start: i64, ns: u64) -> i64 {
    start.saturating_add_unsigned(ns)
}
