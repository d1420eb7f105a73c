//! Shared parts of the tests. They run on a GPU where there is one.

#![allow(dead_code, reason = "each test uses a part")]

use apex_random::Random;

/// The device under test.
pub fn device() -> apex_gpu::Device {
    apex_gpu::Device::open(0).expect("a GPU, or the CPU device")
}

/// Numbers that look random, the same in every run.
pub fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || random.bits() >> 20)
}
