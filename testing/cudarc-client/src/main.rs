//! A Rust program that uses CUDA through cudarc, for the tests of real clients: NVRTC compiles at
//! run time, and the driver loads, launches, copies on two streams and times with events.

use apex_random::Random;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use std::error::Error;

const SOURCE: &str = r#"
extern "C" __global__ void distances(const float* points, float* out, int n, float x, float y) {
    extern __shared__ float partial[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float distance = i < n ? hypotf(points[2 * i] - x, points[2 * i + 1] - y) : 0.0f;
    if (i < n) out[i] = distance;
    partial[threadIdx.x] = distance;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) out[n + blockIdx.x] = partial[0];
}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    const POINTS: usize = 3000;
    const THREADS: usize = 128;
    let blocks = POINTS.div_ceil(THREADS);
    let context = CudaContext::new(0)?;
    let options = CompileOptions { arch: Some("compute_80"), ..CompileOptions::default() };
    let kernel = context.load_module(compile_ptx_with_opts(SOURCE, options)?)?.load_function("distances")?;

    let mut random = Random::new(17);
    let points: Vec<f32> = (0..2 * POINTS).map(|_| random.signed()).collect();
    let streams = [context.default_stream(), context.new_stream()?];
    let shared = (THREADS * size_of::<f32>()) as u32;
    let config = LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (THREADS as u32, 1, 1),
        shared_mem_bytes: shared,
    };
    let mut launches = 0;
    for (stream, centre) in streams.iter().zip([(0.25f32, -0.5f32), (-0.75, 0.125)]) {
        let device_points = stream.clone_htod(&points)?;
        let mut out = stream.alloc_zeros::<f32>(POINTS + blocks)?;
        let count = POINTS as i32;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&device_points).arg(&mut out).arg(&count).arg(&centre.0).arg(&centre.1);
        // SAFETY: the kernel's parameters are two pointers, an int and two floats, and `out` has
        // room for all it writes.
        unsafe { launch.launch(config) }?;
        launches += 1;
        let found = stream.clone_dtoh(&out)?;
        stream.synchronize()?;
        let mut farthest = vec![0.0f64; blocks];
        for (index, point) in points.chunks(2).enumerate() {
            let right = f64::from(point[0] - centre.0).hypot(f64::from(point[1] - centre.1));
            farthest[index / THREADS] = farthest[index / THREADS].max(right);
            if (f64::from(found[index]) - right).abs() > 1e-6 {
                return Err(format!("distance {index} is {}, not {right}", found[index]).into());
            }
        }
        for (block, right) in farthest.iter().enumerate() {
            let found = f64::from(found[POINTS + block]);
            if (found - right).abs() > 1e-6 {
                return Err(format!("the farthest of block {block} is at {found}, not {right}").into());
            }
        }
    }
    println!("{} distances right, {launches} kernels launched", 2 * POINTS);
    Ok(())
}
