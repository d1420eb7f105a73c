//! The first finding of `apex advise` for each program of `testing/corpus`, whose dominant cause is
//! known.
//!
//! Programs are judged on a session that was recorded on a GPU (`data/h200/corpus`) or on one that
//! this test records on the CPU device. `testing/corpus/findings.json` holds the first finding of
//! each, right or not: the test fails where another one comes first, so that the table made from it
//! stays true. `BLESS=1` writes it anew.

#[allow(dead_code, reason = "each test target uses a part of what the two share")]
#[path = "../e2e/common.rs"]
mod common;
#[allow(dead_code, reason = "each test target uses a part of what the two share")]
#[path = "../clients/deps.rs"]
mod deps;

use apex_profile::{PhaseKind, Profile};
use apex_trace::Session;
use common::{Sandbox, output};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Options of a program on the CPU device.
const SMALL: [&str; 3] = ["--small", "--steps", "20"];
/// Below this share of the job a finding about a program without a fault promises too little to
/// mislead.
const NEGLIGIBLE: f64 = 0.05;
/// Below this share of the job a known saving is no finding.
const MINOR: f64 = 0.02;
/// Standard errors of the kernels' time, which is sampled, that it may exceed a step's by.
const ERRORS: f64 = 3.0;
/// Test binaries run their tests side by side; both write one file.
static BLESSED: Mutex<()> = Mutex::new(());

/// A row of `testing/corpus/programs.json`.
#[derive(Deserialize)]
struct Program {
    name: String,
    kind: String,
    cause: String,
    rules: Vec<String>,
    judged: String,
}

impl Program {
    fn id(&self) -> String {
        format!("{}-{}", self.kind, self.name)
    }

