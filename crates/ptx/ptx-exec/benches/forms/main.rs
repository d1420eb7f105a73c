//! The cost of each instruction on the CPU device, beside that of the plain instruction of its
//! width.
//!
//! `cargo bench -p ptx-exec --bench forms` times every form of the instruction table whose operands
//! are registers, in each of its instances, and the memory accesses of [`memory`]; `-- TEXT` only
//! those whose mnemonic contains `TEXT`, and `-- --json FILE` (relative to the repository) also
//! writes what was measured, of which `docs/results/cpu-device-forms.md` is made.
//!
//! A kernel is the instruction many times over, on registers that hold random values of its types.
//! Its cost is the least processor time of several runs, for a warp that executes it once: other
//! programs can only add to it. All are measured in several passes, because programs beside it are
//! busy for longer than a form takes. An instruction may cost [`BOUND`] times what the plain one of
//! its width does.

#[allow(dead_code, clippy::result_large_err, reason = "made for tests, which use more of it")]
#[path = "../../tests/exec/device.rs"]
mod device;
mod kernel;
#[path = "../machine.rs"]
mod machine;
mod memory;

use std::collections::HashMap;

use kernel::Bench;
use machine::machine;
use ptx::forms::{self, Form, Instance};
use serde_json::json;

/// The maximum cost of an instruction, as a multiple of that of its plain form.
const BOUND: f64 = 8.0;

/// The number of measurements; the least of an instruction counts.
const PASSES: usize = 6;

/// Chapters of the table whose instructions compute on registers alone.
const CHAPTERS: [&str; 8] = [
    "integer arithmetic",
    "floating point",
    "half precision",
    "comparison and selection",
    "logic and shift",
    "conversion",
    "data movement",
    "video",
];

/// The measurements of a form or of an access.
struct Row {
    /// The line of the table, or what is accessed.
    form: String,
    /// The instance that costs most.
    worst: String,
    instances: usize,
    nanoseconds: f64,
    /// The plain instruction, and what it costs.
    plain: String,
    plain_nanoseconds: f64,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.nanoseconds / self.plain_nanoseconds
    }
}

fn main() {
    let (mut json, mut filter) = (None, String::new());
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--json", Some(path)) => json = Some(path),
            (text, None) if !text.starts_with('-') => filter = text.to_owned(),
            _ => {
                eprintln!("usage: cargo bench -p ptx-exec --bench forms [-- [--json FILE] [TEXT]]");
                std::process::exit(2);
            }
        }
    }
    let bench = Bench::default();
    let mut rows = registers(&bench, &filter);
    rows.extend(memory::measure(&bench, &filter));
    rows.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    println!("| instruction | instances | dearest | ns per warp | plain | ns per warp | ratio |");
    println!("| --- | ---: | --- | ---: | --- | ---: | ---: |");
    for row in &rows {
        println!(
            "| `{}` | {} | `{}` | {:.1} | `{}` | {:.1} | {:.1} |",
            row.form.replace('|', "\\|"),
            row.instances,
            row.worst,
            row.nanoseconds,
            row.plain,
            row.plain_nanoseconds,
            row.ratio()
        );
    }
    let beyond = rows.iter().filter(|row| row.ratio() > BOUND).count();
    println!("\n{} rows, {beyond} of them above {BOUND} times the plain form", rows.len());
    // `cargo bench` runs in the folder of the package.
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    if let Some(path) = json
        && let Err(error) = std::fs::write(repository.join(&path), as_json(&rows))
    {
        eprintln!("cannot write {path}: {error}");
        std::process::exit(1);
    }
}

/// An instance that was measured.
struct Measured {
    form: &'static Form,
    instance: Instance,
    width: u64,
    nanoseconds: f64,
}

/// The forms of the table that compute on registers.
///
/// The plain instruction of an instance is the addition of its width, or the cheapest instruction
/// of its opcode and width where that costs more: a division is held against the plainest division.
fn registers(bench: &Bench, filter: &str) -> Vec<Row> {
    let mut measured: Vec<Measured> = Vec::new();
    for form in forms::all().iter().filter(|form| CHAPTERS.contains(&form.chapter)) {
        for instance in form.instances() {
            if let Some(nanoseconds) = bench.cost(&instance) {
                let width = if kernel::width(&instance) >= 8 { 8 } else { 4 };
                measured.push(Measured { form, instance, width, nanoseconds });
            }
        }
    }
    for _ in 1..PASSES {
        for found in &mut measured {
            let again = bench.cost(&found.instance).unwrap_or(f64::INFINITY);
            found.nanoseconds = found.nanoseconds.min(again);
        }
    }
    let cheapest = |wanted: &dyn Fn(&&Measured) -> bool| {
        measured.iter().filter(wanted).min_by(|a, b| a.nanoseconds.total_cmp(&b.nanoseconds))
    };
    let addition = |width: u64| {
        let name = if width == 8 { "add.f64" } else { "add.f32" };
        cheapest(&|instance| instance.instance.mnemonic == name).expect("an addition is executed")
    };
    let additions = [addition(4), addition(8)];
    let mut plain: HashMap<(&str, u64), &Measured> = HashMap::new();
    for instance in &measured {
        let key = (instance.form.opcode, instance.width);
        plain.entry(key).or_insert_with(|| {
            let own = cheapest(&|other| (other.form.opcode, other.width) == key).unwrap_or(instance);
            let addition = additions[usize::from(instance.width == 8)];
            if own.nanoseconds > addition.nanoseconds { own } else { addition }
        });
    }
    let mut rows: Vec<Row> = Vec::new();
    for instance in measured.iter().filter(|instance| instance.instance.mnemonic.contains(filter)) {
        let plain = plain[&(instance.form.opcode, instance.width)];
        let text = instance.form.text.split(" | ").next().unwrap_or("");
        let row = Row {
            form: text.split_whitespace().collect::<Vec<_>>().join(" "),
            worst: instance.instance.mnemonic.clone(),
            instances: 1,
            nanoseconds: instance.nanoseconds,
            plain: plain.instance.mnemonic.clone(),
            plain_nanoseconds: plain.nanoseconds,
        };
        match rows.last_mut().filter(|last| last.form == row.form) {
            None => rows.push(row),
            Some(last) => {
                let instances = last.instances + 1;
                if row.ratio() > last.ratio() {
                    *last = row;
                }
                last.instances = instances;
            }
        }
    }
    rows
}

/// The measured rows, with the machine.
fn as_json(rows: &[Row]) -> String {
    let row = |row: &Row| {
        json!({
            "form": row.form,
            "instances": row.instances,
            "dearest": row.worst,
            "ns": row.nanoseconds,
            "plain": row.plain,
            "plain_ns": row.plain_nanoseconds,
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    format!("{}\n", json!({ "machine": machine(), "bound": BOUND, "rows": rows }))
}
