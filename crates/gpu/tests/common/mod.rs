//! What the tests share. They run on a GPU where there is one.

#![allow(dead_code, reason = "each test uses a part")]

/// The device under test.
pub fn device() -> apex_gpu::Device {
    apex_gpu::Device::open(0).expect("a GPU, or the CPU device")
}

/// Numbers that look random, the same in every run.
pub fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20
    })
}
