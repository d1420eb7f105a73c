//! The models, made ready for prediction, and their predictions of a launch.
//!
//! Three networks: *small* knows the launch alone; *large* takes all that is known; *what-if*
//! takes in addition what another launch of the same kernel took. Fractions are predicted as
//! shares of what is possible, and durations as multiples of a bound, so that what can be computed
//! is computed. Where it is known what a launch executes, durations and SM throughput are computed
//! ([`crate::timing`], [`crate::throughput`]) and not left to the networks. Warp efficiency is
//! predicted by a formula, which the model card shows to be better than the networks; these give
//! its interval alone. A feature outside of what was trained on is taken as the nearest value that
//! was, and is named if it is far outside.

use crate::case::{Basis, Case, Device, Impossible, Placed};
use crate::features::{self, Measured, Set};
use crate::throughput::{Occupation, level};
use crate::timing::{Computed, Demand, Margin, Margins, Timing};
use apex_model::file::FileError;
use apex_model::forecast::{Forecast, Forecaster};
use apex_model::{Cache, Model, Precision};
use ptx_estimate::Work;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// Configurations whose forecasts are remembered, for each model.
const REMEMBERED: usize = 4096;

/// The share of its trained range by which a feature may lie outside and still count as familiar.
const NEAR: f32 = 0.1;

/// The targets that the networks predict, in this order.
pub mod target {
    use apex_model::Target;

    /// Levels of the quantiles that intervals are made of.
    pub const QUANTILES: [f32; 2] = [0.05, 0.95];

    /// Names of what small and large predict: shares of the occupancy bound, of the SM's
    /// throughput, of the lanes; and the duration's logarithm to base 2 over the bound.
    pub const NAMES: [&str; 4] =
        ["occupancy_share", "sm_utilisation", "warp_efficiency", "duration_over_bound"];

    /// Name of what what-if predicts: the logarithm to base 2 of the new duration over the measured
    /// one, less that of their bounds.
    pub const CHANGE: &str = "duration_change_over_bound";

    /// Targets of small and large.
    pub fn all() -> Vec<Target> {
        let [occupancy, utilisation, efficiency, duration] = NAMES;
        let fractions = [occupancy, utilisation, efficiency].map(Target::fraction);
        let all = fractions.into_iter().chain([Target::real(duration)]);
        all.map(|target| target.with_quantiles(&QUANTILES)).collect()
    }

    /// Targets of what-if.
    pub fn change() -> Vec<Target> {
        vec![Target::real(CHANGE).with_quantiles(&QUANTILES)]
    }
}

/// A predicted quantity and its 90% prediction interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Estimate and interval, each put through a rising function. Where quantiles and estimate were
    /// learned apart, the estimate may lie outside of the interval; the interval is then extended
    /// to it.
    fn of(forecast: &Forecast, map: impl Fn(f64) -> f64) -> Estimate {
        let value = forecast.estimate;
        let (low, high) = forecast.interval.unwrap_or((value, value));
        let map = |number: f32| map(f64::from(number));
        Estimate { value: map(value), low: map(low.min(value)), high: map(high.max(value)) }
    }

    /// No less than `floor`. An estimate below it is scaled up to it, and the interval's upper end
    /// with it: how far the truth may lie above does not get smaller.
    pub fn at_least(self, floor: f64) -> Estimate {
        let scale = if self.value < floor { floor / self.value } else { 1.0 };
        Estimate { value: self.value.max(floor), low: self.low.max(floor), high: self.high * scale }
    }

    /// A computed share, with its margin.
    fn of_computed_share(share: f64, [low, high]: Margin) -> Estimate {
        let (low, high) = (low.min(0.0) - RESOLUTION, high.max(0.0) + RESOLUTION);
        Estimate { value: share, low: (share + low).max(0.0), high: (share + high).min(1.0) }
    }

    /// A computed duration, with its margin.
    fn of_duration(us: f64, [low, high]: Margin) -> Estimate {
        Estimate { value: us, low: us * low.min(0.0).exp2(), high: us * high.max(0.0).exp2() }
    }

    /// Converts the forecast of a share of `bound` to a fraction. The interval is `margin` wider to
    /// either side.
    fn of_share(forecast: &Forecast, bound: f64, margin: f64) -> Estimate {
        let Estimate { value, low, high } = Estimate::of(forecast, |share| share * bound);
        Estimate { value, low: (low - margin).max(0.0), high: (high + margin).min(1.0) }
    }

    /// Warp efficiency: the formula, and the networks' interval extended to it.
    fn warp_efficiency(forecast: &Forecast, placed: &Placed<'_>) -> Estimate {
        let margin = if placed.basis() == Basis::Work { WALKED_MARGIN } else { RESOLUTION };
        let all = Forecast { estimate: 1.0, ..*forecast };
        Estimate::of_share(&all, placed.warp_efficiency_bound(), margin)
    }
}

