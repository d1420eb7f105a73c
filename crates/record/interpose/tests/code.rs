//! A session with `--code` keeps the images that programs load and the arguments of launches.

mod support;

use apex_trace::control::{Settings, TimingMode};
use apex_trace::definition::{Arguments, Pointer};
use apex_trace::layout::MemoryKind;
use apex_trace::{Event, Process, image};
use fatbin::kept;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use support::{Recording, launches, records};

/// Starts a recording that keeps at most this number of bytes of code.
fn recording(code_max_bytes: u64) -> Recording {
    Recording::new(Settings { timing: TimingMode::Off, code_max_bytes, ..Settings::default() })
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cuda/fatbin/tests/data").join(name)
}

/// The images of a session, each with its parts.
fn images(recording: &Recording) -> Vec<Vec<Vec<u8>>> {
    let files = std::fs::read_dir(recording.path()).unwrap().map(|file| file.unwrap().path());
    let hash = |path: &PathBuf| u128::from_str_radix(path.file_stem()?.to_str()?, 16).ok();
    let is_image = |path: &PathBuf| path.extension().is_some_and(|extension| extension == image::EXTENSION);
    let hashes = files.filter(is_image).filter_map(|path| hash(&path));
    hashes.map(|hash| kept::unpack(&image::read(recording.path(), hash).unwrap()).unwrap()).collect()
}

/// The identifiers of what launches were given, of those that were looked at.
fn samples(process: &Process) -> Vec<u32> {
    records(process, |event| match event {
        Event::ArgumentSample(sample) => Some(sample.arguments),
        _ => None,
    })
}

/// Returns the arguments of launches.
fn given(process: &Process) -> Vec<Arguments> {
    let samples = samples(process);
    samples.iter().map(|&id| process.definitions.arguments(id).expect("defined").clone()).collect()
}

/// Images of the functions that were launched.
fn origins(process: &Process) -> BTreeSet<Option<u128>> {
    let function =
        |launch: &apex_trace::layout::Launch| process.definitions.config(launch.config).unwrap().function;
    launches(process)
        .iter()
        .map(|launch| process.definitions.function_code(function(launch)).map(|code| code.image))
        .collect()
}

#[test]
fn machine_code_is_kept_once_and_its_arguments_are_known() {
    let recording = recording(1 << 20);
    let file = data("four_kernels_sm_90.cubin");
    recording.run(&format!("loads {} tiled 64", file.display()));
    let process = recording.process();
    assert_eq!(images(&recording), [[std::fs::read(&file).unwrap()]]);
    assert_eq!(recording.control.code.left_out.load(Relaxed), 0);
    let [image] = origins(&process).into_iter().collect::<Vec<_>>()[..] else { panic!("one image") };
    assert!(image.is_some(), "of the module, and of the library");

    let given = given(&process);
    assert!(!given.is_empty());
    for arguments in given {
        assert_eq!(arguments.parameters, [(0, 8), (8, 4), (16, 24), (40, 1)]);
        let pointer = |at, offset| Pointer { at, allocation: 0, allocation_bytes: 4096, offset };
        assert_eq!(arguments.pointers, [pointer(0, 256), pointer(24, 0)]);
        let mut bytes = vec![0; 41];
        (bytes[8], bytes[16], bytes[32], bytes[40]) = (42, 7, 9, 3);
        assert_eq!(arguments.bytes, bytes, "no address");
    }
}

/// The driver launches the required block where the program names a block of one thread, as it
/// does for tile kernels, and has no attribute that tells it.
#[test]
fn a_launch_of_one_thread_has_the_block_that_its_code_requires() {
    for code_max_bytes in [0, 1 << 20] {
        let recorded = |image: &str, kernel: &str| {
            let recording = recording(code_max_bytes);
            recording.run(&format!("loads {} {kernel} 1", data(image).display()));
            let process = recording.process();
            let config = |launch: &apex_trace::layout::Launch| {
                let config = process.definitions.config(launch.config).expect("defined");
                (config.launch.block.to_array(), config.requires_block)
            };
            launches(&process).iter().map(config).collect::<Vec<_>>()
        };
        for image in ["four_kernels_sm_90.cubin", "four_kernels.ptx"] {
            assert_eq!(recorded(image, "stack"), [([32, 4, 2], true); 2], "{image}");
            assert_eq!(recorded(image, "tiled"), [([1, 1, 1], false); 2], "a maximum: {image}");
        }
    }
}

#[test]
fn of_a_configuration_32_arguments_are_kept_and_others_counted() {
    let settings = Settings { timing: TimingMode::All, code_max_bytes: 1 << 20, ..Settings::default() };
    let recording = Recording::new(settings);
    recording.run(&format!("varies {} 44", data("four_kernels_sm_90.cubin").display()));
    let process = recording.process();
    let samples = samples(&process);
    let known: BTreeSet<u32> = samples.iter().copied().filter(|&id| id != 0).collect();
    let number = |&id: &u32| process.definitions.arguments(id).unwrap().bytes[8];
    assert_eq!(known.iter().map(number).collect::<Vec<_>>(), (0..32).collect::<Vec<u8>>());
    assert!(samples.iter().filter(|&&id| id == 0).count() >= 11, "{samples:?}");
}

