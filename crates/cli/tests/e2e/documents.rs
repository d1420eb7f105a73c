//! `docs/json.md`: its samples have the shape of what the commands print, and hold a value for
//! every member.
//!
//! What is null or empty in one document says nothing of its shape. So each schema has several
//! commands, on sessions with defects, gaps, predictions and damage, whose documents together fill
//! every member; what none fills stands in [`UNFILLED`].
//!
//! `BLESS=1` writes new samples: of lists, the entry that says most, with what it lacks taken from
//! the others. The text around the samples is kept.

use crate::common::{
    APEX, PTX, Running, Sandbox, energy_file, h200_session, machine_file, output, place_session,
};
use crate::verdicts::{launch_bound, record};
use apex_conventions::documents::{self, Document};
use apex_trace::definition::{Definition, Range};
use apex_trace::layout::{RangeChange, Slots, flags};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Stands for what another sample shows.
const ELSEWHERE: &str = "…";

/// The words of a command.
type Words = &'static [&'static str];

/// Advice on a part of a run.
const FILTERED: [&str; 9] =
    ["advise", "--json", "--window", "0s..600s", "--rank", "0", "--kernel", "layer_1", "steady"];

/// A part of a run beside itself.
const FILTERED_DIFF: [&str; 12] = [
    "diff", "--json", "--phase", "steady", "--window", "0s..600s", "--rank", "0", "--kernel", "layer_1",
    "steady", "steady",
];

/// The documents: schema, commands (the first one's values are shown where it has any), and members
/// that another document shows.
const DOCUMENTS: [(Document, &[Words], Words); 19] = [
    (
        documents::REPORT,
        &[
            &["report", "--json", "s"],
            &["report", "--json", "h200"],
            &["report", "--json", "--suppress", "tail-wave,no-such-rule", "h200"],
            &["report", "--json", "race"],
            &["report", "--json", "gap"],
            &[
                "report",
                "--json",
                "--phase",
                "steady",
                "--energy-price",
                "1000",
                "--energy-co2",
                "380",
                "steady",
            ],
            &["report", "--json", "--phase", "steady", "--kernel", "layer_1", "steady"],
            &["report", "--json", "--window", "0s..600s", "--rank", "0", "gap"],
            &["report", "--json", "cut"],
            &["report", "--json", "placed"],
            &["report", "--json", "fast"],
            &["report", "--json", "strided"],
        ],
        &[],
    ),
    (
        documents::PAGE,
        &[
            &["report", "--html", "page.html", "s"],
            &["report", "--html", "page.html", "--top", "1", "h200"],
            &["report", "--html", "page.html", "gap"],
            &["report", "--html", "page.html", "--phase", "steady", "steady"],
            &["report", "--html", "page.html", "cut"],
            &["report", "--html", "page.html", "placed"],
            &["report", "--html", "page.html", "fast"],
        ],
        &[],
    ),
    (
        documents::ADVISE,
        &[&["advise", "--json", "s"], &["advise", "--json", "--phase", "steady", "steady"], &FILTERED],
        &["advice"],
    ),
    (
        documents::EXPORT,
        &[
            &["export", "--format", "json", "--what", "launches", "s"],
            &["export", "--format", "json", "--what", "launches", "h200"],
        ],
        &["run", "profile"],
    ),
    (
        documents::PREDICT,
        &[
            &["predict", "--json", "--device", "h200", "--what-if", "shared=1K", "s"],
            &["predict", "--json", "h200"],
            &["predict", "--json", "--models", "models", "launches.csv"],
            &[
                "predict",
                "--json",
                "--grid",
                "1000",
                "--block",
                "100",
                "--registers",
                "40",
                "--ptx",
                "fill.ptx",
                "--arg",
                "ptr",
                "--arg",
                "100000",
                "--measured",
                "48.5us",
            ],
        ],
        &[],
    ),
    (
        documents::DIFF,
        &[
            &["diff", "--json", "--before", "s", "s", "--after", "s", "s"],
            &["diff", "--json", "ragged", "better"],
            &["diff", "--json", "ragged", "ragged"],
            &["diff", "--json", "better", "ragged"],
            &FILTERED_DIFF,
        ],
        &[],
    ),
    (
        documents::TOP,
        &[&["top", "--json", "--last", "600s", "live", "models", "h200"]],
        &["sessions/0/advice", "sessions/0/machine", "sessions/0/profile", "sessions/0/run"],
    ),
    (documents::CHECK, &[&["check", "--json", "--budgets", "too-small.toml", "s"]], &[]),
    (documents::FIGURES, &[&["check", "--figures", "s"]], &[]),
    (documents::HISTORY, &[&["history", "--json", "--days", "3650", "--history", "runs.jsonl"]], &[]),
    (
        documents::EXPLAIN,
        &[&["explain", "--json", "launch-bound", "pytorch-cat-in-loop", "no-such-rule"]],
        &[],
    ),
    (documents::MERGE, &[&["merge", "--json", "s", "strided", "-o", "joined"]], &[]),
    (documents::LIST, &[&["list", "--json"]], &[]),
    (documents::NOTES, &[&["note", "--json", "s"]], &[]),
    (documents::PACK, &[&["pack", "--json", "s", "-o", "s.tar.gz"]], &[]),
    (documents::CTL, &[&["ctl", "status", "--json", "live"]], &[]),
    (documents::DOCTOR, &[&["doctor", "--json"]], &[]),
    (documents::COLLECT, &[&["collect", "-o", "d", "--device", "cpu", "--rows", "4", "--json"]], &[]),
    (documents::SUITE, &[&["collect", "--list", "--json"]], &[]),
];

