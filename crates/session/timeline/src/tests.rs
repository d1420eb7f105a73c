//! Any zoom says what the events say; the whole says what the profile says; garbage is an error.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use apex_profile::{IdleCause, Predictions, Profile, Use};
use apex_random::Random;
use apex_trace::Session;
use apex_trace::layout::MemoryKind;
use proptest::prelude::*;
use serde_json::Value;
use test_session::{BLOCKING, LEGACY, NON_BLOCKING, Recording};

use crate::cell::{Cell, Detail};
use crate::event::{Basis, Event, IN_BLOCK, What, decode, encode};
use crate::file::{Place, Sink, Source};
use crate::lane::{LaneIndex, LaneWriter};
use crate::query::{Columns, Lane};
use crate::store::{INDEX_FILE, Look, Problem, Timeline, Timelines, identity};
use crate::{Asked, AskedLaunch, Progress, Step, Unanswered};

/// Events in bursts and with pauses, of lengths from none to many cells.
fn events(seed: u64, count: usize) -> Vec<Event> {
    let mut random = Random::new(seed);
    let (mut at, mut scale, mut all) = (random.below(1 << 40), 8, Vec::new());
    for number in 0..count {
        if number % 200 == 0 {
            scale = 1 + random.below(24);
        }
        let mut length = || if random.below(4) == 0 { 0 } else { random.below(1 << scale) };
        let (gap, duration) = (length(), length());
        let what = What::all().nth(random.below(What::COUNT as u64) as usize).unwrap();
        let start = at + gap;
        all.push(Event {
            name: random.below(9) as u32,
            basis: [Basis::Measured, Basis::Modelled, Basis::Unknown][random.below(3) as usize],
            call_start: start - random.below(1 << 20).min(start),
            call_lane: random.below(3) as u32,
            bytes: if number % 3 == 0 { random.below(1 << 40) } else { 0 },
            range: (number / 50) as u32,
            off: random.below(256) as u8,
            ..Event::new(start, start + duration, what)
        });
        at = start + duration;
    }
    all
}

fn written(events: &[Event]) -> (Source, LaneIndex) {
    let mut sink = Sink::new(tempfile::tempfile().unwrap());
    let mut writer = LaneWriter::default();
    events.iter().for_each(|event| writer.push(&mut sink, event));
    let index = writer.finish(&mut sink);
    (sink.finish(0, Place::default()).unwrap(), index)
}

