//! The quantities that are read, in one table.

use serde::Serialize;

/// What a quantity is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Watts.
    Watts,
    /// Megahertz.
    Megahertz,
    /// Degrees Celsius.
    Celsius,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// A part of a whole, from 0 to 1.
    Share,
    /// Logical processors that are busy.
    Cpus,
    /// A number.
    Count,
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $variant:ident = $key:literal, $label:literal, $unit:ident;)*) => {
        /// A quantity of a device or of the host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Quantity {
            $($(#[$doc])* $variant,)*
        }

        impl Quantity {
            /// All of them, in the order in which views show them.
            pub const ALL: &[Quantity] = &[$(Quantity::$variant),*];

            /// Its name in files and documents.
            pub fn key(self) -> &'static str {
                match self {
                    $(Quantity::$variant => $key,)*
                }
            }

            /// Its name for people.
            pub fn label(self) -> &'static str {
                match self {
                    $(Quantity::$variant => $label,)*
                }
            }

            /// Returns its unit.
            pub fn unit(self) -> Unit {
                match self {
                    $(Quantity::$variant => Unit::$unit,)*
                }
            }

            /// The quantity of this name.
            pub fn of_key(key: &str) -> Option<Quantity> {
                match key {
                    $($key => Some(Quantity::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

quantities! {
    /// Power, as the device averages it.
    Power = "power_w", "power", Watts;
    /// The limit that is enforced.
    PowerLimit = "power_limit_w", "power limit", Watts;
    /// Power over the interval, from the device's counter of energy.
    AveragePower = "average_power_w", "average power", Watts;
    /// Clock of the SMs.
    SmClock = "sm_clock_mhz", "SM clock", Megahertz;
    /// Clock of the memory.
    MemoryClock = "memory_clock_mhz", "memory clock", Megahertz;
    /// Temperature of the GPU.
    Temperature = "temperature_c", "temperature", Celsius;
    /// Memory in use, by all processes.
    MemoryUsed = "memory_used_bytes", "memory used", Bytes;
    /// Share of time in which a kernel ran (`nvmlUtilization_t::gpu`).
    GpuUtilization = "gpu_utilization", "GPU utilization", Share;
    /// Share of time in which device memory was read or written (`nvmlUtilization_t::memory`).
    MemoryUtilization = "memory_utilization", "memory utilization", Share;
    /// GPM: share of SMs that were busy.
    SmUtilization = "sm_utilization", "SM utilization", Share;
    /// GPM: active warps against the most that there can be.
    SmOccupancy = "sm_occupancy", "SM occupancy", Share;
    /// GPM: share of time in which the SMs did tensor operations.
    TensorActivity = "tensor_activity", "tensor activity", Share;
    /// GPM: bandwidth of the device memory against the most that there can be.
    DramBandwidth = "dram_bandwidth", "DRAM bandwidth", Share;
    /// Bytes that the device received over PCIe.
    PcieReceived = "pcie_received_bytes_per_s", "PCIe received", BytesPerSecond;
    /// Bytes that the device sent over PCIe.
    PcieSent = "pcie_sent_bytes_per_s", "PCIe sent", BytesPerSecond;
    /// Bytes that the device received over NVLink.
    NvlinkReceived = "nvlink_received_bytes_per_s", "NVLink received", BytesPerSecond;
    /// Bytes that the device sent over NVLink.
    NvlinkSent = "nvlink_sent_bytes_per_s", "NVLink sent", BytesPerSecond;
    /// 1 while the power limit lowers the clocks (`SwPowerCap`). Its mean is the share of samples.
    PowerCapped = "power_capped", "power capped", Share;
    /// 1 while heat lowers the clocks (`SwThermalSlowdown`, `HwThermalSlowdown`).
    ThermalSlowdown = "thermal_slowdown", "thermal slowdown", Share;
    /// 1 while the power supply has the hardware lower the clocks (`HwPowerBrakeSlowdown`).
    PowerBrake = "power_brake", "power brake", Share;
    /// 1 while the hardware lowers the clocks for another cause (`HwSlowdown` without the two
    /// above).
    HardwareSlowdown = "hardware_slowdown", "hardware slowdown", Share;
    /// 1 while somebody's settings hold the clocks (`ApplicationsClocksSetting`).
    ClocksSet = "clocks_set", "clocks held by a setting", Share;
    /// 1 while another device of its group holds the clocks (`SyncBoost`).
    SyncBoost = "sync_boost", "sync boost", Share;
    /// 1 while the clocks of the display hold the clocks (`DisplayClockSetting`).
    DisplayClocks = "display_clocks", "clocks held by the display", Share;
    /// 1 while a limit of the board lowers the clocks (`BoardLimit`).
    BoardLimit = "board_limit", "board limit", Share;
    /// 1 while the clocks are lower for the device's reliability (`Reliability`).
    ReliabilityLimit = "reliability_limit", "reliability limit", Share;
    /// 1 while the clocks are lower for a reason that has no name here.
    OtherClockReason = "other_clock_reason", "unknown clock reason", Share;
    /// The bits of that reason as NVML tells them; missing while there is none.
    OtherClockReasonBits = "other_clock_reason_bits", "bits of the unknown clock reason", Count;
    /// 1 once the driver has lost the device (`NVML_ERROR_GPU_IS_LOST`).
    Lost = "lost", "lost by the driver", Share;
    /// Processors that the program's processes kept busy.
    ProgramCpus = "program_cpus", "CPUs busy with the program", Cpus;
    /// Processors of the machine that were busy.
    MachineCpus = "machine_cpus", "CPUs busy", Cpus;
    /// Resident memory of the program's processes; what they share counts for each of them.
    ProgramMemory = "program_memory_bytes", "memory of the program", Bytes;
    /// Memory of the machine that is in use.
    MachineMemory = "machine_memory_bytes", "memory used", Bytes;
    /// The program's processes.
    Processes = "processes", "processes", Count;
    /// Load average over a minute.
    Load = "load", "load", Count;
}

impl Quantity {
    /// The reasons why clocks are lower than they could be, the gravest first.
    pub const CLOCK_REASONS: [Quantity; 10] = [
        Quantity::ThermalSlowdown,
        Quantity::PowerBrake,
        Quantity::HardwareSlowdown,
        Quantity::ReliabilityLimit,
        Quantity::BoardLimit,
        Quantity::PowerCapped,
        Quantity::OtherClockReason,
        Quantity::SyncBoost,
        Quantity::DisplayClocks,
        Quantity::ClocksSet,
    ];
}
