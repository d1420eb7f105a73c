//! A session that is looked at again and again is, each time, what opening it anew would show.

use apex_trace::control::{Control, MappedControl, Settings};
use apex_trace::layout::{
    CHUNK_BYTES, CHUNK_PAYLOAD_BYTES, Call, CallClass, Launch, MemoryKind, SLOT_BYTES, Slots as _,
};
use apex_trace::{Definition, Event, Lane, Process, ProcessFile, Record, Session, Watcher};
use std::fs::{self, OpenOptions};
use std::path::Path;

/// A thread record comes first.
const LAUNCHES_PER_CHUNK: u32 = (CHUNK_PAYLOAD_BYTES / SLOT_BYTES) as u32 - 1;

/// A launch that succeeds and carries a number.
fn launch(config: u32, number: u32) -> Launch {
    let start = apex_trace::now();
    Launch { head: Launch::head(0, start, start + 5), config, stream: number, result: 0, api: 1 }
}

/// The numbers of the launches of a configuration.
fn numbers(records: impl Iterator<Item = Record>, config: u32) -> impl Iterator<Item = u32> {
    records.filter_map(move |record| match record.event {
        Event::Launch(launch) if launch.config == config => Some(launch.stream),
        _ => None,
    })
}

fn look(watcher: &mut Watcher) -> Session {
    watcher.look(|_, _| 0).expect("a session")
}

fn only(mut session: Session) -> Process {
    assert_eq!(session.processes.len(), 1);
    session.processes.remove(0)
}

/// Asserts that both ways of opening a session give the same process.
fn assert_alike(watched: &Process, opened: &Process) {
    assert!(watched.records().eq(opened.records()));
    assert!(watched.records_by_time().eq(opened.records_by_time()));
    assert!(watched.definitions.names().eq(opened.definitions.names()));
    assert_eq!(watched.threads, opened.threads);
    assert_eq!(watched.record_count, opened.record_count);
    assert_eq!(watched.totals, opened.totals);
    assert_eq!((watched.span, watched.unknown_records), (opened.span, opened.unknown_records));
}

fn limited(dir: &Path, chunks: usize) -> &'static Control {
    let max_bytes = (4096 + chunks * CHUNK_BYTES) as u64;
    MappedControl::create(dir, Settings { max_bytes, ..Settings::default() }).unwrap().leak()
}

#[test]
fn what_is_added_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let (mut lane, mut other) = (Lane::default(), Lane::default());
    let mut watcher = Watcher::new(dir.path());
    let mut number = 0;
    for step in [0, 1, 7, LAUNCHES_PER_CHUNK, 3 * LAUNCHES_PER_CHUNK + 5, 2] {
        assert!(file.define(&Definition::Name { id: number + 1, text: format!("name {number}") }));
        for _ in 0..step {
            number += 1;
            assert!(lane.record(&file, &launch(1, number)));
        }
        assert!(other.record(&file, &launch(2, number)));
        let watched = only(look(&mut watcher));
        assert_alike(&watched, &only(Session::open(dir.path()).unwrap()));
        assert!(numbers(watched.records(), 1).eq(1..=number));
        assert_eq!(watched.totals.launches_of(1), u64::from(number));
    }
    // A thread gives its chunk back, and another one goes on in it.
    drop(other);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(Lane::default().record(&file, &launch(3, 1))));
    });
    let watched = only(look(&mut watcher));
    assert_alike(&watched, &only(Session::open(dir.path()).unwrap()));
    assert_eq!((watched.threads.len(), watched.totals.launches_of(3)), (2, 1));
}

#[test]
fn chunks_that_are_reused_are_read_again_and_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let control = limited(dir.path(), 6);
    let file = ProcessFile::create(dir.path(), Some(control)).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "name".into() }));
    let mut lane = Lane::default();
    let mut watcher = Watcher::new(dir.path());
    for number in 1..=20 * LAUNCHES_PER_CHUNK {
        assert!(lane.record(&file, &launch(1, number)));
        if number % (LAUNCHES_PER_CHUNK / 2) == 0 {
            let watched = only(look(&mut watcher));
            let opened = only(Session::open(dir.path()).unwrap());
            assert!(watched.records().eq(opened.records()), "after {number}");
            assert_eq!(watched.totals.launches_of(1), u64::from(number));
            assert_eq!(u64::from(number), opened.totals.launches_of(1) + opened.overwritten);
        }
    }
}

