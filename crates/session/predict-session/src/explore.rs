//! The kernels of a recorded session in other configurations.
//!
//! Occupancy, waves and tail are computed for any device whose limits are known. A duration is
//! predicted as `apex predict --what-if` does it: from the measured one where the kernel was timed.

use crate::answer::{Answer, bounded};
use crate::programs::{Programs, Recorded};
use crate::recorded as session;
use apex_predict::lines::Question;
use apex_predict::{Change, Device, Models, resident};
use apex_profile::{Figure, Geometry, Kernel, Prediction, Profile, Provenance};
use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A kernel in another configuration, or in its own.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The launch.
    pub launch: LaunchConfig,
    /// The kernel's attributes; `None` where they are not known.
    pub attributes: Option<FunctionAttributes>,
    /// The computed geometry on the device. `None` where the launch cannot run, or the attributes
    /// or the device's limits are not known.
    pub geometry: Option<Geometry>,
    /// The reason why the launch cannot run.
    pub impossible: Option<String>,
    /// The models' prediction.
    pub prediction: Option<Prediction>,
    /// The provenance of the duration that the prediction starts from; `None` if nothing is
    /// changed.
    pub from: Option<Provenance>,
    /// The share of the kernel's duration that the change saves; below 0 where it costs.
    pub saves: Option<Figure>,
    /// The reason why nothing is predicted of a launch that can run.
    pub unpredicted: Option<String>,
}

/// A kernel in several block sizes.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Its identifier ([`Kernel::id`]).
    pub kernel: String,
    /// With its own block among them, by threads.
    pub blocks: Vec<Explored>,
}

/// Block sizes that are usual.
const USUAL: [u32; 5] = [64, 128, 256, 512, 1024];

/// The first kernels of a profile in the usual block sizes, as far as their blocks keep their
/// shape.
pub fn usual_blocks(models: &Models, profile: &Profile, most: usize) -> Vec<Tried> {
    let programs = Programs::of(profile);
    let tried = |kernel: &Kernel| {
        let (own, recorded) = (kernel.launch.block, programs.recorded(kernel));
        let mut blocks: Vec<Dim3> = USUAL.into_iter().filter_map(|threads| block_of(own, threads)).collect();
        blocks.push(own);
        blocks.sort_by_key(|block| block.to_array().map(u64::from).iter().product::<u64>());
        blocks.dedup();
        let in_block = |&block: &Dim3| {
            let change = Change { block: Some(block), ..Change::default() };
            explored(models, profile, &recorded, kernel, &change).ok()
        };
        Tried { kernel: kernel.id(), blocks: blocks.iter().filter_map(in_block).collect() }
    };
    let launched = profile.kernels.iter().filter(|kernel| kernel.launches.any());
    launched.take(most).filter(|kernel| kernel.attributes.is_some()).map(tried).collect()
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session has no such kernel.
    #[error("the session has no such kernel")]
    NoKernel,
    /// The change makes no sense for it.
    #[error("{0}")]
    Nonsense(String),
}

/// The kernels of a session with what other configurations of them depend on. It holds no more of
/// the session.
#[derive(Debug)]
pub struct Explorer {
    profile: Profile,
    /// Places of its kernels, by identifier.
    places: HashMap<String, usize>,
    /// The kernel that was asked about last, and what is known of its code: reading that takes
    /// longer than all else.
    last: Mutex<Option<(String, Arc<Recorded>)>>,
}

impl Explorer {
    /// Creates the explorer of a profile's kernels.
    pub fn of(profile: &Profile) -> Self {
        let kernel = |kernel: &Kernel| Kernel {
            short_name: kernel.short_name.clone(),
            symbol: kernel.symbol.clone(),
            device: kernel.device,
            launch: kernel.launch,
            attributes: kernel.attributes,
            gpu: kernel.gpu,
            code: kernel.code.clone(),
            ..Kernel::default()
        };
        let profile = Profile {
            devices: profile.devices.clone(),
            kernels: profile.kernels.iter().map(kernel).collect(),
            images: profile.images.clone(),
            ..Profile::default()
        };
        let places = profile.kernels.iter().enumerate().map(|(place, kernel)| (kernel.id(), place)).collect();
        Self { profile, places, last: Mutex::default() }
    }

    /// The kernel of an identifier ([`Kernel::id`]) with a change.
    ///
    /// # Errors
    /// If there is no such kernel, or if the change makes no sense for it.
    pub fn explore(&self, models: &Models, id: &str, change: &Change) -> Result<Explored, Refusal> {
        let kernel =
            self.places.get(id).map(|&place| &self.profile.kernels[place]).ok_or(Refusal::NoKernel)?;
        explored(models, &self.profile, &self.recorded(id, kernel), kernel, change).map_err(Refusal::Nonsense)
    }

