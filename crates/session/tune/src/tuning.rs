//! Knowledge about a program's launch shapes, from the first recording to the decision.

use crate::compare::{Ratio, rounded};
use crate::found::{Group, groups};
use crate::pairs::Pair;
use crate::samples::{self, OfSize};
use crate::{candidates, document};
use apex_predict::Models;
use apex_profile::Profile;
use apex_reshape::Proof;
pub use apex_search::MOST_RATIO;
use apex_trace::Session;
use cuda_launch::Dim3;
use launch_condition::{Checked, Choice, Condition, Plan, PlannedKernel, code_hash};
use serde::{Deserialize, Serialize};

/// The least share of the GPU time for which a kernel is looked at.
const LEAST_SHARE: f64 = 0.01;
/// The least launches of a kernel in one size, of which some are timed.
const LEAST_LAUNCHES: u64 = 40;

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The device's name, as the driver gives it.
    pub device: String,
    /// The driver's version: 13000 is CUDA 13.0.
    pub driver_version: u32,
    /// Kernels for which other blocks are proven to change no result.
    pub kernels: Vec<Tuned>,
    /// Kernels that keep their blocks because nothing is proven.
    pub refused: Vec<Refused>,
    /// Pairs of launches that are made as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
}

/// A kernel for which other blocks change no result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// The hash of its PTX.
    #[serde(with = "document::hexadecimal")]
    pub code: u128,
    /// Its name in the PTX.
    pub name: String,
    /// Conditions that its launches must meet.
    pub condition: Condition,
    /// Its launches by size.
    pub sizes: Vec<Size>,
}

/// Launches of one kernel in one block and size class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// The block that the program asks for.
    pub asked: Dim3,
    /// The binary logarithm of the launches' threads, rounded down.
    pub size_class: u32,
    /// Launches in the last recorded run.
    pub launches: u64,
    /// Share of the GPU time of all kernels in that run, measured.
    pub share: f64,
    /// The blocks that were tried in the search.
    pub tried: Vec<Tried>,
    /// The other block, if one is better.
    pub change: Option<Change>,
    /// Reason for which it keeps the program's block, if it does.
    pub kept: Option<Kept>,
}

/// A block that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    /// The block.
    pub block: Dim3,
    /// Its time divided by that of the program's block; `None` with too few pairs.
    pub ratio: Option<Ratio>,
}

/// A better block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The block.
    pub block: Dim3,
    /// Median time of a launch in the program's block, in nanoseconds, measured.
    pub before_ns: f64,
    /// Median time of a launch in this block.
    pub after_ns: f64,
    /// The ratio of paired launches in the confirmation.
    pub ratio: Ratio,
}

/// Reason for which launches keep the program's block though others are proven.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case", deny_unknown_fields)]
pub enum Kept {
    /// There are too few launches to measure.
    FewLaunches,
    /// No other block is worth trying.
    NoCandidate,
    /// Too few pairs of launches were timed.
    FewPairs,
    /// The best other block is not measurably faster.
    Tie {
        /// The block.
        block: Dim3,
        /// Its ratio.
        ratio: Ratio,
    },
}

/// A kernel without a proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// Share of the GPU time of all kernels, measured.
    pub share: f64,
    /// The reason, as a sentence without full stop.
    pub reason: String,
    /// The instruction that forbids it, as PTX text; empty if there is none.
    pub instruction: String,
    /// File and line of the source, if the PTX gives them.
    pub source: Option<(String, u32)>,
}

impl Tuning {
    /// Reads the first recording: what is proven, and which blocks are worth trying. What an
    /// earlier tuning of the same device and driver decided stays.
    pub fn begin(session: &Session, profile: &Profile, models: &Models, earlier: Option<&Tuning>) -> Self {
        let device = profile.devices.first();
        let mut tuning = Self {
            device: device.map_or_else(String::new, |device| device.name.clone()),
            driver_version: device.map_or(0, |device| device.driver_version),
            ..Self::default()
        };
        if let Some(earlier) = earlier.filter(|earlier| earlier.is_of_device_of(&tuning)) {
            tuning.kernels.clone_from(&earlier.kernels);
            tuning.pairs.clone_from(&earlier.pairs);
            tuning.kernels.iter_mut().for_each(Tuned::keep_decisions);
        }
        for group in groups(session, profile).iter().filter(|group| group.share >= LEAST_SHARE) {
            if let Err(refused) = tuning.add(profile, models, group) {
                tuning.refused.push(*refused);
            }
        }
        tuning
    }

