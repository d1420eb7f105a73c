//! Progress and phases, from a session that is being written.

use apex_power::Progress;
use apex_trace::definition::{Config, Context, Definition, Device, Function};
use apex_trace::layout::{Launch, Slots};
use apex_trace::{Lane, ProcessFile};

/// A session with two devices, and three kernels on them.
struct Session {
    folder: tempfile::TempDir,
    file: ProcessFile,
    lane: Lane,
}

/// Configurations: a kernel on the first device, one of NCCL on it, one on the second device.
const OWN: u32 = 1;
const NCCL: u32 = 2;
const OTHER: u32 = 3;

impl Session {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = ProcessFile::create(folder.path(), None).unwrap();
        let mut definitions = vec![Definition::Name { id: 1, text: "cuLaunchKernel".into() }];
        for id in [1, 2] {
            definitions.push(Definition::Device(Device { id, uuid: [id as u8; 16], ..Device::default() }));
            definitions.push(Definition::Context(Context { id, device: id, ..Context::default() }));
        }
        let kernels = [(OWN, "scale", 1), (NCCL, "ncclDevKernel_AllReduce_Sum_f32", 1), (OTHER, "scale", 2)];
        for (id, name, context) in kernels {
            definitions.push(Definition::Function(Function { id, name: name.into(), attributes: None }));
            definitions.push(Definition::Config(Config { id, function: id, context, ..Config::default() }));
        }
        assert!(definitions.iter().all(|definition| file.define(definition)));
        Self { folder, file, lane: Lane::default() }
    }

    fn launch(&mut self, config: u32, times: u64) {
        for _ in 0..times {
            let now = apex_trace::now();
            let head = Launch::head(0, now, now + 1);
            assert!(self.lane.record(&self.file, &Launch { head, config, stream: 0, result: 0, api: 1 }));
        }
    }
}

#[test]
fn launches_on_the_device_are_its_progress() {
    let mut session = Session::new();
    let mut progress = Progress::new(session.folder.path(), "GPU-01010101-0101-0101-0101-010101010101");
    assert!(progress.look().is_none());
    session.launch(OTHER, 10);
    assert!(progress.look().is_none(), "they are on another device");
    session.launch(OWN, 100);
    session.launch(OTHER, 10);
    let seen = progress.look().unwrap();
    assert_eq!((seen.phase, seen.steps, seen.is_collective), (0, 100.0, false));
    assert_eq!(progress.look(), Some(seen), "nothing was launched since");
    session.launch(OWN, 50);
    session.launch(NCCL, 1);
    let seen = progress.look().unwrap();
    assert_eq!((seen.phase, seen.steps, seen.is_collective), (0, 151.0, true));
    session.launch(NCCL, 9);
    assert_eq!(progress.look().map(|seen| (seen.phase, seen.steps)), Some((1, 9.0)));
    session.launch(OWN, 1);
    let seen = progress.look().unwrap();
    assert_eq!((seen.phase, seen.steps, seen.is_collective), (0, 152.0, false));
}

#[test]
fn without_a_session_there_is_no_progress() {
    assert!(Progress::new(std::path::Path::new("/nowhere"), "").look().is_none());
}
