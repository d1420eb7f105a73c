//! The model of the example `train` in f64 on the host: its loss, and the gradients of all
//! parameters. Attention, experts and the embedding are those of the crate's references; the rest
//! is written down here once more.

use apex_kernels::moe::{self, Inputs, reference as experts};
use apex_kernels::training::reference as training;
use apex_kernels::{Layout, Mask, Options, Shape, reference as attention};
use half::bf16;

use crate::block::Block;
use crate::model::{Balancing, Config, HEAD_DIM, VOCABULARY, Weights};

type Numbers = Vec<f64>;

pub struct Pass {
    /// The loss, with those that balance experts.
    pub loss: f64,
    pub gradients: Weights<Numbers>,
    /// The choices of each layer's tokens.
    pub choices: Vec<Vec<u32>>,
}

/// The state that a block's forward pass leaves.
struct Saved {
    x: Numbers,
    attention_input: Numbers,
    projected: [Numbers; 3],
    attended: Numbers,
    y: Numbers,
    expert_input: Numbers,
    logits: Numbers,
    of_logits: Numbers,
}

/// `biases` are those of each layer's experts, which count where they balance loads.
pub fn pass(
    config: &Config,
    weights: &Weights<Numbers>,
    biases: &[Numbers],
    inputs: &[u32],
    targets: &[u32],
) -> Pass {
    let dim = config.dim;
    let (mut x, mut loss) = (training::embedding(&weights.embedding, inputs, dim), 0.0);
    let (mut saved, mut choices) = (vec![], vec![]);
    for (block, bias) in weights.blocks.iter().zip(biases) {
        let (next, balance, chosen, of_block) = forward(config, block, bias, x);
        x = next;
        loss += balance;
        choices.push(chosen);
        saved.push(of_block);
    }
    let normal = norm(&x, &weights.norm);
    let logits = product(&normal, &weights.head, dim);
    let (cross_entropy, of_logits) = cross_entropy(&logits, targets);
    loss += cross_entropy;

    let (of_normal, head) = product_gradient(&normal, &weights.head, &of_logits, dim);
    let (mut given, of_norm) = norm_gradient(&x, &weights.norm, &of_normal);
    let mut blocks = vec![];
    for ((block, bias), saved) in weights.blocks.iter().zip(biases).zip(&saved).rev() {
        let (before, gradients) = backward(config, block, bias, saved, given);
        given = before;
        blocks.push(gradients);
    }
    blocks.reverse();
    let embedding = training::embedding_gradient(inputs, &given, VOCABULARY, dim);
    Pass { loss, gradients: Weights { embedding, blocks, norm: of_norm, head }, choices }
}

fn forward(
    config: &Config,
    block: &Block<Numbers>,
    bias: &[f64],
    x: Numbers,
) -> (Numbers, f64, Vec<u32>, Saved) {
    let &Config { dim, heads, key_heads, .. } = config;
    let attention_input = norm(&x, &block.attention_norm);
    let project = |weights| product(&attention_input, weights, dim);
    let queries = rotate(config, &project(&block.query), heads, 1.0);
    let keys = rotate(config, &project(&block.key), key_heads, 1.0);
    let projected = [queries, keys, project(&block.value)];
    let [q, k, v] = &projected;
    let (attended, _) = attention::forward(q, k, v, &shape(config), &options()).unwrap();
    let y = sum(&x, &product(&attended, &block.output, heads * HEAD_DIM));

    let expert_input = norm(&y, &block.expert_norm);
    let logits = match config.experts {
        1 => vec![0.0; config.tokens()],
        _ => product(&expert_input, &block.router, dim),
    };
    let inputs = expert_inputs(config, block, bias, &expert_input, &logits);
    let (change, chosen) =
        experts::forward(&inputs, &config.expert_shape(), &moe::Options::default()).unwrap();
    let mut loads = vec![0u32; config.experts];
    chosen.experts.iter().for_each(|&expert| loads[expert as usize] += 1);
    let (balance, of_logits) = match config.balancing {
        Balancing::Auxiliary(coefficients) => {
            let ([balance, z], gradient) =
                experts::auxiliary(&logits, &loads, &config.expert_shape(), &coefficients);
            (f64::from(coefficients.balance) * balance + f64::from(coefficients.z) * z, gradient)
        }
        _ => (0.0, vec![0.0; logits.len()]),
    };
    let out = sum(&y, &change);
    let saved = Saved { x, attention_input, projected, attended, y, expert_input, logits, of_logits };
    (out, balance, chosen.experts, saved)
}

fn backward(
    config: &Config,
    block: &Block<Numbers>,
    bias: &[f64],
    saved: &Saved,
    given: Numbers,
) -> (Numbers, Block<Numbers>) {
    let &Config { dim, heads, key_heads, .. } = config;
    let inputs = expert_inputs(config, block, bias, &saved.expert_input, &saved.logits);
    let of_experts =
        experts::backward(&inputs, &given, &config.expert_shape(), &moe::Options::default()).unwrap();
    let of_logits = sum(&of_experts.logits, &saved.of_logits);
    let (mut of_input, mut router) = (of_experts.tokens, vec![]);
    if config.experts > 1 {
        let (through, of_router) = product_gradient(&saved.expert_input, &block.router, &of_logits, dim);
        (of_input, router) = (sum(&of_input, &through), of_router);
    }
    let (through, expert_norm) = norm_gradient(&saved.y, &block.expert_norm, &of_input);
    let of_y = sum(&through, &given);

    let (of_attended, output) = product_gradient(&saved.attended, &block.output, &of_y, heads * HEAD_DIM);
    let [q, k, v] = &saved.projected;
    let [of_q, of_k, of_v] = attention::backward(q, k, v, &of_attended, &shape(config), &options()).unwrap();
    let (of_q, of_k) = (rotate(config, &of_q, heads, -1.0), rotate(config, &of_k, key_heads, -1.0));
    let back = |weights, given: &Numbers| product_gradient(&saved.attention_input, weights, given, dim);
    let (through_q, query) = back(&block.query, &of_q);
    let (through_k, key) = back(&block.key, &of_k);
    let (through_v, value) = back(&block.value, &of_v);
    let of_input = sum(&sum(&through_q, &through_k), &through_v);
    let (through, attention_norm) = norm_gradient(&saved.x, &block.attention_norm, &of_input);
    let (up, down) = (of_experts.up, of_experts.down);
    let gradients = Block { attention_norm, query, key, value, output, expert_norm, router, up, down };
    (sum(&through, &of_y), gradients)
}