/// A cell as the events say it.
fn cell_of(events: &[Event], from: u64, to: u64) -> Cell {
    let mut cell = Cell::default();
    events.iter().for_each(|event| cell.add(event, from, to, Detail::All));
    cell
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_zoom_says_what_the_events_say(
        seed: u64,
        count in 0usize..4000,
        a in 0.0..1.0f64,
        b in 0.0..1.0f64,
        most in 1usize..200,
    ) {
        let events = events(seed, count);
        let (source, index) = written(&events);
        let lane = Lane { source: &source, index: &index };
        prop_assert_eq!(index.count, count as u64);
        let (first, last) = index.span;
        let moment = |share: f64| first.saturating_sub(100) + ((last - first + 200) as f64 * share) as u64;
        let (from, to) = (moment(a.min(b)), moment(a.max(b)) + 1);
        for (from, to) in [(from, to), (first, last + 1), (from, from + (to - from) / 1000 + 1)] {
            let columns = Columns::of(from, to, most);
            prop_assert!(columns.count <= most && columns.span().start <= from && to <= columns.span().end);
            let begin = |column: usize| (columns.first + column as u64) << columns.shift;
            for (column, cell) in lane.columns(&columns, Detail::All).unwrap().iter().enumerate() {
                prop_assert_eq!(cell, &cell_of(&events, begin(column), begin(column + 1)), "{}", column);
            }
            let times = |detail| -> Vec<_> {
                lane.columns(&columns, detail).unwrap().into_iter().map(|cell| cell.time).collect()
            };
            prop_assert_eq!(times(Detail::Time), times(Detail::All));
            prop_assert_eq!(lane.sum(from..to).unwrap(), cell_of(&events, from, to));
            let lies = |event: &&Event| {
                event.start < to && (event.end > from || event.start >= from)
            };
            let expected: Vec<Event> = events.iter().filter(lies).copied().collect();
            let found = lane.events_in(&(from..to), count).unwrap().unwrap();
            prop_assert_eq!(found.iter().map(|(event, _)| *event).collect::<Vec<_>>(), expected.clone());
            let is_collective = |event: &&Event| event.what.is_collective();
            let ahead = events.iter().position(|event| lies(&event)).unwrap_or(0);
            let before = events[..ahead].iter().filter(is_collective).count() as u64;
            let numbered = found.iter().filter(|(event, _)| event.what.is_collective());
            for ((event, number), expected) in numbered.zip(before..) {
                prop_assert_eq!(*number, Some(expected));
                // (Only the event says what queued it.)
                prop_assert_eq!(lane.collective(expected).unwrap(), Some(*event));
            }
            if expected.len() > 1 {
                prop_assert_eq!(lane.events_in(&(from..to), expected.len() - 1).unwrap(), None);
            }
            let next = events.iter().find(|event| event.start > from).copied();
            prop_assert_eq!(lane.step(from, true).unwrap().map(|(event, _)| event), next);
            let before = events.iter().rfind(|event| event.start < from).copied();
            prop_assert_eq!(lane.step(from, false).unwrap().map(|(event, _)| event), before);
            let at = events.iter().find(|event| event.end > from && event.start <= from);
            let begins = events.iter().rfind(|event| event.start == from);
            prop_assert_eq!(lane.event_at(from).unwrap().map(|(event, _)| event), at.or(begins).copied());
        }
    }

    #[test]
    fn blocks_come_back_and_garbage_is_none(seed: u64, count in 0..=IN_BLOCK, noise in any::<Vec<u8>>()) {
        let events = events(seed, count);
        let bytes = encode(&events, 7);
        prop_assert_eq!(decode(&bytes), Some((events, 7)));
        let _ = decode(&noise);
        let _ = Cell::decode(&mut crate::leb128::Taker(&noise));
        let mut damaged = bytes;
        for (at, byte) in noise.iter().enumerate() {
            if let Some(hit) = damaged.get_mut(at * 7) {
                *hit ^= byte;
            }
        }
        let _ = decode(&damaged);
    }
}

#[test]
fn events_that_overlap_are_cut_to_follow_each_other() {
    let event = |start, end| Event::new(start, end, What::of(Use::Kernels));
    let (source, index) = written(&[event(10, 50), event(20, 30), event(40, 70)]);
    let lane = Lane { source: &source, index: &index };
    let found = lane.events_in(&(0..100), 10).unwrap().unwrap();
    let spans: Vec<(u64, u64)> = found.iter().map(|(event, _)| (event.start, event.end)).collect();
    assert_eq!(spans, [(10, 50), (50, 50), (50, 70)]);
}

