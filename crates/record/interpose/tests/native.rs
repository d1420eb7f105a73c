//! The frames of compiled code are recorded exactly, whatever compilers make of it, and no state of
//! a program is harmed by it.

mod support;

use apex_symbolization::{Build, Symbols};
use apex_trace::Process;
use apex_trace::layout::{CallClass, StackSample, flags};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use support::{Recording, finished, samples};
use test_process::Command;

/// Functions of the program that are not active where it launches, or that it does not tell of.
const NOT_TOLD: [&str; 3] = ["print", "note", "_start"];

/// Compiles `native/launches.cpp`; `None`, said on standard error, where there is no compiler.
fn compiled(folder: &Path, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    let driver = folder.join("libcuda.so.1");
    if !driver.exists() {
        std::os::unix::fs::symlink(support::fake_driver(), &driver).expect("a link");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native/launches.cpp");
    let program = folder.join(name);
    let mut command = Command::new("c++");
    command.arg("-o").arg(&program).arg(source).args(["-std=c++17", "-pthread"]).args(arguments);
    match command.arg(driver).arg("-ldl").status() {
        Ok(status) => {
            assert!(status.success(), "c++ failed");
            Some(program)
        }
        Err(_) => {
            test_skip::missing_dependency("no C++ compiler");
            None
        }
    }
}

/// The functions of files in `folder` that are active in a sample, `FUNCTION:LINE`, innermost
/// first.
struct Resolver<'p> {
    process: &'p Process,
    folder: &'p Path,
    symbols: HashMap<u32, Option<Symbols>>,
}

impl Resolver<'_> {
    fn frames(&mut self, sample: &StackSample) -> Vec<String> {
        let stack = self.process.definitions.call_stack(sample.stack).expect("a stack");
        let mut found = Vec::new();
        for frame in &stack.native {
            let module = self.process.definitions.module(frame.module).expect("a module");
            let symbols = self.symbols.entry(frame.module).or_insert_with(|| {
                let build = Build {
                    id: module.build_id.clone(),
                    bytes: module.bytes,
                    modified_ns: module.modified_ns,
                };
                let path = Path::new(&module.path);
                path.starts_with(self.folder).then(|| Symbols::of(path, &build).expect("symbols"))
            });
            for place in symbols.as_ref().map_or_else(Vec::new, |symbols| symbols.at(frame.address)) {
                let function = place.function.expect("a name");
                if !NOT_TOLD.contains(&function.as_str()) {
                    found.push(format!("{function}:{}", place.line.unwrap_or(0)));
                }
            }
        }
        found
    }
}

#[test]
fn every_launch_has_the_functions_that_are_active() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().canonicalize().expect("a path");
    let Some(plugin) = compiled(&path, "plugin.so", &["-g", "-O2", "-shared", "-fPIC"]) else { return };
    let variants: [(&str, &[&str]); 4] = [
        ("plain", &["-g", "-O0"]),
        ("optimised", &["-g", "-O2"]),
        ("fixed", &["-g", "-O3", "-no-pie", "-Wl,--build-id=none"]),
        ("functions", &["-O1", "-fno-inline", "-fno-optimize-sibling-calls"]),
    ];
    for (name, arguments) in variants {
        let Some(program) = compiled(&path, name, arguments) else { return };
        let recording = Recording::untimed();
        let output = finished(recording.program(&program).arg(&plugin));
        let process = recording.process();
        let mut resolver = Resolver { process: &process, folder: &path, symbols: HashMap::new() };
        let mut found = BTreeMap::new();
        for sample in samples(&process) {
            if sample.head.flags == flags::FIRST_SEEN {
                let config = process.definitions.config(sample.config).expect("a configuration");
                found.insert(config.launch.grid.x, resolver.frames(&sample));
            }
        }
        let has_lines = arguments.contains(&"-g");
        let mut grids = 0;
        for line in output.lines() {
            let (grid, expected) = line.split_once('\t').expect("a grid and its functions");
            // Compilers leave out the namespace of a function that is inlined everywhere.
            let plain = |place: &str| {
                let place = place.replace("unsigned int", "unsigned-int");
                let place =
                    if has_lines { &place } else { place.rsplit_once(':').map_or("", |parts| parts.0) };
                place.rsplit("::").next().unwrap_or_default().to_owned()
            };
            // Without debug information nobody knows what was inlined.
            let is_known = |place: &String| has_lines || !place.starts_with("inlined");
            let expected: Vec<String> = expected.split(' ').map(plain).filter(is_known).collect();
            let found = found.get(&grid.parse::<u32>().expect("a grid"));
            let found = found.unwrap_or_else(|| panic!("{name}, grid {grid}: no stack"));
            let found: Vec<String> = found.iter().map(|place| plain(place)).collect();
            assert_eq!(found, expected, "{name}, grid {grid}");
            grids += 1;
        }
        assert_eq!(grids, 14, "{name}");
        check_calls(&process, &mut resolver);
    }
}

/// Checks that the first call of each kind that copies, allocates or waits is there, with its
/// place.
fn check_calls(process: &Process, resolver: &mut Resolver<'_>) {
    let mut calls = BTreeSet::new();
    for sample in samples(process) {
        if sample.head.flags & flags::OF_CALL != 0 && sample.head.flags & flags::FIRST_SEEN != 0 {
            let name = process.definitions.name(sample.config).expect("an entry point");
            let frames = resolver.frames(&sample);
            assert!(frames[0].starts_with("copies_and_waits:"), "{name}: {frames:?}");
            calls.insert((name.to_owned(), sample.class));
        }
    }
    let expected = [
        ("cuCtxSynchronize", CallClass::Synchronize),
        ("cuMemAlloc_v2", CallClass::Allocate),
        ("cuMemFree_v2", CallClass::Free),
    ];
    assert_eq!(calls, expected.map(|(name, class)| (name.to_owned(), class as u8)).into());
}
