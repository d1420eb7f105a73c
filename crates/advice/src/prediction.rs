//! What the models say of a profile's kernels, beside what was measured.
//!
//! A predicted duration is the kernel's own, from its first block's start to its last block's end, as Nsight Compute's
//! `gpu__time_duration` has it. What sampled timing measures is the time *above an empty kernel's*
//! ([`GpuTime`](crate::profile::GpuTime)): to compare the two, [`EMPTY_KERNEL_NS`] is added to it.

use apex_predict::{Case, Launch, Models};
use occupancy::DeviceLimits;
use serde::{Deserialize, Serialize};

use crate::figure::{Figure, Provenance};
use crate::finding::{Configuration, KernelFinding, WhatIf};
use crate::profile::{Device, Kernel, Profile};

/// By how much a kernel's own duration is longer than its time above an empty kernel, nanoseconds: the median of the 4,716
/// launches of 0.3 to 30 us in `data/launches-h200`, where both were measured; of half of them it is 1.38 to 1.63 us.
pub const EMPTY_KERNEL_NS: f64 = 1_500.0;

/// A predicted value and an interval that holds the truth in nine of ten cases like those that it was tested on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate. The unit is in the name of the field that holds it; shares are from 0 to 1.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Always [`Provenance::Predicted`].
    pub provenance: Provenance,
}

impl Estimate {
    /// The same estimate in another unit: `by` is positive.
    pub fn scaled(self, by: f64) -> Self {
        Self { value: self.value * by, low: self.low * by, high: self.high * by, ..self }
    }

    /// The share by which this is less than `whole`, which is positive.
    pub fn saved_of(self, whole: f64) -> Self {
        let saved = |part: f64| 1.0 - part / whole;
        Self { value: saved(self.value), low: saved(self.high), high: saved(self.low), ..self }
    }
}

impl From<apex_predict::Estimate> for Estimate {
    fn from(estimate: apex_predict::Estimate) -> Self {
        let apex_predict::Estimate { value, low, high } = estimate;
        Self { value, low, high, provenance: Provenance::Predicted }
    }
}

/// What the models say of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The kernel's own duration.
    pub duration_ns: Estimate,
    /// Warps resident on a multiprocessor while it is active, of the most possible.
    pub achieved_occupancy: Estimate,
    /// Compute (SM) throughput, of the most possible.
    pub sm_utilisation: Estimate,
    /// Threads that take part in a warp's instruction, of 32.
    pub warp_efficiency: Estimate,
    /// What the prediction was made from: `launch`, `kernel`, `code` or `work`.
    pub basis: String,
    /// Features outside of what the models were trained on: where there are any, no interval has been tested.
    pub unfamiliar: Vec<String>,
    /// The kernel's own duration as measured; `None` where it was not timed.
    pub measured_duration_ns: Option<Figure>,
    /// This over the predicted one.
    pub measured_over_predicted: Option<f64>,
}

impl From<apex_predict::Prediction> for Prediction {
    fn from(said: apex_predict::Prediction) -> Self {
        Self {
            duration_ns: Estimate::from(said.duration_us).scaled(1e3),
            achieved_occupancy: said.achieved_occupancy.into(),
            sm_utilisation: said.sm_utilisation.into(),
            warp_efficiency: said.warp_efficiency.into(),
            basis: said.basis.name().to_owned(),
            unfamiliar: said.unfamiliar,
            measured_duration_ns: None,
            measured_over_predicted: None,
        }
    }
}

impl Prediction {
    /// Sets a measured duration beside it.
    pub fn beside(mut self, measured_ns: Option<Figure>) -> Self {
        self.measured_duration_ns = measured_ns;
        self.measured_over_predicted = measured_ns
            .filter(|_| self.duration_ns.value > 0.0)
            .map(|measured| measured.value / self.duration_ns.value);
        self
    }
}

