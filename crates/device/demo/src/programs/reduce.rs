//! Sums a vector: one launch leaves a partial sum for each block, a second adds those.

use crate::error::Result;
use crate::outcome::{Outcome, rounding};
use crate::random;
use apex_driver::arguments;
use apex_driver::device::Device;
use apex_random::Random;

const COUNT: u32 = (1 << 20) + 12_345;
const ROUNDS: usize = 12;
const BLOCKS: u32 = 256;
const THREADS: u32 = 256;

pub fn run(device: &Device) -> Result<Outcome> {
    let values = random::floats(&mut Random::new(3), COUNT as usize);

    let module = device.load(apex_device_code::demo::REDUCE)?;
    let reduce = module.kernel("reduce")?;
    let input = device.upload(&values)?;
    let partial = device.allocate::<f32>(BLOCKS as usize)?;
    let sum = device.allocate::<f32>(1)?;
    let stream = device.stream()?;
    for _ in 0..ROUNDS {
        // SAFETY: the inputs are as long as said, there is a partial sum for each block, and all of
        // it lives until the synchronisation.
        unsafe {
            reduce.launch(&stream, [BLOCKS, 1, 1], [THREADS, 1, 1], arguments![&input, &partial, &COUNT])?;
            reduce.launch(&stream, [1, 1, 1], [THREADS, 1, 1], arguments![&partial, &sum, &BLOCKS])?;
        }
    }
    stream.synchronize()?;

    let expected: f64 = values.iter().copied().map(f64::from).sum();
    let magnitude: f64 = values.iter().copied().map(|value| f64::from(value).abs()).sum();
    // The longest chain of additions: a thread's own elements, then both levels of the tree, in
    // both launches.
    let chain = (COUNT / (BLOCKS * THREADS) + 1 + 10 + 1 + 10) as usize;
    let mut outcome = Outcome::default();
    outcome.check("the sum", &sum.download()?, |_| (expected, rounding(chain, magnitude)))?;
    Ok(outcome)
}
