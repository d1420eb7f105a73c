//! The measurements as JSON with every sample, from which `scripts/prediction_speed.py` makes the
//! tables of the page, and the medians as text.

use apex_model::Precision;
use serde_json::json;
use std::fmt;

/// One way to predict one network.
pub struct Row {
    what: String,
    precision: Precision,
    /// The goal for the time of a warm prediction, in microseconds.
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
        let row = |row: &Row| {
            let (mean, greatest) = row.differences.unzip();
            json!({
                "what": row.what,
                "precision": name_of(row.precision),
                "goal_us": row.goal,
                "error_mean": mean,
                "error_greatest": greatest,
                "warm_seconds": row.warm,
                "cold_seconds": row.cold,
            })
        };
        let network = |part: &Part| {
            json!({
                "name": part.name,
                "shape": part.shape,
                "parameters": part.parameters,
                "series": part.rows.iter().map(row).collect::<Vec<_>>(),
            })
        };
        let networks: Vec<_> = self.parts.iter().map(network).collect();
        let report = json!({ "cpu": self.cpu, "onnxruntime": self.peer, "networks": networks });
        format!("{report}\n")
    }
}

fn name_of(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Int8 => "int8",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            writeln!(f, "{}, {}, {} parameters:", part.name, part.shape, part.parameters)?;
            for row in &part.rows {
                let (warm, cold) = (median(&row.warm) * 1e6, median(&row.cold) * 1e6);
                let (what, precision) = (&row.what, name_of(row.precision));
                writeln!(f, "  {what:<26} {precision:<5} {warm:>9.3} µs warm {cold:>9.3} µs cold")?;
            }
        }
        Ok(())
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
