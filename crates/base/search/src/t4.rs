//! T4: the results of tuners as JSON, which Kernel Tuner and others read and write.
//!
//! Written files follow the public schema, version 1.0.0, with times in milliseconds. The key is a
//! member `apex` of the metadata. Files of other tuners are read as well: a result counts if its
//! `invalidity` is `correct` and its objective is a number, whatever `correctness` says, because
//! Kernel Tuner 1.5 writes 1 for each configuration that does not compile. Units are those of the
//! metadata; those of measurements are not, for the same reason.

use crate::results::{Invalid, Key, Measured, Outcome};
use crate::space::{Parameter, Space, SpaceError};
use crate::{Named, Value};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The version of the schema that is written.
const VERSION: &str = "1.0.0";

/// Why a file is no T4 file.
#[derive(Debug, thiserror::Error)]
pub enum T4Error {
    /// It is no JSON of this form.
    #[error("it is no T4 file of results: {0}")]
    Json(#[from] serde_json::Error),
    /// A result is not as it should be.
    #[error("result {number}: {what}")]
    Result {
        /// Its number in the file, from 1.
        number: usize,
        /// The fault, in words.
        what: String,
    },
    /// The results have no configurations of one space.
    #[error("its configurations make no space: {0}")]
    Space(#[from] SpaceError),
}

/// The results of a file.
#[derive(Debug)]
pub struct Read {
    /// Their key, if this library wrote the file.
    pub key: Option<Key>,
    /// The results.
    pub results: Vec<Measured>,
}

#[derive(Serialize, Deserialize)]
struct File<'a> {
    #[serde(default)]
    schema_version: Cow<'a, str>,
    #[serde(default)]
    metadata: Metadata,
    results: Vec<Entry>,
}

#[derive(Default, Serialize, Deserialize)]
struct Metadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeunit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    apex: Option<Key>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    configuration: Named<Value>,
    #[serde(default)]
    times: Times,
    invalidity: String,
    #[serde(default)]
    correctness: f64,
    #[serde(default)]
    measurements: Vec<Measurement>,
    #[serde(default)]
    objectives: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Times {
    #[serde(default)]
    runtimes: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct Measurement {
    name: String,
    value: serde_json::Value,
    #[serde(default)]
    unit: String,
}

/// The text of a file with these results.
pub fn write(key: &Key, results: &[Measured]) -> String {
    let timeunit = Some("milliseconds".to_owned());
    let metadata = Metadata { timeunit, apex: Some(key.clone()) };
    let results = results.iter().map(entry).collect();
    let file = File { schema_version: VERSION.into(), metadata, results };
    let mut text = serde_json::to_string(&file).expect("names are texts, and times are finite");
    text.push('\n');
    text
}

fn entry(result: &Measured) -> Entry {
    let (runtimes, invalidity, measurement) = match &result.outcome {
        Outcome::Times(times) => (
            times.clone(),
            "correct",
            Measurement { name: "time".into(), value: result.outcome.cost().into(), unit: "ms".into() },
        ),
        Outcome::Failed(invalid, said) => (
            Vec::new(),
            invalid.name(),
            Measurement { name: "error".into(), value: said.clone().into(), unit: String::new() },
        ),
    };
    Entry {
        timestamp: result.timestamp.clone(),
        configuration: Named(result.configuration.clone()),
        times: Times { runtimes },
        invalidity: invalidity.to_owned(),
        correctness: f64::from(u8::from(invalidity == "correct")),
        measurements: vec![measurement],
        objectives: vec!["time".to_owned()],
    }
}

/// Reads the text of a file.
///
/// # Errors
/// [`T4Error`], which names the result.
pub fn read(text: &str) -> Result<Read, T4Error> {
    let file: File = serde_json::from_str(text)?;
    let scale = scale(file.metadata.timeunit.as_deref().unwrap_or_default());
    let own = file.metadata.apex.is_some();
    let mut results = Vec::with_capacity(file.results.len());
    for (at, entry) in file.results.into_iter().enumerate() {
        let outcome = outcome(&entry, scale, own).map_err(|what| T4Error::Result { number: at + 1, what })?;
        let Entry { configuration: Named(configuration), timestamp, .. } = entry;
        results.push(Measured { configuration, outcome, timestamp });
    }
    Ok(Read { key: file.metadata.apex, results })
}

/// Milliseconds of a unit, as files name it; some write `miliseconds`.
fn scale(unit: &str) -> f64 {
    match unit {
        "nanoseconds" => 1e-6,
        "microseconds" => 1e-3,
        "seconds" => 1e3,
        _ => 1.0,
    }
}

fn outcome(entry: &Entry, scale: f64, own: bool) -> Result<Outcome, String> {
    if entry.invalidity != "correct" {
        let found = Invalid::NAMES.into_iter().find(|(name, _)| *name == entry.invalidity);
        let Some((_, invalid)) = found else {
            return Err(format!("unknown invalidity {:?}", entry.invalidity));
        };
        let said = entry.measurements.first().and_then(|error| error.value.as_str()).unwrap_or_default();
        return Ok(Outcome::Failed(invalid, said.to_owned()));
    }
    let objective = entry.objectives.first().map_or("time", String::as_str);
    let measured = entry.measurements.iter().find(|measurement| measurement.name == objective);
    let times = match measured.and_then(|measured| measured.value.as_f64()) {
        Some(value) if !own => vec![value * scale],
        _ => entry.times.runtimes.iter().map(|time| time * scale).collect(),
    };
    match times.iter().all(|time| time.is_finite() && *time > 0.0) && !times.is_empty() {
        true => Ok(Outcome::Times(times)),
        false => Err(format!("it is correct, and its {objective:?} is no positive number")),
    }
}

/// The space of results alone: the values that occur, in ascending order, and the configurations
/// that were measured.
///
/// # Errors
/// If they have no configuration, or different parameters.
pub fn space(results: &[Measured]) -> Result<Space, T4Error> {
    let first = results.first().map_or(&[][..], |result| &result.configuration[..]);
    let mut parameters: Vec<Parameter> = Vec::new();
    for (at, (name, _)) in first.iter().enumerate() {
        let values = values(results, at, name)?;
        parameters.push(Parameter { name: name.clone(), values });
    }
    let place = |at: usize, value: &Value| {
        parameters[at].values.iter().position(|of| of == value).expect("a value that occurs")
    };
    let places = |result: &Measured| {
        result.configuration.iter().enumerate().map(|(at, (_, value))| place(at, value)).collect()
    };
    let all: Vec<Vec<usize>> = results.iter().map(places).collect();
    Ok(Space::of_configurations(parameters, &all)?)
}

/// The values of the parameter at this place that occur.
fn values(results: &[Measured], at: usize, name: &str) -> Result<Vec<Value>, T4Error> {
    let mut values: Vec<Value> = Vec::new();
    for (number, result) in results.iter().enumerate() {
        let value = match result.configuration.get(at) {
            Some((of, value))
                if of == name && result.configuration.len() == results[0].configuration.len() =>
            {
                value
            }
            _ => {
                let what = "it has other parameters than the first result".to_owned();
                return Err(T4Error::Result { number: number + 1, what });
            }
        };
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    values.sort_by(|a, b| a.order(b).unwrap_or(std::cmp::Ordering::Equal));
    Ok(values)
}
