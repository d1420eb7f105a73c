//! The losses that keep a router in balance against the reference in f64, on the device that there
//! is, and the reference against differences of itself.

use apex_gpu::Device;
use apex_kernels::moe::{Auxiliary, Moe, Router, Shape, reference};
use half::bf16;
use proptest::prelude::*;

use crate::common::{distance, random, wide};

const COEFFICIENTS: Auxiliary = Auxiliary { balance: 0.75, z: 0.5 };

/// Loads that could be those of a router.
fn loads(shape: &Shape) -> Vec<u32> {
    let logits = wide(&random::<bf16>(3, shape.logits(), 3.0));
    let mut loads = vec![0; shape.experts];
    let chosen = reference::route(&logits, shape, &Default::default());
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
    for (found, expected) in losses.download().unwrap().into_iter().zip(expected) {
        let off = (f64::from(found) - expected).abs();
        assert!(off <= 1e-5 * expected.abs(), "{shape:?}: loss {found}, not {expected}");
    }
    let expected: Vec<f64> =
        before.iter().zip(&gradient).map(|(before, gradient)| before + gradient).collect();
    let off = distance(added.download().unwrap().into_iter().map(f64::from), &expected);
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
}
