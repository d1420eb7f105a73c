//! One row for each kernel: a function in one launch configuration on one device.
//!
//! A column is stated once: its name, how its value is got from a row, what it means.

use super::CONFIGURATION;
use crate::table::{Cell, Column, Sink, Type};
use apex_counts::Space;
use apex_profile::{
    Device, DeviceNames, Distribution, Geometry, GpuTime, Kernel, KernelCounts, Prediction, Profile,
};
use cuda_launch::{Dim3, FunctionAttributes};
use std::io;

/// Columns of the kernels' table.
pub const COLUMNS: [Column; 74] = {
    let mut columns = [CONFIGURATION[0]; 74];
    let mut at = 0;
    while at < columns.len() {
        columns[at] = FIELDS[at].column;
        at += 1;
    }
    columns
};

const FIELDS: [Field; 74] = [
    text("kernel", |row| Some(&row.kernel.name)).means("demangled name"),
    text("symbol", |row| Some(&row.kernel.symbol)).means("name as the driver reports it"),
    text("device", |row| Some(&row.device?.name)).means("name of the device; null if unknown"),
    text("short_name", |row| Some(&row.kernel.short_name))
        .means("short name of the function, unique in the table"),
    text("operation", |row| Some(row.kernel.traits.operation.name()))
        .means("operation, from the name: matrix_product, copy, …, unknown"),
    text("input_type", |row| Some(row.kernel.traits.types.input?.name()))
        .means("type of its operands, from the name: f32, tf32, bf16, …; null if unknown"),
    text("output_type", |row| Some(row.kernel.traits.types.output?.name()))
        .means("type of its result, from the name; null if unknown"),
    text("accumulator_type", |row| Some(row.kernel.traits.types.accumulator?.name()))
        .means("type of its accumulator, from the name; null if unknown"),
    text("tensor_cores", |row| Some(if row.kernel.traits.tensor_cores? { "yes" } else { "no" }))
        .means("yes or no, from the name; null if unknown"),
    text("owner", |row| Some(row.kernel.traits.owner.name()))
        .means("own, or the name of a library, framework or compiler"),
    shared(0, |row| side(row.kernel.launch.grid.x)),
    shared(1, |row| side(row.kernel.launch.grid.y)),
    shared(2, |row| side(row.kernel.launch.grid.z)),
    shared(3, |row| side(row.kernel.launch.block.x)),
    shared(4, |row| side(row.kernel.launch.block.y)),
    shared(5, |row| side(row.kernel.launch.block.z)),
    shared(6, |row| Some(row.cluster?.x.into())),
    shared(7, |row| Some(row.cluster?.y.into())),
    shared(8, |row| Some(row.cluster?.z.into())),
    shared(9, |row| Some(row.kernel.launch.dynamic_shared_bytes.into())),
    shared(10, |row| Some(row.attributes?.static_shared_bytes.into())),
    shared(11, |row| Some(row.attributes?.local_bytes.into())),
    shared(12, |row| Some(row.attributes?.registers.into())),
    integer("max_threads_per_block", |row| Some(row.attributes?.max_threads_per_block.into()))
        .means("maximum of the kernel"),
    integer("binary_version", |row| Some(row.attributes?.binary_version.into()))
        .means("architecture of the machine code, such as 90"),
    integer("ptx_version", |row| Some(row.attributes?.ptx_version.into()))
        .means("architecture of its PTX, such as 80"),
    integer("launches", |row| Some(row.kernel.launches.ran()))
        .means("runs, by launch calls and by graphs; measured"),
    integer("by_graphs", |row| Some(row.kernel.launches.by_graphs))
        .means("runs by graph launches among them; computed from the graphs' nodes"),
    integer("captured", |row| Some(row.kernel.launches.captured))
        .means("launch calls captured into a graph, which executed nothing; measured"),
    integer("failed", |row| Some(row.kernel.launches.failed)).means("launch calls that failed; measured"),
    integer("cpu_ns", |row| Some(row.kernel.cpu.total_ns.round() as u64))
        .means("CPU time in launch calls; measured"),
    integer("cpu_median_ns", |row| Some(row.call?.median_ns.round() as u64)).means("of one call; measured"),
    integer("cpu_p99_ns", |row| Some(row.call?.p99_ns.round() as u64)).means("of one call; measured"),
    integer("gpu_samples", |row| Some(row.gpu?.each.count)).means("timed launches behind gpu_mean_ns"),
    real("gpu_mean_ns", |row| Some(row.gpu?.each.mean_ns))
        .means("GPU time of one launch; measured on gpu_samples"),
    real("gpu_deviation_ns", |row| row.gpu?.deviation_ns)
        .means("standard deviation of the samples; measured"),
    real("gpu_total_ns", |row| Some(row.gpu?.total_ns.value))
        .means("mean times launches; measured on gpu_samples"),
    real("occupancy", |row| Some(row.geometry?.occupancy.fraction()))
        .means("theoretical occupancy, 0 to 1; computed"),
    text("limiters", |row| row.limiters.as_deref()).means("limiters of occupancy, joined by +; computed"),
    integer("blocks_per_sm", |row| Some(row.geometry?.occupancy.blocks_per_sm.into()))
        .means("resident blocks; computed"),
    integer("warps_per_block", |row| Some(row.geometry?.occupancy.warps_per_block.into())).means("computed"),
    real("waves", |row| Some(row.geometry?.waves.waves))
        .means("blocks divided by the blocks resident on the device at once; computed"),
    real("tail_effect", |row| Some(row.geometry?.waves.tail_effect()))
        .means("share of empty block slots over all waves; computed"),
    real("sm_coverage", |row| Some(row.geometry?.waves.sm_coverage))
        .means("share of multiprocessors that get a block; computed"),
    real("block_efficiency", |row| Some(row.geometry?.block_efficiency))
        .means("threads divided by lanes of the block's warps; computed"),
    integer("counted_launches", |row| Some(row.counted?.launches))
        .means("launches behind the following counts; null if the CPU device counted none"),
    integer("warp_instructions", |row| Some(row.counted?.sums.total_warp_instructions()))
        .means("PTX instructions of warps in these launches; computed, like all following counts"),
    integer("thread_instructions", |row| Some(row.counted?.sums.total_thread_instructions()))
        .means("PTX instructions of threads"),
    real("active_threads", |row| Some(row.counted?.sums.active_threads()))
        .means("avg. active threads per warp"),
    integer("branches", |row| Some(row.counted?.sums.branches)).means("branches of warps"),
    integer("divergent_branches", |row| Some(row.counted?.sums.divergent_branches))
        .means("branches with divergent threads"),
    integer("floating_point_operations", |row| Some(row.counted?.sums.total_operations()))
        .means("of all widths; a fused multiply-add counts two"),
    integer("global_bytes", |row| Some(row.counted?.sums.all_traffic(Space::Global).bytes))
        .means("requested by threads: loads, stores and atomics"),
    integer("global_sectors", |row| Some(row.counted?.sums.all_traffic(Space::Global).transactions))
        .means("of 32 bytes"),
    integer("global_excess_sectors", |row| Some(row.counted?.sums.all_traffic(Space::Global).excess))
        .means("excessive sectors: more than the same bytes need if contiguous"),
    integer("shared_wavefronts", |row| Some(row.counted?.sums.all_traffic(Space::Shared).transactions))
        .means("wavefronts of shared memory"),
    integer("shared_excess_wavefronts", |row| Some(row.counted?.sums.all_traffic(Space::Shared).excess))
        .means("excessive wavefronts, from bank conflicts"),
    real("predicted_duration_ns", |row| Some(row.prediction?.duration_ns?.value))
        .means("duration (gpu__time_duration); predicted; null if the models do not know the device"),
    real("predicted_duration_low_ns", |row| Some(row.prediction?.duration_ns?.bounds().0))
        .means("lower end of its 90% prediction interval"),
    real("predicted_duration_high_ns", |row| Some(row.prediction?.duration_ns?.bounds().1))
        .means("upper end of its 90% prediction interval"),
    real("predicted_achieved_occupancy", |row| Some(row.prediction?.achieved_occupancy.value))
        .means("resident warps relative to the maximum, 0 to 1; predicted"),
    real("predicted_achieved_occupancy_low", |row| Some(row.prediction?.achieved_occupancy.bounds().0))
        .means("lower end of its interval"),
    real("predicted_achieved_occupancy_high", |row| Some(row.prediction?.achieved_occupancy.bounds().1))
        .means("upper end of its interval"),
    real("predicted_sm_utilisation", |row| Some(row.prediction?.sm_utilisation.value))
        .means("compute (SM) throughput, 0 to 1; predicted"),
    real("predicted_sm_utilisation_low", |row| Some(row.prediction?.sm_utilisation.bounds().0))
        .means("lower end of its interval"),
    real("predicted_sm_utilisation_high", |row| Some(row.prediction?.sm_utilisation.bounds().1))
        .means("upper end of its interval"),
    real("predicted_warp_efficiency", |row| Some(row.prediction?.warp_efficiency.value))
        .means("avg. active threads per warp relative to 32, 0 to 1; predicted"),
    real("predicted_warp_efficiency_low", |row| Some(row.prediction?.warp_efficiency.bounds().0))
        .means("lower end of its interval"),
    real("predicted_warp_efficiency_high", |row| Some(row.prediction?.warp_efficiency.bounds().1))
        .means("upper end of its interval"),
    text("prediction_basis", |row| Some(&row.prediction?.basis))
        .means("input of the prediction: launch, kernel, code or work"),
    text("prediction_unfamiliar", |row| row.unfamiliar.as_deref())
        .means("features unlike anything trained on, joined by +; null if there are none"),
    real("measured_duration_ns", |row| Some(row.prediction?.measured_duration_ns?.value))
        .means("gpu_mean_ns and 1.1 µs, to compare with the prediction; measured on gpu_samples"),
    real("measured_over_predicted", |row| row.prediction?.measured_over_predicted)
        .means("measured_duration_ns over predicted_duration_ns"),
    text("device_label", |row| row.label)
        .means("what tells the device from the others: CUDA ordinal, rank or UUID; null if unknown"),
];

