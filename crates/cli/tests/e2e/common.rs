//! A folder of its own for each test, and the commands in it.

use apex_machine::{Device as MachineDevice, DeviceRecord, Quantity, Readings, Record, Writer};
use apex_profile::Profile;
use apex_trace::definition::{
    CallStack, Config, Context, Definition, Device, Function, Graph, PythonFrame, Range, Stream,
};
use apex_trace::layout::{GraphLaunch, Launch, RangeChange, Slots, StackSample, Timing, flags};
use apex_trace::python::{LineTable, PythonCode};
use apex_trace::{Event, Lane, ProcessFile, Session};
use apex_untrusted::Folder;
use cuda_launch::{FunctionAttributes, LaunchConfig};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_process::{Child, Command};

/// Longer than anything here takes, even on a busy machine: reaching it is a failure, not a
/// measurement.
const PATIENCE: Duration = test_process::LIMIT;

/// The command under test.
pub const APEX: &str = env!("CARGO_BIN_EXE_apex");

/// The library of the CPU device, which this test run has built.
pub fn cpu_device() -> PathBuf {
    Path::new(APEX).with_file_name("deps").join("libapex_cpu_device.so")
}

/// The program that is recorded.
pub fn program() -> PathBuf {
    test_build::program("cuda-program")
}

/// A kernel that fills memory with numbers.
pub const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 to, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .u32 %r<6>;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd0, [to];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p0, %r4, %r0;
    @%p0 bra DONE;
    cvta.to.global.u64 %rd1, %rd0;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r4;
DONE:
    ret;
}
";

/// A folder to run in, removed afterwards.
pub struct Sandbox {
    folder: TempDir,
    /// Stands for the user's cache.
    cache: TempDir,
}

impl Sandbox {
    /// An empty one.
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap() }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command in this folder, in an environment that knows nothing of the caller's APEX or CUDA,
    /// with the libraries that this test run has built (beside the executable may lie older ones).
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["APEX_", "CUDA_", "NVIDIA_", "NVTX_"].iter().any(|prefix| name.starts_with(prefix))
                || name == "LD_PRELOAD"
            {
                command.env_remove(name);
            }
        }
        command.current_dir(self.folder.path()).env("APEX_LIB_DIR", Path::new(APEX).with_file_name("deps"));
        command.env("XDG_CONFIG_HOME", self.cache.path());
        command.env("COLUMNS", "100").env("XDG_CACHE_HOME", self.cache.path()).stdin(Stdio::null());
        command
    }

    /// `apex` with these arguments.
    pub fn apex<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.command(APEX);
        command.args(arguments);
        command
    }

    /// `apex run` of the program on the CPU device, into the session `s`, with more options in
    /// front of `--`.
    pub fn record(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = self.apex(&["run", "--device", "cpu", "-o", "s"]);
        command.args(options).arg("--").arg(program()).args(words);
        command
    }

    /// Records, and expects that it works.
    pub fn recorded(&self, options: &[&str], words: &[&str]) -> Output {
        output(&mut self.record(options, words), 0)
    }

    /// Launches that succeeded in a session.
    pub fn launches(&self, session: &str) -> u64 {
        let session = Session::open(self.path(session)).unwrap();
        assert!(session.problems.is_empty(), "{:?}", session.problems);
        session.processes.iter().map(launches).sum()
    }

    /// Returns the JSON that `apex` prints.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = output(&mut self.apex(arguments), 0);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
    }
}

/// Launches of a process that succeeded.
pub fn launches(process: &apex_trace::Process) -> u64 {
    let succeeded =
        |record: &apex_trace::Record| matches!(record.event, Event::Launch(launch) if launch.result == 0);
    process.records().filter(succeeded).count() as u64
}

