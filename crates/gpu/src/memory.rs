//! Memory of a device: who allocated it, who uses it, when it is freed.
//!
//! Buffers share it with the graphs that use it, so no graph outlives its memory. It is freed in
//! the order of its home stream, after the last use on any stream. Memory of others is borrowed: it
//! is not freed, but what its owner does on the home stream afterwards waits for the last use too.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, DevicePtr, sys};

use crate::buffer::check_stream;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::uses::{Access, Uses};

/// Memory that is freed when nobody has it any more, after its last use.
pub(crate) struct Memory {
    /// Taken when this is dropped, by nobody else.
    owned: ManuallyDrop<CudaSlice<u8>>,
    address: sys::CUdeviceptr,
    device: Device,
    /// Where it was made, and where it is freed.
    home: Stream,
    uses: Uses,
    /// Whether somebody else frees it.
    borrowed: bool,
}

impl Memory {
    /// `bytes` bytes with whatever was in them; `None` stands for more than an address can name.
    ///
    /// While `stream` is captured, the memory comes from another stream: it belongs to the program
    /// and to the graph, not to one launch of the graph.
    pub(crate) fn allocate(device: &Device, bytes: Option<usize>, stream: &Stream) -> Result<Arc<Memory>> {
        check_stream(device.core(), stream)?;
        let bytes = bytes.filter(|&bytes| bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else {
            let (free, total) = device.memory().unwrap_or_default();
            let (call, device) = ("cuMemAllocAsync", device.name().to_owned());
            return Err(Error::OutOfMemory { call, device, bytes: usize::MAX, free, total });
        };
        let home = stream.for_allocations();
        // The driver refuses sizes of zero. SAFETY: bytes of any value are valid; this crate reads
        // none of them before they are written, kernels may.
        let memory = unsafe { home.cuda().alloc::<u8>(bytes.max(1)) };
        let memory = memory.map_err(device.core().no_memory("cuMemAllocAsync", bytes))?;
        let (address, _) = memory.device_ptr(home.cuda());
        Ok(Arc::new(Memory {
            address,
            owned: ManuallyDrop::new(memory),
            device: device.clone(),
            uses: Uses::made_on(&home),
            home,
            borrowed: false,
        }))
    }

    /// Memory of somebody else, who uses it in the order of `home`.
    ///
    /// # Safety
    /// As [`Device::borrow_buffer`].
    pub(crate) unsafe fn borrow(
        device: &Device,
        address: sys::CUdeviceptr,
        bytes: usize,
        home: &Stream,
    ) -> Result<Arc<Memory>> {
        check_stream(device.core(), home)?;
        // SAFETY: the caller says that so many bytes are there. They are not freed, see `drop`.
        let memory = unsafe { home.cuda().upgrade_device_ptr::<u8>(address, bytes) };
        Ok(Arc::new(Memory {
            address,
            owned: ManuallyDrop::new(memory),
            device: device.clone(),
            uses: Uses::made_on(home),
            home: home.clone(),
            borrowed: true,
        }))
    }

    pub(crate) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Lets `stream` wait for what it has to wait for before it uses the memory. While `stream` is
    /// captured nothing runs: then each launch of the graph waits.
    #[inline]
    pub(crate) fn order(self: &Arc<Self>, stream: &Stream, access: Access) -> Result<()> {
        match stream.is_captured() {
            false => self.uses.order(stream, access),
            true => {
                stream.recording(|recording| recording.uses(self, access));
                Ok(())
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Should any of this fail, the context is broken, and nothing runs any more that could use
        // the memory.
        let _ = self.device.core().bind();
        // SAFETY: nobody uses it after this.
        let mut owned = Some(unsafe { ManuallyDrop::take(&mut self.owned) });
        let captured = self.home.is_captured();
        if captured && !self.borrowed {
            // Freed now, it would be freed by the graph.
            self.home.recording(|recording| recording.frees_afterwards(owned.take()));
        }
        // A capture that has not used borrowed memory has nothing to do with it.
        if owned.is_some() && !(captured && self.borrowed) {
            // What is dropped next is freed in the order of its home stream; the owner of what was
            // borrowed goes on in that order.
            let _ = self.uses.order(&self.home, Access::Write);
        }
        if self.borrowed {
            owned.map(CudaSlice::leak);
        }
    }
}
