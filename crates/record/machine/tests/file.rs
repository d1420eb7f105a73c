//! The session's file: written, thinned, torn, damaged.

use apex_machine::{
    Device, DeviceRecord, FILE, Machine, Quantity, Readings, Record, Span, Watcher, Writer, downsample,
    overall,
};
use apex_untrusted::Folder;
use proptest::prelude::*;
use std::path::Path;

const SECOND: u64 = 1_000_000_000;

fn device(number: usize) -> Device {
    Device { uuid: format!("GPU-{number}"), name: "H200".into(), ..Device::default() }
}

/// The record of a second, in which power was `watts`.
fn record(second: u64, watts: f64) -> Record {
    let mut readings = Readings::default();
    readings.set(Quantity::Power, watts);
    let mut host = Readings::default();
    host.set(Quantity::Load, 1.5);
    let devices = vec![DeviceRecord { device: 0, readings, ..DeviceRecord::default() }];
    Record { from_ns: second * SECOND, to_ns: (second + 1) * SECOND, cost_ns: 1_000, host, devices }
}

fn writer(dir: &Path, most_bytes: u64) -> Writer {
    Writer::new(Folder::open(dir).unwrap(), most_bytes)
}

fn power(records: &[Record]) -> Span {
    overall(records, Some(0)).get(Quantity::Power).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Machine::read(dir.path()), Machine::default(), "a session without the file is no problem");
    let mut writer = writer(dir.path(), 1 << 20);
    writer.device(&device(0)).unwrap();
    assert!(!dir.path().join(FILE).exists(), "there is a file with the first record");
    writer.record(record(1, 100.0)).unwrap();
    // Found while the program runs.
    writer.device(&device(1)).unwrap();
    writer.record(record(2, 300.25)).unwrap();
    let machine = Machine::read(dir.path());
    assert_eq!(machine.devices, [device(0), device(1)]);
    assert_eq!(machine.records, [record(1, 100.0), record(2, 300.25)]);
    assert_eq!(machine.problems, [""; 0]);
    assert_eq!(machine.since(2 * SECOND), [record(2, 300.25)]);
    assert_eq!(machine.window(SECOND, 2 * SECOND).records, [record(1, 100.0)]);
}

#[test]
fn merged_records_keep_the_ends_of_the_energy_counter_and_the_reader_its_order() {
    let counted = |second: u64| {
        let mut record = record(second, 100.0);
        let moment = |part: u64| (second * SECOND + part * SECOND / 10, second * 1_000 + part * 100);
        record.devices[0].energy = (1..=10).map(moment).collect();
        record
    };
    let records: Vec<Record> = (0..100).map(counted).collect();
    let merged = downsample(&records, 2);
    for (part, seconds) in merged.iter().zip([0..50, 50..100]) {
        let energy = &part.devices[0].energy;
        assert!((8..=32).contains(&energy.len()), "{energy:?}");
        assert!(energy[0].0 <= seconds.start * SECOND + SECOND / 10 + 2 * SECOND, "{energy:?}");
        assert_eq!(*energy.last().unwrap(), (seconds.end * SECOND, seconds.end * 1_000));
        assert!(energy.windows(2).all(|pair| pair[0] < pair[1]));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), 1 << 20);
    writer.device(&device(0)).unwrap();
    let mut disordered = counted(1);
    disordered.devices[0].energy = vec![(5, 1), (9, 2), (7, 3), (9, 4), (11, 5)];
    writer.record(disordered).unwrap();
    let read = Machine::read(dir.path()).records.remove(0);
    assert_eq!(read.devices[0].energy, [(5, 1), (9, 2), (11, 5)]);
}

#[test]
fn the_file_is_bounded_and_keeps_extremes_and_means() {
    let dir = tempfile::tempdir().unwrap();
    let most = 20_000;
    let mut writer = writer(dir.path(), most);
    writer.device(&device(0)).unwrap();
    let watts = |second: u64| if second == 17 { 700.0 } else { 100.0 + (second % 7) as f64 };
    let seconds = 3_000;
    for second in 0..seconds {
        writer.record(record(second, watts(second))).unwrap();
        assert!(dir.path().join(FILE).metadata().unwrap().len() <= most, "after {second} s");
    }
    let machine = Machine::read(dir.path());
    assert_eq!(machine.problems, [""; 0]);
    assert_eq!((machine.devices.len(), machine.records[0].from_ns), (1, 0));
    assert_eq!(machine.records.last().unwrap().to_ns, seconds * SECOND);
    assert!(machine.records.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns), "no gap");
    assert_eq!(machine.records.iter().map(|record| record.cost_ns).sum::<u64>(), seconds * 1_000);
    let span = power(&machine.records);
    let mean = (0..seconds).map(watts).sum::<f64>() / seconds as f64;
    assert_eq!((span.least, span.most), (100.0, 700.0));
    assert!((span.mean - mean).abs() < 0.01, "{span:?}, not {mean}");
}

#[test]
fn a_torn_last_line_is_one_that_is_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), 1 << 20);
    writer.device(&device(0)).unwrap();
    (0..3).for_each(|second| writer.record(record(second, 5.0)).unwrap());
    let path = dir.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let machine = Machine::read(dir.path());
        let lines = whole[..length].iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(machine.problems, [""; 0], "{length} bytes");
        assert_eq!(machine.records.len(), lines.saturating_sub(2), "{length} bytes");
    }
}

#[test]
fn a_watcher_reads_what_is_new_and_a_thinned_file_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut watcher = Watcher::new(dir.path());
    assert_eq!(*watcher.look(), Machine::default());
    let mut writer = writer(dir.path(), 4_000);
    writer.device(&device(0)).unwrap();
    for second in 0..200 {
        writer.record(record(second, 1.0)).unwrap();
        assert_eq!(*watcher.look(), Machine::read(dir.path()), "after {second} s");
    }
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    assert!(!watcher.look().records.is_empty(), "what was read of a session that is removed stays");
}

