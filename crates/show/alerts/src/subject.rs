//! The part of a session that an alert is about.

/// The subject of an alert within its session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// All of it.
    Session,
    /// A device, by its UUID.
    Device(String),
    /// A rank.
    Rank(usize),
}
