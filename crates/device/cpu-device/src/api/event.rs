//! Event management.

use crate::context;
use crate::entry::{entries, opaque, write};
use crate::error::ensure;
use crate::stream::Stream;
use crate::stream::event::Event;
use cuda_abi::types::*;

entries! {
    /// Creates an event.
    fn cuEventCreate(event: *mut CUevent, flags: u32) {
        ensure(!event.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(event, opaque(Event::create(flags)?.handle))
    }

    /// Ends an event.
    fn cuEventDestroy_v2(event: CUevent) {
        Event::destroy(event)
    }

    /// Records an event behind a stream's work.
    fn cuEventRecord(event: CUevent, stream: CUstream) also cuEventRecord_ptsz [default] {
        Event::resolve(event)?.record(&*Stream::resolve(stream, default)?)
    }

    /// Records an event behind a stream's work; in a capture, as a node if the flags say so.
    fn cuEventRecordWithFlags(
        event: CUevent,
        stream: CUstream,
        flags: u32,
    ) also cuEventRecordWithFlags_ptsz [default] {
        ensure(flags & !CU_EVENT_RECORD_EXTERNAL == 0, CUDA_ERROR_INVALID_VALUE)?;
        let stream = Stream::resolve(stream, default)?;
        let event = Event::resolve(event)?;
        if flags & CU_EVENT_RECORD_EXTERNAL != 0 { event.record_external(&stream) } else { event.record(&stream) }
    }

    /// Returns `CUDA_ERROR_NOT_READY` until the event's point has been reached.
    fn cuEventQuery(event: CUevent) {
        let event = Event::resolve(event)?;
        if let Ok(context) = context::current() {
            context.forbid_while_capturing()?;
        }
        event.query()?;
        fault_of_current_context()
    }

    /// Waits until an event has been reached.
    fn cuEventSynchronize(event: CUevent) {
        Event::resolve(event)?.synchronize()?;
        fault_of_current_context()
    }

    /// Milliseconds between two events.
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        write(milliseconds, Event::resolve(start)?.milliseconds_until(&*Event::resolve(end)?)?)
    }

    /// Milliseconds between two events.
    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        write(milliseconds, Event::resolve(start)?.milliseconds_until(&*Event::resolve(end)?)?)
    }
}

/// Work that an event was waited for may have ended in a fault, and who waited is told. Events
/// themselves belong to no context that has to be current.
fn fault_of_current_context() -> crate::error::Result {
    context::current_even_if_faulty().map_or(Ok(()), |context| context.check())
}
