//! The memory that recorded launches access: the access sets of their PTX, evaluated for recorded
//! arguments.
//!
//! Recorded addresses are places within numbered allocations, so only launches with recorded
//! arguments can be compared. A launch without them, or of a kernel whose PTX was not recorded or
//! has no access set, may access anything ([`Spans::UNKNOWN`]).

use crate::steps::Launch;
use apex_fuse::{Given, around};
use apex_predict_session::programs::{Programs, Recorded};
use apex_profile::{Kernel, Profile};
use apex_trace::Process;
use launch_condition::{Allocations, KernelAccess, Spans};
use std::collections::{BTreeMap, HashMap};

/// What is known of a profile's kernels.
pub(crate) struct Memory<'p> {
    profile: &'p Profile,
    programs: &'p Programs<'p>,
    /// By symbol and image; `None` if a kernel may access anything.
    accesses: HashMap<(String, String), Option<KernelAccess>>,
}

/// The sizes of recorded allocations, by their numbers.
struct RecordedSizes(BTreeMap<u8, u64>);

impl Allocations for RecordedSizes {
    fn around(&self, address: u64) -> Option<(u64, u64)> {
        let (start, bytes) = around(&self.0, address)?;
        (address - start < bytes).then_some((start, start + bytes))
    }
}

impl<'p> Memory<'p> {
    pub fn new(profile: &'p Profile, programs: &'p Programs<'p>) -> Self {
        Self { profile, programs, accesses: HashMap::new() }
    }

    /// The profile's kernel of a configuration.
    pub fn kernel(&self, process: &Process, config: u32) -> Option<usize> {
        let config = process.definitions.config(config)?;
        let name = &process.definitions.function(config.function)?.name;
        let image =
            process.definitions.function_code(config.function).map(|code| format!("{:032x}", code.image));
        let is_it = |kernel: &Kernel| {
            let own = kernel.code.as_ref().and_then(|code| code.image.as_ref());
            kernel.symbol == *name
                && kernel.launch == config.launch
                && (own.is_none() || own == image.as_ref())
        };
        self.profile.kernels.iter().position(is_it)
    }

    /// What the launches of a step access.
    pub fn spans(&mut self, process: &Process, launches: &[Launch], kernels: &[usize]) -> Vec<Spans> {
        let given: Vec<Option<Given>> = launches.iter().map(|launch| given(process, launch)).collect();
        let allocations = given
            .iter()
            .flatten()
            .flat_map(|given| given.allocations.iter().map(|(&at, &bytes)| (at, bytes)));
        let allocations = RecordedSizes(allocations.collect());
        let spans = given.iter().zip(kernels).map(|(given, &kernel)| {
            let access = self.access(kernel).as_ref().zip(given.as_ref());
            access.map_or(Spans::UNKNOWN, |(access, given)| {
                let parameters = given.packed();
                let given = launch_condition::Given { config: given.launch, parameters: &parameters };
                access.spans(&given, &allocations)
            })
        });
        spans.collect()
    }

    fn access(&mut self, kernel: usize) -> &Option<KernelAccess> {
        let kernel = &self.profile.kernels[kernel];
        let image = kernel.code.as_ref().and_then(|code| code.image.clone()).unwrap_or_default();
        let programs = self.programs;
        self.accesses.entry((kernel.symbol.clone(), image)).or_insert_with(|| {
            match programs.recorded(kernel) {
                Recorded::Code(code) => ptx_access::schedulable_kernel(code.module(), &code.name),
                _ => None,
            }
        })
    }
}

fn given(process: &Process, launch: &Launch) -> Option<Given> {
    let sample = launch.sample?;
    let config = process.definitions.config(launch.config)?;
    let recorded = process.definitions.arguments(sample.arguments)?;
    Given::of(config.launch, recorded, &sample.allocations)
}