/// Documents that take minutes to make: schema, and the one that lies in the repository.
const COMMITTED: [(Document, &str); 1] = [(documents::TRAIN, "crates/predict/predict/models/card.json.zst")];

/// A product of matrices in FP32 without tensor cores.
const PRODUCT: &str =
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_ffma_aligna4_alignc4_execute_kernel__5x_cublas";

/// Members that no command here fills, and why.
const UNFILLED: [(&str, &str); 21] = [
    ("apex.merge/1.world_size", "a launcher tells it: cli's `ranks` tests it"),
    ("apex.merge/1.members[].ranks", "likewise"),
    ("apex.report/4.profile.activities[].over_time.collectives", "likewise"),
    ("apex.report/4.profile.activities[].over_time.waiting", "likewise"),
    ("apex.report/4.profile.activities[].collectives", "collectives take NCCL; apex_profile tests them"),
    ("apex.report/4.profile.processes[].pool.closed_by", "a closed pool: cli's `fast` tests it"),
    (
        "apex.report/4.profile.kernels[].prediction.bound",
        "an H200's session that keeps code takes a GPU; apex.predict/1 has the member",
    ),
    ("apex.report/4.profile.kernels[].prediction.work", "likewise"),
    ("apex.page/1.kernels.list[].prediction.bound", "likewise"),
    ("apex.page/1.kernels.list[].prediction.work", "likewise"),
    (
        "apex.report/4.profile.kernels[].prediction.duration_ns",
        "of a timed kernel it takes its work; apex.predict/1 has the member",
    ),
    ("apex.report/4.profile.kernels[].prediction.measured_over_predicted", "likewise"),
    ("apex.page/1.kernels.list[].prediction.duration_ns", "likewise"),
    ("apex.page/1.kernels.list[].prediction.measured_over_predicted", "likewise"),
    ("apex.page/1.flows", "repeated launches that share no data: apex_data_flow tests them"),
    ("apex.report/4.places[].native", "compiled code that Python calls; apex_profile tests it"),
    ("apex.export/1.launches[].cluster_x", "the CPU device's compute capability has no clusters"),
    ("apex.export/1.launches[].cluster_y", "likewise"),
    ("apex.export/1.launches[].cluster_z", "likewise"),
    ("apex.diff/2.comparison.counts.bank_conflicts.ratio", "the demo has no bank conflicts"),
    (
        "apex.diff/2.comparison.functions[].configuration",
        "a function is compared over all its configurations",
    ),
];

/// Members of a figure that are null in some figures of every document; the page leaves them out
/// there.
const OF_FIGURES: [&str; 4] = ["low", "high", "standard_error", "samples"];

/// A map from names to times: what the host did in a gap. Which names it has depends on the run: on
/// a busy machine, more gaps are long enough to be listed.
const MAP: &str = ".gaps[].by";

