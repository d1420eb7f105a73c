//! Responses.

use crate::events::Source;
pub use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;

/// The policy of a response that states none.
const NOTHING: &str = "default-src 'none'; base-uri 'none'; form-action 'none'";
/// The policy that holds for every response, whatever its own allows.
const NEVER: &str = "frame-ancestors 'none'";

/// Headers of every response.
const ALWAYS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// An answer.
#[derive(Debug)]
pub struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) content: Content,
}

/// The content of an answer.
pub(crate) enum Content {
    Bytes(Bytes),
    Events(Duration, Source),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Events(every, _) => write!(f, "events each {every:?}"),
        }
    }
}

impl Response {
    /// Some bytes of a media type.
    pub fn new(status: StatusCode, media_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::of(status, media_type, Content::Bytes(bytes.into()))
    }

    /// A text that others hold, too: it is not copied.
    pub fn shared(status: StatusCode, media_type: &'static str, text: Arc<str>) -> Self {
        Self::of(status, media_type, Content::Bytes(Bytes::from_owner(Arc::<[u8]>::from(text))))
    }

    /// A sentence, mostly about what is wrong.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let text: String = text.into() + "\n";
        Self::new(status, "text/plain; charset=utf-8", text)
    }

    /// Creates a response of events: `next` is called at intervals of `every` until it says that
    /// there is no more, the client has gone, or the server stops. The first call comes at once. A
    /// client that reads slowly is sent fewer events, not older ones.
    pub fn events(every: Duration, next: impl FnMut() -> crate::Next + Send + 'static) -> Self {
        Self::of(StatusCode::OK, "text/event-stream", Content::Events(every, Box::new(next)))
    }

    fn of(status: StatusCode, media_type: &'static str, content: Content) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in ALWAYS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        let response = Self { status, headers, content };
        response.with_policy(NOTHING)
    }

    /// With a content security policy of its own; none allows to be shown in a frame.
    ///
    /// # Panics
    /// If the policy is no visible ASCII.
    pub fn with_policy(self, policy: &str) -> Self {
        self.with_header(header::CONTENT_SECURITY_POLICY, &format!("{policy}; {NEVER}"))
    }

    /// With a header that programs read beside the content, such as `apex-committed`.
    ///
    /// # Panics
    /// If the name is not in lower case, or the value is no visible ASCII.
    pub fn with_note(self, name: &'static str, value: &str) -> Self {
        self.with_header(HeaderName::from_static(name), value)
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.insert(name, HeaderValue::from_str(value).expect("headers are visible ASCII"));
        self
    }
}
