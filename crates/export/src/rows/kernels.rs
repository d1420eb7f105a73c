//! One row for each kernel: a function in one launch configuration on one device.

use super::{CONFIGURATION, axis, joined};
use crate::table::{Cell, Column, Sink, Type, column};
use apex_counts::{Counts, Space};
use apex_profile::names::DataType;
use apex_profile::{DeviceNames, Figure, Kernel, Prediction, Profile};
use cuda_launch::Dim3;
use std::io;

use Type::{Integer, Real, Text};

/// Columns of the kernels' table.
pub const COLUMNS: [Column; 74] = joined(&[&BEFORE, &CONFIGURATION, &AFTER]);

/// Columns before those of the configuration.
const BEFORE: [Column; 10] = [
    column("kernel", Text, "demangled name"),
    column("symbol", Text, "name as the driver reports it"),
    column("device", Text, "name of the device; null if unknown"),
    column("short_name", Text, "short name of the function, unique in the table"),
    column("operation", Text, "operation, from the name: matrix_product, copy, …, unknown"),
    column("input_type", Text, "type of its operands, from the name: f32, tf32, bf16, …; null if unknown"),
    column("output_type", Text, "type of its result, from the name; null if unknown"),
    column("accumulator_type", Text, "type of its accumulator, from the name; null if unknown"),
    column("tensor_cores", Text, "yes or no, from the name; null if unknown"),
    column("owner", Text, "own, or the name of a library, framework or compiler"),
];

/// Columns after those of the configuration.
const AFTER: [Column; 51] = [
    column("max_threads_per_block", Integer, "maximum of the kernel"),
    column("binary_version", Integer, "architecture of the machine code, such as 90"),
    column("ptx_version", Integer, "architecture of its PTX, such as 80"),
    column("launches", Integer, "runs, by launch calls and by graphs; measured"),
    column("by_graphs", Integer, "runs by graph launches among them; computed from the graphs' nodes"),
    column("captured", Integer, "launch calls captured into a graph, which executed nothing; measured"),
    column("failed", Integer, "launch calls that failed; measured"),
    column("cpu_ns", Integer, "CPU time in launch calls; measured"),
    column("cpu_median_ns", Integer, "of one call; measured"),
    column("cpu_p99_ns", Integer, "of one call; measured"),
    column("gpu_samples", Integer, "timed launches behind gpu_mean_ns"),
    column("gpu_mean_ns", Real, "GPU time of one launch; measured on gpu_samples"),
    column("gpu_deviation_ns", Real, "standard deviation of the samples; measured"),
    column("gpu_total_ns", Real, "mean times launches; measured on gpu_samples"),
    column("occupancy", Real, "theoretical occupancy, 0 to 1; computed"),
    column("limiters", Text, "limiters of occupancy, joined by +; computed"),
    column("blocks_per_sm", Integer, "resident blocks; computed"),
    column("warps_per_block", Integer, "computed"),
    column("waves", Real, "blocks divided by the blocks resident on the device at once; computed"),
    column("tail_effect", Real, "share of empty block slots over all waves; computed"),
    column("sm_coverage", Real, "share of multiprocessors that get a block; computed"),
    column("block_efficiency", Real, "threads divided by lanes of the block's warps; computed"),
    column(
        "counted_launches",
        Integer,
        "launches behind the following counts; null if the CPU device counted none",
    ),
    column(
        "warp_instructions",
        Integer,
        "PTX instructions of warps in these launches; computed, like all following counts",
    ),
    column("thread_instructions", Integer, "PTX instructions of threads"),
    column("active_threads", Real, "avg. active threads per warp"),
    column("branches", Integer, "branches of warps"),
    column("divergent_branches", Integer, "branches with divergent threads"),
    column("floating_point_operations", Integer, "of all widths; a fused multiply-add counts two"),
    column("global_bytes", Integer, "requested by threads: loads, stores and atomics"),
    column("global_sectors", Integer, "of 32 bytes"),
    column(
        "global_excess_sectors",
        Integer,
        "excessive sectors: more than the same bytes need if contiguous",
    ),
    column("shared_wavefronts", Integer, "wavefronts of shared memory"),
    column("shared_excess_wavefronts", Integer, "excessive wavefronts, from bank conflicts"),
    column(
        "predicted_duration_ns",
        Real,
        "duration (gpu__time_duration); predicted; null if the models do not know the device",
    ),
    column("predicted_duration_low_ns", Real, "lower end of its 90% prediction interval"),
    column("predicted_duration_high_ns", Real, "upper end of its 90% prediction interval"),
    column("predicted_achieved_occupancy", Real, "resident warps relative to the maximum, 0 to 1; predicted"),
    column("predicted_achieved_occupancy_low", Real, "lower end of its interval"),
    column("predicted_achieved_occupancy_high", Real, "upper end of its interval"),
    column("predicted_sm_utilisation", Real, "compute (SM) throughput, 0 to 1; predicted"),
    column("predicted_sm_utilisation_low", Real, "lower end of its interval"),
    column("predicted_sm_utilisation_high", Real, "upper end of its interval"),
    column(
        "predicted_warp_efficiency",
        Real,
        "avg. active threads per warp relative to 32, 0 to 1; predicted",
    ),
    column("predicted_warp_efficiency_low", Real, "lower end of its interval"),
    column("predicted_warp_efficiency_high", Real, "upper end of its interval"),
    column("prediction_basis", Text, "input of the prediction: launch, kernel, code or work"),
    column(
        "prediction_unfamiliar",
        Text,
        "features unlike anything trained on, joined by +; null if there are none",
    ),
    column(
        "measured_duration_ns",
        Real,
        "gpu_mean_ns and 1.1 µs, to compare with the prediction; measured on gpu_samples",
    ),
    column("measured_over_predicted", Real, "measured_duration_ns over predicted_duration_ns"),
    column(
        "device_label",
        Text,
        "what tells the device from the others: CUDA ordinal, rank or UUID; null if unknown",
    ),
];

