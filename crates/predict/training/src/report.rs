//! The findings about models, for people (the model card) and programs.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Number of best and of worst families that a card names.
const NAMED: usize = 6;

/// A value with its 95% confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The value.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

/// Score of a method on one family, or on the launches for which one part of the device takes
/// longest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyScore {
    /// The family, or the part.
    pub family: String,
    /// Launches.
    pub cases: usize,
    /// Median of the errors, points or percent.
    pub median_error: f64,
    /// Median of the signed errors, where the score has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<f64>,
}

/// Score of a method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The method that predicts.
    pub method: String,
    /// The predicted quantity.
    pub quantity: String,
    /// The known facts.
    pub basis: String,
    /// Launches.
    pub cases: usize,
    /// Pearson's correlation of predicted and measured; of their logarithms for durations.
    pub correlation: Option<Range>,
    /// Median of the errors: points of fractions, percent of durations.
    pub median_error: Range,
    /// 90th percentile of the errors.
    pub large_error: f64,
    /// Median of the signed errors, of what is computed: positive if it is mostly too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<f64>,
    /// Fraction of the launches whose 90% prediction interval contains the measurement.
    pub coverage: Option<Range>,
    /// Each family, worst first.
    pub families: Vec<FamilyScore>,
    /// Scores of computed durations by the part of the device that takes longest, worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<FamilyScore>,
}

/// Scores of one kind of test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// The cases that were held out.
    pub held_out: String,
    /// Scores.
    pub scores: Vec<Score>,
}

/// A model that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSummary {
    /// Its name.
    pub name: String,
    /// Widths, features first and outputs last.
    pub widths: Vec<usize>,
    /// Weights and biases.
    pub parameters: usize,
    /// Launches, or pairs of launches, that it was trained on, each counted once for each basis.
    pub examples: usize,
    /// Mean change of its outputs, in points or percent, when it is run in 8 bits.
    pub quantising_error: Vec<f64>,
}

/// A device that launches were measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredDevice {
    /// Its name.
    pub name: String,
    /// The time of its measurement, UTC.
    pub measured: String,
    /// Launches.
    pub launches: usize,
}

/// The whole report: the content of the document `TRAIN` of `apex-conventions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The devices that the data was measured on.
    pub devices: Vec<MeasuredDevice>,
    /// Launches, on all of them.
    pub launches: usize,
    /// Families of kernels.
    pub families: usize,
    /// The seed of weights and splits.
    pub seed: u64,
    /// Models.
    pub models: Vec<ModelSummary>,
    /// Tests.
    pub tests: Vec<Test>,
}

/// The text before a card's tables.
const HOW_TO_READ: &str = "\
Errors of fractions are in points (hundredths), errors of durations in percent of what was measured. *Median error* and *90th percentile* are of
the errors' sizes. *Bias* is the median of the signed errors of what is computed, positive if it is mostly too large; families have it in brackets. *Known* says what a prediction
was made from: the launch alone, the kernel's attributes too (`kernel`), its PTX (`code`), what the launch executes (`work`:
the PTX walked with the launch's arguments). In brackets: 95% confidence, by resampling families. *Intervals hold* is the part of the
launches whose interval, stated for 90%, contains what was measured; margins are from other families. Intervals of fractions are shown to
users half a point wider to either side than those judged here: nothing is known better than that. Where little is uncertain (warp efficiency with
`work`) the bare ones are narrower than rounding, and are shown wider by the 90th percentile of the walked warps' error.

What is held out was never trained on: of five parts of the families, each in turn is predicted by networks that saw the others. The
models in use are trained on everything, by the same recipe. Correlations of durations are of their logarithms.

Where a formula or boosted trees do better than the network, the tables say so. For warp efficiency the formula is what is predicted: the
walked warps' with `work`, else the block's; the network gives the interval, which is extended to the formula. Durations and SM throughput with `work` are
*computed* from what the launch executes and from rates: rates and margins with which a family is judged were fitted to the other parts'
families, those in use to all. What the networks say of these is not shown to users. A duration is not predicted from attributes or code: unless it is known what
a launch executes, the launch alone says as much.

*Measured again* is the noise floor of durations: the same launches in another run, timed by events instead of Nsight Compute. The constant by
which the two ways of measuring differ (its median below 10 µs, on each device) is added. No prediction can be expected to do better.

