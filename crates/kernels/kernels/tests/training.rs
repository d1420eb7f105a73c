//! Embeddings, AdamW, and the graphs of losses and norms with their gradients, against the
//! references in f64.

#[path = "common/mod.rs"]
mod common;

use apex_gpu::{Device, Number as OfTensors};
use apex_kernels::fusion::{ElementType, Fused, Graph, Tensor, View, forms, reference as graphs};
use apex_kernels::training::{AdamW, Embedding, Parameter, Rates, reference};
use common::{Number, distance, random, wide};
use half::{bf16, f16};
use proptest::prelude::*;

/// An embedding and its gradient, in buffers that hold NaN before.
fn embedding<T: Number>(device: &Device, ids: &[u32], vocabulary: usize, dim: usize) {
    let kernels = Embedding::new(device);
    let table: Vec<T> = random(1, vocabulary * dim, 2.0);
    let given: Vec<T> = random(2, ids.len() * dim, 2.0);
    let nan = |len| device.upload(&vec![T::NAN; len]).unwrap();
    let (mut rows, mut gradient) = (nan(given.len()), nan(table.len()));
    let (on_device, stream) = (device.upload(ids).unwrap(), device.stream());
    kernels.forward_into(&device.upload(&table).unwrap(), &on_device, &mut rows, dim, stream).unwrap();
    assert_eq!(wide(&rows.to_vec().unwrap()), reference::embedding(&wide(&table), ids, dim));

    let uploaded = device.upload(&given).unwrap();
    kernels.gradient_into(&on_device, &uploaded, &mut gradient, dim, stream).unwrap();
    let expected = reference::embedding_gradient(ids, &wide(&given), vocabulary, dim);
    let off = distance(wide(&gradient.to_vec().unwrap()).into_iter(), &expected);
    assert!(off < T::TOLERANCE, "{off}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn embeddings_of_any_size(
        (vocabulary, ids) in (1..70usize).prop_flat_map(|vocabulary| {
            // Some ids are not in the vocabulary.
            (Just(vocabulary), prop::collection::vec(0..vocabulary as u32 + 3, 0..400))
        }),
        dim in 1..300usize,
    ) {
        let device = Device::open(0).unwrap();
        embedding::<bf16>(&device, &ids, vocabulary, dim);
        embedding::<f16>(&device, &ids, vocabulary, dim);
    }
}

#[test]
fn ids_at_the_ends_of_their_type_are_not_followed() {
    embedding::<bf16>(&Device::open(0).unwrap(), &[u32::MAX, 0, 1 << 31, u32::MAX - 15], 3, 8);
}

#[test]
fn embeddings_refuse_wrong_sizes() {
    let device = Device::open(0).unwrap();
    let (kernels, ids) = (Embedding::new(&device), device.upload(&[0u32, 1]).unwrap());
    let mut rows = device.zeros::<bf16>(8).unwrap();
    let mut forward = |elements, dim| {
        let table = device.zeros::<bf16>(elements).unwrap();
        kernels.forward_into(&table, &ids, &mut rows, dim, device.stream()).map_err(|error| error.to_string())
    };
    assert_eq!(forward(8, 4), Ok(()));
    let error = |why: &str| Err(format!("training: {why}"));
    assert_eq!(forward(9, 4), error("a table of 9 elements has no whole rows of 4"));
    assert_eq!(forward(9, 0), error("rows of a table have 1 to 1048576 elements, not 0"));
    assert_eq!(
        forward(9, 3),
        error("the outputs have 8 elements, and their shape [tokens 2, dim 3] needs 6")
    );
}

