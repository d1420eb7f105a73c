//! Counts of what became of messages and requests since the hub started.

use apex_aggregate::Refusal;
use apex_http::StatusCode;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was added.
    Added,
    /// It replaced an earlier one of its recording.
    Replaced,
    /// It is there already.
    Repeated,
    /// A later one of its recording is there.
    Older,
    /// Another version of APEX wrote it.
    Version,
    /// It cannot be read.
    Malformed,
    /// Something of it is out of bounds.
    Bounds,
    /// It is of the future.
    Future,
    /// It begins so long ago that the host's clock is wrong.
    Clock,
    /// It was made so long ago that its recording may have been removed.
    Past,
    /// Its recording was part of another job.
    OtherJob,
    /// A sum would exceed 64 bits.
    Sums,
    /// The database could not store it.
    Failed,
    /// A request without a valid token.
    Unauthorized,
    /// A body that is too large.
    TooLarge,
    /// Another request that was refused.
    Request,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 16] = [
        Self::Added,
        Self::Replaced,
        Self::Repeated,
        Self::Older,
        Self::Version,
        Self::Malformed,
        Self::Bounds,
        Self::Future,
        Self::Clock,
        Self::Past,
        Self::OtherJob,
        Self::Sums,
        Self::Failed,
        Self::Unauthorized,
        Self::TooLarge,
        Self::Request,
    ];

    /// Name, as columns and labels have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Repeated => "repeated",
            Self::Older => "older",
            Self::Version => "refused_version",
            Self::Malformed => "refused_malformed",
            Self::Bounds => "refused_bounds",
            Self::Future => "refused_future",
            Self::Clock => "refused_clock",
            Self::Past => "refused_past",
            Self::OtherJob => "refused_other_job",
            Self::Sums => "refused_sums",
            Self::Failed => "failed",
            Self::Unauthorized => "refused_token",
            Self::TooLarge => "refused_size",
            Self::Request => "refused_request",
        }
    }

    /// Meaning and remedy, for the hub's page.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Added => "the first message of a recording",
            Self::Replaced => "a later message of a recording took the place of an earlier one",
            Self::Repeated => "delivered again: it was there already",
            Self::Older => "a later message of its recording was there already",
            Self::Version => "written by another version of APEX: upgrade the older side",
            Self::Malformed => "cannot be read",
            Self::Bounds => "a text, list or number is larger than anything real",
            Self::Future => "begins or ends more than a day after the hub's present: check the host's clock",
            Self::Clock => "begins more than two years before the hub's present: check the host's clock",
            Self::Past => "older than what the hub keeps: it may have been counted already",
            Self::OtherJob => "names another job than its recording did before",
            Self::Sums => "would make a sum exceed 64 bits",
            Self::Failed => "could not be stored: look at the disk and at the hub's messages",
            Self::Unauthorized => {
                "bore no valid token: set APEX_HUB_TOKEN, or make one with apex hub token add"
            }
            Self::TooLarge => "a body of more than 256 KiB",
            Self::Request => "another method, host, origin or media type than the hub answers",
        }
    }

    /// Whether the message is in the database.
    pub fn is_stored(self) -> bool {
        matches!(self, Self::Added | Self::Replaced | Self::Repeated | Self::Older)
    }

    /// The status of the answer to the message.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Added | Self::Replaced | Self::Repeated | Self::Older => StatusCode::OK,
            Self::Version | Self::Malformed | Self::Bounds | Self::Future | Self::Clock | Self::Past => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::OtherJob | Self::Sums => StatusCode::CONFLICT,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Request => StatusCode::BAD_REQUEST,
            Self::Failed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<&Refusal> for Outcome {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Version { .. } => Self::Version,
            Refusal::Malformed(_) => Self::Malformed,
            Refusal::Bounds(_) => Self::Bounds,
        }
    }
}

/// Counts since the hub started.
#[derive(Debug, Default)]
pub struct Health(Mutex<BTreeMap<Outcome, u64>>);

impl Health {
    /// Counts a message or a request.
    pub fn count(&self, outcome: Outcome) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(outcome).or_default() += 1;
    }

    /// Counts a request that the server refused with this status.
    pub fn count_refused(&self, status: StatusCode) {
        match status {
            // The token moves from the address into a cookie.
            StatusCode::SEE_OTHER => {}
            StatusCode::UNAUTHORIZED => self.count(Outcome::Unauthorized),
            StatusCode::PAYLOAD_TOO_LARGE => self.count(Outcome::TooLarge),
            _ => self.count(Outcome::Request),
        }
    }

    /// Each outcome with its count.
    pub fn counts(&self) -> Vec<(Outcome, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Outcome::ALL.into_iter().map(|of| (of, counts.get(&of).copied().unwrap_or(0))).collect()
    }
}