#[test]
fn the_ptx_of_what_is_linked_is_kept_with_the_machine_code() {
    let recording = recording(1 << 20);
    recording.run("links");
    let process = recording.process();
    let [parts] = &images(&recording)[..] else { panic!("one image") };
    let [machine_code, first, second] = &parts[..] else { panic!("{} parts", parts.len()) };
    assert!(machine_code.starts_with(b"\x7fELF"));
    assert_eq!(
        (&first[..], &second[..]),
        (&b".version 8.0 // first\0"[..], &b".version 8.0 // second\0"[..])
    );
    assert!(origins(&process).iter().all(Option::is_some));
}

#[test]
fn a_fatbin_is_kept_without_what_does_not_run_here() {
    let recording = recording(1 << 20);
    let file = data("three_ptx_one_cubin_zstd.fatbin");
    recording.run(&format!("loads {} k 64", file.display()));
    let [parts] = &images(&recording)[..] else { panic!("one image") };
    let [part] = &parts[..] else { panic!("{} parts", parts.len()) };
    assert!(kept::has_ptx(part) && part.len() < std::fs::read(&file).unwrap().len());
    assert!(fatbin::machine_code(part).unwrap().is_empty(), "it is for 8.0, which the device is not");
    let given = given(&recording.process());
    assert!(given.iter().all(|arguments| arguments.parameters == [(0, 8), (8, 4)]), "{given:?}");
}

#[test]
fn what_has_no_room_is_counted_and_the_program_runs() {
    let recording = recording(1000);
    recording.run(&format!("loads {} tiled 64", data("four_kernels_sm_90.cubin").display()));
    assert_eq!(images(&recording), Vec::<Vec<Vec<u8>>>::new());
    let code = &recording.control.code;
    assert_eq!((code.used_bytes.load(Relaxed), code.kept.load(Relaxed)), (0, 0));
    assert_eq!(code.left_out.load(Relaxed), 1, "once for an image");
    let process = recording.process();
    assert_eq!(origins(&process), BTreeSet::from([None]));
}

#[test]
fn without_the_option_nothing_is_kept() {
    let recording = recording(0);
    recording.run(&format!("loads {} tiled 64", data("four_kernels_sm_90.cubin").display()));
    recording.run("links");
    assert!(images(&recording).is_empty());
    for process in recording.open().processes {
        assert!(samples(&process).is_empty());
    }
}

/// A recording of the default: PTX without machine code and arguments.
fn default_recording() -> Recording {
    let settings =
        Settings { timing: TimingMode::Off, code_max_bytes: 1 << 20, ptx_only: true, ..Settings::default() };
    Recording::new(settings)
}

#[test]
fn by_default_ptx_is_kept_and_neither_machine_code_nor_arguments() {
    let recording = default_recording();
    recording.run(&format!("loads {} k", data("three_ptx_one_cubin_zstd.fatbin").display()));
    let [parts] = &images(&recording)[..] else { panic!("one image") };
    let [part] = &parts[..] else { panic!("{} parts", parts.len()) };
    assert!(kept::has_ptx(part) && fatbin::machine_code(part).unwrap().is_empty());
    let process = recording.process();
    assert!(origins(&process).iter().all(Option::is_some));
    assert!(samples(&process).is_empty());

    let linked = default_recording();
    linked.run("links");
    let [parts] = &images(&linked)[..] else { panic!("one image") };
    assert!(parts.len() == 2 && parts.iter().all(|part| part.starts_with(b".version 8.0")), "{parts:?}");
    assert!(origins(&linked.process()).iter().all(Option::is_some));
    assert_eq!(linked.control.code.left_out.load(Relaxed), 0, "nothing was asked for");
}

#[test]
fn the_kinds_of_memory_behind_arguments_are_known_without_their_addresses() {
    for recording in [recording(0), default_recording()] {
        recording.run(&format!("loads {} tiled", data("four_kernels_sm_90.cubin").display()));
        let process = recording.process();
        let kinds: BTreeSet<Vec<(u32, u32)>> =
            process.definitions.argument_memories().map(|memory| memory.parameters.clone()).collect();
        let device = MemoryKind::Device as u32;
        assert_eq!(kinds, BTreeSet::from([vec![(0, device), (2, device)]]));
        let launched: BTreeSet<u32> = launches(&process).iter().map(|launch| launch.config).collect();
        assert!(launched.iter().all(|&config| process.definitions.argument_memory(config).is_some()));
    }
}
