//! Multiplies matrices whose sizes are not multiples of the tile.

use crate::error::Result;
use crate::outcome::{Outcome, rounding};
use crate::random;
use apex_driver::arguments;
use apex_driver::device::Device;
use apex_random::Random;

const ROWS: u32 = 381;
const COLUMNS: u32 = 310;
const INNER: u32 = 250;
const LAUNCHES: usize = 4;
/// As in the kernel.
const TILE: u32 = 16;

pub fn run(device: &Device) -> Result<Outcome> {
    let mut random = Random::new(4);
    let (a, b) = (
        random::floats(&mut random, (ROWS * INNER) as usize),
        random::floats(&mut random, (INNER * COLUMNS) as usize),
    );

    let module = device.load(apex_device_code::demo::MATMUL)?;
    let matmul = module.kernel("matmul")?;
    let (on_device_a, on_device_b) = (device.upload(&a)?, device.upload(&b)?);
    let product = device.allocate::<f32>((ROWS * COLUMNS) as usize)?;
    let stream = device.stream()?;
    let grid = [COLUMNS.div_ceil(TILE), ROWS.div_ceil(TILE), 1];
    for _ in 0..LAUNCHES {
        // SAFETY: three matrices of these sizes, which live until the synchronisation.
        unsafe {
            matmul.launch(
                &stream,
                grid,
                [TILE, TILE, 1],
                arguments![&on_device_a, &on_device_b, &product, &ROWS, &COLUMNS, &INNER],
            )?;
        }
    }
    stream.synchronize()?;

    let mut outcome = Outcome::default();
    outcome.check("the product", &product.download()?, |index| {
        let (row, column) = (index / COLUMNS as usize, index % COLUMNS as usize);
        let terms = (0..INNER as usize)
            .map(|i| f64::from(a[row * INNER as usize + i]) * f64::from(b[i * COLUMNS as usize + column]));
        let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + f64::abs(term)));
        (sum, rounding(INNER as usize, magnitude))
    })?;
    Ok(outcome)
}
