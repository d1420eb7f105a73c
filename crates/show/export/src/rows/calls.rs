//! One row for each recorded call that is not a launch.

use crate::names;
use crate::reading::Reading;
use crate::table::{Cell, Column, Sink, Type, column};
use apex_profile::CopyDirection;
use apex_trace::layout::{Call, CallClass, flags};
use apex_trace::{Event, Process};
use std::io;

use Type::{Flag, Integer, Text};

/// Columns of the calls' table.
pub const COLUMNS: [Column; 19] = [
    column("process", Integer, "process identifier"),
    column("thread", Integer, "kernel thread identifier"),
    column("start_ns", Integer, "when the call began, since the session's first process started; measured"),
    column("cpu_ns", Integer, "duration of the driver's call; measured"),
    column("api", Text, "the driver's entry point"),
    column("class", Text, "class of the call; null for a class that this version does not know"),
    column("result", Integer, "the driver's result; 0 is success"),
    column("captured", Flag, "whether the call was captured into a graph and executed nothing"),
    column("asynchronous", Flag, "copies and memsets: whether the call is asynchronous"),
    column("bytes", Integer, "allocated, copied or set"),
    column("memory", Text, "kind of the memory that is allocated, freed, set or copied to"),
    column("source_memory", Text, "kind of the memory that is copied from"),
    column(
        "peer",
        Flag,
        "copies within device memory: whether source and destination are of two devices; null for other calls",
    ),
    column("address", Integer, "allocated, freed, set or copied to"),
    column("source_address", Integer, "copied from"),
    column("object", Integer, "handle of the stream, event, module, context or graph"),
    column("stream", Integer, "identifier of the stream in its process; null without a stream"),
    column("device", Integer, "ordinal of the stream's device; null if unknown"),
    column("executable", Text, "path of the process's program"),
];

/// Writes the calls other than launches that began in the window.
///
/// # Errors
/// Those of the sink.
pub fn write(reading: &mut Reading<'_>, sink: &mut dyn Sink) -> io::Result<()> {
    for process in &reading.session.processes {
        reading.each(process, |record, start_ns| match record.event {
            Event::Call(call) => row(process, record.tid, start_ns, &call, sink),
            _ => Ok(()),
        })?;
    }
    Ok(())
}

fn row(process: &Process, tid: u32, start_ns: u64, call: &Call, sink: &mut dyn Sink) -> io::Result<()> {
    let definitions = &process.definitions;
    let stream = definitions.stream(call.stream);
    let context = stream.and_then(|stream| definitions.context(stream.context));
    let device = context.and_then(|context| definitions.device(context.device));
    let moves = matches!(call.class(), Some(CallClass::Copy | CallClass::Set));
    let is_on_devices = call.class() == Some(CallClass::Copy)
        && CopyDirection::between(call.source_memory(), call.memory()) == CopyDirection::DeviceToDevice;
    let present = |value: u64| (value != 0).then_some(value);
    let cells: [Cell<'_>; COLUMNS.len()] = [
        process.pid.into(),
        tid.into(),
        start_ns.into(),
        process.clock.duration_ns(call.head.duration_ticks()).into(),
        definitions.name(call.api).into(),
        call.class().map(names::class).into(),
        call.result.into(),
        (call.head.flags & flags::CAPTURED != 0).into(),
        moves.then_some(call.head.flags & flags::ASYNC != 0).into(),
        present(call.bytes).into(),
        names::memory(call.memory()).into(),
        names::memory(call.source_memory()).into(),
        is_on_devices.then_some(call.is_peer()).into(),
        present(call.address).into(),
        present(call.source).into(),
        present(call.object).into(),
        stream.map(|stream| stream.id).into(),
        device.map(|device| device.ordinal).into(),
        process.executable.as_str().into(),
    ];
    sink.row(&cells)
}
