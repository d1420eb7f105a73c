//! Counts by line: of a kernel whose counts are known by hand, with the code that the session
//! keeps.

use crate::common::{Sandbox, output, text};
use serde_json::{Value, json};

/// The source file that the line table names, with text that would do harm in a terminal or a page.
const HOSTILE: &str =
    "    </script><img src=x onerror=globalThis.pwned=1>\u{1b}[2J\u{202e} rows[32 * i] += 0;";

/// Writes the source file of the kernels into the folder in which the program runs.
fn source(sandbox: &Sandbox) {
    let line = |number| if number == 52 { HOSTILE.to_owned() } else { format!("// line {number}") };
    let lines: Vec<String> = (1..=60).map(line).collect();
    std::fs::write(sandbox.path("defects.cu"), lines.join("\n")).unwrap();
}

fn counts(sandbox: &Sandbox) -> Value {
    sandbox.json(&["report", "--json", "s"])["profile"]["kernels"][0]["counts"].clone()
}

fn report(sandbox: &Sandbox) -> String {
    text(&output(&mut sandbox.apex(&["report", "--kernel", "*", "s"]), 0).stdout)
}

/// The lines of the page's document.
fn page(sandbox: &Sandbox) -> Value {
    output(&mut sandbox.apex(&["report", "--html", "page.html", "s"]), 0);
    let page = std::fs::read_to_string(sandbox.path("page.html")).unwrap();
    let (_, rest) = page.split_once("<script id=\"apex-document\" type=\"application/json\">").unwrap();
    let (document, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str::<Value>(document).unwrap()["lines"][0].clone()
}

/// Of one warp: all lanes compare and branch, 16 of them load and store words that are 32 words
/// apart, all end.
fn known() -> Value {
    let line = |line: u32, warps: u32, threads: u32| {
        json!({
            "file": "defects.cu", "line": line, "warp_instructions": warps, "thread_instructions": threads,
            "global_requests": 0, "global_sectors": 0, "global_excess": 0,
            "shared_requests": 0, "shared_wavefronts": 0, "shared_excess": 0,
            "atomic_turns": 0, "branches": 0, "divergent_branches": 0,
        })
    };
    let mut lines = [line(51, 2, 64), line(52, 5, 80), line(53, 1, 32)];
    for name in ["branches", "divergent_branches"] {
        lines[0][name] = 1.into();
    }
    // 16 words would fit into two sectors; here each has its own.
    for (name, count) in [("global_requests", 2), ("global_sectors", 32), ("global_excess", 28)] {
        lines[1][name] = count.into();
    }
    lines.into_iter().collect()
}

#[test]
fn lines_have_the_counts_that_are_known_and_the_code_that_was_kept() {
    let sandbox = Sandbox::new();
    source(&sandbox);
    sandbox.recorded(&["--code"], &["run", "lines"]);
    // What becomes of the file afterwards changes nothing.
    std::fs::remove_file(sandbox.path("defects.cu")).unwrap();
    let counts = counts(&sandbox);
    assert_eq!((&counts["lines"], &counts["lines_left_out"]), (&known(), &0.into()));
    let report = report(&sandbox);
    for part in ["Lines of lines", "defects.cu:52", "16.0", "// line 51", "</script><img"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(!report.contains('\u{1b}') && !report.contains('\u{202e}'), "{report:?}");
    let lines = page(&sandbox);
    let rows = lines["files"][0]["rows"].as_array().unwrap();
    let numbers: Vec<u64> = rows.iter().map(|row| row["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [49, 50, 51, 52, 53, 54, 55]);
    assert_eq!((&rows[2]["text"], &rows[2]["faults"]), (&"// line 51".into(), &json!(["divergence"])));
    assert_eq!((&rows[1]["counts"], &rows[3]["faults"]), (&Value::Null, &json!(["uncoalesced"])));
    assert!(rows[3]["text"].as_str().unwrap().contains("</script><img"), "{rows:?}");
}

#[test]
fn without_code_lines_are_counted_and_no_file_is_read() {
    let sandbox = Sandbox::new();
    source(&sandbox);
    sandbox.recorded(&[], &["run", "lines"]);
    assert_eq!(counts(&sandbox)["lines"], known());
    let why = "The session keeps no source text: record it with `apex run --code`.";
    let report = report(&sandbox);
    assert!(report.contains(why) && !report.contains("// line 51"), "{report}");
    let lines = page(&sandbox);
    assert_eq!(lines["files"][0]["no_text"], why);
    assert!(lines["files"][0]["rows"].as_array().unwrap().iter().all(|row| row["text"].is_null()));
}

#[test]
fn a_file_that_is_not_there_and_a_line_table_that_is_missing_say_so() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--code"], &["run", "lines"]);
    assert_eq!(counts(&sandbox)["lines"], known());
    let report_of_lines = report(&sandbox);
    assert!(
        report_of_lines.contains("does not keep the text of this file: there is no such file."),
        "{report_of_lines}"
    );
    // A kernel without line table has lines of the PTX, which the session keeps.
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--code"], &["launch", "1"]);
    let file = &page(&sandbox)["files"][0];
    let row = file["rows"].as_array().unwrap().iter().find(|row| row["counts"].is_object()).unwrap();
    assert_eq!((&file["name"], &file["no_text"]), (&"".into(), &Value::Null));
    assert_eq!(row["text"], ".visible .entry nothing() { ret; }");
    assert_eq!(row["counts"]["warp_instructions"], 1);
    // Without code, it is said what to do.
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--no-ptx"], &["launch", "1"]);
    let report = report(&sandbox);
    assert!(
        report.contains("PTX line 6") && report.contains("-lineinfo") && report.contains("--code"),
        "{report}"
    );
}
