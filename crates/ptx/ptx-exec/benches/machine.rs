//! The machine and the time of a measurement.

use serde_json::{Value, json};

/// The CPU, its vectors, the cores that this process may use, how many processes wanted them in the
/// minute before, the day, and the command.
pub fn machine() -> Value {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("unknown CPU", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let output = std::process::Command::new("date").args(["-u", "+%F"]).output();
    let date = output
        .map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let command =
        format!("cargo bench -p ptx-exec --bench {} -- {}", env!("CARGO_CRATE_NAME"), arguments.join(" "));
    let vectors: Vec<&str> = ["avx2", "fma", "avx512f"]
        .into_iter()
        .filter(|feature| info.split_whitespace().any(|word| word == *feature))
        .collect();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    json!({
        "cpu": name, "vectors": vectors, "cores": cores, "load": load, "date": date, "command": command
    })
}
