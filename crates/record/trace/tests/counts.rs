//! Files of counts: what is written is read back, and damage is told and no more.

use apex_counts::{
    Counted, Counts, Defect, Fault, Hotspot, InstructionClass, Line, LineCounts, Place, Traffic,
};
use apex_trace::control::{MappedControl, Settings};
use apex_trace::counts::{CountsFile, HEADER_BYTES, LaunchCounts, ProcessCounts};
use apex_trace::{Session, source};
use cuda_launch::LaunchConfig;
use proptest::prelude::*;
use std::path::Path;

const CLASSES: usize = InstructionClass::ALL.len();

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

fn line() -> impl Strategy<Value = Line> {
    ("[a-z./]{0,3}", any::<u32>(), any::<[u64; LineCounts::VALUES]>()).prop_map(|(file, line, values)| {
        let mut counts = LineCounts::default();
        counts.values_mut().into_iter().zip(values).for_each(|(count, value)| *count = value);
        Line { file: file.into(), line, counts }
    })
}

fn launch() -> impl Strategy<Value = LaunchCounts> {
    let hotspot = (0..Fault::ALL.len(), place(), any::<[u64; 3]>()).prop_map(|(fault, place, values)| {
        let [events, total, excess] = values;
        Hotspot { fault: Fault::ALL[fault], place, events, total, excess }
    });
    let shape = any::<([u32; 3], [u32; 3], u32)>();
    let (hotspots, lines) = (prop::collection::vec(hotspot, 0..6), prop::collection::vec(line(), 0..9));
    (".{0,40}", shape, counts(), hotspots, lines, any::<(u64, u64, u64)>()).prop_map(
        |(kernel, (grid, block, shared), counts, hotspots, lines, (watched, executed, lines_left_out))| {
            LaunchCounts {
                kernel,
                launch: LaunchConfig::new(grid, block).with_dynamic_shared_bytes(shared),
                counted: Counted { counts, hotspots, lines, lines_left_out, watched, executed },
            }
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
fn launches_of_versions_that_counted_no_lines_are_read() {
    let launch = LaunchCounts {
        kernel: "k".into(),
        launch: LaunchConfig::new(1, 32),
        counted: Counted { watched: 9, executed: 10, ..Counted::default() },
    };
    // Two empty lists and the number of lines left out end the record; they are cut off.
    let mut bytes = written(std::slice::from_ref(&launch), &[]);
    let length = u32::from_le_bytes(bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].try_into().unwrap()) - 16;
    bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&length.to_le_bytes());
    bytes.truncate(HEADER_BYTES + 8 + length as usize);
    assert_eq!(
        read(&bytes),
        (ProcessCounts { pid: std::process::id(), launches: vec![launch], ..ProcessCounts::default() }, 0)
    );
}

#[test]
fn kernels_that_became_machine_code_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    MappedControl::create(dir.path(), Settings::default()).unwrap();
    let mut file = CountsFile::create(dir.path()).unwrap();
    ["first", "second"].iter().for_each(|kernel| file.machine_code(kernel).unwrap());
    let session = Session::open(dir.path()).unwrap();
    assert_eq!(session.counts[0].machine_code, ["first", "second"]);
}

#[test]
fn a_session_that_keeps_code_keeps_source_files_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("kernel.cu");
    std::fs::write(&path, "__global__ void k() {}\n").unwrap();
    let names = [path.to_str().unwrap(), "vanished.cu"];
    let sources = |settings: Settings| {
        let dir = dir.path().join(settings.code_max_bytes.to_string());
        std::fs::create_dir(&dir).unwrap();
        MappedControl::create(&dir, settings).unwrap();
        let mut file = CountsFile::create(&dir).unwrap();
        names.iter().for_each(|name| file.source(name).unwrap());
        let session = Session::open(&dir).unwrap();
        (dir, session.counts[0].sources.clone())
    };
    assert_eq!(sources(Settings::default()).1, [], "it was not asked for");
    let (dir, kept) = sources(Settings { code_max_bytes: 1 << 20, ..Settings::default() });
    assert_eq!(kept[1].kept, Err("there is no such file".to_owned()));
    let hash = *kept[0].kept.as_ref().unwrap();
    assert_eq!(source::read(&dir, hash).unwrap(), "__global__ void k() {}\n");
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
        counted: Counted { watched: 9, executed: 10, ..Counted::default() },
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
        counted: Counted { watched: 9, executed: 10, ..Counted::default() },
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
    control.max_bytes.store(0, std::sync::atomic::Ordering::Relaxed);
    file.launch(&launch).unwrap();
}