    /// Whether both are of one device and driver: times of others say nothing about these.
    pub fn is_of_device_of(&self, other: &Self) -> bool {
        (&self.device, self.driver_version) == (&other.device, other.driver_version)
    }

    fn add(&mut self, profile: &Profile, models: &Models, group: &Group<'_>) -> Result<(), Box<Refused>> {
        let no = |reason: &str| Box::new(Refused::of(group, reason));
        let Some((code, name, asked, size_class)) = group.key.clone() else {
            return Err(no("the driver was given machine code, or PTX that the session does not hold"));
        };
        let place = self.kernels.iter().position(|kernel| kernel.code == code && kernel.name == name);
        let (launches, share) = (group.launches, rounded(group.share));
        let is_this = |size: &&mut Size| (size.asked, size.size_class) == (asked, size_class);
        if let Some(place) = place
            && let Some(known) = self.kernels[place].sizes.iter_mut().find(is_this)
        {
            (known.launches, known.share) = (launches, share);
            return Ok(());
        }
        if group.kernel.launch.dynamic_shared_bytes > 0 {
            return Err(no("its launches have dynamic shared memory"));
        }
        let module = module(profile, group, code).ok_or_else(|| no("its PTX cannot be read"))?;
        let proof = Proof::of(&module, &name).map_err(|why| Refused::by(group, &why))?;
        let condition = proof.condition().map_err(|why| Refused::by(group, &why))?;
        if Checked::of(&condition).is_none() {
            return Err(no("the condition of the proof is too large to be checked at each launch"));
        }
        let blocks = candidates::of(&proof, models, profile, group.kernel);
        let kept = match () {
            () if group.launches < LEAST_LAUNCHES => Some(Kept::FewLaunches),
            () if blocks.is_empty() => Some(Kept::NoCandidate),
            () => None,
        };
        let tried = blocks.into_iter().map(|block| Tried { block, ratio: None }).collect();
        let size = Size { asked, size_class, launches, share, tried, change: None, kept };
        match place {
            Some(place) => self.kernels[place].sizes.push(size),
            None => self.kernels.push(Tuned { code, name, condition, sizes: vec![size] }),
        }
        Ok(())
    }

    /// Whether some launches have blocks to try.
    pub fn is_open(&self) -> bool {
        self.sizes().any(Size::is_open)
    }

    fn sizes(&self) -> impl Iterator<Item = &Size> {
        self.kernels.iter().flat_map(|kernel| &kernel.sizes)
    }

    /// The plan of the search: launches draw among all candidates.
    pub fn search(&self) -> Plan {
        self.plan_of(|size| {
            let blocks = size.tried.iter().map(|tried| tried.block).collect();
            size.is_open().then_some((blocks, true))
        })
    }

    /// Takes the times of the search.
    pub fn searched(&mut self, session: &Session) {
        self.take(session, |size, times| {
            for tried in &mut size.tried {
                tried.ratio = times.and_then(|times| times.ratio(size.asked, tried.block));
            }
            if size.tried.iter().all(|tried| tried.ratio.is_none()) {
                size.kept = Some(Kept::FewPairs);
            }
        });
    }

    /// The plan of the confirmation: launches draw between the program's block and the best one.
    pub fn confirmation(&self) -> Plan {
        self.plan_of(|size| {
            let (block, _) = size.best()?;
            size.is_open().then_some((vec![block], true))
        })
    }

    /// Takes the times of the confirmation, and decides.
    pub fn confirmed(&mut self, session: &Session) {
        self.take(session, |size, times| {
            let Some((block, _)) = size.best() else { return };
            let ratio = times.and_then(|times| times.ratio(size.asked, block));
            let medians = times.map(|times| [size.asked, block].map(|block| times.median_ns(block)));
            match (ratio, medians) {
                (Some(ratio), Some([Some(before_ns), Some(after_ns)])) if ratio.high < MOST_RATIO => {
                    let [before_ns, after_ns] = [before_ns, after_ns].map(f64::round);
                    size.change = Some(Change { block, before_ns, after_ns, ratio });
                }
                (Some(ratio), _) => size.kept = Some(Kept::Tie { block, ratio }),
                (None, _) => size.kept = Some(Kept::FewPairs),
            }
        });
    }