fn page() -> PathBuf {
    repository().join("docs/json.md")
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Makes what the commands read: the demo, with the source of one of its programs (`s`); kernels of
/// an H200, one of them larger than any that the models know (`h200`), and with its file cut off
/// (`cut`); a kernel with a defect (`race`); a device that is long idle (`gap`); steps that are all
/// alike (`steady`); a kernel whose code shows what it costs (`strided`); launches in a table, one
/// of them wrong; a program that runs (`live`) until there is a file `end`; a Python program
/// (`placed`); kernels with faults (`ragged`) and without (`better`).
fn prepare(sandbox: &Sandbox) -> Running {
    std::fs::copy(repository().join("crates/device/device-code/demo/matmul.cu"), sandbox.path("matmul.cu"))
        .unwrap();
    output(&mut sandbox.apex(&["demo", "--device", "cpu", "--timing", "all", "--code", "-o", "s"]), 0);
    output(&mut sandbox.apex(&["note", "s", "with --code", "--name", "all programs", "--tag", "demo"]), 0);
    std::fs::write(sandbox.path("damaged.tar.gz"), "no archive").unwrap();
    output(&mut sandbox.apex(&["demo", "bad", "--device", "cpu", "--timing", "all", "-o", "strided"]), 0);
    for name in ["h200", "cut"] {
        let kernels = [
            ("uneven", 5000, 100, 40_000),
            ("vast", 2_000_000_000, 64, 900_000_000),
            (PRODUCT, 500, 128, 90_000),
        ];
        h200_session(&sandbox.path(name), &kernels);
    }
    machine_file(&sandbox.path("h200"), "NVIDIA H200");
    place_session(&sandbox.path("placed"));
    let ragged = [("uneven", 5000, 100, 40_000), (PRODUCT, 500, 128, 90_000)];
    let better = [("uneven", 3907, 128, 36_000), ("product", 500, 128, 20_000)];
    h200_session(&sandbox.path("ragged"), &ragged);
    h200_session(&sandbox.path("better"), &better);
    std::fs::create_dir(sandbox.path("steady")).unwrap();
    record(&sandbox.path("steady"), |program| {
        program.define(Definition::Range(Range {
            id: 1,
            name: "run [4096 tokens]".into(),
            ..Range::default()
        }));
        let head = RangeChange::head(flags::RANGE_BEGUN, program.now, program.now);
        program.write(&RangeChange { head, range: 1, changed: 1, instance: 0 });
        launch_bound(program);
    });
    energy_file(&sandbox.path("steady"), &test_session::open(sandbox.path("steady")));
    crate::host_code::add_samples(&sandbox.path("steady"));
    for entry in std::fs::read_dir(sandbox.path("cut")).unwrap() {
        std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap().set_len(5000).unwrap();
    }
    let recorded = |options: &[&str], words: &[&str]| {
        let mut command = sandbox.apex(&["run", "--device", "cpu", "--quiet"]);
        command.args(options).arg("--").arg(crate::common::program()).args(words);
        command
    };
    output(&mut recorded(&["--check", "-o", "race"], &["run", "race"]), 123);
    // Until its worker runs, the queue lets launches pass: of few of them, it may take none.
    output(&mut recorded(&["--fast=queue,memory", "-o", "fast"], &["launch", "2000"]), 0);
    let options = ["-o", "gap", "--timing", "all"];
    let mut pausing =
        Running::start(&mut recorded(&options, &["launch", "10", "await", "on", "launch", "10"]));
    pausing.read_until("waiting");
    // At least that long is the device idle, and a gap of half a second is listed.
    std::thread::sleep(std::time::Duration::from_millis(600));
    std::fs::write(sandbox.path("on"), "").unwrap();
    assert!(pausing.0.wait().unwrap().success());
    std::fs::write(sandbox.path("launches.csv"), "tag,grid_x,block_x\nlarge,1,2048\nlast,7,32\n").unwrap();
    std::fs::write(sandbox.path("fill.ptx"), PTX).unwrap();
    std::fs::create_dir(sandbox.path("models")).unwrap();
    for file in apex_predict::Models::FILES {
        let shipped = test_manifest::content(&format!("crates/predict/predict/models/{file}.zst"));
        std::fs::write(sandbox.path("models").join(file), shipped).unwrap();
    }
    let too_small = "schema = \"apex.budgets/1\"\n[cpu]\nper = \"run\"\n[cpu.limits]\nlaunches = 1\n\
                     [cpu.kernels.\"*\"]\nsectors = 1\n";
    std::fs::write(sandbox.path("too-small.toml"), too_small).unwrap();
    write_history(sandbox);
    let options = ["-o", "live", "--max-size", "64M"];
    let mut live = Running::start(&mut recorded(&options, &["launch", "10", "await", "end"]));
    live.read_until("waiting");
    live
}

/// Writes `runs.jsonl`: sixteen runs of a program, of which the last eight have another launch and
/// take longer.
fn write_history(sandbox: &Sandbox) {
    let run = |at: u32| {
        let (launches, step) = if at < 8 { (3, 10.0) } else { (4, 12.0) };
        let time = format!("2026-11-{:02}T12:00:00Z", 1 + at);
        let exact = json!({ "launches": launches });
        let figures = json!({ "exact": exact, "varying": { "step_ms": step + f64::from(at) / 100.0 } });
        let kernels = json!({ "saxpy": { "exact": { "sectors": 8 * launches } } });
        json!({
            "schema": documents::HISTORY_RUN.to_string(), "commit": format!("commit-{at}"), "time": time,
            "name": "train.py", "device": "CPU device", "figures": figures, "kernels": kernels,
        })
    };
    let lines: String = (0..16).map(|at| format!("{}\n", run(at))).collect();
    std::fs::write(sandbox.path("runs.jsonl"), lines).unwrap();
}

/// The documents without a JSON Schema: the page's is for its own script.
const WITHOUT_SCHEMA: [Document; 1] = [documents::PAGE];

/// What the commands of a schema print, as one document. The JSON Schema is held against each of
/// what they print.
fn printed(sandbox: &Sandbox, schema: Document, commands: &[Words]) -> Value {
    let mut json_schema = (!WITHOUT_SCHEMA.contains(&schema)).then(|| JsonSchema::read(schema));
    let documents = commands.iter().map(|command| {
        // The doctor may well find something here, and one of the launches is wrong: the exit code
        // says nothing.
        let printed = sandbox.apex(command).output().unwrap().stdout;
        let printed = if command.contains(&"--html") { document_of_page(sandbox) } else { printed };
        let printed: Value =
            serde_json::from_slice(&printed).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert_eq!(printed["schema"], schema.to_string());
        if let Some(json_schema) = &mut json_schema {
            json_schema.meet(&printed);
        }
        merged(printed)
    });
    let printed = documents.reduce(fill).expect("each schema has a command");
    if let Some(json_schema) = json_schema {
        json_schema.finish();
    }
    printed
}

/// The JSON Schema of a document, in `docs/schemas`.
struct JsonSchema {
    path: PathBuf,
    schema: Value,
    /// Where a document was not as the schema says.
    different: Vec<String>,
}

impl JsonSchema {
    fn read(document: Document) -> Self {
        let path = repository().join(format!("docs/schemas/{}.json", document.to_string().replace('/', "-")));
        let schema = match std::env::var_os("BLESS") {
            Some(_) => json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": document.to_string(),
                "description": document.meaning,
                "required": ["schema"],
                "properties": { "schema": { "const": document.to_string() } },
                "$defs": { "figure": {
                    "type": ["object", "null"],
                    "description": "a value, where it comes from, and how sure it is",
                    "properties": {
                        "value": { "type": "number" },
                        "provenance": { "enum": ["measured", "computed", "predicted"] },
                        "samples": { "type": ["number", "null"] },
                        "standard_error": { "type": ["number", "null"] },
                        "low": { "type": ["number", "null"] },
                        "high": { "type": ["number", "null"] },
                    },
                } },
            }),
            None => serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap(),
        };
        Self { path, schema, different: Vec::new() }
    }

    /// Holds the schema against a document; `BLESS=1` widens it instead.
    fn meet(&mut self, printed: &Value) {
        match std::env::var_os("BLESS") {
            Some(_) => widen(&mut self.schema, printed),
            None => conform("", &self.schema, printed, &mut self.different),
        }
    }

    fn finish(mut self) {
        let path = self.path.display();
        assert!(self.different.is_empty(), "{path} is out of date; BLESS=1 renews it: {:#?}", self.different);
        if std::env::var_os("BLESS").is_some() {
            allow_the_unknown(&mut self.schema);
            let text = serde_json::to_string(&self.schema).unwrap() + "\n";
            std::fs::write(self.path, text).unwrap();
        }
    }
}