fn adamw<T: Number + OfTensors>(device: &Device, elements: usize, rates: &Rates) {
    let (kernels, start) = (AdamW::new(device), random::<T>(1, elements, 1.0));
    let start: Vec<f32> = start.iter().map(|&value| T::wide(value) as f32).collect();
    let mut parameter = Parameter::<T>::new(device, &start, elements).unwrap();
    let begin = |&value: &f32| reference::Weight { value: value.into(), ..Default::default() };
    let mut expected: Vec<reference::Weight> = start.iter().map(begin).collect();
    for step in 1..=4 {
        let gradient: Vec<T> = random(1 + u64::from(step), elements, 0.5);
        kernels.step(&mut parameter, &device.upload(&gradient).unwrap(), rates, device.stream()).unwrap();
        for (weight, &gradient) in expected.iter_mut().zip(&gradient) {
            *weight = reference::adamw(*weight, T::wide(gradient), rates, step);
        }
    }
    assert_eq!(parameter.steps(), 4);
    let master = parameter.master().to_vec().unwrap();
    for (found, expected) in master.iter().zip(&expected) {
        let off = (f64::from(*found) - expected.value).abs();
        assert!(off < 2e-5 * rates.learning + 1e-6 * expected.value.abs(), "{found}: {expected:?}");
    }
    let rounded: Vec<T> = master.iter().map(|&value| T::of(value.into())).collect();
    assert_eq!(wide(&parameter.weights().to_vec().unwrap()), wide(&rounded));
}

#[test]
fn adamw_takes_the_steps_of_its_definition() {
    let device = Device::open(0).unwrap();
    let usual = Rates::default();
    let other =
        Rates { learning: 0.1, betas: [0.5, 0.0], epsilon: 0.1, decay: 0.3, gradient_scale: 1.0 / 64.0 };
    for rates in [usual, other] {
        adamw::<bf16>(&device, 1000, &rates);
        adamw::<f16>(&device, 129, &rates);
    }
    adamw::<bf16>(&device, 0, &usual);
}

#[test]
fn adamw_refuses_what_makes_no_sense() {
    let device = Device::open(0).unwrap();
    let kernels = AdamW::new(&device);
    let mut parameter = Parameter::<bf16>::new(&device, &[1.0, 2.0], 2).unwrap();
    let mut step = |elements, rates: Rates| {
        let gradient = device.zeros::<bf16>(elements).unwrap();
        kernels.step(&mut parameter, &gradient, &rates, device.stream()).unwrap_err().to_string()
    };
    let usual = Rates::default();
    let error = |why: &str| format!("training: {why}");
    assert_eq!(step(3, usual), error("the gradients have 3 elements, and their shape [weights 2] needs 2"));
    let learning = Rates { learning: 0.0, ..usual };
    assert_eq!(step(2, learning), error("the learning rate must be positive and finite, not 0"));
    let betas = Rates { betas: [0.9, 1.0], ..usual };
    assert_eq!(step(2, betas), error("a beta must be from 0 to below 1, not 1"));
    let decay = Rates { decay: f64::NAN, ..usual };
    assert_eq!(step(2, decay), error("the weight decay must be at least 0 and finite, not NaN"));
    let clone = parameter.weights().clone();
    let gradient = device.zeros::<bf16>(2).unwrap();
    let refused = kernels.step(&mut parameter, &gradient, &usual, device.stream()).unwrap_err().to_string();
    assert!(refused.contains("shared"), "{refused}");
    drop(clone);
    assert_eq!((parameter.steps(), parameter.master().to_vec().unwrap()), (0, vec![1.0, 2.0]));
}

