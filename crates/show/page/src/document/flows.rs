//! The data flow of steps: launches and what they wait for.

use super::figure::{NAME, text};
use apex_profile::{DataFlow, Profile};
use serde::Serialize;

/// A repeated step whose launches could run beside each other; times are computed from the kernels'
/// means.
#[derive(Debug, Serialize)]
pub struct Flow {
    launches: Vec<FlowLaunch>,
    repeats: u64,
    /// One launch after the other.
    serial_ns: f64,
    /// The longest chain of launches that wait for each other.
    chain_ns: f64,
    /// Side by side, within what the GPU's size allows.
    concurrent_ns: f64,
}

/// A launch of a step.
#[derive(Debug, Serialize)]
pub struct FlowLaunch {
    name: String,
    ns: f64,
    /// The share of the GPU that it needs.
    share: f64,
    /// Whether the memory that it accesses is known; otherwise it keeps its order with all others.
    known: bool,
    /// Whether it is part of the longest chain.
    in_chain: bool,
    /// Earlier launches, by their places in the list.
    waits_for: Vec<usize>,
}

impl Flow {
    /// The first `most` steps that have launches beside each other.
    pub fn of_all(profile: &Profile, most: usize) -> Vec<Self> {
        let has_branches = |flow: &&DataFlow| flow.chain.len() < flow.launches.len();
        profile
            .data_flows
            .iter()
            .filter(has_branches)
            .take(most)
            .map(|flow| Self::of(profile, flow))
            .collect()
    }

    fn of(profile: &Profile, flow: &DataFlow) -> Self {
        let launch = |(at, launch): (usize, &apex_profile::FlowLaunch)| FlowLaunch {
            name: profile.kernels.get(launch.kernel).map_or(String::new(), |of| text(&of.short_name, NAME)),
            ns: launch.ns,
            share: launch.share,
            known: launch.is_known,
            in_chain: flow.chain.contains(&at),
            waits_for: launch.waits_for.clone(),
        };
        Self {
            launches: flow.launches.iter().enumerate().map(launch).collect(),
            repeats: flow.repeats,
            serial_ns: flow.serial_ns,
            chain_ns: flow.chain_ns,
            concurrent_ns: flow.concurrent_ns,
        }
    }
}