/// The type of a value in JSON Schema's words.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Has a schema allow a value: its type or none, its members, its entries.
fn widen(schema: &mut Value, value: &Value) {
    if schema.get("const").is_some() || schema.get("$ref").is_some() {
        return;
    }
    if value.get("provenance").is_some() {
        *schema = json!({ "$ref": "#/$defs/figure" });
        return;
    }
    let mut types: Vec<Value> = schema["type"].as_array().cloned().unwrap_or_default();
    types.extend([type_of(value).into(), "null".into()]);
    types.sort_by_key(|name| name.as_str().map(str::to_owned));
    types.dedup();
    // Of what is null everywhere, nothing is known.
    if types.len() > 1 {
        schema["type"] = types.into();
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                widen(&mut schema["properties"][name], value);
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                widen(&mut schema["items"], entry);
            }
        }
        _ => {}
    }
}

/// Has a schema allow anything where no value was seen.
fn allow_the_unknown(schema: &mut Value) {
    if schema.is_null() {
        *schema = true.into();
    }
    if let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        members.values_mut().for_each(allow_the_unknown);
    }
    schema.get_mut("items").into_iter().for_each(allow_the_unknown);
}

/// Notes where a value is not as the schema says. Members that it does not know are allowed.
fn conform(place: &str, schema: &Value, value: &Value, different: &mut Vec<String>) {
    if schema.get("const").is_some_and(|only| only != value) {
        different.push(format!("{place} is {value}"));
    }
    if schema.get("$ref").is_some() && !value.is_null() && value.get("provenance").is_none() {
        different.push(format!("{place} is no figure"));
    }
    if let Some(types) = schema["type"].as_array()
        && !types.iter().any(|name| name == type_of(value))
    {
        different.push(format!("{place} is {}", type_of(value)));
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                conform(&format!("{place}.{name}"), &schema["properties"][name], value, different);
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                conform(&format!("{place}[]"), &schema["items"], entry, different);
            }
        }
        _ => {}
    }
}

