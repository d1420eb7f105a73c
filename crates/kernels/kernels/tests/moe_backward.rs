//! The backward pass of a mixture of experts against the reference in f64, in every form that the
//! device has, and the reference against differences of its own forward pass.

mod common;
mod moe_cases;

use apex_gpu::{Device, Stream};
use apex_kernels::Error;
use apex_kernels::moe::{Forward, Gate, Gradients, Inputs, Moe, Options, Saved, Shape, reference};
use common::{Number, distance, random, wide};
use half::{bf16, f16};
use moe_cases::{Layer, forms, options, poisoned, shapes};
use proptest::prelude::*;

/// Results on a device have been rounded twice more than those of a forward pass.
const LOOSER: f64 = 2.0;

fn compare<T: Number>(moe: &Moe, stream: &Stream, shape: &Shape, options: &Options, layer: &Layer<T>) {
    let of_output = random::<T>(5, shape.token_elements(), 1.0);
    let (logits, bias) = layer.router();
    let (tokens, up, down) = (wide(&layer.tokens), wide(&layer.up), wide(&layer.down));
    let bias = bias.as_deref();
    let host = Inputs { tokens: &tokens[..], logits: &logits[..], bias, up: &up[..], down: &down[..] };
    let wide_output = wide(&of_output);
    let expected = reference::backward(&host, &wide_output, shape, options).unwrap();

    let device = Device::open(0).unwrap();
    let upload = |values: &Vec<T>| device.upload(values).unwrap();
    let [tokens, up, down, of_output] = [&layer.tokens, &layer.up, &layer.down, &of_output].map(upload);
    let logits = device.upload(&layer.logits).unwrap();
    let bias = layer.bias.as_ref().map(|bias| device.upload(bias).unwrap());
    let bias = bias.as_ref();
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias, up: &up, down: &down };
    for form in forms(moe, shape) {
        let options = Options { form: Some(form), ..*options };
        let mut output = device.zeros(shape.token_elements()).unwrap();
        let mut routing = poisoned(&device, shape);
        let mut saved = Saved::new(&device).unwrap();
        moe.forward_saving_into(&inputs, &mut output, &mut routing, &mut saved, shape, &options, stream)
            .unwrap();
        let nan = |len| device.upload(&vec![T::NAN; len]).unwrap();
        let mut found = Gradients {
            tokens: nan(shape.token_elements()),
            logits: device.upload(&vec![f32::NAN; shape.logits()]).unwrap(),
            up: nan(shape.up_elements()),
            down: nan(shape.down_elements()),
        };
        let forward = Forward { inputs: &inputs, routing: &routing, saved: &saved };
        let ran = moe.backward_into(&forward, &of_output, &mut found, Some(form), stream).unwrap();
        assert_eq!(ran, form, "the form that was asked for");
        let check = |what: &str, found: Vec<f64>, expected: &[f64]| {
            let off = distance(found.into_iter(), expected);
            assert!(off < LOOSER * T::TOLERANCE, "{what}, {shape:?} {options:?}: relative error {off}");
        };
        check("tokens", wide(&found.tokens.to_vec().unwrap()), &expected.tokens);
        check("up", wide(&found.up.to_vec().unwrap()), &expected.up);
        check("down", wide(&found.down.to_vec().unwrap()), &expected.down);
        // Gradients of logits are differences of those of weights, and their error is one of these.
        let found: Vec<f64> = found.logits.to_vec().unwrap().into_iter().map(f64::from).collect();
        let zeros = vec![0.0; found.len()];
        let off = distance(found.iter().zip(&expected.logits).map(|(a, b)| a - b), &zeros);
        let size = distance(weight_gradients(&host, &wide_output, shape, &options).into_iter(), &zeros);
        assert!(off <= LOOSER * T::TOLERANCE * size, "logits, {shape:?} {options:?}: {off}, of {size}");
    }
}

/// The gradients of the weights of what tokens chose, which depend on no gate: those of logits,
/// divided by the slope of a gate that is easy to divide by.
fn weight_gradients(
    inputs: &Inputs<'_, [f64], [f64]>,
    of_output: &[f64],
    shape: &Shape,
    options: &Options,
) -> Vec<f64> {
    let options = Options { gate: Gate::Sigmoid, renormalise: false, ..*options };
    let gradients = reference::backward(inputs, of_output, shape, &options).unwrap();
    let slope = |logit: f64| 1.0 / ((1.0 + (-logit).exp()) * (1.0 + logit.exp()));
    gradients.logits.iter().zip(inputs.logits).map(|(gradient, &logit)| gradient / slope(logit)).collect()
}

fn check<T: Number>(shape: &Shape, options: &Options) {
    check_layer(shape, options, &Layer::<T>::random(shape));
}

fn check_random<T: Number>(shape: &Shape, options: &Options, biased: bool) {
    let layer = Layer::<T>::random(shape);
    check_layer(shape, options, &if biased { layer.biased(shape, options.gate) } else { layer });
}

fn check_layer<T: Number>(shape: &Shape, options: &Options, layer: &Layer<T>) {
    let device = Device::open(0).unwrap();
    compare(&Moe::new(&device).unwrap(), device.stream(), shape, options, layer);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_and_gate_in_bf16(shape in shapes(), options in options(), biased in any::<bool>()) {
        check_random::<bf16>(&shape, &options, biased);
    }

    #[test]
    fn any_shape_and_gate_in_f16(shape in shapes(), options in options(), biased in any::<bool>()) {
        check_random::<f16>(&shape, &options, biased);
    }
}

