//! Text cases: a PTX file whose comments say how it is launched and what comes out.
//!
//! ```text
//! // launch NAME grid 2 1 1 block 64 1 1 [cluster 2 1 1] [shared BYTES] [stack BYTES] [workers N]
//! // param u32 5                    a scalar parameter // param u32[] 1 2 3              a buffer;
//! its address is the parameter // param u32[64] random 7         a buffer of random bits (any
//! seed) // param u32[64] zero // expect 0 u32[] 4 5 6           what parameter 0 points to
//! afterwards (the first elements) // prints hello\n                 what device code printed //
//! fault Misaligned               how the launch ends; at the next line that ends in `// here`, if
//! one does
//! ```
//!
//! Each launch is executed plainly and then once more watched; either has the same outcome.
//! Watched, it has exactly the defects that lines of its code announce: `// here shared-race`.
//! `launch` begins a launch, the lines below it belong to it; a file may have several. Numbers are
//! decimal, `0x…`, or `1.5` for floating-point types; `n*value` repeats.

use std::collections::BTreeSet;
use std::path::Path;

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::{Engine, LaunchParams};

use crate::device::{Device, pack};

#[derive(Default)]
struct Launch {
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    shared: u32,
    stack: u32,
    workers: usize,
    params: Vec<Param>,
    expected: Vec<(usize, Vec<u8>)>,
    prints: Option<String>,
    fault: Option<(String, Option<u32>)>,
    /// Kinds of defects, and where.
    defects: BTreeSet<(String, u32)>,
    line: usize,
}

enum Param {
    Scalar(Vec<u8>),
    Buffer(Vec<u8>),
}

fn element(ty: &str, text: &str) -> Vec<u8> {
    let float = |text: &str| match text.strip_prefix("0x") {
        Some(_) => None,
        None => Some(text.parse::<f64>().unwrap_or_else(|_| panic!("number {text}"))),
    };
    let integer = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("number {text}")),
        None => text.parse::<i128>().unwrap_or_else(|_| panic!("number {text}")) as u64,
    };
    match ty {
        "f32" => float(text)
            .map_or_else(|| integer(text) as u32, |value| (value as f32).to_bits())
            .to_le_bytes()
            .into(),
        "f64" => float(text).map_or_else(|| integer(text), f64::to_bits).to_le_bytes().into(),
        "u8" | "s8" => vec![integer(text) as u8],
        "u16" | "s16" | "f16" | "bf16" => (integer(text) as u16).to_le_bytes().into(),
        "u32" | "s32" => (integer(text) as u32).to_le_bytes().into(),
        "u64" | "s64" => integer(text).to_le_bytes().into(),
        _ => panic!("type {ty}"),
    }
}

fn size(ty: &str) -> usize {
    element(ty, "0").len()
}

/// `1 2 3*4`.
fn elements(ty: &str, words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        let (count, value) = match word.split_once('*') {
            Some((count, value)) => (count.parse().unwrap(), value),
            None => (1, *word),
        };
        (0..count).for_each(|_| bytes.extend(element(ty, value)));
    }
    bytes
}

/// `u32 5`, `u32[] 1 2 3`, `u32[64] random 7`, `u32[64] zero`.
fn param(words: &[&str]) -> Param {
    let Some((ty, count)) = words[0].strip_suffix(']').and_then(|text| text.split_once('[')) else {
        return Param::Scalar(element(words[0], words[1]));
    };
    let count = count.parse::<usize>().unwrap_or(0) * size(ty);
    Param::Buffer(match words.get(1) {
        Some(&"random") => Random::new(words[2].parse().unwrap()).bytes(count),
        Some(&"zero") => vec![0; count],
        _ => elements(ty, &words[1..]),
    })
}

fn triple(words: &[&str]) -> [u32; 3] {
    [words[0].parse().unwrap(), words[1].parse().unwrap(), words[2].parse().unwrap()]
}

/// The defects that the code below a line announces, up to the next launch.
fn announced(source: &str, index: usize) -> BTreeSet<(String, u32)> {
    let code = source.lines().enumerate().skip(index).skip_while(|(_, line)| line.starts_with("//"));
    let code = code.take_while(|(_, line)| !line.starts_with("// launch"));
    let announced = code.filter_map(|(at, line)| Some((at, line.split_once("// here ")?.1)));
    announced
        .flat_map(|(at, kinds)| {
            kinds
                .split_whitespace()
                .filter(|kind| kind.contains('-'))
                .map(move |kind| (kind.to_owned(), at as u32 + 1))
        })
        .collect()
}

