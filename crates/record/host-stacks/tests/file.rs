//! The session's file of stacks: what is written is read, whatever happens to the file.

use apex_host_stacks::{
    Counters, Doing, FILE, Frame, FrameKind, Head, HostStacks, Process, Span, Thread, WaitsFor, Writer,
};
use apex_untrusted::Folder;
use std::path::Path;

fn frame(function: &str, line: u32) -> Frame {
    Frame { kind: FrameKind::Python, function: function.into(), file: "train.py".into(), line }
}

fn writer(dir: &Path, most_bytes: u64) -> Writer {
    let head = Head { period_ns: 10_000_000, lost: vec!["no native frames".into()] };
    Writer::new(Folder::open(dir).unwrap(), head, most_bytes)
}

/// A thread in a file with one span for each of `firsts`.
fn write(dir: &Path, most_bytes: u64, firsts: impl IntoIterator<Item = u64>) {
    let mut writer = writer(dir, most_bytes);
    let python = "3.11.7".to_owned();
    let process = writer.process(Process { pid: 7, parent: 1, name: "python".into(), python }).unwrap();
    let thread = writer.thread(Thread { process, tid: 8, name: "worker".into() }).unwrap();
    let waits = Doing::Waiting { syscall: Some(202), r#for: WaitsFor::Gil { holder: Some(7) } };
    let mut rounds = 0;
    for (round, first_ns) in firsts.into_iter().enumerate() {
        let frames = [frame("main", 3), frame("load", 4)].map(|frame| writer.frame(frame).unwrap());
        let depth = round % 3;
        let stack = writer.stack(frames.into_iter().take(depth)).unwrap();
        let doing = writer.doing(if round % 2 == 0 { &Doing::Running } else { &waits }).unwrap();
        let span =
            Span { thread, stack, doing, first_ns, last_ns: first_ns + 5, samples: 2, ..Span::default() };
        writer.span(&Span { stands_for: 1, is_settled: true, is_asleep: round % 2 == 1, ..span }).unwrap();
        if round % 20 == 19 {
            writer.flush(&Counters { rounds: round as u64 + 1, ..Counters::default() }).unwrap();
        }
        rounds = round as u64 + 1;
    }
    writer.flush(&Counters { rounds, ..Counters::default() }).unwrap();
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1 << 20, [10, 20, 30, 40]);
    let read = HostStacks::read(dir.path());
    assert_eq!(read.problems, Vec::<String>::new());
    assert_eq!((read.head.period_ns, read.counters.rounds), (10_000_000, 4));
    assert_eq!(read.spans.iter().map(|span| span.first_ns).collect::<Vec<_>>(), [10, 20, 30, 40]);
    let functions = |span: &Span| read.frames(span.stack).map(|frame| frame.function.clone()).collect();
    let functions: Vec<Vec<String>> = read.spans.iter().map(functions).collect();
    assert_eq!(functions, [vec![], vec!["main"], vec!["load", "main"], vec![]]);
    assert_eq!(read.stack_count(), 2, "stacks share what they have in common");
    let waits = Doing::Waiting { syscall: Some(202), r#for: WaitsFor::Gil { holder: Some(7) } };
    assert_eq!((read.doing(&read.spans[0]), read.doing(&read.spans[1])), (&Doing::Running, &waits));
    let (process, thread) = read.thread(&read.spans[0]);
    assert_eq!((process.pid, thread.tid, &*thread.name), (7, 8, "worker"));
    assert!(read.spans[1].is_asleep && read.spans[1].is_settled && !read.spans[1].holds_gil);
}

#[test]
fn a_session_without_the_file_is_no_problem() {
    assert_eq!(HostStacks::read(tempfile::tempdir().unwrap().path()), HostStacks::default());
}

#[test]
fn the_file_stays_within_its_size_and_spans_keep_their_weight() {
    let dir = tempfile::tempdir().unwrap();
    let most = 64 << 10;
    write(dir.path(), most, (0..4000).map(|round| round * 1000));
    assert!(dir.path().join(FILE).metadata().unwrap().len() <= most);
    let read = HostStacks::read(dir.path());
    assert_eq!((read.problems.len(), read.counters.rounds), (0, 4000));
    let weight: u32 = read.spans.iter().map(|span| span.stands_for).sum();
    assert!((3400..=4600).contains(&weight), "they stand for {weight} spans");
    let early = read.spans.iter().filter(|span| span.first_ns < 2_000_000);
    let early: u32 = early.map(|span| span.stands_for).sum();
    assert!((1700..=2300).contains(&early), "those of the first half stand for {early}");
    let heaviest = read.spans.iter().map(|span| span.stands_for).max();
    assert!(read.spans.iter().all(|span| Some(span.stands_for) == heaviest));
}

#[test]
fn a_torn_last_line_is_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1 << 20, [10, 20]);
    let whole = std::fs::read(dir.path().join(FILE)).unwrap();
    let all = HostStacks::read(dir.path());
    for length in 0..whole.len() {
        std::fs::write(dir.path().join(FILE), &whole[..length]).unwrap();
        let read = HostStacks::read(dir.path());
        assert_eq!(read.problems, Vec::<String>::new(), "{length} bytes");
        assert_eq!(read.spans, all.spans[..read.spans.len()]);
    }
}

#[test]
fn time_is_that_of_a_sleep_or_a_period_for_each_sample() {
    let span = Span { first_ns: 100, last_ns: 200, samples: 3, stands_for: 1, ..Span::default() };
    assert_eq!(span.samples_in(0, 1000), 3.0);
    assert_eq!(
        (span.samples_in(0, 101), span.samples_in(101, 200), span.samples_in(200, 300)),
        (1.0, 1.0, 1.0)
    );
    assert_eq!(span.time_in(0, 150, 50), 50.0);
    let asleep = Span { is_asleep: true, stands_for: 2, ..span };
    assert_eq!(asleep.time_in(0, 130, 50), 60.0);
    let once = Span { last_ns: 100, samples: 1, ..span };
    assert_eq!((once.time_in(100, 101, 50), once.time_in(101, 300, 50)), (50.0, 0.0));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_file(
        at in 0usize..2000,
        replaced in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..12),
        number: u32,
    ) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 1 << 20, [10, 20, 30]);
        let path = dir.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.min(bytes.len());
        let end = (at + replaced.len()).min(bytes.len());
        bytes.splice(at..end, replaced);
        // Indexes that name nothing.
        let text = String::from_utf8_lossy(&bytes).replacen("\"span\":[0,2", &format!("\"span\":[0,{number}"), 1);
        std::fs::write(&path, text).unwrap();
        let read = HostStacks::read(dir.path());
        for span in &read.spans {
            let (_, thread) = read.thread(span);
            let _ = (read.doing(span), thread, read.frames(span.stack).count());
            proptest::prop_assert!(span.last_ns >= span.first_ns && span.samples > 0);
        }
    }
}
