//! The backward pass of every form that has one against the reference in f64, on the device that
//! there is.

mod attention_cases;
mod common;

use apex_gpu::{Buffer, Device, Stream};
use apex_kernels::{Attention, AttentionForm, Error, Gradients, Mask, Options, Saved, Shape, reference};
use attention_cases::{options, shapes};
use common::{Number, distance, random, wide};
use half::{bf16, f16};
use proptest::prelude::*;

/// The forms that have a backward pass.
fn forms(attention: &Attention) -> Vec<AttentionForm> {
    let best = attention.fastest();
    if best == AttentionForm::Flash { vec![AttentionForm::Flash] } else { vec![AttentionForm::Flash, best] }
}

/// Gradients that hold NaN.
fn poisoned<T: Number>(device: &Device, shape: &Shape) -> Gradients<T> {
    let nan = |len| device.upload(&vec![T::NAN; len]).unwrap();
    Gradients { q: nan(shape.query_elements()), k: nan(shape.key_elements()), v: nan(shape.key_elements()) }
}

/// Computes with every form, into gradients that hold NaN before, and compares with the reference.
fn check<T: Number>(shape: &Shape, options: &Options, size: f64) {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    for form in forms(&attention) {
        compare::<T>(
            &attention,
            &device,
            device.stream(),
            shape,
            &Options { form: Some(form), ..*options },
            size,
        );
    }
}

