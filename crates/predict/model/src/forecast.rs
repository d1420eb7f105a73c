//! A trained network with its features, its calibration and its origin.

use crate::conformal::{Band, Margin};
use crate::network::{Network, Range, Target};
use crate::predict::{Precision, Predictor, Scratch};
use crate::{Error, Matrix};

/// The features that a model takes. Who computes features compares this with what it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureSet {
    /// Its name.
    pub name: String,
    /// Raised whenever a feature is added, removed, moved or computed in another way.
    pub version: u32,
    /// The features, in order.
    pub features: Vec<Feature>,
}

/// One feature.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// The least value that the model was trained on.
    pub least: f32,
    /// The greatest.
    pub greatest: f32,
}

impl FeatureSet {
    /// The features of these names, with the ranges that they have in `examples`.
    ///
    /// # Errors
    /// [`Error`] when there is not one name for each feature, or there is no example.
    pub fn seen(name: &str, version: u32, names: &[&str], examples: &Matrix) -> Result<FeatureSet, Error> {
        Error::check_length("the names of the features", examples.columns(), names.len())?;
        if examples.rows() == 0 {
            return Err(Error::TooFew { what: "examples", needed: 1, found: 0 });
        }
        let feature = |(column, name): (usize, &&str)| Feature {
            name: (*name).to_owned(),
            least: examples.column(column).fold(f32::INFINITY, f32::min),
            greatest: examples.column(column).fold(f32::NEG_INFINITY, f32::max),
        };
        let features = names.iter().enumerate().map(feature).collect();
        Ok(FeatureSet { name: name.to_owned(), version, features })
    }
}

/// The source of a target's interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The estimate alone.
    Constant,
    /// The estimate and the distance of the outermost two quantiles.
    Quantiles,
    /// The outermost two quantiles themselves.
    Between,
}

/// The calibration of a target's intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The source of intervals.
    pub spread: Spread,
    /// The margin by which it is widened.
    pub margin: Margin,
}

impl Calibration {
    /// Calibrates `target` on cases that were not trained on: the target's outputs for each
    /// ([`Target::outputs`] of them), what was true, and which group each belongs to.
    ///
    /// # Errors
    /// As [`Margin::calibrate`]; [`Error::TooFew`] when `spread` needs two quantiles and the target
    /// has fewer.
    pub fn new(
        target: &Target,
        spread: Spread,
        outputs: &[&[f32]],
        truths: &[f32],
        groups: Option<&[usize]>,
        coverage: f32,
    ) -> Result<Calibration, Error> {
        spread.check(target)?;
        for outputs in outputs {
            Error::check_length("a target's outputs", target.outputs(), outputs.len())?;
        }
        let bands: Vec<Band> = outputs.iter().map(|outputs| spread.band(outputs)).collect();
        Ok(Calibration { spread, margin: Margin::calibrate(&bands, truths, groups, coverage)? })
    }

    /// The interval of a case, from the target's outputs.
    pub fn interval(&self, outputs: &[f32], range: Range) -> (f32, f32) {
        self.margin.interval(&self.spread.band(outputs), range)
    }
}

impl Spread {
    fn check(self, target: &Target) -> Result<(), Error> {
        let found = target.quantiles.len();
        if self == Spread::Constant || found >= 2 {
            return Ok(());
        }
        Err(Error::TooFew { what: "quantiles to make intervals of", needed: 2, found })
    }

    /// The band of one target's outputs, the estimate first.
    fn band(self, outputs: &[f32]) -> Band {
        let (estimate, one, other) = match outputs {
            [estimate, one, .., other] => (*estimate, *one, *other),
            _ => return Band::around(outputs[0]),
        };
        match self {
            Spread::Constant => Band::around(estimate),
            Spread::Quantiles => Band::spread(estimate, other - one),
            Spread::Between => Band::between(one, other),
        }
    }
}

/// See the module's documentation. [`Model::to_bytes`] and [`Model::from_bytes`] are described in
/// [`crate::file`].
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    features: FeatureSet,
    network: Network,
    calibrations: Vec<Option<Calibration>>,
    notes: Vec<(String, String)>,
}