/// No fraction is known better than to half a point: intervals reach at least that far to either
/// side.
const RESOLUTION: f64 = 0.005;

/// 90th percentile of the error of the walked warps' warp efficiency, over the launches of the
/// suite. The networks' intervals are narrower: they were calibrated over all bases together.
pub const WALKED_MARGIN: f64 = 0.03;

/// Least margins of durations, logarithms to base 2, of kernels unlike those that were trained on:
/// 90th percentile of the errors in half of HeCBench's programs
/// (`docs/results/predict-programs.md`).
const UNFAMILIAR_MARGIN: f64 = 1.5;
/// The margin of kernels that depend on values in memory, which are guessed.
const GUESSED_MARGIN: f64 = 7.0;

/// The predictions for a launch. Fractions are from 0 to 1. Fractions are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Warps resident on a multiprocessor while it is active, of the most possible.
    pub achieved_occupancy: Estimate,
    /// The utilisation of the busiest part of the multiprocessors: Nsight Compute's SM throughput.
    pub sm_utilisation: Estimate,
    /// Threads that take part in an instruction, of a warp's:
    /// [`warp_efficiency_bound`](Placed::warp_efficiency_bound), in an interval of the networks
    /// that is extended to it.
    pub warp_efficiency: Estimate,
    /// The kernel's duration on the GPU, in microseconds.
    pub duration_us: Estimate,
    /// The facts on which the prediction is based.
    pub basis: Basis,
    /// Features outside of what was trained on: what is predicted has not been tested there.
    pub unfamiliar: Vec<String>,
}

/// Whether guesses decide what a launch does: which way it branches, or all that it is for. Each
/// kernel leaves something in memory, so what one does that was not seen to do so was not followed.
fn is_guessed(work: &Work) -> bool {
    work.unknown_branches > 0.0 || work.global_store_requests + work.atomic_requests == 0.0
}

/// The reason why models cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is no model, or damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// A model for something else.
    #[error("{}: {why}; write it with `apex train` of this version", apex_untrusted::shown(path))]
    Other {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: String,
    },
}

/// A model in use.
#[derive(Debug)]
struct Ready {
    model: Model,
    forecaster: Arc<Forecaster>,
    cache: Mutex<Cache>,
}

impl Ready {
    fn new(set: Set, model: Model) -> Result<Ready, String> {
        let features = model.features();
        if (features.name.as_str(), features.version) != (set.name(), set.version()) {
            let (name, version) = (&features.name, features.version);
            return Err(format!(
                "the model takes features `{name}` {version}, and `{}` {} are computed here",
                set.name(),
                set.version()
            ));
        }
        if !features.features.iter().map(|feature| &feature.name).eq(set.names().iter()) {
            return Err("the model takes other features than are computed here".to_owned());
        }
        let wanted = if set == Set::WhatIf { target::change() } else { target::all() };
        let names = |targets: &[apex_model::Target]| -> Vec<(String, apex_model::network::Range)> {
            targets.iter().map(|target| (target.name.clone(), target.range)).collect()
        };
        if names(model.network().targets()) != names(&wanted) {
            return Err("the model predicts other quantities than are shown here".to_owned());
        }
        let forecaster = Arc::new(model.ready(Precision::F32));
        Ok(Ready { model, forecaster, cache: Mutex::new(Cache::new(REMEMBERED)) })
    }

