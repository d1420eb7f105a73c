//! What `apex power run` does beside `apex run`: chooses the device before the program starts, and
//! governs it until the program has ended.

use crate::output;
use anyhow::{Context, bail};
use apex_power::{Claim, Governing, Gpu, LIBRARY, Nvml, Options, Setter, may_set_clocks, reasons};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the user wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Highest slowdown: 0.01 for 1%.
    pub most_slowdown: f64,
    /// Index of the device.
    pub gpu: Option<u32>,
    /// Whether nothing is to be set.
    pub is_dry: bool,
    /// Time for which a clock is measured at once.
    pub window: Duration,
}

/// A device that is ready to be governed.
pub struct Ready {
    device: Device,
    highest: u32,
    options: Options,
}

enum Device {
    Set(Box<Setter>, bool),
    Read(Gpu),
}

/// A device that is governed.
pub struct Governed {
    governing: Governing,
    highest: u32,
}

impl Wanted {
    /// Finds the device, and starts the watchdog if a clock may be set.
    ///
    /// # Errors
    /// If there is no such device, or if another tool may hold its clock.
    pub fn prepare(&self) -> anyhow::Result<Ready> {
        let nvml = Nvml::open(Path::new(LIBRARY));
        let nvml =
            nvml.context("cannot govern a clock: there is no NVML (libnvidia-ml.so.1), or no driver")?;
        let gpu = chosen(nvml.gpus(), self.gpu)?;
        if gpu.is_divided {
            bail!(
                "GPU {} is divided into MIG instances, which share its clock: it is not governed",
                gpu.index
            );
        }
        let Some(highest) = gpu.clocks.last().copied() else {
            bail!("GPU {} tells no clocks that could be set", gpu.index);
        };
        let options = Options { most_slowdown: self.most_slowdown, window: self.window };
        let is_dry = self.is_dry || !may_set_clocks();
        if is_dry && !self.is_dry {
            output::remark(
                "setting GPU clocks needs root (in a container: with SYS_ADMIN). This is a dry run, which sets \
                 nothing; `apex power run --help` says how to give the right",
            );
        }
        let device = if is_dry { Device::Read(gpu) } else { claimed(gpu)? };
        Ok(Ready { device, highest, options })
    }
}

/// The device of this index, or the only one.
fn chosen(mut gpus: Vec<Gpu>, index: Option<u32>) -> anyhow::Result<Gpu> {
    let found = match index {
        Some(index) => gpus.iter().position(|gpu| gpu.index == index),
        None if gpus.len() > 1 => bail!("there are {} GPUs: name one with --gpu N", gpus.len()),
        None => (!gpus.is_empty()).then_some(0),
    };
    match (found, index) {
        (Some(found), _) => Ok(gpus.swap_remove(found)),
        (None, Some(index)) => bail!("there is no GPU {index}: NVML has {}", gpus.len()),
        (None, None) => bail!("NVML has no GPU that this user may see"),
    }
}

/// Claims the device for this run, with a watchdog.
fn claimed(gpu: Gpu) -> anyhow::Result<Device> {
    let index = gpu.index;
    let claim = Claim::take(Path::new(Claim::FOLDER), &gpu.uuid);
    let claim = claim.with_context(|| format!("cannot claim GPU {index} in {}", Claim::FOLDER))?;
    let Some(claim) = claim else {
        bail!("another `apex power run` governs GPU {index}: wait for its end");
    };
    if gpu.state()?.reasons & reasons::SETTING != 0 && !claim.is_noted()? {
        bail!("another tool has set the clock of GPU {index}: `nvidia-smi -i {index} -rgc` releases it");
    }
    let mut watchdog = Command::new("/proc/self/exe");
    watchdog.args(["power", "watchdog", LIBRARY, &gpu.uuid]);
    let (setter, was_left) = Setter::start(gpu, claim, watchdog)
        .with_context(|| format!("cannot govern GPU {index}; --dry-run sets nothing"))?;
    Ok(Device::Set(Box::new(setter), was_left))
}

impl Ready {
    /// Governs by the session in this folder. What fails is a remark: the program runs already.
    pub fn start(self, session: PathBuf) -> Option<Governed> {
        let governing = match self.device {
            Device::Set(setter, was_left) => Governing::set((*setter, was_left), session, self.options),
            Device::Read(gpu) => Governing::dry(gpu, session, self.options),
        };
        let remark = |error| output::remark(format!("the GPU's clock is not governed: {error}"));
        let governing = governing.map_err(remark).ok()?;
        Some(Governed { governing, highest: self.highest })
    }
}

impl Governed {
    /// Releases the clock, and says what became of the run unless that is not wanted.
    pub fn finish(self, is_quiet: bool) {
        match self.governing.finish() {
            Some(_) if is_quiet => {}
            Some(outcome) => outcome.sentences(self.highest).into_iter().for_each(output::remark),
            None => output::remark(
                "a call of NVML hangs; a clock that is set is released as soon as this process has ended",
            ),
        }
    }
}
