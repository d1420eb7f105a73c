//! See `fuzz/README.md`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use apex_trace::counts::{HEADER_BYTES, MAGIC, ProcessCounts, VERSION};

fuzz_target!(|input: &[u8]| {
    let mut file = Vec::with_capacity(HEADER_BYTES + input.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.resize(HEADER_BYTES, 0);
    file.extend_from_slice(input);
    let (found, problems) =
        ProcessCounts::from_bytes(Path::new("fuzz.counts"), &file).expect("the version is this one");
    // Every record takes at least its head.
    assert!((found.launches.len() + found.defects.len() + problems.len()) * 8 <= input.len() + 8);
    let mut counts = found.launches.iter().map(|launch| &launch.counted.counts);
    if let Some(mut sum) = counts.next().cloned() {
        counts.for_each(|more| sum += more);
        let _ = sum.active_threads();
    }
});
