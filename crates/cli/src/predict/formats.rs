//! Writes answers as CSV and as JSON: one document, or one line for each answer.

use apex_conventions::documents::{self, Envelope};
use apex_predict::Device;
use apex_predict_session::answer::Answer;
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};

/// The document of `--json`.
#[derive(Serialize)]
pub struct Document<'a> {
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
        Document { device: described, models: models.map(|folder| folder.display().to_string()), predictions }
    }
}

/// Writes an answer as a line of JSON Lines.
///
/// # Errors
/// Those of `out`.
pub fn json_line(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    apex_export::json::compact(&mut *out, &Envelope::of(documents::PREDICTION, answer))?;
    out.write_all(b"\n")
}

/// The function that makes a cell; `None` is null.
type Cell = fn(&Answer) -> Option<String>;

/// Columns that are added to those of the input.
const COLUMNS: [(&str, Cell); 23] = [
    ("predicted_duration_us", |of| number(of.prediction.as_ref()?.duration_ns?.value * 1e-3)),
    ("predicted_duration_low_us", |of| number(of.prediction.as_ref()?.duration_ns?.bounds().0 * 1e-3)),
    ("predicted_duration_high_us", |of| number(of.prediction.as_ref()?.duration_ns?.bounds().1 * 1e-3)),
    ("predicted_achieved_occupancy", |of| number(of.prediction.as_ref()?.achieved_occupancy.value)),
    ("predicted_achieved_occupancy_low", |of| number(of.prediction.as_ref()?.achieved_occupancy.bounds().0)),
    ("predicted_achieved_occupancy_high", |of| number(of.prediction.as_ref()?.achieved_occupancy.bounds().1)),
    ("predicted_sm_utilisation", |of| number(of.prediction.as_ref()?.sm_utilisation.value)),
    ("predicted_sm_utilisation_low", |of| number(of.prediction.as_ref()?.sm_utilisation.bounds().0)),
    ("predicted_sm_utilisation_high", |of| number(of.prediction.as_ref()?.sm_utilisation.bounds().1)),
    ("predicted_warp_efficiency", |of| number(of.prediction.as_ref()?.warp_efficiency.value)),
    ("predicted_warp_efficiency_low", |of| number(of.prediction.as_ref()?.warp_efficiency.bounds().0)),
    ("predicted_warp_efficiency_high", |of| number(of.prediction.as_ref()?.warp_efficiency.bounds().1)),
    ("prediction_basis", |of| Some(of.prediction.as_ref()?.basis.clone())),
    ("unfamiliar", |of| Some(of.prediction.as_ref()?.unfamiliar.join("+")).filter(|names| !names.is_empty())),
    ("measured_duration_us", |of| number(of.prediction.as_ref()?.measured_duration_ns?.value / 1e3)),
    ("measured_over_predicted", |of| number(of.prediction.as_ref()?.measured_over_predicted?)),
    ("computed_block_efficiency", |of| number(of.computed.as_ref()?.block_efficiency)),
    ("computed_theoretical_occupancy", |of| number(of.computed.as_ref()?.theoretical_occupancy?)),
    ("computed_limiters", |of| Some(of.computed.as_ref()?.limiters.as_ref()?.join("+"))),
    ("computed_waves", |of| number(of.computed.as_ref()?.waves?)),
    ("computed_tail_effect", |of| number(of.computed.as_ref()?.tail_effect?)),
    ("what_if", |of| Some(of.what_if.to_string())),
    ("error", |of| of.error.clone()),
];

/// `None` for what is no number.
fn number(value: f64) -> Option<String> {
    Some(value.to_string()).filter(|_| value.is_finite())
}

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
        let is_added = |name: &str| COLUMNS.iter().any(|(column, _)| *column == name);
        let columns: Vec<String> = input.filter(|name| !is_added(name)).cloned().collect();
        let names = columns.iter().map(String::as_str).chain(COLUMNS.map(|(name, _)| name));
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
        line(out, given.chain(COLUMNS.map(|(_, cell)| cell(answer))))
    }
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
