//! What JAX's traces mean, in either of their forms: planes of devices and of the host, lines of
//! streams and threads, and events whose names and details tell what they are.
//!
//! Lines of a device that are no stream (`XLA Ops`, `Steps`, `XLA Modules`) are made of the events
//! of its streams, and passed. On the host, calls of CUDA have their names, frames of Python are
//! `$file:line function` with the file's name alone, and other events are ranges, except the ones
//! of XLA's own C++ code (`Class::Function`).

use crate::calls::memory;
use crate::model::{Call, Config, Kind, Process, Stream, Thread, Trace, Transfer, Work};
use apex_trace::layout::MemoryKind;
use cuda_launch::Dim3;

/// Events that XLA writes into `trace.json`, at most; five times as many in newer versions.
pub const MOST_OF_JSON: u64 = 1_000_000;
/// Reason for which a trace of an AMD GPU is refused.
pub const AMD: &str = "it is of an AMD GPU (ROCm, HIP calls); APEX knows CUDA devices: AMD's rocprof-compute and TraceLens \
                       read such traces";
/// Words in the names of devices that are not NVIDIA's, and whose they are. Traces of some of them
/// have calls that are named `cuda…`, because a program's calls are translated.
const FOREIGN: [(&str, &str); 9] = [
    ("amd", "AMD"),
    ("radeon", "AMD"),
    ("instinct", "AMD"),
    ("gfx9", "AMD"),
    ("intel", "Intel"),
    ("ascend", "Huawei"),
    ("mthreads", "Moore Threads"),
    ("iluvatar", "Iluvatar"),
    ("metax", "MetaX"),
];

/// Why a trace of a device of this name is refused; `None` if nothing speaks against NVIDIA.
pub fn foreign_device(name: &str) -> Option<String> {
    let plain = name.to_ascii_lowercase();
    if plain.contains("nvidia") {
        return None;
    }
    let (_, whose) = FOREIGN.iter().find(|(word, _)| plain.contains(word))?;
    let name: String = name.chars().take(64).collect();
    Some(format!("its device is `{name}` of {whose}, whatever its calls are named; APEX knows CUDA devices"))
}

/// Reason for which a trace of a TPU is refused.
pub const TPU: &str = "it is of a TPU; APEX knows CUDA devices: XProf reads such traces";

/// Subject of a plane, or of a process of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// A GPU, by its ordinal.
    Gpu(u32),
    /// The host.
    Host,
    /// A TPU.
    Tpu,
}

impl Plane {
    /// Returns the subject of a plane of this name.
    pub fn of(name: &str) -> Option<Self> {
        if let Some(ordinal) = name.strip_prefix("/device:GPU:") {
            return ordinal.split(' ').next()?.parse().ok().map(Self::Gpu);
        }
        match name {
            _ if name.starts_with("/device:TPU:") => Some(Self::Tpu),
            "/host:CPU" | "/host:CUPTI" | "/host:ROCTRACER" | "/host:python-tracer" => Some(Self::Host),
            _ => None,
        }
    }
}

/// The number of the stream that a line of this name is.
pub fn stream_of(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("Stream #")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Whether a call is one of HIP.
pub fn is_hip(name: &str) -> bool {
    let rest = name.strip_prefix("hip");
    rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// A context's number in a text such as `$$1`.
pub fn context(text: &str) -> u32 {
    text.trim_start_matches('$').parse().unwrap_or(0)
}

/// An event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its start.
    pub start: i64,
    /// Its duration.
    pub ns: u64,
    /// Number that joins work to its call; 0 if nothing does.
    pub correlation: u64,
    /// Its context.
    pub context: u32,
    /// XLA's description of kernels, copies and sets: words `key:value`.
    pub details: &'a str,
    /// Whether it is a step that the program marks.
    pub has_step: bool,
}

impl Event<'_> {
    /// The detail of this name.
    fn detail(&self, key: &str) -> Option<&str> {
        let mut words = self.details.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix(':'))
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.detail(key)?.parse().ok()
    }

    /// Three numbers with commas between.
    fn dimensions(&self, key: &str) -> Option<Dim3> {
        let mut numbers = self.detail(key)?.split(',').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Dim3::new(next()?, next()?, next()?))
    }
}

