//! The kinds of calls of the CUDA runtime and driver, and of memory, by their names in traces.

use apex_trace::layout::{CallClass, MemoryKind};

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It launches a kernel.
    Launch {
        /// Whether its blocks can wait for each other.
        cooperative: bool,
    },
    /// It launches a graph.
    GraphLaunch,
    /// Anything else, of this class; `None` for a call that has no class.
    Other(Option<CallClass>),
}

/// The classes by what their names contain, after `cuda` or `cu`: the first that fits.
const CLASSES: [(&str, CallClass); 26] = [
    ("Synchronize", CallClass::Synchronize),
    ("Memcpy", CallClass::Copy),
    ("MemPrefetch", CallClass::Copy),
    ("Memset", CallClass::Set),
    ("GraphicsResource", CallClass::Context),
    ("Graph", CallClass::Graph),
    ("BeginCapture", CallClass::Graph),
    ("EndCapture", CallClass::Graph),
    ("MallocHost", CallClass::Allocate),
    ("HostAlloc", CallClass::Allocate),
    ("HostRegister", CallClass::Allocate),
    ("Malloc", CallClass::Allocate),
    ("MemAlloc", CallClass::Allocate),
    ("MemCreate", CallClass::Allocate),
    ("Free", CallClass::Free),
    ("MemRelease", CallClass::Free),
    ("HostUnregister", CallClass::Free),
    ("LaunchHostFunc", CallClass::HostFunction),
    ("AddCallback", CallClass::HostFunction),
    ("Module", CallClass::Module),
    ("Library", CallClass::Module),
    ("FuncBySymbol", CallClass::Module),
    ("Event", CallClass::Event),
    ("Stream", CallClass::Stream),
    ("Ctx", CallClass::Context),
    ("DeviceReset", CallClass::Context),
];

/// Returns the kind of the call of this name.
pub fn purpose(name: &str) -> Purpose {
    let name = plain(name);
    if name.contains("GraphLaunch") {
        return Purpose::GraphLaunch;
    }
    if name.contains("Launch") && !name.contains("HostFunc") {
        return Purpose::Launch { cooperative: name.contains("Cooperative") };
    }
    if name.contains("StreamWaitEvent") {
        return Purpose::Other(Some(CallClass::Stream));
    }
    let class = CLASSES.iter().find(|(part, _)| name.contains(part));
    Purpose::Other(class.map(|&(_, class)| class))
}

/// The name without the suffix by which Nsight Systems marks versions (`cudaMalloc_v3020`).
pub fn plain(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((head, version)) if version.len() > 3 && version.bytes().all(|byte| byte.is_ascii_digit()) => {
            head
        }
        _ => name,
    }
}

/// Whether the call returns before the copy or set is done, by its name.
pub fn is_asynchronous(name: &str) -> bool {
    name.contains("Async")
}

/// The kind of memory that CUPTI names so: `Pageable`, `Pinned`, `Device`, `Array`, `Managed`.
pub fn memory(name: &str) -> MemoryKind {
    match name.trim() {
        "Pageable" => MemoryKind::Pageable,
        "Pinned" => MemoryKind::Pinned,
        "Device" | "Device Static" | "Managed Static" => MemoryKind::Device,
        "Array" => MemoryKind::Array,
        "Managed" => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}

/// Source and destination in a name such as `Memcpy HtoD (Pageable -> Device)`.
pub fn ends_of_copy(name: &str) -> (MemoryKind, MemoryKind) {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    let ends = inner.and_then(|(inner, _)| inner.split_once("->"));
    let (from, to) =
        ends.map_or((MemoryKind::Unknown, MemoryKind::Unknown), |(from, to)| (memory(from), memory(to)));
    let of_letter = |letter: Option<char>| match letter {
        // `PtoP`: from peer to peer.
        Some('D' | 'P') => MemoryKind::Device,
        Some('A') => MemoryKind::Array,
        _ => MemoryKind::Unknown,
    };
    // `HtoD`: the host's kind of memory is not known by it.
    let mut letters = name.split_whitespace().nth(1).unwrap_or_default().chars();
    let (first, last) = (letters.next(), letters.next_back());
    let known = |kind, letter| if kind == MemoryKind::Unknown { of_letter(letter) } else { kind };
    (known(from, first), known(to, last))
}

/// Whether a name such as `Memcpy PtoP (Device -> Device)` is that of a copy between two devices.
pub fn is_between_devices(name: &str) -> bool {
    name.split_whitespace().nth(1) == Some("PtoP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_calls_do() {
        let other = |class| Purpose::Other(Some(class));
        for (name, expected) in [
            ("cudaLaunchKernel", Purpose::Launch { cooperative: false }),
            ("cuLaunchKernelEx", Purpose::Launch { cooperative: false }),
            ("cudaLaunchCooperativeKernel_v9000", Purpose::Launch { cooperative: true }),
            ("cudaGraphLaunch_v10000", Purpose::GraphLaunch),
            ("cudaLaunchHostFunc", other(CallClass::HostFunction)),
            ("cudaMemcpyAsync_v3020", other(CallClass::Copy)),
            ("cudaEventSynchronize", other(CallClass::Synchronize)),
            ("cudaStreamWaitEvent", other(CallClass::Stream)),
            ("cudaEventRecordWithFlags", other(CallClass::Event)),
            ("cudaStreamIsCapturing", other(CallClass::Stream)),
            ("cudaGraphInstantiate", other(CallClass::Graph)),
            ("cudaFuncGetAttributes", Purpose::Other(None)),
            ("cudaFreeAsync", other(CallClass::Free)),
            ("cuModuleLoadData", other(CallClass::Module)),
        ] {
            assert_eq!(purpose(name), expected, "{name}");
        }
    }

    #[test]
    fn a_copy_tells_its_memory() {
        use MemoryKind::{Device, Pageable, Pinned, Unknown};
        for (name, expected) in [
            ("Memcpy HtoD (Pageable -> Device)", (Pageable, Device)),
            ("Memcpy DtoH (Device -> Pinned)", (Device, Pinned)),
            ("Memcpy DtoD (Device -> Device)", (Device, Device)),
            ("Memcpy PtoP (Device -> Device)", (Device, Device)),
            ("Memcpy PtoP", (Device, Device)),
            ("Memcpy HtoD", (Unknown, Device)),
            ("", (Unknown, Unknown)),
            ("Memcpy (", (Unknown, Unknown)),
        ] {
            assert_eq!(ends_of_copy(name), expected, "{name}");
            assert_eq!(is_between_devices(name), name.contains("PtoP"), "{name}");
        }
    }
}