/// A program with two streams, copies, waits, and kernels of which some are timed.
fn program(recording: &mut Recording) {
    let [gemm, relu, reduce] =
        ["gemm", "relu", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"].map(|name| recording.function(name));
    let gemm = recording.config(gemm, 264, 256);
    let relu = recording.config(relu, 100, 128);
    let reduce = recording.config(reduce, 8, 512);
    recording.allocate(MemoryKind::Device, 0x1000, 1 << 20, 30_000);
    for step in 0..40u64 {
        recording.copy(MemoryKind::Device, MemoryKind::Pinned, 1 << 20, true, 4_000);
        recording.timed(gemm, BLOCKING, 40_000 + step * 10);
        recording.timed(relu, BLOCKING, 5_000);
        for _ in 0..5 {
            recording.launch(gemm, BLOCKING);
            recording.launch(relu, NON_BLOCKING);
        }
        recording.timed(reduce, LEGACY, 20_000);
        recording.launch(reduce, LEGACY);
        recording.synchronise(BLOCKING, 300_000);
        recording.now += 50_000;
    }
}

fn recorded(dir: &Path) {
    let mut recording = Recording::new(dir);
    program(&mut recording);
    recording.exit();
    test_session::open(dir);
}

fn whole() -> Asked {
    Asked {
        from: None,
        to: None,
        columns: 100,
        lanes: Vec::new(),
        ranks: Vec::new(),
        only_time: false,
        events: 0,
    }
}

fn look(timeline: Timeline) -> Look {
    Look { timeline: Some(timeline.into()), progress: None, growing: false }
}

fn made(dir: &Path) -> Timeline {
    Timeline::make(dir, &Progress::default(), |_| Predictions::default()).unwrap()
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn sum(of: &Value) -> u64 {
    of.as_array().into_iter().flatten().map(|value| value.as_u64().unwrap()).sum()
}

#[test]
fn the_whole_is_what_the_profile_says() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let profile = Profile::from_session(&Session::open(&dir).unwrap());
    let answer = parsed(&look(made(dir.path())).answer(&whole()).unwrap());
    let lanes = answer["lanes"].as_array().unwrap();
    let of = |kind: &str| lanes.iter().filter(|lane| lane["kind"] == kind).collect::<Vec<_>>();
    let accounts = &profile.activities[0].accounts;
    let [device] = of("device")[..] else { panic!("{answer}") };
    let time = |name: &str| sum(&device["columns"]["time"][name]) as f64;
    assert_eq!(time("kernels"), accounts.kernels.value);
    assert_eq!(time("collectives"), accounts.collectives.value + accounts.waiting.value);
    assert_eq!(time("copies"), accounts.copies.value);
    assert_eq!(time("unknown"), accounts.unknown.value);
    for cause in IdleCause::ALL {
        let idle = accounts.idle.get(&cause).map_or(0.0, |time| time.value);
        assert_eq!(time(What::of(Use::Idle(cause)).name()), idle, "{cause:?}");
    }
    assert!(accounts.kernels.value > 0.0 && accounts.idle_ns().value > 0.0 && accounts.copies.value > 0.0);
    let counted = |kind: &str| of(kind).iter().map(|lane| sum(&lane["columns"]["count"])).sum::<u64>();
    let copies: u64 = profile.copies.iter().map(|copies| copies.count).sum();
    assert_eq!(counted("stream"), profile.totals.launches + copies);
    assert_eq!(counted("thread"), profile.recorder.records - profile.recorder.timings);
    assert_eq!(of("stream").len(), 3);
}

#[test]
fn a_launch_says_what_is_known_of_it() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let timeline = made(dir.path());
    let row = |name: &str| {
        let mut lanes = timeline.tables.lanes.iter().zip(0..);
        let (row, place) = lanes.find(|(row, _)| row.name.starts_with(name)).unwrap();
        format!("{}{place}", row.kind.letter())
    };
    let answer = |lane: String, at: u64, step| timeline.launch(&AskedLaunch { lane, at, step });
    let launch = |lane: String, at: u64, step| {
        let answer = parsed(&answer(lane, at, step).unwrap());
        assert_eq!((&answer["state"], &answer["version"]), (&"ready".into(), &timeline.version().into()));
        assert_eq!(answer["event"].is_null(), answer["message"].is_string());
        answer["event"].clone()
    };
    let copy = launch(row("default stream"), 0, Some(Step::Next));
    assert_eq!((&copy["use"], &copy["bytes"]), (&"copies".into(), &(1 << 20).into()));
    assert!(copy["kernel"].is_null());
    let start = |event: &Value| event["start_ns"]["value"].as_u64().unwrap();
    let stream = row("stream 2");
    let gemm = launch(stream.clone(), 0, Some(Step::Next));
    assert_eq!((&gemm["name"], &gemm["use"]), (&"gemm".into(), &"kernels".into()));
    assert_eq!(gemm["duration_ns"], parsed(r#"{"value":40000,"kind":"measured","low":null,"high":null}"#));
    assert_eq!(gemm["kernel"]["grid"], parsed("[264,1,1]"));
    assert!(!gemm["kernel"]["limiters"].as_array().unwrap().is_empty());
    assert!(gemm["call"]["lane"].as_str().unwrap().starts_with('t'));
    assert!(gemm["call"]["start_ns"].as_u64().unwrap() < start(&gemm));
    assert_eq!(launch(stream.clone(), start(&gemm), None), gemm);
    assert_eq!(launch(stream.clone(), start(&gemm) + 1, Some(Step::Previous)), gemm);
    for (at, step) in [(0, Some(Step::Previous)), (0, None), (1 << 50, Some(Step::Next))] {
        assert!(launch(stream.clone(), at, step).is_null());
    }
    for wrong in ["", "s", "x0", "s99", "d1x", "é1", "s0001"] {
        assert!(matches!(answer(wrong.into(), 0, None), Err(Unanswered::Nothing(_))), "{wrong}");
    }
}

#[test]
fn collectives_are_joined_across_ranks() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    // Files are named by process: the other rank is this process once more.
    let name = |file: &Path| file.extension().is_some_and(|extension| extension == "rec");
    let file =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).find(|file| name(file)).unwrap();
    std::fs::copy(&file, dir.path().join("1.rec")).unwrap();
    let timeline = made(dir.path());
    let asked = Asked { events: 2000, ..whole() };
    let answer = parsed(&look(made(dir.path())).answer(&asked).unwrap());
    let lanes = answer["lanes"].as_array().unwrap();
    let with = |lane: &&Value| {
        lane["events"]["use"].as_array().is_some_and(|uses| uses.contains(&"collectives".into()))
    };
    let streams: Vec<&Value> = lanes.iter().filter(with).filter(|lane| lane["kind"] == "stream").collect();
    assert_eq!(streams.len(), 2);
    let events = &streams[0]["events"];
    let numbers: Vec<&Value> =
        events["collective"].as_array().unwrap().iter().filter(|pair| !pair.is_null()).collect();
    assert_eq!(numbers.len(), 80);
    assert_eq!((numbers[0], numbers[79]), (&parsed("[0,0]"), &parsed("[0,79]")));
    let first = events["collective"].as_array().unwrap().iter().position(|pair| !pair.is_null()).unwrap();
    let (lane, at) = (streams[0]["id"].as_str().unwrap().to_owned(), &events["start_ns"][first]);
    let one = timeline.launch(&AskedLaunch { lane, at: at.as_u64().unwrap(), step: None }).unwrap();
    let ranks = &parsed(&one)["event"]["collective"]["ranks"];
    assert_eq!(ranks.as_array().unwrap().len(), 1);
    assert_eq!((&ranks[0]["lane"], &ranks[0]["start_ns"]), (&streams[1]["id"], at));
}

