//! Predictions for the kernels of a recorded session, beside the measurements.
//!
//! What a session measures is comparable after [`ABOVE_GPU_TIME_NS`] is added
//! ([`GpuTime`](apex_profile::GpuTime)).

use apex_predict::measured::ABOVE_GPU_TIME_NS;
use apex_predict::{Basis, Case, Device, Estimate, Impossible, Models, Placed, bounds};
use apex_profile::{Figure, Kernel, KernelPrediction, Prediction, Predictions, Profile, Work};
use occupancy::DeviceLimits;

use crate::bound;
use crate::programs::{Programs, Recorded};

/// Share of the GPU time from which on a kernel's code is looked into: at most 20 kernels have it.
pub const BUSY: f64 = 0.05;

/// A predicted quantity as a figure.
pub fn figure(estimate: Estimate) -> Figure {
    Figure::predicted(estimate.value, (estimate.low, estimate.high))
}

/// Converts a prediction to the form of a profile.
fn as_profiled(said: apex_predict::Prediction) -> Prediction {
    Prediction {
        duration_ns: Some(figure(said.duration_us).scaled(1e3)),
        achieved_occupancy: figure(said.achieved_occupancy),
        sm_utilisation: figure(said.sm_utilisation),
        warp_efficiency: figure(said.warp_efficiency),
        basis: said.basis.name().to_owned(),
        unfamiliar: said.unfamiliar,
        measured_duration_ns: None,
        measured_over_predicted: None,
        bound: None,
        work: None,
    }
}

/// The device of this name and these pairs of `CUdevice_attribute` and value, as the models see it.
///
/// # Errors
/// A sentence about the missing facts.
pub fn device(name: &str, attributes: &[(u32, i32)]) -> Result<Device, String> {
    let shown = if name.is_empty() { "a device that is not known" } else { name };
    if DeviceLimits::from_pairs(attributes).is_none() {
        return Err(format!("no predictions for {shown}: the rules of its compute capability are not known"));
    }
    Device::from_pairs(name, attributes)
        .ok_or_else(|| format!("no predictions for {shown}: its clocks and caches were not recorded"))
}

/// Checks that the shipped models were trained on devices like this one.
///
/// # Errors
/// A sentence that they were not.
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
/// A sentence about the reason why nothing is predicted for it.
pub fn known_device(recorded: &apex_profile::Device) -> Result<Device, String> {
    let device = device(&recorded.name, &recorded.attributes)?;
    check_trained(&device).map(|()| device)
}

/// The devices that there are predictions for.
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
    /// The reason why there are none.
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
    /// The reason why there are none.
    pub fn among(self, devices: &[apex_profile::Device]) -> Result<Device, String> {
        let known = devices.iter().map(|device| self.device(&device.name, &device.attributes));
        known.reduce(Result::or).unwrap_or_else(|| Err("the session names no device".to_owned()))
    }
}

/// Measured duration of a kernel, nanoseconds.
pub fn measured_duration_ns(kernel: &Kernel) -> Option<Figure> {
    let gpu = kernel.gpu.as_ref()?;
    let samples = gpu.each.count;
    let error = gpu.deviation_ns.map(|deviation| deviation / (samples.max(1) as f64).sqrt());
    Some(Figure::sampled(gpu.each.mean_ns + ABOVE_GPU_TIME_NS, samples, error))
}

/// Returns the prediction for a launch, beside the measurement, and its limit.
///
/// # Errors
/// The reason why the launch cannot run.
pub fn prediction(
    models: &Models,
    device: &Device,
    case: &Case,
    measured_ns: Option<Figure>,
) -> Result<Prediction, Impossible> {
    let said = as_profiled(models.predict(device, case)?).beside(measured_ns);
    let bound = bound::of(&Placed::new(device, case)?, &said);
    let work = case.work.as_ref().filter(|_| said.basis == Basis::Work.name()).map(|work| Work {
        warp_instructions: work.total(),
        global_bytes: bounds::global_bytes(work),
        assumed: work.assumed,
    });
    Ok(Prediction { bound, work, ..said })
}

/// Returns the part of a prediction that is shown: no predicted duration beside a measured one,
/// unless it is known what the launches execute. Attributes and configuration alone tell so little
/// about it that its interval spans a factor of hundreds.
pub fn shown(said: Prediction) -> Prediction {
    let is_vague = said.basis != Basis::Work.name() && said.measured_duration_ns.is_some();
    let duration_ns = said.duration_ns.filter(|_| !is_vague);
    let measured_over_predicted = said.measured_over_predicted.filter(|_| !is_vague);
    Prediction { duration_ns, measured_over_predicted, ..said }
}

/// Predictions for all kernels of a profile, on devices that the models know, and what is known of
/// the kernels' code.
pub fn predictions(profile: &Profile, models: &Models) -> Predictions {
    let devices: Vec<_> = profile.devices.iter().map(known_device).collect();
    let programs = Programs::of(profile);
    let all: f64 = profile.kernels.iter().filter_map(Kernel::gpu_total_ns).sum();
    let is_busy = |kernel: &Kernel| kernel.gpu_total_ns().is_some_and(|time| time >= BUSY * all);
    let of_kernel = |kernel| {
        let recorded = programs.recorded(kernel);
        KernelPrediction {
            known: recorded.known(),
            said: predicted(models, &devices, kernel, &recorded),
            facts: if is_busy(kernel) { programs.facts(kernel) } else { Vec::new() },
        }
    };
    let kernels = profile.kernels.iter().map(of_kernel).collect();
    Predictions { kernels, missing: devices.into_iter().filter_map(Result::err).collect() }
}

fn predicted(
    models: &Models,
    devices: &[Result<Device, String>],
    kernel: &Kernel,
    recorded: &Recorded,
) -> Option<Prediction> {
    let device = devices.get(kernel.device?)?.as_ref().ok()?;
    let case = recorded.case(kernel.launch, kernel.attributes);
    // The driver refuses a launch that cannot run: it is counted as failed, and nothing is
    // predicted.
    prediction(models, device, &case, measured_duration_ns(kernel)).ok().map(shown)
}
