//! Sessions written as the injected library writes them, with a clock whose ticks are nanoseconds
//! since the start.

mod host;

use std::fs::OpenOptions;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

use apex_trace::definition::{Config, Context, Definition, Device, Function, Stream, StreamKind};
use apex_trace::layout::{
    Call, CallClass, ClockAnchor, ClockKind, FileHeader, GraphLaunch, Launch, MemoryKind, RecordHead, Slots,
    Timing, flags,
};
use apex_trace::{Ended, Lane, ProcessFile, Session};
use cuda_launch::{FunctionAttributes, LaunchConfig};
use tempfile::TempDir;

pub use host::{HostSampler, OnHost};

/// Multiprocessors of the device.
pub const SMS: i32 = 132;
/// The legacy default stream; every recording defines these three streams.
pub const LEGACY: u32 = 1;
/// A blocking stream.
pub const BLOCKING: u32 = 2;
/// A non-blocking stream.
pub const NON_BLOCKING: u32 = 3;

/// A process file being written, by one thread.
pub struct Recording {
    file: ProcessFile,
    lane: Lane,
    names: Vec<String>,
    functions: u32,
    configs: u32,
    /// The start of the next call.
    pub now: u64,
}

impl Recording {
    /// A process with a device, a context and three streams.
    pub fn new(dir: &Path) -> Self {
        let file = ProcessFile::create(dir, None).expect("a process file");
        let recording =
            Self { file, lane: Lane::default(), names: Vec::new(), functions: 0, configs: 0, now: 1_000 };
        let attributes =
            vec![(75, 9), (76, 0), (16, SMS), (39, 2048), (106, 32), (82, 65536), (81, 233_472), (111, 1024)];
        recording.define(Definition::Device(Device {
            id: 1,
            name: "NVIDIA H100".to_owned(),
            uuid: *b"0123456789abcdef",
            driver_version: 13_000,
            memory_bytes: 80 << 30,
            attributes,
            ..Device::default()
        }));
        recording.define(Definition::Context(Context {
            id: 1,
            handle: 0xc0,
            device: 1,
            ..Context::default()
        }));
        for (id, kind) in [
            (LEGACY, StreamKind::LegacyDefault),
            (BLOCKING, StreamKind::Blocking),
            (NON_BLOCKING, StreamKind::NonBlocking),
        ] {
            recording.define(Definition::Stream(Stream { id, handle: id.into(), context: 1, kind }));
        }
        recording
    }

    /// Writes a definition.
    pub fn define(&self, definition: Definition) {
        assert!(self.file.define(&definition));
    }

    /// Writes a record.
    pub fn write<R: Slots>(&mut self, record: &R) {
        assert!(self.lane.record(&self.file, record));
    }

    /// A function of 32 registers.
    pub fn function(&mut self, name: &str) -> u32 {
        self.functions += 1;
        self.define(Definition::Function(Function {
            id: self.functions,
            name: name.to_owned(),
            attributes: Some(FunctionAttributes {
                registers: 32,
                max_threads_per_block: 1024,
                max_dynamic_shared_bytes: Some(49_152),
                binary_version: 90,
                ptx_version: 90,
                ..FunctionAttributes::default()
            }),
        }));
        self.functions
    }

    /// A configuration of a function.
    pub fn config(&mut self, function: u32, blocks: u32, threads: u32) -> u32 {
        self.config_in(function, blocks, threads, 1)
    }

    /// A configuration of a function in another context than the first.
    pub fn config_in(&mut self, function: u32, blocks: u32, threads: u32, context: u32) -> u32 {
        self.configs += 1;
        self.define(Definition::Config(Config {
            id: self.configs,
            function,
            context,
            launch: LaunchConfig::new(blocks, threads),
            ..Config::default()
        }));
        self.configs
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(at) = self.names.iter().position(|known| known == name) {
            return at as u32 + 1;
        }
        self.names.push(name.to_owned());
        let id = self.names.len() as u32;
        self.define(Definition::Name { id, text: name.to_owned() });
        id
    }

    /// The head of a call that takes `cpu_ns`; the next one begins when it has returned.
    fn head<R: Slots>(&mut self, flags: u16, cpu_ns: u64) -> RecordHead {
        let start = self.now;
        self.now += cpu_ns;
        R::head(flags, start, self.now)
    }

    /// A launch whose call takes 4 µs. Returns its start.
    pub fn launch(&mut self, config: u32, stream: u32) -> u64 {
        self.launch_with(config, stream, 0, 0)
    }

    /// A launch whose call takes that long, nanoseconds.
    pub fn launch_taking(&mut self, config: u32, stream: u32, cpu_ns: u64) {
        let api = self.name("cuLaunchKernel");
        let head = self.head::<Launch>(0, cpu_ns);
        self.write(&Launch { head, config, stream, result: 0, api });
    }

