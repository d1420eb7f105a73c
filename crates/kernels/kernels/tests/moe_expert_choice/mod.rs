//! Layers whose experts choose against the reference in f64, forward and backward, in every form
//! that the device has, and the reference against differences of its own forward pass.

use apex_gpu::{Device, Stream};
use apex_kernels::moe::{ExpertChoice, ExpertOptions, Gate, Gradients, Inputs, Moe, Shape, reference};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::common::{Number, distance, random, wide};
use crate::moe_cases::{Layer, forms, shapes};

/// Results of a backward pass on a device have been rounded twice more than those of a forward
/// pass.
const LOOSER: f64 = 2.0;

/// A layer in which no expert's choice depends on rounding: of a score that is barely not chosen,
/// the token's logits are others.
fn layer<T: Number>(shape: &Shape, options: &ExpertOptions) -> Layer<T> {
    let mut layer = Layer::<T>::random(shape);
    let mut close = true;
    while close && options.gate == Gate::Softmax {
        close = false;
        let (logits, _) = layer.router();
        let all = ExpertOptions { capacity: Some(shape.tokens.max(1)), ..*options };
        let scores = reference::expert_choices(&logits, shape, &all).weights;
        let capacity = options.capacity.unwrap_or(shape.capacity(1.0));
        for its in scores.chunks(shape.tokens.max(1)).filter(|its| its.len() > capacity) {
            let mut order: Vec<usize> = (0..shape.tokens).collect();
            order.sort_by(|&a, &b| its[b].total_cmp(&its[a]));
            let (last, next) = (its[order[capacity - 1]], its[order[capacity]]);
            if last > next && last - next < 1e-6 * last {
                let row = &mut layer.logits[order[capacity] * shape.experts..][..shape.experts];
                row.iter_mut().enumerate().for_each(|(expert, logit)| *logit += 0.01 * expert as f32);
                close = true;
            }
        }
    }
    layer
}

/// Computes with every form, into buffers that hold anything but results before, and compares with
/// the reference.
fn compare<T: Number>(moe: &Moe, stream: &Stream, shape: &Shape, options: &ExpertOptions, layer: &Layer<T>) {
    let of_output = random::<T>(5, shape.token_elements(), 1.0);
    let (logits, _) = layer.router();
    let (tokens, up, down) = (wide(&layer.tokens), wide(&layer.up), wide(&layer.down));
    let host = Inputs { tokens: &tokens[..], logits: &logits[..], bias: None, up: &up[..], down: &down[..] };
    let (output, chosen) = reference::expert_choice(&host, shape, options).unwrap();
    let expected = reference::expert_choice_backward(&host, &wide(&of_output), shape, options).unwrap();
    let mut loads = vec![0; shape.tokens];
    chosen.tokens.iter().for_each(|&token| loads[token as usize] += 1);

    let device = Device::open(0).unwrap();
    let upload = |values: &Vec<T>| device.upload(values).unwrap();
    let [tokens, up, down, of_output] = [&layer.tokens, &layer.up, &layer.down, &of_output].map(upload);
    let logits = device.upload(&layer.logits).unwrap();
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    for form in forms(moe, shape) {
        let options = ExpertOptions { form: Some(form), ..*options };
        let nan = |len| device.upload(&vec![T::NAN; len]).unwrap();
        let mut found = nan(shape.token_elements());
        let mut choice = ExpertChoice::saving(&device, shape, &options).unwrap();
        choice.tokens = device.upload(&vec![u32::MAX; choice.tokens.len()]).unwrap();
        choice.weights = device.upload(&vec![f32::NAN; choice.weights.len()]).unwrap();
        choice.loads = device.upload(&vec![u32::MAX; shape.tokens]).unwrap();
        assert_eq!(moe.expert_choice(&inputs, &mut found, &mut choice, stream).unwrap(), form);
        let check = |what: &str, found: Vec<f64>, expected: &[f64], most: f64| {
            let off = distance(found.into_iter(), expected);
            assert!(off < most, "{what}, {shape:?} {options:?}: relative error {off}");
        };
        assert_eq!(choice.tokens.to_vec().unwrap(), chosen.tokens, "{shape:?} {options:?}");
        assert_eq!(choice.loads.to_vec().unwrap(), loads, "{shape:?} {options:?}");
        let floats = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
        check("weights", floats(choice.weights.to_vec().unwrap()), &chosen.weights, 1e-6);
        check("output", wide(&found.to_vec().unwrap()), &output, T::TOLERANCE);

        let mut gradients = Gradients {
            tokens: nan(shape.token_elements()),
            logits: device.upload(&vec![f32::NAN; shape.logits()]).unwrap(),
            up: nan(shape.up_elements()),
            down: nan(shape.down_elements()),
        };
        let ran = moe.expert_choice_backward(&inputs, &choice, &of_output, &mut gradients, stream);
        assert_eq!(ran.unwrap(), form);
        let most = LOOSER * T::TOLERANCE;
        check("tokens", wide(&gradients.tokens.to_vec().unwrap()), &expected.tokens, most);
        check("up", wide(&gradients.up.to_vec().unwrap()), &expected.up, most);
        check("down", wide(&gradients.down.to_vec().unwrap()), &expected.down, most);
        // A softmax has differences of them, in which errors remain.
        let most = if shape.experts == 1 { f64::INFINITY } else { 4.0 * most };
        check("logits", floats(gradients.logits.to_vec().unwrap()), &expected.logits, most);
    }
}

