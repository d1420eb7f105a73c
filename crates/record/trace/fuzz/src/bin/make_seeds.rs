//! Writes inputs for the fuzzer to start from: real process files, made compact.
//!
//! `make_seeds DIRECTORY`

use std::fs;
use std::path::Path;
use apex_trace::definition::{
    CallStack, Config, Context, Definition, Device, Function, Graph, Module, NativeFrame, PythonFrame, Range,
    Stream,
};
use apex_trace::layout::{Call, GraphLaunch, Launch, RangeChange, Slots, StackSample, Timing};
use apex_trace::python::PythonCode;
use apex_trace::{Lane, ProcessFile, Session, now};

fn main() {
    let target = std::env::args().nth(1).expect("the directory to write seeds into");
    fs::create_dir_all(&target).expect("the directory can be made");
    for calls in [0, 1, 9] {
        let session = std::env::temp_dir().join(format!("apex-seed-{}-{calls}", std::process::id()));
        fs::create_dir(&session).expect("a session can be made");
        record(&session, calls);
        let session_read = Session::open(&session).expect("the session can be read");
        let file = fs::read(&session_read.processes[0].file).expect("the process file can be read");
        let seed = Path::new(&target).join(format!("seed-{calls}"));
        fs::write(seed, trace_fuzz::compact(&file)).expect("the seed can be written");
        fs::remove_dir_all(&session).expect("the session can be removed");
    }
}

fn record(session: &Path, calls: u32) {
    let file = ProcessFile::create(session, None).expect("a process file can be made");
    for id in 1..=calls.min(2) {
        let text = "cuLaunchKernel".to_owned();
        let name = || "kernel".to_owned();
        for definition in [
            Definition::Name { id, text },
            Definition::Device(Device { id, name: name(), attributes: vec![(1, 1024)], ..Device::default() }),
            Definition::Context(Context { id, device: id, ..Context::default() }),
            Definition::Stream(Stream { id, context: id, ..Stream::default() }),
            Definition::Function(Function { id, name: name(), ..Function::default() }),
            Definition::Config(Config { id, function: id, ..Config::default() }),
            Definition::Graph(Graph { id, kernels: vec![(id, 3)], ..Graph::default() }),
            Definition::PythonCode(PythonCode { id, file: name(), ..PythonCode::default() }),
            Definition::CallStack(CallStack {
                id,
                python: vec![PythonFrame { code: id, offset: 2 }],
                native: vec![NativeFrame { module: id, address: 64 }],
                ..CallStack::default()
            }),
            Definition::Module(Module { id, path: name(), ..Module::default() }),
            Definition::Range(Range { id, name: name(), ..Range::default() }),
        ] {
            assert!(file.define(&definition));
        }
    }
    let mut lane = Lane::default();
    for id in 1..=calls {
        let start = now();
        let launch = Launch { head: Launch::head(0, start, now()), config: id, ..Launch::default() };
        let graph =
            GraphLaunch { head: GraphLaunch::head(0, start, now()), graph: id, ..GraphLaunch::default() };
        let timing = Timing { head: Timing::head(0, start, start), config: id, ..Timing::default() };
        let call = Call { head: Call::head(0, start, now()), api: id, class: 1, ..Call::default() };
        let stack =
            StackSample { head: StackSample::head(0, start, now()), stack: id, ..StackSample::default() };
        assert!(lane.record(&file, &launch) && lane.record(&file, &graph) && lane.record(&file, &stack));
        let range =
            RangeChange { head: RangeChange::head(0, start, start), range: id, ..RangeChange::default() };
        assert!(lane.record(&file, &timing) && lane.record(&file, &call) && lane.record(&file, &range));
        if id % 4 == 0 {
            lane.give_back();
        }
    }
}
