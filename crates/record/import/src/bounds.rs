//! Limits on how much of a trace is read, and times that cannot overflow.

/// Events of one kind that are read, at most. (Forty million take about two gigabytes.)
pub const MOST_EVENTS: usize = 40_000_000;
/// Bytes of all names together, at most.
pub const MOST_TEXT: usize = 256 << 20;

/// Bytes of a trace that is read, at most: 1 TiB.
pub const MOST_BYTES: u64 = 1 << 40;
/// Nanoseconds that an event may last, and that it may be away from the median of the work: 400
/// days. (Readers of sessions take what is years away for damage.)
pub const MOST_NS: u64 = 400 * 86_400 * 1_000_000_000;

/// The end of something that starts then and lasts so long.
pub fn end(start: i64, ns: u64) -> i64 {
    start.saturating_add_unsigned(ns)
}
