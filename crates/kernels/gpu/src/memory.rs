//! Memory of a device: its owner, its users, and when it is freed.
//!
//! Buffers share memory with the graphs that use it, so no graph outlives its memory. Memory is
//! freed in the order of its home stream, after the last use on any stream. Borrowed memory is not
//! freed, but its owner's later work on the home stream also waits for the last use.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, DevicePtr, sys};

use crate::buffer::check_stream;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::uses::{Access, Uses};

/// Memory that is freed when nobody has it any more, after its last use.
pub(crate) struct Memory {
    /// The owner that frees it; `None` if somebody else does.
    owned: Option<CudaSlice<u8>>,
    address: sys::CUdeviceptr,
    device: Device,
    /// The stream on which it was made, and on which it is freed.
    home: Stream,
    uses: Uses,
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
            owned: Some(memory),
            device: device.clone(),
            uses: Uses::made_on(&home),
            home,
        }))
    }

    /// Memory of somebody else, who uses it in the order of `home`. Nothing is accessed here: who
    /// makes a buffer of it promises what [`Device::borrow_buffer`] asks for.
    pub(crate) fn borrow(device: &Device, address: sys::CUdeviceptr, home: &Stream) -> Result<Arc<Memory>> {
        check_stream(device.core(), home)?;
        let (device, home) = (device.clone(), home.clone());
        Ok(Arc::new(Memory { owned: None, address, device, uses: Uses::made_on(&home), home }))
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
            true => match stream.recording(|recording| recording.uses(self, access)) {
                Some(()) => Ok(()),
                // The capture ended meanwhile.
                None => self.uses.order(stream, access),
            },
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Should any of this fail, the context is broken, and nothing runs any more that could use
        // the memory.
        let _ = self.device.core().bind();
        let captured = self.home.is_captured();
        if let Some(owned) = self.owned.take() {
            let mut owned = Some(owned);
            if captured {
                // Freed now, it would be freed by the graph.
                self.home.recording(|recording| recording.frees_afterwards(owned.take()));
            }
            if owned.is_some() {
                // What is dropped next is freed in the order of its home stream.
                let _ = self.uses.order(&self.home, Access::Write);
            }
        } else if !captured {
            // The owner of what was borrowed goes on in the order of the home stream. A capture
            // that has not used it has nothing to do with it.
            let _ = self.uses.order(&self.home, Access::Write);
        }
    }
}