/// Writes the kernels of a profile, one configuration a row, the costliest first. The window does
/// not apply: a profile is of the whole session.
///
/// # Errors
/// Those of the sink.
pub fn write(profile: &Profile, sink: &mut dyn Sink) -> io::Result<()> {
    let names = profile.device_names();
    profile.kernels.iter().try_for_each(|kernel| row(profile, &names, kernel, sink))
}

fn row(profile: &Profile, names: &DeviceNames, kernel: &Kernel, sink: &mut dyn Sink) -> io::Result<()> {
    let device = kernel.device.and_then(|device| profile.devices.get(device));
    let attributes = kernel.attributes.as_ref();
    let gpu = kernel.gpu.as_ref();
    let geometry = kernel.geometry.as_ref();
    let counted = kernel.counts.as_ref();
    let counts = counted.map(|counted| &counted.sums);
    let [global, shared] =
        [Space::Global, Space::Shared].map(|space| counts.map(|counts| counts.all_traffic(space)));
    let limiters = geometry.map(|geometry| {
        geometry.occupancy.limiters().map(|limiter| limiter.name()).collect::<Vec<_>>().join("+")
    });
    let prediction = kernel.prediction.as_ref();
    let said = |of: fn(&Prediction) -> Figure| prediction.map(of);
    let duration = prediction.and_then(|said| said.duration_ns);
    let occupancy = said(|said| said.achieved_occupancy);
    let utilisation = said(|said| said.sm_utilisation);
    let efficiency = said(|said| said.warp_efficiency);
    let unfamiliar = prediction.map(|said| said.unfamiliar.join("+")).filter(|names| !names.is_empty());
    let launch = kernel.launch;
    let types = kernel.traits.types;
    let cluster = Some(launch.cluster).filter(|&cluster| cluster != Dim3::ZERO);
    let called = kernel.cpu.count > 0;
    let cells: [Cell<'_>; COLUMNS.len()] = [
        kernel.name.as_str().into(),
        kernel.symbol.as_str().into(),
        device.map(|device| device.name.as_str()).into(),
        kernel.short_name.as_str().into(),
        kernel.traits.operation.name().into(),
        types.input.map(DataType::name).into(),
        types.output.map(DataType::name).into(),
        types.accumulator.map(DataType::name).into(),
        kernel.traits.tensor_cores.map(|uses| if uses { "yes" } else { "no" }).into(),
        kernel.traits.owner.name().into(),
        axis(Some(launch.grid), 0),
        axis(Some(launch.grid), 1),
        axis(Some(launch.grid), 2),
        axis(Some(launch.block), 0),
        axis(Some(launch.block), 1),
        axis(Some(launch.block), 2),
        axis(cluster, 0),
        axis(cluster, 1),
        axis(cluster, 2),
        launch.dynamic_shared_bytes.into(),
        attributes.map(|attributes| attributes.static_shared_bytes).into(),
        attributes.map(|attributes| attributes.local_bytes).into(),
        attributes.map(|attributes| attributes.registers).into(),
        attributes.map(|attributes| attributes.max_threads_per_block).into(),
        attributes.map(|attributes| attributes.binary_version).into(),
        attributes.map(|attributes| attributes.ptx_version).into(),
        kernel.launches.ran().into(),
        kernel.launches.by_graphs.into(),
        kernel.launches.captured.into(),
        kernel.launches.failed.into(),
        (kernel.cpu.total_ns.round() as u64).into(),
        called.then_some(kernel.cpu.median_ns.round() as u64).into(),
        called.then_some(kernel.cpu.p99_ns.round() as u64).into(),
        gpu.map(|gpu| gpu.each.count).into(),
        gpu.map(|gpu| gpu.each.mean_ns).into(),
        gpu.and_then(|gpu| gpu.deviation_ns).into(),
        gpu.map(|gpu| gpu.total_ns.value).into(),
        geometry.map(|geometry| geometry.occupancy.fraction()).into(),
        limiters.as_deref().into(),
        geometry.map(|geometry| geometry.occupancy.blocks_per_sm).into(),
        geometry.map(|geometry| geometry.occupancy.warps_per_block).into(),
        geometry.map(|geometry| geometry.waves.waves).into(),
        geometry.map(|geometry| geometry.waves.tail_effect()).into(),
        geometry.map(|geometry| geometry.waves.sm_coverage).into(),
        geometry.map(|geometry| geometry.block_efficiency).into(),
        counted.map(|counted| counted.launches).into(),
        counts.map(Counts::total_warp_instructions).into(),
        counts.map(Counts::total_thread_instructions).into(),
        counts.map(Counts::active_threads).into(),
        counts.map(|counts| counts.branches).into(),
        counts.map(|counts| counts.divergent_branches).into(),
        counts.map(Counts::total_operations).into(),
        global.map(|traffic| traffic.bytes).into(),
        global.map(|traffic| traffic.transactions).into(),
        global.map(|traffic| traffic.excess).into(),
        shared.map(|traffic| traffic.transactions).into(),
        shared.map(|traffic| traffic.excess).into(),
        duration.map(|it| it.value).into(),
        duration.map(|it| it.bounds().0).into(),
        duration.map(|it| it.bounds().1).into(),
        occupancy.map(|it| it.value).into(),
        occupancy.map(|it| it.bounds().0).into(),
        occupancy.map(|it| it.bounds().1).into(),
        utilisation.map(|it| it.value).into(),
        utilisation.map(|it| it.bounds().0).into(),
        utilisation.map(|it| it.bounds().1).into(),
        efficiency.map(|it| it.value).into(),
        efficiency.map(|it| it.bounds().0).into(),
        efficiency.map(|it| it.bounds().1).into(),
        prediction.map(|said| said.basis.as_str()).into(),
        unfamiliar.as_deref().into(),
        prediction.and_then(|said| Some(said.measured_duration_ns?.value)).into(),
        prediction.and_then(|said| said.measured_over_predicted).into(),
        kernel.device.and_then(|device| names.cells.get(device)).map(String::as_str).into(),
    ];
    sink.row(&cells)
}
