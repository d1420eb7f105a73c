//! The device: its attributes and its memory.
//!
//! It reports compute capability 8.0, the newest one whose PTX can be executed completely here, so
//! that programs which compile at run time use no newer features; or 9.0 or 12.0, if the user asks
//! for that ([`Capability`]). Limits of a launch are those of the capability. Other figures
//! describe this machine: one multiprocessor for each CPU core that the process may use, the host's
//! memory, its last-level cache, and a clock of 1 GHz, so that clock cycles are nanoseconds.

use crate::error::{Error, Result, ensure, fail};
use crate::memory::Memory;
use apex_conventions::cpu_device;
use apex_conventions::variables::CPU_CAPABILITY;
use cuda_abi::types::*;
use cuda_launch::{DeviceAttributes, Dim3};
use ptx_exec::Engine;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The version of the driver API that `cuDriverGetVersion` tells: CUDA 13.0.
pub const DRIVER_VERSION: i32 = 13000;

/// The compute capabilities that the device may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// 8.0.
    Ampere,
    /// 9.0, with `APEX_CPU_CAPABILITY=9.0`.
    Hopper,
    /// 12.0, with `APEX_CPU_CAPABILITY=12.0`.
    Blackwell,
}

impl Capability {
    /// The capability of this name; `None` if the device has none such.
    fn named(name: &str) -> Option<Capability> {
        match name {
            "8.0" => Some(Capability::Ampere),
            "9.0" => Some(Capability::Hopper),
            "12.0" => Some(Capability::Blackwell),
            _ => None,
        }
    }

    /// Major and minor number.
    pub fn numbers(self) -> (i32, i32) {
        match self {
            Capability::Ampere => (8, 0),
            Capability::Hopper => (9, 0),
            Capability::Blackwell => (12, 0),
        }
    }

    /// Attributes that are the same on every machine.
    fn attributes(self) -> &'static DeviceAttributes {
        match self {
            Capability::Ampere => &AMPERE,
            Capability::Hopper => &HOPPER,
            Capability::Blackwell => &BLACKWELL,
        }
    }
}

/// The capability that the user asks for; the error is what he wrote.
fn asked_capability() -> std::result::Result<Capability, String> {
    static ASKED: OnceLock<std::result::Result<Capability, String>> = OnceLock::new();
    let read = || match CPU_CAPABILITY.value() {
        None => Ok(Capability::Ampere),
        Some(value) => {
            let name = value.to_string_lossy();
            Capability::named(&name).ok_or_else(|| name.into_owned())
        }
    };
    ASKED.get_or_init(read).clone()
}

/// The device's compute capability.
pub fn capability() -> Capability {
    // `cuInit` has refused any other.
    asked_capability().unwrap_or(Capability::Ampere)
}

/// The newest architecture whose PTX the device takes, as fatbins write it.
pub fn architecture() -> u32 {
    let (major, minor) = capability().numbers();
    (major * 10 + minor) as u32
}

/// Attributes of the device that are the same on every machine.
pub fn fixed_attributes() -> &'static DeviceAttributes {
    capability().attributes()
}

/// The device's name, which programs show to their users.
pub fn name() -> &'static str {
    match capability() {
        Capability::Ampere => cpu_device::NAME,
        Capability::Hopper => cpu_device::NAME_90,
        Capability::Blackwell => cpu_device::NAME_120,
    }
}

/// The only device's ordinal.
pub const ORDINAL: CUdevice = 0;

/// Identifies the device; the same everywhere and always.
pub const UUID: [u8; 16] = *b"APEX CPU device\0";

/// Bytes of arguments that a kernel may have.
pub const MAX_ARGUMENT_BYTES: u32 = 32764;
/// Constant memory in bytes.
pub const CONSTANT_BYTES: u32 = 64 << 10;
/// Stream priorities: the least urgent and the most. They are kept and have no effect.
pub const LEAST_PRIORITY: i32 = 0;
/// See [`LEAST_PRIORITY`].
pub const GREATEST_PRIORITY: i32 = -5;
/// Linear memory that a texture reads starts at multiples of this.
pub const TEXTURE_ALIGNMENT: u64 = 512;
/// The pitch of memory that a texture reads is a multiple of this.
pub const TEXTURE_PITCH_ALIGNMENT: u64 = 32;
/// Rows of pitched allocations start at multiples of this.
pub const PITCH_ALIGNMENT: u64 = 512;

/// Shared memory in bytes that the system would keep of each block's.
const RESERVED_SHARED_BYTES: u32 = 1 << 10;

