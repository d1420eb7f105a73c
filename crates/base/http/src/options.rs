//! The server's options: its address, its token, and its limits.

use crate::request::Request;
use hyper::StatusCode;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address on which it listens; port 0 is any free one.
    pub address: SocketAddr,
    /// By what connections are encrypted; `None` where they are not.
    pub tls: Option<apex_tls::Server>,
    /// The token that each request must bear; required if the address is not loopback.
    pub token: Option<Token>,
    /// Several tokens in place of one: each request must bear one that somebody has.
    pub bearers: Option<Bearers>,
    /// Bodies that may be posted; `None` where nothing may.
    pub posts: Option<Posts>,
    /// Is told the status of each request that is refused before it is answered.
    pub refused: Option<Refused>,
    /// The limits.
    pub limits: Limits,
    /// Whether an answer may take long to compute: those that do not never wait for those that do.
    pub is_heavy: fn(&Request) -> bool,
}

impl Default for Options {
    /// Any free port of loopback, without a token.
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: None,
            token: None,
            bearers: None,
            posts: None,
            refused: None,
            limits: Limits::default(),
            is_heavy: |_| false,
        }
    }
}

/// Bodies that may be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posts {
    /// The one path that takes POST, and nothing else.
    pub path: &'static str,
    /// Most bytes of a body.
    pub most_bytes: usize,
}

/// The most that a server bears.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's line and headers; at least 8192.
    pub head_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Time from a connection's opening, or its last response, to the end of the next head.
    pub head_time: Duration,
    /// Time from a request's head until its body has come.
    pub body_time: Duration,
    /// Time from a request's head until its answer is computed.
    pub request_time: Duration,
    /// Time that its client has to take it.
    pub send_time: Duration,
    /// Connections; when there are more, the one that is idle longest is closed.
    pub connections: usize,
    /// Answers that are computed at the same time; as many events beside them.
    pub answers: usize,
    /// The number of these answers that may be heavy.
    pub heavy_answers: usize,
    /// Event streams.
    pub streams: usize,
    /// Time that an event stream may stand because its client does not read.
    pub stall_time: Duration,
    /// Time that responses get when the server stops.
    pub stop_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 16 * 1024,
            headers: 64,
            head_time: Duration::from_secs(20),
            body_time: Duration::from_secs(20),
            request_time: Duration::from_secs(60),
            send_time: Duration::from_secs(60),
            connections: 200,
            answers: 4,
            heavy_answers: 3,
            streams: 32,
            stall_time: Duration::from_secs(60),
            stop_time: Duration::from_secs(2),
        }
    }
}

/// A secret that requests bear: in `Authorization: Bearer`, in a cookie, or once in the address,
/// which sets the cookie.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Characters that a token has at least.
    pub const LEAST: usize = 16;

    /// Takes a token that addresses and cookies can hold.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn new(token: &str) -> Result<Self, Error> {
        let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        match token.len() {
            length if length < Self::LEAST => Err(Error::ShortToken),
            _ if !is_plain => Err(Error::UnusableToken),
            _ => Ok(Self(token.to_owned())),
        }
    }

    /// Whether this is the token, in a time that says nothing of it but its length.
    pub(crate) fn is(&self, other: &str) -> bool {
        let differing = self.0.bytes().zip(other.bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
        self.0.len() == other.len() && std::hint::black_box(differing) == 0
    }

    /// The token itself.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Bearers by their tokens.
#[derive(Clone)]
pub struct Bearers(Arc<Naming>);

type Naming = dyn Fn(&str) -> Option<Arc<str>> + Send + Sync;

impl Bearers {
    /// `name` returns who bears a token, in a time that says nothing of any token, and `None` if
    /// nobody does.
    pub fn new(name: impl Fn(&str) -> Option<Arc<str>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(name))
    }

    pub(crate) fn name(&self, token: &str) -> Option<Arc<str>> {
        (self.0)(token)
    }
}

impl From<Token> for Bearers {
    /// One token, whose bearer has no name.
    fn from(token: Token) -> Self {
        Self::new(move |given| token.is(given).then(|| Arc::from("")))
    }
}

impl fmt::Debug for Bearers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearers")
    }
}

/// Is told of refused requests.
#[derive(Clone)]
pub struct Refused(Arc<dyn Fn(StatusCode) + Send + Sync>);

impl Refused {
    /// Calls `tell` with the status of the response.
    pub fn new(tell: impl Fn(StatusCode) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, status: StatusCode) {
        (self.0)(status);
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refused")
    }
}

/// The reason why a server does not start or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Others could read what is served.
    #[error(
        "{0} is no loopback address: others reach it, so it needs a token, such as \
         APEX_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')"
    )]
    NeedsToken(SocketAddr),
    /// A token that can be guessed.
    #[error("the token is too short: give it at least {} characters", Token::LEAST)]
    ShortToken,
    /// A token that an address cannot hold.
    #[error("the token has characters that an address cannot hold: use letters, digits, - . _ ~")]
    UnusableToken,
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The system gives no means to serve.
    #[error("cannot serve: {0}")]
    Serve(#[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcDE-._~";

    #[test]
    fn a_token_is_itself_alone() {
        let token = Token::new(TEXT).unwrap();
        assert!(token.is(TEXT));
        assert_eq!(token.text(), TEXT);
        assert!(!token.is("") && !token.is(&TEXT[..18]) && !token.is(&format!("{TEXT}0")));
        assert!(!token.is(&TEXT.to_lowercase()));
        // A bit of any character, and the same bit of two.
        for at in 0..TEXT.len() {
            for bit in 0..7 {
                let mut other = TEXT.as_bytes().to_vec();
                other[at] ^= 1 << bit;
                assert!(!token.is(std::str::from_utf8(&other).unwrap()), "{at} {bit}");
                other[(at + 1) % TEXT.len()] ^= 1 << bit;
                assert!(!token.is(std::str::from_utf8(&other).unwrap()), "{at} {bit}, twice");
            }
        }
    }

    #[test]
    fn a_token_has_16_characters_that_addresses_hold() {
        assert!(matches!(Token::new(""), Err(Error::ShortToken)));
        assert!(matches!(Token::new(&"a".repeat(15)), Err(Error::ShortToken)));
        assert!(Token::new(&"a".repeat(16)).is_ok());
        let plain: String =
            (0..128u8).map(char::from).filter(|c| Token::new(&c.to_string().repeat(16)).is_ok()).collect();
        assert_eq!(plain, "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~");
        assert!(matches!(Token::new("0123456789abcdefé"), Err(Error::UnusableToken)));
    }

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(format!("{:?}", Token::new(TEXT).unwrap()), "Token");
    }

    #[test]
    fn a_server_is_for_this_machine_unless_told_otherwise() {
        let options = Options::default();
        assert_eq!(options.address.to_string(), "127.0.0.1:0");
        assert!(options.token.is_none());
    }
}
