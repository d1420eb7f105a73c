//! What each observation becomes, to the nanosecond, on made-up observations of a process that
//! starts at a round time.

use super::*;
use apex_profile::{Activity, Device, Figure, Gap, IdleCause, Ranks};
use apex_trace::definition::{self, Definition};
use apex_trace::meta::{Host, Meta};
use std::collections::BTreeMap;
use std::ops::Range;
use test_session::{LEGACY, Recording};

/// The start of the process, in nanoseconds since 1970.
const START: u64 = 1_700_000_000_000_000_000;
/// From its start to its last record.
const LENGTH: u64 = 5_000;
const PID: u32 = 4711;

/// Reads a session of one process with a kernel, with threads, and with ranges inside of ranges.
fn with_session<T>(read: impl FnOnce(&mut Session) -> T) -> T {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    let function = recording.function("_Z5scalePf");
    let config = recording.config(function, 132, 256);
    for (id, parent, domain, name) in
        [(1, 0, "", "step"), (2, 1, "torch", "for\u{1b}ward"), (3, 2, "", "inner"), (4, 1, "", "backward")]
    {
        let (domain, name) = (domain.to_owned(), name.to_owned());
        recording.define(Definition::Range(definition::Range { id, parent, domain, name }));
    }
    recording.launch(config, LEGACY);
    recording.exit();
    let mut session = test_session::open(&dir);
    let process = &mut session.processes[0];
    (process.pid, process.parent_pid, process.start_real_ns) = (PID, 42, START);
    process.executable = "/opt/bin/train".into();
    process.threads = [(7, "loader".to_owned()), (8, String::new())].into();
    read(&mut session)
}

/// A collector that has seen the start of the session's process, with these phases and iterations.
fn observing(session: &Session, phases: &[(u64, PhaseKind)], iterations: &[Range<u64>]) -> Collector {
    let mut collector =
        Collector { trace: [7; 16], ranks: Ranks::in_order([1, PID]), ..Collector::default() };
    let devices = ["GPU-a", "GPU-b"].map(|uuid| Device { uuid: uuid.into(), ..Device::default() });
    let process = &session.processes[0];
    collector.process(&ObservedProcess { process, devices: &devices, phases, iterations, is_placed: false });
    collector
}

/// Name, and start and end after the process's start.
fn times(span: &Span) -> (&str, u64, u64) {
    (&span.name, span.start_ns - START, span.end_ns - START)
}