/// Shared memory in bytes that a block of 8.0 may have on request.
const AMPERE_SHARED_BYTES: u32 = 163 << 10;

/// Limits of compute capability 8.0, of which the executor states those that it holds launches to,
/// and a clock of 1 GHz.
static AMPERE: DeviceAttributes = DeviceAttributes {
    compute_capability: (8, 0),
    warp_size: 32,
    max_threads_per_block: ptx_exec::MAX_THREADS,
    max_block_dim: Dim3::new(ptx_exec::MAX_THREADS, ptx_exec::MAX_THREADS, 64),
    max_grid_dim: Dim3::new(i32::MAX as u32, 65535, 65535),
    max_threads_per_multiprocessor: 2048,
    max_blocks_per_multiprocessor: 32,
    max_registers_per_multiprocessor: 65536,
    max_registers_per_block: 65536,
    max_shared_bytes_per_multiprocessor: AMPERE_SHARED_BYTES + RESERVED_SHARED_BYTES,
    max_shared_bytes_per_block: 48 << 10,
    max_shared_bytes_per_block_optin: AMPERE_SHARED_BYTES,
    reserved_shared_bytes_per_block: RESERVED_SHARED_BYTES,
    clock_khz: 1_000_000,
    memory_clock_khz: 1_000_000,
    memory_bus_bits: 64,
    ..DeviceAttributes::UNKNOWN
};

/// The same of 9.0.
static HOPPER: DeviceAttributes = DeviceAttributes {
    compute_capability: (9, 0),
    max_shared_bytes_per_multiprocessor: ptx_exec::MAX_SHARED + RESERVED_SHARED_BYTES,
    max_shared_bytes_per_block_optin: ptx_exec::MAX_SHARED,
    ..AMPERE
};

/// Shared memory in bytes that a block of 12.0 may have on request.
const BLACKWELL_SHARED_BYTES: u32 = 99 << 10;

/// The same of 12.0.
static BLACKWELL: DeviceAttributes = DeviceAttributes {
    compute_capability: (12, 0),
    max_threads_per_multiprocessor: 1536,
    max_blocks_per_multiprocessor: 24,
    max_shared_bytes_per_multiprocessor: BLACKWELL_SHARED_BYTES + RESERVED_SHARED_BYTES,
    max_shared_bytes_per_block_optin: BLACKWELL_SHARED_BYTES,
    ..AMPERE
};

/// The device's state.
pub struct Device {
    /// Its memory.
    pub memory: Memory,
    /// The attributes that the device reports. It has a multiprocessor for each CPU core that the
    /// process may run on.
    pub attributes: DeviceAttributes,
}

static DEVICE: OnceLock<Device> = OnceLock::new();

/// Set in a child that was forked after `cuInit`: CUDA does not work there, and the threads that
/// would do the work are not there.
static FORKED: AtomicBool = AtomicBool::new(false);

/// `cuInit`.
pub fn init() -> Result {
    if let Err(name) = asked_capability() {
        eprintln!("apex: cpu device: {}={name}: it can be 8.0, 9.0 or 12.0", CPU_CAPABILITY.name);
        return fail(CUDA_ERROR_NO_DEVICE);
    }
    DEVICE.get_or_init(|| {
        extern "C" fn in_child() {
            FORKED.store(true, Ordering::Relaxed);
        }
        // SAFETY: the handler only stores to an atomic, which is allowed in the child of a process
        // with threads.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if let Err(message) = Engine::of_environment() {
            eprintln!("apex: cpu device: {message}: kernels are executed as by {}", Engine::Auto.name());
        }
        let attributes = DeviceAttributes {
            multiprocessors: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            l2_cache_bytes: system_value(libc::_SC_LEVEL3_CACHE_SIZE) as u32,
            ..*fixed_attributes()
        };
        Device { memory: Memory::new(host_memory()), attributes }
    });
    get().map(drop)
}

/// The device, once `cuInit` has been called.
pub fn get() -> Result<&'static Device> {
    let device = DEVICE.get().filter(|_| !FORKED.load(Ordering::Relaxed));
    device.ok_or(Error(CUDA_ERROR_NOT_INITIALIZED))
}

/// The device, if `ordinal` names it.
pub fn at(ordinal: CUdevice) -> Result<&'static Device> {
    let device = get()?;
    ensure(ordinal == ORDINAL, CUDA_ERROR_INVALID_DEVICE)?;
    Ok(device)
}

