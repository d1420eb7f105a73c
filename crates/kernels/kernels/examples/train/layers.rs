//! The parts of the model: one method for each computation, on activations `[tokens, size]` in
//! bf16. Next to each stands its gradient, which takes the gradient of what the method returned.

use apex_gpu::{Buffer, Device, Extents, Stream, Tensor};
use apex_kernels::fusion::{self, ElementType, Fused, View, forms};
use apex_kernels::moe::Moe;
use apex_kernels::training::{AdamW, Embedding};
use apex_kernels::{Attention, Gradients, Layout, Mask, Options, Result, Saved, Shape};
use half::bf16;

use crate::model::{Config, HEAD_DIM, VOCABULARY};

/// Activations, weights, and the gradients of both.
pub type Bf16 = Tensor<bf16>;

/// The state that attention leaves for its gradient.
pub struct Attended {
    pub queries: Bf16,
    pub keys: Bf16,
    pub values: Bf16,
    pub output: Bf16,
    pub log_sum_exp: Buffer<f32>,
}

pub struct Layers {
    pub device: Device,
    pub moe: Moe,
    pub adamw: AdamW,
    tokens: usize,
    dim: usize,
    embedding: Embedding,
    attention: Attention,
    attention_shape: Shape,
    norm: Fused,
    norm_gradient: Fused,
    rotate_queries: Fused,
    rotate_keys: Fused,
    loss: Fused,
    /// Cosines and sines of the angles by which positions are rotated, `[length, 1, HEAD_DIM]`, and
    /// the sines of the way back.
    cos: Buffer<bf16>,
    sin: Buffer<bf16>,
    back: Buffer<bf16>,
}

impl Layers {
    pub fn new(device: &Device, config: &Config) -> Result<Layers> {
        let &Config { dim, heads, key_heads, batch, length, .. } = config;
        let (tokens, element) = (config.tokens(), ElementType::Bf16);
        let rotary = |heads| Fused::new(device, &forms::rotary(element, [batch, length, heads, HEAD_DIM])?);
        let angles = |function: fn(f64) -> f64| device.upload(&table(length, function));
        Ok(Layers {
            device: device.clone(),
            moe: Moe::new(device)?,
            adamw: AdamW::new(device),
            tokens,
            dim,
            embedding: Embedding::new(device),
            attention: Attention::new(device)?,
            attention_shape: Shape { batch, heads, key_heads, queries: length, keys: length, dim: HEAD_DIM },
            norm: Fused::new(device, &forms::residual_rms_norm(element, tokens, dim, 1e-6)?)?,
            norm_gradient: Fused::new(
                device,
                &forms::residual_rms_norm_gradient(element, tokens, dim, 1e-6)?,
            )?,
            rotate_queries: rotary(heads)?,
            rotate_keys: rotary(key_heads)?,
            loss: Fused::new(
                device,
                &forms::cross_entropy(element, tokens, VOCABULARY, 1.0 / tokens as f64)?,
            )?,
            cos: angles(f64::cos)?,
            sin: angles(f64::sin)?,
            back: angles(|angle| -angle.sin())?,
        })
    }

    pub fn stream(&self) -> &Stream {
        self.device.stream()
    }

    /// The form of attention that runs here.
    pub fn attention_form(&self) -> apex_kernels::AttentionForm {
        self.attention.form_for(&self.attention_shape)
    }

    /// The rows of tokens in a table.
    pub fn embed(&self, table: &Bf16, ids: &Buffer<u32>) -> Result<Bf16> {
        let mut rows = Bf16::zeros(&self.device, (self.tokens, self.dim))?;
        self.embedding.forward_into(
            table.as_buffer()?,
            ids,
            rows.as_buffer_mut()?,
            self.dim,
            self.stream(),
        )?;
        Ok(rows)
    }

    pub fn embed_gradient(&self, ids: &Buffer<u32>, given: &Bf16) -> Result<Bf16> {
        let mut gradient = Bf16::zeros(&self.device, (VOCABULARY, self.dim))?;
        let to = gradient.as_buffer_mut()?;
        self.embedding.gradient_into(ids, given.as_buffer()?, to, self.dim, self.stream())?;
        Ok(gradient)
    }

    /// `x + change`, which is the residual stream from here on, and its RMSNorm, which the next
    /// layer reads: one kernel for both.
    pub fn add_and_norm(&self, x: &Bf16, change: &Bf16, weight: &Bf16) -> Result<(Bf16, Bf16)> {
        let [sum, normal] = run(&self.norm, &[x, change, weight])?;
        Ok((self.activations(sum)?, self.activations(normal)?))
    }

    /// The gradients of the sum and of the norm's weight. That of the sum is that of `x` and of
    /// `change` alike. `past` is what reaches the sum past the norm, along the residual stream.
    pub fn add_and_norm_gradient(
        &self,
        sum: &Bf16,
        weight: &Bf16,
        given: &Bf16,
        past: &Bf16,
    ) -> Result<(Bf16, Bf16)> {
        let [of_sum, of_weight] = run(&self.norm_gradient, &[sum, weight, given, past])?;
        Ok((self.activations(of_sum)?, Tensor::from_buffer(of_weight.try_into()?, self.dim)?))
    }

