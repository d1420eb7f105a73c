//! Messages and requests that no agent sends: refused, counted, and without effect.

use crate::common::{Running, message};
use apex_hub::Store;
use proptest::prelude::*;
use serde_json::{Value, json};

fn running() -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    (folder, hub)
}

/// A sound message with one member changed.
fn with(pointer: &str, value: Value) -> Vec<u8> {
    let mut document: Value = serde_json::from_slice(&message(1, 1).to_bytes()).unwrap();
    *document.pointer_mut(pointer).unwrap() = value;
    serde_json::to_vec(&document).unwrap()
}

#[test]
fn messages_out_of_bounds_are_refused_by_reason() {
    let (_folder, hub) = running();
    let long = "x".repeat(513);
    let kernels = vec![json!({"name": "k", "launches": 1, "gpu_us": 1}); 33];
    for (what, body, outcome) in [
        ("another version", with("/schema", json!("apex.aggregate/2")), "refused_version"),
        ("another document", with("/schema", json!("apex.report/4")), "refused_version"),
        ("no JSON", b"{".to_vec(), "refused_malformed"),
        ("nothing", Vec::new(), "refused_malformed"),
        ("a list", b"[1]".to_vec(), "refused_malformed"),
        ("depth", [vec![b'['; 100_000], vec![b']'; 100_000]].concat(), "refused_malformed"),
        ("negative", with("/sequence", json!(-1)), "refused_malformed"),
        ("no sequence", with("/sequence", json!(0)), "refused_bounds"),
        ("a long text", with("/owner", json!(long)), "refused_bounds"),
        ("no identifier", with("/recording", json!("../../x")), "refused_bounds"),
        ("many kernels", with("/kernels/listed", json!(kernels)), "refused_bounds"),
        ("a long time", with("/uses/0/times/kernels_us", json!(1u64 << 48)), "refused_bounds"),
        ("an unknown device", with("/uses/0/device", json!(1)), "refused_bounds"),
        ("a large count", with("/lost_records", json!(u64::MAX)), "refused_bounds"),
        ("a distant end", with("/ended", json!({"at_ns": u64::MAX, "status": 0})), "refused_bounds"),
        ("no job", with("/job/id", json!("")), "refused_bounds"),
    ] {
        let before = hub.count(outcome);
        let answer = hub.post(&body);
        assert_eq!(answer.status, 422, "{what}: {}", answer.body);
        assert_eq!(answer.confirmed(), None, "{what}");
        assert_eq!(hub.count(outcome), before + 1, "{what}");
    }
    let labels: serde_json::Map<String, Value> = (0..20_000).map(|n| (format!("l{n}"), json!(n))).collect();
    let many = serde_json::to_vec(&json!({"schema": "apex.aggregate/1", "labels": labels})).unwrap();
    assert_eq!(hub.post(&many).status, 413);
    assert_eq!(hub.count("refused_size"), 1);
    assert_eq!(hub.json("/api/v1/jobs")["jobs"], json!([]));
    // What no version knows is ignored.
    let mut document: Value = serde_json::from_slice(&message(1, 1).to_bytes()).unwrap();
    document["later"] = json!({"a": [1, 2]});
    assert_eq!(hub.post(&serde_json::to_vec(&document).unwrap()).status, 200);
}

#[test]
fn sums_that_exceed_64_bits_are_refused_and_leave_nothing() {
    let (folder, hub) = running();
    let connection = rusqlite::Connection::open(folder.path().join("hub.db")).unwrap();
    assert_eq!(hub.post(&message(1, 1).to_bytes()).status, 200);
    connection.execute("UPDATE days SET us_kernels = ?1", [i64::MAX - 1]).unwrap();
    let mut of = message(2, 1);
    of.owner = message(1, 1).owner;
    of.uses[0].times.kernels_us = 2;
    assert_eq!(hub.post(&of.to_bytes()).status, 409);
    assert_eq!(hub.count("refused_sums"), 1);
    let recordings: i64 =
        connection.query_row("SELECT count(*) FROM recordings", [], |row| row.get(0)).unwrap();
    assert_eq!(recordings, 1);
    of.uses[0].times.kernels_us = 1;
    assert_eq!(hub.post(&of.to_bytes()).status, 200);
}

#[test]
fn requests_that_no_agent_makes_are_refused() {
    let (_folder, hub) = running();
    let body = message(1, 1).to_bytes();
    let length = format!("Content-Length: {}\r\n", body.len());
    let json = format!("Content-Type: application/json\r\n{length}");
    for (method, path, headers, status) in [
        ("PUT", "/api/v1/aggregates", json.as_str(), 405),
        ("POST", "/api/v1/aggregates", length.as_str(), 415),
        ("POST", "/api/v1/aggregates", &format!("Content-Type: text/plain\r\n{length}"), 415),
        ("POST", "/api/v1/aggregates", &format!("{json}Content-Encoding: gzip\r\n"), 415),
        ("POST", "/api/v1/aggregates", &format!("{json}Origin: http://evil.example\r\n"), 403),
        ("GET", "/api/v1/aggregates", &json, 405),
        ("GET", "/api/v1/jobs", &json, 413),
        ("POST", "/api/v1/jobs", &json, 405),
        ("POST", "/", &json, 405),
    ] {
        let answer = hub.send(method, path, headers, &body);
        assert_eq!(answer.status, status, "{method} {path} {headers}: {}", answer.body);
    }
    // A length that is larger than the bound is refused before the body comes.
    let large = "Content-Type: application/json\r\nContent-Length: 999999999999\r\n";
    assert_eq!(hub.send("POST", "/api/v1/aggregates", large, b"{}").status, 413);
    let chunks = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let chunk =
        [format!("{:x}\r\n", 300 << 10).as_bytes(), &vec![b' '; 300 << 10], b"\r\n0\r\n\r\n"].concat();
    assert_eq!(hub.send("POST", "/api/v1/aggregates", chunks, &chunk).status, 413);
    let small = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    assert_eq!(hub.send("POST", "/api/v1/aggregates", chunks, &small).status, 200);
    for path in ["/jobs/x", "/jobs/99", "/jobs/1;DROP TABLE jobs", "/nothing", "/api/v1/nothing", "/jobs/-1"]
    {
        assert_eq!(hub.get(&path.replace(' ', "%20")).status, 404, "{path}");
    }
    for path in [
        "/?x=1",
        "/?limit=0",
        "/?limit=9999",
        "/?before=x",
        "/owners?days=-1",
        "/owners?days=",
        "/owners?days=3661",
        "/?owner=a&owner=b",
    ] {
        assert_eq!(hub.get(path).status, 400, "{path}");
    }
}