    /// The names of the features that lie far from where the model was trained.
    fn unfamiliar(&self, features: &[f32]) -> Vec<String> {
        let trained = &self.model.features().features;
        self.forecaster.unfamiliar(features, NEAR).map(|position| trained[position].name.clone()).collect()
    }

    /// Forecasts of a row of features, which is moved to where the model was trained, and the names
    /// of those that lie far from there.
    fn forecast<const N: usize>(&self, features: &mut [f32]) -> ([Forecast; N], Vec<String>) {
        let trained = &self.model.features().features;
        let unfamiliar = self.unfamiliar(features);
        for (value, feature) in features.iter_mut().zip(trained) {
            *value = value.clamp(feature.least, feature.greatest);
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cache.forecast(&self.forecaster, features).expect("the model takes these features");
        (std::array::from_fn(|target| found[target]), unfamiliar)
    }
}

/// A model that is made ready when it is asked first. Unpacking one takes longer than to read a
/// small session, and a session of another device than those of the models asks none.
type Lazy = LazyLock<Ready, Box<dyn FnOnce() -> Ready + Send>>;

/// Models in use. They do not change: to replace them, swap an [`Arc`] of them
/// ([`crate::reload`]).
#[derive(Debug)]
pub struct Models {
    small: Lazy,
    large: Lazy,
    what_if: Lazy,
    /// Of the large model's notes.
    timing: OnceLock<Timing>,
}

/// The files that are part of the program, compressed, in the order of [`Models::FILES`]: two
/// thirds of a merged ensemble's weights are zero. `scripts/models.sh` writes them.
const SHIPPED_FILES: [&[u8]; 3] = [
    include_bytes!("../models/small.apexmodel.zst"),
    include_bytes!("../models/large.apexmodel.zst"),
    include_bytes!("../models/what-if.apexmodel.zst"),
];

/// Why nothing that is shipped fails.
const TESTED: &str = "a test reads and uses what is shipped";

/// The bytes of a compressed file.
fn decompressed(mut compressed: &[u8]) -> Vec<u8> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&mut compressed).expect(TESTED);
    let mut bytes = Vec::with_capacity(decoder.decoder.content_size() as usize);
    decoder.read_to_end(&mut bytes).expect(TESTED);
    bytes
}

/// The shipped model at this place of [`Models::FILES`].
fn shipped(index: usize) -> Lazy {
    LazyLock::new(Box::new(move || {
        let model = Model::from_bytes(&decompressed(SHIPPED_FILES[index])).expect(TESTED);
        Ready::new(Set::ALL[index], model).expect(TESTED)
    }))
}

impl Models {
    /// The files of a folder of models, in the order small, large, what-if.
    pub const FILES: [&str; 3] = ["small.apexmodel", "large.apexmodel", "what-if.apexmodel"];

    /// The models that are part of the program; each is made ready when it is asked first.
    pub fn shipped() -> Arc<Models> {
        static SHIPPED: OnceLock<Arc<Models>> = OnceLock::new();
        let models = || {
            let [small, large, what_if] = [0, 1, 2].map(shipped);
            Arc::new(Models { small, large, what_if, timing: OnceLock::new() })
        };
        SHIPPED.get_or_init(models).clone()
    }

    /// The models of a folder that `apex train` wrote.
    ///
    /// # Errors
    /// The file that cannot be used, and the reason.
    pub fn load(folder: &Path) -> Result<Models, LoadError> {
        let [small, large, what_if] = Models::FILES.map(|name| Model::open(&folder.join(name)));
        let failed = |(file, why): (&str, String)| LoadError::Other { path: folder.join(file), why };
        Models::new([small?, large?, what_if?]).map_err(failed)
    }

