//! An address that the user names, and one message to it.

use crate::body::Whole;
use http_body::Body;
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::http::request::Builder as RequestBuilder;
use hyper::http::response::Parts;
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

/// Pairs of descriptors that a runtime and a connection need at most.
const RUNTIME_PAIRS: usize = 5;

/// An address, `http://HOST[:PORT]/PATH` or `https://…`.
///
/// It is shown without path and query, where tokens stand.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    tls: Option<Tls>,
    /// Path and query.
    path: String,
    /// The value of `Authorization`.
    authorization: Option<HeaderValue>,
}

/// Whose certificates are trusted.
#[derive(Clone)]
enum Tls {
    /// Those of the system's authorities.
    System,
    /// Those that the user names.
    Named(apex_tls::Client),
}

impl PartialEq for Tls {
    /// Whom the user trusts is no part of an address.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Tls {}

impl Tls {
    /// # Errors
    /// If the system has no authorities.
    fn client(&self) -> Result<&apex_tls::Client, Failure> {
        static SYSTEM: OnceLock<Result<apex_tls::Client, apex_tls::Error>> = OnceLock::new();
        match self {
            Self::Named(client) => Ok(client),
            Self::System => {
                let system = SYSTEM.get_or_init(|| apex_tls::Client::new(None));
                system.as_ref().map_err(|error| Failure::Unreachable(error.to_string()))
            }
        }
    }
}

/// A request to the server at an address, of any method and path.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// `GET`, `PUT`, `DELETE` and the like.
    pub method: &'a str,
    /// Path and query: they take the place of the address's own.
    pub path: &'a str,
    /// Headers beside `Host`, which is [`Target::authority`].
    pub headers: &'a [(&'a str, String)],
    /// The request's body.
    pub body: Vec<u8>,
    /// Most bytes of the answer's body. A longer one is a failure.
    pub most: usize,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status; one of a redirect is a failure.
    pub status: u16,
    /// Body, which nothing has checked.
    pub body: Vec<u8>,
}

/// The reason why a text is no address. Says nothing of the text: it may hold a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is none.
    #[error("is no address: write http://HOST:PORT/PATH, or https://…")]
    Malformed,
    /// It asks for TLS, which this build leaves out.
    #[error("asks for https: {}", apex_tls::Error::LeftOut)]
    Https,
    /// It has a user's name.
    #[error(
        "has a user's name or password in front of the host, which APEX does not send: let a program on this machine forward it"
    )]
    Credentials,
    /// Its token has characters that a header does not hold.
    #[error("has a token with characters that HTTP does not allow: use letters, digits, - . _ ~")]
    Token,
}

/// The reason why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nobody answered at the address, or not as HTTP does.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("gave no answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It answered, but did not take the message.
    #[error("answered with status {0}")]
    Refused(u16),
    /// It named another address, which the user did not.
    #[error("answered with status {0}, a redirect, which is not followed: name the address that it leads to")]
    Redirected(u16),
    /// Whatever else took the message failed.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// Whether the same message may be taken later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) => true,
            Self::Refused(status) => *status >= 500 || matches!(status, 408 | 425 | 429),
            Self::Redirected(_) | Self::Failed(_) => false,
        }
    }
}