/// The device of this name and these pairs of `CUdevice_attribute` and value, as the models see it.
///
/// # Errors
/// What is not known of it, as a sentence.
pub fn device(name: &str, attributes: &[(u32, i32)]) -> Result<apex_predict::Device, String> {
    let shown = if name.is_empty() { "a device that is not known" } else { name };
    if DeviceLimits::from_attributes(attributes).is_none() {
        return Err(format!("no predictions for {shown}: the rules of its compute capability are not known"));
    }
    apex_predict::Device::from_attributes(name, attributes)
        .ok_or_else(|| format!("no predictions for {shown}: its clocks and caches were not recorded"))
}

/// Whether the shipped models were trained on devices like this one.
///
/// # Errors
/// That they were not, as a sentence.
pub fn check_trained(device: &apex_predict::Device) -> Result<(), String> {
    let trained = apex_predict::Device::h200();
    let capability = |device: &apex_predict::Device| device.limits.compute_capability;
    let ((major, minor), (x, y)) = (capability(device), capability(&trained));
    if (major, minor) == (x, y) {
        return Ok(());
    }
    let (name, known) = (&device.name, &trained.name);
    Err(format!(
        "no predictions for {name}: it has compute capability {major}.{minor}, and the models were trained on {x}.{y} \
         ({known})"
    ))
}

fn known_device(recorded: &Device) -> Result<apex_predict::Device, String> {
    let device = device(&recorded.name, &recorded.attributes)?;
    check_trained(&device).map(|()| device)
}

/// What is known of a recorded kernel before it runs.
pub fn case(kernel: &Kernel) -> Case {
    let launch =
        Launch { grid: kernel.grid, block: kernel.block, dynamic_shared_bytes: kernel.dynamic_shared };
    let kernel = kernel.attributes.map(|attributes| apex_predict::Kernel {
        registers: attributes.resources.registers,
        static_shared_bytes: attributes.resources.static_shared,
        local_bytes: attributes.local,
        max_threads_per_block: attributes.resources.max_threads,
    });
    Case { kernel, ..Case::of_launch(launch) }
}

/// A kernel's own duration as measured, nanoseconds.
pub fn measured_duration_ns(kernel: &Kernel) -> Option<Figure> {
    let gpu = kernel.gpu.as_ref()?;
    let samples = gpu.each.count;
    let error = gpu.deviation_ns.map(|deviation| deviation / (samples.max(1) as f64).sqrt());
    Some(Figure::sampled(gpu.each.mean_ns + EMPTY_KERNEL_NS, samples, error))
}

impl Profile {
    /// Predicts all kernels on devices that the models know; [`Profile::unpredicted`] says why not, where they do not.
    pub fn predict(&mut self, models: &Models) {
        let devices: Vec<_> = self.devices.iter().map(known_device).collect();
        for kernel in &mut self.kernels {
            let Some(Ok(device)) = kernel.device.and_then(|index| devices.get(index)) else { continue };
            // A launch that cannot run was refused by the driver, too, and is counted as such.
            kernel.prediction = models
                .predict(device, &case(kernel))
                .ok()
                .map(|said| Prediction::from(said).beside(measured_duration_ns(kernel)));
        }
        self.unpredicted = devices.into_iter().filter_map(Result::err).collect();
    }