    /// Models from small, large, what-if.
    ///
    /// # Errors
    /// The file's name in [`Models::FILES`], and what is wrong with it.
    pub fn new(models: [Model; 3]) -> Result<Models, (&'static str, String)> {
        let [small, large, what_if] = models;
        let timing = Timing::of_notes(large.notes()).map_err(str::to_owned);
        let ready = |index: usize, model| {
            Ready::new(Set::ALL[index], model).map_err(|why| (Models::FILES[index], why))
        };
        let (small, large, what_if) = (ready(0, small)?, ready(1, large)?, ready(2, what_if)?);
        let timing = timing.map_err(|why| (Models::FILES[1], why))?.into();
        let [small, large, what_if] =
            [small, large, what_if].map(|ready| -> Lazy { LazyLock::new(Box::new(|| ready)) });
        Ok(Models { small, large, what_if, timing })
    }

    fn timing(&self) -> &Timing {
        self.timing.get_or_init(|| Timing::of_notes(self.large.model.notes()).expect(TESTED))
    }

    /// The computed duration of a launch, if it is known what it executes.
    fn computed(&self, placed: &Placed<'_>) -> Option<Computed> {
        Demand::of(placed).map(|demand| demand.computed(&self.timing().rates.on(placed.device)))
    }

    /// The margin of a computed duration. Margins were tried on other families of the suite, whose
    /// kernels are alike: kernels unlike these have wider ones, which were tried on other programs.
    fn duration_margin(&self, placed: &Placed<'_>, unfamiliar: &[String], computed: &Computed) -> Margin {
        let [low, high] = self.margins(unfamiliar).durations[computed.size()];
        let is_guessed = placed.case.work.as_ref().is_some_and(is_guessed);
        let is_unfamiliar = unfamiliar.iter().any(|name| !features::is_of_device(name));
        let wide = match (is_guessed, is_unfamiliar) {
            (true, _) => GUESSED_MARGIN,
            (false, true) => UNFAMILIAR_MARGIN,
            (false, false) => 0.0,
        };
        [low.min(-wide), high.max(wide)]
    }

    /// Margins of what is computed, by the features of the launch that are unfamiliar: a device
    /// unlike those that were trained on is among them.
    fn margins(&self, unfamiliar: &[String]) -> &Margins {
        let away = unfamiliar.iter().any(|name| features::is_of_device(name));
        if away { &self.timing().away } else { &self.timing().home }
    }

    /// Returns the models' notes for people: small, large, what-if.
    pub fn notes(&self) -> [&[(String, String)]; 3] {
        [&self.small, &self.large, &self.what_if].map(|ready| ready.model.notes())
    }

    /// Predicts a launch.
    ///
    /// # Errors
    ///
    /// The reason why the launch cannot run on that device.
    pub fn predict(&self, device: &Device, case: &Case) -> Result<Prediction, Impossible> {
        let placed = Placed::new(device, case)?;
        let mut row = Vec::new();
        let mut small = || {
            features::small(&placed, &mut row);
            self.small.forecast::<4>(&mut row)
        };
        let ([share, utilisation, efficiency, duration], unfamiliar) = match placed.basis() {
            Basis::Launch => small(),
            basis => {
                let of_launch = if basis < Basis::Work { Some(small().0[3]) } else { None };
                features::full(&placed, &mut row);
                let ([share, utilisation, efficiency, duration], unfamiliar) = self.large.forecast(&mut row);
                // Unless what it executes is known, the launch alone says as much about the
                // duration.
                ([share, utilisation, efficiency, of_launch.unwrap_or(duration)], unfamiliar)
            }
        };
        let (bound, least) = (placed.occupancy_bound(), placed.least_duration_us());
        let margins = self.margins(&unfamiliar);
        let duration_us = match self.computed(&placed) {
            Some(computed) => {
                Estimate::of_duration(computed.us, self.duration_margin(&placed, &unfamiliar, &computed))
            }
            None => Estimate::of(&duration, |over| least * over.exp2()),
        };
        let duration_us = duration_us.at_least(placed.floor_us());
        let sm_utilisation = match Occupation::of(&placed) {
            Some(occupation) => {
                let share = occupation.utilisation(&self.timing().loads, duration_us.value);
                Estimate::of_computed_share(share, margins.utilisations[level(share)])
            }
            None => Estimate::of_share(&utilisation, 1.0, RESOLUTION),
        };
        Ok(Prediction {
            achieved_occupancy: Estimate::of_share(&share, bound, RESOLUTION),
            sm_utilisation,
            warp_efficiency: Estimate::warp_efficiency(&efficiency, &placed),
            duration_us,
            basis: placed.basis(),
            unfamiliar,
        })
    }

