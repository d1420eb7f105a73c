//! Fits a line by gradient descent; a step is a graph that is captured once and launched for each
//! batch: `cargo run -p apex-gpu --example training`.

use apex_gpu::{Device, Tensor};

const BATCH: usize = 64;
const FEATURES: usize = 4;
const TRUTH: [f32; FEATURES] = [2.0, -1.0, 0.5, 3.0];

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());

    // Where each batch is put, and what is learned. They stay where they are: the graph uses them.
    let mut inputs = Tensor::<f32>::zeros(&device, (BATCH, FEATURES))?;
    let mut targets = Tensor::<f32>::zeros(&device, (BATCH, 1))?;
    let mut weights = Tensor::<f32>::zeros(&device, (FEATURES, 1))?;

    // One step: nothing is computed here, all of it becomes a graph.
    let (step, loss) = device.stream().capture(|| {
        let error = (inputs.matmul(&weights)? - &targets)?;
        let loss = error.mul(&error)?.mean(0)?;
        let gradient = (inputs.transpose(0, 1)?.matmul(&error)? * (2.0 / BATCH as f32))?;
        weights.copy_from(&(&weights - (gradient * 0.1)?)?)?;
        Ok(loss)
    })?;
    println!("{step:?}");

    let mut first = None;
    for batch in 0..200 {
        let (x, y) = batch_of(batch);
        inputs.copy_from(&Tensor::new(&device, &x, (BATCH, FEATURES))?)?;
        targets.copy_from(&Tensor::new(&device, &y, (BATCH, 1))?)?;
        step.launch()?;
        if batch % 50 == 0 {
            let loss = loss.item()?;
            println!("batch {batch:>3}: loss {loss:.6}");
            first.get_or_insert(loss);
        }
    }
    let (learned, loss) = (weights.to_vec()?, loss.item()?);
    println!("learned {learned:.3?}, loss {loss:.6}");
    assert!(learned.iter().zip(TRUTH).all(|(found, truth)| (found - truth).abs() < 0.01));
    assert!(loss < first.unwrap_or_default());
    Ok(())
}

/// Inputs that look random, and what the truth makes of them.
fn batch_of(number: usize) -> (Vec<f32>, Vec<f32>) {
    let mut state = number as u32 + 1;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let inputs: Vec<f32> = (0..BATCH * FEATURES).map(|_| random()).collect();
    let target = |row: &[f32]| row.iter().zip(TRUTH).map(|(x, w)| x * w).sum();
    let targets = inputs.chunks(FEATURES).map(target).collect();
    (inputs, targets)
}