    /// What the models expect of a kernel with blocks of another size, from its measured time.
    pub(crate) fn what_if(&self, models: &Models, found: &KernelFinding) -> Option<WhatIf> {
        let kernel = self.kernels.get(found.kernel)?;
        let device = known_device(self.devices.get(kernel.device?)?).ok()?;
        let measured_ns = measured_duration_ns(kernel)?.value;
        let from = case(kernel);
        let configuration = found.to?;
        let Configuration { grid, block } = configuration;
        let to = Case { launch: Launch { grid, block, ..from.launch }, ..from.clone() };
        let expected = models.what_if(&device, &from, measured_ns / 1e3, &to).ok()?;
        let duration_ns = Estimate::from(expected).scaled(1e3);
        Some(WhatIf { configuration, duration_ns, saves: duration_ns.saved_of(measured_ns) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::{Options, advise};
    use crate::rules::fixture::{kernel_of, profile_of, timed};

    /// As the driver of an H200 has them, as far as they matter here.
    const H200: [(u32, i32); 7] =
        [(75, 9), (76, 0), (16, 132), (13, 1_980_000), (36, 3_201_000), (37, 6016), (38, 62_914_560)];

    /// A timed kernel with a fault, and one that was not timed, on an H200.
    fn profile() -> Profile {
        let mut profile = profile_of([timed(kernel_of(5000, 100), 40_000.0), kernel_of(64, 256)]);
        profile.devices[0].attributes = H200.to_vec();
        profile
    }

    #[test]
    fn kernels_are_predicted_beside_what_was_measured() {
        let mut profile = profile();
        profile.predict(&Models::shipped());
        assert_eq!(profile.unpredicted, Vec::<String>::new());
        let [timed, untimed] = [0, 1].map(|index| profile.kernels[index].prediction.clone().expect("known"));
        assert_eq!(timed.basis, "kernel");
        let measured = timed.measured_duration_ns.expect("it was timed");
        assert_eq!((measured.value, measured.provenance()), (41_500.0, Provenance::Measured));
        assert_eq!(timed.measured_over_predicted, Some(41_500.0 / timed.duration_ns.value));
        assert_eq!((untimed.measured_duration_ns, untimed.measured_over_predicted), (None, None));
        for estimate in [timed.duration_ns, timed.achieved_occupancy, timed.sm_utilisation] {
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{estimate:?}");
            assert_eq!(estimate.provenance, Provenance::Predicted);
        }
    }

    #[test]
    fn devices_that_are_not_known_are_named() {
        for (attributes, why) in [
            (vec![(75, 9), (76, 0)], "its clocks and caches were not recorded"),
            (vec![(75, 99), (76, 0)], "the rules of its compute capability are not known"),
            (
                [&[(75, 8)], &H200[1..]].concat(),
                "it has compute capability 8.0, and the models were trained on 9.0",
            ),
        ] {
            let mut profile = profile();
            profile.devices[0].attributes = attributes;
            profile.predict(&Models::shipped());
            assert!(profile.kernels.iter().all(|kernel| kernel.prediction.is_none()));
            assert!(profile.unpredicted[0].contains(why), "{:?}", profile.unpredicted);
            assert!(profile.unpredicted[0].starts_with("no predictions for NVIDIA H100: "));
        }
        assert!(device("", &[]).unwrap_err().contains("a device that is not known"));
    }

    #[test]
    fn the_change_that_a_rule_names_is_judged_from_the_measured_time() {
        let profile = profile();
        let with = Options { models: Some(Models::shipped()), ..Options::default() };
        let found = |options| {
            let findings = advise(&profile, options).findings;
            findings.into_iter().find(|finding| finding.rule == "APEX-L01").expect("100 threads").kernels
        };
        let judged = found(&with);
        let what_if = judged[0].what_if.expect("it names a block size and was timed");
        let configuration = Configuration { grid: [3907, 1, 1], block: [128, 1, 1] };
        assert_eq!((what_if.configuration, judged[0].to), (configuration, Some(configuration)));
        let saved = |duration: f64| 1.0 - duration / 41_500.0;
        assert_eq!(what_if.saves.value, saved(what_if.duration_ns.value));
        assert_eq!(what_if.saves.low, saved(what_if.duration_ns.high));
        assert!(found(&Options::default())[0].what_if.is_none());
    }

    #[test]
    fn a_change_of_the_block_is_named_for_flat_launches_alone() {
        let mut profile = profile();
        profile.kernels[0].block = [50, 2, 1];
        let findings = advise(&profile, &Options::default()).findings;
        let finding = findings.iter().find(|finding| finding.rule == "APEX-L01").expect("100 threads");
        assert_eq!(finding.kernels[0].to, None);
    }
}