/// Runs a graph on random inputs, compares it with the reference, and returns its kernels. Inputs
/// of integers are `integers`.
fn compare(device: &Device, graph: &Graph, integers: &[u32], tolerance: f64) -> usize {
    let mut tensors: Vec<Tensor> = vec![];
    for (seed, (element, shape)) in graph.inputs().enumerate() {
        let (seed, len) = (seed as u64 + 1, shape.iter().product());
        tensors.push(match element {
            ElementType::Bf16 => device.upload(&random::<bf16>(seed, len, 2.0)).unwrap().into(),
            ElementType::F16 => device.upload(&random::<f16>(seed, len, 2.0)).unwrap().into(),
            ElementType::U32 => device.upload(integers).unwrap().into(),
            ElementType::F32 => panic!("no graph here has such inputs"),
        });
    }
    let numbers: Vec<Vec<f64>> = tensors.iter().map(|tensor| tensor.to_f64().unwrap()).collect();
    let expected = graphs::evaluate(graph, &numbers).unwrap();
    let fused = Fused::new(device, graph).unwrap();
    let views: Vec<View<'_>> = tensors.iter().map(View::from).collect();
    for (place, found) in fused.run(&views).unwrap().iter().enumerate() {
        let off = distance(found.to_f64().unwrap().into_iter(), &expected[place]);
        assert!(off < tolerance, "output {place}: {off}\n{}", fused.plan());
    }
    fused.plan().kernels().len()
}

#[test]
fn losses_and_norms_are_one_kernel_each_or_two_and_right() {
    let device = Device::open(0).unwrap();
    for (element, tolerance) in [(ElementType::Bf16, bf16::TOLERANCE), (ElementType::F16, f16::TOLERANCE)] {
        for (rows, length) in [(1, 1), (5, 64), (3, 257)] {
            // The last target is no class.
            let targets: Vec<u32> = (1..=rows as u32).map(|row| row * length as u32 / rows as u32).collect();
            let loss = forms::cross_entropy(element, rows, length, 1.0 / rows as f64).unwrap();
            assert_eq!(compare(&device, &loss, &targets, tolerance), 1);
            let norm = forms::residual_rms_norm(element, rows, length, 1e-5).unwrap();
            assert_eq!(compare(&device, &norm, &[], tolerance), 1);
            // In a row of one element x, a norm's gradient is the difference of two numbers that
            // are equal but for 1e-5 / x², and f32 keeps few digits of that.
            let tolerance = if length == 1 { 0.05 } else { tolerance };
            // Sums over several rows take a second kernel.
            for form in [
                forms::rms_norm_gradient,
                forms::residual_rms_norm_gradient,
                forms::residual_relu_layer_norm_gradient,
            ] {
                let gradient = form(element, rows, length, 1e-5).unwrap();
                assert_eq!(compare(&device, &gradient, &[], tolerance), 1 + usize::from(rows > 1));
            }
            let softmax = forms::softmax_gradient(element, rows, length).unwrap();
            assert_eq!(compare(&device, &softmax, &[], tolerance), 1);
        }
    }
}

/// Checks by differences that `gradient` is the gradient of `loss` at `values`.
fn differences(values: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    for (at, &expected) in gradient.iter().enumerate() {
        let moved = |by: f64| {
            let mut values = values.to_vec();
            values[at] += by;
            loss(&values)
        };
        let found = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((found - expected).abs() < 1e-8 * (1.0 + expected.abs()), "{at}: {found}, {expected}");
    }
}

#[test]
fn the_gradient_of_the_norm_is_its_gradient() {
    let (rows, length) = (3, 5);
    let forward = forms::rms_norm(ElementType::F32, rows, length, 1e-6).unwrap();
    let backward = forms::residual_rms_norm_gradient(ElementType::F32, rows, length, 1e-6).unwrap();
    let numbers = |seed, len| wide(&random::<bf16>(seed, len, 2.0));
    let (x, weight) = (numbers(1, rows * length), numbers(2, length));
    let (given, residual) = (numbers(3, rows * length), numbers(4, rows * length));
    let inputs = [x.clone(), weight.clone(), given.clone(), residual.clone()];
    let found = graphs::evaluate(&backward, &inputs).unwrap();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // The loss is what the given gradients are of.
    let loss = |x: &[f64], weight: &[f64]| {
        let y = graphs::evaluate(&forward, &[x.to_vec(), weight.to_vec()]).unwrap();
        dot(&y[0], &given) + dot(x, &residual)
    };
    differences(&x, &found[0], |x| loss(x, &weight));
    differences(&weight, &found[1], |weight| loss(&x, weight));
}

