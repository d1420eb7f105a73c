//! The effect of `apex run --fast` and `--tuned` on the program, in sentences.

use apex_ordered::Gather;
use std::collections::BTreeSet;

use apex_profile::units;
use apex_profile::{
    LaunchQueue, LaunchQueueState as State, MemoryPool, MemoryPoolState, Profile, ReshapingState, ScheduleEnd,
};

/// Sentences about the launch queues, the memory pools and the reshaped launches of the processes;
/// none if nothing of it was requested.
pub fn sentences(profile: &Profile) -> Vec<String> {
    let mut sentences = of_queues(profile);
    sentences.extend(of_schedules(profile));
    sentences.extend(of_shapes(profile));
    sentences.extend(profile.processes.iter().filter_map(|process| process.pool.as_ref()).map(of_pool));
    sentences
}

/// Sentences about launches that ran concurrently.
fn of_schedules(profile: &Profile) -> Vec<String> {
    let queues = || profile.processes.iter().filter_map(|process| process.queue.as_ref());
    let schedules = || queues().filter_map(|queue| queue.schedule.as_ref());
    let sum = |of: fn(&apex_profile::Schedule) -> u64| schedules().map(of).fold(0, u64::saturating_add);
    let mut sentences = Vec::new();
    if let launches @ 1.. = sum(|schedule| schedule.launches) {
        let saved: f64 = schedules().map(|schedule| schedule.saved_ns).sum();
        sentences.push(format!(
            "--fast=schedule: {} launches in {} batches ran beside launches that share no data with them, which saved \
             {}ᶜ on the GPU.",
            units::count(launches),
            units::count(sum(|schedule| schedule.batches)),
            units::time(saved)
        ));
    }
    for (state, why) in [
        (
            ScheduleEnd::Unused,
            "no sequence of at least 8 queued launches repeated in which some are proven to share no data",
        ),
        (ScheduleEnd::GainsNothing, "launches took as long beside each other as one after the other"),
        (ScheduleEnd::Closed, "the program shares memory in a way that is not followed"),
        (ScheduleEnd::Failed, "its tables could not be allocated"),
    ] {
        let count = schedules().filter(|schedule| schedule.state == state).count() as u64;
        if count > 0 {
            let processes = units::counted(count, "process", "processes");
            sentences.push(format!("--fast=schedule was off at the end of {processes}: {why}."));
        }
    }
    sentences
}

/// About the launches that were made in other blocks.
fn of_shapes(profile: &Profile) -> Option<String> {
    let reshaping = || profile.processes.iter().filter_map(|process| process.reshaping);
    reshaping().next()?;
    let kernels = || profile.kernels.iter().filter(|kernel| kernel.asked.is_some());
    let launches: u64 = kernels().map(|kernel| kernel.launches.calls).sum();
    let functions = kernels().map(|kernel| &kernel.symbol).gathered::<BTreeSet<_>>().len();
    let refused = reshaping().fold(0_u64, |sum, reshaping| sum.saturating_add(reshaping.refused));
    let kept = match refused {
        0 => String::new(),
        count => format!(
            " {} made as the program asked, because the condition of the proof did not hold for them.",
            units::counted(count, "launch was", "launches were")
        ),
    };
    let pairs = reshaping().fold(0_u64, |sum, reshaping| sum.saturating_add(reshaping.joined));
    let joined = match pairs {
        0 => String::new(),
        count => format!(" {} made as one launch.", units::counted(count, "pair was", "pairs were")),
    };
    if let Some(why) = why_not_tuned(profile).filter(|_| launches == 0 && pairs == 0) {
        return Some(format!("--tuned changed no launch, because {why}.{kept}"));
    }
    if launches == 0 && pairs > 0 {
        return Some(format!("--tuned:{joined}{kept}"));
    }
    Some(format!(
        "--tuned made {} of {} in other blocks than the program asked for.{joined}{kept}",
        units::counted(launches, "launch", "launches"),
        units::counted(functions as u64, "kernel", "kernels"),
    ))
}

/// Why launches were made as the program asked, and what to do; `None` without `--tuned`, and where
/// launches were made in other blocks.
pub fn why_not_tuned(profile: &Profile) -> Option<&'static str> {
    let states: Vec<_> =
        profile.processes.iter().filter_map(|process| Some(process.reshaping?.state)).collect();
    let is = |state| states.contains(&state);
    Some(match () {
        () if is(ReshapingState::OtherDevice) => {
            "the profile is of another device: run `apex tune` on this one"
        }
        () if is(ReshapingState::OtherDriver) => "the profile is of another driver: run `apex tune` again",
        () if is(ReshapingState::OldDriver) => {
            "the driver is older than CUDA 12.4 and does not tell where parameters lie: update it"
        }
        () if is(ReshapingState::Closed) => {
            "the program maps memory itself (cuMemMap), so that two addresses may mean the same memory: such a \
             program cannot be tuned"
        }
        () if is(ReshapingState::Failed) => {
            "the plan in the session's folder could not be read, or there was no memory for it: run it again, and \
             `apex tune` if that does not help"
        }
        () if states.is_empty() || is(ReshapingState::On) => return None,
        () => {
            "the program launched no kernel of the profile: its code or sizes are others. Run `apex tune` again"
        }
    })
}

