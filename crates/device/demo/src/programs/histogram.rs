//! Counts bytes.

use crate::error::Result;
use crate::outcome::Outcome;
use crate::random;
use apex_driver::arguments;
use apex_driver::device::Device;
use apex_random::Random;

const COUNT: u32 = 1 << 20;
const ROUNDS: usize = 5;
const THREADS: u32 = 256;

pub fn run(device: &Device) -> Result<Outcome> {
    let values = random::skewed_bytes(&mut Random::new(5), COUNT as usize);

    let module = device.load(apex_device_code::demo::HISTOGRAM)?;
    let histogram = module.kernel("histogram")?;
    let input = device.upload(&values)?;
    let counts = device.allocate::<u32>(256)?;
    let stream = device.stream()?;
    let grid = [device.multiprocessors() * 4, 1, 1];
    for _ in 0..ROUNDS {
        counts.clear(&stream)?;
        // SAFETY: `COUNT` bytes and 256 counts, which live until the synchronisation.
        unsafe { histogram.launch(&stream, grid, [THREADS, 1, 1], arguments![&input, &counts, &COUNT])? };
    }
    stream.synchronize()?;

    let mut expected = [0u32; 256];
    values.iter().for_each(|value| expected[usize::from(*value)] += 1);
    let mut outcome = Outcome::default();
    outcome.check("the count of byte", &counts.download()?, |byte| (f64::from(expected[byte]), 0.0))?;
    Ok(outcome)
}
