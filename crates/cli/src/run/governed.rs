//! What `apex power run` adds to `apex run`: it chooses and claims the device before the program
//! starts, and governs its clock until the program has ended.
//!
//! Before the program starts, an error ends the command; afterwards it is a remark, because the
//! program must not be lost.

use crate::output;
use anyhow::{Context, bail};
use apex_power::{Claim, Governing, Gpu, Helped, LIBRARY, Nvml, Options, Sets, Setter, may_set_clocks};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The user's options.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Highest slowdown: 0.01 for 1%.
    pub most_slowdown: f64,
    /// Index of the device.
    pub gpu: Option<u32>,
    /// Whether this is a dry run, which sets nothing.
    pub is_dry: bool,
    /// Duration of a measurement window.
    pub window: Duration,
    /// The socket of the helper.
    pub socket: PathBuf,
}

/// A device that has been chosen and, except in a dry run, claimed.
pub struct Ready {
    gpu: Gpu,
    /// Sets its clock; `None` in a dry run.
    sets: Option<Box<dyn Sets>>,
    highest: u32,
    options: Options,
}

/// A device whose clock a thread governs.
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
        let sets = if self.is_dry { None } else { self.setter(&gpu)? };
        Ok(Ready { gpu, sets, highest, options })
    }

    /// Who sets the clock of a device: this process, a helper, or nobody.
    fn setter(&self, gpu: &Gpu) -> anyhow::Result<Option<Box<dyn Sets>>> {
        if may_set_clocks() {
            return own_setter(gpu).map(Some);
        }
        if !self.socket.exists() {
            output::remark(
                "setting GPU clocks needs root (in a container: with SYS_ADMIN), or the helper of an \
                 administrator (`apex power helper`). This is a dry run, which sets nothing",
            );
            return Ok(None);
        }
        let (helped, was_left) = Helped::claim(&self.socket, &gpu.uuid).with_context(|| {
            let socket = apex_untrusted::shown(&self.socket);
            format!("the helper at {socket} does not govern GPU {}; --dry-run sets nothing", gpu.index)
        })?;
        tell_left(was_left);
        Ok(Some(Box::new(helped)))
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
fn own_setter(gpu: &Gpu) -> anyhow::Result<Box<dyn Sets>> {
    let index = gpu.index;
    let claim = Claim::take(Path::new(Claim::FOLDER), &gpu.uuid);
    let claim = claim.with_context(|| format!("cannot claim GPU {index} in {}", Claim::FOLDER))?;
    let Some(claim) = claim else {
        bail!("another `apex power run` governs GPU {index}: wait for its end");
    };
    if gpu.is_set()? && !claim.is_noted()? {
        bail!("another tool has set the clock of GPU {index}: `nvidia-smi -i {index} -rgc` releases it");
    }
    let watchdog = watchdog(Path::new(LIBRARY), &gpu.uuid);
    let (setter, was_left) = Setter::start(gpu.clone(), claim, &watchdog)
        .with_context(|| format!("cannot govern GPU {index}; --dry-run sets nothing"))?;
    tell_left(was_left);
    Ok(Box::new(setter))
}

/// The command line that starts a watchdog, without the descriptor of the claim.
pub fn watchdog(library: &Path, uuid: &str) -> Vec<OsString> {
    vec!["/proc/self/exe".into(), "power".into(), "watchdog".into(), library.into(), uuid.into()]
}

fn tell_left(was_left: bool) {
    if was_left {
        output::remark(
            "an earlier run of APEX that was killed had left the GPU's clock set: it was released",
        );
    }
}

impl Ready {
    /// Governs by the session in this folder. A failure is a remark, because the program already
    /// runs.
    pub fn start(self, session: PathBuf) -> Option<Governed> {
        let governing = Governing::start(self.gpu, self.sets, session, self.options);
        let remark = |error| output::remark(format!("the GPU's clock is not governed: {error}"));
        let governing = governing.map_err(remark).ok()?;
        Some(Governed { governing, highest: self.highest })
    }
}

impl Governed {
    /// Releases the clock, and reports the result; with `is_quiet`, only warnings.
    pub fn finish(self, is_quiet: bool) {
        match self.governing.finish() {
            Some(outcome) if is_quiet => outcome.warnings(self.highest).into_iter().for_each(output::remark),
            Some(outcome) => outcome.sentences(self.highest).into_iter().for_each(output::remark),
            None => output::remark(
                "a call of NVML hangs; a clock that is set is released as soon as this process has ended",
            ),
        }
    }
}
