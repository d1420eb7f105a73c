//! Files of counts: what is written is read back, and damage is told and no more.

use apex_trace::Session;
use apex_trace::control::{MappedControl, Settings};
use apex_trace::counts::file::{CountsFile, HEADER_BYTES, ProcessCounts};
use apex_trace::counts::{CLASSES, Counts, Defect, Fault, Hotspot, LaunchCounts, Place, Traffic};
use cuda_launch::LaunchConfig;
use proptest::prelude::*;
use std::path::Path;

fn place() -> impl Strategy<Value = Place> {
    ("[a-z.0-9]{0,20}", any::<u32>(), ".{0,20}", any::<u32>())
        .prop_map(|(instruction, ptx_line, file, line)| Place { instruction, ptx_line, file, line })
}

fn counts() -> impl Strategy<Value = Counts> {
    let traffic = any::<[[[u64; 5]; 3]; 3]>().prop_map(|spaces| {
        spaces.map(|directions| {
            directions.map(|[requests, threads, bytes, transactions, excess]| Traffic {
                requests,
                threads,
                bytes,
                transactions,
                excess,
            })
        })
    });
    (any::<[u64; CLASSES]>(), any::<[u64; CLASSES]>(), any::<[u64; 4]>(), traffic, any::<[u64; 3]>())
        .prop_map(|(warp_instructions, thread_instructions, operations, traffic, others)| {
            let [not_predicated_off, branches, divergent_branches] = others;
            Counts {
                warp_instructions,
                thread_instructions,
                not_predicated_off,
                operations,
                traffic,
                branches,
                divergent_branches,
            }
        })
}

fn launch() -> impl Strategy<Value = LaunchCounts> {
    let hotspot = (0..Fault::ALL.len(), place(), any::<[u64; 3]>()).prop_map(|(fault, place, values)| {
        let [events, total, excess] = values;
        Hotspot { fault: Fault::ALL[fault], place, events, total, excess }
    });
    let shape = any::<([u32; 3], [u32; 3], u32)>();
    (".{0,40}", shape, counts(), prop::collection::vec(hotspot, 0..6), any::<(u64, u64)>()).prop_map(
        |(kernel, (grid, block, shared), counts, hotspots, (watched, executed))| LaunchCounts {
            kernel,
            launch: LaunchConfig::new(grid, block).with_dynamic_shared_bytes(shared),
            counts,
            hotspots,
            watched,
            executed,
        },
    )
}

fn defect() -> impl Strategy<Value = Defect> {
    let numbers = (any::<u64>(), any::<u64>());
    ("[a-z-]{1,20}", ".{0,20}", ".{0,80}", place(), prop::option::of(place()), numbers).prop_map(
        |(kind, kernel, text, place, other, (count, places))| Defect {
            kind,
            kernel,
            text,
            place,
            other,
            count,
            places,
        },
    )
}

/// A file with these records, and its bytes.
fn written(launches: &[LaunchCounts], defects: &[Defect]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut file = CountsFile::create(dir.path()).unwrap();
    launches.iter().for_each(|launch| file.launch(launch).unwrap());
    defects.iter().for_each(|defect| file.defect(defect).unwrap());
    let path = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::read(path).unwrap()
}

