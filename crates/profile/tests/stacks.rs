//! Call stacks of a session become places of its kernels and graphs.

use apex_profile::{Builder, Profile, StackCount};
use apex_trace::definition::{CallStack, Definition, Graph, PythonFrame};
use apex_trace::layout::{Slots, StackSample, flags};
use apex_trace::python::{LineTable, PythonCode};
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
    program.define(Definition::CallStack(CallStack { id, thread: thread.into(), python, is_cut: false }));
}

fn sample(program: &mut Recording, config: u32, stack: u32, flags: u16) {
    let head = StackSample::head(flags, 0, 0);
    program.write(&StackSample { head, config, stack, reserved: 0 });
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
