//! The bytes of protocol buffers, as far as APEX writes them (traces for Perfetto, networks for
//! ONNX): variable-length integers, fixed values, strings, bytes, nested messages.
//!
//! Messages are built from the inside out: a nested message is a finished [`Message`] that its
//! parent copies in with its length. Trace packets are tens of bytes, so the copy costs less than
//! reserving and patching a length would.

/// A message being built.
#[derive(Clone, Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

/// The wire type of a field: the layout of its value (the low three bits of its key).
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

impl Message {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// The finished bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds an integer, an enumeration or a flag.
    pub fn integer(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, Wire::Varint);
        varint(&mut self.bytes, value);
        self
    }

    /// Adds an `int64`, which takes ten bytes when negative.
    pub fn signed(&mut self, field: u32, value: i64) -> &mut Self {
        self.integer(field, value.cast_unsigned())
    }

    /// Adds a `fixed64`.
    pub fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, Wire::Fixed64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a string.
    pub fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    /// Adds a finished message.
    pub fn message(&mut self, field: u32, value: &Message) -> &mut Self {
        self.bytes(field, &value.bytes)
    }

    /// Adds bytes.
    pub fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.key(field, Wire::Bytes);
        varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    fn key(&mut self, field: u32, wire: Wire) {
        varint(&mut self.bytes, u64::from(field) << 3 | wire as u64);
    }
}

/// Seven bits at a time, low ones first; the top bit says that more follow.
fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(fill: impl FnOnce(&mut Message) -> &mut Message) -> Message {
        let mut message = Message::new();
        fill(&mut message);
        message
    }

    /// The examples of the format's own documentation.
    #[test]
    fn documented_examples() {
        let inner = built(|message| message.integer(1, 150));
        assert_eq!(inner.as_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(built(|message| message.text(2, "testing")).as_bytes(), b"\x12\x07testing");
        assert_eq!(built(|message| message.message(3, &inner)).as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }

    #[test]
    fn widest_values() {
        let negative = built(|message| message.signed(1, -2));
        assert_eq!(negative.as_bytes(), [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        let fixed = built(|message| message.fixed(2, 0x0102_0304_0506_0708));
        assert_eq!(fixed.as_bytes(), [0x11, 8, 7, 6, 5, 4, 3, 2, 1]);
    }
}