fn read(bytes: &[u8]) -> (ProcessCounts, usize) {
    let (found, problems) = ProcessCounts::from_bytes(Path::new("test.counts"), bytes).unwrap();
    (found, problems.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_back(launches in prop::collection::vec(launch(), 0..4), defect in defect()) {
        let (found, problems) = read(&written(&launches, std::slice::from_ref(&defect)));
        prop_assert_eq!(problems, 0);
        prop_assert_eq!(found.pid, std::process::id());
        prop_assert_eq!(found.launches, launches);
        prop_assert_eq!(found.defects, vec![defect]);
    }

    #[test]
    fn a_file_cut_off_anywhere_keeps_its_whole_records(launches in prop::collection::vec(launch(), 1..4), cut in any::<prop::sample::Index>()) {
        let bytes = written(&launches, &[]);
        let cut = cut.index(bytes.len());
        let (found, problems) = read(&bytes[..cut]);
        prop_assert!(found.launches.len() <= launches.len());
        prop_assert_eq!(&found.launches[..], &launches[..found.launches.len()]);
        // Of the last record only padding may be missing, which is no loss.
        let whole = written(&launches[..found.launches.len()], &[]).len();
        let padding = if found.launches.is_empty() { 0..=0 } else { 0..=7 };
        let is_whole = whole.checked_sub(cut).is_some_and(|missing| padding.contains(&missing));
        prop_assert_eq!(problems, usize::from(!is_whole));
    }

    #[test]
    fn damage_never_panics(launches in prop::collection::vec(launch(), 1..3), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = written(&launches, &[]);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        // A newer version is an error, anything else is read as far as it makes sense.
        let _ = ProcessCounts::from_bytes(Path::new("test.counts"), &bytes);
    }
}

#[test]
fn of_a_defect_the_larger_count_holds() {
    let place = Place { instruction: "ld.global.f32".into(), ptx_line: 7, ..Place::default() };
    let defect = |count| Defect {
        kind: "shared-race".into(),
        kernel: "k".into(),
        text: "text".into(),
        place: place.clone(),
        other: None,
        count,
        places: count / 2,
    };
    let (found, problems) = read(&written(&[], &[defect(1), defect(8), defect(4)]));
    assert_eq!((found.defects, problems), (vec![defect(8)], 0));
}

#[test]
fn a_session_has_them_with_their_problems() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("control"), []).unwrap();
    assert_eq!(Session::open(dir.path()).unwrap().counts, []);
    let mut file = CountsFile::create(dir.path()).unwrap();
    let launch = LaunchCounts {
        kernel: "k".into(),
        launch: LaunchConfig::new([1, 2, 3], [4, 5, 6]).with_dynamic_shared_bytes(7),
        counts: Counts::default(),
        hotspots: Vec::new(),
        watched: 9,
        executed: 10,
    };
    file.launch(&launch).unwrap();
    std::fs::write(dir.path().join("9-9.counts"), [0; HEADER_BYTES]).unwrap();
    let session = Session::open(dir.path()).unwrap();
    assert_eq!(session.counts.iter().map(|counts| counts.launches.len()).sum::<usize>(), 1);
    let damaged: Vec<_> =
        session.problems.iter().filter(|problem| problem.path.ends_with("9-9.counts")).collect();
    assert_eq!(damaged.len(), 1);
}

#[test]
fn the_sessions_limit_holds_for_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let limit = 4000;
    let control =
        MappedControl::create(dir.path(), Settings { max_bytes: limit, ..Settings::default() }).unwrap();
    let mut file = CountsFile::create(dir.path()).unwrap();
    let launch = LaunchCounts {
        kernel: "k".into(),
        launch: LaunchConfig::new(1, 32),
        counts: Counts::default(),
        hotspots: Vec::new(),
        watched: 9,
        executed: 10,
    };
    let refusal = std::iter::repeat_with(|| file.launch(&launch)).take(1000).find_map(Result::err);
    assert!(refusal.is_some_and(|error| error.to_string().contains("size limit is reached")));
    let session = Session::open(dir.path()).unwrap();
    let [counts] = session.counts.as_slice() else { panic!("one process, {:?}", session.problems) };
    let is_of_counts = |path: &Path| path.extension().is_some_and(|end| end == "counts");
    let is_whole = !session.problems.iter().any(|problem| is_of_counts(&problem.path));
    assert!(is_whole && !counts.launches.is_empty(), "{:?}", session.problems);
    let on_disk = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
    let on_disk: u64 = on_disk
        .filter(|entry| is_of_counts(&entry.path()))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert_eq!(on_disk, control.used_bytes.load(std::sync::atomic::Ordering::Relaxed));
    assert!(on_disk <= limit);
    // With more room it goes on.
    control.set_max_bytes(0);
    file.launch(&launch).unwrap();
}
