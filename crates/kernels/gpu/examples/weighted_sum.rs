//! Adds numbers with weights from a `__constant__` table, and counts blocks in a `__device__`
//! variable: `cargo run -p apex-gpu --example weighted_sum`.

use apex_gpu::{Device, Source};

const CODE: &str = r#"
__constant__ float weights[16];
__device__ unsigned blocks_done;

// Adds up to one number for each block; a block has 256 threads.
extern "C" __global__ void weighted_sum(const float* x, float* sums, unsigned n) {
    __shared__ float partial[256];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    partial[threadIdx.x] = i < n ? weights[i % 16] * x[i] : 0.0f;
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = partial[0];
        atomicAdd(&blocks_done, 1u);
    }
}
"#;

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());
    let module = device.compile(&Source::new(CODE).name("weighted_sum.cu"))?;
    let kernel = module.kernel("weighted_sum")?;

    let weights: [f32; 16] = std::array::from_fn(|i| i as f32 / 8.0);
    module.global::<f32>("weights")?.write(&weights)?;

    let n = 100_000usize;
    let blocks = n.div_ceil(256);
    let x = device.upload(&vec![0.5f32; n])?;
    let mut sums = device.zeros::<f32>(blocks)?;
    let launch = kernel.over(n).block(256).arg(&x).arg(&mut sums).arg(n as u32);
    println!("{launch:?}");
    // SAFETY: `x` has `n` elements, `sums` one for each block of 256 threads.
    unsafe { launch.launch()? };

    let sum: f32 = sums.to_vec()?.iter().sum();
    let expected: f32 = (0..n).map(|i| 0.5 * weights[i % 16]).sum();
    let counted = module.global::<u32>("blocks_done")?.to_vec()?;
    println!("{sum}, {} blocks", counted[0]);
    assert!((sum - expected).abs() < 1e-3 * expected, "{sum} is not {expected}");
    assert_eq!(counted, [blocks as u32]);
    Ok(())
}
