//! Tunes the block and the values for each thread of a kernel with `#define`s:
//! `cargo run --release -p apex-gpu --example tuned [COUNT]`.

use apex_gpu::{Device, Error, Source};
use apex_search::{Ask, Invalid, Options, Outcome, Parameter, Results, Space, tune};

const CODE: &str = r#"
extern "C" __global__ void __launch_bounds__(BLOCK) scale(float* x, float by, unsigned n) {
    unsigned first = blockIdx.x * BLOCK * EACH + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        unsigned i = first + k * BLOCK;
        if (i < n) x[i] *= by;
    }
}
"#;

/// Launches of a configuration that are timed.
const RUNS: usize = 5;

fn main() -> apex_gpu::Result<()> {
    let device = Device::open(0)?;
    println!("{}: {}", device.name(), device.kind());
    let parameters =
        vec![Parameter::new("BLOCK", [64, 128, 256, 512, 1024]), Parameter::new("EACH", [1, 2, 4, 8])];
    let space = Space::new(parameters, &["BLOCK * EACH <= 4096"]).expect("a space");
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1 << 16);
    let mut x = device.upload(&vec![1.0f32; count])?;

    let mut measure = |ask: Ask| {
        let times = times(&device, &space, ask.number, &mut x);
        Ok(times.map_or_else(|error| Outcome::Failed(Invalid::Runtime, error.to_string()), Outcome::Times))
    };
    let options = Options { original: Some(0), ..Options::for_space(&space) };
    let found = tune(&space, &options, &mut Results::default(), &mut measure);
    let (best, milliseconds) = found.best.expect("a configuration that runs");
    println!("{}: {milliseconds:.4} ms (measured), {:?}", space.describe(best), found.ratio);
    Ok(())
}

/// The times of some launches of a configuration, in milliseconds.
fn times(
    device: &Device,
    space: &Space,
    number: apex_search::Number,
    x: &mut apex_gpu::Buffer<f32>,
) -> Result<Vec<f64>, Error> {
    let values = space.values(number);
    let defines = space.parameters().iter().zip(&values);
    let source = defines.fold(Source::new(CODE).name("scale.cu"), |source, (parameter, value)| {
        source.option(format!("-D{}={value}", parameter.name))
    });
    let scale = device.compile(&source)?.kernel("scale")?;
    let [block, each] = [0, 1].map(|at| values[at].number().expect("an integer") as usize);
    let count = x.len();
    let mut times = Vec::new();
    // The first launch loads the code.
    for run in 0..=RUNS {
        let before = device.stream().record()?;
        let launch = scale.launch([count.div_ceil(block * each) as u32, 1, 1], [block as u32, 1, 1]);
        // SAFETY: the kernel accesses the first `count` elements of `x`, which it has.
        unsafe { launch.arg(&mut *x).arg(1.0f32).arg(count as u32).launch()? };
        let after = device.stream().record()?;
        after.synchronize()?;
        if run > 0 {
            times.push((after.since(&before)?.as_secs_f64() * 1e3).max(1e-6));
        }
    }
    Ok(times)
}