Where several devices were measured, a family is held out on all of them. *None of which was trained on* means that neither the family nor the device was:
rates, networks (three, not eight) and the margins of what is computed are from the other devices; margins of the networks are from all.

Known limits: few kinds of GPU; kernels written for this, most of them small; PTX for compute capability 8.0, so nothing of
asynchronous matrix products, bulk copies or clusters; a launch that has the GPU to itself, with warm caches. SM throughput was
measured for part of the launches; in training, instructions issued stand in for it where it was not. A few rates and latencies
behind the features of `work` (local and constant memory, atomics, what a warp waits for) were fitted to launches of all families, those held out included: errors
of durations are a little better for that than they would be elsewhere.
";

impl Report {
    /// The model card's text, in Markdown.
    pub fn card(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string does not fail");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let device = |of: &MeasuredDevice| format!("{} on an {} ({})", of.launches, of.name, of.measured);
        let devices: Vec<String> = self.devices.iter().map(device).collect();
        writeln!(text, "# Model card\n")?;
        writeln!(
            text,
            "Trained on {} launches of {} families: {}; seed {}.\n",
            self.launches,
            self.families,
            devices.join(", "),
            self.seed
        )?;
        writeln!(text, "{HOW_TO_READ}")?;
        writeln!(
            text,
            "| model | widths | parameters | examples | cost of 8 bits |\n| --- | --- | ---: | ---: | --- |"
        )?;
        for model in &self.models {
            let widths: Vec<String> = model.widths.iter().map(usize::to_string).collect();
            let costs: Vec<String> =
                model.quantising_error.iter().map(|error| format!("{error:.2}")).collect();
            let ModelSummary { name, parameters, examples, .. } = model;
            writeln!(
                text,
                "| {name} | {} | {parameters} | {examples} | {} |",
                widths.join("-"),
                costs.join(", ")
            )?;
        }
        for test in &self.tests {
            writeln!(text, "\n## {}\n", test.held_out)?;
            test.write(text)?;
        }
        Ok(())
    }
}

impl Test {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "| quantity | known | method | cases | correlation | median error | 90th percentile | bias | intervals hold |"
        )?;
        writeln!(text, "| --- | --- | --- | ---: | --- | --- | ---: | ---: | --- |")?;
        for score in &self.scores {
            let range = |range: &Option<Range>, digits: usize| match range {
                Some(Range { value, low, high }) => {
                    format!("{value:.digits$} ({low:.digits$} to {high:.digits$})")
                }
                None => "-".to_owned(),
            };
            let Score { quantity, basis, method, cases, large_error, bias, .. } = score;
            writeln!(
                text,
                "| {quantity} | {basis} | {method} | {cases} | {} | {} | {large_error:.1} | {} | {} |",
                range(&score.correlation, 3),
                range(&Some(score.median_error), 1),
                bias.map_or_else(|| "-".to_owned(), |bias| format!("{bias:+.1}")),
                range(&score.coverage, 3),
            )?;
        }
        for score in
            self.scores.iter().filter(|score| score.coverage.is_some() && score.families.len() > NAMED)
        {
            let name = |score: &FamilyScore| {
                let bias = score.bias.map_or_else(String::new, |bias| format!(" ({bias:+.1})"));
                format!("{} {:.1}{bias}", score.family, score.median_error)
            };
            let worst: Vec<String> = score.families.iter().take(NAMED).map(name).collect();
            let best: Vec<String> = score.families.iter().rev().take(NAMED).map(name).collect();
            writeln!(
                text,
                "\n{}, {}, {}: worst families by median error: {}; best: {}.",
                score.quantity,
                score.basis,
                score.method,
                worst.join(", "),
                best.join(", ")
            )?;
        }
        for score in self.scores.iter().filter(|score| !score.parts.is_empty()) {
            writeln!(text, "\n| {}, by what takes longest | cases | median error | bias |", score.quantity)?;
            writeln!(text, "| --- | ---: | ---: | ---: |")?;
            for FamilyScore { family, cases, median_error, bias } in &score.parts {
                let bias = bias.unwrap_or(f64::NAN);
                writeln!(text, "| {family} | {cases} | {median_error:.1} | {bias:+.1} |")?;
            }
        }
        Ok(())
    }
}
