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

/// The lines of a file with spans from `firsts`, and a session that says that it has ended.
fn lines(dir: &Path, firsts: impl IntoIterator<Item = u64>) -> Vec<String> {
    write(dir, 1 << 20, firsts);
    let meta = r#"{"schema":1,"apex_version":"0.1.0","command":[],"cwd":"","started_real_ns":1,
        "ended_real_ns":2,"exit":{"code":0},"device":"gpu","timing":"off"}"#;
    std::fs::write(dir.join("session.json"), meta).unwrap();
    let text = std::fs::read_to_string(dir.join(FILE)).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn read_lines(dir: &Path, lines: &[String]) -> HostStacks {
    std::fs::write(dir.join(FILE), lines.join("\n") + "\n").unwrap();
    HostStacks::read(dir)
}

/// The spans with what they name, so that numbers do not matter.
fn meanings(stacks: &HostStacks) -> Vec<(u64, Vec<Frame>, Doing, u32)> {
    let of = |span: &Span| {
        let frames = stacks.frames(span.stack).cloned().collect();
        (span.first_ns, frames, stacks.doing(span).clone(), stacks.thread(span).1.tid)
    };
    stacks.spans.iter().map(of).collect()
}

/// Whatever happens to one line, the spans that are read mean what they meant, most of them are
/// read, and the problem names the line.
#[test]
fn a_damaged_line_costs_what_names_it_alone_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let whole = lines(dir.path(), (0..30).map(|round| round * 10));
    let sound = HostStacks::read(dir.path());
    assert_eq!((sound.problems.len(), sound.spans.len()), (0, 30), "{:?}", sound.problems);
    let (all, mut read) = (meanings(&sound), 0);
    for at in 0..whole.len() {
        let half = whole[at].len() / 2;
        let damages: [String; 5] = [
            whole[at][..half].to_owned(),
            "garbage".to_owned(),
            format!("{{\"fr{}", &whole[at][3..]),
            whole[at].replacen("\":", "\"\u{b}", 1),
            whole[at].replacen('[', "[-", 1).replacen(":{", ":[", 1),
        ];
        for damage in damages {
            // What is left of the first line says all.
            if damage.contains("\"head\":{") && !damage.contains('\u{b}') && !damage.contains("[-") {
                continue;
            }
            let mut changed = whole.clone();
            changed[at] = damage;
            let stacks = read_lines(dir.path(), &changed);
            let problems = stacks.problems.join("; ");
            let line = format!("line {} ", at + 1);
            assert!(problems.contains(&line) && problems.contains("not read"), "{}: {problems}", changed[at]);
            for meaning in meanings(&stacks) {
                let known = all.iter().find(|known| known.0 == meaning.0).unwrap();
                let is_same =
                    known.1 == meaning.1 || meaning.1.iter().any(|frame| *frame == Frame::default());
                assert!(
                    is_same && (&known.2, known.3) == (&meaning.2, meaning.3),
                    "{}: {meaning:?}",
                    changed[at]
                );
            }
            read += stacks.spans.len();
        }
    }
    let most = whole.len() * 5 * 30;
    assert!(read * 10 > most * 6, "{read} of {most} are read");
}

#[test]
fn a_missing_line_moves_no_number_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let whole = lines(dir.path(), (0..30).map(|round| round * 10));
    let all = meanings(&HostStacks::read(dir.path()));
    for at in 0..whole.len() - 1 {
        let mut changed = whole.clone();
        let is_definition = ["process", "thread", "frame", "stack", "doing"]
            .iter()
            .any(|kind| changed[at].starts_with(&format!("{{\"{kind}\"")));
        changed.remove(at);
        let stacks = read_lines(dir.path(), &changed);
        assert!(meanings(&stacks).iter().all(|meaning| all.contains(meaning)), "without {}", whole[at]);
        assert!(!is_definition || !stacks.problems.is_empty(), "without {}", whole[at]);
    }
}

#[test]
fn a_changed_number_costs_its_line_alone() {
    let dir = tempfile::tempdir().unwrap();
    let whole = lines(dir.path(), (0..30).map(|round| round * 10));
    let at = whole.iter().position(|line| line.starts_with("{\"span\":[0,2")).unwrap();
    let mut changed = whole.clone();
    changed[at] = changed[at].replacen("[0,2", "[0,902", 1);
    let stacks = read_lines(dir.path(), &changed);
    assert_eq!((stacks.spans.len(), stacks.problems.len()), (29, 1), "{:?}", stacks.problems);
    assert!(stacks.problems[0].contains("it names the stack 902"), "{:?}", stacks.problems);
}

#[test]
fn lines_without_a_break_between_them_are_all_read() {
    let dir = tempfile::tempdir().unwrap();
    let whole = lines(dir.path(), (0..30).map(|round| round * 10));
    let all = meanings(&HostStacks::read(dir.path()));
    for at in 0..whole.len() - 1 {
        let mut joined = whole.clone();
        let next = joined.remove(at + 1);
        joined[at] += &format!("\u{b}{next}");
        assert_eq!(meanings(&read_lines(dir.path(), &joined)), all, "{}", whole[at]);
    }
}

#[test]
fn cut_and_empty_files_of_sessions_that_have_ended_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let whole = lines(dir.path(), (0..30).map(|round| round * 10)).join("\n") + "\n";
    for (text, says) in
        [("", "is empty"), (&whole[..whole.len() / 2], "is cut"), (&whole[..whole.len() - 1], "is cut")]
    {
        std::fs::write(dir.path().join(FILE), text).unwrap();
        let problems = HostStacks::read(dir.path()).problems;
        assert!(problems.len() == 1 && problems[0].contains(says), "{problems:?}");
    }
    std::fs::write(dir.path().join(FILE), whole.replace("host-stacks/1", "host-stacks/2")).unwrap();
    let newer = HostStacks::read(dir.path());
    assert!(newer.spans.is_empty() && newer.problems[0].contains("host-stacks/2"), "{:?}", newer.problems);
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
