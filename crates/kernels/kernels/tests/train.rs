//! The example `train`: the gradients of its model, that it learns, and its program.

#[path = "../examples/train/block.rs"]
mod block;
#[path = "common/mod.rs"]
#[expect(dead_code, reason = "tests of kernels use all of it")]
mod common;
#[path = "../examples/train/layers.rs"]
#[expect(dead_code, reason = "the program uses all of it")]
mod layers;
#[path = "../examples/train/model.rs"]
#[expect(dead_code, reason = "the program uses all of it")]
mod model;
#[path = "train/reference.rs"]
mod reference;

use test_process::Command;

use apex_gpu::{Device, Kind};
use apex_kernels::moe::Auxiliary;
use apex_kernels::training::Rates;
use apex_random::Random;
use common::{distance, wide};
use model::{Balancing, Batch, Config, Model, Weights};

const DENSE: Config = Config {
    layers: 2,
    dim: 24,
    heads: 4,
    key_heads: 2,
    hidden: 40,
    experts: 1,
    top_k: 1,
    balancing: Balancing::None,
    batch: 2,
    length: 19,
};
const SPARSE: Config = Config { experts: 5, top_k: 2, ..DENSE };
const BALANCED: Balancing = Balancing::Auxiliary(Auxiliary { balance: 0.3, z: 0.1 });

/// Tokens that repeat, so that rows of the embedding are read more than once.
fn tokens(config: &Config) -> [Vec<u32>; 2] {
    let mut random = Random::new(3);
    [(); 2].map(|()| (0..config.tokens()).map(|_| 90 + random.below(12) as u32).collect())
}

fn batch(device: &Device, config: &Config) -> Batch {
    let [inputs, targets] = tokens(config).map(|tokens| device.upload(&tokens).unwrap());
    Batch { inputs, targets }
}

/// Compares all gradients of a model on the device with the reference's.
fn compare(config: Config) {
    let device = Device::open(0).unwrap();
    let (mut model, batch) = (Model::new(&device, config, 1).unwrap(), batch(&device, &config));
    // Biases that change what is chosen.
    let biases = vec![(0..config.experts).map(|expert| [0.25, -0.125][expert % 2]).collect(); config.layers];
    for (on_device, bias) in model.biases.iter_mut().zip(&biases) {
        let bias: &Vec<f64> = bias;
        on_device.write(&bias.iter().map(|&bias| bias as f32).collect::<Vec<_>>()).unwrap();
    }
    let forward = model.forward(&batch).unwrap();
    let gradients = model.backward(&batch, &forward).unwrap();

    let mut parameters = model.weights.all().into_iter();
    let weights = Weights::build(&config, |_| {
        let (_, parameter) = parameters.next().unwrap();
        Ok(wide(&parameter.weights().to_vec()?))
    });
    let [inputs, targets] = tokens(&config);
    let expected = reference::pass(&config, &weights.unwrap(), &biases, &inputs, &targets);
    for (routing, choices) in forward.routings().zip(&expected.choices) {
        let chosen = routing.experts.to_vec().unwrap();
        assert_eq!(&chosen, choices, "rounding decides what is chosen: take another seed");
    }
    for ((name, found), (_, expected)) in gradients.all().iter().zip(expected.gradients.all()) {
        let off = distance(wide(&found.to_vec().unwrap()).into_iter(), expected);
        println!("{name}: {off:.1e}");
        assert!(off < 3e-2, "{name}: {off}");
    }
}

#[test]
fn gradients_of_a_dense_model_are_those_of_the_reference() {
    compare(DENSE);
}

#[test]
fn gradients_with_losses_that_balance_are_those_of_the_reference() {
    compare(Config { balancing: BALANCED, ..SPARSE });
}

#[test]
fn gradients_with_a_bias_are_those_of_the_reference() {
    compare(Config { balancing: Balancing::LossFree { rate: 0.1 }, ..SPARSE });
}

/// The reference's gradients are those of its loss, by differences along random directions in each
/// parameter.
#[test]
fn the_reference_has_the_gradients_of_its_loss() {
    for sizes in [DENSE, Config { balancing: BALANCED, ..SPARSE }] {
        let config = Config { dim: 6, hidden: 5, batch: 2, length: 4, ..sizes };
        let mut random = Random::new(5);
        let mut draw = |count: usize| (0..count).map(|_| random.normal()).collect::<Vec<_>>();
        let mut weights = Weights::build(&config, |shape| Ok(draw(shape.iter().product()))).unwrap();
        let [inputs, targets] = tokens(&config);
        let biases = vec![vec![0.0; config.experts]; config.layers];
        let gradients = reference::pass(&config, &weights, &biases, &inputs, &targets).gradients;
        for (place, (name, gradient)) in gradients.all().into_iter().enumerate() {
            for _ in 0..3 {
                let direction = draw(gradient.len());
                let mut loss_at = |by: f64| {
                    let values = weights.all_mut().swap_remove(place);
                    values.iter_mut().zip(&direction).for_each(|(value, change)| *value += by * change);
                    let loss = reference::pass(&config, &weights, &biases, &inputs, &targets).loss;
                    let values = weights.all_mut().swap_remove(place);
                    values.iter_mut().zip(&direction).for_each(|(value, change)| *value -= by * change);
                    loss
                };
                let found = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
                let expected: f64 = gradient.iter().zip(&direction).map(|(a, b)| a * b).sum();
                let off = (found - expected).abs();
                assert!(off < 1e-6 * (1.0 + expected.abs()), "{name}: {found}, {expected}");
            }
        }
    }
}

