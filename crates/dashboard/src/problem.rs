//! The reason why there is no document, and the answer to a request for it.

use apex_http::{Response, StatusCode};
use apex_view::Error;

/// Media type of answers.
pub const JSON: &str = "application/json";

/// The reason why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The session has no such part, or not yet.
    Empty(String),
    /// The session cannot be read.
    Unreadable(String),
    /// The session is gone.
    Deleted(String),
}

impl Problem {
    /// Returns the problem in words.
    pub fn message(&self) -> &str {
        let (Self::Empty(message) | Self::Unreadable(message) | Self::Deleted(message)) = self;
        message
    }

    /// The answer to a request.
    pub fn response(&self) -> Response {
        let status = match self {
            Self::Empty(_) => StatusCode::NOT_FOUND,
            Self::Unreadable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Deleted(_) => StatusCode::GONE,
        };
        Response::text(status, self.message())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreadable(why) => Self::Unreadable(why.to_string()),
            Error::Empty(why) => Self::Empty(why),
        }
    }
}