/// Destination of events.
pub struct Xla<'t> {
    /// The process.
    pub process: &'t mut Process,
    /// The trace.
    pub trace: &'t mut Trace,
}

impl Xla<'_> {
    /// An event of a device's line, which is this stream.
    ///
    /// # Errors
    /// Why the trace is refused.
    pub fn on_device(
        &mut self,
        device: u32,
        stream: Option<u64>,
        of: &Event<'_>,
    ) -> Result<(), &'static str> {
        let Some(number) = stream else { return Ok(()) };
        let kind = match of.name {
            name if name.starts_with("Memcpy") => Kind::Copy(copy(of)),
            name if name.starts_with("Memset") => Kind::Set(set(of)),
            name if name.starts_with("CudaGraph") => Kind::Graph(0),
            "MemoryAlloc" | "MemoryFree" | "MemoryResidency" | "UnifiedMemory" | "Overhead" => {
                self.trace.leave_out(of.name);
                return Ok(());
            }
            name => Kind::Kernel(self.config(device, name, of)),
        };
        let context = of.context;
        let stream = self.process.streams.number(Stream { device, context, number });
        let Event { start, ns, correlation, .. } = *of;
        self.process.work(Work { start, ns, correlation, stream, kind });
        Ok(())
    }

    fn config(&mut self, device: u32, name: &str, of: &Event<'_>) -> u32 {
        let process = &mut *self.process;
        process.configs.number(Config {
            name: process.names.number(name),
            device,
            context: of.context,
            grid: of.dimensions("grid"),
            block: of.dimensions("block"),
            registers: of.number("regs"),
            static_shared: of.number("static_shared").unwrap_or(0),
            dynamic_shared: of.number("dynamic_shared").unwrap_or(0),
            ..Config::default()
        })
    }

    /// An event of a thread of the host.
    ///
    /// # Errors
    /// Why the trace is refused.
    pub fn on_host(&mut self, thread: Thread, of: &Event<'_>) -> Result<(), &'static str> {
        if is_hip(of.name) {
            return Err(AMD);
        }
        let process = &mut *self.process;
        let Event { start, ns, correlation, .. } = *of;
        if is_call(of.name) {
            // The graph that a call launches is part of its name.
            let name = of.name.split(" (").next().unwrap_or(of.name);
            let (name, thread) = (process.names.number(name), process.threads.number(thread));
            process.call(Call { start, ns, correlation, name, thread, result: 0 });
        } else if let Some(frame) = of.name.strip_prefix('$') {
            let thread = process.threads.number(thread);
            process.frames.add(thread, start, ns, &frame_of(frame));
        } else if of.has_step || !of.name.contains("::") && ns > 1 {
            let name = of.name.strip_prefix("NVTX:").unwrap_or(of.name);
            let (name, thread) = (process.names.number(name), process.threads.number(thread));
            process.ranges.add(thread, start, ns, name);
        } else {
            self.trace.leave_out("events of XLA's own code");
        }
        Ok(())
    }
}

/// Work that is left for the end.
pub fn finish(process: &mut Process) {
    process.executable = "python (JAX)".to_owned();
}

/// Whether a name is one of a call of CUDA.
fn is_call(name: &str) -> bool {
    let upper = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
    name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu")).is_some_and(upper)
}

fn copy(of: &Event<'_>) -> Transfer {
    let mut letters = of.name.trim_start_matches("Memcpy").chars();
    let of_letter = |letter: Option<char>| match letter {
        // `P2P`: from peer to peer.
        Some('D' | 'P') => MemoryKind::Device,
        _ => MemoryKind::Unknown,
    };
    let (first, last) = (of_letter(letters.next()), of_letter(letters.next_back()));
    let kind = |key, known| of.detail(key).map_or(known, memory_kind);
    Transfer {
        bytes: of.number("size").unwrap_or(0),
        from: kind("kind_src", first) as u8,
        to: kind("kind_dst", last) as u8,
        is_peer: of.name == "MemcpyP2P",
    }
}