#[test]
fn damaged_lines_are_named_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let good = r#"{"record":{"from_ns":10,"to_ns":20}}"#;
    for (line, says) in [
        ("no JSON", "damaged"),
        (r#"{"schema":"apex.machine/2"}"#, "its format is apex.machine/2"),
        (r#"{"record":{"from_ns":5,"to_ns":4}}"#, "goes back in time"),
        (r#"{"record":{"from_ns":5,"to_ns":-4}}"#, "damaged"),
        (r#"{"record":{"from_ns":1,"to_ns":2,"host":{"load":[3,2,1]}}}"#, "no least"),
        (r#"{"record":{"from_ns":1,"to_ns":2,"host":{"load":1e999}}}"#, "damaged"),
        ("\u{0}\u{1b}[2J", "damaged"),
    ] {
        std::fs::write(dir.path().join(FILE), format!("{line}\n{good}\n")).unwrap();
        let machine = Machine::read(dir.path());
        assert!(
            machine.problems.iter().any(|problem| problem.contains(says)),
            "{line}: {:?}",
            machine.problems
        );
        assert!(machine.problems[0].contains("line 1"), "{line}");
        assert_eq!(machine.records.len(), 1, "{line}");
    }
    // What a later version may add is skipped; a device that nobody defined is left out.
    let line = r#"{"record":{"from_ns":1,"to_ns":2,"host":{"fans":3,"load":2},"devices":[{"device":7,"readings":{}}]}}"#;
    std::fs::write(dir.path().join(FILE), format!("{line}\n")).unwrap();
    let machine = Machine::read(dir.path());
    assert_eq!((machine.problems.len(), machine.records[0].devices.len()), (0, 0));
    assert_eq!(machine.records[0].host.get(Quantity::Load), Some(Span::of(2.0)));
}

/// Devices are numbered by their order.
#[test]
fn a_damaged_device_keeps_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), 1 << 20);
    (0..3).for_each(|index| writer.device(&device(index)).unwrap());
    writer.record(record(0, 5.0)).unwrap();
    let sound = Machine::read(dir.path());
    let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
    for damage in ["{\"device\":{\"uuid\":7", "{\"devicf\":{\"uuid\"", "{\"devicf\":{}}"] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines[2] = damage;
        std::fs::write(dir.path().join(FILE), lines.join("\n") + "\n").unwrap();
        let machine = Machine::read(dir.path());
        assert_eq!(machine.devices[2], sound.devices[2], "{damage}");
        assert!(machine.problems[0].contains("line 3 was not read"), "{:?}", machine.problems);
        assert_eq!(machine.records, sound.records);
    }
}

#[test]
fn cut_and_empty_files_of_sessions_that_have_ended_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), 1 << 20);
    (0..3).for_each(|second| writer.record(record(second, 5.0)).unwrap());
    let whole = std::fs::read(dir.path().join(FILE)).unwrap();
    let meta = r#"{"schema":1,"apex_version":"0.1.0","command":[],"cwd":"","started_real_ns":1,
        "ended_real_ns":2,"exit":{"code":0},"device":"gpu","timing":"off"}"#;
    for (bytes, says) in [(&whole[..0], "is empty"), (&whole[..whole.len() - 9], "is cut")] {
        std::fs::write(dir.path().join(FILE), bytes).unwrap();
        assert_eq!(Machine::read(dir.path()).problems, [""; 0], "it may be written still");
        std::fs::write(dir.path().join("session.json"), meta).unwrap();
        let problems = Machine::read(dir.path()).problems;
        assert!(problems.len() == 1 && problems[0].contains(says), "{problems:?}");
        std::fs::remove_file(dir.path().join("session.json")).unwrap();
    }
}

#[test]
fn what_is_no_regular_file_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join(FILE)).unwrap();
    let machine = Machine::read(dir.path());
    assert!(machine.problems[0].contains("cannot be read"), "{:?}", machine.problems);
    assert_eq!(machine.records, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_give_a_machine(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), &bytes).unwrap();
        Machine::read(dir.path());
    }

    #[test]
    fn a_file_with_changed_bytes_gives_sound_records(
        changes in proptest::collection::vec((0usize..1_000, any::<u8>()), 1..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = writer(dir.path(), 1 << 20);
        writer.device(&device(0)).unwrap();
        (0..6).for_each(|second| writer.record(record(second, 5.0)).unwrap());
        let path = dir.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        std::fs::write(&path, &bytes).unwrap();
        let machine = Machine::read(dir.path());
        for pair in machine.records.windows(2) {
            prop_assert!(pair[0].to_ns <= pair[1].from_ns);
        }
        for record in &machine.records {
            prop_assert!(record.from_ns < record.to_ns);
            prop_assert!(record.devices.iter().all(|device| device.device < machine.devices.len()));
        }
    }

    #[test]
    fn downsampling_keeps_time_extremes_and_means(
        watts in proptest::collection::vec(0.0f64..1_000.0, 1..200), most in 1usize..50,
    ) {
        let records: Vec<Record> =
            watts.iter().zip(0..).map(|(watts, second)| record(second, *watts)).collect();
        let fewer = downsample(&records, most);
        prop_assert!(fewer.len() <= most.min(records.len()));
        prop_assert_eq!(fewer[0].from_ns, 0);
        prop_assert_eq!(fewer.last().unwrap().to_ns, records.last().unwrap().to_ns);
        let (before, after) = (power(&records), power(&fewer));
        prop_assert_eq!((before.least, before.most), (after.least, after.most));
        prop_assert!((before.mean - after.mean).abs() < 1e-6);
    }
}
