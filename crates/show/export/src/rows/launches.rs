//! One row for each launch call: of a kernel, or of a CUDA graph.

use super::{CONFIGURATION, axis, joined};
use crate::names::Names;
use crate::reading::Reading;
use crate::table::{Cell, Column, Sink, Type, column};
use crate::timings::Timings;
use apex_trace::layout::{GraphLaunch, Launch, RecordHead, flags};
use apex_trace::{Event, Process};
use cuda_launch::{Dim3, LaunchConfig};
use std::io;

use Type::{Flag, Integer, Text};

/// Columns of the launches' table.
pub const COLUMNS: [Column; 34] = joined(&[&BEFORE, &CONFIGURATION, &AFTER]);

/// Columns before those of the configuration.
const BEFORE: [Column; 10] = [
    column("process", Integer, "process identifier"),
    column("thread", Integer, "kernel thread identifier"),
    column(
        "start_ns",
        Integer,
        "when the launch call began, since the session's first process started; measured",
    ),
    column("cpu_ns", Integer, "duration of the driver's call; measured"),
    column("gpu_ns", Integer, "GPU time, from an event pair less its cost; measured, null if not timed"),
    column("gpu_raw_ns", Integer, "reading of the event pair; measured"),
    column("stream_was_idle", Flag, "whether gpu_raw_ns includes launch latency; null if not timed"),
    column("kind", Text, "`kernel`, or `graph` for one launch of a CUDA graph"),
    column("kernel", Text, "demangled name; null for a graph"),
    column("symbol", Text, "name as the driver reports it"),
];

/// Columns after those of the configuration.
const AFTER: [Column; 11] = [
    column("graph", Integer, "identifier of the executable graph in its process; null for a kernel"),
    column("graph_kernels", Integer, "kernels that one launch of the graph runs; computed from its nodes"),
    column("stream", Integer, "identifier of the stream in its process; null if unknown"),
    column("stream_handle", Integer, "the driver's handle"),
    column("device", Integer, "ordinal of the device; null if unknown"),
    column("device_name", Text, "name of the device"),
    column("api", Text, "the driver's entry point"),
    column("result", Integer, "the driver's result; 0 is success"),
    column("captured", Flag, "whether the call was captured into a graph and executed nothing"),
    column("cooperative", Flag, "whether the launch was cooperative; null for a graph"),
    column("executable", Text, "path of the process's program"),
];

/// Writes the launches, and graph launches, that began in the window.
///
/// # Errors
/// Those of the sink, as in all functions here.
pub fn write(reading: &mut Reading<'_>, sink: &mut dyn Sink) -> io::Result<()> {
    for process in &reading.session.processes {
        let timings = Timings::of(process);
        let mut writer = LaunchWriter { process, timings: &timings, names: Names::new(process) };
        reading.each(process, |record, start_ns| match record.event {
            Event::Launch(launch) => writer.write(record.tid, start_ns, &Launched::Kernel(launch), sink),
            Event::GraphLaunch(launch) => writer.write(record.tid, start_ns, &Launched::Graph(launch), sink),
            _ => Ok(()),
        })?;
    }
    Ok(())
}

enum Launched {
    Kernel(Launch),
    Graph(GraphLaunch),
}

impl Launched {
    fn kind(&self) -> &'static str {
        match self {
            Launched::Kernel(_) => "kernel",
            Launched::Graph(_) => "graph",
        }
    }

    /// Head, stream, result and entry point, which both have.
    fn common(&self) -> (&RecordHead, u32, u32, u32) {
        match self {
            Launched::Kernel(launch) => (&launch.head, launch.stream, launch.result, launch.api),
            Launched::Graph(launch) => (&launch.head, launch.stream, launch.result, launch.api),
        }
    }
}

struct LaunchWriter<'a> {
    process: &'a Process,
    timings: &'a Timings,
    names: Names<'a>,
}

impl LaunchWriter<'_> {
    fn write(&mut self, tid: u32, start_ns: u64, launched: &Launched, sink: &mut dyn Sink) -> io::Result<()> {
        let definitions = &self.process.definitions;
        let (head, stream_id, result, api) = launched.common();
        let config = match launched {
            Launched::Kernel(launch) => definitions.config(launch.config),
            Launched::Graph(_) => None,
        };
        let graph = match launched {
            Launched::Graph(launch) => definitions.graph(launch.graph),
            Launched::Kernel(_) => None,
        };
        let function = config.and_then(|config| definitions.function(config.function));
        let known = function.and_then(|function| function.attributes);
        let measured = self.timings.find(head.start, tid);
        let stream = definitions.stream(stream_id);
        let context = config.map(|config| config.context).or(stream.map(|stream| stream.context));
        let device = context.and_then(|id| definitions.device(definitions.context(id)?.device));
        let cooperative =
            matches!(launched, Launched::Kernel(_)).then_some(head.flags & flags::COOPERATIVE != 0);
        let graph_kernels =
            graph.map(|graph| graph.kernels.iter().map(|(_, nodes)| u64::from(*nodes)).sum::<u64>());
        let launch = config.map(|config| config.launch);
        let side_of = |side: fn(LaunchConfig) -> Dim3| launch.map(side).filter(|side| !side.is_empty());
        let [grid, block] = [side_of(|launch| launch.grid), side_of(|launch| launch.block)];
        let cluster = launch.map(|launch| launch.cluster).filter(|&cluster| cluster != Dim3::ZERO);
        let cells: [Cell<'_>; COLUMNS.len()] = [
            self.process.pid.into(),
            tid.into(),
            start_ns.into(),
            self.process.clock.duration_ns(head.duration_ticks()).into(),
            measured.map(|measured| measured.gpu_ns).into(),
            measured.map(|measured| measured.raw_ns).into(),
            measured.map(|measured| measured.stream_was_idle).into(),
            launched.kind().into(),
            function.and_then(|function| self.names.function(function.id)).into(),
            function.map(|function| function.name.as_str()).into(),
            axis(grid, 0),
            axis(grid, 1),
            axis(grid, 2),
            axis(block, 0),
            axis(block, 1),
            axis(block, 2),
            axis(cluster, 0),
            axis(cluster, 1),
            axis(cluster, 2),
            launch.map(|launch| launch.dynamic_shared_bytes).into(),
            known.map(|known| known.static_shared_bytes).into(),
            known.map(|known| known.local_bytes).into(),
            known.map(|known| known.registers).into(),
            graph.map(|graph| graph.id).into(),
            graph_kernels.into(),
            stream.map(|stream| stream.id).into(),
            stream.map(|stream| stream.handle).into(),
            device.map(|device| device.ordinal).into(),
            device.map(|device| device.name.as_str()).into(),
            definitions.name(api).into(),
            result.into(),
            (head.flags & flags::CAPTURED != 0).into(),
            cooperative.into(),
            self.process.executable.as_str().into(),
        ];
        sink.row(&cells)
    }
}