    /// Causal attention with rotary positions, each key head shared by a group of heads.
    pub fn attend(&self, queries: &Bf16, keys: &Bf16, values: Bf16) -> Result<Attended> {
        let queries = self.rotate(&self.rotate_queries, queries, &self.sin)?;
        let keys = self.rotate(&self.rotate_keys, keys, &self.sin)?;
        let (q, k, v) = (queries.as_buffer()?, keys.as_buffer()?, values.as_buffer()?);
        let done = self.attention.forward(q, k, v, &self.attention_shape, &options())?;
        let output = Tensor::from_buffer(done.output, queries.shape())?;
        Ok(Attended { queries, keys, values, output, log_sum_exp: done.log_sum_exp })
    }

    /// The gradients of queries, keys and values.
    pub fn attend_gradient(&self, attended: &Attended, given: &Bf16) -> Result<[Bf16; 3]> {
        let saved = Saved {
            q: attended.queries.as_buffer()?,
            k: attended.keys.as_buffer()?,
            v: attended.values.as_buffer()?,
            output: attended.output.as_buffer()?,
            log_sum_exp: &attended.log_sum_exp,
        };
        let (Gradients { q, k, v }, _) =
            self.attention.backward(&saved, given.as_buffer()?, &self.attention_shape, &options())?;
        let q = Tensor::from_buffer(q, attended.queries.shape())?;
        let k = Tensor::from_buffer(k, attended.keys.shape())?;
        let v = Tensor::from_buffer(v, attended.values.shape())?;
        // The gradient of a rotation is the rotation back.
        let q = self.rotate(&self.rotate_queries, &q, &self.back)?;
        Ok([q, self.rotate(&self.rotate_keys, &k, &self.back)?, v])
    }

    fn rotate(&self, rotary: &Fused, x: &Bf16, sin: &Buffer<bf16>) -> Result<Bf16> {
        let rotated = rotary.run(&[x.elements().into(), (&self.cos).into(), sin.into()])?;
        let [rotated] = all_outputs(rotated);
        Ok(Tensor::from_buffer(rotated.try_into()?, x.shape())?)
    }

    /// The cross-entropy of each token, and the gradient of their mean in the logits.
    pub fn loss(&self, logits: &Bf16, targets: &Buffer<u32>) -> Result<(Tensor<f32>, Bf16)> {
        let [losses, gradient] = all_outputs(self.loss.run(&[logits.elements().into(), targets.into()])?);
        let losses = Tensor::from_buffer(losses.try_into()?, self.tokens)?;
        Ok((losses, Tensor::from_buffer(gradient.try_into()?, logits.shape())?))
    }

    fn activations(&self, tensor: fusion::Tensor) -> Result<Bf16> {
        Ok(Tensor::from_buffer(tensor.try_into()?, (self.tokens, self.dim))?)
    }
}

/// `x Wᵀ`: each row of the weights gives one output.
pub fn linear(x: &Bf16, weights: &Bf16) -> Result<Bf16> {
    Ok(x.matmul(&weights.transpose(0, 1)?)?)
}

/// The gradients of `x` and of the weights.
pub fn linear_gradient(x: &Bf16, weights: &Bf16, given: &Bf16) -> Result<(Bf16, Bf16)> {
    Ok((given.matmul(weights)?, given.transpose(0, 1)?.matmul(x)?))
}

/// A buffer of activations as a tensor.
pub fn tensor(buffer: Buffer<bf16>, shape: impl Into<Extents>) -> Result<Bf16> {
    Ok(Tensor::from_buffer(buffer, shape)?)
}

/// Rows of tokens lie as products leave them: the heads of a token beside each other.
fn options() -> Options {
    Options { mask: Mask::Causal, layout: Layout::RowsFirst, ..Options::default() }
}

fn run<const N: usize>(fused: &Fused, inputs: &[&Bf16]) -> Result<[fusion::Tensor; N]> {
    let views: Vec<View<'_>> = inputs.iter().map(|input| input.elements().into()).collect();
    Ok(all_outputs(fused.run(&views)?))
}

fn all_outputs<const N: usize>(outputs: Vec<fusion::Tensor>) -> [fusion::Tensor; N] {
    outputs.try_into().expect("a graph has as many outputs as it declares")
}

/// A function of the angles of all positions. The angle of a pair of elements grows with the
/// position, the slower the later the pair; the halves of a head are the pairs' first and second
/// elements.
pub fn table(length: usize, function: fn(f64) -> f64) -> Vec<bf16> {
    let half = HEAD_DIM / 2;
    let angle = |position: usize, pair: usize| position as f64 / 10_000f64.powf(pair as f64 / half as f64);
    let of = |position| (0..HEAD_DIM).map(move |column| angle(position, column % half));
    (0..length).flat_map(of).map(|angle| bf16::from_f64(function(angle))).collect()
}