impl Target {
    /// The address that a text names, with `suffix` behind its path.
    ///
    /// # Errors
    /// Says why it is none.
    pub fn new(text: &str, suffix: &str) -> Result<Self, Invalid> {
        let uri: Uri = text.trim().parse().map_err(|_| Invalid::Malformed)?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") if apex_tls::IS_BUILT => Some(Tls::System),
            Some("https") => return Err(Invalid::Https),
            _ => return Err(Invalid::Malformed),
        };
        let authority = uri.authority().ok_or(Invalid::Malformed)?;
        if authority.as_str().contains('@') {
            return Err(Invalid::Credentials);
        }
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host) {
            Some("") if !host.is_empty() => tls.as_ref().map_or(80, |_| 443),
            Some(port) if !host.is_empty() => {
                let port = port.strip_prefix(':').and_then(|port| port.parse().ok());
                port.ok_or(Invalid::Malformed)?
            }
            _ => return Err(Invalid::Malformed),
        };
        let path = match suffix {
            "" => uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            suffix => format!("{}{suffix}", uri.path().trim_end_matches('/')),
        };
        Ok(Self { host: host.to_owned(), port, tls, path, authorization: None })
    }

    /// The same address; each message to it bears this token.
    ///
    /// # Errors
    /// If a header cannot hold the token.
    pub fn with_token(self, token: &str) -> Result<Self, Invalid> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Invalid::Token)?;
        value.set_sensitive(true);
        Ok(Self { authorization: Some(value), ..self })
    }

    /// The same address; if it is one of `https`, its server's certificate has to be of one of
    /// these authorities, or one of these (PEM), and the system's authorities do not count.
    ///
    /// # Errors
    /// If no certificate can be read.
    pub fn with_trusted(self, pem: &[u8]) -> Result<Self, apex_tls::Error> {
        let tls = self.tls.as_ref().map(|_| apex_tls::Client::new(Some(pem)).map(Tls::Named));
        Ok(Self { tls: tls.transpose()?, ..self })
    }

    /// Returns the part of it that may be shown: `http://HOST:PORT`, and `/…` if more follows.
    pub fn shown(&self) -> String {
        let rest = if self.path == "/" { "" } else { "/…" };
        self.origin() + rest
    }

    /// Its beginning, `http://HOST:PORT`.
    pub fn origin(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// What tells addresses and tokens apart without holding them: 16 hexadecimal digits of each
    /// one's SHA-256, of the token if it has one.
    pub fn fingerprints(&self) -> (String, Option<String>) {
        let digits = |bytes: &[u8]| -> String {
            Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
        };
        let host = self.host.to_ascii_lowercase();
        let address = digits(format!("{host}:{}{}", self.port, self.path).as_bytes());
        (address, self.authorization.as_ref().map(|value| digits(value.as_bytes())))
    }

    /// Posts a body, and waits for the answer no longer than this.
    ///
    /// # Errors
    /// If it was not accepted: only a status of 200 to 299 means acceptance.
    pub fn post(&self, media_type: &str, body: Vec<u8>, longest: Duration) -> Result<(), Failure> {
        self.posted(media_type, body, longest).map(drop)
    }

    /// As [`Self::post`]. Returns the value of the header of this name in the answer: what has no
    /// such header is not the server that was meant, whatever its status.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub fn post_for(
        &self,
        media_type: &str,
        body: Vec<u8>,
        longest: Duration,
        header: &str,
    ) -> Result<Option<String>, Failure> {
        let answer = self.posted(media_type, body, longest)?;
        let value = answer.headers.get(header).and_then(|value| value.to_str().ok());
        Ok(value.map(str::to_owned))
    }

    /// Asks the server something, and waits for the whole answer no longer than this.
    ///
    /// # Errors
    /// If there is no answer, or it is a redirect or too long. Any other status is an answer.
    pub fn ask(&self, question: Question<'_>, longest: Duration) -> Result<Answer, Failure> {
        let mut request =
            Request::builder().method(question.method).uri(question.path).header(HOST, self.authority());
        for (name, value) in question.headers {
            request = request.header(*name, value);
        }
        let (head, body) = self.exchanged(request, question.body, Some(question.most), longest)?;
        match head.status {
            status if status.is_redirection() => Err(Failure::Redirected(status.as_u16())),
            status => Ok(Answer { status: status.as_u16(), body }),
        }
    }

    /// The value of `Host` in questions: host and port, without the port that the scheme has
    /// anyway.
    pub fn authority(&self) -> String {
        let usual = if self.tls.is_some() { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    fn posted(&self, media_type: &str, body: Vec<u8>, longest: Duration) -> Result<Parts, Failure> {
        let mut request = Request::post(&self.path)
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(CONTENT_TYPE, media_type);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        // The head of the answer says all; its body is not read.
        let (answer, _) = self.exchanged(request, body, None, longest)?;
        match answer.status {
            status if status.is_success() => Ok(answer),
            status if status.is_redirection() => Err(Failure::Redirected(status.as_u16())),
            status => Err(Failure::Refused(status.as_u16())),
        }
    }

    /// Sends a request. Returns the head of the answer, and its body if it is wanted.
    fn exchanged(
        &self,
        request: RequestBuilder,
        body: Vec<u8>,
        most: Option<usize>,
        longest: Duration,
    ) -> Result<(Parts, Vec<u8>), Failure> {
        let unreachable = |error: &dyn fmt::Display| Failure::Unreachable(error.to_string());
        let request = request
            .header(USER_AGENT, concat!("apex/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .body(Whole(Some(Bytes::from(body))))
            .map_err(|_| Failure::Failed("the address has characters that HTTP does not allow".into()))?;
        has_descriptors().map_err(|error| unreachable(&error))?;
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| unreachable(&error))?;
        let answered = runtime.block_on(async {
            tokio::time::timeout(longest, self.exchange(request, most))
                .await
                .unwrap_or(Err(Failure::TimedOut(longest)))
        });
        // A name that is still being looked up is not waited for.
        runtime.shutdown_background();
        answered
    }

    async fn exchange(
        &self,
        request: Request<Whole>,
        most: Option<usize>,
    ) -> Result<(Parts, Vec<u8>), Failure> {
        let connect = |error: std::io::Error| Failure::Unreachable(format!("cannot be reached: {error}"));
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, self.port)).await.map_err(connect)?;
        let Some(tls) = &self.tls else { return exchange_over(stream, request, most).await };
        let secured = tls.client()?.connect(host, stream).await;
        let secured = secured.map_err(|error| Failure::Unreachable(error.to_string()))?;
        exchange_over(secured, request, most).await
    }
}

