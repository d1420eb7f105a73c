//! Contexts: created, destroyed, and made current.
//!
//! Each thread remembers its current context ([`thread`]); a call that may change it ends that.
//! Pushes and pops, which some programs make around every call, are followed but not recorded.
//! Setting the current context is recorded if it changes anything.

use super::macros::hooks;
use crate::actions::pool;
use crate::driver;
use crate::objects::Objects;
use crate::record::{Recorder, thread};
use crate::timing::Pause;
use apex_trace::layout::CallClass::Context;
use cuda_abi::types::*;

hooks! {
    fn create(context: *mut CUcontext, flags: u32, device: CUdevice) after(result) { created(result, device) } |notes| {
        notes.object(Context, notes.out_handle(context));
    }

    fn create_with_affinity(
        context: *mut CUcontext,
        affinity: *mut CUexecAffinityParam,
        count: i32,
        flags: u32,
        device: CUdevice,
    ) after(result) { created(result, device) } |notes| {
        notes.object(Context, notes.out_handle(context));
    }

    fn create_with_parameters(
        context: *mut CUcontext,
        parameters: *mut CUctxCreateParams,
        flags: u32,
        device: CUdevice,
    ) after(result) { created(result, device) } |notes| {
        notes.object(Context, notes.out_handle(context));
    }

    fn destroy(context: CUcontext) before { ends(context) } after(_result) { changed() } |notes| {
        notes.object(Context, context as u64);
    }

    fn set_current(context: CUcontext) after(_result) { changed() } |notes| {
        if thread::sets_another_context(context) {
            notes.object(Context, context as u64);
        }
    }

    fn push(context: CUcontext) after(_result) { changed() } |_notes| {}

    fn pop(context: *mut CUcontext) after(_result) { changed() } |_notes| {}

    fn retain_primary(context: *mut CUcontext, device: CUdevice)
    after(result) { primary_is(result, device, context) } |notes| {
        notes.object(Context, notes.out_handle(context));
    }

    /// The last release destroys it.
    fn release_primary(device: CUdevice) before { pause() } after(_result) { may_have_ended(device) } |notes| {
        notes.object(Context, 0);
    }

    fn reset_primary(device: CUdevice) before { primary_ends(device) } after(_result) { changed() } |notes| {
        notes.object(Context, 0);
    }

    /// Contexts made from a green context have handles of their own, which nobody told us: all are
    /// looked up anew.
    fn destroy_green(context: CUgreenCtx) before { any_ends() } after(_result) { changed() } |notes| {
        notes.object(Context, context as u64);
    }
}

fn created(result: CUresult, device: CUdevice) {
    changed();
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
    {
        objects.devices.note(device);
    }
}

fn primary_is(result: CUresult, device: CUdevice, context: *const CUcontext) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
        // SAFETY: the contract of every hook: null, or written by the call, which succeeded.
        && let Some(&context) = unsafe { context.as_ref() }
    {
        objects.note_primary(device, context);
    }
}

fn changed() {
    thread::with_existing(|thread| thread.forget_context());
}

/// A context may be about to end. While the value is held nothing is timed: events must not be used
/// when their context is destroyed. Memory that is kept of the program's is given back.
fn pause() -> Option<Pause> {
    pool::give_all_back();
    Recorder::existing().map(|recorder| recorder.timing.pause())
}

fn ends(context: CUcontext) -> Option<Pause> {
    let pause = pause();
    forget(Some(context));
    pause
}

fn primary_ends(device: CUdevice) -> Option<Pause> {
    let pause = pause();
    forget_primary(device);
    pause
}

fn may_have_ended(device: CUdevice) {
    if Objects::existing().is_some() && !driver::primary_context_is_active(device) {
        forget_primary(device);
        changed();
    }
}

fn any_ends() -> Option<Pause> {
    let pause = pause();
    forget(None);
    pause
}

fn forget_primary(device: CUdevice) {
    forget(Objects::existing().and_then(|objects| objects.take_primary(device)));
}

/// Forgets the context; all of them if it is not known which.
fn forget(context: Option<CUcontext>) {
    pool::forget_context(context);
    if let Some(recorder) = Recorder::existing() {
        match context {
            Some(context) => recorder.forget_context(context),
            None => recorder.forget_all_contexts(),
        }
    }
    if let Some(objects) = Objects::existing() {
        objects.forget_context();
    }
}
