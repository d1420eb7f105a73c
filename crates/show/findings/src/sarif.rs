//! Findings in SARIF 2.1.0 (OASIS, 27 March 2020).
//!
//! A result stands at the line of the program that the finding is about: at the one whose source
//! text is known, else at the line that launches most of its kernels. Files below the folder in
//! which the program was started are relative to it (`%SRCROOT%`), which is what code scanning
//! needs; others have their full path.

use apex_advice::rules::{RULES, Rule};
use apex_advice::{Advice, Finding, Level, Severity};
use apex_profile::{Frame, Profile, Site};
use apex_view::Shown;
use apex_view::text::savings::saving;
use apex_view::text::verdict::together;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Findings in a file: code scanning takes 5,000 for display.
const MOST: usize = 1000;
/// The base of relative paths, in GitHub's word.
const ROOT: &str = "%SRCROOT%";

/// A SARIF log with one run.
#[derive(Clone, Debug, Serialize)]
pub struct Sarif {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Value; 1],
}

/// The findings. `root` is the folder of the source, if it is known.
pub fn sarif(shown: &Shown<'_>, advice: &Advice, root: Option<&str>) -> Sarif {
    let named: BTreeSet<&str> = advice.findings.iter().map(|finding| finding.rule.as_str()).collect();
    let rules: Vec<&Rule> = RULES.iter().filter(|rule| named.contains(rule.id)).collect();
    let results: Vec<Value> = advice
        .findings
        .iter()
        .take(MOST)
        .map(|finding| {
            let index = rules.iter().position(|rule| rule.id == finding.rule);
            result(shown, finding, index, root)
        })
        .collect();
    let driver = json!({
        "name": "APEX",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": rules.iter().map(|rule| described(rule)).collect::<Vec<_>>(),
    });
    let run = json!({
        "tool": { "driver": driver },
        "columnKind": "unicodeCodePoints",
        "results": results,
    });
    Sarif {
        schema: "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        version: "2.1.0",
        runs: [run],
    }
}

/// How many findings stand at a line of the program.
pub fn placed(shown: &Shown<'_>, advice: &Advice) -> usize {
    advice.findings.iter().filter(|finding| place(shown.whole, finding).is_some()).count()
}

fn described(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "name": rule.slug,
        "shortDescription": { "text": rule.title },
        "fullDescription": { "text": rule.why },
        "help": { "text": format!("Detects: {}\nChange: {}\nSource: {}", rule.detects, rule.change, rule.source) },
        "defaultConfiguration": { "level": level(rule.severity) },
    })
}

fn result(shown: &Shown<'_>, finding: &Finding, index: Option<usize>, root: Option<&str>) -> Value {
    let of_what = if shown.steps().is_some() { "each step" } else { "the job" };
    let saves = saving(&finding.saving, of_what, together(&shown.job).as_deref());
    let saves = saves.replacen("unknown saving", "saves an unknown part", 1);
    let ended = |text: &str| text.trim_end_matches('.').to_owned() + ".";
    let (what, change) = (ended(&finding.summary), ended(&finding.change));
    let text = format!("{}: {what} Change: {change} It {saves}.", finding.title);
    let place = place(shown.whole, finding);
    let mut result = json!({
        "ruleId": finding.rule,
        "level": level(finding.severity),
        "message": { "text": text },
        "partialFingerprints": { "apexFinding/v1": fingerprint(finding, place.as_ref()) },
        "properties": {
            "savesOfJob": finding.saving.of_job.map(|share| share.value),
            "savesNs": finding.saving.time_ns.map(|time| time.value),
            "confidence": confidence(finding.confidence.level),
            "verify": finding.verify,
        },
    });
    if let Some(index) = index {
        result["ruleIndex"] = index.into();
    }
    if let Some((file, line)) = &place {
        let mut region = json!({ "startLine": line });
        if let Some(quoted) = finding.place.as_ref().filter(|quoted| !quoted.text.is_empty()) {
            region["snippet"] = json!({ "text": quoted.text });
        }
        let location = json!({ "artifactLocation": artifact(file, root), "region": region });
        result["locations"] = json!([{ "physicalLocation": location }]);
    }
    result
}

/// The line of the program that a finding is about.
pub(crate) fn place(profile: &Profile, finding: &Finding) -> Option<(String, u32)> {
    if let Some(quoted) = &finding.place {
        return Some((quoted.file.clone(), quoted.line.max(1)));
    }
    let kernels = finding.kernels.iter().filter_map(|kernel| profile.kernels.get(kernel.kernel));
    let launching = kernels.flat_map(|kernel| profile.sites(&kernel.stacks)).map(|share| share.site);
    let frame = launching.filter_map(of_site).next().or_else(|| named(profile, finding))?;
    Some((frame.file.clone(), frame.line?.max(1)))
}

/// The line of a place, if it is a line.
fn of_site(site: Site<'_>) -> Option<&Frame> {
    match site {
        Site::Line(frame) | Site::Through { python: frame, .. } => {
            Some(frame).filter(|frame| frame.line.is_some())
        }
        Site::Autograd | Site::Thread(_) => None,
    }
}

/// The line that a finding's summary names first.
fn named<'p>(profile: &'p Profile, finding: &Finding) -> Option<&'p Frame> {
    let launching = profile.call_stacks.iter().filter_map(|stack| of_site(stack.site()));
    let waiting = profile.host_stacks.iter().flat_map(|stack| &stack.frames).map(|host| &host.frame);
    let frames = launching.chain(waiting).filter(|frame| frame.line.is_some());
    let at = |frame: &'p Frame| Some((finding.summary.find(&frame.to_string())?, frame));
    frames.filter_map(at).min_by_key(|(at, _)| *at).map(|(_, frame)| frame)
}

/// The file: relative to the source's folder where it lies in it.
fn artifact(file: &str, root: Option<&str>) -> Value {
    let inside = root.map(|root| root.trim_end_matches('/')).filter(|root| !root.is_empty());
    let inside = inside.and_then(|root| file.strip_prefix(root)?.strip_prefix('/'));
    match (inside, file.starts_with('/')) {
        (None, true) => json!({ "uri": format!("file://{}", encoded(file)) }),
        (inside, _) => json!({ "uri": encoded(inside.unwrap_or(file)), "uriBaseId": ROOT }),
    }
}

/// A path as a reference in a URI: a segment with a colon would be read as a scheme.
fn encoded(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into())
            }
            _ => _ = write!(uri, "%{byte:02X}"),
        }
    }
    uri
}

/// A number that stays while the program's lines move: of the rule, the cause, the file and the
/// function.
fn fingerprint(finding: &Finding, place: Option<&(String, u32)>) -> String {
    let function = finding.place.as_ref().map_or("", |place| &place.function);
    let cause = finding.cause.as_ref().map_or("", |cause| &cause.id);
    let file = place.map_or("", |(file, _)| file.rsplit('/').next().unwrap_or(file));
    // FNV-1a: the same on every machine and in every version.
    let bytes = [finding.rule.as_str(), cause, file, function].join("\0");
    let hash = bytes.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::High | Severity::Medium => "warning",
        Severity::Low | Severity::Info => "note",
    }
}

fn confidence(level: Level) -> &'static str {
    match level {
        Level::Low => "low",
        Level::Medium => "medium",
        Level::High => "high",
    }
}
