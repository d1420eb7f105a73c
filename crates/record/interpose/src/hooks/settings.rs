//! Settings of contexts, functions and streams that affect later launches. They are followed and
//! not recorded.
//!
//! Settings of functions and contexts also become part of graphs that are instantiated later. They
//! therefore end the epoch of functions: a graph instantiated before must not be used for a launch
//! after. Graph nodes do not take over settings of a stream or of a green context; once the program
//! makes such a setting, nothing is launched in batches any more.

use super::macros::hooks;
use crate::actions::queue::batch;
use crate::objects::Objects;
use crate::switch::guarded;
use cuda_abi::ENTRY_POINTS;
use cuda_abi::types::*;

hooks! {
    fn limit(limit: CUlimit, value: usize) after(result) { functions_change(result) } |_notes| {}

    fn cache(config: CUfunc_cache) after(result) { functions_change(result) } |_notes| {}

    fn banks(config: CUsharedconfig) after(result) { functions_change(result) } |_notes| {}

    fn function_cache(function: CUfunction, config: CUfunc_cache)
    after(result) { functions_change(result) } |_notes| {}

    fn function_banks(function: CUfunction, config: CUsharedconfig)
    after(result) { functions_change(result) } |_notes| {}

    fn kernel_cache(kernel: CUkernel, config: CUfunc_cache, device: CUdevice)
    after(result) { functions_change(result) } |_notes| {}

    fn stream(stream: CUstream, attribute: CUstreamAttrID, value: *const CUstreamAttrValue)
    after(_result) { batch::forbid() } |_notes| {}

    fn stream_as(to: CUstream, from: CUstream) after(_result) { batch::forbid() } |_notes| {}

    fn green_context(made: *mut CUgreenCtx, resources: CUdevResourceDesc, device: CUdevice, flags: u32)
    after(_result) { batch::forbid() } |_notes| {}
}

/// Whether the hook of the entry point at `index` is one of these, which tell the pool nothing.
pub fn has(index: usize) -> bool {
    let base = ENTRY_POINTS[index].base;
    let settings =
        ["cuCtxSet", "cuFuncSetCache", "cuFuncSetSharedMem", "cuKernelSetCache", "cuStreamSetAttribute"];
    let others = ["cuStreamCopyAttributes", "cuGreenCtxCreate"];
    base != "cuCtxSetCurrent" && settings.iter().chain(&others).any(|beginning| base.starts_with(beginning))
}

fn functions_change(result: CUresult) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
    {
        guarded(|| objects.forget_functions());
    }
}