#[test]
fn text_of_messages_is_text_on_pages() {
    let (_folder, hub) = running();
    let evil = "<script>alert(1)</script>'\"\u{1b}[31m; DROP TABLE jobs";
    let mut of = message(1, 1);
    of.owner = evil.to_owned();
    of.job.id = evil.to_owned();
    of.command = vec![evil.to_owned()];
    of.host = evil.to_owned();
    of.session = format!("/tmp/'; rm -rf ~ {evil}");
    of.devices[0].name = evil.to_owned();
    of.kernels.listed[0].name = evil.to_owned();
    assert_eq!(hub.post(&of.to_bytes()).status, 200);
    for path in ["/", "/jobs/1", "/owners", "/kernels", "/changes", "/report", "/health"] {
        let page = hub.get(path);
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.body.contains("<script") && !page.body.contains('\u{1b}'), "{path}");
        assert!(page.head.to_lowercase().contains("content-security-policy: default-src 'none'"), "{path}");
    }
    let query = evil.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let found = hub.json(&format!("/api/v1/jobs?owner={query}"));
    assert_eq!(found["jobs"][0]["owner"], evil);
    assert_eq!(hub.json("/api/v1/jobs?owner=nobody")["jobs"], json!([]));
}

#[test]
fn a_tenant_sees_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let store = Store::open(&database).unwrap();
    let [one, two] = ["one", "two"].map(|name| store.add_token(name, 1).unwrap());
    assert_ne!(one, two);
    assert!(store.add_token("a b", 1).is_err());
    let stored = std::fs::read(&database).unwrap();
    assert!(!stored.windows(one.len()).any(|part| part == one.as_bytes()), "the token is not stored");
    let hub = Running::start(&database);
    let body = message(1, 1).to_bytes();
    assert_eq!(hub.post(&body).status, 401);
    assert_eq!(hub.post_as(&body, &"0".repeat(64)).status, 401);
    assert_eq!(hub.get("/").status, 401);
    assert_eq!(hub.post_as(&body, &one).status, 200);
    let jobs = |token: &str| hub.get_as("/api/v1/jobs", token).body.matches("\"job\"").count();
    assert_eq!((jobs(&one), jobs(&two)), (1, 0));
    for path in ["/jobs/1", "/api/v1/jobs/1"] {
        assert_eq!((hub.get_as(path, &one).status, hub.get_as(path, &two).status), (200, 404));
    }
    // The same recording of another tenant is another recording.
    assert_eq!(hub.post_as(&body, &two).status, 200);
    assert_eq!((jobs(&one), jobs(&two)), (1, 1));
    assert_eq!(hub.get_as("/jobs/2", &one).status, 404);
    for page in ["owners", "kernels", "report"] {
        let held = |token: &str| hub.get_as(&format!("/api/v1/{page}"), token).body.len();
        assert_eq!(held(&one), held(&two), "{page}");
    }
    // A page is opened with the token in its address once; then a cookie has it.
    let opened = hub.get(&format!("/?token={one}"));
    assert_eq!(opened.status, 303);
    assert!(opened.head.contains(&format!("={one}; Path=/; HttpOnly; SameSite=Strict")), "{}", opened.head);
    // A revoked token is none, at once.
    assert_eq!(store.revoke_tokens("one").unwrap(), 1);
    assert_eq!(hub.get_as("/", &one).status, 401);
    let health = hub.get_as("/metrics", &two).body;
    assert!(health.contains("apex_hub_messages_total{outcome=\"refused_token\"} 4"), "{health}");
}

#[test]
fn a_hub_without_tokens_does_not_listen_beyond_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let bind = || {
        let hub = apex_hub::Hub::open(&database, apex_hub::Settings::default()).unwrap();
        apex_http::Server::bind(hub.options("0.0.0.0:0".parse().unwrap(), None)).map(drop)
    };
    assert!(matches!(bind(), Err(apex_http::Error::NeedsToken(_))));
    Store::open(&database).unwrap().add_token("one", 1).unwrap();
    bind().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = apex_aggregate::Aggregate::parse(&bytes);
    }

    #[test]
    fn a_damaged_message_is_refused_or_within_all_bounds(
        at in 0usize..2000, with in any::<u8>(), cut in 0usize..3000, sequence in 1u64..9,
    ) {
        let mut bytes = message(5, sequence).to_bytes();
        let length = bytes.len();
        bytes[at % length] = with;
        bytes.truncate(cut);
        if let Ok(read) = apex_aggregate::Aggregate::parse(&bytes) {
            // What was read once is read again.
            prop_assert_eq!(apex_aggregate::Aggregate::parse(&read.to_bytes()), Ok(read));
        }
    }
}