#[test]
fn ranks_and_lanes_that_are_not_there_are_said() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let look = look(made(dir.path()));
    let of = |asked: Asked| look.answer(&asked).map_err(|why| format!("{why:?}"));
    assert!(of(Asked { ranks: vec![7], ..whole() }).unwrap_err().contains("no rank 7: it has 0"));
    assert!(of(Asked { lanes: vec!["s\u{1b}".into()], ..whole() }).unwrap_err().contains("no lane s\\\\x1b"));
    let of_rank = parsed(&of(Asked { ranks: vec![0], ..whole() }).unwrap());
    assert_eq!(of_rank, parsed(&of(whole()).unwrap()));
    let time = parsed(&of(Asked { only_time: true, ..whole() }).unwrap());
    assert!(
        time["lanes"][1]["columns"]["count"].is_null() && time["lanes"][1]["columns"]["time"].is_object()
    );
}

/// Asks all that can be asked.
fn ask_everything(look: &Look) {
    let asked =
        [whole(), Asked { events: 2000, ..whole() }, Asked { from: Some(3), to: Some(1 << 50), ..whole() }];
    for asked in &asked {
        let _ = look.answer(asked);
        let Some(timeline) = &look.timeline else { continue };
        let _ = timeline.span(asked);
        for (place, row) in timeline.tables.lanes.iter().enumerate() {
            let lane = format!("{}{place}", row.kind.letter());
            for step in [None, Some(Step::Next), Some(Step::Previous)] {
                let _ = timeline.launch(&AskedLaunch { lane: lane.clone(), at: 1 << 20, step });
            }
        }
    }
}

