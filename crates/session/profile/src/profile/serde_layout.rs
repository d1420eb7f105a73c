//! The layout's enumerations as snake-case names: `trace` does not know serde.

use apex_trace::definition::StreamKind;
use apex_trace::layout::{CallClass, MemoryKind};
use serde::ser::Serializer;

/// Names of memory kinds.
pub const MEMORY_KINDS: &[(MemoryKind, &str)] = &[
    (MemoryKind::Unknown, "unknown"),
    (MemoryKind::Device, "device"),
    (MemoryKind::Pitched, "pitched"),
    (MemoryKind::Pool, "pool"),
    (MemoryKind::Managed, "managed"),
    (MemoryKind::Pinned, "pinned"),
    (MemoryKind::Pageable, "pageable"),
    (MemoryKind::Virtual, "virtual"),
    (MemoryKind::Array, "array"),
];

const CALL_CLASSES: &[(CallClass, &str)] = &[
    (CallClass::Allocate, "allocate"),
    (CallClass::Free, "free"),
    (CallClass::Copy, "copy"),
    (CallClass::Set, "set"),
    (CallClass::Synchronize, "synchronize"),
    (CallClass::Module, "module"),
    (CallClass::Stream, "stream"),
    (CallClass::Event, "event"),
    (CallClass::Context, "context"),
    (CallClass::Graph, "graph"),
    (CallClass::HostFunction, "host_function"),
];

const STREAM_KINDS: &[(StreamKind, &str)] = &[
    (StreamKind::LegacyDefault, "legacy_default"),
    (StreamKind::PerThreadDefault, "per_thread_default"),
    (StreamKind::Blocking, "blocking"),
    (StreamKind::NonBlocking, "non_blocking"),
];

fn name_of<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    table.iter().find(|(known, _)| known == value).map_or("unknown", |(_, name)| name)
}

/// The name of a kind of memory, as JSON has it.
pub fn memory_kind_name(kind: MemoryKind) -> &'static str {
    name_of(MEMORY_KINDS, &kind)
}

/// The name of a sort of stream, as JSON has it; `unknown` without one.
pub fn stream_kind_name(kind: Option<StreamKind>) -> &'static str {
    kind.map_or("unknown", |kind| name_of(STREAM_KINDS, &kind))
}

/// An optional value as its name or null.
macro_rules! optional {
    ($module:ident, $type:ty, $table:ident) => {
        pub mod $module {
            use super::*;

            pub fn serialize<S: Serializer>(value: &Option<$type>, to: S) -> Result<S::Ok, S::Error> {
                match value {
                    Some(value) => to.serialize_some(name_of($table, value)),
                    None => to.serialize_none(),
                }
            }
        }
    };
}

optional!(call_class, CallClass, CALL_CLASSES);
optional!(stream_kind, StreamKind, STREAM_KINDS);

pub mod memory_kind {
    use super::*;

    pub fn serialize<S: Serializer>(value: &MemoryKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(name_of(MEMORY_KINDS, value))
    }
}
