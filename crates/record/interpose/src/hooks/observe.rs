//! The common part of hooks: decide about a call, forward it, and record the request and the
//! result.
//!
//! This module decides only whether a call is recorded and timed. An action that changes or defers
//! calls belongs in the same place; see ARCHITECTURE.md.

use super::call::{Call, Function};
use crate::objects::streams::{is_per_thread, normalised};
use crate::record::call::Notes;
use crate::record::launch::{Launch, Plan};
use crate::record::thread::{self, Here};
use crate::record::{Done, timed};
use crate::switch::{caught, is_recording};
use crate::timing::Subject;
use apex_trace::layout::{CallClass, NO_CONFIG};
use apex_trace::now;
use cuda_abi::types::*;

impl<F: Function, const INDEX: usize> Call<F, INDEX> {
    /// Forwards it between two readings of the clock.
    #[inline(always)]
    fn forward_and_clock(self) -> Done {
        let start = now();
        let result = self.forward();
        Done { start, end: now(), result }
    }
}

/// Forwards a call and records it as `describe` says.
#[inline]
pub fn call<F: Function, const INDEX: usize>(
    call: Call<F, INDEX>,
    describe: impl FnOnce(&mut Notes),
) -> CUresult {
    decided::<INDEX>(|| call.forward(), describe)
}

/// Does what was decided about a call of the entry point at `INDEX`, and records it as `describe`
/// says.
#[inline]
pub fn decided<const INDEX: usize>(
    make: impl FnOnce() -> CUresult,
    describe: impl FnOnce(&mut Notes),
) -> CUresult {
    if !is_recording() {
        return make();
    }
    let Some(here) = thread::here() else { return make() };
    let Some(clock) = here.borrow().map(|thread| thread.clock) else { return make() };
    let start = clock.now();
    let result = make();
    let done = Done { start, end: clock.now(), result };
    let mut notes = Notes { result, ..Notes::default() };
    describe(&mut notes);
    if let Some(class) = notes.class {
        record(here, INDEX, const { is_per_thread(INDEX) }, done, class, &notes);
    }
    result
}

#[inline(never)]
fn record(here: Here, index: usize, per_thread: bool, done: Done, class: CallClass, notes: &Notes) {
    here.lend(|thread| caught(|| thread.record_call(index, per_thread, done, class, notes)));
}

/// Forwards a call that launches what `asked` says, and records it.
#[inline(always)]
pub fn launch<F: Function, const INDEX: usize>(call: Call<F, INDEX>, asked: Launch) -> CUresult {
    if !is_recording() {
        return call.forward();
    }
    let Some(here) = thread::here() else { return call.forward() };
    let stream = normalised(asked.stream, const { is_per_thread(INDEX) });
    let Some(mut thread) = here.borrow() else { return call.forward() };
    let (state, known) = thread.parts();
    let Plan { config, is_timed, clock, begun } = state.plan(known, &asked);
    drop(thread);
    if is_timed {
        return timed_launch(call, here, asked, stream, config);
    }
    let start = clock.now();
    let result = call.forward();
    let done = Done { start, end: clock.now(), result };
    let Some(mut thread) = here.borrow() else { return result };
    let (state, known) = thread.parts();
    state.record_launch(known, INDEX, &asked, stream, config, done);
    if begun != 0 {
        state.take_cost_sample(begun, config, done);
    }
    result
}

/// The rest of [`launch`] for a launch that is to be timed. Kept apart, so that the code of the
/// others stays short and straight.
#[cold]
#[inline(never)]
fn timed_launch<F: Function, const INDEX: usize>(
    call: Call<F, INDEX>,
    here: Here,
    asked: Launch,
    stream: CUstream,
    config: u32,
) -> CUresult {
    let done = timed::between_events(Subject::Kernel(config), stream, || call.forward());
    if let Some(mut thread) = here.borrow() {
        let (state, known) = thread.parts();
        state.record_launch(known, INDEX, &asked, stream, config, done);
        state.sample_stack(config, 0);
        state.sample_arguments_of(&asked, config, done, 0);
    }
    done.result
}

/// Records a launch that was made together with others, as one of the entry point at `INDEX`.
pub fn launched_with_others<const INDEX: usize>(asked: Launch, done: Done) {
    if !is_recording() {
        return;
    }
    let stream = normalised(asked.stream, const { is_per_thread(INDEX) });
    if let Some(mut thread) = thread::here().and_then(Here::borrow) {
        let (state, known) = thread.parts();
        let config = state.config(known, &asked);
        state.record_launch(known, INDEX, &asked, stream, config, done);
    }
}

/// Forwards a call that makes several launches, which `asked` lists given the result, and records
/// each.
pub fn launches<F: Function, const INDEX: usize>(
    call: Call<F, INDEX>,
    asked: impl FnOnce(CUresult) -> Vec<Launch>,
) -> CUresult {
    if !is_recording() {
        return call.forward();
    }
    let Some(here) = thread::here() else { return call.forward() };
    let done = call.forward_and_clock();
    for launch in asked(done.result) {
        let stream = normalised(launch.stream, const { is_per_thread(INDEX) });
        if let Some(mut thread) = here.borrow() {
            let (state, known) = thread.parts();
            state.record_launch(known, INDEX, &launch, stream, NO_CONFIG, done);
        }
    }
    done.result
}

/// Forwards a call that launches `graph`, and records it.
pub fn graph_launch<F: Function, const INDEX: usize>(
    call: Call<F, INDEX>,
    graph: CUgraphExec,
    stream: CUstream,
) -> CUresult {
    if !is_recording() {
        return call.forward();
    }
    let Some(here) = thread::here() else { return call.forward() };
    let stream = normalised(stream, const { is_per_thread(INDEX) });
    let (id, is_timed) = here.lend(|thread| thread.plan_graph(graph)).unwrap_or_default();
    let done = if is_timed {
        timed::between_events(Subject::Graph(id), stream, || call.forward())
    } else {
        call.forward_and_clock()
    };
    here.lend(|thread| thread.record_graph(INDEX, id, stream, done, is_timed));
    done.result
}
