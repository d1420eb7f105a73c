//! A product of matrices, by cuBLAS where there is one:
//! `cargo run --release -p apex-gpu --example matrix_product -- 1000`.

use std::time::Instant;

use apex_gpu::{Device, Tensor};

fn main() -> apex_gpu::Result<()> {
    let side = std::env::args().nth(1).and_then(|side| side.parse().ok()).unwrap_or(200);
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());

    let values = |seed: usize| -> Vec<f32> {
        (0..side * side).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
    };
    let (a, b) = (values(1), values(2));
    let (on_a, on_b) = (Tensor::new(&device, &a, [side, side])?, Tensor::new(&device, &b, [side, side])?);
    println!("multiplied by {}", on_a.matmul_backend());
    let c = on_a.matmul(&on_b)?.to_vec()?; // the first time loads what it needs

    let start = Instant::now();
    on_a.matmul(&on_b)?;
    device.synchronize()?;
    println!("{side} x {side}: {:.3} ms (measured, once)", start.elapsed().as_secs_f64() * 1e3);

    // Some cells against the same sums in f64.
    let mut worst = 0.0f64;
    for cell in (0..side * side).step_by(side * side / 97 + 1) {
        let (row, column) = (cell / side, cell % side);
        let product = |k: usize| f64::from(a[row * side + k]) * f64::from(b[k * side + column]);
        let exact: f64 = (0..side).map(product).sum();
        worst = worst.max((f64::from(c[cell]) - exact).abs());
    }
    println!("largest difference to f64: {worst:.2e}");
    assert!(worst < 1e-6 * side as f64);
    Ok(())
}
