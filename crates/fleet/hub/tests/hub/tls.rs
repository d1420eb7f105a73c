//! A hub with a certificate: who trusts it, who does not, and who speaks in the clear.

use crate::common::{Running, message, pem};
use apex_delivery::{Delivered, PATH, deliver};
use apex_push::{Failure, Target};
use apex_spool::{Entry, Limits, Spool};
use std::time::Duration;

/// Delivers a message to an address, trusting these certificates, or the system's authorities.
fn delivered(url: &str, trusted: Option<&str>) -> Delivered {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(folder.path(), Limits::default()).unwrap();
    let of = message(1, 1);
    let entry =
        Entry { key: of.recording.clone(), sequence: of.sequence, label: String::new(), body: of.to_bytes() };
    spool.put(&entry).unwrap();
    let target = Target::new(url, PATH).unwrap();
    let target = trusted.map_or(Ok(target.clone()), |name| target.with_trusted(&pem(name))).unwrap();
    let done = deliver(&spool, &target.into(), Duration::from_secs(60)).unwrap();
    // Whatever fails, the message waits.
    assert_eq!(spool.waiting().unwrap().len() as u64, done.waiting, "{done:?}");
    assert_eq!((done.waiting + done.confirmed, done.refused), (1, 0), "{done:?}");
    done
}

/// Why nothing was delivered.
fn failure(url: &str, trusted: Option<&str>) -> String {
    delivered(url, trusted).failure.expect("it is not delivered").to_string()
}

#[test]
fn a_hub_is_trusted_by_its_authority_and_by_its_own_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start_with(&folder.path().join("hub.db"), Some("hub"));
    let at = |host: &str| format!("https://{host}:{}", hub.address.port());
    for (host, trusted) in
        [("127.0.0.1", "authority.crt"), ("localhost", "authority.crt"), ("127.0.0.1", "hub.crt")]
    {
        let done = delivered(&at(host), Some(trusted));
        assert_eq!(done.confirmed, 1, "{host} {trusted}: {done:?}");
    }
    for (host, trusted, why) in [
        ("127.0.0.1", Some("other.crt"), "UnknownIssuer"),
        ("127.0.0.1", Some("own.crt"), "UnknownIssuer"),
        ("127.0.0.2", Some("authority.crt"), ""),
    ] {
        let said = failure(&at(host), trusted);
        assert!(said.contains(why), "{host} {trusted:?}: {said}");
    }
}

#[test]
fn a_certificate_that_signed_itself_is_trusted_where_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start_with(&folder.path().join("hub.db"), Some("own"));
    let url = format!("https://{}", hub.address);
    assert_eq!(delivered(&url, Some("own.crt")).confirmed, 1);
    let said = failure(&url, Some("authority.crt"));
    assert!(said.contains("is not trusted") && said.contains("name the file of its authority"), "{said}");
}

#[test]
fn who_speaks_in_the_clear_or_tls_where_there_is_none_is_told_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let secured = Running::start_with(&folder.path().join("secured.db"), Some("hub"));
    let done = delivered(&format!("http://{}", secured.address), None);
    assert_eq!(done.failure, Some(Failure::Refused(426)));
    let answer = secured.get("/");
    assert!(answer.status == 426 && answer.body.contains("write https://"), "{answer:?}");
    let plain = Running::start(&folder.path().join("plain.db"));
    let said = failure(&format!("https://{}", plain.address), Some("authority.crt"));
    assert!(said.contains("does not speak TLS there"), "{said}");
}

#[test]
fn a_certificate_and_a_key_that_are_none_or_not_of_each_other_are_refused() {
    use apex_tls::{Client, Error, Server};
    let (certificate, key) = (pem("hub.crt"), pem("hub.key"));
    assert!(Server::new(&certificate, &key).is_ok());
    for (certificate, key) in
        [(&certificate, &pem("own.key")), (&certificate, &certificate), (&certificate, &Vec::new())]
    {
        assert!(matches!(Server::new(certificate, key), Err(Error::Key(_))));
    }
    for none in [&key[..], b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(Server::new(none, &key), Err(Error::Certificate(_))));
        assert!(Client::new(Some(none)).is_err());
    }
}