    /// A launch whose call takes 4 µs, with these flags and this result. Returns its start.
    pub fn launch_with(&mut self, config: u32, stream: u32, flags: u16, result: u32) -> u64 {
        let (start, api) = (self.now, self.name("cuLaunchKernel"));
        let head = self.head::<Launch>(flags, 4_000);
        self.write(&Launch { head, config, stream, result, api });
        start
    }

    /// A reading of an event pair around the launch that began at `start`.
    pub fn timing(&mut self, config: u32, stream: u32, start: u64, gpu_ns: u64, flags: u16) {
        let correction = 2_700;
        let mut head = Timing::head(flags, start, start);
        head.duration = correction;
        self.write(&Timing { head, config, stream, raw_ns: gpu_ns + u64::from(correction) });
    }

    /// A launch, and the reading of it.
    pub fn timed(&mut self, config: u32, stream: u32, gpu_ns: u64) {
        let start = self.launch(config, stream);
        self.timing(config, stream, start, gpu_ns, 0);
    }

    /// A launch of a graph whose call takes 5 µs. Returns its start.
    pub fn graph_launch(&mut self, graph: u32, stream: u32) -> u64 {
        let (start, api) = (self.now, self.name("cuGraphLaunch"));
        let head = self.head::<GraphLaunch>(0, 5_000);
        self.write(&GraphLaunch { head, graph, stream, result: 0, api });
        start
    }

    /// Any other call.
    pub fn call(&mut self, name: &str, class: CallClass, cpu_ns: u64, call: Call) {
        let api = self.name(name);
        let head = self.head::<Call>(call.head.flags, cpu_ns);
        self.write(&Call { head, api, class: class as u8, ..call });
    }

    /// A call that waits for a stream.
    pub fn synchronise(&mut self, stream: u32, cpu_ns: u64) {
        self.call("cuStreamSynchronize", CallClass::Synchronize, cpu_ns, Call { stream, ..Call::default() });
    }

    /// An allocation.
    pub fn allocate(&mut self, kind: MemoryKind, address: u64, bytes: u64, cpu_ns: u64) {
        let call = Call { memory: kind as u8, address, bytes, ..Call::default() };
        self.call("cuMemAlloc_v2", CallClass::Allocate, cpu_ns, call);
    }

    /// A free.
    pub fn free(&mut self, address: u64, cpu_ns: u64) {
        let call = Call { memory: MemoryKind::Device as u8, address, ..Call::default() };
        self.call("cuMemFree_v2", CallClass::Free, cpu_ns, call);
    }

    /// A copy.
    pub fn copy(
        &mut self,
        destination: MemoryKind,
        source: MemoryKind,
        bytes: u64,
        asynchronous: bool,
        cpu_ns: u64,
    ) {
        let head = RecordHead { flags: if asynchronous { flags::ASYNC } else { 0 }, ..RecordHead::default() };
        let (memory, source_memory) = (destination as u8, source as u8);
        let name = if asynchronous { "cuMemcpyAsync" } else { "cuMemcpy" };
        self.call(
            name,
            CallClass::Copy,
            cpu_ns,
            Call { head, stream: LEGACY, memory, source_memory, bytes, ..Call::default() },
        );
    }

    /// An asynchronous copy between the memories of two devices.
    pub fn copy_between_devices(&mut self, stream: u32, bytes: u64, cpu_ns: u64) {
        let head = RecordHead { flags: flags::ASYNC | flags::PEER, ..RecordHead::default() };
        let memory = MemoryKind::Device as u8;
        let call = Call { head, stream, memory, source_memory: memory, bytes, ..Call::default() };
        self.call("cuMemcpyPeerAsync", CallClass::Copy, cpu_ns, call);
    }

    /// The process exits.
    pub fn exit(self) {
        drop(self.lane);
        self.file.mark_ended(Ended::Exited);
    }
}

/// Returns the result of `read` for a session of one process that runs `program`.
pub fn of_program<T>(program: impl FnOnce(&mut Recording), read: impl FnOnce(&Session) -> T) -> T {
    let dir = TempDir::new().expect("a temporary directory");
    let mut recording = Recording::new(dir.path());
    program(&mut recording);
    recording.exit();
    read(&open(&dir))
}

/// Opens the session in `dir`, whose processes have all ended.
pub fn open(dir: impl AsRef<Path>) -> Session {
    for entry in std::fs::read_dir(&dir).expect("the session's directory") {
        let path = entry.expect("an entry").path();
        if path.file_name().is_none_or(|name| name != apex_host_stacks::FILE) {
            tick_in_nanoseconds(&path);
        }
    }
    Session::open(dir.as_ref()).expect("a session")
}

/// Makes a process file's ticks nanoseconds since its start.
fn tick_in_nanoseconds(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).expect("the process file");
    let put =
        |bytes: &[u8], offset: usize| file.write_all_at(bytes, offset as u64).expect("it can be changed");
    put(&(ClockKind::Monotonic as u32).to_le_bytes(), offset_of!(FileHeader, clock));
    let ticks = offset_of!(FileHeader, start) + offset_of!(ClockAnchor, ticks);
    put(&0u64.to_le_bytes(), ticks);
}