    /// Returns the part of the advice that is kept: its first finding. Times of the CPU device are
    /// left out, because they vary from run to run.
    fn judge(&self, advice: &Value) -> Value {
        let first = &advice["advice"]["findings"][0];
        let share = &first["saving"]["of_job"];
        let value = share["value"].as_f64();
        // A known saving of next to nothing comes last: nothing else was found.
        let first = if value.is_some_and(|share| share < MINOR) { &Value::Null } else { first };
        let value = value.filter(|share| *share >= MINOR);
        let right = match first["rule"].as_str() {
            _ if self.cause.starts_with("none") => value.is_none_or(|share| share < NEGLIGIBLE),
            Some(rule) => {
                self.rules.iter().any(|named| match (named.split_once(' '), first["cause"]["id"].as_str()) {
                    (Some((named, wanted)), cause) => named == rule && cause == Some(wanted),
                    (None, cause) => named == rule && cause.is_none(),
                })
            }
            None => false,
        };
        let varies = |rule: &str| self.judged == "cpu" && rule.starts_with("APEX-T");
        let first = if first["rule"].as_str().is_some_and(varies) { &Value::Null } else { first };
        let round = |number: f64| (number * 1e3).round() / 1e3;
        let saves = value
            .filter(|_| self.judged == "gpu")
            .map(|value| ["low", "value", "high"].map(|end| round(share[end].as_f64().unwrap_or(value))));
        json!({ "right": right, "first": first["rule"], "title": first["title"], "saves": saves })
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn programs(judged: &str) -> Vec<Program> {
    let table = std::fs::read(root().join("testing/corpus/programs.json")).unwrap();
    let programs: Vec<Program> = serde_json::from_slice(&table).unwrap();
    programs.into_iter().filter(|program| program.judged == judged).collect()
}

/// Compares what was found with `findings.json`, or writes it there.
fn compare(found: &BTreeMap<String, Value>) {
    let _turn = BLESSED.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("testing/corpus/findings.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let mut kept: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    let differs: Vec<_> = found
        .iter()
        .filter(|(id, finding)| kept.get(*id) != Some(finding))
        .map(|(id, finding)| {
            format!("{id}: {finding}\n   instead of {}", kept.get(id).unwrap_or(&Value::Null))
        })
        .collect();
    if std::env::var_os("BLESS").is_some() {
        kept.extend(found.clone());
        let mut lines = String::new();
        for (id, finding) in &kept {
            let comma = if lines.is_empty() { "" } else { ",\n" };
            write!(lines, "{comma} {}: {finding}", json!(id)).unwrap();
        }
        std::fs::write(&path, format!("{{\n{lines}\n}}\n")).unwrap();
    }
    let wrong = found.values().filter(|finding| finding["right"] == false).count();
    println!("{} of {} first findings are right", found.len() - wrong, found.len());
    assert!(
        differs.is_empty(),
        "BLESS=1 renews the table, if this is what should be:\n{}",
        differs.join("\n")
    );
}

/// On one stream a step takes no less than its kernels, whether the host waits for the device or
/// runs ahead of it.
fn assert_a_step_holds_its_kernels(id: &str, folder: &Path) {
    let whole = Profile::from_session(&Session::open(folder).unwrap());
    let Some(steady) = whole.in_phase(PhaseKind::Steady) else { return };
    let one_stream = steady.activities.len() == 1 && steady.activities[0].streams == 1;
    let (step, steps) = (steady.step_ns().unwrap(), steady.steps().unwrap());
    let Some(kernels) = steady.totals.gpu_time_ns.filter(|_| one_stream) else { return };
    let kernels = kernels.scaled(1.0 / steps);
    let least = kernels.value - ERRORS * kernels.standard_error.unwrap_or(0.0);
    assert!(least <= step.bounds().1, "{id}: a step takes {step:?}, its kernels {kernels:?}");
}

/// Share of the job that figures of two computations may differ by.
const ROUNDING: f64 = 1e-6;

/// No finding about the host promises more than the idle time, unless it names work of the device;
/// none promises more than there is; and the larger claim comes first, unless a finding before it
/// says that it is a part of that one's cause.
fn assert_claims_are_bounded_and_ordered(id: &str, folder: &Path, advice: &Value) {
    let session = Profile::from_session(&Session::open(folder).unwrap());
    let whole = session.in_phase(PhaseKind::Steady).unwrap_or(session);
    let (accounts, span) = (whole.accounts(), whole.totals.span_ns.max(1.0));
    let idle = (accounts.idle_ns().bounds().1 + accounts.unknown.value) / span;
    let findings = advice["advice"]["findings"].as_array().unwrap();
    assert_claims_keep_together(id, findings);
    let mut least = f64::INFINITY;
    for finding in findings {
        let (share, rule) = (&finding["saving"]["of_job"], finding["rule"].as_str().unwrap());
        let Some(value) = share["value"].as_f64() else { continue };
        let high = share["high"].as_f64().unwrap_or(value);
        assert!(value <= high + ROUNDING && high <= 1.0 + ROUNDING, "{id}: {rule} {share}");
        let is_general = ["APEX-L43", "APEX-L25", "APEX-T16"].contains(&rule);
        assert!(!is_general || high <= idle.max(0.999) + ROUNDING, "{id}: {rule} {share} of {idle}");
        let says = finding["confidence"]["reason"].as_str().unwrap().contains("it comes before ");
        if value >= MINOR && !says {
            assert!(value <= least + ROUNDING, "{id}: {rule} {share} after {least}");
            least = least.min(value);
        }
    }
}

/// Findings that are within no other one claim at most all of the job together; one within another
/// claims no more than that, at both ends of its interval too; and no goal is short of what is
/// claimed.
fn assert_claims_keep_together(id: &str, findings: &[Value]) {
    let share = |finding: &Value, end: &str| {
        let of_job = &finding["saving"]["of_job"];
        of_job[end].as_f64().or(of_job["value"].as_f64())
    };
    let alone = findings.iter().filter(|finding| finding["within"].is_null());
    let sum: f64 = alone.filter_map(|finding| share(finding, "value")).sum();
    assert!(sum <= 1.0 + ROUNDING, "{id}: {sum}");
    for finding in findings {
        let rule = &finding["rule"];
        let whole = findings.iter().find(|whole| whole["rule"] == finding["within"]);
        for end in ["low", "value", "high"] {
            let ends = whole.and_then(|whole| share(finding, end).zip(share(whole, end)));
            assert!(
                ends.is_none_or(|(part, whole)| part <= whole + ROUNDING),
                "{id}: {end} of {rule} {ends:?}"
            );
        }
        if rule == "APEX-T24" {
            assert_eq!(finding["evidence"][0]["direction"]["towards"], 0.0, "{id}: it claims all of it");
        }
    }
}

#[test]
fn sessions_of_an_h200() {
    let sandbox = Sandbox::new();
    let mut found = BTreeMap::new();
    for program in programs("gpu") {
        let id = program.id();
        let folder = sandbox.path(&id);
        test_recorded::unpack(&test_recorded::archive(&id), &folder).unwrap();
        let advice = sandbox.json(&["advise", "--json", &id]);
        found.insert(id.clone(), program.judge(&advice));
        assert_claims_are_bounded_and_ordered(&id, &folder, &advice);
        assert_a_step_holds_its_kernels(&id, &folder);
        std::fs::remove_dir_all(&folder).unwrap();
    }
    compare(&found);
}

#[test]
fn programs_on_the_cpu_device() {
    const TEST: &str = "programs_on_the_cpu_device";
    let Some(python) = deps::find(TEST, "python/bin/python") else { return };
    let Some(nvcc) = deps::find(TEST, "cuda13/bin/nvcc") else { return };
    let (sandbox, folder) = (Sandbox::new(), root().join("testing/corpus/cuda"));
    let names = programs("cpu").into_iter().map(|program| program.name);
    let all = output(sandbox.command(python).arg(folder.join("all.py")).args(names), 0);
    std::fs::write(sandbox.path("all.cu"), all.stdout).unwrap();
    let options = ["-std=c++17", "-lineinfo", "-arch=compute_80", "-code=compute_80", "-o", "all", "all.cu"];
    output(sandbox.command(nvcc).args(options).arg("-I").arg(folder), 0);
    let mut found = BTreeMap::new();
    for program in programs("cpu") {
        let id = program.id();
        let mut run = sandbox.apex(&["run", "--device", "cpu", "-o", &id, "--", "./all", &program.name]);
        output(run.args(SMALL), 0);
        found.insert(id.clone(), program.judge(&sandbox.json(&["advise", "--json", &id])));
    }
    compare(&found);
}