/// The losses of a few steps on one batch.
fn losses(config: Config) -> Vec<f32> {
    let device = Device::open(0).unwrap();
    let (mut model, batch) = (Model::new(&device, config, 1).unwrap(), batch(&device, &config));
    let rates = Rates { learning: 3e-3, ..Rates::default() };
    let mut step = |_| {
        let forward = model.forward(&batch).unwrap();
        let gradients = model.backward(&batch, &forward).unwrap();
        model.step(&forward, &gradients, &rates).unwrap();
        forward.loss().unwrap()
    };
    (0..6).map(&mut step).collect()
}

#[test]
fn the_loss_falls_and_does_so_alike_in_each_run() {
    let config = Config { balancing: Balancing::LossFree { rate: 0.02 }, ..SPARSE };
    let found = losses(config);
    assert!(found.windows(2).all(|pair| pair[1] < pair[0]), "{found:?}");
    assert!(found[5] < found[0] - 1.0, "{found:?}");
    // On Hopper, the gradient of queries is added up in an order that varies.
    if *Device::open(0).unwrap().kind() != Kind::Gpu {
        assert_eq!(losses(config), found);
    }
    let dense = losses(DENSE);
    assert!(dense[5] < dense[0] - 1.0, "{dense:?}");
}

#[test]
fn a_bias_moves_towards_experts_with_small_loads() {
    let config = Config { balancing: Balancing::LossFree { rate: 0.25 }, layers: 1, ..SPARSE };
    let device = Device::open(0).unwrap();
    let (mut model, batch) = (Model::new(&device, config, 1).unwrap(), batch(&device, &config));
    let forward = model.forward(&batch).unwrap();
    let gradients = model.backward(&batch, &forward).unwrap();
    model.step(&forward, &gradients, &Rates::default()).unwrap();
    let loads = forward.routings().next().unwrap().loads.to_vec().unwrap();
    let mean = (config.tokens() * config.top_k) as f64 / config.experts as f64;
    for (bias, load) in model.biases[0].to_vec().unwrap().into_iter().zip(loads) {
        assert_eq!(bias, if f64::from(load) < mean { 0.25 } else { -0.25 }, "{load} of {mean}");
    }
}

/// Runs the program, which cargo builds beside the tests, and returns what it prints.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let test = std::env::current_exe().unwrap();
    let mut folders = test.ancestors().skip(1).take(2);
    let program =
        folders.find_map(|folder| Some(folder.join("examples/train")).filter(|file| file.is_file()));
    let program = program
        .expect("cargo builds the example beside the tests; run `cargo build -p apex-kernels --examples`");
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The loss of each step, out of what the program printed.
fn printed_losses(text: &str) -> Vec<f64> {
    let losses = text.lines().filter_map(|line| line.split_once("loss "));
    losses.map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn the_program_runs_as_the_documentation_says() {
    let (status, text, errors) = run(&["--device", "cpu", "--steps", "5"]);
    assert_eq!((status, errors), (Some(0), String::new()));
    let losses = printed_losses(&text);
    // Nobody who knows nothing does much worse than the logarithm of 256.
    assert!(losses.len() == 5 && losses.iter().all(|loss| (4.5..7.0).contains(loss)), "{text}");
    assert!(text.contains("tokens per second, measured"), "{text}");
}

#[test]
fn the_program_learns_a_text_that_it_is_given_and_writes_the_curve() {
    let folder = tempfile::tempdir().unwrap();
    let [path, curve] = ["text", "curve.csv"].map(|name| folder.path().join(name).display().to_string());
    std::fs::write(&path, "the quick brown fox jumps over the lazy dog. ".repeat(9)).unwrap();
    let sizes = ["--layers", "1", "--dim", "32", "--rate", "0.02", "--experts", "4", "--top-k", "2"];
    let files =
        ["--device", "cpu", "--steps", "6", "--balance", "auxiliary", "--text", &path, "--curve", &curve];
    let (status, text, errors) = run(&[&sizes[..], &files].concat());
    assert_eq!((status, errors), (Some(0), String::new()));
    let losses = printed_losses(&text);
    assert!(losses[5] < losses[0] - 1.0, "{text}");
    assert_eq!(text.matches("largest load").count(), 6, "{text}");
    let rows = std::fs::read_to_string(curve).unwrap();
    let numbers: Vec<f64> =
        rows.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(rows.lines().next(), Some("step,loss,seconds"));
    assert!(numbers.iter().zip(&losses).all(|(row, shown)| (row - shown).abs() < 1e-3), "{rows}\n{text}");
}

#[test]
fn the_program_says_what_is_wrong() {
    let refused = |arguments: &[&str], status: i32, why: &str| {
        let (found, _, errors) = run(&[&["--device", "cpu"], arguments].concat());
        assert_eq!(found, Some(status), "{errors}");
        assert!(errors.starts_with(&format!("train: {why}")), "{errors}");
    };
    refused(&["--stepps", "5"], 2, "unknown option --stepps");
    refused(&["--steps"], 2, "--steps needs a value");
    refused(&["--steps", "0"], 2, "--steps 0: expected a number from 1 on");
    refused(&["--text", "/no/such/text"], 1, "/no/such/text: ");
    refused(&["--curve", "/no/such/curve"], 1, "/no/such/curve: ");
    refused(&["--heads", "3", "--key-heads", "2"], 1, "attention: 3 heads of queries cannot share 2");
    refused(&["--experts", "2", "--top-k", "3"], 1, "mixture of experts: a token of 2 experts can choose");
}