#[test]
fn a_damaged_index_is_no_answer_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let of = identity(dir.path()).unwrap();
    let timeline = made(dir.path());
    let path = dir.path().join(INDEX_FILE);
    let good = std::fs::read(&path).unwrap();
    let expected = look(timeline).answer(&whole()).unwrap();
    assert_eq!(look(Timeline::open(dir.path(), of).unwrap()).answer(&whole()).unwrap(), expected);
    assert!(Timeline::open(dir.path(), of + 1).is_err(), "of another state of the session");
    let mut random = Random::new(1);
    for _ in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        bytes.truncate(good.len() - (random.below(10) / 9 * random.below(good.len() as u64)) as usize);
        std::fs::write(&path, &bytes).unwrap();
        let Ok(opened) = Timeline::open(dir.path(), of) else { continue };
        let look = look(opened);
        ask_everything(&look);
        assert!(look.answer(&whole()).map_or(true, |answer| answer == expected));
    }
}

/// Blocks whose checksums are right and whose contents are not.
#[test]
fn an_index_that_somebody_made_up_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let of = identity(dir.path()).unwrap();
    drop(made(dir.path()));
    let path = dir.path().join(INDEX_FILE);
    let good = std::fs::read(&path).unwrap();
    let mut random = Random::new(2);
    for _ in 0..300 {
        std::fs::write(&path, &good).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let timeline = Timeline::open(dir.path(), of).unwrap();
        // Some bytes of one block, and its sum.
        let table = serde_json::to_value(&timeline.tables).unwrap();
        let mut roots = Vec::new();
        places(&table, &mut roots);
        let place = roots[random.below(roots.len() as u64) as usize];
        let mut block = timeline.source.block(place).unwrap();
        // A directory of one entry leads to the block itself.
        let at = random.below(block.len() as u64) as usize;
        block[at] = random.below(256) as u8;
        file.write_all_at(&block, place.offset).unwrap();
        file.write_all_at(&crc32fast::hash(&block).to_le_bytes(), place.offset + block.len() as u64).unwrap();
        ask_everything(&look(timeline));
    }
}

/// Places of directories in a table.
fn places(value: &Value, found: &mut Vec<Place>) {
    if let Ok(place) = serde_json::from_value::<Place>(value["place"].clone()) {
        found.push(place);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| places(item, found)),
        Value::Object(members) => members.values().for_each(|member| places(member, found)),
        _ => {}
    }
}

/// Looks until there is a timeline of the session's present state.
fn wait(timelines: &Timelines, dir: &Path) -> std::sync::Arc<Timeline> {
    loop {
        let look = timelines.look(dir).unwrap();
        if let (Some(timeline), false) = (look.timeline, look.growing) {
            return timeline;
        }
        std::thread::yield_now();
    }
}

#[test]
fn an_index_is_made_once_and_again_when_it_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let before = std::fs::read_dir(&dir).unwrap().count();
    let timelines = Timelines::new(|_| Predictions::default());
    let first = timelines.look(dir.path()).unwrap();
    assert!(first.timeline.is_none() && first.progress.is_some());
    let answer = parsed(&first.answer(&whole()).unwrap());
    assert_eq!((&answer["state"], &answer["lanes"]), (&"building".into(), &parsed("[]")));
    let timeline = wait(&timelines, dir.path());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), before + 1, "nothing else is left");
    let made = std::fs::metadata(dir.path().join(INDEX_FILE)).unwrap().modified().unwrap();
    let again = wait(&Timelines::new(|_| panic!("it is there")), dir.path());
    assert_eq!(again.identity, timeline.identity);
    timelines.forget(dir.path(), &timeline);
    assert!(!dir.path().join(INDEX_FILE).exists());
    wait(&timelines, dir.path());
    assert!(std::fs::metadata(dir.path().join(INDEX_FILE)).unwrap().modified().unwrap() >= made);
    let path = dir.path().to_owned();
    drop(dir);
    assert!(matches!(timelines.look(&path), Err(Problem::Deleted)));
}

#[test]
fn a_folder_without_a_session_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let timelines = Timelines::new(|_| Predictions::default());
    let problem = loop {
        match timelines.look(dir.path()) {
            Err(problem) => break problem,
            Ok(look) => assert!(look.timeline.is_none()),
        }
        std::thread::yield_now();
    };
    assert!(matches!(problem, Problem::Unreadable(why) if why.contains("session")));
}