fn shape(config: &Config) -> Shape {
    let &Config { batch, heads, key_heads, length, .. } = config;
    Shape { batch, heads, key_heads, queries: length, keys: length, dim: HEAD_DIM }
}

fn options() -> Options {
    Options { mask: Mask::Causal, layout: Layout::RowsFirst, ..Options::default() }
}

fn expert_inputs<'a>(
    config: &Config,
    block: &'a Block<Numbers>,
    bias: &'a [f64],
    tokens: &'a [f64],
    logits: &'a [f64],
) -> Inputs<'a, [f64], [f64]> {
    let bias = matches!(config.balancing, Balancing::LossFree { .. }).then_some(bias);
    Inputs { tokens, logits, bias, up: &block.up, down: &block.down }
}

fn sum(x: &[f64], y: &[f64]) -> Numbers {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// `x Wᵀ` for rows of `inner` elements.
fn product(x: &[f64], weights: &[f64], inner: usize) -> Numbers {
    x.chunks(inner).flat_map(|x| weights.chunks(inner).map(|row| dot(x, row))).collect()
}

/// The gradients of `x` and of the weights.
fn product_gradient(x: &[f64], weights: &[f64], given: &[f64], inner: usize) -> (Numbers, Numbers) {
    let (mut of_x, mut of_weights) = (vec![0.0; x.len()], vec![0.0; weights.len()]);
    let outputs = weights.len() / inner;
    for (token, given) in given.chunks(outputs).enumerate() {
        for (row, given) in given.iter().enumerate() {
            for column in 0..inner {
                of_x[token * inner + column] += given * weights[row * inner + column];
                of_weights[row * inner + column] += given * x[token * inner + column];
            }
        }
    }
    (of_x, of_weights)
}

/// One over the root of the mean square.
fn scale(row: &[f64]) -> f64 {
    1.0 / (dot(row, row) / row.len() as f64 + 1e-6).sqrt()
}

fn norm(x: &[f64], weight: &[f64]) -> Numbers {
    let of_row = |row: &[f64]| row.iter().zip(weight).map(|(x, w)| x * scale(row) * w).collect::<Vec<_>>();
    x.chunks(weight.len()).flat_map(of_row).collect()
}

/// The gradients of `x` and of the weight, by the quotient rule.
fn norm_gradient(x: &[f64], weight: &[f64], given: &[f64]) -> (Numbers, Numbers) {
    let (dim, mut of_x, mut of_weight) = (weight.len(), vec![], vec![0.0; weight.len()]);
    for (row, given) in x.chunks(dim).zip(given.chunks(dim)) {
        let scale = scale(row);
        let along: f64 = (0..dim).map(|i| given[i] * weight[i] * row[i]).sum();
        for i in 0..dim {
            of_weight[i] += given[i] * row[i] * scale;
            of_x.push(given[i] * weight[i] * scale - row[i] * along * scale.powi(3) / dim as f64);
        }
    }
    (of_x, of_weight)
}

/// Rotates pairs of elements by the angle of their position, or back.
fn rotate(config: &Config, x: &[f64], heads: usize, direction: f64) -> Numbers {
    let (mut rotated, half) = (x.to_vec(), HEAD_DIM / 2);
    for (row, head) in rotated.chunks_mut(HEAD_DIM).enumerate() {
        let position = row / heads % config.length;
        for pair in 0..half {
            let angle = position as f64 * 10_000f64.powf(-2.0 * pair as f64 / HEAD_DIM as f64);
            // As kernels read them.
            let [cos, sin] = [angle.cos(), angle.sin()].map(|x| bf16::from_f64(x).to_f64());
            let (a, b) = (head[pair], head[pair + half]);
            head[pair] = a * cos - direction * b * sin;
            head[pair + half] = b * cos + direction * a * sin;
        }
    }
    rotated
}

/// The mean over tokens, and its gradient.
fn cross_entropy(logits: &[f64], targets: &[u32]) -> (f64, Numbers) {
    let (mut loss, mut gradient) = (0.0, vec![]);
    for (row, &target) in logits.chunks(VOCABULARY).zip(targets) {
        let all: f64 = row.iter().map(|logit| logit.exp()).sum();
        loss += (all.ln() - row[target as usize]) / targets.len() as f64;
        let is_target = |class| if class == target as usize { 1.0 } else { 0.0 };
        let of =
            |(class, logit): (usize, &f64)| (logit.exp() / all - is_target(class)) / targets.len() as f64;
        gradient.extend(row.iter().enumerate().map(of));
    }
    (loss, gradient)
}
