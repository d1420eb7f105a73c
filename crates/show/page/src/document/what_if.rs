//! Kernels in other configurations.

use super::figure::{NAME, text};
use super::geometry::Geometry;
use super::kernels::Interval;
use apex_predict_session::explore::{Explored, Tried};
use apex_profile::Provenance;
use cuda_launch::Dim3;
use serde::Serialize;

/// A kernel in another configuration, or in its own.
#[derive(Debug, Serialize)]
pub struct WhatIf {
    grid: Dim3,
    block: Dim3,
    dynamic_shared_bytes: u32,
    registers: Option<u32>,
    /// Computed; `null` where the launch cannot run, or something is not known.
    geometry: Option<Geometry>,
    /// Reason for which the launch cannot run.
    impossible: Option<String>,
    prediction: Option<Expected>,
    /// Reason for which nothing is predicted of a launch that can run.
    unpredicted: Option<String>,
}

/// The models' prediction of it.
#[derive(Debug, Serialize)]
struct Expected {
    /// `null` where it was measured and it is not known what a launch executes.
    duration_ns: Option<Interval>,
    achieved_occupancy: Interval,
    sm_utilisation: Interval,
    /// Source of the prediction: `launch`, `kernel`, `code` or `work`.
    basis: String,
    /// How the duration is known that the change starts from; `null` where nothing is changed.
    from: Option<Provenance>,
    /// Share of that duration; below 0 where the change costs.
    saves: Option<Interval>,
    unfamiliar: Vec<String>,
}

/// A kernel in other block sizes.
#[derive(Debug, Serialize)]
pub struct TriedKernel {
    /// Its identifier.
    id: String,
    tried: Vec<WhatIf>,
}

impl TriedKernel {
    pub fn of(tried: &Tried) -> Self {
        Self { id: tried.kernel.clone(), tried: tried.blocks.iter().map(WhatIf::of).collect() }
    }
}

/// The answer to a question about one kernel.
#[derive(Debug, Serialize)]
pub struct Answer<'a> {
    kernel: &'a str,
    #[serde(flatten)]
    what_if: WhatIf,
}

impl<'a> Answer<'a> {
    /// Of the kernel of this identifier.
    pub fn of(kernel: &'a str, explored: &Explored) -> Self {
        Self { kernel, what_if: WhatIf::of(explored) }
    }
}

impl WhatIf {
    pub fn of(explored: &Explored) -> Self {
        let expected = |said: &apex_profile::Prediction| Expected {
            duration_ns: said.duration_ns.map(Interval::of),
            achieved_occupancy: Interval::of(said.achieved_occupancy),
            sm_utilisation: Interval::of(said.sm_utilisation),
            basis: said.basis.clone(),
            from: explored.from,
            saves: explored.saves.map(Interval::of),
            unfamiliar: said.unfamiliar.iter().map(|feature| text(feature, NAME)).collect(),
        };
        Self {
            grid: explored.launch.grid,
            block: explored.launch.block,
            dynamic_shared_bytes: explored.launch.dynamic_shared_bytes,
            registers: explored.attributes.map(|attributes| attributes.registers),
            geometry: explored.geometry.as_ref().map(Geometry::of),
            impossible: explored.impossible.clone(),
            prediction: explored.prediction.as_ref().map(expected),
            unpredicted: explored.unpredicted.as_ref().map(|why| text(why, super::SENTENCE)),
        }
    }
}