fn of_pool(pool: &MemoryPool) -> String {
    let off = match (pool.state, &pool.closed_by) {
        (MemoryPoolState::On, _) => String::new(),
        (MemoryPoolState::Unused, _) => {
            return "--fast=memory reused no memory: no allocation had the size of a freed one.".to_owned();
        }
        (MemoryPoolState::Failed, _) => {
            return "--fast=memory was off: it could not allocate its tables.".to_owned();
        }
        (MemoryPoolState::Closed, Some(call)) => format!(
            " It was off at the end: the program called {}, which shares memory or submits work without the pool seeing it.",
            apex_untrusted::printable(call)
        ),
        (MemoryPoolState::Closed, None) => " It was off at the end.".to_owned(),
        (MemoryPoolState::Refused, _) => {
            " It was off at the end: the driver failed to free memory.".to_owned()
        }
    };
    let each = pool.mean_asked_ns().map_or(String::new(), |ns| format!(", in {}ᵐ each", units::time(ns)));
    format!(
        "--fast=memory: {} of {} allocations reused freed memory{each}; the driver had taken {}ᵐ for them, so this saved \
         {}ᶜ, not counting frees. {} of {} frees waited for the GPU. The program's peak was {} in a context, or {} with \
         the pool's memory.{off}",
        units::count(pool.served),
        units::count(pool.served + pool.allocated),
        units::time(pool.alloc_ns),
        units::time(pool.saved_ns().max(0.0)),
        units::count(pool.waits),
        units::count(pool.kept),
        units::bytes(pool.peak_bytes),
        units::bytes(pool.peak_held_bytes),
    )
}

fn of_queues(profile: &Profile) -> Vec<String> {
    let queues = || profile.processes.iter().filter_map(|process| process.queue.as_ref());
    let mut sentences = Vec::new();
    if let Some(total) = queues().filter(|queue| queue.made > 0).cloned().reduce(add) {
        sentences.push(used(&total));
    }
    let not_made = queues().fold(0_u64, |sum, queue| sum.saturating_add(queue.not_made));
    if not_made > 0 {
        sentences.push(format!(
            "--fast: {} not made: the process was ended first, or it still ran when the session was read.",
            units::counted(not_made, "queued call was", "queued calls were")
        ));
    }
    let off = |state| queues().filter(|queue| queue.state == state).count();
    for (state, why) in [
        (
            State::GainsNothing,
            "it saved no time, because the program waited for its calls or the GPU was the limit",
        ),
        (State::OneProcessor, "the process may use one processor only"),
        (State::Failed, "its memory could not be allocated, or its thread not started"),
        (State::Refused, "the driver refused a launch that it had accepted before"),
        (State::OldDriver, "the driver is older than CUDA 12.4"),
        (State::Unused, "the process made too few launches"),
    ] {
        match off(state) {
            0 => {}
            1 => sentences.push(format!("--fast was off at the end of one process: {why}.")),
            count => sentences.push(format!("--fast was off at the end of {count} processes: {why}.")),
        }
    }
    sentences
}

fn used(queue: &LaunchQueue) -> String {
    let mean = |ns: f64| units::time(ns / queue.made as f64);
    let queueing = match (queue.asked_median_ns, queue.mean_asked_ns()) {
        (Some(median), Some(mean)) => {
            format!(" in {}ᵐ each (median; mean {}ᵐ)", units::time(median), units::time(mean))
        }
        (None, Some(mean)) => format!(" in {}ᵐ each", units::time(mean)),
        (_, None) => String::new(),
    };
    let saved = queue.saved_ns();
    let gain = if saved > 0.0 {
        format!("this saved {}ᶜ", units::time(saved))
    } else {
        "this saved no time".to_owned()
    };
    let times = if queue.waits == 1 { "time" } else { "times" };
    let batches = match queue.batches {
        0 => String::new(),
        count => format!(
            " {} launches were combined into {} batches.",
            units::count(queue.batched),
            units::count(count)
        ),
    };
    format!(
        "--fast: {} calls were queued{queueing}, and took {}ᵐ each in the queue's thread; the program waited {} {times}, \
         {}ᵐ in total; {gain}.{batches}",
        units::count(queue.made),
        mean(queue.call_ns),
        units::count(queue.waits),
        units::time(queue.wait_ns),
    )
}

fn add(mut sum: LaunchQueue, queue: LaunchQueue) -> LaunchQueue {
    // The median of several processes is that of the process with the most samples.
    if queue.asked_samples > sum.asked_samples {
        sum.asked_median_ns = queue.asked_median_ns;
    }
    sum.made += queue.made;
    sum.call_ns += queue.call_ns;
    sum.waits += queue.waits;
    sum.wait_ns += queue.wait_ns;
    sum.asked_samples += queue.asked_samples;
    sum.asked_ns += queue.asked_ns;
    sum.batches += queue.batches;
    sum.batched += queue.batched;
    sum.avoided_ns += queue.avoided_ns;
    sum
}
