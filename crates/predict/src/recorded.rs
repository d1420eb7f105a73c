//! What the models say of the kernels of a recorded session, beside what was measured.
//!
//! A predicted duration is that of `gpu__time_duration` (Nsight Compute): from the start of the
//! first block to the end of the last one. It is longer than the GPU time of a session
//! ([`GpuTime`](apex_profile::GpuTime)), and than a data set's time above an empty kernel's. They
//! are comparable after [`ABOVE_GPU_TIME_NS`] or [`ABOVE_TIME_NS`] is added.

use apex_profile::{Figure, Kernel, KnownCode, Profile, Work};
use occupancy::DeviceLimits;
use std::collections::BTreeMap;

use crate::programs::{Programs, Recorded};
use crate::{Basis, Case, Device, Impossible, Models, Placed, bound, bounds};

/// Duration of a kernel less its time above an empty kernel, nanoseconds: the median of the 4,716
/// launches of 0.3 to 30 µs in `data/launches-h200`, where both were measured. Half of them lie
/// between 1.38 and 1.63 µs.
pub const ABOVE_TIME_NS: f64 = 1_500.0;

/// Duration of a kernel less its GPU time, nanoseconds. The recorder takes an empty kernel to have
/// a GPU time of 0.4 µs.
pub const ABOVE_GPU_TIME_NS: f64 = ABOVE_TIME_NS - 400.0;

/// Share of the GPU time from which on a kernel's code is looked into: at most 20 kernels have it.
const BUSY: f64 = 0.05;

impl From<crate::Estimate> for Figure {
    fn from(estimate: crate::Estimate) -> Self {
        let crate::Estimate { value, low, high } = estimate;
        Self::predicted(value, (low, high))
    }
}

impl From<crate::Prediction> for apex_profile::Prediction {
    fn from(said: crate::Prediction) -> Self {
        Self {
            duration_ns: Some(Figure::from(said.duration_us).scaled(1e3)),
            achieved_occupancy: said.achieved_occupancy.into(),
            sm_utilisation: said.sm_utilisation.into(),
            warp_efficiency: said.warp_efficiency.into(),
            basis: said.basis.name().to_owned(),
            unfamiliar: said.unfamiliar,
            measured_duration_ns: None,
            measured_over_predicted: None,
            bound: None,
            work: None,
        }
    }
}

/// The device of this name and these pairs of `CUdevice_attribute` and value, as the models see it.
///
/// # Errors
/// What is not known of it, as a sentence.
pub fn device(name: &str, attributes: &[(u32, i32)]) -> Result<Device, String> {
    let shown = if name.is_empty() { "a device that is not known" } else { name };
    if DeviceLimits::from_pairs(attributes).is_none() {
        return Err(format!("no predictions for {shown}: the rules of its compute capability are not known"));
    }
    Device::from_pairs(name, attributes)
        .ok_or_else(|| format!("no predictions for {shown}: its clocks and caches were not recorded"))
}

/// Whether the shipped models were trained on devices like this one.
///
/// # Errors
/// That they were not, as a sentence.
pub fn check_trained(device: &Device) -> Result<(), String> {
    let capability = |device: &Device| device.limits.attributes.compute_capability;
    let trained = Device::trained();
    let ((major, minor), (x, y)) = (capability(device), capability(&trained[0]));
    if (major, minor) == (x, y) {
        return Ok(());
    }
    let (name, known) = (&device.name, trained.map(|device| device.name).join(", "));
    Err(format!(
        "no predictions for {name}: it has compute capability {major}.{minor}, and the models were trained on {x}.{y} \
         ({known})"
    ))
}

/// The recorded device, if the shipped models were trained on devices like it.
///
/// # Errors
/// Why nothing is predicted for it, as a sentence.
pub fn known_device(recorded: &apex_profile::Device) -> Result<Device, String> {
    let device = device(&recorded.name, &recorded.attributes)?;
    check_trained(&device).map(|()| device)
}

/// Which devices there are predictions for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trained {
    /// Those like the ones that the shipped models were trained on.
    Shipped,
    /// Any: the models are the user's own.
    Elsewhere,
}

impl Trained {
    /// The device of this name and these attributes, if there are predictions for it.
    ///
    /// # Errors
    /// Why there are none.
    pub fn device(self, name: &str, attributes: &[(u32, i32)]) -> Result<Device, String> {
        let device = device(name, attributes)?;
        match self {
            Self::Shipped => check_trained(&device)?,
            Self::Elsewhere => {}
        }
        Ok(device)
    }

    /// The first of a session's devices that there are predictions for.
    ///
    /// # Errors
    /// Why there are none.
    pub fn among(self, devices: &[apex_profile::Device]) -> Result<Device, String> {
        let known = devices.iter().map(|device| self.device(&device.name, &device.attributes));
        known.reduce(Result::or).unwrap_or_else(|| Err("the session names no device".to_owned()))
    }
}

