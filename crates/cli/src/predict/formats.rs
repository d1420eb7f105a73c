//! Writes answers as CSV and as JSON: one document, or one line for each answer.

use apex_predict::Device;
use apex_predict_session::answer::Answer;
use apex_profile::Figure;
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};

/// The version of the document.
const DOCUMENT: &str = "apex.predict/1";

/// The version of a line of JSON Lines, which has the members of an entry of the document.
const LINE: &str = "apex.prediction/1";

/// The document of `--json`.
#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    apex_version: &'static str,
    device: Described<'a>,
    /// The folder that the models come from; `None` for those that are part of the program.
    models: Option<String>,
    predictions: &'a [Answer],
}

/// The device that is predicted for.
#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    compute_capability: (u32, u32),
    sms: u32,
}

impl<'a> Document<'a> {
    /// A document of these answers.
    pub fn of(device: &'a Device, models: Option<&std::path::Path>, predictions: &'a [Answer]) -> Self {
        let described = Described {
            name: &device.name,
            compute_capability: device.limits.attributes.compute_capability,
            sms: device.limits.attributes.multiprocessors,
        };
        Document {
            schema: DOCUMENT,
            apex_version: env!("CARGO_PKG_VERSION"),
            device: described,
            models: models.map(|folder| folder.display().to_string()),
            predictions,
        }
    }
}

/// An answer as a line of JSON Lines.
#[derive(Serialize)]
struct JsonLine<'a> {
    schema: &'static str,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Writes an answer as a line of JSON Lines.
///
/// # Errors
/// Those of `out`.
pub fn json_line(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    apex_export::json::compact(&mut *out, &JsonLine { schema: LINE, answer })?;
    out.write_all(b"\n")
}

/// Columns that are added to those of the input.
const COLUMNS: [&str; 23] = [
    "predicted_duration_us",
    "predicted_duration_low_us",
    "predicted_duration_high_us",
    "predicted_achieved_occupancy",
    "predicted_achieved_occupancy_low",
    "predicted_achieved_occupancy_high",
    "predicted_sm_utilisation",
    "predicted_sm_utilisation_low",
    "predicted_sm_utilisation_high",
    "predicted_warp_efficiency",
    "predicted_warp_efficiency_low",
    "predicted_warp_efficiency_high",
    "prediction_basis",
    "unfamiliar",
    "measured_duration_us",
    "measured_over_predicted",
    "computed_block_efficiency",
    "computed_theoretical_occupancy",
    "computed_limiters",
    "computed_waves",
    "computed_tail_effect",
    "what_if",
    "error",
];

/// Answers as CSV, one at a time: the input's columns as they are, then [`COLUMNS`].
pub struct Csv {
    /// The columns of the input, without those that are written here.
    columns: Vec<String>,
}

impl Csv {
    /// Begins with the names of the columns.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new<'a>(out: &mut impl Write, input: impl Iterator<Item = &'a String>) -> io::Result<Self> {
        let columns: Vec<String> = input.filter(|name| !COLUMNS.contains(&name.as_str())).cloned().collect();
        let names = columns.iter().map(String::as_str).chain(COLUMNS);
        line(out, names.map(|name| Some(name.to_owned())))?;
        Ok(Self { columns })
    }

    /// Writes one answer.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn row(&self, out: &mut impl Write, answer: &Answer) -> io::Result<()> {
        let given = self.columns.iter().map(|column| {
            let (_, value) = answer.fields.iter().find(|(name, _)| name == column)?;
            match value {
                Value::Null => None,
                Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
                other => Some(other.to_string()),
            }
        });
        line(out, given.chain(cells(answer)))
    }
}

/// The cells of [`COLUMNS`].
fn cells(answer: &Answer) -> [Option<String>; COLUMNS.len()] {
    let Answer { prediction, computed, .. } = answer;
    let number = |value: f64| Some(value.to_string()).filter(|_| value.is_finite());
    let said = |of: fn(&apex_profile::Prediction) -> Option<Figure>, scale: f64| {
        let estimate = prediction.as_ref().and_then(of);
        let cell = |part: fn(&Figure) -> f64| estimate.as_ref().and_then(|it| number(part(it) * scale));
        [cell(|it| it.value), cell(|it| it.bounds().0), cell(|it| it.bounds().1)]
    };
    let [duration, low, high] = said(|said| said.duration_ns, 1e-3);
    let [occupancy, occupancy_low, occupancy_high] = said(|said| Some(said.achieved_occupancy), 1.0);
    let [utilisation, utilisation_low, utilisation_high] = said(|said| Some(said.sm_utilisation), 1.0);
    let [efficiency, efficiency_low, efficiency_high] = said(|said| Some(said.warp_efficiency), 1.0);
    let prediction = prediction.as_ref();
    let exactly = |of: fn(&apex_predict_session::answer::Computed) -> Option<f64>| {
        computed.as_ref().and_then(of).and_then(number)
    };
    [
        duration,
        low,
        high,
        occupancy,
        occupancy_low,
        occupancy_high,
        utilisation,
        utilisation_low,
        utilisation_high,
        efficiency,
        efficiency_low,
        efficiency_high,
        prediction.map(|said| said.basis.clone()),
        prediction.map(|said| said.unfamiliar.join("+")).filter(|names| !names.is_empty()),
        prediction.and_then(|said| number(said.measured_duration_ns?.value / 1e3)),
        prediction.and_then(|said| number(said.measured_over_predicted?)),
        exactly(|computed| Some(computed.block_efficiency)),
        exactly(|computed| computed.theoretical_occupancy),
        computed.as_ref().and_then(|computed| Some(computed.limiters.as_ref()?.join("+"))),
        exactly(|computed| computed.waves),
        exactly(|computed| computed.tail_effect),
        Some(answer.what_if.to_string()),
        answer.error.clone(),
    ]
}

/// A line of CSV; what is `None` is null.
fn line(out: &mut impl Write, cells: impl Iterator<Item = Option<String>>) -> io::Result<()> {
    let mut csv = apex_csv::Writer::new(out);
    for cell in cells {
        match cell {
            Some(text) => csv.untrusted(&text)?,
            None => csv.field(None)?,
        }
    }
    csv.end_record()
}