#[test]
fn a_session_that_is_still_recorded_has_no_index_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    program(&mut recording);
    test_session::open(&dir);
    let timeline = made(dir.path());
    assert!(timeline.bytes() > 0 && !dir.path().join(INDEX_FILE).exists());
    let count = |timeline: Timeline| {
        let answer = parsed(&look(timeline).answer(&whole()).unwrap());
        answer["lanes"].as_array().unwrap().iter().map(|lane| lane["count"].as_u64().unwrap()).sum::<u64>()
    };
    let before = count(timeline);
    program(&mut recording);
    recording.exit();
    assert_eq!(count(made(dir.path())), 2 * before);
}

fn a_use() -> What {
    What::all().next().unwrap()
}

#[test]
fn an_event_begins_in_the_stretch_that_starts_with_it() {
    let event = Event::new(100, 130, a_use());
    assert!(cell_of(&[event], 50, 100).is_empty());
    let begun = cell_of(&[event], 100, 120);
    assert_eq!((begun.count, begun.time[a_use().place()]), (1, 20));
    let going_on = cell_of(&[event], 120, 200);
    assert_eq!((going_on.count, going_on.time[a_use().place()]), (0, 10));
}

#[test]
fn a_median_is_that_of_the_lower_middle_to_half_a_bucket() {
    let median = |durations: &[u64]| {
        let mut cell = Cell::default();
        durations.iter().for_each(|&duration| cell.begin(duration));
        cell.median()
    };
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[0, 0, 7]), Some(0));
    for duration in (100..1_000_000).step_by(997) {
        let long = duration * 8;
        for (durations, expected) in [
            (vec![duration, long], duration),
            (vec![1, duration, long], duration),
            (vec![1, duration, duration, long, long], duration),
            (vec![duration, long, long], long),
        ] {
            let found = median(&durations).unwrap() as f64 / expected as f64;
            assert!((1.0 / 1.05..1.05).contains(&found), "{durations:?}: off by {found}");
        }
    }
}

#[test]
fn a_name_that_takes_no_time_is_not_listed() {
    let mut cell = Cell::default();
    cell.cover(a_use(), 5, 0);
    cell.cover(a_use(), 0, 9);
    assert_eq!((cell.names(), cell.top()), (vec![], None));
    cell.cover(a_use(), 7, 3);
    assert_eq!(cell.top(), Some((7, 3)));
}

/// A cell that many events begin in is stored, and holds the time of the last one too.
#[test]
fn an_event_at_the_start_of_a_cell_counts_to_it_behind_others_that_have_no_length() {
    let (at, cell) = (1 << 20, 1 << crate::lane::FINEST);
    let mut events = vec![Event::new(at, at, a_use()); 20];
    events.push(Event::new(at, at + 3 * cell, a_use()));
    let (source, index) = written(&events);
    let lane = Lane { source: &source, index: &index };
    let columns = Columns::of(at, at + 4 * cell, 4);
    assert!(columns.shift >= crate::lane::FINEST, "cells are read, and not events");
    for (column, found) in lane.columns(&columns, Detail::All).unwrap().iter().enumerate() {
        let [from, to] = [0, 1].map(|next| (columns.first + column as u64 + next) << columns.shift);
        assert_eq!(*found, cell_of(&events, from, to), "{from} to {to}");
    }
}

#[test]
fn a_stretch_goes_on_only_without_a_gap_and_with_the_same_use() {
    let (one, other) = (a_use(), What::all().nth(1).unwrap());
    let mut stretches = crate::lane::Stretches::default();
    let ended = [(0, 10, one), (10, 20, one), (25, 30, one), (30, 40, other)]
        .map(|(from, to, what)| stretches.add(from, to, what));
    let [first, second] = [Event::new(0, 20, one), Event::new(25, 30, one)];
    assert_eq!(ended, [None, None, Some(first), Some(second)]);
    assert_eq!(stretches.finish(), Some(Event::new(30, 40, other)));
}

#[test]
fn a_lane_without_events_takes_no_time() {
    let (_, index) = written(&[]);
    assert_eq!((index.count, index.span), (0, (0, 0)));
}
