//! Launches belong to the NVTX ranges that their thread is in, and nothing that a program does with
//! ranges harms it.

mod support;

use apex_trace::layout::flags;
use apex_trace::{Event, Process};
use std::collections::BTreeMap;
use support::{Recording, compiled, finished, library};
use test_process::Command;

/// The programs of `shims/nvtx.c`, linked with the fake driver.
struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    /// `None` where they cannot be compiled.
    fn new() -> Option<Programs> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let driver = folder.path().join("libcuda.so.1");
        std::os::unix::fs::symlink(support::fake_driver(), driver).expect("a link");
        let search = format!("-L{}", folder.path().display());
        let arguments = ["-pthread", search.as_str(), "-l:libcuda.so.1", "-ldl"];
        compiled("nvtx.c", &folder.path().join("nvtx"), &arguments)?;
        Some(Programs { folder })
    }

    /// A program, recorded.
    fn command(&self, recording: &Recording, program: &str) -> Command {
        let mut command = Command::new(self.folder.path().join("nvtx"));
        command
            .arg(program)
            .env("LD_PRELOAD", library())
            .env("APEX_DRIVER", support::fake_driver())
            .env("APEX_SESSION", recording.path())
            .env("NVTX_INJECTION64_PATH", library());
        command
    }
}

/// A range and those around it, the outermost first.
fn path(process: &Process, mut range: u32) -> Vec<String> {
    let mut path = Vec::new();
    while let Some(definition) = process.definitions.range(range) {
        assert!(definition.parent < range, "a range comes after the one around it");
        path.push(match definition.domain.as_str() {
            "" => definition.name.clone(),
            domain => format!("{domain}:{}", definition.name),
        });
        range = definition.parent;
    }
    assert_eq!(range, 0, "every range is defined");
    path.reverse();
    path
}

/// The ranges of launches by grid; each grid is launched in one range alone.
fn by_grid(process: &Process) -> BTreeMap<u32, Vec<String>> {
    let mut ranges = BTreeMap::new();
    for record in process.records() {
        if let Event::Launch(launch) = record.event {
            let grid = process.definitions.config(launch.config).expect("a configuration").launch.grid.x;
            let path = path(process, record.range);
            assert_eq!(ranges.entry(grid).or_insert(path.clone()), &path, "grid {grid}");
        }
    }
    ranges
}

fn assert_ranges(process: &Process, expected: &[(u32, &[&str])]) {
    let found = by_grid(process);
    let found: Vec<_> =
        found.iter().map(|(grid, path)| (*grid, path.iter().map(String::as_str).collect())).collect();
    let expected: Vec<(u32, Vec<&str>)> =
        expected.iter().map(|(grid, path)| (*grid, path.to_vec())).collect();
    assert_eq!(found, expected);
}

/// Returns the numbers of beginnings and ends of each range.
fn changes(process: &Process) -> BTreeMap<String, (u32, u32)> {
    let mut changes = BTreeMap::<String, (u32, u32)>::new();
    for record in process.records() {
        let Event::RangeChange(change) = record.event else { continue };
        if change.changed != 0 {
            let (begun, ended) = changes.entry(path(process, change.changed).join("/")).or_default();
            *begun += u32::from(change.head.flags & flags::RANGE_BEGUN != 0);
            *ended += u32::from(change.head.flags & flags::RANGE_ENDED != 0);
        }
    }
    changes
}

#[test]
fn launches_belong_to_the_innermost_range_of_their_thread() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    let mut program = programs.command(&recording, "nested");
    assert_eq!(finished(&mut program), "1: 0 1 2 2 2 2 2 2 1 0 -2 -2");
    let process = recording.process();
    let outer = &["before the driver", "outer"][..];
    let inner = &["before the driver", "outer", "inner"][..];
    let expected: [(u32, &[&str]); 8] = [
        (1, &outer[..1]),
        (2, outer),
        (3, inner),
        (4, outer),
        (5, &outer[..1]),
        (6, &[]),
        (7, &[]),
        (8, &["after"]),
    ];
    assert_ranges(&process, &expected);
    let copies = process.records().filter(|record| {
        matches!(record.event, Event::Call(call) if call.class() == Some(apex_trace::layout::CallClass::Copy))
    });
    assert_eq!(copies.map(|copy| path(&process, copy.range)).collect::<Vec<_>>(), [outer]);
    let changes = changes(&process);
    assert_eq!(changes["before the driver"], (1, 1));
    assert_eq!(changes["before the driver/outer/inner"], (3, 3));
}

