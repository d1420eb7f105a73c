//! Every path of the description, asked with what no client sends: methods, tokens, identifiers,
//! parameters, sizes, compressed and nested bodies. Each answer has a status that the description
//! lists for it, none is the hub's failure, and nothing changes.

use crate::common::{Answer, Running, message};
use crate::totals::totals;
use apex_hub::Store;
use serde_json::Value;
use std::collections::BTreeSet;

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];
const POSTED: &str = "/api/v1/aggregates";

/// A path of the description.
struct Path {
    path: String,
    method: String,
    /// Statuses that it lists.
    statuses: BTreeSet<u16>,
    /// Names of parameters of the address.
    parameters: Vec<String>,
}

/// A hub of two tenants with a job of the first one, and both tokens.
struct Attacked {
    folder: tempfile::TempDir,
    hub: Running,
    token: String,
    other: String,
    paths: Vec<Path>,
}

fn attacked() -> Attacked {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let store = Store::open(&database).unwrap();
    let [token, other] = ["one", "two"].map(|name| store.add_token(name, 1).unwrap());
    let hub = Running::start(&database);
    assert_eq!(hub.post_as(&message(1, 1).to_bytes(), &token).status, 200);
    let description = hub.get_as("/api/v1/openapi.json", &token).body;
    let paths = paths(&serde_json::from_str(&description).unwrap());
    assert!(paths.len() >= 9);
    Attacked { folder, hub, token, other, paths }
}

fn paths(api: &Value) -> Vec<Path> {
    let mut paths = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, of) in methods.as_object().unwrap() {
            let statuses = of["responses"].as_object().unwrap().keys();
            let parameters = of["parameters"].as_array().into_iter().flatten();
            paths.push(Path {
                path: path.clone(),
                method: method.to_uppercase(),
                statuses: statuses.map(|status| status.parse().unwrap()).collect(),
                parameters: parameters
                    .filter(|of| of["in"] == "query")
                    .map(|of| of["name"].as_str().unwrap().to_owned())
                    .collect(),
            });
        }
    }
    paths
}

impl Attacked {
    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }

    /// Asks, and checks that the answer's status is a described one.
    fn ask(&self, of: &Path, method: &str, address: &str, headers: &str, body: &[u8]) -> Answer {
        let answer = self.hub.send(method, address, headers, body);
        // (Heads answer as their GETs do.)
        let method = if method == "HEAD" { "GET" } else { method };
        let is_described =
            of.statuses.contains(&answer.status) && (method == of.method || answer.status != 200);
        assert!(is_described, "{method} {address} {headers:?}: {} {}", answer.status, answer.body);
        assert!(answer.status < 500, "{method} {address} {headers:?}: {}", answer.body);
        answer
    }
}

#[test]
fn other_methods_and_tokens_are_refused_everywhere() {
    let attacked = attacked();
    let wrong: [(String, u16); 8] = [
        (String::new(), 401),
        ("Authorization: Bearer \r\n".to_owned(), 401),
        (format!("Authorization: Bearer {}\r\n", "0".repeat(64)), 401),
        (format!("Authorization: Bearer {}\r\n", &attacked.token[..63]), 401),
        (format!("Authorization: Bearer {}0\r\n", attacked.token), 401),
        (format!("Authorization: Basic {}\r\n", attacked.token), 401),
        (format!("Authorization: Bearer {}\r\n", attacked.token.to_uppercase()), 401),
        ("Cookie: apex-token-1=x; apex-token-1=' OR 1=1 --\r\n".to_owned(), 401),
    ];
    for of in &attacked.paths {
        let address = of.path.replace("{id}", "1");
        let json = "Content-Type: application/json\r\n";
        for method in METHODS {
            let answer = attacked.ask(of, method, &address, &(attacked.bearer() + json), b"");
            let is_answered = method == of.method || (method == "HEAD" && of.method == "GET");
            assert_eq!(answer.status == 405, !is_answered, "{method} {address}: {}", answer.status);
        }
        for (headers, status) in &wrong {
            let answer = attacked.ask(of, &of.method, &address, &(headers.clone() + json), b"");
            assert_eq!(answer.status, *status, "{address} {headers}");
        }
    }
    let refused = wrong.len() * attacked.paths.len();
    let metrics = attacked.hub.get_as("/metrics", &attacked.token).body;
    assert!(metrics.contains(&format!("{{outcome=\"refused_token\"}} {refused}\n")), "{metrics}");
}

