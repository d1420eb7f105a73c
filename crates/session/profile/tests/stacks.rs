//! Call stacks of a session become places of its kernels and graphs.

use apex_profile::{Builder, Profile, StackCount};
use apex_trace::definition::{CallStack, Definition, Graph, Module, NativeFrame, PythonFrame};
use apex_trace::layout::{Call, CallClass, MemoryKind, Slots, StackSample, flags};
use apex_trace::python::{LineTable, PythonCode};
use std::os::unix::fs::MetadataExt;
use test_session::{LEGACY, Recording};

/// A function of five instructions on each of two lines.
fn define_code(program: &mut Recording, id: u32, file: &str, function: &str, first_line: u32) {
    program.define(Definition::PythonCode(PythonCode {
        id,
        file: file.into(),
        function: function.into(),
        first_line,
        lines: LineTable::Pairs(vec![10, 0, 10, 1]),
    }));
}

fn define_stack(program: &mut Recording, id: u32, thread: &str, frames: &[(u32, i32)]) {
    let python = frames.iter().map(|&(code, offset)| PythonFrame { code, offset }).collect();
    program.define(Definition::CallStack(CallStack {
        id,
        thread: thread.into(),
        python,
        ..CallStack::default()
    }));
}

fn sample(program: &mut Recording, config: u32, stack: u32, flags: u16) {
    let head = StackSample::head(flags, 0, 0);
    program.write(&StackSample { head, config, stack, ..StackSample::default() });
}

/// Launches from two lines of one function, from another, and from a worker of autograd. `first`
/// changes in which order what is seen.
fn program(first: u32) -> impl Fn(&mut Recording) {
    move |program| {
        define_code(program, 1, "/home/me/train.py", "train_step", 48);
        define_code(program, 2, "/v/lib/python3.12/site-packages/torch/nn.py", "forward", 7);
        for at in 0..3 {
            match (at + first) % 3 {
                0 => define_stack(program, 1, "python", &[(2, 0), (1, 0)]),
                1 => define_stack(program, 2, "python", &[(1, 12)]),
                _ => define_stack(program, 3, "pt_autograd_0", &[]),
            }
        }
        let function = program.function("gelu");
        let config = program.config(function, 132, 256);
        program.define(Definition::Graph(Graph { id: 1, kernels: vec![(config, 2)], ..Graph::default() }));
        sample(program, config, 1, flags::FIRST_SEEN);
        for launch in 0..40 {
            program.launch(config, LEGACY);
            if launch % 10 == 0 {
                sample(program, config, [1, 1, 2, 3][launch / 10], 0);
            }
        }
        sample(program, config, 99, 0);
        sample(program, 99, 1, 0);
        program.graph_launch(1, LEGACY);
        sample(program, 1, 2, flags::OF_GRAPH | flags::FIRST_SEEN);
    }
}

#[test]
fn kernels_and_graphs_have_their_places() {
    let profile = test_session::of_program(program(0), Profile::from_session);
    let lines: Vec<_> =
        profile.call_stacks.iter().map(|stack| stack.frames.first().and_then(|frame| frame.line)).collect();
    assert_eq!(lines, [None, Some(49), Some(7)]);
    let count = |stack, first_seen, sampled| StackCount { stack, first_seen, sampled };
    assert_eq!(profile.kernels[0].stacks, [count(2, 1, 2), count(0, 0, 1), count(1, 0, 1)]);
    assert_eq!(profile.graphs[0].stacks, [count(1, 1, 0)]);
    let places: Vec<_> = profile.by_site().into_iter().map(|site| (site.place, site.launches)).collect();
    assert_eq!(
        places,
        [
            ("train.py:48 train_step".to_owned(), 20.0),
            ("train.py:49 train_step".to_owned(), 11.0),
            ("autograd (backward pass)".to_owned(), 10.0),
        ]
    );
    assert_eq!((profile.recorder.records, profile.totals.launches), (41, 40));
}

#[test]
fn processes_share_call_stacks() {
    let builder = |first| {
        test_session::of_program(program(first), |session| {
            let mut builder = Builder::default();
            builder.add_session(session);
            builder
        })
    };
    let mut merged = builder(1);
    merged.merge(builder(2));
    let (one, both) = (builder(0).finish(), merged.finish());
    assert_eq!(one.call_stacks, both.call_stacks);
    let twice = |counts: &[StackCount]| -> Vec<_> {
        let twice = |count: &StackCount| StackCount {
            first_seen: 2 * count.first_seen,
            sampled: 2 * count.sampled,
            ..*count
        };
        counts.iter().map(twice).collect()
    };
    assert_eq!(both.kernels[0].stacks, twice(&one.kernels[0].stacks));
}

/// An address in this test's executable file, as the file counts, and the file.
fn here() -> (NativeFrame, Module) {
    let path = std::env::current_exe().expect("a path");
    let file = std::fs::metadata(&path).expect("a file");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    let first = maps.lines().find(|line| line.ends_with(path.to_str().expect("text"))).expect("a mapping");
    let base =
        first.split('-').next().and_then(|base| u64::from_str_radix(base, 16).ok()).expect("an address");
    let module = Module {
        id: 1,
        path: path.to_str().expect("text").to_owned(),
        build_id: String::new(),
        bytes: file.len(),
        modified_ns: (file.mtime() * 1_000_000_000 + file.mtime_nsec()) as u64,
    };
    (NativeFrame { module: 1, address: here as *const () as u64 - base }, module)
}