fn text_of(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn meta(started_real_ns: u64, ended_real_ns: Option<u64>, exit: Option<Exit>) -> Meta {
    Meta {
        schema: 1,
        apex_version: String::new(),
        command: vec!["train".into(), "--fast".into()],
        cwd: String::new(),
        pid: None,
        started_real_ns,
        ended_real_ns,
        exit,
        device: "gpu".into(),
        timing: "sampled".into(),
        rank: None,
        host: Host { name: "node\u{7}1".into(), ..Host::default() },
        ranks: std::collections::BTreeMap::new(),
        universal: Vec::new(),
        capability: Vec::new(),
        imported: Vec::new(),
        checked: false,
        attached: false,
        watched_by: None,
    }
}

/// What an identifier stands for is the trace, the process, the sort and the numbers: without
/// one of them, spans of two processes of a session would be one.
#[test]
fn identifiers_differ_with_each_part() {
    let collector = Collector { trace: [7; 16], ..Collector::default() };
    let other = Collector { trace: [8; 16], ..Collector::default() };
    let ids = [
        collector.id(1, "gap", &[2, 3]),
        collector.id(4, "gap", &[2, 3]),
        collector.id(1, "step", &[2, 3]),
        collector.id(1, "gap", &[2]),
        collector.id(1, "gap", &[3, 2]),
        other.id(1, "gap", &[2, 3]),
    ];
    let distinct: std::collections::BTreeSet<u64> = ids.into_iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    assert_eq!(collector.id(1, "gap", &[2, 3]), ids[0]);
}

#[test]
fn the_longest_are_kept_in_their_order_and_the_rest_is_counted() {
    let mut longest = Longest::new(2);
    for (length, depth, item) in [(5, 0, "a"), (9, 0, "b"), (4, 0, "shorter"), (5, 1, "deeper"), (7, 3, "c")]
    {
        if longest.wants(length, depth) {
            longest.add(length, depth, item);
        }
    }
    // Of what is as long, the one that holds the other stays.
    assert_eq!((longest.left_out, longest.given), (3, 3));
    assert_eq!(longest.finish(), ["b", "c"]);
}

#[test]
fn what_is_as_long_and_as_deep_as_the_shortest_is_left_out() {
    let mut longest = Longest::new(1);
    assert!(longest.wants(5, 1));
    longest.add(5, 1, "kept");
    assert!(!longest.wants(5, 1) && !longest.wants(4, 0) && !longest.wants(5, 2));
    assert!(longest.wants(5, 0) && longest.wants(6, 9));
    assert_eq!(longest.left_out, 3);
    assert!(!Longest::<()>::new(0).wants(1, 0));
}

#[test]
fn a_process_has_its_own_time_and_says_what_it_is() {
    with_session(|session| {
        let collector = observing(session, &[(0, PhaseKind::Whole)], &[]);
        let [process] = &collector.processes[..] else { panic!("one process") };
        let [span] = &process.spans.spans[..] else { panic!("{:?}", process.spans) };
        assert_eq!(times(span), ("train", 0, LENGTH));
        assert_eq!((span.id, span.parent), (process.id, Some(collector.id(0, "run", &[]))));
        assert_eq!(span.id, collector.id(PID, "process", &[START]));
        let expected = [
            ("process.pid", Value::Integer(PID.into())),
            ("process.parent_pid", Value::Integer(42)),
            ("process.executable.path", text_of("/opt/bin/train")),
            ("apex.rank", Value::Integer(1)),
        ];
        assert_eq!(process.spans.attributes, expected);
        assert_eq!((process.pid, process.start_ns, process.end_ns), (PID, START, START + LENGTH));
        assert_eq!(process.devices, ["GPU-a", "GPU-b"]);
        // One without a name, that is no rank and that recorded nothing.
        let process = &mut session.processes[0];
        (process.executable, process.pid, process.span) = (String::new(), 9, None);
        let collector = observing(session, &[], &[]);
        assert_eq!(times(&collector.processes[0].spans.spans[0]), ("process 9", 0, 0));
        assert_eq!(collector.processes[0].spans.attributes.len(), 3);
    });
}

#[test]
fn phases_follow_each_other_and_hold_their_steps() {
    use PhaseKind::{Between, Steady, Warmup};
    // The warm-up takes no time: it is no span, and no step is in it.
    let phases = [(1_000, Warmup), (1_000, Between), (3_000, Steady)];
    let steps = [500..900, 1_000..1_500, 2_999..3_000, 3_000..4_000, 4_500..4_700];
    with_session(|session| {
        let collector = observing(session, &phases, &steps);
        let spans = &collector.processes[0].spans.spans;
        let process = spans[0].id;
        let found: Vec<_> = spans[1..].iter().map(times).collect();
        assert_eq!(found, [("between iterations", 1_000, 3_000), ("steady state", 3_000, LENGTH)]);
        assert!(spans[1..].iter().all(|span| span.parent == Some(process)));
        let [between, steady] = [spans[1].id, spans[2].id];
        assert_ne!(between, steady);
        let parents = [process, between, between, steady, steady];
        let found = collector.steps.finish();
        assert_eq!(found.len(), steps.len());
        for (number, ((place, span), parent)) in found.iter().zip(parents).enumerate() {
            let Range { start, end } = steps[number];
            assert_eq!((*place, times(span)), (0, ("step", start, end)));
            assert_eq!(span.parent, Some(parent), "step {number}");
            assert_eq!(span.attributes, [("apex.step", Value::Integer(number as i64))]);
        }
        let distinct: std::collections::BTreeSet<u64> = found.iter().map(|(_, span)| span.id).collect();
        assert_eq!(distinct.len(), steps.len());
    });
}

#[test]
fn phases_are_as_few_as_other_spans_and_a_whole_run_has_none() {
    let phases: Vec<_> = (0..2 * MOST_SPANS as u64).map(|at| (at / 2, PhaseKind::Steady)).collect();
    with_session(|session| {
        session.processes[0].span = Some((0, 2 * MOST_SPANS as u64));
        let collector = observing(session, &phases, &[]);
        assert_eq!(collector.processes[0].spans.spans.len(), 1 + MOST_SPANS);
        let whole = observing(session, &[(0, PhaseKind::Whole)], &[10..20, 20..30]);
        let process = &whole.processes[0];
        assert_eq!(process.spans.spans.len(), 1);
        assert!(whole.steps.finish().iter().all(|(_, step)| step.parent == Some(process.id)));
    });
}

/// Timed work of the configuration on a stream.
fn work(called: Called, on: Use, is_timed: bool, at: Range<u64>) -> ObservedWork {
    let (device, stream, off_ns, thread, call_start) = (Some(1), 3, 0.0, 7, 0);
    ObservedWork {
        device,
        stream,
        start: at.start,
        end: at.end,
        on,
        called,
        is_timed,
        off_ns,
        thread,
        call_start,
    }
}

#[test]
fn timed_kernels_and_collectives_are_spans_and_nothing_else_is() {
    with_session(|session| {
        let mut collector = observing(session, &[], &[]);
        let (one, missing) = (Called::Config(1), Called::Config(9));
        for (called, on, is_timed) in [
            (one, Use::Kernels, false),
            (one, Use::Copies, true),
            (one, Use::Unknown, true),
            (Called::Graph(1), Use::Kernels, true),
            (missing, Use::Kernels, true),
        ] {
            collector.work(&work(called, on, is_timed, 100..200));
        }
        assert_eq!(collector.kernels.given, 0);
        collector.work(&work(one, Use::Kernels, true, 100..250));
        collector.work(&work(one, Use::Collectives, true, 300..400));
        collector.work(&ObservedWork { device: None, ..work(one, Use::Kernels, true, 500..600) });
        let process = collector.processes[0].id;
        let found = collector.kernels.finish();
        let found_times: Vec<_> = found.iter().map(|(_, span)| times(span)).collect();
        assert_eq!(found_times, [("scale", 100, 250), ("scale", 300, 400), ("scale", 500, 600)]);
        assert!(found.iter().all(|(place, span)| *place == 0 && span.parent == Some(process)));
        let on_device = [("apex.stream", Value::Integer(3)), ("hw.id", text_of("GPU-b"))];
        assert_eq!(found[0].1.attributes, on_device);
        assert_eq!(found[2].1.attributes, on_device[..1]);
    });
}

#[test]
fn of_kernels_the_hundred_longest_are_kept() {
    with_session(|session| {
        let mut collector = observing(session, &[], &[]);
        // As long as the others and later: it is left out.
        for length in (1..=120).chain([21]) {
            collector.work(&work(Called::Config(1), Use::Kernels, true, 10..10 + length));
        }
        assert_eq!(collector.kernels.left_out, 21);
        let lengths = collector.kernels.finish().into_iter().map(|(_, span)| span.end_ns - span.start_ns);
        assert!(lengths.eq(21..=120));
    });
}

#[test]
fn ranges_are_inside_of_those_around_them_and_end_with_them() {
    with_session(|session| {
        let mut collector = observing(session, &[], &[]);
        // The innermost range of the thread from each moment on.
        for (at, range) in [(100, 1), (200, 3), (700, 4), (900, 0)] {
            collector.range(7, at, range);
        }
        collector.range(8, 4_000, 2);
        collector.end_process();
        let process = collector.processes[0].id;
        let found: Vec<Span> = collector.ranges.finish().into_iter().map(|(_, span)| span).collect();
        let found_times: Vec<_> = found.iter().map(times).collect();
        let expected = [
            ("inner", 200, 700),
            ("for\\x1bward", 200, 700),
            ("backward", 700, 900),
            ("step", 100, 900),
            // Open when the process ends.
            ("for\\x1bward", 4_000, LENGTH),
            ("step", 4_000, LENGTH),
        ];
        assert_eq!(found_times, expected);
        let parents: Vec<_> = found.iter().map(|span| span.parent.unwrap()).collect();
        assert_eq!(parents, [found[1].id, found[3].id, found[3].id, process, found[5].id, process]);
        let thread = [("thread.id", Value::Integer(7)), ("thread.name", text_of("loader"))];
        assert_eq!(found[0].attributes, thread);
        let domain = ("apex.nvtx.domain", text_of("torch"));
        assert_eq!(found[1].attributes, [thread.to_vec(), vec![domain.clone()]].concat());
        assert_eq!(found[4].attributes, [("thread.id", Value::Integer(8)), domain], "it has no name");
    });
}

#[test]
fn a_change_that_is_told_late_makes_no_range_of_negative_length() {
    with_session(|session| {
        let mut collector = observing(session, &[], &[]);
        collector.range(7, 300, 1);
        collector.range(7, 200, 0);
        // It begins after the process's last record.
        collector.range(7, LENGTH + 50, 1);
        collector.process_range(LENGTH + 60, 4, 1, true);
        collector.process_range(400, 4, 2, true);
        collector.process_range(300, 4, 2, false);
        collector.end_process();
        let found = collector.ranges.finish();
        let found: Vec<_> = found.iter().map(|(_, span)| times(span)).collect();
        let late = LENGTH + 50;
        let expected = [
            ("step", 300, 300),
            ("backward", 400, 400),
            ("step", late, late),
            ("backward", late + 10, late + 10),
        ];
        assert_eq!(found, expected);
    });
}

#[test]
fn ranges_of_a_process_are_told_apart_by_their_instance() {
    with_session(|session| {
        let mut collector = observing(session, &[], &[]);
        collector.process_range(100, 1, 70, true);
        collector.process_range(200, 2, 71, true);
        collector.process_range(300, 1, 99, false);
        collector.process_range(400, 1, 70, false);
        collector.process_range(500, 2, 71, false);
        let process = collector.processes[0].id;
        let found: Vec<Span> = collector.ranges.finish().into_iter().map(|(_, span)| span).collect();
        let found_times: Vec<_> =
            found.iter().map(|span| (span.start_ns - START, span.end_ns - START)).collect();
        assert_eq!(found_times, [(100, 400), (200, 500)]);
        assert!(found.iter().all(|span| span.parent == Some(process)) && found[0].id != found[1].id);
        assert_eq!(found[0].attributes, [], "no thread, no domain");
    });
}

#[test]
fn so_many_ranges_are_open_at_a_time() {
    with_session(|session| {
        let mut collector = observing(session, &[], &[]);
        (0..300).for_each(|instance| collector.process_range(10, 1, instance, true));
        assert_eq!(collector.process_ranges.len(), 256);
        let definitions = &session.processes[0].definitions;
        assert_eq!(path_of(definitions, 3), [1, 2, 3]);
        assert_eq!((path_of(definitions, 0), path_of(definitions, 8)), (vec![], vec![]));
    });
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::new(dir.path());
    let deepest = MOST_OPEN as u32 + 50;
    for id in 1..=deepest {
        // The first one is damaged: it would be inside of itself.
        let (parent, domain, name) = (if id == 1 { 1 } else { id - 1 }, String::new(), "deep".to_owned());
        recording.define(Definition::Range(definition::Range { id, parent, domain, name }));
    }
    recording.exit();
    let session = test_session::open(&dir);
    let definitions = &session.processes[0].definitions;
    assert_eq!(path_of(definitions, 5), [1, 2, 3, 4, 5]);
    assert!(path_of(definitions, deepest).into_iter().eq(51..=deepest));
}

#[test]
fn gaps_lie_in_their_process_and_name_their_main_cause_and_device() {
    let gap = |start_ns: f64, length: f64, by: &[(IdleCause, f64)]| Gap {
        start_ns,
        phase: PhaseKind::Steady,
        duration_ns: Figure::measured(length),
        before: None,
        after: None,
        by: by.iter().copied().collect::<BTreeMap<_, _>>(),
    };
    let causes = [(IdleCause::Launching, 100.0), (IdleCause::Loading, 300.0), (IdleCause::HostCode, 200.0)];
    let activity = |process, device, gaps| Activity { process, device, gaps, ..Activity::default() };
    let profile = Profile {
        devices: ["GPU-a", "GPU-b"].map(|uuid| Device { uuid: uuid.into(), ..Device::default() }).into(),
        activities: vec![
            activity(0, Some(1), vec![gap(100.0, 600.0, &causes)]),
            activity(0, Some(0), vec![gap(100.0, 50.0, &[])]),
            // No process of this number was read.
            activity(1, Some(0), vec![gap(100.0, 50.0, &[])]),
        ],
        ..Profile::default()
    };
    with_session(|session| {
        let mut collector = observing(session, &[], &[]);
        collector.add_gaps(&profile);
        let process = &collector.processes[0];
        let [first, second] = &process.spans.spans[1..] else { panic!("{:?}", process.spans) };
        assert_eq!((times(first), times(second)), (("GPU idle", 100, 700), ("GPU idle", 100, 150)));
        assert_eq!((first.parent, second.parent), (Some(process.id), Some(process.id)));
        assert_ne!(first.id, second.id, "they are of two devices");
        let cause = ("apex.idle.cause", text_of("loading code"));
        assert_eq!(first.attributes, [cause, ("hw.id", text_of("GPU-b"))]);
        assert_eq!(second.attributes, [("hw.id", text_of("GPU-a"))]);
    });
}

#[test]
fn the_run_is_around_the_program_and_all_of_its_processes() {
    with_session(|session| {
        let run = |session: &Session, left_out| {
            let run = observing(session, &[], &[]).run(session, left_out);
            let span = run.spans[0].clone();
            (run, span)
        };
        session.meta = None;
        let (bare, span) = run(session, 0);
        assert_eq!((times(&span), span.parent, bare.attributes.len()), (("run", 0, LENGTH), None, 0));
        assert_eq!(span.attributes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["apex.session"]);
        session.meta = Some(meta(START - 900, Some(START + 9_000), Some(Exit::Code(3))));
        let (whole, span) = run(session, 17);
        assert_eq!((span.start_ns, span.end_ns), (START - 900, START + 9_000));
        assert_eq!((&*span.name, span.error.as_deref()), ("train --fast", Some("exited with status 3")));
        assert_eq!(whole.attributes, [("process.command_line", text_of("train --fast"))]);
        assert_eq!(span.attributes[1], ("apex.spans.left_out", Value::Integer(17)));
        // Its processes were there before and after what was written down of the program.
        session.meta = Some(meta(START + 100, Some(START + 200), None));
        let (_, span) = run(session, 0);
        assert_eq!((span.start_ns, span.end_ns, span.error), (START, START + LENGTH, None));
        session.processes.clear();
        session.meta = Some(meta(START + 100, None, None));
        let run = Collector::default().run(session, 0);
        assert_eq!(times(&run.spans[0]), ("train --fast", 100, 100));
    });
}

#[test]
fn the_spans_of_a_session_are_the_run_and_then_each_process_with_all_of_its_own() {
    with_session(|session| {
        session.meta = Some(meta(START, None, None));
        let mut collector = observing(session, &[(0, PhaseKind::Steady)], &[0..10, 10..20]);
        collector.work(&work(Called::Config(1), Use::Kernels, true, 100..250));
        collector.range(7, 100, 1);
        (collector.steps.left_out, collector.ranges.left_out, collector.kernels.left_out) = (2, 3, 4);
        let spans = collector.finish(session, &Profile::default());
        assert_eq!((spans.count(), spans.processes.len(), spans.trace), (1 + 6, 2, [7; 16]));
        let names: Vec<_> = spans.processes[1].spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["train", "steady state", "step", "step", "step", "scale"]);
        // Kernels that are left out are no news: there are always more.
        assert_eq!(spans.processes[0].spans[0].attributes[1], ("apex.spans.left_out", Value::Integer(5)));
        assert!(spans.host.starts_with("node") && spans.host.ends_with('1') && !spans.host.contains('\u{7}'));
    });
}

