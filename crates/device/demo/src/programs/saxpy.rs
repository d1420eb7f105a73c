//! y = alpha x + y, over and over, with a grid that fits the device.

use crate::error::Result;
use crate::outcome::{Outcome, rounding};
use crate::random;
use apex_driver::arguments;
use apex_driver::device::Device;
use apex_random::Random;

const COUNT: u32 = 1 << 20;
const LAUNCHES: usize = 15;
const THREADS: u32 = 256;
const ALPHA: f32 = 0.75;

pub fn run(device: &Device) -> Result<Outcome> {
    let mut random = Random::new(2);
    let (x, y) = (random::floats(&mut random, COUNT as usize), random::floats(&mut random, COUNT as usize));

    let module = device.load(apex_device_code::demo::SAXPY)?;
    let saxpy = module.kernel("saxpy")?;
    let (on_device_x, on_device_y) = (device.upload(&x)?, device.upload(&y)?);
    let stream = device.stream()?;
    let grid = [device.multiprocessors() * 8, 1, 1];
    for _ in 0..LAUNCHES {
        // SAFETY: two vectors of `COUNT` floats, which live until the synchronisation, and their
        // length.
        unsafe {
            saxpy.launch(
                &stream,
                grid,
                [THREADS, 1, 1],
                arguments![&ALPHA, &on_device_x, &on_device_y, &COUNT],
            )?;
        }
    }
    stream.synchronize()?;

    let mut outcome = Outcome::default();
    outcome.check("y", &on_device_y.download()?, |i| {
        let step = f64::from(ALPHA) * f64::from(x[i]);
        let expected = f64::from(y[i]) + LAUNCHES as f64 * step;
        // Each of the steps is one rounding of a value no larger than the largest on the way.
        (expected, rounding(LAUNCHES, f64::from(y[i]).abs() + LAUNCHES as f64 * step.abs()))
    })?;
    Ok(outcome)
}
