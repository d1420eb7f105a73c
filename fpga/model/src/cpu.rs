//! The same shapes on one core of a CPU, in plain Rust that the compiler vectorizes: the peer that
//! needs no device.
//!
//! Times are those that the thread spent on a core, so that other work on the machine adds nothing
//! but the contention for caches and memory.

use apex_random::Random;
use std::hint::black_box;
use std::time::Duration;

/// Elements of a head's row.
pub const DIMENSION: usize = 64;
/// Keys whose scores are made before their values are added.
const BLOCK: usize = 64;
/// The shortest time over which calls are repeated for one sample.
const SAMPLE: Duration = Duration::from_millis(50);

/// f32 attention of one head, `length` rows of [`DIMENSION`]: online softmax over blocks of keys.
/// Keys lie transposed, element by element, so that the loop over keys is a vector loop.
pub struct Attention {
    length: usize,
    queries: Vec<f32>,
    transposed_keys: Vec<f32>,
    values: Vec<f32>,
    result: Vec<f32>,
}

impl Attention {
    /// Random inputs. The length is a multiple of 64.
    pub fn new(length: usize) -> Attention {
        assert!(length.is_multiple_of(BLOCK), "{length} is no multiple of {BLOCK}");
        let mut random = Random::named(length as u64, "cpu");
        let mut matrix = || (0..length * DIMENSION).map(|_| random.normal() as f32).collect();
        let (queries, transposed_keys, values) = (matrix(), matrix(), matrix());
        Attention { length, queries, transposed_keys, values, result: vec![0.0; length * DIMENSION] }
    }

    /// Computes the result.
    pub fn run(&mut self, causal: bool) {
        for row in 0..self.length {
            let keys = if causal { row + 1 } else { self.length };
            let mut sums = [0f32; DIMENSION];
            let (mut maximum, mut total) = (f32::NEG_INFINITY, 0f32);
            for first in (0..keys).step_by(BLOCK) {
                let seen = (keys - first).min(BLOCK);
                let mut weights = self.scores(row, first);
                let largest = weights[..seen].iter().copied().fold(maximum, f32::max);
                let shrink = (maximum - largest).exp();
                maximum = largest;
                total *= shrink;
                sums.iter_mut().for_each(|sum| *sum *= shrink);
                for (weight, value) in
                    weights[..seen].iter_mut().zip(self.values[first * DIMENSION..].chunks(DIMENSION))
                {
                    *weight = (*weight - maximum).exp();
                    total += *weight;
                    sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += *weight * value);
                }
            }
            let result = &mut self.result[row * DIMENSION..][..DIMENSION];
            result.iter_mut().zip(sums).for_each(|(result, sum)| *result = sum / total);
        }
    }

    fn scores(&self, row: usize, first: usize) -> [f32; BLOCK] {
        let mut scores = [0f32; BLOCK];
        let query = &self.queries[row * DIMENSION..][..DIMENSION];
        for (element, query) in query.iter().enumerate() {
            let keys = &self.transposed_keys[element * self.length + first..][..BLOCK];
            scores.iter_mut().zip(keys).for_each(|(score, key)| *score += query * key);
        }
        scores.map(|score| score / (DIMENSION as f32).sqrt())
    }
}

/// INT8 product of two square matrices into 32 bits. B lies transposed: rows times rows.
pub struct Product {
    size: usize,
    a: Vec<i8>,
    transposed_b: Vec<i8>,
    result: Vec<i32>,
}

impl Product {
    /// Random inputs.
    pub fn new(size: usize) -> Product {
        let mut random = Random::named(size as u64, "cpu");
        let mut matrix = || random.bytes(size * size).into_iter().map(|byte| byte as i8).collect();
        Product { size, a: matrix(), transposed_b: matrix(), result: vec![0; size * size] }
    }

    /// Computes the result.
    pub fn run(&mut self) {
        let rows = self.a.chunks(self.size).zip(self.result.chunks_mut(self.size));
        for (left, results) in rows {
            for (right, result) in self.transposed_b.chunks(self.size).zip(results) {
                let terms = left.iter().zip(right);
                *result = terms.map(|(&a, &b)| i32::from(i16::from(a) * i16::from(b))).sum();
            }
        }
    }
}

/// Microseconds of a call: samples, each the mean of as many calls as fill 50 ms.
pub fn samples(count: usize, mut call: impl FnMut()) -> Vec<f64> {
    let mut calls = 1u32;
    while time(calls, &mut call) < SAMPLE {
        calls *= 2;
    }
    (0..count).map(|_| time(calls, &mut call).as_secs_f64() * 1e6 / f64::from(calls)).collect()
}

fn time(calls: u32, call: &mut impl FnMut()) -> Duration {
    let began = core_time();
    for _ in 0..calls {
        call();
        black_box(());
    }
    core_time() - began
}

/// Time that this thread has spent on a core.
fn core_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, to which the pointer is valid.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
