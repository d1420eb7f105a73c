//! The kernels of a session that take time, by their code and size.

use crate::samples::{Key, key};
use apex_ordered::Order;
use apex_profile::{Kernel, Profile};
use apex_trace::Session;
use cuda_launch::LaunchConfig;
use launch_condition::size_class;
use std::collections::HashMap;

/// Launches of one kernel in one size.
pub struct Group<'p> {
    /// The kernel and size; `None` if the driver was not given its PTX.
    pub key: Option<Key>,
    /// The configuration that takes most time of them.
    pub kernel: &'p Kernel,
    /// Launches that ran.
    pub launches: u64,
    /// Share of the GPU time of all kernels, measured.
    pub share: f64,
}

/// The groups of a session, by their time.
pub fn groups<'p>(session: &Session, profile: &'p Profile) -> Vec<Group<'p>> {
    let codes = codes(session);
    let all_ns: f64 = profile.kernels.iter().filter_map(Kernel::gpu_total_ns).sum();
    let mut groups: Vec<Group<'p>> = Vec::new();
    let mut places: HashMap<(Option<Key>, &str), usize> = HashMap::new();
    for kernel in &profile.kernels {
        let Some(ns) = kernel.gpu_total_ns().filter(|_| kernel.launches.calls > 0) else { continue };
        let key = codes
            .get(&code_of(kernel))
            .map(|&code| (code, kernel.symbol.clone(), kernel.launch.block, size_class(&kernel.launch)));
        let share = if all_ns > 0.0 { ns / all_ns } else { 0.0 };
        // (Without PTX, one entry for all sizes: there is one reason.)
        let place = *places.entry((key.clone(), &kernel.symbol)).or_insert_with(|| {
            groups.push(Group { key, kernel, launches: 0, share: 0.0 });
            groups.len() - 1
        });
        groups[place].launches += kernel.launches.calls;
        groups[place].share += share;
    }
    groups.order_by(|a, b| b.share.total_cmp(&a.share));
    groups
}

/// The hashes of the PTX that the driver was given, by what a profile knows of a kernel.
fn codes(session: &Session) -> HashMap<(String, LaunchConfig, String), u128> {
    let mut codes = HashMap::new();
    for process in &session.processes {
        for config in process.definitions.configs() {
            if let Some(((code, name, ..), _)) = key(process, config)
                && let Some(of) = process.definitions.function_code(config.function)
            {
                codes.insert((name, config.launch, image_name(of.image)), code);
            }
        }
    }
    codes
}

fn code_of(kernel: &Kernel) -> (String, LaunchConfig, String) {
    let image = kernel.code.as_ref().and_then(|code| code.image.clone()).unwrap_or_default();
    (kernel.symbol.clone(), kernel.launch, image)
}

/// A profile's name of an image.
fn image_name(image: u128) -> String {
    format!("{image:032x}")
}
