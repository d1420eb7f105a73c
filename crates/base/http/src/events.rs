//! Server-sent events, and the bodies of responses.

use crate::connections::Work;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// An event for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its type: a word.
    pub name: &'static str,
    /// Its text, of any number of lines.
    pub data: Arc<str>,
}

/// Events to send now, in this order; may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This for now.
    Events(Vec<Event>),
    /// Nothing, and nothing before so long: the source is asked again then, or after fifteen
    /// seconds.
    Later(Duration),
    /// This, and nothing afterwards. The client's browser asks anew, unless an event tells the page
    /// to close the stream.
    Last(Vec<Event>),
}

/// The function that returns the next event.
pub type Source = Box<dyn FnMut() -> Next + Send>;

/// Tells nothing, and shows whether the client is still there.
pub const NOTHING: Bytes = Bytes::from_static(b":\n\n");

impl Event {
    /// Adds the event in the form that browsers read.
    fn write(&self, text: &mut String) {
        text.push_str("event: ");
        text.push_str(self.name);
        text.push('\n');
        // A carriage return would end the line as well.
        for line in self.data.split(['\n', '\r']) {
            text.push_str("data: ");
            text.push_str(line);
            text.push('\n');
        }
        text.push('\n');
    }
}

/// Events in the form that browsers read.
pub fn encoded(events: &[Event]) -> Bytes {
    let mut text = String::new();
    events.iter().for_each(|event| event.write(&mut text));
    text.into()
}

/// The body of a response. Its connection works as long as it is there.
#[derive(Debug)]
pub struct Sent {
    pub content: Sending,
    pub work: Work,
}

/// The content that is sent.
#[derive(Debug)]
pub enum Sending {
    Bytes(Option<Bytes>),
    /// Events, which hold a place among the streams.
    Events {
        events: mpsc::Receiver<Bytes>,
        _place: OwnedSemaphorePermit,
    },
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let next = match &mut this.content {
            Sending::Bytes(bytes) => Poll::Ready(bytes.take()),
            Sending::Events { events, .. } => {
                this.work.streams();
                events.poll_recv(context)
            }
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Sending::Bytes(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Sending::Bytes(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Sending::Events { .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_event_cannot_begin_another() {
        let event = Event { name: "changed", data: "a\nevent: b\r\r\nc".into() };
        let text = String::from_utf8(encoded(&[event.clone(), event]).to_vec()).unwrap();
        let one = "event: changed\ndata: a\ndata: event: b\ndata: \ndata: \ndata: c\n\n";
        assert_eq!(text, [one, one].concat());
    }
}