#[test]
fn memory_over_time_is_of_the_places_that_allocate_it() {
    let program = |program: &mut Recording| {
        define_code(program, 1, "/home/me/train.py", "load", 10);
        define_code(program, 2, "/home/me/train.py", "train_step", 48);
        define_stack(program, 1, "main", &[(1, 0)]);
        define_stack(program, 2, "main", &[(2, 0)]);
        let (class, memory) = (CallClass::Allocate as u8, MemoryKind::Device as u8);
        let api = 900;
        program.define(Definition::Name { id: api, text: "cuMemAlloc_v2".into() });
        let function = program.function("gelu");
        let config = program.config(function, 132, 256);
        let mut allocate = |address: u64, bytes: u64, stack: Option<u32>| {
            let start = program.launch(config, LEGACY) + 4_000;
            let head = Call::head(0, start, start + 10);
            program.write(&Call { head, api, class, memory, address, bytes, ..Call::default() });
            if let Some(stack) = stack {
                let head = StackSample::head(flags::OF_CALL, start + 20, start + 30);
                program.write(&StackSample { head, config: api, stack, class, memory, ..Default::default() });
            }
        };
        allocate(0x1000, 5_000, Some(1));
        allocate(0x2000, 700, Some(2));
        allocate(0x3000, 700, None);
        allocate(0x4000, 30, None);
        for _ in 0..100 {
            program.launch(config, LEGACY);
        }
        program.free(0x1000, 10);
        program.launch(config, LEGACY);
    };
    let profile = test_session::of_program(program, Profile::from_session);
    let [memory] = &profile.memory_over_time[..] else { panic!("{:?}", profile.memory_over_time) };
    let places: Vec<(&str, u64)> =
        memory.places.iter().map(|place| (place.place.as_str(), place.peak_bytes)).collect();
    let none = "unknown: no call stack was read";
    assert_eq!(places, [("train.py:10 load", 5_000), ("train.py:48 train_step", 1_400), (none, 30)]);
    assert_eq!((memory.process, memory.on_host, memory.peak_bytes), (0, false, 6_430));
    let peak = memory.most.iter().position(|&most| most == 6_430).expect("a part");
    assert_eq!((memory.inferred[peak], *memory.most.last().unwrap()), (700, 1_430));
    assert_eq!(memory.allocated.iter().sum::<u64>(), 6_430);
    assert_eq!(profile.memory[0].peak_bytes, memory.peak_bytes);
}

#[test]
fn compiled_functions_and_calls_have_their_places() {
    let (frame, module) = here();
    let changed = Module { id: 2, bytes: 1, ..module.clone() };
    let program = |program: &mut Recording| {
        program.define(Definition::Module(module.clone()));
        program.define(Definition::Module(changed.clone()));
        define_code(program, 1, "/home/me/train.py", "train_step", 48);
        for (id, module) in [(1, 1), (2, 2)] {
            let native = vec![NativeFrame { module, ..frame }];
            program.define(Definition::CallStack(CallStack {
                id,
                thread: "main".into(),
                native,
                ..CallStack::default()
            }));
        }
        let native = vec![frame];
        let python = vec![PythonFrame { code: 1, offset: 0 }];
        program.define(Definition::CallStack(CallStack { id: 3, python, native, ..CallStack::default() }));
        let function = program.function("gelu");
        let config = program.config(function, 132, 256);
        let mut last = 0;
        for stack in [1, 2, 3] {
            last = program.launch(config, LEGACY);
            sample(program, config, stack, 0);
        }
        let (api, class, memory) = (900, CallClass::Copy as u8, MemoryKind::Device as u8);
        let source_memory = MemoryKind::Pageable as u8;
        program.define(Definition::Name { id: api, text: "cuMemcpyHtoD_v2".into() });
        let head = Call::head(0, last + 1, last + 2);
        program.write(&Call { head, api, class, memory, source_memory, ..Call::default() });
        let head = StackSample::head(flags::OF_CALL | flags::FIRST_SEEN, last + 3, last + 4);
        let call =
            StackSample { head, config: api, stack: 1, class, memory, source_memory, ..Default::default() };
        program.write(&call);
    };
    let profile = test_session::of_program(program, Profile::from_session);
    let places: Vec<String> = profile.by_site().into_iter().map(|site| site.place).collect();
    let mine = places.iter().find(|place| place.starts_with("stacks.rs:")).expect("a line of this file");
    assert!(mine.ends_with(" stacks::here"), "{mine}");
    // A file that has changed tells nothing.
    assert!(places.contains(&"unknown: no symbols (thread main)".to_owned()), "{places:?}");
    assert!(places.contains(&format!("train.py:48 train_step via {mine}")), "{places:?}");
    let python = profile.by_site().into_iter().find_map(|site| site.native).expect("compiled code");
    assert_eq!(python.function, "stacks::here");
    let copies = &profile.copies[0];
    assert_eq!(profile.main_place(&copies.stacks).as_deref(), Some(mine.as_str()));
    assert_eq!(profile.calls.iter().map(|call| call.stacks.len()).sum::<usize>(), 1);
}