/// A column with how its value is got from a row; `None` if it is not known.
#[derive(Clone, Copy)]
struct Field {
    column: Column,
    value: Value,
}

#[derive(Clone, Copy)]
enum Value {
    Integer(fn(&Row<'_>) -> Option<u64>),
    Real(fn(&Row<'_>) -> Option<f64>),
    Text(for<'r> fn(&'r Row<'_>) -> Option<&'r str>),
}

const fn integer(name: &'static str, value: fn(&Row<'_>) -> Option<u64>) -> Field {
    Field { column: Column { name, kind: Type::Integer, meaning: "" }, value: Value::Integer(value) }
}

const fn real(name: &'static str, value: fn(&Row<'_>) -> Option<f64>) -> Field {
    Field { column: Column { name, kind: Type::Real, meaning: "" }, value: Value::Real(value) }
}

const fn text(name: &'static str, value: for<'r> fn(&'r Row<'_>) -> Option<&'r str>) -> Field {
    Field { column: Column { name, kind: Type::Text, meaning: "" }, value: Value::Text(value) }
}

/// A side of a grid or block; `None` where a trace does not have it.
fn side(length: u32) -> Option<u64> {
    (length > 0).then_some(length.into())
}

/// A column that other tables have, too.
const fn shared(place: usize, value: fn(&Row<'_>) -> Option<u64>) -> Field {
    Field { column: CONFIGURATION[place], value: Value::Integer(value) }
}

impl Field {
    const fn means(mut self, meaning: &'static str) -> Self {
        self.column.meaning = meaning;
        self
    }

    fn cell<'r>(&self, row: &'r Row<'_>) -> Cell<'r> {
        match self.value {
            Value::Integer(value) => value(row).into(),
            Value::Real(value) => value(row).into(),
            Value::Text(value) => value(row).into(),
        }
    }
}

/// A kernel with what its columns are got from.
struct Row<'a> {
    kernel: &'a Kernel,
    device: Option<&'a Device>,
    label: Option<&'a str>,
    attributes: Option<&'a FunctionAttributes>,
    cluster: Option<Dim3>,
    /// CPU time of calls, where any was made.
    call: Option<&'a Distribution>,
    gpu: Option<&'a GpuTime>,
    geometry: Option<&'a Geometry>,
    limiters: Option<String>,
    counted: Option<&'a KernelCounts>,
    prediction: Option<&'a Prediction>,
    unfamiliar: Option<String>,
}

/// Writes the kernels of a profile, one configuration a row, the costliest first. The window does
/// not apply: a profile is of the whole session.
///
/// # Errors
/// Those of the sink.
pub fn write(profile: &Profile, sink: &mut dyn Sink) -> io::Result<()> {
    let names = profile.device_names();
    profile.kernels.iter().try_for_each(|kernel| {
        let row = Row::of(profile, &names, kernel);
        sink.row(&FIELDS.map(|field| field.cell(&row)))
    })
}

impl<'a> Row<'a> {
    fn of(profile: &'a Profile, names: &'a DeviceNames, kernel: &'a Kernel) -> Self {
        let limiters = |geometry: &Geometry| {
            geometry.occupancy.limiters().map(|limiter| limiter.name()).collect::<Vec<_>>().join("+")
        };
        let unfamiliar = kernel.prediction.as_ref().map(|said| said.unfamiliar.join("+"));
        Self {
            kernel,
            device: kernel.device.and_then(|device| profile.devices.get(device)),
            label: kernel.device.and_then(|device| names.cells.get(device)).map(String::as_str),
            attributes: kernel.attributes.as_ref(),
            cluster: Some(kernel.launch.cluster).filter(|&cluster| cluster != Dim3::ZERO),
            call: Some(&kernel.cpu).filter(|cpu| cpu.count > 0),
            gpu: kernel.gpu.as_ref(),
            geometry: kernel.geometry.as_ref(),
            limiters: kernel.geometry.as_ref().map(limiters),
            counted: kernel.counts.as_ref(),
            prediction: kernel.prediction.as_ref(),
            unfamiliar: unfamiliar.filter(|names| !names.is_empty()),
        }
    }
}