/// The machine's memory in bytes.
fn host_memory() -> u64 {
    system_value(libc::_SC_PHYS_PAGES) * system_value(libc::_SC_PAGESIZE)
}

/// A value from `sysconf`; 0 where the system does not know it.
fn system_value(name: libc::c_int) -> u64 {
    // SAFETY: `sysconf` takes any name.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0)
}

impl Device {
    /// The value of an attribute. Of those that CUDA knows, the ones that are not listed are
    /// features that 8.0 has not or that this device has not, and their value is 0.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32> {
        ensure((1..CU_DEVICE_ATTRIBUTE_MAX).contains(&attribute), CUDA_ERROR_INVALID_VALUE)?;
        if matches!(
            attribute,
            CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH | CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED
        ) {
            return Ok(i32::from(capability() != Capability::Ampere));
        }
        let value = self.attributes.get(attribute).map(u32::cast_signed);
        Ok(value.or_else(|| feature(attribute)).or_else(|| extent(attribute)).unwrap_or(0))
    }
}

/// Attributes that say what the device can do, and what kind of machine it is.
fn feature(attribute: CUdevice_attribute) -> Option<i32> {
    Some(match attribute {
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
        | CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR
        | CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS
        | CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID
        | CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT => 1,
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 2,
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        CU_DEVICE_ATTRIBUTE_COMPUTE_MODE => CU_COMPUTEMODE_DEFAULT as i32,
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => CONSTANT_BYTES as i32,
        CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        CU_DEVICE_ATTRIBUTE_NUMA_CONFIG => CU_DEVICE_NUMA_CONFIG_NONE as i32,
        CU_DEVICE_ATTRIBUTE_NUMA_ID | CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => -1,
        _ => return None,
    })
}

/// Attributes that bound textures and surfaces, and their alignments: those of compute capability
/// 8.0.
fn extent(attribute: CUdevice_attribute) -> Option<i32> {
    Some(match attribute {
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => {
            TEXTURE_ALIGNMENT as i32
        }
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => TEXTURE_PITCH_ALIGNMENT as i32,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH => 1 << 28,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH => 131_072,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT => 65_536,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH => 2_097_120,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH => 16_384,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH => 32_768,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS => 2_048,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS => 2_046,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_launch::attribute;

    #[test]
    fn capabilities_have_names_and_the_limits_of_their_devices() {
        assert_eq!(Capability::named("9.0"), Some(Capability::Hopper));
        assert_eq!(Capability::named("12.0"), Some(Capability::Blackwell));
        assert!(["", "9", "12.1", "90"].iter().all(|name| Capability::named(name).is_none()));
        for capability in [Capability::Ampere, Capability::Hopper, Capability::Blackwell] {
            let (major, minor) = capability.numbers();
            let attributes = capability.attributes();
            assert_eq!(attributes.compute_capability, (major as u32, minor as u32));
            let limits = occupancy::DeviceLimits::of_compute_capability(major as u32, minor as u32).unwrap();
            assert_eq!(
                attributes.max_shared_bytes_per_block_optin,
                limits.attributes.max_shared_bytes_per_block_optin
            );
        }
    }

    #[test]
    fn cuda_launch_numbers_attributes_as_cuda_does() {
        let pairs = [
            (attribute::MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            (attribute::MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            (attribute::MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            (attribute::MAX_BLOCK_DIM_Z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            (attribute::MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            (attribute::MAX_GRID_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            (attribute::MAX_GRID_DIM_Z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            (attribute::MAX_SHARED_MEMORY_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
            (attribute::WARP_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
            (attribute::MAX_REGISTERS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
            (attribute::CLOCK_RATE, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
            (attribute::MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            (attribute::MEMORY_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
            (attribute::GLOBAL_MEMORY_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
            (attribute::L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
            (attribute::MAX_THREADS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
            (attribute::COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            (attribute::COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            (
                attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            ),
            (
                attribute::MAX_REGISTERS_PER_MULTIPROCESSOR,
                CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
            ),
            (
                attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            ),
            (attribute::MAX_BLOCKS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
            (
                attribute::RESERVED_SHARED_MEMORY_PER_BLOCK,
                CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
            ),
        ];
        for (ours, cudas) in pairs {
            assert_eq!(ours, cudas);
        }
        // The list above is complete: `DeviceAttributes` answers for these attributes and for no
        // others.
        let known = (0..CU_DEVICE_ATTRIBUTE_MAX).filter(|&id| AMPERE.get(id).is_some());
        assert_eq!(known.collect::<Vec<_>>(), pairs.map(|(_, id)| id));
    }
}
