//! A program with every fault that a report should name, and with correct results.
//!
//! Each fault is one that real programs have: blocks that are not a multiple of a warp, grids that
//! leave most of the device idle, allocation inside loops, asynchronous copies of pageable
//! memory, a synchronisation after every launch, thousands of launches that each do nearly
//! nothing, everything in the default stream.

use super::blocks;
use crate::error::Result;
use crate::outcome::{Outcome, rounding};
use crate::random;
use apex_driver::arguments;
use apex_driver::device::{Device, Module};
use apex_random::Random;

pub fn run(device: &Device) -> Result<Outcome> {
    let module = device.load(apex_device_code::demo::BAD)?;
    let mut outcome = Outcome::default();
    ragged_blocks_in_fresh_memory(device, &module, &mut outcome)?;
    tiny_launches(device, &module, &mut outcome)?;
    one_block_for_everything(device, &module, &mut outcome)?;
    strided_reads(device, &module, &mut outcome)?;
    Ok(outcome)
}

/// Blocks of 33 threads, memory allocated and freed in each round, pageable memory copied
/// "asynchronously", and a synchronisation behind every call.
fn ragged_blocks_in_fresh_memory(device: &Device, module: &Module<'_>, outcome: &mut Outcome) -> Result {
    const COUNT: u32 = 10_000;
    const ROUNDS: usize = 60;
    const FACTOR: f32 = 0.999;
    let scale = module.kernel("scale")?;
    let stream = device.default_stream();
    let original = random::floats(&mut Random::new(8), COUNT as usize);
    let mut values = original.clone();
    for _ in 0..ROUNDS {
        let fresh = device.allocate::<f32>(COUNT as usize)?;
        // SAFETY: `COUNT` floats on both sides, and a synchronisation before anybody touches them
        // again.
        unsafe {
            fresh.copy_from(&values, &stream)?;
            scale.launch(
                &stream,
                blocks(COUNT, 33),
                [33, 1, 1],
                arguments![&fresh, &FACTOR, &0u32, &COUNT],
            )?;
            stream.synchronize()?;
            fresh.copy_to(&mut values, &stream)?;
            stream.synchronize()?;
        }
    }
    outcome.check("the scaled vector", &values, |i| {
        let expected = f64::from(original[i]) * f64::from(FACTOR).powi(ROUNDS as i32);
        (expected, rounding(ROUNDS, f64::from(original[i]).abs()))
    })
}

/// A vector scaled a hundred elements at a time: one block of 100 threads to a launch.
fn tiny_launches(device: &Device, module: &Module<'_>, outcome: &mut Outcome) -> Result {
    const PIECE: u32 = 100;
    const PIECES: u32 = 2_000;
    const COUNT: u32 = PIECE * PIECES;
    let scale = module.kernel("scale")?;
    let stream = device.default_stream();
    let original = random::floats(&mut Random::new(9), COUNT as usize);
    let vector = device.upload(&original)?;
    for piece in 0..PIECES {
        let offset = piece * PIECE;
        // SAFETY: `COUNT` floats, which live until they are downloaded.
        unsafe {
            scale.launch(&stream, [1, 1, 1], [PIECE, 1, 1], arguments![&vector, &2.0f32, &offset, &COUNT])?;
        }
    }
    outcome.check("the doubled vector", &vector.download()?, |i| (2.0 * f64::from(original[i]), 0.0))
}

/// A sum by a single block, whose shared memory is far larger than it needs.
fn one_block_for_everything(device: &Device, module: &Module<'_>, outcome: &mut Outcome) -> Result {
    const COUNT: u32 = 200_000;
    const THREADS: u32 = 256;
    let sum_in_one_block = module.kernel("sum_in_one_block")?;
    let stream = device.default_stream();
    let values = random::floats(&mut Random::new(10), COUNT as usize);
    let (input, sum) = (device.upload(&values)?, device.allocate::<f32>(1)?);
    for _ in 0..5 {
        // SAFETY: `COUNT` floats and one result, which live until the synchronisation.
        unsafe {
            sum_in_one_block.launch(&stream, [1, 1, 1], [THREADS, 1, 1], arguments![&input, &sum, &COUNT])?
        };
        device.synchronize()?;
    }
    let expected: f64 = values.iter().copied().map(f64::from).sum();
    let magnitude: f64 = values.iter().copied().map(|value| f64::from(value).abs()).sum();
    let chain = (COUNT.div_ceil(THREADS) + THREADS) as usize;
    outcome.check("the sum", &sum.download()?, |_| (expected, rounding(chain, magnitude)))
}

/// A transposition whose neighbouring threads read whole rows apart.
fn strided_reads(device: &Device, module: &Module<'_>, outcome: &mut Outcome) -> Result {
    const ROWS: u32 = 500;
    const COLUMNS: u32 = 300;
    let transpose = module.kernel("transpose_reading_columns")?;
    let stream = device.default_stream();
    let original = random::floats(&mut Random::new(11), (ROWS * COLUMNS) as usize);
    let input = device.upload(&original)?;
    let output = device.allocate::<f32>(original.len())?;
    for _ in 0..5 {
        // SAFETY: two matrices of these sizes, which live until the output is downloaded.
        unsafe {
            transpose.launch(
                &stream,
                blocks(ROWS * COLUMNS, 100),
                [100, 1, 1],
                arguments![&input, &output, &ROWS, &COLUMNS],
            )?;
        }
        stream.synchronize()?;
    }
    outcome.check("the transposed matrix", &output.download()?, |i| {
        let (row, column) = (i / ROWS as usize, i % ROWS as usize);
        (f64::from(original[column * COLUMNS as usize + row]), 0.0)
    })
}
