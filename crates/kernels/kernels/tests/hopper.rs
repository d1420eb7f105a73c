//! The Hopper forms without a GPU: on the CPU device as one of compute capability 9.0, against the
//! references in f64.
//!
//! The capability belongs to the process, so this is one test, which sets it before anything else.

mod common;

use apex_gpu::Device;
use apex_kernels::moe::{self, Moe, MoeForm};
use apex_kernels::{Attention, AttentionForm, Layout, Mask, Options, Saved, Sequences, Shape, reference};
use common::{Number, distance, random, wide};
use half::{bf16, f16};

fn attention<T: Number>(device: &Device, dim: usize, mask: Mask, [queries, keys]: [usize; 2]) {
    let shape = Shape { batch: 1, heads: 2, key_heads: 1, queries, keys, dim };
    let options = Options { form: Some(AttentionForm::Hopper), mask, ..Options::default() };
    let q = random::<T>(1, shape.query_elements(), 2.0);
    let [k, v] = [2, 3].map(|seed| random::<T>(seed, shape.key_elements(), 2.0));
    let (expected, sums) = reference::forward(&wide(&q), &wide(&k), &wide(&v), &shape, &options).unwrap();
    let [q, k, v] = [&q, &k, &v].map(|values| device.upload(values).unwrap());
    let done = Attention::new(device).unwrap().forward(&q, &k, &v, &shape, &options).unwrap();
    let off = distance(done.output.to_vec().unwrap().into_iter().map(Number::wide), &expected);
    assert!(off < T::TOLERANCE, "{shape:?} {options:?}: relative error {off}");
    for (found, expected) in done.log_sum_exp.to_vec().unwrap().into_iter().zip(sums) {
        let found = f64::from(found);
        let close = found == expected || (found - expected).abs() <= 2e-5 * (1.0 + expected.abs());
        assert!(close, "{shape:?} {options:?}: log-sum-exp {found}, not {expected}");
    }
}

/// Packed sequences, forward and backward, against the reference.
fn sequences<T: Number>(device: &Device, heads: &Shape, lengths: &[(usize, usize)], options: &Options) {
    let sequences = Sequences::new(device, heads, lengths).unwrap();
    let all = *sequences.all();
    let shapes: Vec<Shape> =
        lengths.iter().map(|&(queries, keys)| Shape { queries, keys, ..*heads }).collect();
    let [q, given] = [1, 4].map(|seed| random::<T>(seed, all.query_elements(), 0.5));
    let [k, v] = [2, 3].map(|seed| random::<T>(seed, all.key_elements(), 0.5));
    let host = [&q, &k, &v, &given].map(|values| wide(values));
    let (output, sums) =
        reference::forward_sequences(&host[0], &host[1], &host[2], &shapes, options).unwrap();
    let gradients =
        reference::backward_sequences(&host[0], &host[1], &host[2], &host[3], &shapes, options).unwrap();

    let [q, k, v, given] = [&q, &k, &v, &given].map(|values| device.upload(values).unwrap());
    let attention = Attention::new(device).unwrap();
    let done = attention.forward_sequences(&q, &k, &v, &sequences, options).unwrap();
    assert_eq!(done.form, AttentionForm::Hopper);
    let saved = Saved { q: &q, k: &k, v: &v, output: &done.output, log_sum_exp: &done.log_sum_exp };
    let (of, form) = attention.backward_sequences(&saved, &given, &sequences, options).unwrap();
    assert_eq!(form, AttentionForm::Hopper);
    for (name, found, expected, tolerance) in [
        ("O", &done.output, &output, T::TOLERANCE),
        ("dQ", &of.q, &gradients[0], 3.0 * T::TOLERANCE),
        ("dK", &of.k, &gradients[1], 3.0 * T::TOLERANCE),
        ("dV", &of.v, &gradients[2], 3.0 * T::TOLERANCE),
    ] {
        let off = distance(wide(&found.to_vec().unwrap()).into_iter(), expected);
        assert!(off < tolerance, "{lengths:?} {heads:?} {options:?}: relative error of {name} {off}");
    }
    for (found, expected) in done.log_sum_exp.to_vec().unwrap().into_iter().map(f64::from).zip(sums) {
        let is_close = found == expected || (found - expected).abs() <= 2e-5 * (1.0 + expected.abs());
        assert!(is_close, "{lengths:?} {options:?}: log-sum-exp {found}, not {expected}");
    }
}

