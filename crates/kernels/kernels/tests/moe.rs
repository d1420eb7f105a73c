//! Every form of a mixture of experts against the reference in f64, on the device that there is:
//! the CPU device in CI, where sizes are small.

mod common;
mod moe_cases;
mod moe_expert_choice;
mod moe_losses;

use apex_gpu::{Buffer, Device, Stream};
use apex_kernels::Error;
use apex_kernels::moe::{Drops, Gate, Inputs, Moe, MoeForm, Options, Shape, reference};
use common::{Number, distance, wide};
use half::{bf16, f16};
use moe_cases::{Layer, forms, options, poisoned, shapes};
use proptest::prelude::*;

/// Computes with every form, into outputs that hold anything but results before, and compares with
/// the reference.
fn compare<T: Number>(moe: &Moe, stream: &Stream, shape: &Shape, options: &Options, layer: &Layer<T>) {
    let (logits, bias) = layer.router();
    let (tokens, up, down) = (wide(&layer.tokens), wide(&layer.up), wide(&layer.down));
    let bias = bias.as_deref();
    let host = Inputs { tokens: &tokens[..], logits: &logits[..], bias, up: &up[..], down: &down[..] };
    let (output, chosen) = reference::forward(&host, shape, options).unwrap();

    let device = Device::open(0).unwrap();
    let [tokens, up, down] =
        [&layer.tokens, &layer.up, &layer.down].map(|values| device.upload(values).unwrap());
    let logits = device.upload(&layer.logits).unwrap();
    let bias = layer.bias.as_ref().map(|bias| device.upload(bias).unwrap());
    for form in forms(moe, shape) {
        let options = Options { form: Some(form), ..*options };
        let bias = bias.as_ref();
        let inputs = Inputs { tokens: &tokens, logits: &logits, bias, up: &up, down: &down };
        let mut found = device.upload(&vec![T::NAN; shape.token_elements()]).unwrap();
        let mut routing = poisoned(&device, shape);
        let ran = moe.forward_into(&inputs, &mut found, &mut routing, shape, &options, stream);
        assert_eq!(ran.unwrap(), form, "the form that was asked for");

        let off = distance(found.to_vec().unwrap().into_iter().map(Number::wide), &output);
        assert!(off < T::TOLERANCE, "{shape:?} {options:?}: relative error {off}");
        assert_eq!(routing.experts.to_vec().unwrap(), chosen.experts, "{shape:?} {options:?}");
        let weights = routing.weights.to_vec().unwrap();
        let off = distance(weights.into_iter().map(f64::from), &chosen.weights);
        assert!(off < 1e-6, "{shape:?} {options:?}: relative error of weights {off}");
        let mut loads = vec![0; shape.experts];
        chosen.experts.iter().for_each(|&expert| loads[expert as usize] += 1);
        assert_eq!(routing.loads.to_vec().unwrap(), loads, "{shape:?} {options:?}");
        let dropped = chosen.taken.iter().filter(|&&taken| !taken).count();
        let nothing_left = chosen.taken.chunks(shape.top_k).filter(|its| !its.contains(&true)).count();
        let drops = [dropped as u32, nothing_left as u32];
        assert_eq!(routing.drops.to_vec().unwrap(), [drops], "{shape:?} {options:?}");
    }
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
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

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
fn all_tokens_choose_the_same_expert_and_the_others_are_empty() {
    // Tiles of 128 rows that are just full and just not, and chunks of 64 tokens too.
    for tokens in [1, 63, 64, 65, 127, 128, 129, 257] {
        let shape = Shape { tokens, top_k: 1, dim: 8, hidden: 8, ..SMALL };
        let mut layer = Layer::<bf16>::random(&shape);
        layer.logits.chunks_mut(4).for_each(|row| row.copy_from_slice(&[0.0, 1.0, 5.0, 2.0]));
        check_layer(&shape, &Options::default(), &layer);
    }
}

#[test]
fn an_expert_takes_the_first_tokens_that_chose_it() {
    // Capacities that end within a chunk of 64 tokens, or a tile of 128 rows, and with it.
    let shape = Shape { tokens: 200, top_k: 1, dim: 8, hidden: 8, ..SMALL };
    let mut layer = Layer::<bf16>::random(&shape);
    layer.logits.chunks_mut(4).for_each(|row| row.copy_from_slice(&[0.0, 1.0, 5.0, 2.0]));
    for capacity in [1, 63, 64, 65, 127, 128, 129, 199, 200, usize::MAX] {
        check_layer(&shape, &Options { capacity: Some(capacity), ..Options::default() }, &layer);
    }
}

#[test]
fn a_token_that_no_expert_takes_has_an_output_of_zero() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let shape = Shape { tokens: 5, experts: 2, top_k: 1, dim: 3, hidden: 2 };
    let ones = |len| device.upload(&vec![bf16::ONE; len]).unwrap();
    let (tokens, up, down) =
        (ones(shape.token_elements()), ones(shape.up_elements()), ones(shape.down_elements()));
    let logits = device.upload(&[1.0f32, 0.0].repeat(5)).unwrap();
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let options = Options { capacity: Some(shape.capacity(0.8)), ..Options::default() };
    let done = moe.forward(&inputs, &shape, &options).unwrap();
    let zero: Vec<bool> = done.output.to_vec().unwrap().iter().map(|&x| x == bf16::ZERO).collect();
    assert_eq!(zero, [[false; 6].to_vec(), [true; 9].to_vec()].concat());
    assert_eq!(done.routing.loads.to_vec().unwrap(), [5, 0], "what tokens chose");
    let drops = Drops::of(done.routing.drops.to_vec().unwrap()[0], &shape).unwrap();
    assert_eq!(drops, Drops { choices: 0.6, tokens: 0.6 });
}