fn compare<T: Number>(
    attention: &Attention,
    device: &Device,
    stream: &Stream,
    shape: &Shape,
    options: &Options,
    size: f64,
) {
    let q = random::<T>(1, shape.query_elements(), size);
    let [k, v] = [2, 3].map(|seed| random::<T>(seed, shape.key_elements(), size));
    let given = random::<T>(4, shape.query_elements(), 1.0);
    let inputs = [&q, &k, &v].map(|values| wide(values));
    let expected = {
        let [q, k, v] = &inputs;
        reference::backward(q, k, v, &wide(&given), shape, options).unwrap()
    };
    let from_rounding = from_rounded_output(&inputs, &wide(&given), shape, options);

    let [q, k, v, given] = [&q, &k, &v, &given].map(|values| device.upload(values).unwrap());
    let done = attention.forward(&q, &k, &v, shape, &Options { form: None, ..*options }).unwrap();
    let saved = Saved { q: &q, k: &k, v: &v, output: &done.output, log_sum_exp: &done.log_sum_exp };
    let mut found = poisoned::<T>(device, shape);
    let ran = attention.backward_into(&saved, &given, &mut found, shape, options, stream);
    assert_eq!(Some(ran.unwrap()), options.form, "the form that was asked for");
    let gradients = [("Q", &found.q), ("K", &found.k), ("V", &found.v)];
    for ((name, found), (expected, rounding)) in
        gradients.into_iter().zip(expected.iter().zip(&from_rounding))
    {
        let off = distance(found.to_vec().unwrap().into_iter().map(Number::wide), expected);
        let of_it = if norm(expected) > 0.0 { norm(rounding) / norm(expected) } else { 0.0 };
        assert!(
            off < 3.0 * T::TOLERANCE * (1.0 + of_it),
            "{shape:?} {options:?}: relative error of the gradient of {name} {off}"
        );
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Returns the change of the gradients if each element of the saved output changes by its own size,
/// independently of the others. A gradient is the difference of a product with the output from
/// another one: where these are nearly equal, the rounding of the output decides, in any form.
fn from_rounded_output(
    [q, k, v]: &[Vec<f64>; 3],
    given: &[f64],
    shape: &Shape,
    options: &Options,
) -> [Vec<f64>; 3] {
    let scale = f64::from(options.scale.unwrap_or(1.0 / (shape.dim as f32).sqrt()));
    let rows = |values: &[f64], of_row: &[f64]| -> Vec<f64> {
        let scaled = values.chunks(shape.dim).zip(of_row);
        scaled.flat_map(|(row, by)| row.iter().map(move |value| value * by * scale)).collect()
    };
    let (output, _) = reference::forward(q, k, v, shape, options).unwrap();
    let products: Vec<f64> = output.iter().zip(given).map(|(output, given)| output * given).collect();
    let of_row: Vec<f64> = products.chunks(shape.dim).map(norm).collect();
    let (mean_keys, _) = reference::forward(q, k, k, shape, options).unwrap();
    let [_, _, of_keys] = reference::backward(q, k, v, &rows(q, &of_row), shape, options).unwrap();
    [rows(&mean_keys, &of_row), of_keys, vec![0.0; v.len()]]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_and_mask_in_bf16(shape in shapes(), options in options()) {
        check::<bf16>(&shape, &options, 0.5);
    }

    #[test]
    fn any_shape_and_mask_in_f16(shape in shapes(), options in options()) {
        check::<f16>(&shape, &options, 0.5);
    }
}

const SMALL: Shape = Shape { batch: 1, heads: 2, key_heads: 2, queries: 20, keys: 33, dim: 64 };

#[test]
fn tiles_that_are_just_full_and_just_not() {
    for (queries, keys) in [(8, 32), (32, 8), (9, 33), (7, 31), (1, 1), (1, 64), (64, 1)] {
        let shape = Shape { queries, keys, ..SMALL };
        check::<bf16>(&shape, &Options { mask: Mask::Causal, ..Options::default() }, 2.0);
    }
}

#[test]
fn keys_that_nobody_sees_and_rows_that_see_nothing_have_gradients_of_zero() {
    let window = Mask::Window { left: Some(2), right: Some(0) };
    for mask in [Mask::Causal, window] {
        check::<bf16>(&Shape { queries: 40, keys: 5, ..SMALL }, &Options { mask, ..Options::default() }, 2.0);
        check::<f16>(&Shape { queries: 3, keys: 50, ..SMALL }, &Options { mask, ..Options::default() }, 2.0);
    }
    check::<f16>(&Shape { keys: 0, ..SMALL }, &Options::default(), 2.0);
    check::<f16>(&Shape { queries: 0, ..SMALL }, &Options::default(), 2.0);
}

#[test]
fn heads_of_queries_that_share_keys_add_up() {
    let shape = Shape { heads: 6, key_heads: 2, batch: 2, ..SMALL };
    check::<f16>(&shape, &Options { mask: Mask::Causal, ..Options::default() }, 2.0);
}

#[test]
fn the_reference_agrees_with_differences() {
    // The derivative of sum(O * dO) by one element, as the quotient of a small step.
    let shape = Shape { batch: 1, heads: 2, key_heads: 1, queries: 3, keys: 4, dim: 64 };
    let options = Options { mask: Mask::Causal, ..Options::default() };
    let values = |seed, len| wide(&random::<f16>(seed, len, 1.0));
    let [q, given] = [1, 4].map(|seed| values(seed, shape.query_elements()));
    let [k, v] = [2, 3].map(|seed| values(seed, shape.key_elements()));
    let inputs = [q, k, v];
    let gradients =
        reference::backward(&inputs[0], &inputs[1], &inputs[2], &given, &shape, &options).unwrap();
    let sum = |inputs: &[Vec<f64>; 3]| {
        let (output, _) = reference::forward(&inputs[0], &inputs[1], &inputs[2], &shape, &options).unwrap();
        output.iter().zip(&given).map(|(output, given)| output * given).sum::<f64>()
    };
    for (which, gradient) in gradients.iter().enumerate() {
        for at in (0..gradient.len()).step_by(17) {
            let step = 1e-4;
            let moved = [step, -step].map(|step| {
                let mut inputs = inputs.clone();
                inputs[which][at] += step;
                sum(&inputs)
            });
            let slope = (moved[0] - moved[1]) / (2.0 * step);
            assert!(
                (slope - gradient[at]).abs() < 1e-7,
                "input {which}, element {at}: {slope}, not {}",
                gradient[at]
            );
        }
    }
}

#[test]
fn on_any_stream_and_after_larger_calls() {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    for (stream, queries) in streams.iter().cycle().zip([30, 3, 11, 17]) {
        let shape = Shape { queries, ..SMALL };
        for form in forms(&attention) {
            let options = Options { form: Some(form), mask: Mask::Causal, ..Options::default() };
            compare::<bf16>(&attention, &device, stream, &shape, &options, 1.0);
        }
    }
}

/// The error of a call with buffers of these lengths: of the output, its gradient, the
/// log-sum-exps, the gradient of K.
fn refused(shape: &Shape, options: &Options, lengths: [usize; 4]) -> Error {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    let zeros = |len| -> Buffer<bf16> { device.zeros(len).unwrap() };
    let [output, given, sums, of_k] = lengths;
    let (q, k) = (zeros(SMALL.query_elements()), zeros(SMALL.key_elements()));
    let (output, given, log_sum_exp) = (zeros(output), zeros(given), device.zeros(sums).unwrap());
    let saved = Saved { q: &q, k: &k, v: &k, output: &output, log_sum_exp: &log_sum_exp };
    let mut gradients = Gradients { q: zeros(q.len()), k: zeros(of_k), v: zeros(k.len()) };
    attention.backward_into(&saved, &given, &mut gradients, shape, options, device.stream()).unwrap_err()
}

#[test]
fn wrong_shapes_and_forms_are_errors_that_say_what_is_wrong() {
    let plain = Options::default();
    let (q, rows, k) = (SMALL.query_elements(), SMALL.rows(), SMALL.key_elements());
    let why = |lengths| refused(&SMALL, &plain, lengths).to_string();
    assert!(why([q - 64, q, rows, k]).starts_with("attention: the output has 2496 elements"));
    assert!(why([q, q + 1, rows, k]).starts_with("attention: the output's gradient has 2561 elements"));
    assert!(why([q, q, rows + 1, k]).starts_with("attention: the log-sum-exps have 41 elements"));
    assert!(why([q, q, rows, k - 1]).starts_with("attention: the gradient of K has 4223 elements"));
    let wrong = refused(&Shape { dim: 96, ..SMALL }, &plain, [q, q, rows, k]).to_string();
    assert!(wrong.contains("head dimensions 64, 128 and 256, not 96"), "{wrong}");
    for form in [AttentionForm::Standard, AttentionForm::Decode] {
        let error = refused(&SMALL, &Options { form: Some(form), ..plain }, [q, q, rows, k]);
        assert!(
            matches!(error, Error::Form { .. }) && error.to_string().contains("no backward pass"),
            "{error}"
        );
    }
}

#[test]
fn the_hopper_form_says_what_it_lacks() {
    let device = Device::open(0).unwrap();
    let attention = Attention::new(&device).unwrap();
    for dim in [64, 128, 256] {
        let shape = Shape { dim, ..SMALL };
        let [q, k] =
            [shape.query_elements(), shape.key_elements()].map(|len| device.zeros::<bf16>(len).unwrap());
        let log_sum_exp = device.zeros(shape.rows()).unwrap();
        let saved = Saved { q: &q, k: &k, v: &k, output: &q, log_sum_exp: &log_sum_exp };
        let options = Options { form: Some(AttentionForm::Hopper), ..Options::default() };
        let ran = attention.backward(&saved, &q, &shape, &options).map(|(_, form)| form);
        if attention.fastest() == AttentionForm::Hopper {
            assert_eq!(ran.unwrap(), AttentionForm::Hopper);
        } else {
            let why = ran.unwrap_err().to_string();
            assert!(why.contains("compute capability 9.0"), "{why}");
        }
    }
}
