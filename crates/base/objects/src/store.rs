//! A part of a bucket: requests for its objects, and the words for what a store refuses.
//!
//! A request has at most [`ATTEMPTS`] attempts, and a further one only after a failure that may
//! pass ([`Failure::is_transient`]). An object may therefore be put or removed twice, which changes
//! nothing more. The time of an attempt grows with the bytes that it moves.

use crate::listing::{self, Page};
use crate::sign::{Keys, Request, encoded, hash, stamp};
use apex_push::{Question, Target};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Attempts at a request.
const ATTEMPTS: u32 = 4;
/// Most bytes of an answer that lists a page, or says what was wrong.
const MOST_XML: usize = 8 << 20;
/// Most pages of a listing, each of 1000 objects at most.
const MOST_PAGES: usize = 1000;
/// Time for an attempt, to which a second is added for each of [`BYTES_OF_A_SECOND`].
const LEAST_TIME: Duration = Duration::from_secs(30);
/// The slowest transfer that is waited for.
const BYTES_OF_A_SECOND: usize = 128 << 10;
/// Most seconds that are added.
const MOST_SECONDS: usize = 600;

/// A part of a bucket, `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the bucket.
    pub bucket: String,
    /// What the names of all objects begin with, without slashes at its ends; may be empty.
    pub prefix: String,
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "write s3://BUCKET/PREFIX, with letters, digits, - . _ =";
        let rest = text.strip_prefix("s3://").ok_or(WRONG)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_plain = |part: &str| {
            let plain = |c: u8| c.is_ascii_alphanumeric() || b"-._=".contains(&c);
            !part.is_empty() && part.len() <= 255 && part.bytes().all(plain) && !part.starts_with('.')
        };
        let parts_are_plain = prefix.is_empty() || prefix.split('/').all(is_plain);
        if !is_plain(bucket) || !parts_are_plain || prefix.len() > 512 {
            return Err(WRONG);
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

/// The server of a store, and who asks it.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address; a path in it does not count.
    pub address: Target,
    /// Name of its region, which signatures have.
    pub region: String,
    /// Who asks.
    pub keys: Keys,
    /// Pause before the second attempt at a request; it doubles before each further one.
    pub pause: Duration,
}

/// The reason why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It gave no answer.
    #[error("the store at {0} {1}")]
    NoAnswer(String, apex_push::Failure),
    /// It named another address.
    #[error(
        "the store at {0} answered with status {1}, a redirect: the bucket is in another region, so set AWS_REGION"
    )]
    Elsewhere(String, u16),
    /// It refused.
    #[error("the store at {at} answered with status {status}{}: {}", shown(code.as_deref()), remedy(*status, code.as_deref()))]
    Refused {
        /// Its address.
        at: String,
        /// Status of the answer.
        status: u16,
        /// Code of the error, if there is one.
        code: Option<String>,
    },
    /// What it answered is no listing.
    #[error(
        "the store at {0} answered something else than a listing: is that the address of an S3-compatible store?"
    )]
    NoListing(String),
    /// There are too many objects.
    #[error("more than a million objects are in {0}: give the segments a prefix of their own")]
    TooMany(String),
}

fn shown(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// What to do.
fn remedy(status: u16, code: Option<&str>) -> &'static str {
    match (code, status) {
        (Some("NoSuchBucket"), _) => "make the bucket, or name another one",
        (Some("NoSuchKey"), _) => "the object has gone",
        (Some("RequestTimeTooSkewed"), _) => "set the clock of this host",
        (Some("SignatureDoesNotMatch" | "InvalidAccessKeyId" | "ExpiredToken" | "InvalidToken"), _) => {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if the keys have one"
        }
        (Some("AuthorizationHeaderMalformed"), _) => "set AWS_REGION to the region of the bucket",
        (_, 403) => {
            "the key needs s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket for the bucket"
        }
        (_, 426) | (None, 400) => "it may speak TLS: write https:// in AWS_ENDPOINT_URL",
        (_, 500..) => "it is busy or broken; try again later",
        _ => "is that the address of an S3-compatible store?",
    }
}

impl Failure {
    /// Whether the same request may be answered later.
    fn is_transient(&self) -> bool {
        match self {
            Self::NoAnswer(_, failure) => failure.is_transient(),
            Self::Refused { status, code, .. } => {
                *status >= 500
                    || matches!(status, 408 | 425 | 429)
                    || code.as_deref() == Some("RequestTimeout")
            }
            Self::Elsewhere(..) | Self::NoListing(_) | Self::TooMany(_) => false,
        }
    }
}

/// Objects below a place.
#[derive(Clone, Debug)]
pub struct Store {
    server: Server,
    place: Place,
}

/// One request, before it is signed.
struct Ask<'a> {
    method: &'static str,
    path: String,
    query: String,
    body: &'a [u8],
    most: usize,
}

impl Store {
    /// The objects below a place of a server. Nobody is asked yet.
    pub fn new(server: Server, place: Place) -> Self {
        Self { server, place }
    }

