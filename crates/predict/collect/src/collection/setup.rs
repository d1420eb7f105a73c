//! The constant parts of a collection: kernels, rows, the device; and the making of a data set from
//! results.

use std::collections::BTreeMap;

use apex_gpu::{Device, Kind};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use occupancy::DeviceLimits;

use super::Options;
use super::partial::{CounterRecord, Results};
use super::stage::Stage;
use crate::bench::{Bench, Loaded};
use crate::plan::{self, Bounds, Row};
use crate::suite::{self, Kernel};
use crate::{Error, machine};
use apex_dataset::{Counters, Counts, DataSet, KernelRow, LaunchRow, Manifest, PtxMix};

/// The data that are constant during a collection.
pub(super) struct Setup {
    pub(super) is_gpu: bool,
    pub(super) bounds: Bounds,
    pub(super) kernels: Vec<Kernel>,
    pub(super) rows: Vec<Row>,
    table: Vec<KernelRow>,
    limits: Option<DeviceLimits>,
    pub(super) device: Description,
}

/// The description of a device in a manifest.
pub(super) struct Description {
    pub(super) name: String,
    pub(super) memory_bytes: u64,
    pub(super) attributes: BTreeMap<u32, i32>,
}

impl Setup {
    pub(super) fn new(
        options: &Options,
        device: &Device,
        bench: &Bench,
        kernels: &[Kernel],
    ) -> Result<Setup, Error> {
        let loaded = kernels.iter().map(|kernel| bench.load(kernel)).collect::<Result<Vec<_>, _>>()?;
        let allowed: Vec<_> = loaded.iter().map(|loaded| (loaded.kernel, loaded.allowed())).collect();
        let bounds = super::bounds(device)?;
        let attributes = machine::attributes(device);
        let pairs: Vec<(u32, i32)> = attributes.iter().map(|(&id, &value)| (id, value)).collect();
        // `NAME (device 0)`: the number is not part of what a row was measured on.
        let name = device.name().rsplit_once(" (device").map_or(device.name(), |(name, _)| name).to_owned();
        Ok(Setup {
            is_gpu: *device.kind() == Kind::Gpu,
            bounds,
            rows: plan::rows(&allowed, &bounds, options.seed, options.rows),
            table: table(&loaded),
            limits: DeviceLimits::from_pairs(&pairs),
            device: Description { name, memory_bytes: device.memory()?.1 as u64, attributes },
            kernels: kernels.to_vec(),
        })
    }

    /// The data set of what is known.
    pub(super) fn data_set(&self, manifest: &Manifest, results: &Results) -> DataSet {
        let known = |row: &&Row| results.times.contains_key(&row.number);
        let launches: Vec<LaunchRow> =
            self.rows.iter().filter(known).map(|row| self.launch_row(row, results)).collect();
        let manifest = Manifest { counts: Counts::of(&launches), ..manifest.clone() };
        DataSet { manifest, kernels: self.table.clone(), launches }
    }

    fn launch_row(&self, row: &Row, results: &Results) -> LaunchRow {
        let (kernel, described, launch) = (&self.kernels[row.kernel], &self.table[row.kernel], row.launch);
        let time = &results.times[&row.number];
        let counted = Stage::ALL.map(|stage| results.of(stage).get(&row.number));
        let resources = FunctionAttributes { barriers: 1, ..described.attributes() };
        let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = launch.config;
        let threads = launch.config.threads_per_block();
        let occupancy = self
            .limits
            .as_ref()
            .map(|limits| occupancy::theoretical(limits, &resources, threads as u32, dynamic_shared_bytes));
        let of_counters = counted.iter().flatten().map(|record| record.missing.as_str());
        let missing = std::iter::once(time.missing.as_str()).chain(of_counters);
        let missing: Vec<&str> = missing.filter(|text| !text.is_empty()).collect();
        LaunchRow {
            row: row.number,
            kernel: kernel.name.to_owned(),
            n: Some(launch.n.into()),
            m: Some(launch.m.into()),
            grid,
            block,
            dynamic_shared_bytes,
            algorithm_bytes: Some(kernel.bytes(launch.shape())),
            algorithm_operations: Some((kernel.operations)(launch.shape()).round()),
            blocks_per_sm: occupancy.as_ref().map(|occupancy| occupancy.blocks_per_sm),
            theoretical_occupancy_percent: occupancy.as_ref().map(|occupancy| 100.0 * occupancy.fraction()),
            device: time.device,
            timing: time.timing.clone(),
            counters: counters(counted),
            missing: missing.join("; "),
        }
    }
}

/// The counters of a launch from all stages.
fn counters([counted, throughput]: [Option<&CounterRecord>; 2]) -> Counters {
    let counters = counted.map(|record| record.counters.clone()).unwrap_or_default();
    match throughput.map(|record| &record.counters) {
        Some(&Counters { sm_throughput_percent, memory_throughput_percent, .. }) => {
            Counters { sm_throughput_percent, memory_throughput_percent, ..counters }
        }
        None => counters,
    }
}

/// The kernels as the data set describes them.
fn table(loaded: &[Loaded]) -> Vec<KernelRow> {
    let modules: Vec<ptx::Module> = suite::MODULES
        .iter()
        .map(|module| ptx::parse(module.ptx()).expect("the suite's PTX parses"))
        .collect();
    let describe = |loaded: &Loaded| {
        let (kernel, needs) = (&loaded.kernel, loaded.code.attributes());
        let mut functions = modules[kernel.module].functions();
        let function = functions.find(|function| &*function.name == kernel.name);
        KernelRow {
            kernel: kernel.name.to_owned(),
            family: kernel.family.to_owned(),
            registers: needs.registers,
            static_shared_bytes: needs.static_shared_bytes,
            local_bytes: Some(needs.local_bytes),
            constant_bytes: Some(needs.constant_bytes),
            max_threads_per_block: Some(needs.max_threads_per_block),
            ptx: PtxMix(function.map(ptx::Mix::of)),
        }
    };
    loaded.iter().map(describe).collect()
}