/// Values that no parameter has.
fn values() -> Vec<String> {
    let long = "9".repeat(4000);
    let plain = [
        "",
        "-1",
        "0",
        "01",
        "+1",
        "1.5",
        "1e3",
        "99999999999999999999",
        "NaN",
        "null",
        "true",
        "a",
        "'",
        "\"",
        ";",
        "--",
        "1 OR 1=1",
        "1; DROP TABLE jobs",
        "' UNION SELECT hash FROM tokens --",
        "../../etc/passwd",
        "<script>",
        "%",
        "\0",
        "\u{202e}",
        "💥",
        "1-1",
        "9223372036854775807-9223372036854775807",
        "-9223372036854775808--1",
        &long,
    ];
    plain.map(str::to_owned).into()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn other_identifiers_and_parameters_find_nothing_and_break_nothing() {
    let attacked = attacked();
    let before = totals(&attacked.folder.path().join("hub.db"));
    for of in attacked.paths.iter().filter(|of| of.method == "GET") {
        for value in values() {
            let address = of.path.replace("{id}", &encoded(&value));
            let answer = attacked.ask(of, "GET", &address, &attacked.bearer(), b"");
            // The only job is the first one, in whichever way it is written.
            let is_job = matches!(value.as_str(), "01" | "+1");
            assert!(
                !of.path.contains("{id}") || is_job || answer.status == 404,
                "{address}: {}",
                answer.status
            );
            let address = of.path.replace("{id}", "1");
            for name in of.parameters.iter().map(String::as_str).chain(["unknown", "token"]) {
                let asked = format!("{address}?{name}={}", encoded(&value));
                attacked.ask(of, "GET", &asked, &attacked.bearer(), b"");
                attacked.ask(of, "GET", &format!("{asked}&{name}=1"), &attacked.bearer(), b"");
            }
        }
        for broken in ["%", "%zz", "%ff", "?%ff=1", "?a=%", "//", "/%2e%2e/"] {
            let answer = attacked.hub.get_as(&(of.path.replace("{id}", "1") + broken), &attacked.token);
            assert!((400..500).contains(&answer.status), "{}{broken}: {}", of.path, answer.status);
        }
        // The other tenant sees none of it.
        let theirs = attacked.hub.get_as(&of.path.replace("{id}", "1"), &attacked.other);
        assert!(
            !theirs.body.contains("owner1") && !theirs.body.contains("job 0"),
            "{}: {}",
            of.path,
            theirs.body
        );
    }
    assert_eq!(totals(&attacked.folder.path().join("hub.db")), before);
}

/// The beginning of a gzip file of zeros, whose compressed bytes are mostly zeros too.
fn bomb() -> Vec<u8> {
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 0xec, 0xc1, 0x01, 0x01];
    [&head[..], &[0; 200_000]].concat()
}

#[test]
fn large_nested_and_compressed_bodies_are_refused() {
    let attacked = attacked();
    let before = totals(&attacked.folder.path().join("hub.db"));
    let of = attacked.paths.iter().find(|of| of.path == POSTED).unwrap();
    let valid = message(2, 1).to_bytes();
    let text =
        |head: &str, middle: String, end: &str| [head.as_bytes(), middle.as_bytes(), end.as_bytes()].concat();
    let duplicates = "\"owner\":\"x\",".repeat(5000);
    let bodies: Vec<(&str, Vec<u8>, &str, u16)> = vec![
        ("gzip", bomb(), "Content-Encoding: gzip\r\n", 415),
        ("twice", bomb(), "Content-Encoding: gzip, gzip\r\n", 415),
        ("brotli", valid.clone(), "Content-Encoding: br\r\n", 415),
        ("unnamed gzip", bomb(), "", 422),
        ("too large", vec![b' '; (256 << 10) + 1], "", 413),
        ("blanks", vec![b' '; 256 << 10], "", 422),
        ("nested lists", vec![b'['; 256 << 10], "", 422),
        ("nested objects", "{\"schema\":".repeat(25_000).into_bytes(), "", 422),
        (
            "a number",
            text("{\"schema\":\"apex.aggregate/1\",\"sequence\":1e", "9".repeat(200_000), "}"),
            "",
            422,
        ),
        (
            "a text",
            text("{\"schema\":\"apex.aggregate/1\",\"owner\":\"", "x".repeat(250_000), "\"}"),
            "",
            422,
        ),
        (
            "escapes",
            text("{\"schema\":\"apex.aggregate/1\",\"owner\":\"", "\\u0000".repeat(40_000), "\"}"),
            "",
            422,
        ),
        ("twice a member", text("{\"schema\":\"apex.aggregate/1\",", duplicates, "\"host\":\"h\"}"), "", 422),
        ("no text", vec![0xff; 1000], "", 422),
        ("another type", valid.clone(), "Content-Type: text/plain\r\n", 415),
    ];
    for (what, body, headers, status) in bodies {
        let typed = if headers.contains("Type") { "" } else { "Content-Type: application/json\r\n" };
        let headers = format!("{}{typed}Content-Length: {}\r\n{headers}", attacked.bearer(), body.len());
        let answer = attacked.ask(of, "POST", POSTED, &headers, &body);
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        assert_eq!(answer.confirmed(), None, "{what}");
    }
    // Heads without measure do not reach the answers.
    for headers in [
        format!("X: {}\r\n", "x".repeat(100_000)),
        "X: x\r\n".repeat(1000),
        "Content-Length: -1\r\n".to_owned(),
        "Content-Length: 1\r\nContent-Length: 2\r\n".to_owned(),
        "Host: evil.example\r\n".to_owned(),
        "Transfer-Encoding: gzip, chunked\r\n".to_owned(),
    ] {
        let answer = attacked.hub.send("POST", POSTED, &(attacked.bearer() + &headers), &valid);
        assert!(
            answer.status == 0 || (400..500).contains(&answer.status),
            "{}: {headers:.40}",
            answer.status
        );
    }
    assert_eq!(totals(&attacked.folder.path().join("hub.db")), before);
    assert_eq!(attacked.hub.post_as(&valid, &attacked.token).status, 200, "it still takes what is sound");
}
