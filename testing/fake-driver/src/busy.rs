//! Load on the processor between two launches, as a real driver causes it: with its own code and
//! data it takes the place of everybody else's in the nearest caches, the branch predictors and the
//! first level of the TLB.
//!
//! [`work`] runs 128 out of 512 small functions, all different, others from launch to launch. Each
//! takes a branch or two on data, and all together they touch lines of 128 pages. It takes about as
//! long as a real launch, some two microseconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PAGES: usize = 128;
const WORDS_OF_PAGE: usize = 512;
/// The number of functions that a launch runs.
const STEPS: usize = 128;

static DATA: [AtomicU64; PAGES * WORDS_OF_PAGE] = [const { AtomicU64::new(0) }; PAGES * WORDS_OF_PAGE];

/// One function of many.
#[inline(never)]
fn step<const NUMBER: usize>(seed: u64) -> u64 {
    let spread = |by: u64| (seed ^ NUMBER as u64).wrapping_mul(by);
    let word = |page: usize, bits: u64| &DATA[page % PAGES * WORDS_OF_PAGE + (bits >> 58) as usize * 8];
    let near = word(NUMBER, spread(0x9e37_79b9_7f4a_7c15)).load(Relaxed);
    let far = word(NUMBER * 5 + 64, spread(0xc2b2_ae3d_27d4_eb4f));
    let mixed = near ^ spread(0xd6e8_feb8_6659_fd93);
    if mixed >> 63 == 0 {
        return mixed.rotate_left(NUMBER as u32 % 64).wrapping_add(far.load(Relaxed));
    }
    far.store(mixed, Relaxed);
    if NUMBER.is_multiple_of(3) { mixed.wrapping_mul(NUMBER as u64 | 1) } else { mixed ^ NUMBER as u64 }
}

type Step = fn(u64) -> u64;

/// The functions: one of `step` for each number that three octal digits write.
macro_rules! all {
    ($($high:literal)*) => { [$(all!(@ $high; 0 1 2 3 4 5 6 7)),*] };
    (@ $high:literal; $($middle:literal)*) => { [$(all!(@ $high, $middle; 0 1 2 3 4 5 6 7)),*] };
    (@ $high:literal, $middle:literal; $($low:literal)*) => {
        [$(step::<{ $high * 64 + $middle * 8 + $low }> as Step),*]
    };
}
static ALL: [[[Step; 8]; 8]; 8] = all!(0 1 2 3 4 5 6 7);

/// As much as a real driver does for a launch.
pub fn work() {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let seed = SEED.load(Relaxed);
    let first = seed as usize;
    let last =
        (0..STEPS).fold(seed, |value, at| ALL.as_flattened().as_flattened()[(first + at) % 512](value));
    SEED.store(last | 1, Relaxed);
}