fn set(of: &Event<'_>) -> Transfer {
    let to = of.detail("kind").map_or(MemoryKind::Device, memory_kind);
    Transfer { bytes: of.number("num_bytes").unwrap_or(0), to: to as u8, ..Transfer::default() }
}

/// The kind of memory that XLA names so: as CUPTI does, in small letters.
fn memory_kind(name: &str) -> MemoryKind {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_ascii_uppercase() + rest
    });
    memory(&words.collect::<Vec<_>>().join(" "))
}

/// Files of JAX itself that are on the way to a launch. The trace has their names without folders.
const OWN_FILES: [&str; 28] = [
    "ad.py",
    "api.py",
    "api_util.py",
    "array.py",
    "array_methods.py",
    "batching.py",
    "cache_key.py",
    "compilation_cache.py",
    "compiler.py",
    "core.py",
    "custom_derivatives.py",
    "dispatch.py",
    "indexing.py",
    "lax.py",
    "lax_numpy.py",
    "linear_util.py",
    "mlir.py",
    "partial_eval.py",
    "pjit.py",
    "prng.py",
    "profiler.py",
    "pxla.py",
    "reductions.py",
    "stages.py",
    "traceback_util.py",
    "tree_util.py",
    "ufuncs.py",
    "xla_bridge.py",
];

/// `pjit.py:226 trace` as other traces name frames: `jax/_src/pjit.py(226): trace`.
fn frame_of(name: &str) -> String {
    let parts = name.split_once(' ').and_then(|(place, function)| {
        let (file, line) = place.rsplit_once(':')?;
        line.parse::<u32>().ok().map(|line| (file, line, function))
    });
    match parts {
        Some((file, line, function)) => {
            let folder = if OWN_FILES.contains(&file) { "jax/_src/" } else { "" };
            format!("{folder}{file}({line}): {function}")
        }
        None => format!("<{name}>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_planes_streams_calls_and_frames() {
        assert_eq!(Plane::of("/device:GPU:3"), Some(Plane::Gpu(3)));
        assert_eq!(Plane::of("/device:GPU:0 (pid 0)"), Some(Plane::Gpu(0)));
        assert_eq!([Plane::of("/device:GPU:x"), Plane::of("python"), Plane::of("/host:metadata")], [None; 3]);
        assert_eq!(stream_of("Stream #13(Compute,MemcpyD2D)"), Some(13));
        assert_eq!(stream_of("XLA Ops"), None);
        assert!(is_call("cuLaunchKernelEx") && is_call("cudaLaunchKernel") && !is_call("custom_call"));
        assert!(is_hip("hipModuleLaunchKernel") && !is_hip("hippo"));
        assert_eq!(frame_of("pjit.py:12 f"), "jax/_src/pjit.py(12): f");
        assert_eq!(frame_of("train.py:4 step"), "train.py(4): step");
        assert_eq!(frame_of("builtins next"), "<builtins next>");
    }

    #[test]
    fn details_are_words_with_values() {
        let of = Event {
            name: "MemcpyH2D",
            details: " kind_src:pageable kind_dst:device_static size:64 grid:2,3,4 regs:x",
            ..Event::default()
        };
        let Transfer { bytes, from, to, .. } = copy(&of);
        assert_eq!((bytes, from, to), (64, MemoryKind::Pageable as u8, MemoryKind::Device as u8));
        assert_eq!(of.dimensions("grid"), Some(Dim3::new(2, 3, 4)));
        assert_eq!(of.number::<u32>("regs"), None);
        let peer = copy(&Event { name: "MemcpyP2P", ..Event::default() });
        let device = MemoryKind::Device as u8;
        assert_eq!((peer.from, peer.to, peer.is_peer), (device, device, true));
        let short = Event { name: "MemcpyD2H", details: "grid:1,2", ..Event::default() };
        assert_eq!((copy(&short).from, short.dimensions("grid")), (MemoryKind::Device as u8, None));
    }
}
