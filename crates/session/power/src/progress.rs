//! The progress of a program on a device, read from its session while it is recorded.
//!
//! The unit of work is a launch of a kernel or of a graph. Launches of one phase are assumed to do
//! equal work, so their number measures its progress; launches whose work grows look like a
//! slowdown.

use crate::phases::{Counts, Phases};
use apex_trace::{Process, Watcher};
use std::path::Path;

/// The result of a look at the session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The phase since the last look.
    pub phase: usize,
    /// Launches of this phase since the start.
    pub steps: f64,
    /// Whether kernels of NCCL were launched since the last look.
    pub is_collective: bool,
}

/// Reads a session repeatedly.
#[derive(Debug)]
pub struct Progress {
    watcher: Watcher,
    phases: Phases,
    /// Launches of each kernel up to the last look.
    counted: Counts,
    /// Launches of each phase.
    steps: Vec<f64>,
    phase: usize,
    /// The device's UUID.
    uuid: [u8; 16],
}

impl Progress {
    /// Reads the session in `dir`, for launches on the device with this UUID.
    pub fn new(dir: &Path, uuid: &str) -> Self {
        let (counted, steps, uuid) = (Counts::new(), Vec::new(), bytes_of(uuid));
        Self { watcher: Watcher::new(dir), phases: Phases::default(), counted, steps, phase: 0, uuid }
    }

    /// Reads the session; `None` before the first launch, and if it cannot be read. This takes
    /// about as long as reading the records since the last look plus 32,768 more: 13 ms for these.
    pub fn look(&mut self) -> Option<Seen> {
        // Only the counts of the records are needed.
        let session = self.watcher.look(|_, _| u64::MAX).ok()?;
        let mut now = Counts::new();
        let mut is_collective = false;
        for process in &session.processes {
            let of_process = launches(process, self.uuid);
            let more = of_process.iter().filter(|(kernel, count)| self.counted.get(kernel) < Some(count));
            is_collective |=
                more.into_iter().any(|((_, function), _)| is_collective_kernel(process, *function));
            now.extend(of_process);
        }
        Some(Seen { is_collective, ..self.take(now)? })
    }

    /// Takes the launches of all kernels since the start.
    fn take(&mut self, now: Counts) -> Option<Seen> {
        let since = |(kernel, count): (&(u32, u32), &u64)| {
            let more = count.saturating_sub(self.counted.get(kernel).copied().unwrap_or(0));
            (more > 0).then_some((*kernel, more))
        };
        let launched: Counts = now.iter().filter_map(since).collect();
        self.counted = now;
        if !launched.is_empty() {
            self.phase = self.phases.of(&launched);
            self.steps.resize(self.steps.len().max(self.phase + 1), 0.0);
            self.steps[self.phase] += launched.values().sum::<u64>() as f64;
        }
        let steps = *self.steps.get(self.phase)?;
        Some(Seen { phase: self.phase, steps, is_collective: false })
    }
}

/// Stands for all graphs of a process, in place of a function.
const GRAPHS: u32 = u32::MAX;

/// The bytes of a UUID such as `GPU-01234567-…`; zeros if the text is not a UUID.
fn bytes_of(uuid: &str) -> [u8; 16] {
    let digits: Vec<u8> = uuid.bytes().skip("GPU-".len()).filter(|byte| *byte != b'-').collect();
    let text = String::from_utf8(digits).unwrap_or_default();
    u128::from_str_radix(&text, 16).unwrap_or(0).to_be_bytes()
}

/// Whether a context is on the device, or its device is unknown.
fn is_on(process: &Process, context: u32, uuid: [u8; 16]) -> bool {
    let context = process.definitions.context(context);
    context
        .and_then(|context| process.definitions.device(context.device))
        .is_none_or(|device| device.uuid == uuid)
}

/// Launches of each kernel of a process on the device. Graphs are counted only if the process uses
/// no other device.
fn launches(process: &Process, uuid: [u8; 16]) -> Counts {
    let mut counts = Counts::new();
    let of_device = process.definitions.configs().filter(|config| is_on(process, config.context, uuid));
    for config in of_device {
        let launches = process.totals.launches_of(config.id);
        if launches > 0 {
            *counts.entry((process.pid, config.function)).or_default() += launches;
        }
    }
    let is_only = process.definitions.devices().all(|device| device.uuid == uuid);
    if is_only && process.totals.graph_launches > 0 {
        counts.insert((process.pid, GRAPHS), process.totals.graph_launches);
    }
    counts
}

fn is_collective_kernel(process: &Process, function: u32) -> bool {
    let name = process.definitions.function(function).map(|function| function.name.as_str());
    name.is_some_and(|name| name.contains("nccl"))
}
