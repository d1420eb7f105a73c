//! Reasons for which a request has no answer, and the responses in its place.

use apex_http::{Response, StatusCode};
use apex_view::Error;

/// Media type of answers.
pub const JSON: &str = "application/json";

/// The reason for which a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The request makes no sense.
    Nonsense(String),
    /// There is no such thing: no session, or no part of it, or not yet.
    Empty(String),
    /// The session cannot be read.
    Unreadable(String),
    /// The session is gone.
    Deleted(String),
}

impl Problem {
    /// Returns the problem in words.
    pub fn message(&self) -> &str {
        let (Self::Nonsense(message)
        | Self::Empty(message)
        | Self::Unreadable(message)
        | Self::Deleted(message)) = self;
        message
    }

    /// The answer to a request.
    pub fn response(&self) -> Response {
        let status = match self {
            Self::Nonsense(_) => StatusCode::BAD_REQUEST,
            Self::Empty(_) => StatusCode::NOT_FOUND,
            Self::Unreadable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Deleted(_) => StatusCode::GONE,
        };
        Response::text(status, self.message())
    }
}

impl From<String> for Problem {
    fn from(why: String) -> Self {
        Self::Nonsense(why)
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