    /// The plan of the decisions: each launch is made in the better block, and pairs as one.
    pub fn plan(&self) -> Plan {
        let pairs = self.pairs.iter().map(Pair::planned).collect();
        Plan { pairs, ..self.plan_of(|size| Some((vec![size.change.as_ref()?.block], false))) }
    }

    /// Adds a pair, in place of an earlier one of the same kernels.
    pub fn add_pair(&mut self, pair: Pair) {
        self.pairs.retain(|known| !known.is_of_kernels_of(&pair));
        self.pairs.push(pair);
    }

    /// The share of the GPU time that the better blocks save, computed from shares and ratios that
    /// were measured.
    pub fn saved_share(&self) -> f64 {
        let saved = |size: &Size| Some(size.share * (1.0 - size.change.as_ref()?.ratio.median));
        self.sizes().filter_map(saved).sum()
    }

    fn take(&mut self, session: &Session, mut decide: impl FnMut(&mut Size, Option<&OfSize>)) {
        let samples = samples::of(session);
        for kernel in &mut self.kernels {
            for size in kernel.sizes.iter_mut().filter(|size| size.is_open()) {
                let key = (kernel.code, kernel.name.clone(), size.asked, size.size_class);
                decide(size, samples.get(&key));
            }
        }
    }

    fn plan_of(&self, blocks: impl Fn(&Size) -> Option<(Vec<Dim3>, bool)>) -> Plan {
        let planned = |kernel: &Tuned| {
            let of_size = |size: &Size| {
                let (blocks, draws) = blocks(size)?;
                Some(Choice { asked: size.asked, size_class: size.size_class, blocks, draws })
            };
            let choices: Vec<Choice> = kernel.sizes.iter().filter_map(of_size).collect();
            let Tuned { code, name, condition, .. } = kernel.clone();
            (!choices.is_empty()).then_some(PlannedKernel { code, name, condition, choices })
        };
        Plan {
            device: self.device.clone(),
            driver_version: self.driver_version,
            kernels: self.kernels.iter().filter_map(planned).collect(),
            pairs: Vec::new(),
        }
    }
}

impl Tuned {
    /// Keeps what is decided for all runs, without the launches and shares of the run that decided
    /// it: shares of different runs have no sum.
    fn keep_decisions(&mut self) {
        self.sizes.retain(Size::is_decided);
        self.sizes.iter_mut().for_each(|size| (size.launches, size.share) = (0, 0.0));
    }
}

impl Size {
    /// Whether it is decided for all runs: where too few launches decided nothing, another run may.
    fn is_decided(&self) -> bool {
        !self.is_open() && !matches!(self.kept, Some(Kept::FewLaunches | Kept::FewPairs))
    }

    /// Whether it is not decided yet.
    fn is_open(&self) -> bool {
        self.change.is_none() && self.kept.is_none()
    }

    /// The best of the blocks that were tried.
    fn best(&self) -> Option<(Dim3, Ratio)> {
        let measured = self.tried.iter().filter_map(|tried| Some((tried.block, tried.ratio?)));
        measured.min_by(|a, b| a.1.median.total_cmp(&b.1.median))
    }
}

impl Refused {
    fn of(group: &Group<'_>, reason: &str) -> Self {
        Self {
            name: group.kernel.symbol.clone(),
            share: rounded(group.share),
            reason: reason.to_owned(),
            instruction: String::new(),
            source: None,
        }
    }

    fn by(group: &Group<'_>, why: &apex_reshape::Refusal) -> Box<Self> {
        Box::new(Self {
            instruction: why.place.instruction.clone(),
            source: why.place.source.clone(),
            ..Self::of(group, why.reason.sentence())
        })
    }
}

/// The module with this hash among the images of a kernel.
fn module(profile: &Profile, group: &Group<'_>, code: u128) -> Option<ptx::Module> {
    let packed = profile.images.get(group.kernel.code.as_ref()?.image.as_deref()?)?;
    let (major, minor) = profile.devices.get(group.kernel.device?)?.compute_capability?;
    let parts = fatbin::kept::unpack(packed).ok()?;
    let texts = parts.iter().filter_map(|part| fatbin::compiled_ptx(part, 10 * major + minor));
    let text = texts.into_iter().find(|text| code_hash(text) == code)?;
    ptx::parse(std::str::from_utf8(&text).ok()?).ok()
}