/// The document in the page that a command has written. Its call paths are as deep as the stacks
/// that were read: their nodes stand beside each other here.
fn document_of_page(sandbox: &Sandbox) -> Vec<u8> {
    let page = std::fs::read_to_string(sandbox.path("page.html")).unwrap();
    let (_, rest) = page.split_once("<script id=\"apex-document\" type=\"application/json\">").unwrap();
    let mut document: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let children = |node: &mut Value| match node.as_object_mut().and_then(|node| node.remove("children")) {
        Some(Value::Array(children)) => children,
        _ => Vec::new(),
    };
    for root in ["/places/root", "/places/idle/root"] {
        let Some(root) = document.pointer_mut(root) else { continue };
        let mut open = children(root);
        let mut nodes = Vec::new();
        while let Some(mut node) = open.pop() {
            open.extend(children(&mut node));
            nodes.push(node);
        }
        root["children"] = nodes.into();
    }
    document.to_string().into_bytes()
}

#[test]
fn samples_have_the_shape_of_what_is_printed() {
    let sandbox = Sandbox::new();
    let mut live = prepare(&sandbox);
    let documents = DOCUMENTS
        .map(|(schema, commands, elsewhere)| (schema, printed(&sandbox, schema, commands), elsewhere));
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(live.0.wait().unwrap().success());
    let committed = COMMITTED.map(|(schema, file)| {
        let text = test_manifest::content(file);
        (schema, merged(serde_json::from_slice(&text).unwrap()), &[][..])
    });

    let bless = std::env::var_os("BLESS").is_some();
    let mut text = std::fs::read_to_string(page()).unwrap();
    let mut different = Vec::new();
    for (schema, printed, elsewhere) in documents.into_iter().chain(committed) {
        let (from, to) = sample_place(&text, schema);
        if bless {
            let sample = pretty(&sample(printed.clone(), elsewhere), 0);
            text.replace_range(from..to, &format!("{}\n", without_places(&sample, &sandbox)));
        }
        let (from, to) = if bless { sample_place(&text, schema) } else { (from, to) };
        let sample: Value =
            serde_json::from_str(&text[from..to]).unwrap_or_else(|error| panic!("{schema}: {error}"));
        compare(&schema.to_string(), &sample, &printed, &mut different);
    }
    if bless {
        std::fs::write(page(), text).unwrap();
    }
    assert!(different.is_empty(), "docs/json.md is out of date; BLESS=1 renews it: {different:#?}");
}