/// Runs a command to its end and expects this exit code.
pub fn output(command: &mut Command, code: i32) -> Output {
    let output = command.output().unwrap();
    let found = output.status.code();
    assert_eq!(
        found,
        Some(code),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A session of an H200 with these kernels: name, blocks, threads, and what each launch of ten
/// took, nanoseconds.
pub fn h200_session(folder: &Path, kernels: &[(&str, u32, u32, u64)]) {
    let attributes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/h200/device/attributes.csv");
    let attributes = std::fs::read_to_string(attributes).unwrap();
    let pair = |line: &str| line.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let attributes: Vec<(u32, i32)> = attributes.lines().filter_map(pair).collect();
    std::fs::create_dir_all(folder).unwrap();
    let file = ProcessFile::create(folder, None).unwrap();
    let device = Device { id: 1, name: "NVIDIA H200".into(), attributes, ..Device::default() };
    assert!(file.define(&Definition::Name { id: 1, text: "cuLaunchKernel".into() }));
    assert!(file.define(&Definition::Device(device)));
    assert!(file.define(&Definition::Context(Context { id: 1, handle: 5, device: 1, ..Context::default() })));
    assert!(file.define(&Definition::Stream(Stream { id: 1, context: 1, ..Stream::default() })));
    let mut lane = Lane::default();
    let mut clock = apex_trace::now();
    for (&(name, blocks, threads, took), id) in kernels.iter().zip(1..) {
        let attributes = FunctionAttributes {
            registers: 24,
            max_threads_per_block: 1024,
            max_dynamic_shared_bytes: Some(48 << 10),
            ..FunctionAttributes::default()
        };
        let function = Function { id, name: name.into(), attributes: Some(attributes) };
        assert!(file.define(&Definition::Function(function)));
        let launch = LaunchConfig::new(blocks, threads);
        let config = Config { id, function: id, context: 1, launch, ..Config::default() };
        assert!(file.define(&Definition::Config(config)));
        for _ in 0..10 {
            clock += 100_000;
            let head = Launch::head(0, clock, clock + 3000);
            assert!(lane.record(&file, &Launch { head, config: id, stream: 1, result: 0, api: 1 }));
            let mut head = Timing::head(0, clock, clock);
            head.duration = 3_000;
            assert!(lane.record(&file, &Timing { head, config: id, stream: 1, raw_ns: took + 3_000 }));
        }
    }
}

/// Adds to a session of [`h200_session`] what its machine did, whose device has this name: all
/// quantities that there are, in records that hold all times.
pub fn machine_file(session: &Path, name: &str) {
    let device = MachineDevice {
        uuid: "GPU-00000000-0000-0000-0000-000000000000".to_owned(),
        name: name.to_owned(),
        pci: "00000000:1B:00.0".to_owned(),
        memory_bytes: Some(1 << 37),
        max_sm_clock_mhz: Some(1980),
        max_memory_clock_mhz: Some(3201),
        slowdown_c: Some(92),
    };
    let mut writer = Writer::new(Folder::open(session).unwrap(), 1 << 20);
    writer.device(&device).unwrap();
    // More than a page shows one by one.
    for from_ns in 1..=300 {
        let to_ns = if from_ns == 300 { 1 << 60 } else { from_ns + 1 };
        let mut readings = Readings::default();
        Quantity::ALL.iter().for_each(|&quantity| readings.set(quantity, from_ns as f64));
        let devices = vec![DeviceRecord { device: 0, readings: readings.clone(), ..DeviceRecord::default() }];
        writer.record(Record { from_ns, to_ns, cost_ns: 1, host: readings, devices }).unwrap();
    }
}

/// Adds to a session of one device the readings of its energy counter: 400 W while it runs, 100 W
/// in the seconds after that, in which it is idle.
pub fn energy_file(session: &Path, of: &Session) {
    const SECOND: u64 = 1_000_000_000;
    let profile = Profile::from_session(of);
    let activity = &profile.activities[0];
    let begin = apex_profile::origin_ns(of) + activity.start_ns as u64;
    let seconds = (activity.span_ns / 1e9).ceil() as u64;
    let mut writer = Writer::new(Folder::open(session).unwrap(), 1 << 20);
    writer.device(&MachineDevice { uuid: profile.devices[0].uuid.clone(), ..Default::default() }).unwrap();
    for second in 0..seconds + 3 {
        let is_idle = second > seconds;
        let mut readings = Readings::default();
        readings.set(Quantity::SmUtilization, if is_idle { 0.0 } else { 0.9 });
        readings.set(Quantity::AveragePower, if is_idle { 100.0 } else { 400.0 });
        let from_ns = begin + second * SECOND;
        let joules = |tenth: u64| 400 * (second * 10 + tenth).min(seconds * 10);
        let energy = (0..10).map(|tenth| (from_ns + tenth * SECOND / 10, joules(tenth) * 100)).collect();
        let devices = vec![DeviceRecord { device: 0, readings, energy }];
        writer.record(Record { from_ns, to_ns: from_ns + SECOND, devices, ..Record::default() }).unwrap();
    }
}

/// A session of a Python program: a kernel and a graph, each launched once, from a line of
/// `train.py`.
pub fn place_session(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let file = ProcessFile::create(folder, None).unwrap();
    for definition in [
        Definition::Name { id: 1, text: "cuLaunchKernel".into() },
        Definition::Function(Function { id: 1, name: "scale".into(), attributes: None }),
        Definition::Config(Config {
            id: 1,
            function: 1,
            context: 0,
            launch: LaunchConfig::new(66, 256),
            ..Config::default()
        }),
        Definition::Graph(Graph { id: 1, kernels: vec![(1, 2)], ..Graph::default() }),
        Definition::PythonCode(PythonCode {
            id: 1,
            file: "/home/me/train.py".into(),
            function: "train_step".into(),
            first_line: 47,
            lines: LineTable::Pairs(vec![20, 1]),
        }),
        Definition::CallStack(CallStack {
            id: 1,
            thread: "python3".into(),
            python: vec![PythonFrame { code: 1, offset: 8 }],
            ..CallStack::default()
        }),
        Definition::Range(Range { id: 1, name: "step".into(), ..Range::default() }),
        Definition::Range(Range { id: 2, parent: 1, domain: "model".into(), name: "forward".into() }),
    ] {
        assert!(file.define(&definition));
    }
    let mut lane = Lane::default();
    let start = apex_trace::now();
    for range in [1, 2] {
        let head = RangeChange::head(flags::RANGE_BEGUN, start, start);
        assert!(lane.record(&file, &RangeChange { head, range, changed: range, instance: 0 }));
    }
    let head = Launch::head(0, start, start + 3000);
    assert!(lane.record(&file, &Launch { head, config: 1, stream: 0, result: 0, api: 1 }));
    let head = GraphLaunch::head(0, start, start + 3000);
    assert!(lane.record(&file, &GraphLaunch { head, graph: 1, stream: 0, result: 0, api: 1 }));
    for flags in [flags::FIRST_SEEN, 0, flags::OF_GRAPH] {
        let head = StackSample::head(flags, start, start + 1000);
        assert!(lane.record(&file, &StackSample { head, config: 1, stack: 1, ..StackSample::default() }));
    }
    let mut head = Timing::head(0, start, start);
    head.duration = 0;
    assert!(lane.record(&file, &Timing { head, config: 1, stream: 0, raw_ns: 9_000 }));
}

/// A pseudo-terminal: the side that types, and the side that a program is given. 80 columns,
/// 24 rows.
pub fn terminal() -> (File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: two locals to write to, one to read; the rest may be null.
    let result = unsafe {
        libc::openpty(&raw mut master, &raw mut slave, null, null.cast(), (&raw const size).cast_mut())
    };
    assert_eq!(result, 0, "no pseudo-terminal");
    // SAFETY: freshly opened, owned by nobody else.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

/// Has a command begin a session of its own, whose terminal is its stdin.
pub fn controlling(command: &mut Command) {
    // SAFETY: between fork and exec; async-signal-safe calls.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        })
    };
}

/// Takes what is posted, with this answer: the path and the body of each request.
pub fn listener(answer: &'static str) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut path, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(rest) = line.strip_prefix("POST ") {
                    path = rest.split(' ').next().unwrap().to_owned();
                } else if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                } else if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
            if tell.send((path, body)).is_err() {
                return;
            }
        }
    });
    (address, told)
}

