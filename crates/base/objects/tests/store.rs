//! Objects in a real store, and in one that fails.

mod seaweed;

use apex_objects::{Failure, Keys, Server, Store};
use apex_push::Target;
use seaweed::{BUCKET, KEYS, Seaweed};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

/// The objects below a prefix of a server.
fn store(address: Target, secret: &str, place: &str) -> Store {
    let keys = Keys { id: KEYS.0.to_owned(), secret: secret.to_owned(), session: None };
    let pause = Duration::from_millis(20);
    Store::new(Server { address, region: "us-east-1".to_owned(), keys, pause }, place.parse().unwrap())
}

fn at(url: &str) -> Target {
    Target::new(url, "").unwrap()
}

/// What a store refuses for good is an answer; the bucket may be made a moment after the start.
fn when_there(store: &Store) {
    for _ in 0..1200 {
        match store.names("jobs") {
            Err(Failure::Refused { status: 404, .. } | Failure::NoAnswer(..)) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return assert_eq!(other, Ok(Vec::new())),
        }
    }
    panic!("there is no bucket");
}

/// Puts, lists, reads and removes.
fn keeps(store: &Store) {
    when_there(store);
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    store.put("jobs/2026-11-29-00ff.parquet", &bytes).unwrap();
    store.put("jobs/2026-11-30 & <1>.parquet", b"").unwrap();
    store.put("jobs/deeper/x", b"x").unwrap();
    store.put("days/x", b"x").unwrap();
    let mut names = store.names("jobs").unwrap();
    names.sort();
    assert_eq!(names, ["2026-11-29-00ff.parquet", "2026-11-30 & <1>.parquet"]);
    assert_eq!(store.read("jobs/2026-11-29-00ff.parquet", 1 << 20).unwrap(), bytes);
    assert_eq!(store.read("jobs/2026-11-30 & <1>.parquet", 0).unwrap(), b"");
    store.put("days/x", b"another").unwrap();
    assert_eq!(store.read("days/x", 100).unwrap(), b"another");
    for _ in 0..2 {
        store.remove("jobs/2026-11-29-00ff.parquet").unwrap();
    }
    assert_eq!(store.names("jobs").unwrap(), ["2026-11-30 & <1>.parquet"]);
}

#[test]
fn a_real_store_keeps_objects_and_refuses_other_keys() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Seaweed::start(folder.path(), None) else { return };
    let url = format!("http://127.0.0.1:{}", server.port);
    keeps(&store(at(&url), KEYS.1, &format!("s3://{BUCKET}/some/where")));
    let refused = |secret: &str, place: &str| {
        let failure = store(at(&url), secret, place).put("jobs/x", b"x").unwrap_err();
        failure.to_string()
    };
    let said = refused("another secret", &format!("s3://{BUCKET}"));
    assert!(said.contains("SignatureDoesNotMatch") && said.contains("AWS_SECRET_ACCESS_KEY"), "{said}");
    let other = store(at(&url), KEYS.1, "s3://nosuch").names("jobs").unwrap_err().to_string();
    assert!(other.contains("make the bucket"), "{other}");
}

#[test]
fn a_real_store_is_reached_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fleet/hub/tests/certificates");
    let pair = ["own.crt", "own.key"].map(|name| certificates.join(name));
    let Some(server) = Seaweed::start(folder.path(), Some([&pair[0], &pair[1]])) else { return };
    let url = format!("https://127.0.0.1:{}", server.port);
    let trusted = at(&url).with_trusted(&std::fs::read(&pair[0]).unwrap()).unwrap();
    keeps(&store(trusted, KEYS.1, &format!("s3://{BUCKET}/tls")));
    // (The system's authorities do not know it.)
    let said = store(at(&url), KEYS.1, "s3://fleet").names("jobs").unwrap_err().to_string();
    assert!(said.contains("not trusted"), "{said}");
}

/// A server that gives these answers, one for each connection. Returns its address, and afterwards
/// the first lines of the requests.
fn answering(answers: Vec<String>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        let answer = |answer: String| {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(bytes) = line.to_lowercase().strip_prefix("content-length:") {
                    length = bytes.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            first
        };
        answers.into_iter().map(answer).collect()
    };
    (url, std::thread::spawn(serve))
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

#[test]
fn what_fails_for_a_while_is_tried_again_and_pages_are_joined() {
    let busy = answer("503 Slow Down", "<Error><Code>SlowDown</Code></Error>");
    let page = |names: &[&str], next: &str| {
        let names: String =
            names.iter().map(|n| format!("<Contents><Key>p/jobs/{n}</Key></Contents>")).collect();
        let next = match next {
            "" => String::new(),
            next => format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>"
            ),
        };
        answer("200 OK", &format!("<ListBucketResult>{names}{next}</ListBucketResult>"))
    };
    let answers = vec![
        busy.clone(),
        String::new(),
        answer("200 OK", ""),
        page(&["a", "b"], "x/y+1"),
        busy,
        page(&["c"], ""),
    ];
    let (url, requests) = answering(answers);
    let store = store(at(&url), KEYS.1, "s3://bucket/p");
    store.put("jobs/a", b"abc").unwrap();
    assert_eq!(store.names("jobs").unwrap(), ["a", "b", "c"]);
    let requests = requests.join().unwrap();
    assert!(requests[..3].iter().all(|line| line.starts_with("PUT /bucket/p/jobs/a HTTP")), "{requests:?}");
    let second = "GET /bucket?continuation-token=x%2Fy%2B1&list-type=2&prefix=p%2Fjobs%2F HTTP";
    assert!(requests[4..].iter().all(|line| line.starts_with(second)), "{requests:?}");
}

#[test]
fn a_store_that_stays_busy_or_says_too_much_is_a_failure() {
    let busy = answer("503 Slow Down", "<Error><Code>SlowDown</Code></Error>");
    let (url, requests) = answering(vec![busy; 4]);
    let said = store(at(&url), KEYS.1, "s3://bucket").put("x", b"abc").unwrap_err().to_string();
    assert!(said.contains("(SlowDown)") && requests.join().unwrap().len() == 4, "{said}");
    let long = answer("200 OK", &"x".repeat(9 << 20));
    let (url, requests) = answering(vec![long]);
    let said = store(at(&url), KEYS.1, "s3://bucket").read("x", 5).unwrap_err().to_string();
    assert!(said.contains("more than"), "{said}");
    drop(requests);
    let (url, requests) = answering(vec![answer("200 OK", "<html>A login page</html>")]);
    let said = store(at(&url), KEYS.1, "s3://bucket").names("jobs").unwrap_err().to_string();
    assert!(said.contains("something else than a listing"), "{said}");
    requests.join().unwrap();
}