async fn exchange_over<S>(
    stream: S,
    request: Request<Whole>,
    most: Option<usize>,
) -> Result<(Parts, Vec<u8>), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends with the runtime at the latest.
    tokio::spawn(connection);
    // (hyper bounds the size of the head.)
    let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let body = match most {
        Some(most) => whole(body, most).await?,
        None => Vec::new(),
    };
    Ok((head, body))
}

fn broken(error: hyper::Error) -> Failure {
    Failure::Unreachable(format!("broke off: {error}"))
}

/// The bytes of a body.
async fn whole(mut body: Incoming, most: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(Failure::Failed(format!("gave an answer of more than {most} bytes")));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// An error if the system does not give the descriptors that a runtime needs, for which tokio
/// panics.
fn has_descriptors() -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..RUNTIME_PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        let target = Target::new("http://hooks.example/services/T0/SECRET?key=SECRET", "").unwrap();
        assert_eq!(target.shown(), "http://hooks.example:80/…");
        assert_eq!(format!("{target:?}"), "http://hooks.example:80/…");
        assert_eq!(target.path, "/services/T0/SECRET?key=SECRET");
        let target = Target::new("http://[::1]:9093", "/api/v2/alerts").unwrap();
        assert_eq!(
            (target.shown().as_str(), target.path.as_str()),
            ("http://[::1]:9093/…", "/api/v2/alerts")
        );
        assert_eq!(Target::new("http://a/b/", "/c").unwrap().path, "/b/c");
        assert_eq!(Target::new("http://a", "").unwrap().shown(), "http://a:80");
    }

    #[test]
    fn fingerprints_tell_addresses_and_tokens_apart() {
        let of = |url: &str, token: &str| {
            let target = Target::new(url, "/x").unwrap();
            if token.is_empty() { target } else { target.with_token(token).unwrap() }.fingerprints()
        };
        let one = of("http://hub:1", "SECRET");
        assert_eq!(one, of("http://HUB:1/", "SECRET"));
        assert_eq!(one.0, of("http://hub:1", "").0);
        assert_eq!(of("http://hub:1", "").1, None);
        assert_ne!(one.1, of("http://hub:1", "OTHER").1);
        for other in ["http://hub:2", "http://hub2:1", "http://hub:1/y"] {
            assert_ne!(one.0, of(other, "SECRET").0, "{other}");
        }
        assert_eq!((one.0.len(), one.1.unwrap().len()), (16, 16));
    }

    #[test]
    fn an_address_of_https_is_one_where_tls_is_built() {
        let found = Target::new("https://a/SECRET", "");
        match apex_tls::IS_BUILT {
            true => assert_eq!(found.unwrap().shown(), "https://a:443/…"),
            false => assert_eq!(found, Err(Invalid::Https)),
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_quoted() {
        for (text, why) in [
            ("", Invalid::Malformed),
            ("SECRET", Invalid::Malformed),
            ("/SECRET", Invalid::Malformed),
            ("ftp://a/SECRET", Invalid::Malformed),
            ("http://", Invalid::Malformed),
            ("http://a:99999/SECRET", Invalid::Malformed),
            ("http://a:/SECRET", Invalid::Malformed),
            ("http://me:SECRET@a/", Invalid::Credentials),
        ] {
            assert_eq!(Target::new(text, ""), Err(why), "{text}");
            assert!(!why.to_string().contains("SECRET"));
        }
    }
}