/// Returns the next value from a channel.
pub fn received<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(PATIENCE).expect("it comes before the test's patience ends")
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal.
pub fn send(pid: u32, signal: i32) {
    // SAFETY: plain system call; the process is a child of the test that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
}

/// A child that is killed if the test ends early.
pub struct Running(pub Child);

impl Running {
    /// Starts a command with its stdout piped.
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until the session names the program: until it has been started, `apex run` stands for
    /// it, on a busy machine after its first launches, too.
    pub fn wait_for_name(&self, session: &Path) {
        for _ in 0..60_000 {
            let meta = std::fs::read(session.join("session.json")).unwrap();
            let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
            if meta["pid"] != self.0.id() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the session names no program");
    }

    /// Reads its stdout up to and including a line that starts so.
    pub fn read_until(&mut self, start: &str) -> String {
        let out = self.0.stdout.as_mut().unwrap();
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "the program ended before it said `{start}`");
            if byte[0] != b'\n' {
                line.push(byte[0]);
            } else if line.starts_with(start.as_bytes()) {
                return text(&line);
            } else {
                line.clear();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file that `scripts/test-deps.sh` installs; without it, `None`, and a line that says that the
/// test is skipped.
pub fn installed(file: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-deps").join(file);
    if found.exists() {
        return Some(found);
    }
    test_skip::missing_dependency(format!("needs {}", found.display()));
    None
}
