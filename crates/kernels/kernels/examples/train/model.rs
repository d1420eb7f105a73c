//! A decoder-only transformer over bytes: its sizes, its parameters, a forward and a backward pass,
//! and a step of learning.

use apex_gpu::{Buffer, Device, Tensor};
use apex_kernels::Result;
use apex_kernels::moe::{self, Auxiliary, Balance};
use apex_kernels::training::{Parameter, Rates};
use apex_random::Random;
use half::bf16;

use crate::block::{Block, Saved};
use crate::layers::{Bf16, Layers, linear, linear_gradient};

/// Elements of a head: the least for which `apex_kernels::Attention` has kernels.
pub const HEAD_DIM: usize = 64;
/// Tokens are bytes.
pub const VOCABULARY: usize = 256;

/// Sizes of a model, and of the batches that it learns from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    pub layers: usize,
    /// Elements of a token's activations.
    pub dim: usize,
    /// Heads of queries, and those of keys and values, which they share.
    pub heads: usize,
    pub key_heads: usize,
    /// Elements of an expert's hidden layer.
    pub hidden: usize,
    /// Experts of each layer. One is a dense feed-forward layer.
    pub experts: usize,
    /// Experts of each token.
    pub top_k: usize,
    pub balancing: Balancing,
    /// Sequences of a batch, and their tokens.
    pub batch: usize,
    pub length: usize,
}

/// The means of balancing the experts' loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Balancing {
    None,
    /// A bias on what tokens choose, which moves by `rate` after each step.
    LossFree {
        rate: f32,
    },
    /// Losses, of which the router learns.
    Auxiliary(Auxiliary),
}

impl Config {
    pub fn tokens(&self) -> usize {
        self.batch * self.length
    }

    pub fn expert_shape(&self) -> moe::Shape {
        let &Config { experts, top_k, dim, hidden, .. } = self;
        moe::Shape { tokens: self.tokens(), experts, top_k, dim, hidden }
    }
}

/// One thing for each tensor of the model: the parameters, or their gradients.
pub struct Weights<P> {
    /// `[VOCABULARY, dim]`
    pub embedding: P,
    pub blocks: Vec<Block<P>>,
    /// `[dim]`
    pub norm: P,
    /// `[VOCABULARY, dim]`
    pub head: P,
}

impl<P> Weights<P> {
    /// Calls `make` with the shape of each tensor, in the order of [`Weights::all`].
    pub fn build(config: &Config, mut make: impl FnMut(&[usize]) -> Result<P>) -> Result<Weights<P>> {
        let &Config { dim, hidden, experts, .. } = config;
        let [inner, key_inner] = [config.heads, config.key_heads].map(|heads| heads * HEAD_DIM);
        let routed = if experts == 1 { 0 } else { experts };
        let embedding = make(&[VOCABULARY, dim])?;
        let mut block = || {
            Ok(Block {
                attention_norm: make(&[dim])?,
                query: make(&[inner, dim])?,
                key: make(&[key_inner, dim])?,
                value: make(&[key_inner, dim])?,
                output: make(&[dim, inner])?,
                expert_norm: make(&[dim])?,
                router: make(&[routed, dim])?,
                up: make(&[experts, 2 * hidden, dim])?,
                down: make(&[experts, dim, hidden])?,
            })
        };
        let blocks = (0..config.layers).map(|_| block()).collect::<Result<Vec<_>>>()?;
        let (norm, head) = (make(&[dim])?, make(&[VOCABULARY, dim])?);
        Ok(Weights { embedding, blocks, norm, head })
    }

    /// All of them, in one order for all models of the same sizes.
    pub fn all(&self) -> Vec<(String, &P)> {
        let mut all = vec![("embedding".to_owned(), &self.embedding)];
        for (layer, block) in self.blocks.iter().enumerate() {
            let Block { attention_norm, query, key, value, output, expert_norm, router, up, down } = block;
            let attention = [("norm", attention_norm), ("query", query), ("key", key), ("value", value)];
            let named = |(name, tensor)| (format!("layer {layer}: attention {name}"), tensor);
            all.extend(attention.into_iter().chain([("output", output)]).map(named));
            let experts = [("norm", expert_norm), ("router", router), ("up", up), ("down", down)];
            all.extend(experts.map(|(name, tensor)| (format!("layer {layer}: expert {name}"), tensor)));
        }
        all.extend([("norm".to_owned(), &self.norm), ("head".to_owned(), &self.head)]);
        all
    }

    /// The same, to change, without names.
    pub fn all_mut(&mut self) -> Vec<&mut P> {
        let mut all = vec![&mut self.embedding];
        for block in &mut self.blocks {
            let Block { attention_norm, query, key, value, output, expert_norm, router, up, down } = block;
            all.extend([attention_norm, query, key, value, output, expert_norm, router, up, down]);
        }
        all.extend([&mut self.norm, &mut self.head]);
        all
    }
}

/// Tokens, and the token that follows each, `[batch, length]`.
pub struct Batch {
    pub inputs: Buffer<u32>,
    pub targets: Buffer<u32>,
}