#[test]
fn a_trace_is_of_a_machine_a_moment_and_a_process() {
    with_session(|session| {
        let mut traces = std::collections::BTreeSet::new();
        session.meta = None;
        traces.insert(trace_of(session));
        session.meta = Some(meta(START, None, None));
        traces.insert(trace_of(session));
        session.meta.as_mut().unwrap().started_real_ns += 1;
        traces.insert(trace_of(session));
        session.meta.as_mut().unwrap().host.name.push('2');
        traces.insert(trace_of(session));
        session.processes[0].pid += 1;
        traces.insert(trace_of(session));
        session.processes[0].start_real_ns += 1;
        let last = trace_of(session);
        traces.insert(last);
        assert_eq!((traces.len(), trace_of(session)), (6, last));
        assert!(traces.iter().all(|trace| trace[..8] != trace[8..]));
    });
}

#[test]
fn foreign_text_is_cut_between_characters() {
    assert_eq!(text(&"a".repeat(500)).len(), 500);
    assert_eq!(text(&"a".repeat(501)).len(), 500);
    assert_eq!(text(&format!("{}é", "a".repeat(499))).len(), 499);
    assert_eq!((&*text(""), &*text("gemm")), ("", "gemm"));
    assert!(!text("a\u{1b}[31mb").contains('\u{1b}'));
}

#[test]
fn a_program_that_ended_well_has_no_error() {
    assert_eq!(failure(Exit::Code(0)), None);
    assert_eq!(failure(Exit::Code(1)).as_deref(), Some("exited with status 1"));
    assert_eq!(failure(Exit::Signal(9)).as_deref(), Some("ended by signal 9"));
}

#[test]
fn integers_that_are_too_large_are_the_largest() {
    assert_eq!(Value::from(u64::MAX), Value::Integer(i64::MAX));
    assert_eq!(Value::from(7), Value::Integer(7));
}
