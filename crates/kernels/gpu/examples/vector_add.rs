//! Adds two vectors on the GPU, or on the CPU device where there is none:
//! `cargo run -p apex-gpu --example vector_add`.
//!
//! The kernel is compiled from CUDA C++ when the program runs, once: the second run finds it in the
//! cache.

use apex_gpu::{Device, Source};

const CODE: &str = r#"
extern "C" __global__ void add(const float* a, const float* b, float* sum, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}
"#;

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());

    let module = device.compile(&Source::new(CODE).name("add.cu"))?;
    println!("compiled code: {:?}", module.cached());
    let add = module.kernel("add")?;

    let n = 1_000_003;
    let a: Vec<f32> = (0..n).map(|i| (i % 1013) as f32 / 7.0).collect();
    let b: Vec<f32> = (0..n).map(|i| (i % 509) as f32 / 3.0).collect();
    let (on_a, on_b) = (device.upload(&a)?, device.upload(&b)?);
    let mut sum = device.zeros::<f32>(n)?;
    // SAFETY: the kernel reads `n` elements of both and writes as many.
    unsafe { add.over(n).arg(&on_a).arg(&on_b).arg(&mut sum).arg(n as u32).launch()? };

    let sum = sum.to_vec()?;
    let wrong = (0..n).filter(|&i| sum[i] != a[i] + b[i]).count();
    println!("{n} sums, {wrong} of them wrong");
    assert_eq!(wrong, 0);
    Ok(())
}
