//! What `apex run --fast` did to the program.

use crate::units;
use apex_profile::{LaunchQueue, LaunchQueueState as State, Profile};

/// Sentences about the launch queues of the processes; none where nobody wanted one.
pub fn sentences(profile: &Profile) -> Vec<String> {
    let queues = || profile.processes.iter().filter_map(|process| process.queue.as_ref());
    let mut sentences = Vec::new();
    if let Some(total) = queues().filter(|queue| queue.made > 0).cloned().reduce(add) {
        sentences.push(used(&total));
    }
    let off = |state| queues().filter(|queue| queue.state == state).count();
    for (state, why) in [
        (State::GainsNothing, "it gained nothing: calls were waited for, or the GPU was the limit"),
        (State::OneProcessor, "the process may use one processor only"),
        (State::Failed, "its memory or its thread could not be had"),
        (State::Refused, "the driver refused a launch that it had accepted before"),
        (State::OldDriver, "the driver is older than CUDA 12.4"),
        (State::Unused, "the process made too few launches"),
    ] {
        match off(state) {
            0 => {}
            1 => sentences.push(format!("--fast was off at the end of a process: {why}.")),
            count => sentences.push(format!("--fast was off at the end of {count} processes: {why}.")),
        }
    }
    sentences
}

fn used(queue: &LaunchQueue) -> String {
    let mean = |ns: f64| units::time(ns / queue.made as f64);
    let handing_over =
        queue.mean_asked_ns().map_or(String::new(), |ns| format!(" in {}ᵐ each", units::time(ns)));
    let spared = queue.spared_ns();
    let gain = if spared > 0.0 {
        format!("the program was spared {}ᶜ", units::time(spared))
    } else {
        "the program was spared nothing".to_owned()
    };
    format!(
        "--fast: {} calls were handed over{handing_over}, and took {}ᵐ each on the queue's thread; the program waited {} \
         times, {}ᵐ in all; {gain}.",
        units::count(queue.made),
        mean(queue.call_ns),
        units::count(queue.waits),
        units::time(queue.wait_ns),
    )
}

fn add(mut sum: LaunchQueue, queue: LaunchQueue) -> LaunchQueue {
    sum.made += queue.made;
    sum.call_ns += queue.call_ns;
    sum.waits += queue.waits;
    sum.wait_ns += queue.wait_ns;
    sum.asked_samples += queue.asked_samples;
    sum.asked_ns += queue.asked_ns;
    sum
}
