//! The losses that keep a router in balance against the reference in f64, on the device that there
//! is, and the reference against differences of itself.

use apex_gpu::Device;
use apex_kernels::moe::{Auxiliary, Balance, Gate, Moe, Options, Router, Shape, reference};
use half::bf16;
use proptest::prelude::*;

use crate::common::{distance, random, wide};

const COEFFICIENTS: Auxiliary = Auxiliary { balance: 0.75, z: 0.5 };

/// Loads that could be those of a router.
fn loads(shape: &Shape) -> Vec<u32> {
    let logits = wide(&random::<bf16>(3, shape.logits(), 3.0));
    loads_of(&reference::route(&logits, None, shape, &Options::default()), shape)
}

fn loads_of(chosen: &reference::Choices, shape: &Shape) -> Vec<u32> {
    let mut loads = vec![0; shape.experts];
    chosen.experts.iter().for_each(|&expert| loads[expert as usize] += 1);
    loads
}

fn check(shape: &Shape, size: f64) {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let logits = wide(&random::<bf16>(1, shape.logits(), size));
    let before = wide(&random::<bf16>(2, shape.logits(), 0.25));
    let loads = loads(shape);
    let (expected, gradient) = reference::auxiliary(&logits, &loads, shape, &COEFFICIENTS);

    let upload = |values: &[f64]| {
        device.upload(&values.iter().map(|&value| value as f32).collect::<Vec<f32>>()).unwrap()
    };
    let (logits, mut added) = (upload(&logits), upload(&before));
    let (loads, mut losses) = (device.upload(&loads).unwrap(), upload(&[f64::NAN; 2]));
    let router = Router { logits: &logits, loads: &loads };
    moe.auxiliary_into(&router, &COEFFICIENTS, &mut losses, &mut added, shape, device.stream()).unwrap();
    for (found, expected) in losses.to_vec().unwrap().into_iter().zip(expected) {
        let off = (f64::from(found) - expected).abs();
        assert!(off <= 1e-5 * expected.abs(), "{shape:?}: loss {found}, not {expected}");
    }
    let expected: Vec<f64> =
        before.iter().zip(&gradient).map(|(before, gradient)| before + gradient).collect();
    let off = distance(added.to_vec().unwrap().into_iter().map(f64::from), &expected);
    assert!(off < 1e-5, "{shape:?}: relative error of gradients {off}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_number_of_tokens_and_experts(tokens in 0..300usize, experts in 1..70usize, seed in any::<usize>()) {
        let top_k = 1 + seed % experts.min(8);
        check(&Shape { tokens, experts, top_k, dim: 1, hidden: 1 }, 4.0);
    }
}

#[test]
fn logits_whose_exponentials_overflow_and_as_many_experts_as_there_can_be() {
    check(&Shape { tokens: 65, experts: 512, top_k: 32, dim: 1, hidden: 1 }, 500.0);
}

#[test]
fn the_reference_agrees_with_differences_of_itself() {
    let shape = Shape { tokens: 5, experts: 4, top_k: 2, dim: 1, hidden: 1 };
    let mut logits = wide(&random::<bf16>(1, shape.logits(), 3.0));
    let loads = loads(&shape);
    let loss = |logits: &[f64]| {
        let ([balance, z], _) = reference::auxiliary(logits, &loads, &shape, &COEFFICIENTS);
        f64::from(COEFFICIENTS.balance) * balance + f64::from(COEFFICIENTS.z) * z
    };
    let (_, gradient) = reference::auxiliary(&logits, &loads, &shape, &COEFFICIENTS);
    for (at, expected) in gradient.into_iter().enumerate() {
        let (step, before) = (1e-5, logits[at]);
        logits[at] = before + step;
        let above = loss(&logits);
        logits[at] = before - step;
        let below = loss(&logits);
        logits[at] = before;
        let found = (above - below) / (2.0 * step);
        assert!((found - expected).abs() < 1e-8, "logit {at}: {found}, {expected}");
    }
}

#[test]
fn a_bias_goes_up_where_loads_are_below_the_mean() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    // More experts than a block has threads; loads whose sum exceeds 32 bits; loads that are equal.
    let mixed: Vec<u32> = (0..300).map(|expert| expert * 7919 % 601).collect();
    for loads in [vec![0], vec![3, 4], vec![u32::MAX, u32::MAX, u32::MAX - 3], vec![7; 40], mixed] {
        let mut expected = wide(&random::<bf16>(4, loads.len(), 1.0));
        let bias: Vec<f32> = expected.iter().map(|&bias| bias as f32).collect();
        reference::balance_bias(&mut expected, &loads, 0.25);
        let mut bias = device.upload(&bias).unwrap();
        moe.balance_bias(&mut bias, &device.upload(&loads).unwrap(), 0.25, device.stream()).unwrap();
        let found: Vec<f64> = bias.to_vec().unwrap().into_iter().map(f64::from).collect();
        let off = distance(found.into_iter(), &expected);
        assert!(off < 1e-6, "{} experts: relative error {off}", loads.len());
    }
}

/// With any gate, experts that a router prefers lose what they have too much of.
#[test]
fn a_bias_that_follows_the_loads_evens_them_out() {
    let shape = Shape { tokens: 256, experts: 8, top_k: 2, dim: 1, hidden: 1 };
    let mut logits = wide(&random::<bf16>(1, shape.logits(), 1.0));
    logits.chunks_mut(shape.experts).for_each(|row| row[2] += 1.5);
    for gate in [Gate::Softmax, Gate::Sigmoid] {
        let options = Options { gate, ..Options::default() };
        let mut bias = vec![0.0; shape.experts];
        let peaks: Vec<f64> = (0..200)
            .map(|_| {
                let loads = loads_of(&reference::route(&logits, Some(&bias), &shape, &options), &shape);
                reference::balance_bias(&mut bias, &loads, 0.002);
                Balance::of(&loads).unwrap().peak
            })
            .collect();
        assert!(peaks[0] > 2.5, "{gate:?}: {}", peaks[0]);
        assert!(peaks[199] < 1.25, "{gate:?}: {}", peaks[199]);
    }
}

#[test]
fn buffers_of_another_size_are_refused() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let shape = Shape { tokens: 5, experts: 4, top_k: 2, dim: 1, hidden: 1 };
    let zeros = |len| device.zeros::<f32>(len).unwrap();
    for (lengths, message) in [
        ([19, 4, 2, 20], "the logits have 19 elements, and their shape [tokens 5, experts 4] needs 20"),
        ([20, 5, 2, 20], "the loads have 5 elements, and their shape [experts 4] needs 4"),
        ([20, 4, 1, 20], "the losses have 1 elements, and their shape [balance and z 2] needs 2"),
        (
            [20, 4, 2, 21],
            "the gradients of the logits have 21 elements, and their shape [tokens 5, experts 4] needs 20",
        ),
    ] {
        let [logits, loads, losses, gradient] = lengths;
        let (logits, loads) = (zeros(logits), device.zeros(loads).unwrap());
        let router = Router { logits: &logits, loads: &loads };
        let (losses, gradient) = (&mut zeros(losses), &mut zeros(gradient));
        let error = moe
            .auxiliary_into(&router, &COEFFICIENTS, losses, gradient, &shape, device.stream())
            .unwrap_err();
        assert_eq!(error.to_string(), format!("mixture of experts: {message}"));
    }
    let error = moe.balance_bias(&mut zeros(4), &device.zeros(5).unwrap(), 0.1, device.stream()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "mixture of experts: the loads have 5 elements, and their shape [experts 4] needs 4"
    );
}