#[test]
fn domains_nest_and_end_independently() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    let mut program = programs.command(&recording, "domains");
    assert_eq!(finished(&mut program), "1: 1 1 ");
    let process = recording.process();
    assert_ranges(
        &process,
        &[
            (1, &["one:a", "two €:b", "one:registered"]),
            (2, &["one:a", "two €:b"]),
            (3, &["two €:b"]),
            (4, &[]),
            (5, &["inside"]),
            (6, &["inside"]),
            (7, &[]),
        ],
    );
    let process_wide = process.records().filter_map(|record| match record.event {
        Event::RangeChange(change) if change.head.flags & flags::PROCESS_WIDE != 0 => Some(change),
        _ => None,
    });
    let process_wide: Vec<_> = process_wide.collect();
    assert_eq!(process_wide.len(), 3, "it began once, and the program ended it twice");
    assert!(process_wide.iter().all(|change| path(&process, change.changed) == ["process"]));
    assert!(process_wide.windows(2).all(|pair| pair[0].instance == pair[1].instance));
}

#[test]
fn each_thread_has_its_own_ranges() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    let mut program = programs.command(&recording, "threads");
    finished(&mut program);
    let found = by_grid(&recording.process());
    assert_eq!(found[&1], ["main"]);
    for (number, name) in [(1, "thread b"), (2, "thread c"), (3, "thread d"), (4, "thread e")] {
        assert_eq!(found[&(10 * number + 1)], [name, "even"]);
        assert_eq!(found[&(10 * number + 2)], [name, "odd"]);
        assert_eq!(found[&(10 * number + 3)], [name]);
    }
}

#[test]
fn a_collective_says_its_communicator() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    finished(&mut programs.command(&recording, "collectives"));
    let process = recording.process();
    let begun = process.records().filter_map(|record| match record.event {
        Event::RangeChange(change) if change.head.flags & flags::RANGE_BEGUN != 0 => Some(change),
        _ => None,
    });
    let begun: Vec<_> =
        begun.map(|change| (path(&process, change.changed)[0].clone(), change.instance)).collect();
    let expected = [
        ("NCCL:ncclAllReduce", 0xc0ffee),
        ("NCCL:ncclAllGather", 0xbeef),
        ("NCCL:ncclAllReduce", 0),
        ("NCCL:ncclSend", 0xc0ffee),
        ("NCCL:ncclGroupStart", 0),
        ("other:ncclAllReduce", 0),
        ("NCCL:ncclAllReduce", 0),
    ];
    assert_eq!(begun, expected.map(|(name, communicator)| (name.to_owned(), communicator)));
}

#[test]
fn hostile_names_and_depths_are_bounded() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    let mut program = programs.command(&recording, "hostile");
    finished(&mut program);
    let process = recording.process();
    let found = by_grid(&process);
    assert_eq!(found[&1], [""]);
    assert_eq!(found[&2], ["\u{fffd}\u{fffd}\u{fffd}"]);
    assert_eq!(found[&3], ["\u{1b}[31mred\u{1b}[0m\n"]);
    assert_eq!(found[&4], ["100%s%n"]);
    assert_eq!(found[&5], ["x".repeat(192)]);
    assert_eq!(found[&6], [""]);
    assert_eq!(found[&7], ["w\u{fffd}\u{fffd}"]);
    assert_eq!(found[&8], [""]);
    assert_eq!(found[&9].len(), 64);
    assert_eq!(found[&10], [""; 0]);
    assert_eq!(found[&11], ["step #"]);
    assert!(process.definitions.ranges().count() < 120);
    assert_eq!(changes(&process)["step #"], (100_000 - 32 + 1, 100_000 - 32 + 1));
}

#[test]
fn a_child_begins_outside_of_all_ranges() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    let mut program = programs.command(&recording, "forks");
    finished(&mut program);
    let mut found: Vec<_> = recording.open().processes.iter().map(by_grid).collect();
    found.sort_by_key(|ranges| *ranges.keys().next().expect("launches"));
    let [parent, child] = &found[..] else { panic!("two processes") };
    assert_eq!(
        (&parent[&1][..], &parent[&5][..], &parent[&6][..]),
        (&["parent".to_owned()][..], &["parent".to_owned()][..], &[][..])
    );
    assert_eq!((child[&2].len(), &child[&3][..], child[&4].len()), (0, &["child".to_owned()][..], 0));
}

#[test]
fn a_program_without_a_session_or_without_the_driver_is_left_alone() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    let mut program = programs.command(&recording, "no-driver");
    assert_eq!(finished(&mut program), "1: ");
    assert_eq!(recording.open().processes.len(), 0, "ranges alone make no file");
    for (variable, value) in [("APEX_DISABLE", "1"), ("APEX_SESSION", "")] {
        let mut program = programs.command(&recording, "nested");
        let printed = finished(program.env(variable, value));
        assert!(printed.starts_with("0: -2 -2"), "{variable}: {printed}");
    }
}

#[test]
fn a_chunk_tells_the_range_that_began_before_it() {
    let recording = Recording::untimed();
    let Some(programs) = Programs::new() else { return };
    let mut program = programs.command(&recording, "many");
    finished(&mut program);
    let process = recording.process();
    let inside = process.records().filter(|record| matches!(record.event, Event::Launch(_)));
    let inside: Vec<u32> = inside.map(|record| record.range).collect();
    assert_eq!(inside.len(), 30_000);
    assert!(inside.iter().all(|&range| path(&process, range) == ["all"]));
}