/// Checks that the first output of `backward`, from `inputs`, is the gradient of the output of
/// `forward` times `given` by its first input.
fn is_gradient(forward: &Graph, x: &[f64], rest: &[Vec<f64>], given: &[f64], found: &[f64]) {
    differences(x, found, |x| {
        let inputs: Vec<_> = std::iter::once(x.to_vec()).chain(rest.iter().cloned()).collect();
        let y = graphs::evaluate(forward, &inputs).unwrap();
        y[0].iter().zip(given).map(|(y, given)| y * given).sum::<f64>()
    });
}

#[test]
fn gradients_of_layer_norm_and_softmax_are_gradients() {
    let (rows, length) = (3, 5);
    let numbers = |seed, len| wide(&random::<bf16>(seed, len, 2.0));
    let (x, given) = (numbers(1, rows * length), numbers(2, rows * length));

    let (weight, residual) = (numbers(3, length), numbers(4, rows * length));
    let forward = forms::residual_relu_layer_norm(ElementType::F32, rows, length, 0.1).unwrap();
    let backward = forms::residual_relu_layer_norm_gradient(ElementType::F32, rows, length, 0.1).unwrap();
    let inputs = [x.clone(), residual.clone(), weight.clone(), given.clone()];
    let found = graphs::evaluate(&backward, &inputs).unwrap();
    let bias = numbers(5, length);
    is_gradient(&forward, &x, &[residual.clone(), weight.clone(), bias.clone()], &given, &found[0]);
    let loss = |weight: &[f64], bias: &[f64]| {
        let inputs = [x.clone(), residual.clone(), weight.to_vec(), bias.to_vec()];
        let y = graphs::evaluate(&forward, &inputs).unwrap();
        y[0].iter().zip(&given).map(|(y, given)| y * given).sum::<f64>()
    };
    differences(&weight, &found[1], |weight| loss(weight, &bias));
    differences(&bias, &found[2], |bias| loss(&weight, bias));

    let forward = forms::softmax(ElementType::F32, rows, length).unwrap();
    let backward = forms::softmax_gradient(ElementType::F32, rows, length).unwrap();
    let y = graphs::evaluate(&forward, std::slice::from_ref(&x)).unwrap().remove(0);
    let found = graphs::evaluate(&backward, &[y, given.clone()]).unwrap();
    is_gradient(&forward, &x, &[], &given, &found[0]);
}

#[test]
fn the_gradient_of_the_loss_is_its_gradient() {
    let (rows, classes) = (3, 4);
    let graph = forms::cross_entropy(ElementType::F32, rows, classes, 0.25).unwrap();
    let logits = wide(&random::<bf16>(1, rows * classes, 3.0));
    let run = |logits: &[f64]| graphs::evaluate(&graph, &[logits.to_vec(), vec![0.0, 3.0, 4.0]]).unwrap();
    differences(&logits, &run(&logits)[1], |logits| 0.25 * run(logits)[0].iter().sum::<f64>());
}

#[test]
fn a_loss_survives_large_logits_and_those_of_minus_infinity() {
    let device = Device::open(0).unwrap();
    let graph = forms::cross_entropy(ElementType::F32, 2, 3, 1.0).unwrap();
    let logits = device.upload(&[1e30f32, 0.0, -1e30, f32::NEG_INFINITY, 2.0, 2.0]).unwrap();
    let targets = device.upload(&[0u32, 2]).unwrap();
    let fused = Fused::new(&device, &graph).unwrap();
    let found = fused.run(&[(&logits).into(), (&targets).into()]).unwrap();
    let losses = found[0].to_f64().unwrap();
    assert!(losses[0] == 0.0 && (losses[1] - 2f64.ln()).abs() < 1e-6, "{losses:?}");
    assert_eq!(found[1].to_f64().unwrap(), [0.0, 0.0, 0.0, 0.0, 0.5, -0.5]);
}
