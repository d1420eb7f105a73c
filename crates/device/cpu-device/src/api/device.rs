//! Device management, and peers: there is one device, and it is nobody's peer.

use crate::context;
use crate::device::{self, ORDINAL};
use crate::entry::{entries, opaque, text, write, write_text};
use crate::error::{ensure, fail};
use cuda_abi::types::*;
use std::ffi::c_char;

const PCI_BUS_ID: &str = "0000:00:00.0";

entries! {
    /// The device with an ordinal.
    fn cuDeviceGet(device: *mut CUdevice, ordinal: i32) {
        device::at(ordinal)?;
        write(device, ordinal)
    }

    /// Returns the number of devices.
    fn cuDeviceGetCount(count: *mut i32) {
        device::get()?;
        write(count, 1)
    }

    /// The device's name.
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: CUdevice) {
        device::at(device)?;
        write_text(name, length, device::name())
    }

    /// The device's UUID.
    fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) {
        device::at(device)?;
        write(uuid, CUuuid { bytes: device::UUID.map(u8::cast_signed) })
    }

    /// The device's UUID.
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) {
        device::at(device)?;
        write(uuid, CUuuid { bytes: device::UUID.map(u8::cast_signed) })
    }

    /// The device's memory in bytes.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) {
        write(bytes, device::at(device)?.memory.free_and_total().1 as usize)
    }

    /// An attribute.
    fn cuDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) {
        write(value, device::at(device)?.attribute(attribute)?)
    }

    /// A few attributes at once, as programs of long ago ask for them.
    fn cuDeviceGetProperties(properties: *mut CUdevprop, device: CUdevice) {
        let device = device::at(device)?;
        let attribute = |attribute| device.attribute(attribute);
        write(properties, CUdevprop {
            maxThreadsPerBlock: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            maxThreadsDim: device.attributes.max_block_dim.to_array().map(u32::cast_signed),
            maxGridSize: device.attributes.max_grid_dim.to_array().map(u32::cast_signed),
            sharedMemPerBlock: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            totalConstantMemory: attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY)?,
            SIMDWidth: attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            memPitch: attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH)?,
            regsPerBlock: attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
            clockRate: attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            textureAlign: attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?,
        })
    }

    /// The compute capability.
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: CUdevice) {
        device::at(device)?;
        let (of_major, of_minor) = device::capability().numbers();
        write(major, of_major)?;
        write(minor, of_minor)
    }

    /// The place on the PCI bus that the device reports: it is on none, and says zeros.
    fn cuDeviceGetPCIBusId(name: *mut c_char, length: i32, device: CUdevice) {
        device::at(device)?;
        write_text(name, length, PCI_BUS_ID)
    }

    /// The device at a place on the PCI bus.
    fn cuDeviceGetByPCIBusId(device: *mut CUdevice, name: *const c_char) {
        device::get()?;
        let name = text(name)?.to_bytes();
        ensure(PCI_BUS_ID.as_bytes() == name || b"00:00.0" == name, CUDA_ERROR_INVALID_DEVICE)?;
        write(device, ORDINAL)
    }

    /// Returns 0: the only device is nobody's peer.
    fn cuDeviceCanAccessPeer(can: *mut i32, device: CUdevice, peer: CUdevice) {
        device::at(device)?;
        device::at(peer)?;
        write(can, 0)
    }

    /// Fails: an attribute belongs to a pair of devices, and there is only one device.
    fn cuDeviceGetP2PAttribute(value: *mut i32, _attribute: CUdevice_P2PAttribute, from: CUdevice, to: CUdevice) {
        ensure(!value.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        device::at(from)?;
        device::at(to)?;
        fail(CUDA_ERROR_INVALID_DEVICE)
    }

    /// Use of another context's memory; with one device there is nothing to allow.
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32) {
        ensure(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        context::current()?;
        context::Context::resolve(peer)?;
        fail(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
    }

    /// See `cuCtxEnablePeerAccess`.
    fn cuCtxDisablePeerAccess(peer: CUcontext) {
        context::current()?;
        context::Context::resolve(peer)?;
        fail(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
    }

    /// Returns 0: contexts cannot be bound to some of the multiprocessors.
    fn cuDeviceGetExecAffinitySupport(supported: *mut i32, _kind: CUexecAffinityType, device: CUdevice) {
        device::at(device)?;
        write(supported, 0)
    }

    /// The widest one-dimensional texture over linear memory.
    fn cuDeviceGetTexture1DLinearMaxWidth(
        elements: *mut usize,
        _format: CUarray_format,
        channels: u32,
        device: CUdevice,
    ) {
        ensure(matches!(channels, 1 | 2 | 4), CUDA_ERROR_INVALID_VALUE)?;
        let widest = device::at(device)?.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)?;
        write(elements, widest as usize)
    }

    /// Retains the primary context.
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) {
        device::at(device)?;
        ensure(!context.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(context, opaque(context::retain_primary()))
    }

    /// Takes back a retain of the primary context.
    fn cuDevicePrimaryCtxRelease(device: CUdevice) {
        device::at(device)?;
        context::release_primary()
    }

    /// Takes back a retain of the primary context.
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        device::at(device)?;
        context::release_primary()
    }

    /// Ends the primary context and all that is in it.
    fn cuDevicePrimaryCtxReset(device: CUdevice) {
        device::at(device)?;
        context::reset_primary();
        Ok(())
    }

    /// Ends the primary context and all that is in it.
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        device::at(device)?;
        context::reset_primary();
        Ok(())
    }

    /// The primary context's flags, and whether it exists.
    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut u32, active: *mut i32) {
        device::at(device)?;
        let state = context::primary_state();
        write(flags, state.0)?;
        write(active, state.1.into())
    }

    /// Sets the primary context's flags.
    fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: u32) {
        device::at(device)?;
        context::set_primary_flags(flags)
    }

    /// Sets the primary context's flags.
    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32) {
        device::at(device)?;
        context::set_primary_flags(flags)
    }
}
