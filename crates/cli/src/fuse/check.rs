//! Executes both kernels and the joined one on the CPU device, and compares memory.
//!
//! The allocations have the recorded sizes and the same contents at the beginning: numbers from 0.5
//! to 1.5 in FP32. Kernels that cannot run on such contents are not checked; the output says so.

use anyhow::{Context, bail};
use apex_driver::DriverError;
use apex_driver::device::{Argument, Buffer, Device};
use apex_fuse::{Candidate, Given, Joined};
use ptx_fuse::{NAME, Part};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most bytes of allocations that are executed with.
const MOST_BYTES: u64 = 1 << 30;

/// The architecture of the CPU device.
const CPU_TARGET: &str = "sm_80";

/// The result of a check.
pub enum Checked {
    /// Memory is the same.
    Same,
    /// It was not executed, and why.
    Not(String),
}

/// The allocations of a check, by their numbers.
type Memory<'d> = BTreeMap<u8, Buffer<'d, u32>>;

/// Compares a joined kernel with both kernels.
///
/// # Errors
/// If memory differs, or there is no CPU device.
pub fn check(driver: &Path, candidate: &Candidate, joined: &Joined) -> anyhow::Result<Checked> {
    let mut sizes = joined.given[0].allocations.clone();
    sizes.extend(&joined.given[1].allocations);
    if sizes.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes)) > MOST_BYTES {
        return Ok(Checked::Not("not executed: its memory is larger than 1 GiB".to_owned()));
    }
    let path =
        CString::new(driver.as_os_str().as_bytes()).context("the CPU device's path has a zero byte")?;
    let device = Device::open_driver(&path).context("cannot open the CPU device")?;
    let separate = [Part::First, Part::Second].map(|part| {
        let at = usize::from(part == Part::Second);
        let count = joined.given[at].arguments.len();
        (&*joined.sources[at], &*candidate.kernels[at], (0..count).map(|place| (part, place)).collect())
    });
    let text = joined.fused.module.to_string();
    let fused = [(&*text, NAME, joined.fused.parameters.clone())];
    let results = [run(&device, joined, &sizes, &separate), run(&device, joined, &sizes, &fused)];
    match results {
        [Ok(expected), Ok(found)] if expected == found => Ok(Checked::Same),
        [Ok(_), Ok(_)] => bail!(
            "the kernel that joins {} and {} gave other bits on the CPU device: please report this as a bug",
            candidate.kernels[0],
            candidate.kernels[1]
        ),
        [Err(error), _] | [_, Err(error)] => {
            let words: Vec<String> = error.to_string().split_whitespace().map(str::to_owned).collect();
            Ok(Checked::Not(format!("not executed: {}", words.join(" "))))
        }
    }
}

/// A kernel: its PTX, its name, and where its parameters come from.
type Launched<'a> = (&'a str, &'a str, Vec<(Part, usize)>);

/// The contents of all allocations after launches of these kernels.
fn run(
    device: &Device,
    joined: &Joined,
    sizes: &BTreeMap<u8, u64>,
    kernels: &[Launched<'_>],
) -> Result<Vec<Vec<u32>>, DriverError> {
    let mut memory: Memory<'_> = BTreeMap::new();
    for (&number, &bytes) in sizes {
        memory.insert(number, device.upload(&contents(number, bytes))?);
    }
    let stream = device.default_stream();
    for (text, name, parameters) in kernels {
        let module = device.load(&for_cpu(text))?;
        let values: Vec<Vec<u8>> =
            parameters.iter().map(|&(part, place)| value(given(joined, part), place, &memory)).collect();
        let arguments: Vec<Argument<'_>> = values.iter().map(|value| Argument::from(&value[..])).collect();
        let launch = given(joined, Part::First).launch;
        // SAFETY: the arguments have the recorded kernel's types, and the memory lives until the
        // device has come to an end; the CPU device checks every access.
        unsafe { module.kernel(name)?.launch(&stream, launch.grid, launch.block, &arguments)? };
        device.synchronize()?;
    }
    memory.values().map(Buffer::download).collect()
}

/// PTX for the CPU device, which is one of an older architecture than some GPUs. An instruction
/// that needs the newer one is refused when it is loaded.
fn for_cpu(text: &str) -> String {
    let Ok(mut module) = ptx::parse(text) else { return text.to_owned() };
    module.target = vec![CPU_TARGET.into()];
    module.to_string()
}

fn given(joined: &Joined, part: Part) -> &Given {
    &joined.given[usize::from(part == Part::Second)]
}

/// A parameter's bytes, with the address of its allocation here.
fn value(given: &Given, place: usize, memory: &Memory<'_>) -> Vec<u8> {
    let Some(argument) = given.arguments.get(place) else { return Vec::new() };
    let here = argument.pointer.and_then(|(number, offset)| Some(memory.get(&number)?.address() + offset));
    here.map_or_else(|| argument.bytes.clone(), |address| address.to_le_bytes().to_vec())
}

/// Words that are numbers from 0.5 to 1.5 in FP32.
fn contents(number: u8, bytes: u64) -> Vec<u32> {
    let words = bytes.div_ceil(4);
    let word = |at: u64| {
        let bits = (at + u64::from(number) * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41;
        0x3f00_0000 | bits as u32
    };
    (0..words).map(word).collect()
}