fn check<T: Number>(shape: &Shape, options: &ExpertOptions) {
    let device = Device::open(0).unwrap();
    let layer = layer::<T>(shape, options);
    compare(&Moe::new(&device).unwrap(), device.stream(), shape, options, &layer);
}

fn options() -> impl Strategy<Value = ExpertOptions> {
    let gate = prop::sample::select(vec![Gate::Softmax, Gate::Sigmoid]);
    (gate, prop::option::of(1..160usize)).prop_map(|(gate, capacity)| ExpertOptions {
        gate,
        capacity,
        form: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_and_gate_in_bf16(shape in shapes(), options in options()) {
        check::<bf16>(&shape, &options);
    }

    #[test]
    fn any_shape_and_gate_in_f16(shape in shapes(), options in options()) {
        check::<f16>(&shape, &options);
    }
}

const SMALL: Shape = Shape { tokens: 20, experts: 4, top_k: 2, dim: 24, hidden: 16 };
const SIGMOID: ExpertOptions = ExpertOptions { gate: Gate::Sigmoid, capacity: None, form: None };

#[test]
fn more_tokens_than_a_block_selects_from_at_once() {
    // Blocks of 1024 threads select, and blocks of 256 list; tiles have 128 rows.
    for tokens in [255, 257, 1023, 1025] {
        let shape = Shape { tokens, top_k: 1, dim: 3, hidden: 2, ..SMALL };
        check::<bf16>(&shape, &SIGMOID);
    }
}

#[test]
fn equal_scores_are_of_the_first_tokens_and_nan_of_the_last() {
    let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
    let shape = Shape { tokens: 6, dim: 3, hidden: 2, ..SMALL };
    let logits = [
        // Zeros of either sign have one score.
        [1.0, 0.0, 0.0, nan],
        [1.0, -0.0, 2.0, 3.0],
        [1.0, 0.0, 2.0, nan],
        [1.0, 4.0, 2.0, low],
        [1.0, 0.0, 2.0, 1.0],
        [1.0, 9.0, low, 1.0],
    ];
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let zeros = |len| device.zeros::<bf16>(len).unwrap();
    let (tokens, up, down) =
        (zeros(shape.token_elements()), zeros(shape.up_elements()), zeros(shape.down_elements()));
    let logits = device.upload(&logits.concat()).unwrap();
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let options = ExpertOptions { capacity: Some(3), ..SIGMOID };
    let mut choice = ExpertChoice::new(&device, &shape, &options).unwrap();
    let mut output = zeros(shape.token_elements());
    moe.expert_choice(&inputs, &mut output, &mut choice, device.stream()).unwrap();
    assert_eq!(choice.tokens.to_vec().unwrap(), [0, 1, 2, 0, 3, 5, 1, 2, 3, 1, 4, 5]);
}

#[test]
fn as_many_experts_as_there_can_be_and_tokens_that_most_of_them_choose() {
    let shape = Shape { tokens: 40, experts: 512, top_k: 32, dim: 3, hidden: 2 };
    check::<f16>(&shape, &ExpertOptions { capacity: Some(33), ..SIGMOID });
    check::<f16>(&shape, &ExpertOptions::default());
}

#[test]
fn one_pass_after_another_on_any_stream() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    for (tokens, stream) in [30, 150, 5, 1, 0].into_iter().zip(streams.iter().cycle()) {
        let shape = Shape { tokens, ..SMALL };
        compare(&moe, stream, &shape, &SIGMOID, &layer::<bf16>(&shape, &SIGMOID));
    }
}

/// The reference's gradients are what its forward pass changes by.
#[test]
fn the_reference_agrees_with_differences_of_its_forward_pass() {
    let shape = Shape { tokens: 5, experts: 3, top_k: 1, dim: 4, hidden: 3 };
    let of_output = wide(&random::<f16>(5, shape.token_elements(), 1.0));
    for gate in [Gate::Softmax, Gate::Sigmoid] {
        let options = ExpertOptions { gate, ..ExpertOptions::default() };
        let layer = Layer::<f16>::random(&shape);
        let mut values = [wide(&layer.tokens), layer.router().0, wide(&layer.up), wide(&layer.down)];
        fn host(values: &[Vec<f64>; 4]) -> Inputs<'_, [f64], [f64]> {
            let [tokens, logits, up, down] = values;
            Inputs { tokens, logits, bias: None, up, down }
        }
        let loss = |values: &[Vec<f64>; 4]| -> f64 {
            let (output, _) = reference::expert_choice(&host(values), &shape, &options).unwrap();
            output.iter().zip(&of_output).map(|(output, gradient)| output * gradient).sum()
        };
        let Gradients { tokens, logits, up, down } =
            reference::expert_choice_backward(&host(&values), &of_output, &shape, &options).unwrap();
        crate::moe_cases::differences(&mut values, &[tokens, logits, up, down], loss);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let device = Device::open(0).unwrap();
    let moe = Moe::new(&device).unwrap();
    let refused = |capacity| {
        let options = ExpertOptions { capacity: Some(capacity), ..SIGMOID };
        ExpertChoice::<bf16>::new(&device, &Shape { tokens: 1 << 25, ..SMALL }, &options)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(0), "mixture of experts: an expert's capacity must be at least 1, not 0");
    assert_eq!(
        refused(usize::MAX),
        "mixture of experts: 4 experts that choose 33554432 tokens each make more than 67108864 rows; split the tokens"
    );

    let zeros = |len| device.zeros::<bf16>(len).unwrap();
    let (tokens, up, down) =
        (zeros(SMALL.token_elements()), zeros(SMALL.up_elements()), zeros(SMALL.down_elements()));
    let (logits, bias) = (device.zeros(SMALL.logits()).unwrap(), device.zeros(4).unwrap());
    let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    let (mut output, mut gradients) = (zeros(480), Gradients::new(&device, &SMALL).unwrap());
    let nothing = "mixture of experts: no forward pass has saved anything for a backward pass; Moe::expert_choice does, with ExpertChoice::saving";
    let mut backward = |choice: &ExpertChoice<bf16>, of_output| {
        let gradients = &mut gradients;
        moe.expert_choice_backward(&inputs, choice, &zeros(of_output), gradients, device.stream())
            .unwrap_err()
            .to_string()
    };
    let mut choice = ExpertChoice::saving(&device, &SMALL, &SIGMOID).unwrap();
    assert_eq!(backward(&choice, 480), nothing, "no forward pass has filled it");
    assert_eq!(
        backward(&choice, 481),
        "mixture of experts: the output's gradients have 481 elements, and their shape [tokens 20, dim 24] needs 480"
    );
    let biased = Inputs { bias: Some(&bias), ..inputs };
    let error = moe.expert_choice(&biased, &mut output, &mut choice, device.stream()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "mixture of experts: a bias changes nothing where experts choose; leave it out"
    );
    let mut choice = ExpertChoice::new(&device, &SMALL, &SIGMOID).unwrap();
    moe.expert_choice(&inputs, &mut output, &mut choice, device.stream()).unwrap();
    assert_eq!(backward(&choice, 480), nothing, "it saves nothing");
}