/// A forward pass: the loss of each token, and what the backward pass needs.
pub struct Forward {
    losses: Tensor<f32>,
    of_logits: Bf16,
    residual: Bf16,
    normal: Bf16,
    blocks: Vec<Saved>,
}

impl Forward {
    /// The mean of the losses, in nats. Waits for the device.
    pub fn loss(&self) -> Result<f32> {
        Ok(self.losses.mean(0)?.item()?)
    }

    /// Iterates over the choices of each layer's tokens.
    pub fn routings(&self) -> impl Iterator<Item = &moe::Routing> {
        self.blocks.iter().map(|block| &block.routing)
    }

    /// Returns the balance of each layer's experts. Waits for the device.
    pub fn balance(&self) -> Result<Vec<Balance>> {
        let of = |routing: &moe::Routing| Ok(Balance::of(&routing.loads.to_vec()?));
        self.routings().filter_map(|routing| of(routing).transpose()).collect()
    }
}

pub struct Model {
    pub config: Config,
    pub layers: Layers,
    pub weights: Weights<Parameter<bf16>>,
    /// The bias of each layer, which is added to the scores of experts when a token chooses,
    /// `[experts]`.
    pub biases: Vec<Buffer<f32>>,
}

impl Model {
    /// A model that knows nothing: matrices are normal with a variance of one over their inputs,
    /// and norms are 1.
    pub fn new(device: &Device, config: Config, seed: u64) -> Result<Model> {
        let mut random = Random::new(seed);
        let weights = Weights::build(&config, |shape| {
            let (elements, inputs) = (shape.iter().product(), *shape.last().unwrap_or(&1));
            let values: Vec<f32> = match shape.len() {
                1 => vec![1.0; elements],
                _ => (0..elements).map(|_| (random.normal() / (inputs as f64).sqrt()) as f32).collect(),
            };
            Parameter::new(device, &values, shape)
        })?;
        let bias = |_| Ok(device.zeros(config.experts)?);
        let biases = (0..config.layers).map(bias).collect::<Result<Vec<_>>>()?;
        Ok(Model { config, layers: Layers::new(device, &config)?, weights, biases })
    }

    /// The number of numbers that learn.
    pub fn parameters(&self) -> usize {
        self.weights.all().iter().map(|(_, parameter)| parameter.weights().len()).sum()
    }

    /// Predicts each token's successor from the tokens up to it.
    pub fn forward(&self, batch: &Batch) -> Result<Forward> {
        let Model { config, layers, weights, biases } = self;
        let embedded = layers.embed(weights.embedding.weights(), &batch.inputs)?;
        let nothing = Bf16::zeros(&layers.device, embedded.shape())?;
        let mut state = (embedded, nothing);
        let mut blocks = vec![];
        for (block, bias) in weights.blocks.iter().zip(biases) {
            let (next, saved) = block.forward(layers, config, bias, state)?;
            state = next;
            blocks.push(saved);
        }
        let (residual, normal) = layers.add_and_norm(&state.0, &state.1, weights.norm.weights())?;
        let logits = linear(&normal, weights.head.weights())?;
        let (losses, of_logits) = layers.loss(&logits, &batch.targets)?;
        Ok(Forward { losses, of_logits, residual, normal, blocks })
    }

    /// The gradients of the mean loss, and of the losses that balance experts, in all parameters.
    pub fn backward(&self, batch: &Batch, forward: &Forward) -> Result<Weights<Bf16>> {
        let Model { config, layers, weights, biases } = self;
        let (of_normal, head) = linear_gradient(&forward.normal, weights.head.weights(), &forward.of_logits)?;
        let nothing = Bf16::zeros(&layers.device, of_normal.shape())?;
        let (mut given, norm) =
            layers.add_and_norm_gradient(&forward.residual, weights.norm.weights(), &of_normal, &nothing)?;
        let mut blocks = vec![];
        for ((block, bias), saved) in weights.blocks.iter().zip(biases).zip(&forward.blocks).rev() {
            let (before, gradients) = block.backward(layers, config, bias, saved, &given)?;
            given = before;
            blocks.push(gradients);
        }
        blocks.reverse();
        Ok(Weights { embedding: layers.embed_gradient(&batch.inputs, &given)?, blocks, norm, head })
    }

    /// Lets all parameters learn. Norms do not decay.
    pub fn step(&mut self, forward: &Forward, gradients: &Weights<Bf16>, rates: &Rates) -> Result<()> {
        let Layers { adamw, moe, device, .. } = &self.layers;
        for (parameter, (_, gradient)) in self.weights.all_mut().into_iter().zip(gradients.all()) {
            let decay = if parameter.weights().shape().len() == 1 { 0.0 } else { rates.decay };
            let rates = Rates { decay, ..*rates };
            adamw.step(parameter, gradient.as_buffer()?, &rates, device.stream())?;
        }
        if let Balancing::LossFree { rate } = self.config.balancing {
            for (bias, routing) in self.biases.iter_mut().zip(forward.routings()) {
                moe.balance_bias(bias, &routing.loads, rate, device.stream())?;
            }
        }
        Ok(())
    }
}
