//! Random input: the same in every run, or other input for as long as `PTX_FUZZ_SECONDS` says.
//!
//! The harness prints the seed of a failure; `PTX_FUZZ_SEED` repeats it.

use apex_random::Random;
use std::time::{Duration, Instant};

/// The generator, and the moment until which a test goes on.
pub fn fuzz() -> (Random, Instant) {
    let number = |name: &str| -> Option<u64> {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, but it is {text:?}")))
    };
    let seconds = number("PTX_FUZZ_SECONDS");
    let seed = number("PTX_FUZZ_SEED").unwrap_or_else(|| seconds.map_or(1, |_| std::process::id().into()));
    println!("PTX_FUZZ_SEED={seed}");
    (Random::new(seed), Instant::now() + Duration::from_secs(seconds.unwrap_or(0)))
}
