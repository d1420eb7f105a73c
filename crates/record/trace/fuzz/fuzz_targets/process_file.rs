//! See `fuzz/README.md`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use apex_trace::{Event, Process};

fuzz_target!(|input: &[u8]| {
    let file = trace_fuzz::expand(input);
    let Ok((Some(process), _)) = Process::from_bytes(Path::new("fuzz.rec"), &file) else { return };
    let mut count = 0;
    for record in process.records() {
        count += 1;
        let _ = process.clock.real_ns(record.start());
        let _ = process.clock.duration_ns(record.duration_ticks());
        if let Event::Call(call) = record.event {
            let _ = (call.class(), call.memory(), process.definitions.name(call.api));
        }
    }
    assert_eq!(count, process.record_count);
    assert_eq!(process.records_by_time().count() as u64, count);
    assert!(process.read_failure().is_none());
});