#[test]
fn as_many_experts_and_choices_as_there_can_be() {
    let shape = Shape { tokens: 70, experts: 512, top_k: 32, dim: 3, hidden: 2 };
    check::<bf16>(&shape, &Options::default());
    check_random::<bf16>(&shape, &Options { gate: Gate::Sigmoid, ..Options::default() }, true);
    let tight = Options { capacity: Some(shape.capacity(0.5)), ..Options::default() };
    check::<f16>(&Shape { experts: 33, top_k: 31, ..shape }, &tight);
}

#[test]
fn equal_logits_choose_the_first_experts_and_nan_the_last() {
    let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
    let shape = Shape { tokens: 4, top_k: 3, ..SMALL };
    let mut layer = Layer::<bf16>::random(&shape);
    let rows = [[1.0, 1.0, 1.0, 1.0], [0.0, 2.0, -0.0, 2.0], [nan, 0.0, 1.0, 0.0], [low, low, 3.0, low]];
    layer.logits = rows.concat();
    check_layer(&shape, &Options { gate: Gate::Sigmoid, ..Options::default() }, &layer);
    layer.logits.truncate(2 * 4);
    let shape = Shape { tokens: 2, ..shape };
    layer.tokens.truncate(shape.token_elements());
    check_layer(&shape, &Options::default(), &layer);
}

#[test]
fn logits_whose_exponentials_overflow() {
    let mut layer = Layer::<f16>::random(&SMALL);
    layer.logits.iter_mut().for_each(|logit| *logit *= 1e4);
    for gate in [Gate::Softmax, Gate::Sigmoid] {
        for renormalise in [false, true] {
            check_layer(&SMALL, &Options { gate, renormalise, ..Options::default() }, &layer);
        }
    }
}

#[test]
fn one_layer_after_another_on_any_stream() {
    // What a larger call leaves in the workspace must not show in a smaller one, nor the other way
    // round.
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    for (tokens, stream) in [30, 150, 5, 90].into_iter().zip(streams.iter().cycle()) {
        let shape = Shape { tokens, ..SMALL };
        compare(&moe, stream, &shape, &Options::default(), &Layer::<bf16>::random(&shape));
    }
}

#[test]
fn no_tokens_load_no_expert() {
    check::<bf16>(&Shape { tokens: 0, ..SMALL }, &Options::default());
}

