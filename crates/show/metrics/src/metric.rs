//! The table of metrics.

/// The kind of a metric: whether its value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It counts since its session began.
    Counter,
    /// It counts since the exporter follows its session.
    Followed,
    /// It goes up and down.
    Gauge,
}

impl MetricKind {
    /// As the text format has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter | Self::Followed => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A metric: what all its series have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// The kind of metric.
    pub kind: MetricKind,
    /// Its unit, as UCUM writes it: `s`, `By`, `{launch}`; empty of one that has none.
    pub unit: &'static str,
    /// A sentence about its meaning, which says whether it is measured or predicted.
    pub help: &'static str,
}

impl Metric {
    /// Its name in OpenTelemetry, which has neither unit nor kind in it: `apex.gpu_busy` of
    /// `apex_gpu_busy_seconds_total`. The rules for Prometheus put them back.
    pub fn otel_name(&self) -> String {
        let name = self.name.strip_prefix("apex_").unwrap_or(self.name);
        let name = name.strip_suffix("_total").unwrap_or(name);
        let unit = match self.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            "J" => "_joules",
            _ => "",
        };
        format!("apex.{}", name.strip_suffix(unit).unwrap_or(name))
    }
}

macro_rules! metrics {
    ($($constant:ident, $name:literal, $kind:ident, $unit:literal, $help:literal;)*) => {
        $(pub(crate) const $constant: Metric =
            Metric { name: $name, kind: MetricKind::$kind, unit: $unit, help: $help };)*
        /// All metrics, in the order in which they are written.
        pub const METRICS: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO, "apex_build_info", Gauge, "",
        "1; the label names the version of APEX that exports.";
    RUNNING, "apex_processes_running", Gauge, "{process}",
        "Processes of the session that run and record.";
    LAUNCHES, "apex_kernel_launches_total", Counter, "{launch}",
        "Kernel launch calls that succeeded since the session began, by kernel (the label other holds the rest): measured.";
    GRAPH_LAUNCHES, "apex_graph_launches_total", Counter, "{launch}",
        "CUDA graph launches that succeeded since the session began: measured.";
    FAILED, "apex_launch_failures_total", Counter, "{launch}",
        "Launches of kernels and graphs that the driver refused since the session began: measured.";
    LAUNCH_SECONDS, "apex_launch_call_seconds_total", Counter, "s",
        "CPU time in launch calls of kernels and graphs since the session began: measured.";
    SYNCHRONIZE_SECONDS, "apex_synchronize_seconds_total", Counter, "s",
        "Time that threads spent in synchronisation calls since the session began: measured.";
    COPIES, "apex_copies_total", Counter, "{copy}",
        "Copy calls that succeeded since the session began, by direction: measured.";
    COPIED_BYTES, "apex_copied_bytes_total", Counter, "By",
        "Bytes of these copies: measured.";
    ALLOCATIONS, "apex_allocations_total", Counter, "{allocation}",
        "Allocations that succeeded since the session began, by kind of memory: measured.";
    ALLOCATED_BYTES, "apex_allocated_bytes_total", Counter, "By",
        "Bytes of these allocations: measured.";
    GPU_BUSY, "apex_gpu_busy_seconds_total", Followed, "s",
        "Time in which the device worked for a process, by work, summed over processes, since the exporter follows the session: predicted from timed launches.";
    GPU_IDLE, "apex_gpu_idle_seconds_total", Followed, "s",
        "Time in which the device was idle for a process, by what the process did meanwhile, summed over processes, since the exporter follows the session: predicted from timed launches.";
    GPU_UNKNOWN, "apex_gpu_unknown_seconds_total", Followed, "s",
        "Time of which it is not known whether the device worked: before the first and after the last call of an interval, and where no launch was timed.";
    GPU_ENERGY, "apex_gpu_energy_joules_total", Followed, "J",
        "Energy of the device with all processes on it, by its counter, since the exporter follows the session: measured.";
    RECORDS, "apex_records_total", Counter, "{record}",
        "Records that were read since the session began: measured.";
    DROPPED, "apex_records_dropped_total", Counter, "{record}",
        "Records lost since the session began: for want of space, or because newer ones took their place under the size limit: measured.";
    TIMING_SECONDS, "apex_timing_overhead_seconds_total", Counter, "s",
        "Time that the recorder spent on timing launches since the session began: measured.";
    UNREAD, "apex_unread_bytes", Gauge, "By",
        "Bytes of records that the counters above do not hold yet.";
    DISK, "apex_session_disk_bytes", Gauge, "By",
        "Disk space of the session's process files.";
}
