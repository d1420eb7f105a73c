//! Memory and events shared with other processes.

use crate::context;
use crate::entry::{entries, opaque, write};
use crate::error::{ensure, fail};
use crate::memory::ipc::{self, SharedEvent};
use crate::stream::event::Event;
use cuda_abi::types::*;

entries! {
    /// A handle by which other processes open an allocation.
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr)
        partly "only memory of cuMemAlloc, for processes of the same user"
    {
        ensure(!handle.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = context::current()?;
        let found = ipc::shareable(address)?;
        context.forbid_while_capturing()?;
        context.order.wait();
        context.check()?;
        write(handle, ipc::share_memory(&found)?)
    }

    /// Opens an allocation of another process.
    fn cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) {
        ensure(!address.is_null() && flags & !CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == 0, CUDA_ERROR_INVALID_VALUE)?;
        write(address, ipc::open_memory(handle, context::current()?.handle)?)
    }

    /// Opens an allocation of another process.
    fn cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) {
        ensure(!address.is_null() && flags & !CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == 0, CUDA_ERROR_INVALID_VALUE)?;
        write(address, ipc::open_memory(handle, context::current()?.handle)?)
    }

    /// Closes an allocation of another process.
    fn cuIpcCloseMemHandle(address: CUdeviceptr) {
        let context = context::current()?;
        if ipc::close_memory(address)? {
            context.order.wait();
            ipc::unmap(address)?;
        }
        Ok(())
    }

    /// A handle by which other processes open an event.
    fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) {
        ensure(!handle.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        match Event::resolve(event)?.shared() {
            Some(shared) => write(handle, shared.handle()?),
            None => fail(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Opens an event of another process.
    fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) {
        ensure(!event.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        context::current()?;
        write(event, opaque(Event::open(SharedEvent::open(handle)?)?.handle))
    }
}
