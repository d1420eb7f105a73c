//! Writing Perfetto's trace format: tracks, slices, counters and flows as a stream of packets.
//!
//! This module knows the format and nothing about sessions. Packets of one trace share one
//! *sequence* with interned names, so that a slice costs some tens of bytes. Packets may come in
//! any order of time: the reader sorts them.
//!
//! Field numbers are those of `perfetto/trace/*.proto`, which never change them.

use crate::slices::{Slice, Tracks, Value};
use apex_protobuf::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// The one sequence of packets; any number but 0.
const SEQUENCE: u64 = 1;

mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    /// The sequence's interned names start anew.
    pub const STATE_CLEARED: u64 = 1;
    /// The packet refers to interned names.
    pub const NEEDS_STATE: u64 = 2;
}

mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const THREAD_PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
    pub const COUNTER_UNIT: u32 = 3;
    pub const UNIT_BYTES: u64 = 3;
}

mod event {
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER_VALUE: u32 = 30;
    pub const FLOW: u32 = 47;
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const COUNTER: u64 = 4;
    pub const ANNOTATION_NAME: u32 = 1;
    pub const ANNOTATION_INTEGER: u32 = 4;
    pub const ANNOTATION_TEXT: u32 = 6;
}

mod interned {
    pub const EVENT_NAMES: u32 = 2;
    pub const ANNOTATION_NAMES: u32 = 3;
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
}

/// Writes a trace.
pub struct Trace<W> {
    out: W,
    event_names: HashMap<String, u64>,
    annotation_names: HashMap<String, u64>,
    started: bool,
}

impl<W: Write> Trace<W> {
    /// A trace that goes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, event_names: HashMap::new(), annotation_names: HashMap::new(), started: false }
    }

    fn event(&mut self, at_ns: u64, event: &Message, new_names: &Message) -> io::Result<()> {
        let mut packet = Message::new();
        packet.integer(packet::TIMESTAMP, at_ns).message(packet::TRACK_EVENT, event);
        if !new_names.as_bytes().is_empty() {
            packet.message(packet::INTERNED_DATA, new_names);
        }
        self.packet(packet)
    }

    fn descriptor(&mut self, descriptor: &Message) -> io::Result<()> {
        let mut packet = Message::new();
        packet.message(packet::TRACK_DESCRIPTOR, descriptor);
        self.packet(packet)
    }

    fn packet(&mut self, mut packet: Message) -> io::Result<()> {
        const FIELD_PACKET: u32 = 1;
        let cleared = if self.started { 0 } else { packet::STATE_CLEARED };
        self.started = true;
        packet
            .integer(packet::SEQUENCE_ID, SEQUENCE)
            .integer(packet::SEQUENCE_FLAGS, cleared | packet::NEEDS_STATE);
        self.out.write_all(Message::new().message(FIELD_PACKET, &packet).as_bytes())
    }
}

impl<W: Write> Tracks for Trace<W> {
    fn process(&mut self, id: u64, pid: u32, name: &str) -> io::Result<()> {
        let mut process = Message::new();
        process.integer(track::PROCESS_PID, pid.into()).text(track::PROCESS_NAME, name);
        self.descriptor(Message::new().integer(track::UUID, id).message(track::PROCESS, &process))
    }

    fn thread(&mut self, id: u64, process: u64, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        let mut thread = Message::new();
        thread.integer(track::THREAD_PID, pid.into()).integer(track::THREAD_TID, tid.into());
        thread.text(track::THREAD_NAME, name);
        let mut descriptor = Message::new();
        descriptor.integer(track::UUID, id).integer(track::PARENT, process).message(track::THREAD, &thread);
        self.descriptor(&descriptor)
    }

    fn track(&mut self, id: u64, parent: u64, name: &str) -> io::Result<()> {
        self.descriptor(
            Message::new().integer(track::UUID, id).integer(track::PARENT, parent).text(track::NAME, name),
        )
    }

    fn byte_counter(&mut self, id: u64, parent: u64, name: &str) -> io::Result<()> {
        let mut counter = Message::new();
        counter.integer(track::COUNTER_UNIT, track::UNIT_BYTES);
        let mut descriptor = Message::new();
        descriptor.integer(track::UUID, id).integer(track::PARENT, parent).text(track::NAME, name);
        self.descriptor(descriptor.message(track::COUNTER, &counter))
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let mut new_names = Message::new();
        let name = intern(&mut self.event_names, slice.name, interned::EVENT_NAMES, &mut new_names);
        let mut begin = Message::new();
        for &(name, value) in slice.details {
            let name = intern(&mut self.annotation_names, name, interned::ANNOTATION_NAMES, &mut new_names);
            let mut annotation = Message::new();
            annotation.integer(event::ANNOTATION_NAME, name);
            match value {
                Value::Integer(value) => annotation.signed(event::ANNOTATION_INTEGER, value),
                Value::Text(text) => annotation.text(event::ANNOTATION_TEXT, text),
            };
            begin.message(event::ANNOTATION, &annotation);
        }
        begin
            .integer(event::TYPE, event::BEGIN)
            .integer(event::NAME, name)
            .integer(event::TRACK, slice.track);
        if slice.flow != 0 {
            begin.fixed(event::FLOW, slice.flow);
        }
        self.event(slice.start_ns, &begin, &new_names)?;

        let mut end = Message::new();
        end.integer(event::TYPE, event::END).integer(event::TRACK, slice.track);
        self.event(slice.start_ns.saturating_add(slice.duration_ns), &end, &Message::new())
    }

    fn count(&mut self, track: u64, at_ns: u64, value: i64) -> io::Result<()> {
        let mut count = Message::new();
        count
            .integer(event::TYPE, event::COUNTER)
            .integer(event::TRACK, track)
            .signed(event::COUNTER_VALUE, value);
        self.event(at_ns, &count, &Message::new())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The identifier of a name; a new one is announced in `new_names`, in the list `field`.
fn intern(known: &mut HashMap<String, u64>, name: &str, field: u32, new_names: &mut Message) -> u64 {
    if let Some(&id) = known.get(name) {
        return id;
    }
    let id = known.len() as u64 + 1;
    known.insert(name.to_string(), id);
    let mut entry = Message::new();
    entry.integer(interned::ID, id).text(interned::NAME, name);
    new_names.message(field, &entry);
    id
}
