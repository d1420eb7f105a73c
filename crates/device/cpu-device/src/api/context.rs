//! Context management.

use crate::context::{self, Context};
use crate::device;
use crate::entry::{entries, opaque, supported, write, write_if_wanted};
use crate::error::{Error, ensure, fail};
use crate::stream::event::{self, Event};
use crate::stream::operation::Operation;
use cuda_abi::types::*;

entries! {
    /// Creates a context and makes it current.
    fn cuCtxCreate_v2(context: *mut CUcontext, flags: u32, device: CUdevice) {
        device::at(device)?;
        ensure(!context.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(context, opaque(Context::create(flags)?.handle))
    }

    /// Creates a context and makes it current.
    fn cuCtxCreate_v3(
        context: *mut CUcontext,
        _affinity: *mut CUexecAffinityParam,
        affinities: i32,
        flags: u32,
        device: CUdevice,
    ) partly "execution affinity is refused" {
        device::at(device)?;
        ensure(!context.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        ensure(affinities == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)?;
        write(context, opaque(Context::create(flags)?.handle))
    }

    /// Creates a context and makes it current.
    fn cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: u32, device: CUdevice)
        partly "execution affinity and graphics interoperability are refused"
    {
        device::at(device)?;
        ensure(!context.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        if !params.is_null() {
            let params = params.read_unaligned();
            ensure(params.numExecAffinityParams == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)?;
            supported(params.cigParams.is_null(), "contexts that share a GPU with graphics (CIG); pass no cigParams")?;
        }
        write(context, opaque(Context::create(flags)?.handle))
    }

    /// Ends a context.
    fn cuCtxDestroy_v2(context: CUcontext) {
        Context::destroy(context)
    }

    /// Makes a context current, above the one that was.
    fn cuCtxPushCurrent_v2(context: CUcontext) {
        context::push(&*Context::resolve(context)?);
        Ok(())
    }

    /// Takes the current context away.
    fn cuCtxPopCurrent_v2(context: *mut CUcontext) {
        let popped = context::pop()?;
        write_if_wanted(context, opaque(popped));
        Ok(())
    }

    /// Makes a context current in place of the one that was.
    fn cuCtxSetCurrent(context: CUcontext) {
        device::get()?;
        if context.is_null() {
            context::set_current(None);
        } else {
            context::set_current(Some(&*Context::resolve(context)?));
        }
        Ok(())
    }

    /// The current context, or null.
    fn cuCtxGetCurrent(context: *mut CUcontext) {
        device::get()?;
        write(context, opaque(context::current_handle().unwrap_or(0)))
    }

    /// The current context's device.
    fn cuCtxGetDevice(device: *mut CUdevice) {
        context::current_even_if_faulty()?;
        write(device, device::ORDINAL)
    }

    /// A context's device; null means the current one.
    fn cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext) {
        given_or_current(context)?;
        write(device, device::ORDINAL)
    }

    /// The current context's flags.
    fn cuCtxGetFlags(flags: *mut u32) {
        write(flags, context::current()?.flags())
    }

    /// Sets the current context's flags.
    fn cuCtxSetFlags(flags: u32) partly "scheduling flags are stored and have no effect" {
        context::current()?.set_flags(flags)
    }

    /// A number that no other context has.
    fn cuCtxGetId(context: CUcontext, id: *mut u64) {
        write(id, given_or_current(context)?.handle)
    }

    /// Waits for all work of the current context.
    fn cuCtxSynchronize() {
        context::current()?.synchronize()
    }

    /// Waits for all work of a context.
    fn cuCtxSynchronize_v2(context: CUcontext) {
        given_or_current(context)?.synchronize()
    }

    /// A limit.
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) {
        let context = context::current()?;
        let known = context.settings().limits.get(&limit).copied();
        write(value, known.ok_or(Error(CUDA_ERROR_UNSUPPORTED_LIMIT))?)
    }

    /// Sets a limit.
    fn cuCtxSetLimit(limit: CUlimit, value: usize)
        partly "limits other than stack and heap size are stored and have no effect"
    {
        let context = context::current()?;
        match context.settings().limits.get_mut(&limit) {
            Some(current) => *current = value,
            None => return fail(CUDA_ERROR_UNSUPPORTED_LIMIT),
        }
        Ok(())
    }

    /// Returns the current context's preference between L1 cache and shared memory.
    fn cuCtxGetCacheConfig(config: *mut CUfunc_cache) {
        let cache = context::current()?.settings().cache;
        write(config, cache)
    }

    /// Says how to split cache and shared memory: no effect here.
    fn cuCtxSetCacheConfig(config: CUfunc_cache) {
        ensure(config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE)?;
        context::current()?.settings().cache = config;
        Ok(())
    }

    /// The width of shared memory's banks.
    fn cuCtxGetSharedMemConfig(config: *mut CUsharedconfig) {
        let shared = context::current()?.settings().shared;
        write(config, shared)
    }

    /// Sets the width of shared memory's banks: no effect, as on every GPU since Maxwell.
    fn cuCtxSetSharedMemConfig(config: CUsharedconfig) {
        ensure(config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE, CUDA_ERROR_INVALID_VALUE)?;
        context::current().map(drop)
    }

    /// The API version that a context was made for.
    fn cuCtxGetApiVersion(context: CUcontext, version: *mut u32) {
        given_or_current(context)?;
        write(version, 3020)
    }

    /// The range of stream priorities.
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        context::current()?;
        write_if_wanted(least, device::LEAST_PRIORITY);
        write_if_wanted(greatest, device::GREATEST_PRIORITY);
        Ok(())
    }

    /// Forgets which lines were to stay in the L2 cache: none were.
    fn cuCtxResetPersistingL2Cache() {
        context::current().map(drop)
    }

    /// Records an event behind all of a context's work.
    fn cuCtxRecordEvent(context: CUcontext, event: CUevent) {
        event::record_behind_everything(&*Event::resolve(event)?, &given_or_current(context)?);
        Ok(())
    }

    /// Makes all later work of a context wait for an event.
    fn cuCtxWaitEvent(context: CUcontext, event: CUevent) partly "streams created later do not wait" {
        let context = given_or_current(context)?;
        let event = Event::resolve(event)?;
        if let Some(task) = event.pending() {
            // The legacy default stream comes before and after every blocking stream.
            context.legacy.submit(&context, Operation::Empty, &[task]).start();
        }
        Ok(())
    }
}

fn given_or_current(context: CUcontext) -> crate::error::Result<std::sync::Arc<Context>> {
    if context.is_null() {
        return context::current();
    }
    let context = Context::resolve(context)?;
    context.check()?;
    Ok(context)
}
