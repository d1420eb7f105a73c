//! The rows of the tables: kernels, launches, and the measurements of a launch.

use crate::csv::{Columns, Fields};
use crate::record;
use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig};

record! {
    /// A kernel.
    KernelRow {
        /// Name of the kernel.
        kernel: String,
        /// Family of kernels that do similar work. Training holds out whole families.
        family: String,
        /// Registers per thread.
        registers: u32,
        /// Static shared memory per block.
        static_shared_bytes: u32,
        /// Local memory per thread.
        local_bytes: Option<u32>,
        /// Constant memory that the code declares.
        constant_bytes: Option<u32>,
        /// Maximum threads per block.
        max_threads_per_block: Option<u32>,
        /// Instruction mix of the PTX, where there is PTX.
        ptx: PtxMix,
    }
}

impl KernelRow {
    /// Attributes of the kernel, as far as the table has them.
    pub fn attributes(&self) -> FunctionAttributes {
        FunctionAttributes {
            registers: self.registers,
            static_shared_bytes: self.static_shared_bytes,
            local_bytes: self.local_bytes.unwrap_or(0),
            constant_bytes: self.constant_bytes.unwrap_or(0),
            max_threads_per_block: self.max_threads_per_block.unwrap_or(0),
            ..FunctionAttributes::default()
        }
    }
}

/// Static counts of a kernel's PTX; columns `ptx_…`, all empty where there is no PTX.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PtxMix(pub Option<ptx::Mix>);

impl PtxMix {
    fn numbers(mix: &ptx::Mix) -> Vec<u64> {
        let rest = [
            mix.loops,
            mix.predicated,
            mix.global_load_bytes,
            mix.global_store_bytes,
            mix.shared_bytes,
            mix.local_bytes,
            mix.global_bytes_in_loops,
        ];
        [&mix.counts[..], &mix.in_loops, &rest].concat()
    }
}

impl Columns for PtxMix {
    fn names(_: &str, into: &mut Vec<String>) {
        into.extend(ptx::Class::ALL.map(|class| format!("ptx_{}", class.name())));
        into.extend(ptx::Class::ALL.map(|class| format!("ptx_{}_in_loops", class.name())));
        let rest = [
            "loops",
            "predicated",
            "global_load_bytes",
            "global_store_bytes",
            "shared_bytes",
            "local_bytes",
            "global_bytes_in_loops",
        ];
        into.extend(rest.map(|name| format!("ptx_{name}")));
    }

    fn write(&self, into: &mut Vec<String>) {
        let columns = 2 * ptx::Class::ALL.len() + 7;
        match &self.0 {
            Some(mix) => into.extend(Self::numbers(mix).iter().map(u64::to_string)),
            None => into.extend(std::iter::repeat_n(String::new(), columns)),
        }
    }

    fn read(from: &mut Fields<'_>) -> Result<Self, String> {
        let mut number = || {
            from.parse("empty or a whole number", |text| match text {
                "" => Some(None),
                text => text.parse::<u64>().ok().map(Some),
            })
        };
        let mut numbers = Vec::new();
        for _ in 0..2 * ptx::Class::ALL.len() + 7 {
            numbers.extend(number()?);
        }
        let classes = ptx::Class::ALL.len();
        let rest = match numbers.len() {
            0 => return Ok(PtxMix(None)),
            found if found == 2 * classes + 7 => &numbers[2 * classes..],
            _ => return Err("some columns of the PTX are empty and some are not".to_owned()),
        };
        Ok(PtxMix(Some(ptx::Mix {
            counts: std::array::from_fn(|class| numbers[class]),
            in_loops: std::array::from_fn(|class| numbers[classes + class]),
            loops: rest[0],
            predicated: rest[1],
            global_load_bytes: rest[2],
            global_store_bytes: rest[3],
            shared_bytes: rest[4],
            local_bytes: rest[5],
            global_bytes_in_loops: rest[6],
        })))
    }
}

record! {
    /// A launch, and what was measured of it.
    LaunchRow {
        /// Its number in the collection.
        row: u64,
        /// The kernel's name, as in the table of kernels.
        kernel: String,
        /// Units of work.
        n: Option<u64>,
        /// The kernel's parameter.
        m: Option<u64>,
        /// Grid: blocks along x, y and z.
        grid: Dim3,
        /// Block: threads along x, y and z.
        block: Dim3,
        /// Dynamic shared memory per block.
        dynamic_shared_bytes: u32,
        /// Bytes that the algorithm has to move, computed from the problem.
        algorithm_bytes: Option<u64>,
        /// Approximate number of instructions of all threads, computed from the problem.
        algorithm_operations: Option<f64>,
        /// Maximum resident blocks per SM, computed.
        blocks_per_sm: Option<u32>,
        /// Theoretical occupancy, computed.
        theoretical_occupancy_percent: Option<f64>,
        /// Index of the device that executed the launch.
        device: u32,
        /// Its time.
        timing: Timing,
        /// Its counters.
        counters: Counters,
        /// The values that were not measured, and the reason; empty if there are none.
        missing: String,
    }
}

record! {
    /// Duration of a launch, measured without a profiler.
    Timing {
        /// Median of the repeats; the duration of an empty kernel is subtracted.
        time_us: Option<f64>,
        /// Interquartile range as a fraction of the median.
        time_spread: Option<f64>,
        /// Number of repeats.
        time_samples: Option<u64>,
    }
}

record! {
    /// Counters that a profiler read in another run of the launch.
    Counters {
        /// Duration (`gpu__time_duration`) under the profiler; nothing is subtracted.
        profiled_time_us: Option<f64>,
        /// Achieved occupancy: resident warps of an active SM, in percent of the maximum.
        achieved_occupancy_percent: Option<f64>,
        /// Cycles in which an SM had a warp, mean over the SMs.
        sm_active_cycles: Option<f64>,
        /// Elapsed cycles, mean over the SMs.
        sm_elapsed_cycles: Option<f64>,
        /// Warp instructions executed, sum over the SMs.
        instructions: Option<f64>,
        /// Avg. active threads per warp.
        threads_per_instruction: Option<f64>,
        /// Instructions issued per elapsed cycle, in percent of the peak.
        sm_issue_percent: Option<f64>,
        /// Compute (SM) throughput, in percent of the peak.
        sm_throughput_percent: Option<f64>,
        /// Memory throughput, in percent of the peak.
        memory_throughput_percent: Option<f64>,
        /// Bytes read from DRAM.
        dram_read_bytes: Option<f64>,
        /// Bytes written to DRAM.
        dram_write_bytes: Option<f64>,
    }
}

impl LaunchRow {
    /// Returns the configuration of the launch.
    pub fn config(&self) -> LaunchConfig {
        LaunchConfig::new(self.grid, self.block).with_dynamic_shared_bytes(self.dynamic_shared_bytes)
    }
}