#[test]
fn every_document_is_listed_in_the_page() {
    let text = std::fs::read_to_string(page()).unwrap();
    let row = |document: &Document| format!("| `{document}` | {} |\n", document.meaning);
    let table: String = documents::ALL.iter().map(row).collect();
    assert!(text.contains(&table), "docs/json.md does not have the table\n{table}");
}

/// Schemas in a text, such as `apex.report/4`.
fn schemas(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-' || c == '.';
    let names = text.match_indices("apex.").map(|(at, _)| &text[at..]);
    names.filter_map(move |text| {
        let name = text.find(|c| !is_name(c))?;
        let digits = text[name..].strip_prefix('/')?;
        let version = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        (version > 0).then(|| &text[..name + 1 + version])
    })
}

#[test]
fn schemas_are_stated_once() {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let wings = inside(&repository().join("crates"));
    let crates = wings.iter().flat_map(|wing| inside(wing)).chain([repository().join("crates/cli")]);
    let mut folders: Vec<PathBuf> = crates
        .filter(|folder| !folder.ends_with("conventions"))
        .map(|folder| folder.join("src"))
        .filter(|folder| folder.is_dir())
        .collect();
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let product = text.split("#[cfg(test)]").next().unwrap();
                let found: Vec<&str> = schemas(product).collect();
                assert!(found.is_empty(), "{}: {found:?}: use apex_conventions::documents", path.display());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 500, "{looked_at} files");
    assert_eq!(schemas("`apex.report/4`, apex.run/x").collect::<Vec<_>>(), ["apex.report/4"]);
}

/// A text without the folders of this machine.
fn without_places(text: &str, sandbox: &Sandbox) -> String {
    let built = Path::new(APEX).parent().expect("the command lies in a folder").to_str().unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_str().unwrap();
    text.replace(APEX, "apex")
        .replace(built, "/home/me/apex/target/debug")
        .replace(repository, "/home/me/apex")
        .replace(sandbox.path("").to_str().unwrap(), "/home/me/")
}

/// Where the sample of a schema stands: in the first JSON block below its heading.
fn sample_place(text: &str, schema: Document) -> (usize, usize) {
    const OPEN: &str = "```json\n";
    let heading = text.find(&format!("## `{schema}`")).unwrap_or_else(|| panic!("no heading for {schema}"));
    let from = heading + text[heading..].find(OPEN).expect("a sample") + OPEN.len();
    (from, from + text[from..].find("```").expect("the sample's end"))
}

/// Returns the page's form of a printed document.
fn sample(mut printed: Value, elsewhere: &[&str]) -> Value {
    for member in elsewhere {
        let place = printed.pointer_mut(&format!("/{member}"));
        *place.unwrap_or_else(|| panic!("no {member} is printed")) = ELSEWHERE.into();
    }
    if printed["run"].is_object() {
        // Of no interest to a reader, and different on every machine.
        printed["run"]["cwd"] = "/home/me".into();
        without_machine(&mut printed["run"]["host"]);
    }
    if printed["machine"]["recorder"].is_object() {
        printed["session"]["folder"] = "/home/me".into();
        without_machine(&mut printed["machine"]["host"]);
    }
    shortened(printed)
}

fn without_machine(host: &mut Value) {
    for (member, value) in [("name", "machine"), ("cpu", "its processor"), ("kernel", "its kernel's release")]
    {
        host[member] = value.into();
    }
}

/// Longest list of plain values that is shown whole.
const WHOLE: usize = 4;
/// Longest line of a sample.
const WIDTH: usize = 110;

