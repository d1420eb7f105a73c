//! The text for numbers in records, and the names of kernels, each created once.

use apex_trace::Process;
use apex_trace::layout::{CallClass, MemoryKind};
use std::collections::HashMap;

/// Names of the kernels of one process, demangled when they are first asked for.
pub struct Names<'a> {
    process: &'a Process,
    demangled: HashMap<u32, String>,
}

impl<'a> Names<'a> {
    /// None yet.
    pub fn new(process: &'a Process) -> Self {
        Self { process, demangled: HashMap::new() }
    }

    /// The demangled name of a function.
    pub fn function(&mut self, id: u32) -> Option<&str> {
        let function = self.process.definitions.function(id)?;
        Some(self.demangled.entry(id).or_insert_with(|| apex_profile::names::demangled(&function.name)))
    }
}

/// A call's sort, in snake case.
pub fn class(class: CallClass) -> &'static str {
    match class {
        CallClass::Allocate => "allocate",
        CallClass::Free => "free",
        CallClass::Copy => "copy",
        CallClass::Set => "set",
        CallClass::Synchronize => "synchronize",
        CallClass::Module => "module",
        CallClass::Stream => "stream",
        CallClass::Event => "event",
        CallClass::Context => "context",
        CallClass::Graph => "graph",
        CallClass::HostFunction => "host_function",
    }
}

/// A kind of memory, in snake case; `None` where it is not known.
pub fn memory(kind: MemoryKind) -> Option<&'static str> {
    Some(match kind {
        MemoryKind::Unknown => return None,
        MemoryKind::Device => "device",
        MemoryKind::Pitched => "pitched",
        MemoryKind::Pool => "pool",
        MemoryKind::Managed => "managed",
        MemoryKind::Pinned => "pinned",
        MemoryKind::Pageable => "pageable",
        MemoryKind::Virtual => "virtual",
        MemoryKind::Array => "array",
    })
}