const SMALL: Shape = Shape { tokens: 20, experts: 4, top_k: 2, dim: 24, hidden: 16 };

#[test]
fn the_smallest_layers() {
    let one = Shape { tokens: 1, experts: 1, top_k: 1, dim: 1, hidden: 1 };
    for shape in [one, Shape { tokens: 1, ..SMALL }, Shape { experts: 1, top_k: 1, ..SMALL }] {
        check::<bf16>(&shape, &Options::default());
    }
}

#[test]
fn one_expert_has_all_rows_and_the_others_have_gradients_of_zero() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    // Steps of 64 rows and tiles of 128 that are just full and just not.
    for tokens in [1, 63, 64, 65, 129] {
        let shape = Shape { tokens, top_k: 1, dim: 8, hidden: 8, ..SMALL };
        let mut layer = Layer::<bf16>::random(&shape);
        layer.logits.chunks_mut(4).for_each(|row| row.copy_from_slice(&[0.0, 1.0, 5.0, 2.0]));
        compare(&moe, device.stream(), &shape, &Options::default(), &layer);
    }
}

#[test]
fn what_experts_do_not_take_has_gradients_of_zero() {
    // Most tokens have nothing left.
    let shape = Shape { tokens: 70, top_k: 1, dim: 8, hidden: 8, ..SMALL };
    let mut layer = Layer::<bf16>::random(&shape);
    layer.logits.chunks_mut(4).for_each(|row| row.copy_from_slice(&[0.0, 1.0, 5.0, 2.0]));
    for renormalise in [false, true] {
        check_layer(&shape, &Options { renormalise, capacity: Some(3), ..Options::default() }, &layer);
    }
}

#[test]
fn one_layer_after_another_on_any_stream() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    for (tokens, stream) in [30, 150, 5].into_iter().zip(streams.iter().cycle()) {
        let shape = Shape { tokens, ..SMALL };
        compare(&moe, stream, &shape, &Options::default(), &Layer::<bf16>::random(&shape));
    }
}

#[test]
fn no_tokens_leave_weights_with_gradients_of_zero() {
    check::<bf16>(&Shape { tokens: 0, ..SMALL }, &Options::default());
}

/// The reference's gradients are what its forward pass changes by.
#[test]
fn the_reference_agrees_with_differences_of_its_forward_pass() {
    let shape = Shape { tokens: 3, experts: 4, top_k: 2, dim: 5, hidden: 3 };
    for gate in [Gate::Softmax, Gate::Sigmoid] {
        let layer = Layer::<f16>::random(&shape);
        for layer in [Layer::<f16>::random(&shape), layer.biased(&shape, gate)] {
            for (renormalise, capacity) in [(false, None), (true, None), (false, Some(1)), (true, Some(1))] {
                gradients_are_differences(
                    &shape,
                    &Options { gate, renormalise, capacity, form: None },
                    &layer,
                );
            }
        }
    }
}

fn gradients_are_differences(shape: &Shape, options: &Options, layer: &Layer<f16>) {
    let (logits, bias) = layer.router();
    let bias = bias.as_deref();
    let mut values = [wide(&layer.tokens), logits, wide(&layer.up), wide(&layer.down)];
    let of_output = wide(&random::<f16>(5, shape.token_elements(), 1.0));
    let loss = |values: &[Vec<f64>; 4]| -> f64 {
        let [tokens, logits, up, down] = values;
        let inputs = Inputs { tokens: &tokens[..], logits: &logits[..], bias, up: &up[..], down: &down[..] };
        let (output, _) = reference::forward(&inputs, shape, options).unwrap();
        output.iter().zip(&of_output).map(|(output, gradient)| output * gradient).sum()
    };
    let [tokens, logits, up, down] = &values;
    let host = Inputs { tokens: &tokens[..], logits: &logits[..], bias, up: &up[..], down: &down[..] };
    let Gradients { tokens, logits, up, down } =
        reference::backward(&host, &of_output, shape, options).unwrap();
    moe_cases::differences(&mut values, &[tokens, logits, up, down], loss);
}

#[test]
fn what_was_not_saved_or_has_another_size_is_refused() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let zeros = |len| device.zeros::<bf16>(len).unwrap();
    let (tokens, up, down) =
        (zeros(SMALL.token_elements()), zeros(SMALL.up_elements()), zeros(SMALL.down_elements()));
    let logits = device.zeros(SMALL.logits()).unwrap();
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let (done, saved) = moe.forward_saving(&inputs, &SMALL, &Options::default()).unwrap();
    let refused = |saved, of_output| {
        let forward = Forward { inputs: &inputs, routing: &done.routing, saved };
        let error = moe.backward(&forward, &zeros(of_output), None).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error:?}");
        error.to_string()
    };
    let nothing = Saved::new(&device).unwrap();
    assert_eq!(
        refused(&nothing, SMALL.token_elements()),
        "mixture of experts: no forward pass has saved anything for a backward pass; Moe::forward_saving does"
    );
    assert_eq!(
        refused(&saved, 481),
        "mixture of experts: the output's gradients have 481 elements, and their shape [tokens 20, dim 24] needs 480"
    );
}
