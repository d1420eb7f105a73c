//! Checks and times every form of attention that the device has: `cargo run --release -p apex-kernels --example attention_forms`.
//!
//! Prints a line for each form and problem: the relative error against the reference in f64 (Frobenius norm) on a small
//! problem, and what a large one takes on a GPU, unless `--check` is given. Exits with status 1 if an error is larger than
//! the type allows.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use apex_gpu::{Device, Kind};
use apex_kernels::{Attention, Element, Form, Mask, Options, Result, Shape, reference};
use half::{bf16, f16};

trait Number: Element {
    const TYPE: &'static str;
    const TOLERANCE: f64;
    fn of(value: f32) -> Self;
    fn wide(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty, $name:literal, $tolerance:literal;)*) => { $(
        impl Number for $type {
            const TYPE: &'static str = $name;
            const TOLERANCE: f64 = $tolerance;
            fn of(value: f32) -> $type { <$type>::from_f32(value) }
            fn wide(self) -> f64 { self.to_f64() }
        }
    )* };
}

numbers! { bf16, "bf16", 5e-3; f16, "f16", 8e-4; }

fn random<T: Number>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::of((state >> 40) as f32 / (1 << 22) as f32 - 2.0)
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Relative error against the reference.
fn error<T: Number>(attention: &Attention, device: &Device, shape: &Shape, options: &Options) -> Result<f64> {
    let q = random::<T>(1, shape.query_elements());
    let [k, v] = [2, 3].map(|seed| random::<T>(seed, shape.key_elements()));
    let wide = |values: &[T]| values.iter().map(|value| value.wide()).collect::<Vec<_>>();
    let (expected, _) = reference::forward(&wide(&q), &wide(&k), &wide(&v), shape, options)?;
    let done =
        attention.forward(&device.upload(&q)?, &device.upload(&k)?, &device.upload(&v)?, shape, options)?;
    let found = done.output.download()?;
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference =
        square(&mut found.iter().zip(&expected).map(|(found, expected)| found.wide() - expected));
    Ok((difference / square(&mut expected.iter().copied())).sqrt())
}

/// Time of one call, the median of three rounds.
fn duration<T: Number>(
    attention: &Attention,
    device: &Device,
    shape: &Shape,
    options: &Options,
) -> Result<Duration> {
    let q = device.upload(&random::<T>(1, shape.query_elements()))?;
    let k = device.upload(&random::<T>(2, shape.key_elements()))?;
    let v = device.upload(&random::<T>(3, shape.key_elements()))?;
    let (mut output, mut sums) = (device.zeros(shape.query_elements())?, device.zeros(shape.rows())?);
    let stream = device.stream();
    let calls = if options.form == Some(Form::Hopper) { 10 } else { 1 };
    let mut rounds = Vec::new();
    for _ in 0..4 {
        let start = stream.record()?;
        for _ in 0..calls {
            attention.forward_into(&q, &k, &v, &mut output, &mut sums, shape, options, stream)?;
        }
        rounds.push(stream.record()?.since(&start)? / calls);
    }
    rounds.remove(0);
    rounds.sort();
    Ok(rounds[1])
}

fn table<T: Number>(attention: &Attention, device: &Device, dim: usize, timed: bool) -> Result<bool> {
    let mut right = true;
    let forms = [Form::Standard, Form::Flash, Form::Decode, Form::Hopper];
    for form in forms.into_iter().filter(|&form| form != Form::Hopper || attention.fastest() == form) {
        for mask in [Mask::Full, Mask::Causal, Mask::Window { left: Some(100), right: Some(20) }] {
            let options = Options { mask, form: Some(form), ..Options::default() };
            let rows = if timed { 400 } else { 150 };
            let small = Shape { batch: 1, heads: 2, key_heads: 1, queries: rows, keys: rows + rows / 3, dim };
            let off = error::<T>(attention, device, &small, &options)?;
            let fine = off < T::TOLERANCE;
            right &= fine;
            print!("{:4} d{dim:<3} {form:8?} {mask:?}: relative error {off:.2e}", T::TYPE);
            if timed {
                let large = Shape {
                    batch: 8,
                    heads: 2048 / dim,
                    key_heads: 2048 / dim,
                    queries: 2048,
                    keys: 2048,
                    dim,
                };
                let took = duration::<T>(attention, device, &large, &options)?;
                print!(", 8 x 2048 rows in {:.1} µs", took.as_secs_f64() * 1e6);
            }
            println!("{}", if fine { "" } else { "  WRONG" });
        }
    }
    Ok(right)
}

/// Host time of the first call of the fastest form.
fn first_call(device: &Device, dim: usize) -> Result<Duration> {
    let attention = Attention::new(device)?;
    let shape = Shape { batch: 1, heads: 1, key_heads: 1, queries: 1, keys: 1, dim };
    let q = device.zeros::<bf16>(shape.query_elements())?;
    device.synchronize()?;
    let start = Instant::now();
    attention.forward(&q, &q, &q, &shape, &Options::default())?;
    device.synchronize()?;
    Ok(start.elapsed())
}

fn main() -> Result<ExitCode> {
    let device = Device::open(0)?;
    let attention = Attention::new(&device)?;
    println!("{} ({})", device.name(), device.kind());
    let timed = *device.kind() == Kind::Gpu && !std::env::args().any(|argument| argument == "--check");
    let mut right = true;
    for dim in [64, 128, 256] {
        if timed {
            println!(
                "first call with head dimension {dim}, which loads its kernels: {:?}",
                first_call(&device, dim)?
            );
        }
        right &= table::<bf16>(&attention, &device, dim, timed)?;
        right &= table::<f16>(&attention, &device, dim, timed)?;
    }
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