    /// Puts an object, in the place of one that has this name.
    ///
    /// # Errors
    /// If the store does not take it, also after some attempts.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.ask(&self.of(name, "PUT", bytes, MOST_XML)).map(drop)
    }

    /// Reads an object of at most so many bytes.
    ///
    /// # Errors
    /// If the store does not give it, or it is longer.
    pub fn read(&self, name: &str, most: usize) -> Result<Vec<u8>, Failure> {
        self.ask(&self.of(name, "GET", b"", most))
    }

    /// Removes an object; it is no failure if there is none.
    ///
    /// # Errors
    /// If the store does not remove it.
    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        self.ask(&self.of(name, "DELETE", b"", MOST_XML)).map(drop)
    }

    /// The names of objects in a folder (those of folders in it are left out).
    ///
    /// # Errors
    /// If the store does not list them, or there are more than a million.
    pub fn names(&self, folder: &str) -> Result<Vec<String>, Failure> {
        let prefix = format!("{}/", self.key(folder));
        let mut names = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let token = next.map(|token| format!("continuation-token={}&", encoded(&token, false)));
            let query =
                format!("{}list-type=2&prefix={}", token.unwrap_or_default(), encoded(&prefix, false));
            let path = format!("/{}", encoded(&self.place.bucket, false));
            let answer = self.ask(&Ask { method: "GET", path, query, body: b"", most: MOST_XML })?;
            let page = std::str::from_utf8(&answer).ok().and_then(listing::page);
            let Page { names: found, next: after } = page.ok_or_else(|| Failure::NoListing(self.at()))?;
            let inside = found.iter().filter_map(|name| name.strip_prefix(&prefix));
            names.extend(inside.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned));
            next = after;
            if next.is_none() {
                return Ok(names);
            }
        }
        Err(Failure::TooMany(self.place.bucket.clone()))
    }

    /// The whole name of an object in its bucket.
    fn key(&self, name: &str) -> String {
        match self.place.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    fn at(&self) -> String {
        self.server.address.origin()
    }

    /// A request for an object.
    fn of<'a>(&self, name: &str, method: &'static str, body: &'a [u8], most: usize) -> Ask<'a> {
        let path = format!("/{}/{}", encoded(&self.place.bucket, false), encoded(&self.key(name), true));
        Ask { method, path, query: String::new(), body, most }
    }

    /// Asks until there is an answer, as often as may help.
    fn ask(&self, ask: &Ask<'_>) -> Result<Vec<u8>, Failure> {
        let mut pause = self.server.pause;
        for _ in 1..ATTEMPTS {
            match self.once(ask) {
                Err(failure) if failure.is_transient() => {}
                done => return done,
            }
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2);
        }
        self.once(ask)
    }

    fn once(&self, ask: &Ask<'_>) -> Result<Vec<u8>, Failure> {
        let time = stamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        let headers = self.headers(ask, &time);
        let path =
            if ask.query.is_empty() { ask.path.clone() } else { format!("{}?{}", ask.path, ask.query) };
        let question = Question {
            method: ask.method,
            path: &path,
            headers: &headers,
            body: ask.body.to_vec(),
            most: ask.most.max(MOST_XML),
        };
        let seconds = (ask.body.len().max(ask.most) / BYTES_OF_A_SECOND).min(MOST_SECONDS);
        let answer = self.server.address.ask(question, LEAST_TIME + Duration::from_secs(seconds as u64));
        let answer = answer.map_err(|failure| match failure {
            apex_push::Failure::Redirected(status) => Failure::Elsewhere(self.at(), status),
            failure => Failure::NoAnswer(self.at(), failure),
        })?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        let code = std::str::from_utf8(&answer.body).ok().and_then(listing::code);
        Err(Failure::Refused { at: self.at(), status: answer.status, code })
    }

    /// The headers of a request, its signature among them; `Host` is sent anyway.
    fn headers(&self, ask: &Ask<'_>, time: &str) -> Vec<(&'static str, String)> {
        let Server { address, region, keys, .. } = &self.server;
        let body = hash(ask.body);
        let mut headers = vec![
            ("host", address.authority()),
            ("x-amz-content-sha256", body.clone()),
            ("x-amz-date", time.to_owned()),
        ];
        headers.extend(keys.session.clone().map(|session| ("x-amz-security-token", session)));
        let Ask { method, path, query, .. } = ask;
        let request = Request { method, path, query, headers: &headers, body: &body };
        let authorization = request.authorization(keys, region, time);
        headers.push(("authorization", authorization));
        headers.retain(|(name, _)| *name != "host");
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_and_a_prefix() {
        let of = |text: &str| text.parse::<Place>().map(|place| (place.bucket, place.prefix));
        let place = |bucket: &str, prefix: &str| Ok((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(of("s3://bucket/apex"), place("bucket", "apex"));
        assert_eq!(of("s3://bucket/a/b/"), place("bucket", "a/b"));
        assert_eq!(of("s3://bucket"), place("bucket", ""));
        for wrong in [
            "bucket/x",
            "s3://",
            "s3:///x",
            "s3://b/../c",
            "s3://b/a//b",
            "s3://b/a b",
            "s3://b/ä",
            "s3://b?x",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_passes_is_tried_again_and_the_rest_is_explained() {
        let refused = |status, code: Option<&str>| Failure::Refused {
            at: "http://store:1".to_owned(),
            status,
            code: code.map(str::to_owned),
        };
        for (failure, is_transient, word) in [
            (refused(503, Some("SlowDown")), true, "(SlowDown): it is busy"),
            (refused(400, Some("RequestTimeout")), true, "RequestTimeout"),
            (refused(404, Some("NoSuchBucket")), false, "make the bucket"),
            (refused(403, Some("SignatureDoesNotMatch")), false, "AWS_SECRET_ACCESS_KEY"),
            (refused(403, Some("AccessDenied")), false, "s3:PutObject"),
            (refused(403, Some("RequestTimeTooSkewed")), false, "clock"),
            (refused(400, None), false, "https://"),
            (Failure::Elsewhere("http://store:1".to_owned(), 301), false, "AWS_REGION"),
        ] {
            assert_eq!(failure.is_transient(), is_transient, "{failure}");
            assert!(failure.to_string().contains(word), "{failure}");
        }
    }
}
