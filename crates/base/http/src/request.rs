//! A request that was admitted: its path in segments and its parameters, percent-decoded, the
//! bearer's token, and the body that was posted.

use hyper::body::Bytes;
use hyper::http::Uri;
use std::sync::Arc;

/// A request that was admitted.
#[derive(Debug)]
pub struct Request {
    segments: Vec<String>,
    parameters: Vec<(String, String)>,
    bearer: Arc<str>,
    posted: Option<Bytes>,
}

impl Request {
    /// `None` if the address is no percent-encoded UTF-8.
    pub(crate) fn new(uri: &Uri) -> Option<Self> {
        let segments = uri.path().split('/').skip(1).map(|segment| decoded(segment, false));
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let parameters = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name, true)?, decoded(value, true)?))
        });
        Some(Self {
            segments: segments.collect::<Option<_>>()?,
            parameters: parameters.collect::<Option<_>>()?,
            bearer: Arc::from(""),
            posted: None,
        })
    }

    /// The same request, of this bearer, with this body.
    pub(crate) fn of(self, bearer: Arc<str>, posted: Option<Bytes>) -> Self {
        Self { bearer, posted, ..self }
    }

    /// Who bears the request's token; empty if the server has no [`Bearers`](crate::Bearers).
    pub fn bearer(&self) -> &str {
        &self.bearer
    }

    /// The body of a POST; `None` if nothing was posted.
    pub fn posted(&self) -> Option<&[u8]> {
        self.posted.as_deref()
    }

    /// The parts of the path, decoded: `["a", "b"]` of `/a/b`, `[""]` of `/`. A part may hold any
    /// character, `/` too.
    pub fn segments(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }

    /// The values of a parameter of the address, decoded, in their order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.parameters.iter().filter(move |(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// Names of the parameters, in their order.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|(name, _)| name.as_str())
    }
}

/// Text without percent-encoding; `+` is a blank in parameters.
fn decoded(text: &str, is_parameter: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?].map(|digit| char::from(digit).to_digit(16));
                u8::try_from(digits[0]? * 16 + digits[1]?).ok()?
            }
            b'+' if is_parameter => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(address: &str) -> Option<Request> {
        Request::new(&address.parse().unwrap())
    }

    #[test]
    fn addresses_are_decoded_part_by_part() {
        let request = request("/api/v1/a%2Fb/?kernel=gemm*&kernel=%3Cb%3E+c&x").unwrap();
        assert_eq!(request.segments(), ["api", "v1", "a/b", ""]);
        assert_eq!(request.all("kernel").collect::<Vec<_>>(), ["gemm*", "<b> c"]);
        assert_eq!(request.parameters().collect::<Vec<_>>(), ["kernel", "kernel", "x"]);
    }

    #[test]
    fn a_plus_is_a_blank_in_parameters_alone() {
        let request = request("/c++/a+b%2B?x+y=1+1%2B1&=+").unwrap();
        assert_eq!(request.segments(), ["c++", "a+b+"]);
        assert_eq!(request.parameters().collect::<Vec<_>>(), ["x y", ""]);
        assert_eq!(request.all("x y").collect::<Vec<_>>(), ["1 1+1"]);
        assert_eq!(request.all("").collect::<Vec<_>>(), [" "]);
        assert_eq!(request.all("x").count(), 0);
    }

    #[test]
    fn every_byte_is_decoded() {
        for byte in 0..128u8 {
            for encoded in [format!("%{byte:02x}"), format!("%{byte:02X}")] {
                let request = request(&format!("/a{encoded}?b={encoded}=")).unwrap();
                let letter = char::from(byte);
                assert_eq!(request.segments(), [format!("a{letter}")]);
                assert_eq!(request.all("b").collect::<Vec<_>>(), [format!("{letter}=")]);
            }
        }
        assert_eq!(request("/%e2%82%ac").unwrap().segments(), ["€"]);
    }

    #[test]
    fn parts_may_be_empty() {
        let empty = request("/").unwrap();
        assert_eq!((empty.segments(), empty.parameters().count()), (vec![""], 0));
        let request = request("//a/?&&a&").unwrap();
        assert_eq!(request.segments(), ["", "a", ""]);
        assert_eq!(request.parameters().collect::<Vec<_>>(), ["a"]);
        assert_eq!(request.all("a").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for address in ["/%", "/%4", "/%zz", "/%4g", "/%g4", "/%ff", "/?a=%C3", "/?%C3=a", "/a/%80/b"] {
            assert!(request(address).is_none(), "{address}");
        }
    }
}