    /// Predicts the duration of a launch, in microseconds, from `measured_us`, the duration of
    /// another launch of the same kernel.
    ///
    /// # Errors
    ///
    /// The reason why one of the launches cannot run on that device.
    pub fn what_if(
        &self,
        device: &Device,
        from: &Case,
        measured_us: f64,
        to: &Case,
    ) -> Result<Estimate, Impossible> {
        // The PTX alone does not help: what was measured says more.
        let bare = |case: &Case| Case { mix: None, work: None, ..case.clone() };
        let full = [from, to].iter().all(|case| case.work.as_ref().is_some_and(|w| w.unknown_calls == 0.0));
        let [from, to] = [from, to].map(|case| if full { case.clone() } else { bare(case) });
        let (from, to) = (Placed::new(device, &from)?, Placed::new(device, &to)?);
        let mut row = Vec::new();
        if let (Some(before), Some(after)) = (self.computed(&from), self.computed(&to)) {
            let us = after.after(&before, measured_us);
            features::full(&to, &mut row);
            let margin = self.margins(&self.large.unfamiliar(&row)).changes[after.change(&before)];
            return Ok(Estimate::of_duration(us, margin).at_least(to.floor_us()));
        }
        features::what_if(&from, &Measured { duration_us: measured_us }, &to, &mut row);
        let ([change], _) = self.what_if.forecast(&mut row);
        let scale = measured_us * to.least_duration_us() / from.least_duration_us();
        Ok(Estimate::of(&change, |change| scale * change.exp2()).at_least(to.floor_us()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Code, Typed};
    use cuda_launch::{FunctionAttributes, LaunchConfig};

    /// The end of a predicted duration's interval over its beginning, of a kernel that loads a word
    /// and then does this.
    fn span(body: &str) -> f64 {
        let source = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {{\n.reg .pred %q;\n.reg .u64 %a;\n\
             .reg .u32 %r;\nld.param.u64 %a, [p];\nld.global.u32 %r, [%a];\n{body}\nret;\n}}\n"
        );
        let code = Code::parse(&source, "k.ptx", None, &[Typed::Pointer]).unwrap();
        let known = FunctionAttributes { registers: 24, ..FunctionAttributes::default() };
        let case = code.case(code.kernel(known), LaunchConfig::new(1 << 16, 256));
        let said = Models::shipped().predict(&Device::h200(), &case).unwrap();
        said.duration_us.high / said.duration_us.low
    }

    #[test]
    fn what_a_guess_decides_has_a_wide_interval() {
        let known = span("st.global.u32 [%a], %r;");
        assert!(known < 10.0, "{known}");
        let branches = span("setp.eq.u32 %q, %r, 7;\n@%q bra END;\nst.global.u32 [%a], %r;\nEND:");
        let does_nothing = span("add.u32 %r, %r, 1;");
        assert!(branches > 1e3 && does_nothing > 1e3, "{branches} {does_nothing}");
    }
}
