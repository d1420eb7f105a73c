//! Requests.

use hyper::http::Uri;

/// A request that was admitted.
#[derive(Debug)]
pub struct Request {
    segments: Vec<String>,
    parameters: Vec<(String, String)>,
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
        })
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
    fn what_is_no_text_is_refused() {
        for address in ["/%", "/%4", "/%zz", "/%ff", "/?a=%C3"] {
            assert!(request(address).is_none(), "{address}");
        }
    }
}
