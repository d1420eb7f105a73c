//! Each record tells in which range its thread was.

mod common;

use apex_trace::layout::{Launch, RangeChange, Slots};
use apex_trace::{Event, Lane, ProcessFile};
use common::*;

#[test]
fn a_record_belongs_to_the_range_that_was_stated_last_in_its_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let file = ProcessFile::create(dir.path(), None).unwrap();
    let mut lane = Lane::default();
    let launch = |lane: &mut Lane, start| {
        let head = Launch::head(0, start, start + 5);
        assert!(lane.record(&file, &Launch { head, config: start as u32, ..Launch::default() }));
    };
    let enter = |lane: &mut Lane, start, range| {
        let head = RangeChange::head(0, start, start);
        assert!(lane.record(&file, &RangeChange { head, range, ..RangeChange::default() }));
    };
    launch(&mut lane, 10);
    enter(&mut lane, 20, 1);
    launch(&mut lane, 30);
    // What is written later belongs to the later range, whatever the clock says.
    enter(&mut lane, 60, 2);
    launch(&mut lane, 50);
    enter(&mut lane, 70, 0);
    launch(&mut lane, 80);
    enter(&mut lane, 90, 3);
    lane.give_back();
    launch(&mut lane, 100);

    let process = open_only_process(dir.path());
    let ranges = |records: &mut dyn Iterator<Item = apex_trace::Record>| {
        let launches = records.filter_map(|record| match record.event {
            Event::Launch(launch) => Some((launch.config, record.range)),
            _ => None,
        });
        launches.collect::<Vec<_>>()
    };
    let expected = [(10, 0), (30, 1), (50, 2), (80, 0), (100, 0)];
    assert_eq!(ranges(&mut process.records()), expected);
    assert_eq!(ranges(&mut process.records_by_time()), expected);
}
