//! What runs on the device: phases with the time and power of their steps at each clock.

use crate::HIGHEST;

/// Sharpness of the change between what bounds a step.
const SHARP: f64 = 6.0;
/// Watts of the idle device at 45 °C: 81 W were measured at its lowest clock, with the clock tree
/// running.
const IDLE: f64 = 79.0;
/// Watts that leakage grows by in a degree.
const LEAK: f64 = 0.25;
/// Watts of the clock tree at the highest clock and voltage, whatever runs: 124 W were measured
/// with a context that does nothing.
const TREE: f64 = 44.0;
/// Watts of the memory at its full bandwidth: assumed.
const MEMORY: f64 = 230.0;

/// A phase of a workload, at the highest clock. Times are of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Its duration before the next phase begins, at the highest clock, seconds.
    pub seconds: f64,
    /// Time of a step that the host takes while the device runs ahead of it or waits, seconds.
    pub host: f64,
    /// Time of a step in which the device waits and nothing hides it, seconds.
    pub gap: f64,
    /// Time of a step that its memory traffic takes, seconds.
    pub memory: f64,
    /// Time of a step that its arithmetic takes, which grows as the clock falls, seconds.
    pub compute: f64,
    /// Watts of the SMs at the highest clock and voltage while they compute all the time.
    pub active: f64,
    /// Whether it is a collective, in which a call that sets the clock disturbs.
    pub is_collective: bool,
}

impl Phase {
    /// Time of the kernels of a step.
    fn kernels(&self, mhz: f64) -> f64 {
        soft_max(self.memory, self.compute * f64::from(HIGHEST) / mhz)
    }

    /// Time of a step at a clock, seconds.
    pub fn step_seconds(&self, mhz: f64) -> f64 {
        self.gap + soft_max(self.host, self.kernels(mhz))
    }

    /// Power at a clock, watts.
    pub fn watts(&self, mhz: f64, degrees: f64) -> f64 {
        let step = self.step_seconds(mhz);
        let (busy, memory) = (self.compute * f64::from(HIGHEST) / mhz / step, self.memory / step);
        let scale = (voltage(mhz) / voltage(f64::from(HIGHEST))).powi(2) * mhz / f64::from(HIGHEST);
        IDLE + LEAK * (degrees - 45.0) + scale * (TREE + self.active * busy) + MEMORY * memory
    }
}

/// Phases that follow each other again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// The phases.
    pub phases: Vec<Phase>,
}

/// Volts at a clock: a floor, then a line that gets steeper.
fn voltage(mhz: f64) -> f64 {
    let above = (mhz - 1050.0).max(0.0) / 930.0;
    0.70 + 0.20 * above + 0.12 * above * above
}

/// The larger of both, smooth where they are alike.
fn soft_max(a: f64, b: f64) -> f64 {
    let most = a.max(b);
    if most <= 0.0 {
        return 0.0;
    }
    most * ((a / most).powf(SHARP) + (b / most).powf(SHARP)).powf(1.0 / SHARP)
}

impl Workload {
    fn new(name: &'static str, phases: &[Phase]) -> Self {
        Self { name, phases: phases.to_vec() }
    }

    /// Decoding, one token at a time, from the session `torch-eager_decode`: a step of 217 µs, in
    /// which kernels ran 15% of the time and the host launched for the rest.
    pub fn decode() -> Self {
        Self::new("decode, launch-bound", &[DECODE])
    }

    /// The same from a graph with a batch: the weights are read for each token, so memory bounds
    /// it. Its power is that of `unfused_norm`.
    pub fn batched_decode() -> Self {
        Self::new("decode, memory-bound", &[BATCHED])
    }

    /// Training, from the session `torch-llama_eager`: a step of 78 ms, in which kernels ran 94% of
    /// the time.
    pub fn training() -> Self {
        Self::new("training", &[TRAINING])
    }

    /// Training of a graph network: gathers and scatters, which memory bounds, and small products.
    pub fn graph_network() -> Self {
        Self::new("graph network", &[GRAPH])
    }

    /// Matrix products, from the session `torch-gemm_saturated`: a step of 1.66 ms without a gap,
    /// at the power cap.
    pub fn products() -> Self {
        Self::new("large products", &[PRODUCTS])
    }

    /// Prompts and decoding by turns: seconds of large products, then of memory-bound decoding.
    pub fn mixed() -> Self {
        let prompts = Phase { seconds: 6.0, ..PRODUCTS };
        let decode = Phase { seconds: 9.0, ..BATCHED };
        Self::new("prompts and decoding", &[prompts, decode])
    }

    /// The same by turns of a twentieth of a second, which is too short for a switch.
    pub fn quick_turns() -> Self {
        let prompts = Phase { seconds: 0.05, ..PRODUCTS };
        let decode = Phase { seconds: 0.05, ..BATCHED };
        Self::new("prompts and decoding, quick turns", &[prompts, decode])
    }

    /// Training with collectives between the steps.
    pub fn with_collectives() -> Self {
        let training = Phase { seconds: 0.3, ..TRAINING };
        let collective = Phase {
            seconds: 0.05,
            memory: 0.010,
            compute: 0.001,
            active: 100.0,
            is_collective: true,
            ..TRAINING
        };
        Self::new("training with collectives", &[training, collective])
    }

    /// All of the table in docs/power.md.
    pub fn all() -> Vec<Self> {
        vec![
            Self::decode(),
            Self::batched_decode(),
            Self::training(),
            Self::graph_network(),
            Self::products(),
            Self::mixed(),
            Self::quick_turns(),
            Self::with_collectives(),
        ]
    }
}

const DECODE: Phase = Phase {
    seconds: 1e9,
    host: 217e-6,
    gap: 0.0,
    memory: 3e-6,
    compute: 31e-6,
    active: 20.0,
    is_collective: false,
};
const BATCHED: Phase =
    Phase { host: 1.0e-3, gap: 0.1e-3, memory: 9.0e-3, compute: 3.5e-3, active: 706.0, ..DECODE };
const TRAINING: Phase =
    Phase { host: 20e-3, gap: 2.0e-3, memory: 45e-3, compute: 70e-3, active: 425.0, ..DECODE };
const GRAPH: Phase =
    Phase { host: 6.0e-3, gap: 1.0e-3, memory: 11e-3, compute: 5.0e-3, active: 531.0, ..DECODE };
const PRODUCTS: Phase =
    Phase { host: 0.2e-3, gap: 0.0, memory: 0.5e-3, compute: 1.25e-3, active: 1065.0, ..DECODE };