#[test]
fn records_from_before_the_window_are_given_where_others_refer_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let mut lane = Lane::default();
    let second = 1_000_000_000;
    let mut write = |class: CallClass, at: u64, address: u64| {
        let start = apex_trace::now() + at * second * 8;
        let head = Call::head(0, start, start + 10);
        let memory = MemoryKind::Device as u8;
        assert!(lane.record(&file, &Call { head, class: class as u8, memory, address, ..Call::default() }));
        (class, address)
    };
    let kept = write(CallClass::Allocate, 0, 0x10);
    write(CallClass::Allocate, 1, 0x20);
    write(CallClass::Synchronize, 2, 0);
    write(CallClass::Free, 3, 0x20);
    let recent = write(CallClass::Free, 1000, 0x10);
    file.anchor_clock();
    let mut watcher = Watcher::new(dir.path());
    let given = |watcher: &mut Watcher, from_s: u64| -> Vec<_> {
        let session = watcher.look(|session, _| {
            let origin = session.processes[0].clock.monotonic_ns(0);
            origin + from_s * second
        });
        let of = |event| match event {
            Event::Call(call) => (call.class().unwrap(), call.address),
            _ => unreachable!(),
        };
        only(session.unwrap()).records_by_time().map(|record| of(record.event)).collect()
    };
    // (8 units of ticks are a second at least, on any machine.)
    assert_eq!(given(&mut watcher, 0).len(), 5);
    assert_eq!(given(&mut watcher, 700), [kept, recent]);
    assert_eq!(only(look(&mut watcher)).totals.calls.len(), 3, "all are counted");
}

#[test]
fn files_that_are_cut_deleted_and_replaced_are_what_they_are_now() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    assert!(file.define(&Definition::Name { id: 1, text: "name".into() }));
    let mut lane = Lane::default();
    (1..=3 * LAUNCHES_PER_CHUNK).for_each(|number| assert!(lane.record(&file, &launch(1, number))));
    let mut watcher = Watcher::new(dir.path());
    let before = only(look(&mut watcher));
    let path = before.file.clone();
    let whole = fs::read(&path).unwrap();
    drop((lane, file));

    // A file that grows again after it was cut has the chunks that are there now.
    OpenOptions::new().write(true).open(&path).unwrap().set_len((4096 + 2 * CHUNK_BYTES) as u64).unwrap();
    let cut = look(&mut watcher);
    assert!(cut.problems.iter().any(|problem| problem.what.starts_with("the file is cut off: ")));
    let opened = Session::open(dir.path()).unwrap();
    let said = |session: &Session| session.problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(said(&cut), said(&opened));
    assert!(only(cut).records().eq(only(opened).records()));
    std::os::unix::fs::FileExt::write_all_at(
        &OpenOptions::new().write(true).open(&path).unwrap(),
        &whole[4096 + 2 * CHUNK_BYTES..],
        (4096 + 2 * CHUNK_BYTES) as u64,
    )
    .unwrap();
    let grown = only(look(&mut watcher));
    assert!(grown.records().eq(only(Session::open(dir.path()).unwrap()).records()));

    let replacement = dir.path().join("new");
    fs::write(&replacement, &whole[..4096 + 2 * CHUNK_BYTES]).unwrap();
    fs::rename(&replacement, &path).unwrap();
    let replaced = only(look(&mut watcher));
    assert_alike(&replaced, &only(Session::open(dir.path()).unwrap()));

    fs::remove_file(&path).unwrap();
    fs::write(dir.path().join("session.json"), "{}").unwrap();
    assert!(look(&mut watcher).processes.is_empty());
    fs::remove_dir_all(dir.path()).unwrap();
    assert!(watcher.look(|_, _| 0).is_err());
}

#[test]
fn damage_is_told_once_and_costs_the_damaged_record_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let mut lane = Lane::default();
    (1..=10).for_each(|number| assert!(lane.record(&file, &launch(1, number))));
    let path = only(Session::open(dir.path()).unwrap()).file;
    let damaged = OpenOptions::new().write(true).open(path).unwrap();
    let record = (4096 + 32 + 8 * SLOT_BYTES) as u64;
    std::os::unix::fs::FileExt::write_all_at(&damaged, &[0, 0], record).unwrap();
    let mut watcher = Watcher::new(dir.path());
    for round in 0..3 {
        let session = look(&mut watcher);
        let told = session.problems.iter().filter(|problem| problem.what.starts_with("no record here"));
        assert_eq!(told.count(), 1);
        let left = (1..=7).chain([9, 10]).chain(std::iter::repeat_n(11, round));
        assert!(numbers(only(session).records(), 1).eq(left));
        assert!(lane.record(&file, &launch(1, 11)));
    }
}