/// What a sequence gives beside others, which hold nothing but NaN, are the bits that it gives
/// alone. The gradient of Q is summed in an order that varies.
fn sequences_among_nan(device: &Device, heads: &Shape) {
    let (attention, length) = (Attention::new(device).unwrap(), 75);
    let options = Options { mask: Mask::Causal, layout: Layout::RowsFirst, ..Options::default() };
    let compute = |lengths: &[(usize, usize)], before: usize, after: usize| {
        let values = |seed, heads: usize| {
            let nan = |rows: usize| vec![f16::NAN; rows * heads * 64];
            let own = random::<f16>(seed, length * heads * 64, 2.0);
            device.upload(&[nan(before), own, nan(after)].concat()).unwrap()
        };
        let [q, given] = [1, 4].map(|seed| values(seed, heads.heads));
        let [k, v] = [2, 3].map(|seed| values(seed, heads.key_heads));
        let sequences = Sequences::new(device, heads, lengths).unwrap();
        let done = attention.forward_sequences(&q, &k, &v, &sequences, &options).unwrap();
        let saved = Saved { q: &q, k: &k, v: &v, output: &done.output, log_sum_exp: &done.log_sum_exp };
        let (of, _) = attention.backward_sequences(&saved, &given, &sequences, &options).unwrap();
        [(&done.output, heads.heads), (&of.k, heads.key_heads), (&of.v, heads.key_heads)].map(
            |(found, heads)| found.to_vec().unwrap()[before * heads * 64..][..length * heads * 64].to_vec(),
        )
    };
    let alone = compute(&[(length, length)], 0, 0);
    assert_eq!(compute(&[(10, 10), (length, length), (40, 40)], 10, 40), alone);
}

fn experts<T: Number>(device: &Device) {
    let shape = moe::Shape { tokens: 90, experts: 4, top_k: 2, dim: 72, hidden: 40 };
    let options = moe::Options { form: Some(MoeForm::Hopper), ..moe::Options::default() };
    let scale = |inner: usize| 2.0 / (inner as f64).sqrt();
    let tokens = random::<T>(1, shape.token_elements(), 2.0);
    let logits: Vec<f32> = random::<bf16>(2, shape.logits(), 4.0).into_iter().map(f32::from).collect();
    let up = random::<T>(3, shape.up_elements(), scale(shape.dim));
    let down = random::<T>(4, shape.down_elements(), scale(shape.hidden));
    let wide_logits: Vec<f64> = logits.iter().map(|&logit| logit.into()).collect();
    let (t, u, d) = (wide(&tokens), wide(&up), wide(&down));
    let host = moe::Inputs { tokens: &t[..], logits: &wide_logits[..], bias: None, up: &u[..], down: &d[..] };
    let (expected, _) = moe::reference::forward(&host, &shape, &options).unwrap();
    let [tokens, up, down] = [&tokens, &up, &down].map(|values| device.upload(values).unwrap());
    let logits = device.upload(&logits).unwrap();
    let inputs = moe::Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let done = Moe::new(device).unwrap().forward(&inputs, &shape, &options).unwrap();
    let off = distance(done.output.to_vec().unwrap().into_iter().map(Number::wide), &expected);
    assert!(off < T::TOLERANCE, "{shape:?}: relative error {off}");
}

#[test]
fn the_cpu_device_of_9_0_executes_the_hopper_forms() {
    // SAFETY: no other thread of this process reads the environment yet: it has one test.
    unsafe { std::env::set_var("APEX_CPU_CAPABILITY", "9.0") };
    let device = Device::open(0).unwrap();
    if device.limits().compute_capability != (9, 0) {
        // A GPU is what it is.
        return assert!(!device.name().contains("CPU device"), "{}", device.name());
    }
    attention::<bf16>(&device, 64, Mask::Causal, [70, 150]);
    attention::<f16>(&device, 128, Mask::Full, [70, 150]);
    // Several tiles, of which the first begins before the first query, and warpgroups with blocks
    // of keys that they do not see, or no queries.
    attention::<bf16>(&device, 64, Mask::Causal, [200, 200]);
    attention::<bf16>(&device, 64, Mask::Causal, [100, 20]);
    attention::<f16>(&device, 64, Mask::Full, [65, 130]);
    attention::<f16>(&device, 64, Mask::Window { left: Some(30), right: Some(0) }, [100, 210]);
    attention::<bf16>(&device, 128, Mask::Causal, [130, 130]);
    attention::<bf16>(&device, 256, Mask::Causal, [70, 90]);
    let heads = Shape { batch: 1, heads: 2, key_heads: 1, queries: 0, keys: 0, dim: 64 };
    let lengths = [(70, 130), (0, 9), (5, 0), (129, 129), (33, 20)];
    let options = Options { mask: Mask::Causal, layout: Layout::RowsFirst, ..Options::default() };
    sequences::<bf16>(&device, &heads, &lengths, &options);
    let window = Mask::Window { left: Some(30), right: Some(3) };
    let options = Options { mask: window, layout: Layout::HeadsFirst, ..Options::default() };
    sequences::<f16>(&device, &heads, &lengths[..2], &options);
    let wider = Shape { heads: 1, dim: 128, ..heads };
    sequences::<bf16>(&device, &wider, &[(20, 20), (65, 130)], &Options::default());
    sequences_among_nan(&device, &heads);
    experts::<bf16>(&device);
    experts::<f16>(&device);
}