/// Lists cut, digits cut to those that mean something.
fn shortened(value: Value) -> Value {
    match value {
        Value::Array(entries) => entries.into_iter().take(WHOLE).map(shortened).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, shortened(value))).collect::<Map<_, _>>().into()
        }
        Value::Number(number) if number.is_f64() => {
            let value = number.as_f64().unwrap_or(0.0);
            let digits = if value.abs() < 10.0 { 1e4 } else { 10.0 };
            ((value * digits).round() / digits).into()
        }
        other => other,
    }
}

/// Returns the number of values in it.
fn content(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Array(entries) => entries.iter().map(content).max().unwrap_or(0),
        Value::Object(members) => members.values().map(content).sum(),
        _ => 1,
    }
}

/// JSON with what fits a line on one line.
fn pretty(value: &Value, indent: usize) -> String {
    let flat = value.to_string();
    let inner = " ".repeat(indent + 2);
    let block = |open: char, lines: Vec<String>, close: char| {
        format!("{open}\n{inner}{}\n{}{close}", lines.join(&format!(",\n{inner}")), " ".repeat(indent))
    };
    match value {
        _ if flat.len() + indent <= WIDTH => flat,
        Value::Array(entries) => {
            block('[', entries.iter().map(|entry| pretty(entry, indent + 2)).collect(), ']')
        }
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("\"{name}\": {}", pretty(value, indent + 2));
            block('{', members.iter().map(member).collect(), '}')
        }
        _ => flat,
    }
}

/// Lists of objects become one entry that has everything that any of theirs has: the one that says
/// most, filled from the rest.
fn merged(value: Value) -> Value {
    match value {
        Value::Array(mut entries) if entries.iter().any(Value::is_object) => {
            entries.sort_by_key(|entry| std::cmp::Reverse(content(entry)));
            Value::Array(entries.into_iter().map(merged).reduce(fill).into_iter().collect())
        }
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, merged(value))).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// Whether a value says nothing of its shape.
fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// `a`, with what it lacks taken from `b`.
fn fill(a: Value, b: Value) -> Value {
    match (a, b) {
        (a, b) if empty(&a) => {
            if empty(&b) {
                a
            } else {
                b
            }
        }
        (Value::Object(mut a), Value::Object(b)) if !a.contains_key("provenance") => {
            for (name, value) in b {
                let own = a.remove(&name).unwrap_or(Value::Null);
                a.insert(name, fill(own, value));
            }
            a.into()
        }
        (Value::Array(a), Value::Array(b)) if a.iter().any(Value::is_object) => {
            Value::Array(a.into_iter().chain(b).reduce(fill).into_iter().collect())
        }
        (a, _) => a,
    }
}

/// Notes where two values have different members or types, and where one of them has nothing to
/// compare.
fn compare(place: &str, sample: &Value, printed: &Value, different: &mut Vec<String>) {
    if *sample == ELSEWHERE {
        return;
    }
    let unfilled = UNFILLED.iter().any(|(member, _)| *member == place);
    match (sample, printed) {
        (a, b) if empty(a) && empty(b) => {
            if !unfilled {
                different.push(format!("{place} is {a} everywhere: a command has to fill it"));
            }
        }
        _ if unfilled => {
            different.push(format!("{place} is filled, and UNFILLED says that nothing fills it"))
        }
        (Value::Object(a), Value::Object(b)) => {
            let figure = a.contains_key("provenance");
            let map = place.ends_with(MAP);
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                let place = format!("{place}.{name}");
                match (a.get(name), b.get(name)) {
                    (
                        None | Some(Value::Null | Value::Number(_)),
                        None | Some(Value::Null | Value::Number(_)),
                    ) if figure && OF_FIGURES.contains(&&**name) => {}
                    (Some(a), Some(b)) => compare(&place, a, b, different),
                    _ if map => {}
                    (Some(_), None) => different.push(format!("{place} is in the sample only")),
                    _ => different.push(format!("{place} is not in the sample")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if !a.is_empty() && !b.is_empty() => {
            for (a, b) in a.iter().zip(b) {
                compare(&format!("{place}[]"), a, b, different);
            }
        }
        (a, b) if !empty(a) && std::mem::discriminant(a) == std::mem::discriminant(b) => {}
        (a, b) => different.push(format!("{place}: {a} in the sample, {b} printed")),
    }
}
