//! The work that a waiting call waited for (an event, a stream, a device). It is known to be
//! complete when the call returns.

use apex_trace::layout::{Call, CallClass};

use super::Second;

/// Maximum events whose completion times are stored.
const EVENTS: usize = 1 << 16;

/// The object that a call waited for.
enum Waited {
    /// The work before an event on a stream, done at that moment in each of the three models.
    Event([u64; 3], u32),
    Stream(u32),
    Device(usize),
    All,
    /// One of several, and it is not known which.
    Unclear,
}

impl Second<'_, '_, '_> {
    pub(super) fn event_recorded(&mut self, call: &Call) {
        if self.events.len() >= EVENTS {
            self.events.clear();
        }
        let (stream, mut at) = (call.stream, [0; 3]);
        let mut place = 0;
        self.on(stream, |timeline| {
            at[place] = timeline.done_at(Some(stream));
            place += 1;
        });
        self.events.insert(call.object, (at, stream));
    }

    pub(super) fn stream_waits(&mut self, call: &Call) {
        let Some(&(at, _)) = self.events.get(&call.object) else { return };
        let mut place = 0;
        self.on(call.stream, |timeline| {
            timeline.wait_until(call.stream, at[place]);
            place += 1;
        });
    }

    /// A call returned that waited; `own_ns` of it at most were its own work.
    pub(super) fn waited(&mut self, call: &Call, start: u64, end: u64, own_ns: u64) {
        match self.waited_for(call) {
            Waited::Event(at, stream) => {
                let mut at = at.into_iter();
                self.on(stream, |timeline| {
                    // Where more was queued behind the event, nothing is known of that.
                    if at.next() == Some(timeline.done_at(Some(stream))) {
                        timeline.synchronised(Some(stream), start, end, own_ns);
                    }
                });
            }
            Waited::Stream(stream) => {
                self.on(stream, |timeline| timeline.synchronised(Some(stream), start, end, own_ns));
            }
            Waited::Device(device) => {
                if let Some(state) = self.devices.get_mut(&Some(device)) {
                    state.model.each(|timeline| timeline.synchronised(None, start, end, own_ns));
                }
            }
            Waited::All => self.devices.values_mut().for_each(|device| {
                device.model.each(|timeline| timeline.synchronised(None, start, end, own_ns));
            }),
            Waited::Unclear => {}
        }
    }

    fn waited_for(&self, call: &Call) -> Waited {
        if call.stream != 0 {
            return Waited::Stream(call.stream);
        }
        if self.event_calls.contains(&call.api) {
            let event = self.events.get(&call.object);
            return event.map_or(Waited::Unclear, |&(at, stream)| Waited::Event(at, stream));
        }
        let is_context = call.class() == Some(CallClass::Synchronize) && call.object != 0;
        let definitions = &self.reading.process.definitions;
        let context = definitions.contexts().find(|context| is_context && context.handle == call.object);
        match context.and_then(|context| self.reading.devices.get(&context.id)) {
            Some(&device) => Waited::Device(device),
            None if self.devices.len() == 1 => Waited::All,
            None => Waited::Unclear,
        }
    }
}