impl Model {
    /// A model of these parts. There is one calibration, or none, for each target; `notes` (names
    /// and values) are for people: data, split, errors, date.
    ///
    /// # Errors
    /// [`Error`] when the parts do not fit each other.
    pub fn new(
        features: FeatureSet,
        network: Network,
        calibrations: Vec<Option<Calibration>>,
        notes: Vec<(String, String)>,
    ) -> Result<Model, Error> {
        Error::check_length("the names of the features", network.inputs(), features.features.len())?;
        for feature in &features.features {
            Error::check_finite("the range of a feature", &[feature.least, feature.greatest])?;
        }
        Error::check_length("the calibrations", network.targets().len(), calibrations.len())?;
        for (target, calibration) in network.targets().iter().zip(&calibrations) {
            let Some(Calibration { spread, margin }) = calibration else { continue };
            spread.check(target)?;
            let inside = margin.coverage > 0.0 && margin.coverage < 1.0;
            Error::check_range(inside, "the coverage", f64::from(margin.coverage), "between 0 and 1")?;
            Error::check_finite("a margin", &[margin.margin])?;
        }
        Ok(Model { features, network, calibrations, notes })
    }

    /// Returns the features that it takes.
    pub fn features(&self) -> &FeatureSet {
        &self.features
    }

    /// Its network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// For each target, how its intervals were calibrated.
    pub fn calibrations(&self) -> &[Option<Calibration>] {
        &self.calibrations
    }

    /// Names and values for people.
    pub fn notes(&self) -> &[(String, String)] {
        &self.notes
    }

    /// The model made ready for this processor. To replace it while it is in use, swap an `Arc` of
    /// it.
    pub fn ready(&self, precision: Precision) -> Forecaster {
        let mut first = 0;
        let plan = |(target, &calibration): (&Target, &Option<Calibration>)| {
            let outputs = first..first + target.outputs();
            first = outputs.end;
            Plan { range: target.range, first: outputs.start, end: outputs.end, calibration }
        };
        let targets = self.network.targets().iter().zip(&self.calibrations).map(plan).collect();
        let ranges = self.features.features.iter().map(|feature| (feature.least, feature.greatest)).collect();
        Forecaster { predictor: Predictor::new(&self.network, precision), targets, ranges }
    }
}

/// The forecast of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// The point estimate.
    pub estimate: f32,
    /// The interval that holds the truth in [`Margin::coverage`] of cases like those that it was
    /// calibrated on; `None` if it was not.
    pub interval: Option<(f32, f32)>,
}

/// The position of a target's outputs, with its calibration.
#[derive(Debug)]
struct Plan {
    range: Range,
    first: usize,
    end: usize,
    calibration: Option<Calibration>,
}

/// A model made ready: a [`Predictor`] with intervals. It does not change, so threads share it.
#[derive(Debug)]
pub struct Forecaster {
    predictor: Predictor,
    targets: Vec<Plan>,
    /// For each feature the least and the greatest value that was trained on.
    ranges: Vec<(f32, f32)>,
}

/// Buffers of a forecast: they grow when a forecaster first uses them and then stay.
#[derive(Debug, Default)]
pub struct ForecastScratch {
    scratch: Scratch,
    outputs: Vec<f32>,
}

impl Forecaster {
    /// Returns the number of features.
    pub fn inputs(&self) -> usize {
        self.predictor.inputs()
    }

    /// Returns the number of targets.
    pub fn targets(&self) -> usize {
        self.targets.len()
    }

    /// The positions of those features that lie outside of what the model was trained on by more
    /// than the part `near` of its range. Where there are any, neither the estimate nor the
    /// interval has been tested.
    pub fn unfamiliar(&self, features: &[f32], near: f32) -> impl Iterator<Item = usize> {
        let outside = move |(_, (value, range)): &(usize, (&f32, &(f32, f32)))| {
            let margin = near * (range.1 - range.0);
            !(range.0 - margin..=range.1 + margin).contains(*value)
        };
        features.iter().zip(&self.ranges).enumerate().filter(outside).map(|(position, _)| position)
    }

    /// Forecasts one case from its raw features: one forecast for each target.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; `forecasts` then stay as they were.
    pub fn forecast(
        &self,
        features: &[f32],
        scratch: &mut ForecastScratch,
        forecasts: &mut [Forecast],
    ) -> Result<(), Error> {
        Error::check_length("the place for the forecasts", self.targets.len(), forecasts.len())?;
        scratch.outputs.resize(self.predictor.outputs(), 0.0);
        self.predictor.predict(features, &mut scratch.scratch, &mut scratch.outputs)?;
        for (forecast, plan) in forecasts.iter_mut().zip(&self.targets) {
            let outputs = &scratch.outputs[plan.first..plan.end];
            let interval = |calibration: Calibration| calibration.interval(outputs, plan.range);
            *forecast = Forecast { estimate: outputs[0], interval: plan.calibration.map(interval) };
        }
        Ok(())
    }
}
