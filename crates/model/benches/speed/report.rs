//! What was measured, as a table and as JSON.

use apex_model::Precision;
use std::fmt::{self, Write as _};

/// One way to predict one network.
pub struct Row {
    what: String,
    precision: Precision,
    /// What a warm prediction may take, in microseconds.
    goal: Option<f64>,
    /// Mean and greatest difference from double precision.
    differences: Option<(f64, f64)>,
    /// Seconds.
    warm: Vec<f64>,
    cold: Vec<f64>,
}

impl Row {
    pub fn new(
        what: String,
        precision: Precision,
        goal: Option<f64>,
        differences: Option<(f64, f64)>,
    ) -> Row {
        Row { what, precision, goal, differences, warm: Vec::new(), cold: Vec::new() }
    }

    pub fn add(&mut self, warm: f64, cold: f64) {
        self.warm.push(warm);
        self.cold.push(cold);
    }
}

/// One network.
struct Part {
    name: &'static str,
    shape: String,
    parameters: usize,
    rows: Vec<Row>,
}

/// All that was measured.
pub struct Report {
    cpu: String,
    /// The peer's version, if it is installed.
    peer: Option<String>,
    parts: Vec<Part>,
}

impl Report {
    pub fn new(peer: Option<String>) -> Report {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Report { cpu: line.map_or("unknown", |line| line.1).to_owned(), peer, parts: Vec::new() }
    }

    pub fn begin(&mut self, name: &'static str, shape: String, parameters: usize) {
        self.parts.push(Part { name, shape, parameters, rows: Vec::new() });
    }

    /// Adds to the network that was begun last.
    pub fn add(&mut self, row: Row) {
        self.parts.last_mut().expect("a network was begun").rows.push(row);
    }

    /// Every sample.
    pub fn json(&self) -> String {
        let mut json = format!("{{\n  \"cpu\": \"{}\",\n", self.cpu);
        let peer = self.peer.as_ref().map_or("null".to_owned(), |version| format!("\"{version}\""));
        let _ = writeln!(json, "  \"onnxruntime\": {peer},\n  \"networks\": [");
        for (index, part) in self.parts.iter().enumerate() {
            let Part { name, shape, parameters, rows } = part;
            let _ = writeln!(
                json,
                "    {{\"name\": \"{name}\", \"shape\": \"{shape}\", \"parameters\": {parameters}, \"series\": ["
            );
            for (index, row) in rows.iter().enumerate() {
                let comma = if index + 1 < rows.len() { "," } else { "" };
                let _ = writeln!(
                    json,
                    "      {{\"what\": \"{}\", \"precision\": \"{}\", \"warm_seconds\": {}, \"cold_seconds\": {}}}{comma}",
                    row.what,
                    name_of(row.precision),
                    list(&row.warm),
                    list(&row.cold)
                );
            }
            let _ = writeln!(json, "    ]}}{}", if index + 1 < self.parts.len() { "," } else { "" });
        }
        json + "  ]\n}\n"
    }
}

fn list(seconds: &[f64]) -> String {
    let numbers: Vec<String> = seconds.iter().map(|seconds| format!("{seconds:.10}")).collect();
    format!("[{}]", numbers.join(", "))
}

fn name_of(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Int8 => "int8",
    }
}

/// The value below which `fraction` of the samples lie.
fn quantile(samples: &[f64], fraction: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * fraction).round() as usize]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.peer.as_ref().map_or("not installed".to_owned(), |version| version.clone());
        writeln!(f, "{}, one thread, ONNX Runtime {peer}.", self.cpu)?;
        writeln!(f, "Microseconds for one prediction: medians (1st to 9th of 10).\n")?;
        for part in &self.parts {
            writeln!(f, "**{}**, {}, {} parameters:\n", part.name, part.shape, part.parameters)?;
            writeln!(f, "| what | weights | warm, µs | cold, µs | goal, µs | error, mean (greatest) |")?;
            writeln!(f, "| --- | --- | ---: | ---: | ---: | ---: |")?;
            for row in &part.rows {
                let time = |samples: &[f64]| {
                    let at = |fraction| quantile(samples, fraction) * 1e6;
                    let digits = if at(0.5) < 1.0 { 3 } else { 1 };
                    format!("{:.digits$} ({:.digits$} to {:.digits$})", at(0.5), at(0.1), at(0.9))
                };
                let goal = row.goal.map_or("-".to_owned(), |goal| goal.to_string());
                let error = row
                    .differences
                    .map_or("-".to_owned(), |(mean, greatest)| format!("{mean:.1e} ({greatest:.1e})"));
                let (warm, cold, precision) = (time(&row.warm), time(&row.cold), name_of(row.precision));
                writeln!(f, "| {} | {precision} | {warm} | {cold} | {goal} | {error} |", row.what)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