fn launches(source: &str) -> Vec<Launch> {
    let mut launches: Vec<Launch> = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let Some(comment) = line.strip_prefix("// ") else { continue };
        let words: Vec<&str> = comment.split_whitespace().collect();
        let Some(&first) = words.first() else { continue };
        if first == "launch" {
            let cluster = words.iter().position(|word| *word == "cluster");
            let option = |name: &str| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
            let at = |name: &str| words.iter().position(|word| *word == name).unwrap() + 1;
            launches.push(Launch {
                kernel: words[1].to_owned(),
                grid: triple(&words[at("grid")..]),
                block: triple(&words[at("block")..]),
                cluster: cluster.map_or([0; 3], |at| triple(&words[at + 1..])),
                defects: announced(source, index),
                shared: option("shared").map_or(0, |value| value.parse().unwrap()),
                stack: option("stack").map_or(1024, |value| value.parse().unwrap()),
                workers: option("workers").map_or(0, |value| value.parse().unwrap()),
                line: index + 1,
                ..Launch::default()
            });
            continue;
        }
        let Some(launch) = launches.last_mut() else { continue };
        match first {
            "param" => launch.params.push(param(&words[1..])),
            "expect" => {
                let ty = words[2].trim_end_matches("[]");
                launch.expected.push((words[1].parse().unwrap(), elements(ty, &words[3..])));
            }
            "prints" => {
                let text = comment["prints ".len()..].replace("\\n", "\n");
                launch.prints = Some(launch.prints.take().unwrap_or_default() + &text);
            }
            "fault" => {
                let below = source.lines().enumerate().skip(index + 1);
                let mut below = below.take_while(|(_, line)| !line.starts_with("// launch"));
                let line = below.find(|(_, line)| line.ends_with("// here")).map(|(at, _)| at as u32 + 1);
                launch.fault = Some((words[1].to_owned(), line));
            }
            _ => {}
        }
    }
    launches
}

fn check(path: &Path, watched: bool) {
    let source = std::fs::read_to_string(path).unwrap();
    let launches = launches(&source);
    assert!(!launches.is_empty(), "{}: no launch", path.display());
    for case in launches {
        let place = format!("{}:{}", path.display(), case.line);
        let device = Device::watched(watched);
        let linked = device.load(&source);
        let kernel =
            linked.program().kernel(&case.kernel).unwrap_or_else(|| panic!("{place}: no such kernel"));
        let mut buffers = Vec::new();
        let values: Vec<Vec<u8>> = case
            .params
            .iter()
            .map(|param| match param {
                Param::Scalar(bytes) => {
                    buffers.push(0);
                    bytes.clone()
                }
                Param::Buffer(bytes) => {
                    buffers.push(device.upload(bytes));
                    buffers.last().unwrap().to_le_bytes().to_vec()
                }
            })
            .collect();
        let params = LaunchParams {
            config: LaunchConfig { cluster: case.cluster.into(), ..LaunchConfig::new(case.grid, case.block) }
                .with_dynamic_shared_bytes(case.shared),
            cooperative: false,
            stack: case.stack,
            workers: case.workers,
            params: &pack(&linked, kernel, &values),
        };
        let outcome = device.run(&linked, kernel, &params);
        match (&outcome, &case.fault) {
            (Ok(_), None) => {}
            (Err(fault), Some((kind, line))) => {
                assert_eq!(format!("{:?}", fault.kind), *kind, "{place}: {fault}");
                if let Some(line) = line {
                    assert_eq!(fault.line, *line, "{place}: {fault}");
                }
            }
            (Err(fault), None) => panic!("{place}: {fault}"),
            (Ok(_), Some(_)) => panic!("{place}: no fault"),
        }
        let found = device
            .defects
            .lock()
            .unwrap()
            .drain(..)
            .flat_map(|group| {
                let kind = group.defect.kind;
                group.places.into_iter().map(move |(place, _)| (kind.clone(), place.ptx_line))
            })
            .collect();
        assert!(!watched || case.defects == found, "{place}: found {found:?}, expected {:?}", case.defects);
        for (index, expected) in &case.expected {
            let found = device.download(buffers[*index], expected.len());
            assert!(
                found == *expected,
                "{place}: parameter {index}\n    found {}\n expected {}",
                show(&found),
                show(expected)
            );
        }
        if let Some(prints) = &case.prints {
            assert_eq!(String::from_utf8_lossy(&device.printed.lock().unwrap()), *prints, "{place}");
        }
    }
}

/// Bytes as 32-bit words, which is what most cases deal in.
fn show(bytes: &[u8]) -> String {
    let words = bytes.chunks(4).map(|word| {
        let mut full = [0; 4];
        full[..word.len()].copy_from_slice(word);
        format!("{:x}", u32::from_le_bytes(full))
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn text_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx");
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    // What is watched is interpreted, whatever the engine.
    let watches = Engine::of_environment() != Ok(Engine::Compiled);
    let failures: Vec<String> = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .flat_map(|path| [(path, false), (path, true)])
        .filter(|(_, watched)| watches || !watched)
        .filter_map(|(path, watched)| {
            let outcome = std::panic::catch_unwind(|| check(path, watched));
            outcome.err().map(|panic| match panic.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => format!("{}: panicked", path.display()),
            })
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
