//! Decides which requests are answered at all, by methods, hosts, origins and tokens.

use crate::options::{Bearers, Posts};
use crate::response::Response;
use hyper::body::Body;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::uri::Authority;
use hyper::http::{Method, StatusCode, Uri};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Media type of what is posted.
const POSTED: &str = "application/json";

/// The conditions of admission.
#[derive(Debug)]
pub struct Admission {
    bearers: Option<Bearers>,
    /// The path to which something may be posted.
    post_path: Option<&'static str>,
    is_loopback: bool,
    is_encrypted: bool,
    /// Name of the cookie. Cookies belong to a host, whatever its port, so the port is in it.
    cookie: String,
}

impl Admission {
    pub fn new(
        address: SocketAddr,
        bearers: Option<Bearers>,
        posts: Option<Posts>,
        is_encrypted: bool,
    ) -> Self {
        let cookie = format!("apex-token-{}", address.port());
        let post_path = posts.map(|posts| posts.path);
        Self { bearers, post_path, is_loopback: address.ip().is_loopback(), is_encrypted, cookie }
    }

    /// Returns who bears the request's token, which is nobody where none is demanded.
    ///
    /// # Errors
    /// Returns the response to a request that is refused, or that is sent on with its token in a
    /// cookie.
    pub fn admit<B: Body>(&self, request: &hyper::Request<B>) -> Result<Arc<str>, Box<Response>> {
        let refuse = |status, why: &str| Err(Box::new(Response::text(status, why)));
        let is_post = self.post_path == Some(request.uri().path());
        let (allowed, why): (&[Method], _) = match is_post {
            true => (&[Method::POST], "only POST is answered here"),
            false => (&[Method::GET, Method::HEAD], "only GET and HEAD are answered"),
        };
        if !allowed.contains(request.method()) {
            let allowed = if is_post { "POST" } else { "GET, HEAD" };
            let response = Response::text(StatusCode::METHOD_NOT_ALLOWED, why);
            return Err(Box::new(response.with_header(header::ALLOW, allowed)));
        }
        if !is_post && !request.body().is_end_stream() {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "no request has a body here");
        }
        // A form of another site cannot have this type: its browser would ask first.
        if is_post && header(request.headers(), header::CONTENT_TYPE) != Some(POSTED) {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "what is posted is application/json");
        }
        if is_post && request.headers().contains_key(header::CONTENT_ENCODING) {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "what is posted is not compressed");
        }
        let Some(host) = host(request.uri(), request.headers()) else {
            return refuse(StatusCode::BAD_REQUEST, "a request needs one Host, and a path as its target");
        };
        if self.is_loopback && !names_loopback(host.host()) {
            let why = "this server is reached as localhost, 127.0.0.1 or [::1] alone";
            return refuse(StatusCode::MISDIRECTED_REQUEST, why);
        }
        if !is_of_own_page(request.headers(), &host) {
            return refuse(StatusCode::FORBIDDEN, "pages of other sites may not read this");
        }
        let nobody = || Ok(Arc::from(""));
        self.bearers
            .as_ref()
            .map_or_else(nobody, |bearers| self.demand(bearers, request.uri(), request.headers()))
    }

    /// Who bears the token of the request, or the response to one that bears none, or that has it
    /// in its address.
    fn demand(&self, bearers: &Bearers, uri: &Uri, headers: &HeaderMap) -> Result<Arc<str>, Box<Response>> {
        let query = uri.query().unwrap_or_default();
        let (given, others): (Vec<_>, Vec<_>) = query.split('&').partition(|pair| pair.starts_with("token="));
        let mut tokens = given.iter().map(|pair| &pair["token=".len()..]);
        let Some(token) = tokens.find(|token| bearers.name(token).is_some()) else {
            return self.bearer(bearers, headers).ok_or_else(|| Box::new(unauthorized()));
        };
        // The token leaves the address, so that it is in no history and no copied link. A path that
        // began with two slashes would name a host.
        let path = format!("/{}", uri.path().trim_start_matches('/'));
        let others = others.join("&");
        let question = if others.is_empty() { "" } else { "?" };
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        let cookie = format!("{}={token}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie);
        let response = Response::text(StatusCode::SEE_OTHER, "the token is in a cookie now");
        let response = response.with_header(header::LOCATION, &format!("{path}{question}{others}"));
        Err(Box::new(response.with_header(header::SET_COOKIE, &cookie)))
    }

    /// Returns the bearer of the token in the headers.
    fn bearer(&self, bearers: &Bearers, headers: &HeaderMap) -> Option<Arc<str>> {
        let borne = header(headers, header::AUTHORIZATION).and_then(|value| {
            // The scheme's case does not matter (RFC 9110, 11.1).
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim_start_matches(' '))
        });
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let cookies = pairs.filter(|(name, _)| *name == self.cookie).map(|(_, value)| value);
        borne.into_iter().chain(cookies).find_map(|given| bearers.name(given))
    }
}

/// The response to who bears no token.
fn unauthorized() -> Response {
    let why = "this needs the token: open the address that was printed, or send Authorization: Bearer TOKEN";
    Response::text(StatusCode::UNAUTHORIZED, why).with_header(header::WWW_AUTHENTICATE, "Bearer")
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The one host that a request names, with its port.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None, None) = (hosts.next(), hosts.next(), uri.authority()) else { return None };
    let host: Authority = host.to_str().ok()?.parse().ok()?;
    (uri.path().starts_with('/') && !host.as_str().contains('@')).then_some(host)
}

/// Names that lead to this machine, whoever answers for names.
fn names_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether no page of another site asks. Browsers say so: by the origin of what scripts fetch, and
/// by the site for which anything is fetched. Links that a user follows from elsewhere are fine.
fn is_of_own_page(headers: &HeaderMap, host: &Authority) -> bool {
    let own = |origin: &str| {
        let (scheme, named) = origin.split_once("://").unwrap_or_default();
        matches!(scheme, "http" | "https") && named.eq_ignore_ascii_case(host.as_str())
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_own = origins.all(|origin| origin.to_str().is_ok_and(own));
    let fetch = |name| header(headers, HeaderName::from_static(name));
    let is_followed =
        fetch("sec-fetch-mode") == Some("navigate") && fetch("sec-fetch-dest") == Some("document");
    is_own && (is_followed || !matches!(fetch("sec-fetch-site"), Some("cross-site" | "same-site")))
}
