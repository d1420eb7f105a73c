//! Checks and times every form of attention that the device has: `cargo run --release -p
//! apex-kernels --example attention_forms`.
//!
//! Prints a line for each form and problem, forward and backward: the relative error against the
//! reference in f64 (Frobenius norm; backward that of the worst gradient) on a small problem, and
//! what a large one takes on a GPU, unless `--check` is given. Exits with status 1 if an error is
//! larger than the type allows.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use apex_gpu::{Device, Kind};
use apex_kernels::{
    Attention, AttentionForm, Element, Gradients, Mask, Options, Result, Saved, Shape, reference,
};
use apex_random::Random;
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
    let mut random = Random::new(seed);
    let next = || T::of(2.0 * random.signed());
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
    Ok(distance(&done.output.to_vec()?, &expected))
}

/// Relative distance in the Frobenius norm.
fn distance<T: Number>(found: &[T], expected: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = square(&mut found.iter().zip(expected).map(|(found, expected)| found.wide() - expected));
    (difference / square(&mut expected.iter().copied())).sqrt()
}

/// Relative error of the worst gradient against the reference.
fn backward_error<T: Number>(
    attention: &Attention,
    device: &Device,
    shape: &Shape,
    options: &Options,
) -> Result<f64> {
    let [q, given] = [1, 4].map(|seed| random::<T>(seed, shape.query_elements()));
    let [k, v] = [2, 3].map(|seed| random::<T>(seed, shape.key_elements()));
    let wide = |values: &[T]| values.iter().map(|value| value.wide()).collect::<Vec<_>>();
    let expected = reference::backward(&wide(&q), &wide(&k), &wide(&v), &wide(&given), shape, options)?;
    let (q, k, v) = (device.upload(&q)?, device.upload(&k)?, device.upload(&v)?);
    let done = attention.forward(&q, &k, &v, shape, &Options { form: None, ..*options })?;
    let saved = Saved { q: &q, k: &k, v: &v, output: &done.output, log_sum_exp: &done.log_sum_exp };
    let (found, _) = attention.backward(&saved, &device.upload(&given)?, shape, options)?;
    let found = [found.q.to_vec()?, found.k.to_vec()?, found.v.to_vec()?];
    let off = found.iter().zip(&expected).map(|(found, expected)| distance(found, expected));
    Ok(off.fold(0.0, f64::max))
}

/// Time of one call, the median of three rounds.
fn timed(device: &Device, calls: u32, mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    let stream = device.stream();
    let mut rounds = Vec::new();
    for _ in 0..4 {
        let start = stream.record()?;
        for _ in 0..calls {
            call()?;
        }
        rounds.push(stream.record()?.since(&start)? / calls);
    }
    rounds.remove(0);
    rounds.sort();
    Ok(rounds[1])
}

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
    let calls = if options.form == Some(AttentionForm::Hopper) { 10 } else { 1 };
    timed(device, calls, || {
        attention.forward_into(&q, &k, &v, &mut output, &mut sums, shape, options, device.stream())?;
        Ok(())
    })
}

fn backward_duration<T: Number>(
    attention: &Attention,
    device: &Device,
    shape: &Shape,
    options: &Options,
) -> Result<Duration> {
    let q = device.upload(&random::<T>(1, shape.query_elements()))?;
    let k = device.upload(&random::<T>(2, shape.key_elements()))?;
    let v = device.upload(&random::<T>(3, shape.key_elements()))?;
    let done = attention.forward(&q, &k, &v, shape, &Options { form: None, ..*options })?;
    let saved = Saved { q: &q, k: &k, v: &v, output: &done.output, log_sum_exp: &done.log_sum_exp };
    let zeros = |len| device.zeros::<T>(len);
    let mut gradients = Gradients { q: zeros(q.len())?, k: zeros(k.len())?, v: zeros(v.len())? };
    let calls = if options.form == Some(AttentionForm::Hopper) { 10 } else { 1 };
    timed(device, calls, || {
        attention.backward_into(&saved, &q, &mut gradients, shape, options, device.stream())?;
        Ok(())
    })
}

const MASKS: [Mask; 3] = [Mask::Full, Mask::Causal, Mask::Window { left: Some(100), right: Some(20) }];

fn table<T: Number>(attention: &Attention, device: &Device, dim: usize, timed: bool) -> Result<bool> {
    let mut right = true;
    let rows = if timed { 400 } else { 150 };
    let small = Shape { batch: 1, heads: 2, key_heads: 1, queries: rows, keys: rows + rows / 3, dim };
    let large = Shape { batch: 8, heads: 2048 / dim, key_heads: 2048 / dim, queries: 2048, keys: 2048, dim };
    let mut line = |what: String, off: f64, took: Option<Duration>, tolerance: f64| {
        print!("{:4} d{dim:<3} {what}: relative error {off:.2e}", T::TYPE);
        if let Some(took) = took {
            print!(", 8 x 2048 rows in {:.1} µs", took.as_secs_f64() * 1e6);
        }
        println!("{}", if off < tolerance { "" } else { "  WRONG" });
        right &= off < tolerance;
    };
    let forms = [AttentionForm::Standard, AttentionForm::Flash, AttentionForm::Decode, AttentionForm::Hopper];
    for form in forms.into_iter().filter(|&form| form != AttentionForm::Hopper || attention.fastest() == form)
    {
        for mask in MASKS {
            let options = Options { mask, form: Some(form), ..Options::default() };
            let off = error::<T>(attention, device, &small, &options)?;
            let took = timed.then(|| duration::<T>(attention, device, &large, &options)).transpose()?;
            line(format!("{form:8?} {mask:?}"), off, took, T::TOLERANCE);
        }
    }
    for form in [AttentionForm::Flash, AttentionForm::Hopper]
        .into_iter()
        .filter(|&form| form == AttentionForm::Flash || attention.fastest() == form)
    {
        for mask in MASKS {
            let options = Options { mask, form: Some(form), ..Options::default() };
            let off = backward_error::<T>(attention, device, &small, &options)?;
            let took =
                timed.then(|| backward_duration::<T>(attention, device, &large, &options)).transpose()?;
            // The output was rounded before its product with the gradient.
            line(format!("{form:8?} {mask:?} backward"), off, took, 3.0 * T::TOLERANCE);
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