/// Returns the refusal of tensors of zeros with these numbers of elements: tokens, logits, weights.
fn refused(shape: &Shape, lengths: [usize; 4]) -> String {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let [tokens, up, down] =
        [lengths[0], lengths[2], lengths[3]].map(|len| -> Buffer<bf16> { device.zeros(len).unwrap() });
    let logits = device.zeros(lengths[1]).unwrap();
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let error = moe.forward(&inputs, shape, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn a_capacity_of_nothing_and_a_bias_of_another_size_are_refused() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let zeros = |len| -> Buffer<bf16> { device.zeros(len).unwrap() };
    let (tokens, up, down) =
        (zeros(SMALL.token_elements()), zeros(SMALL.up_elements()), zeros(SMALL.down_elements()));
    let (logits, bias) = (device.zeros(SMALL.logits()).unwrap(), device.zeros(5).unwrap());
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let nothing = Options { capacity: Some(0), ..Options::default() };
    let refused = |inputs, options| moe.forward(inputs, &SMALL, options).unwrap_err().to_string();
    assert_eq!(
        refused(&inputs, &nothing),
        "mixture of experts: an expert's capacity must be at least 1, not 0"
    );
    assert_eq!(
        refused(&Inputs { bias: Some(&bias), ..inputs }, &Options::default()),
        "mixture of experts: the biases have 5 elements, and their shape [experts 4] needs 4"
    );
}

#[test]
fn wrong_shapes_are_errors_that_say_what_is_wrong() {
    let right = [SMALL.token_elements(), SMALL.logits(), SMALL.up_elements(), SMALL.down_elements()];
    for (wrong, message) in [
        (Shape { experts: 0, ..SMALL }, "there are kernels for 1 to 512 experts, not 0"),
        (Shape { experts: 513, ..SMALL }, "there are kernels for 1 to 512 experts, not 513"),
        (Shape { top_k: 0, ..SMALL }, "a token of 4 experts can choose 1 to 4 of them, not 0"),
        (Shape { top_k: 5, ..SMALL }, "a token of 4 experts can choose 1 to 4 of them, not 5"),
        (Shape { dim: 0, ..SMALL }, "dim must be 1 to 131072, not 0"),
        (Shape { hidden: 1 << 18, ..SMALL }, "hidden must be 1 to 131072, not 262144"),
        (
            Shape { tokens: usize::MAX, ..SMALL },
            "18446744073709551615 tokens that choose 2 experts each make more than 67108864 rows; split the tokens",
        ),
    ] {
        assert_eq!(refused(&wrong, right), format!("mixture of experts: {message}"));
    }
    for (at, message) in [
        "the tokens have 481 elements, and their shape [tokens 20, dim 24] needs 480",
        "the logits have 81 elements, and their shape [tokens 20, experts 4] needs 80",
        "the up weights have 3073 elements, and their shape [experts 4, gate and up 2, hidden 16, dim 24] needs 3072",
        "the down weights have 1537 elements, and their shape [experts 4, dim 24, hidden 16] needs 1536",
    ]
    .into_iter()
    .enumerate()
    {
        let mut lengths = right;
        lengths[at] += 1;
        assert_eq!(refused(&SMALL, lengths), format!("mixture of experts: {message}"));
    }
}

#[test]
fn a_form_that_the_device_or_the_shape_lacks_is_refused() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let forward = |shape: &Shape| {
        let zeros = |len| -> Buffer<bf16> { device.zeros(len).unwrap() };
        let (tokens, up, down) =
            (zeros(shape.token_elements()), zeros(shape.up_elements()), zeros(shape.down_elements()));
        let logits = device.zeros(shape.logits()).unwrap();
        let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
        moe.forward(&inputs, shape, &Options { form: Some(MoeForm::Hopper), ..Options::default() })
    };
    let odd = forward(&Shape { dim: 12, ..SMALL }).unwrap_err();
    assert!(matches!(odd, Error::Form { .. }), "{odd:?}");
    assert!(odd.to_string().ends_with("dim 12 or hidden 16 is no multiple of 8"), "{odd}");
    if device.limits().compute_capability == (9, 0) {
        assert_eq!(forward(&SMALL).unwrap().form, MoeForm::Hopper);
    } else {
        assert!(forward(&SMALL).unwrap_err().to_string().contains("it needs compute capability 9.0"));
        assert_eq!(moe.form_for(&SMALL), MoeForm::Portable);
    }
}