    fn recorded(&self, id: &str, kernel: &Kernel) -> Arc<Recorded> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, recorded)) if known == id => Arc::clone(recorded),
            _ => {
                let recorded = Arc::new(Programs::of(&self.profile).recorded(kernel));
                *last = Some((id.to_owned(), Arc::clone(&recorded)));
                recorded
            }
        }
    }
}

/// A kernel of a profile, of whose code this is known, with a change.
///
/// # Errors
/// If the change makes no sense for it, as a sentence.
pub fn explored(
    models: &Models,
    profile: &Profile,
    recorded: &Recorded,
    kernel: &Kernel,
    change: &Change,
) -> Result<Explored, String> {
    let launch = change.apply_to_launch(kernel.launch)?;
    let attributes = change.apply_to_kernel(kernel.attributes)?;
    let device = kernel.device.and_then(|device| profile.devices.get(device));
    let limits = device.and_then(apex_profile::Device::limits);
    let runs = |attributes: &FunctionAttributes| match &limits {
        Some(limits) => resident(limits, &launch, attributes).map(drop).map_err(|why| why.to_string()),
        None => Ok(()),
    };
    let impossible = attributes.and_then(|attributes| runs(&attributes).err());
    let mut found = Explored {
        launch,
        attributes,
        geometry: None,
        prediction: None,
        from: None,
        saves: None,
        unpredicted: None,
        impossible,
    };
    if found.impossible.is_some() {
        return Ok(found);
    }
    found.geometry = limits
        .zip(attributes)
        .map(|(limits, attributes)| Geometry::of_launch(&limits, launch, &consenting(attributes, launch)));
    let known = device.ok_or_else(|| "the device that it ran on is not known".to_owned());
    match known.and_then(session::known_device) {
        Err(why) => found.unpredicted = Some(why),
        Ok(device) => found.predict(models, &device, recorded, kernel),
    }
    Ok(found)
}

impl Explored {
    /// Asks the models about the launch: how long it takes and, if it is not the recorded one, how
    /// much less than that.
    fn predict(&mut self, models: &Models, device: &Device, recorded: &Recorded, kernel: &Kernel) {
        let case = |launch, attributes: Option<FunctionAttributes>| {
            recorded.case(launch, attributes.map(|attributes| bounded(attributes, device)))
        };
        let measured = session::measured_duration_ns(kernel).map(|time| time.value / 1e3);
        let asked = Question {
            name: Some(kernel.short_name.clone()),
            launch: kernel.launch,
            kernel: kernel.attributes,
            measured_us: measured,
        };
        let from = case(kernel.launch, kernel.attributes);
        let answer = if (self.launch, self.attributes) == (kernel.launch, kernel.attributes) {
            Answer::of(models, device, &from, &asked)
        } else {
            Answer::of_change(models, device, &from, &case(self.launch, self.attributes), &asked)
        };
        self.from = answer.saves.map(|_| match measured {
            Some(_) => Provenance::Measured,
            None => Provenance::Predicted,
        });
        (self.prediction, self.saves) = (answer.prediction.map(session::shown), answer.saves);
        self.unpredicted = answer.error;
    }
}

/// A kernel that takes the dynamic shared memory of a launch: it consents to more where it must.
fn consenting(attributes: FunctionAttributes, launch: LaunchConfig) -> FunctionAttributes {
    let most = attributes.max_dynamic_shared_bytes.filter(|&most| most >= launch.dynamic_shared_bytes);
    FunctionAttributes { max_dynamic_shared_bytes: most, ..attributes }
}

