//! Signatures of requests: AWS Signature Version 4.
//!
//! See "Authenticating Requests (AWS Signature Version 4)" in Amazon's API reference of S3; the
//! tests have its examples.

use sha2::{Digest, Sha256};
use std::fmt;

/// Bytes that SHA-256 takes at once: the length of HMAC's key.
const BLOCK: usize = 64;

/// What a store knows a user by.
#[derive(Clone)]
pub struct Keys {
    /// Identifier of the key, `AWS_ACCESS_KEY_ID`.
    pub id: String,
    /// The secret, `AWS_SECRET_ACCESS_KEY`.
    pub secret: String,
    /// What belongs to keys that expire, `AWS_SESSION_TOKEN`.
    pub session: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A request as it is signed.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub method: &'a str,
    /// Path, encoded.
    pub path: &'a str,
    /// Query, encoded, its names in order.
    pub query: &'a str,
    /// Signed headers, their names in small letters and in order.
    pub headers: &'a [(&'a str, String)],
    /// SHA-256 of the body.
    pub body: &'a str,
}

impl Request<'_> {
    /// The value of the header `Authorization` at a time ([`stamp`]).
    pub fn authorization(&self, keys: &Keys, region: &str, time: &str) -> String {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let Self { method, path, query, body, .. } = self;
        let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{body}");
        let day = &time[..8];
        let scope = format!("{day}/{region}/s3/aws4_request");
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hash(canonical.as_bytes()));
        let first = format!("AWS4{}", keys.secret).into_bytes();
        let key = [day, region, "s3", "aws4_request"]
            .iter()
            .fold(first, |key, part| hmac(&key, part.as_bytes()).to_vec());
        let signature = hex(&hmac(&key, text.as_bytes()));
        format!("AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}", keys.id)
    }
}

/// SHA-256 as hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// HMAC of SHA-256 (RFC 2104).
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    match key.len() {
        0..=BLOCK => block[..key.len()].copy_from_slice(key),
        _ => block[..32].copy_from_slice(&Sha256::digest(key)),
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// A text in a path (whose slashes stay) or in a query: what is not unreserved is encoded.
pub(crate) fn encoded(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            b'/' if keeps_slashes => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Seconds since 1970 as a signature has them: `20130524T000000Z`.
pub(crate) fn stamp(seconds: u64) -> String {
    /// The end of the year 9999.
    const LAST: u64 = 253_402_300_799;
    let seconds = seconds.min(LAST);
    let (mut day, of_day) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}{month:02}{:02}T{hour:02}{minute:02}{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys, the day and the bucket of Amazon's examples.
    fn signature(method: &str, path: &str, query: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session: None,
        };
        let body = hash(body);
        let mut headers: Vec<(&str, String)> =
            headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        headers.extend([
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            ("x-amz-content-sha256", body.clone()),
            ("x-amz-date", stamp(1_369_353_600)),
        ]);
        headers.sort();
        let request = Request { method, path, query, headers: &headers, body: &body };
        let value = request.authorization(&keys, "us-east-1", &stamp(1_369_353_600));
        value.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn signatures_are_those_of_amazons_examples() {
        assert_eq!(
            signature("GET", "/test.txt", "", &[("range", "bytes=0-9")], b""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let headers =
            [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        assert_eq!(
            signature("PUT", &encoded("/test$file.text", true), "", &headers, b"Welcome to Amazon S3."),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", "max-keys=2&prefix=J", &[], b""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn hmac_is_that_of_rfc_4231() {
        assert_eq!(
            hex(&hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hex(&hmac(&[0xaa; 131], text)),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (1_798_761_599, "20261231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
            (u64::MAX, "99991231T235959Z"),
        ] {
            assert_eq!(stamp(seconds), expected);
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let keys =
            Keys { id: "id".to_owned(), secret: "SECRET".to_owned(), session: Some("SECRET".to_owned()) };
        assert!(!format!("{keys:?}").contains("SECRET"));
    }
}
