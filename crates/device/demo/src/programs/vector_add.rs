//! Adds two vectors.

use super::blocks;
use crate::error::Result;
use crate::outcome::Outcome;
use crate::random;
use apex_driver::arguments;
use apex_driver::device::Device;
use apex_random::Random;

const COUNT: u32 = 1 << 20;
const LAUNCHES: usize = 12;
const THREADS: u32 = 256;

pub fn run(device: &Device) -> Result<Outcome> {
    let mut random = Random::new(1);
    let (a, b) = (random::floats(&mut random, COUNT as usize), random::floats(&mut random, COUNT as usize));

    let module = device.load(apex_device_code::demo::VECTOR_ADD)?;
    let vector_add = module.kernel("vector_add")?;
    let (on_device_a, on_device_b) = (device.upload(&a)?, device.upload(&b)?);
    let sum = device.allocate::<f32>(COUNT as usize)?;
    let stream = device.stream()?;
    for _ in 0..LAUNCHES {
        // SAFETY: three vectors of `COUNT` floats, which live until the synchronisation, and their
        // length.
        unsafe {
            vector_add.launch(
                &stream,
                blocks(COUNT, THREADS),
                [THREADS, 1, 1],
                arguments![&on_device_a, &on_device_b, &sum, &COUNT],
            )?;
        }
    }
    stream.synchronize()?;

    let mut outcome = Outcome::default();
    outcome.check("the sum", &sum.download()?, |i| (f64::from(a[i] + b[i]), 0.0))?;
    Ok(outcome)
}