/// Returns the block of `threads` threads that is most similar to another one: its x and z stay if
/// they can, and a block of one row stays one. `None` if it would need a part of a row.
pub fn block_of(like: Dim3, threads: u32) -> Option<Dim3> {
    if (like.y, like.z) == (1, 1) {
        return Some(Dim3 { x: threads, y: 1, z: 1 });
    }
    let rows = threads.checked_div(like.x.checked_mul(like.z)?)?;
    (rows > 0 && rows * like.x * like.z == threads).then_some(Dim3 { y: rows, ..like })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::Device;

    /// A profile of one kernel that was launched on a device with these attributes.
    fn profile(device: &[(u32, i32)], attributes: Option<FunctionAttributes>) -> Profile {
        let kernel = Kernel {
            symbol: "scale".to_owned(),
            device: Some(0),
            launch: LaunchConfig::new(1000, 256),
            attributes,
            ..Kernel::default()
        };
        let device = Device { attributes: device.to_vec(), ..Device::default() };
        Profile { devices: vec![device], kernels: vec![kernel], ..Profile::default() }
    }

    fn ask(profile: &Profile, change: Change) -> Result<Explored, Refusal> {
        Explorer::of(profile).explore(&Models::shipped(), &profile.kernels[0].id(), &change)
    }

    const KERNEL: FunctionAttributes = FunctionAttributes {
        registers: 64,
        static_shared_bytes: 0,
        local_bytes: 0,
        constant_bytes: 0,
        max_threads_per_block: 1024,
        max_dynamic_shared_bytes: Some(48 << 10),
        carveout: cuda_launch::Carveout::Default,
        barriers: 1,
        binary_version: 90,
        ptx_version: 80,
    };

    /// Compute capability 8.0 with 108 multiprocessors; its clocks are not known.
    const A100: [(u32, i32); 3] = [(75, 8), (76, 0), (16, 108)];

    #[test]
    fn another_configuration_lies_otherwise_on_the_device() {
        let profile = profile(&A100, Some(KERNEL));
        let now = ask(&profile, Change::default()).unwrap();
        let blocks = |explored: &Explored| explored.geometry.unwrap().occupancy.blocks_per_sm;
        assert_eq!(blocks(&now), 4);
        let fewer = ask(&profile, Change { registers: Some(32), ..Change::default() }).unwrap();
        assert_eq!(blocks(&fewer), 8);
        let block = Some(Dim3 { x: 512, y: 1, z: 1 });
        let larger = ask(&profile, Change { block, ..Change::default() }).unwrap();
        assert_eq!((larger.launch.grid.x, blocks(&larger)), (500, 2));
        // It has consented to less: the program would have to ask for more.
        let shared = ask(&profile, Change { dynamic_shared_bytes: Some(80 << 10), ..Change::default() });
        assert_eq!(blocks(&shared.unwrap()), 2);
        assert!(now.prediction.is_none() && now.unpredicted.unwrap().contains("clocks"));
    }

    #[test]
    fn usual_blocks_are_tried_beside_the_own_one() {
        let mut profile = profile(&A100, Some(KERNEL));
        profile.kernels[0].launch.block = Dim3 { x: 48, y: 4, z: 1 };
        profile.kernels[0].launches.calls = 1;
        let tried = usual_blocks(&Models::shipped(), &profile, 10);
        let blocks = tried[0].blocks.iter().map(|tried| tried.launch.block.to_array());
        assert_eq!(blocks.collect::<Vec<_>>(), [[48, 4, 1]], "no usual size is a multiple of 48");
        profile.kernels[0].launch.block = Dim3 { x: 100, y: 1, z: 1 };
        let tried = usual_blocks(&Models::shipped(), &profile, 10);
        let threads = tried[0].blocks.iter().map(|tried| tried.launch.block.x);
        assert_eq!(threads.collect::<Vec<_>>(), [64, 100, 128, 256, 512, 1024]);
        assert!(tried[0].kernel == profile.kernels[0].id());
        assert!(usual_blocks(&Models::shipped(), &profile, 0).is_empty());
    }

    #[test]
    fn what_cannot_run_says_why() {
        let profile = profile(&A100, Some(KERNEL));
        let refused = |change| {
            let explored = ask(&profile, change).unwrap();
            assert!(explored.geometry.is_none() && explored.prediction.is_none());
            explored.impossible.unwrap()
        };
        let block = Some(Dim3 { x: 2048, y: 1, z: 1 });
        assert!(refused(Change { block, ..Change::default() }).contains("above the device's limit of 1024"));
        let registers = refused(Change { registers: Some(256), ..Change::default() });
        assert!(registers.contains("registers of a thread: 256"), "{registers}");
        let shared = refused(Change { dynamic_shared_bytes: Some(200 << 10), ..Change::default() });
        assert!(shared.contains("shared memory of a block"), "{shared}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let unknown = profile(&A100, None);
        let why = ask(&unknown, Change { registers: Some(32), ..Change::default() }).unwrap_err();
        assert!(matches!(&why, Refusal::Nonsense(why) if why.contains("registers")), "{why}");
        assert!(ask(&unknown, Change::default()).unwrap().geometry.is_none());
        let none = Explorer::of(&unknown).explore(&Models::shipped(), "0", &Change::default());
        assert_eq!(none.unwrap_err(), Refusal::NoKernel);
    }

    #[test]
    fn blocks_keep_their_shape() {
        let block = |like: [u32; 3], threads| {
            let [x, y, z] = like;
            block_of(Dim3 { x, y, z }, threads).map(|block| block.to_array())
        };
        assert_eq!(block([100, 1, 1], 256), Some([256, 1, 1]));
        assert_eq!(block([16, 16, 1], 512), Some([16, 32, 1]));
        assert_eq!(block([8, 4, 2], 64), Some([8, 4, 2]));
        assert_eq!((block([48, 2, 1], 64), block([32, 8, 4], 64)), (None, None));
        assert_eq!(block([u32::MAX, 2, u32::MAX], 64), None);
    }
}