/// Measured duration of a kernel, nanoseconds.
pub fn measured_duration_ns(kernel: &apex_profile::Kernel) -> Option<Figure> {
    let gpu = kernel.gpu.as_ref()?;
    let samples = gpu.each.count;
    let error = gpu.deviation_ns.map(|deviation| deviation / (samples.max(1) as f64).sqrt());
    Some(Figure::sampled(gpu.each.mean_ns + ABOVE_GPU_TIME_NS, samples, error))
}

/// The shares of the time that each basis, or whatever else divides kernels, accounts for, of
/// kernels each with its basis and its time.
pub fn basis_shares<'a>(kernels: impl Iterator<Item = (&'a str, f64)>) -> BTreeMap<String, f64> {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for (basis, time) in kernels {
        *shares.entry(basis.to_owned()).or_default() += time;
    }
    let all: f64 = shares.values().sum();
    shares.retain(|_, time| *time > 0.0);
    shares.values_mut().for_each(|time| *time /= all);
    shares
}

/// What the models say of a launch, beside what was measured, and what bounds it.
///
/// # Errors
/// Why the launch cannot run.
pub fn prediction(
    models: &Models,
    device: &Device,
    case: &Case,
    measured_ns: Option<Figure>,
) -> Result<apex_profile::Prediction, Impossible> {
    let said = apex_profile::Prediction::from(models.predict(device, case)?).beside(measured_ns);
    let bound = bound::of(&Placed::new(device, case)?, &said);
    let work = case.work.as_ref().filter(|_| said.basis == Basis::Work.name()).map(|work| Work {
        warp_instructions: work.total(),
        global_bytes: bounds::global_bytes(work),
        assumed: work.assumed,
    });
    Ok(apex_profile::Prediction { bound, work, ..said })
}

/// What is shown of a session's kernel: no predicted duration beside a measured one, unless it is
/// known what its launches execute. Attributes and configuration alone tell so little of it that
/// its interval spans a factor of hundreds.
pub fn shown(said: apex_profile::Prediction) -> apex_profile::Prediction {
    let is_vague = said.basis != Basis::Work.name() && said.measured_duration_ns.is_some();
    let duration_ns = said.duration_ns.filter(|_| !is_vague);
    let measured_over_predicted = said.measured_over_predicted.filter(|_| !is_vague);
    apex_profile::Prediction { duration_ns, measured_over_predicted, ..said }
}

/// Predicts all kernels of a profile on devices that the models know; [`Profile::unpredicted`] says
/// why not, where they do not. Says too what is known of the kernels' code.
pub fn predict(profile: &mut Profile, models: &Models) {
    let devices: Vec<_> = profile.devices.iter().map(known_device).collect();
    let programs = Programs::of(profile);
    let of_kernel = |kernel| {
        let recorded = programs.recorded(kernel);
        (recorded.known(), predicted(models, &devices, kernel, &recorded))
    };
    let answers: Vec<_> = profile.kernels.iter().map(of_kernel).collect();
    let all: f64 = profile.kernels.iter().filter_map(Kernel::gpu_total_ns).sum();
    let is_busy = |kernel: &Kernel| kernel.gpu_total_ns().is_some_and(|time| time >= BUSY * all);
    let of_busy = |kernel| if is_busy(kernel) { programs.facts(kernel) } else { Vec::new() };
    let facts: Vec<_> = profile.kernels.iter().map(of_busy).collect();
    for ((kernel, (known, said)), facts) in profile.kernels.iter_mut().zip(answers).zip(facts) {
        kernel.prediction = said;
        if let Some(code) = &mut kernel.code {
            (code.known, code.facts) = (known, facts);
        }
    }
    profile.prediction_basis =
        basis_shares(timed(profile, |kernel| kernel.prediction.as_ref().map(|said| said.basis.as_str())));
    let known = |kernel: &apex_profile::Kernel| {
        let known = kernel.code.as_ref().and_then(|code| code.known.as_ref());
        Some(known.map_or("none", KnownCode::name))
    };
    let shares = basis_shares(timed(profile, known));
    if let Some(code) = &mut profile.code {
        code.known = shares;
    }
    profile.unpredicted = devices.into_iter().filter_map(Result::err).collect();
}

/// The kernels of which this holds something, each with its GPU time.
fn timed<'p>(
    profile: &'p Profile,
    of: impl Fn(&'p apex_profile::Kernel) -> Option<&'p str>,
) -> impl Iterator<Item = (&'p str, f64)> {
    profile.kernels.iter().filter_map(move |kernel| Some((of(kernel)?, kernel.gpu_total_ns()?)))
}

fn predicted(
    models: &Models,
    devices: &[Result<Device, String>],
    kernel: &apex_profile::Kernel,
    recorded: &Recorded,
) -> Option<apex_profile::Prediction> {
    let device = devices.get(kernel.device?)?.as_ref().ok()?;
    let case = recorded.case(kernel.launch, kernel.attributes);
    // The driver refuses a launch that cannot run: it is counted as failed, and nothing is
    // predicted.
    prediction(models, device, &case, measured_duration_ns(kernel)).ok().map(shown)
}
