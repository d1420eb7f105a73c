//! One block of the transformer: attention, then a feed-forward layer of one expert or several.
//! Each reads a norm of the residual stream and returns what is to be added to the stream.

use apex_gpu::{Buffer, Tensor};
use apex_kernels::Result;
use apex_kernels::moe::{self, Auxiliary, Forward, Inputs, Router, Routing};
use apex_kernels::training::Parameter;
use half::bf16;

use crate::layers::{Attended, Bf16, Layers, linear, linear_gradient, tensor};
use crate::model::{Balancing, Config};

/// One thing for each tensor of a block: the parameters, or their gradients.
pub struct Block<P> {
    /// `[dim]`
    pub attention_norm: P,
    /// `[heads * HEAD_DIM, dim]`
    pub query: P,
    /// `[key_heads * HEAD_DIM, dim]`, as `value`.
    pub key: P,
    pub value: P,
    /// `[dim, heads * HEAD_DIM]`
    pub output: P,
    /// `[dim]`
    pub expert_norm: P,
    /// `[experts, dim]`; without rows if there is one expert, whom nobody has to choose.
    pub router: P,
    /// `[experts, 2 * hidden, dim]`: rows of the gate, then those that it gates.
    pub up: P,
    /// `[experts, dim, hidden]`
    pub down: P,
}

/// The state that a forward pass leaves for the backward pass.
pub struct Saved {
    /// The residual stream before attention, and before the experts.
    before: [Bf16; 2],
    /// The inputs of attention and of the experts.
    attention_input: Bf16,
    expert_input: Bf16,
    attended: Attended,
    logits: Tensor<f32>,
    pub routing: Routing,
    experts: moe::Saved<bf16>,
}

impl Block<Parameter<bf16>> {
    /// Takes the residual stream and a change that is still to be added to it, and returns both
    /// anew.
    pub fn forward(
        &self,
        layers: &Layers,
        config: &Config,
        bias: &Buffer<f32>,
        (x, change): (Bf16, Bf16),
    ) -> Result<((Bf16, Bf16), Saved)> {
        let (x, attention_input) = layers.add_and_norm(&x, &change, self.attention_norm.weights())?;
        let project = |weights: &Parameter<bf16>| linear(&attention_input, weights.weights());
        let (queries, keys) = (project(&self.query)?, project(&self.key)?);
        let attended = layers.attend(&queries, &keys, project(&self.value)?)?;
        let change = linear(&attended.output, self.output.weights())?;

        let (y, expert_input) = layers.add_and_norm(&x, &change, self.expert_norm.weights())?;
        let logits = self.route(config, &expert_input)?;
        let inputs = self.expert_inputs(config, &expert_input, &logits, bias)?;
        let shape = config.expert_shape();
        let (done, experts) = layers.moe.forward_saving(&inputs, &shape, &moe::Options::default())?;

        let change = tensor(done.output, y.shape())?;
        let before = [x, y.clone()];
        let routing = done.routing;
        let saved = Saved { before, attention_input, expert_input, attended, logits, routing, experts };
        Ok(((y, change), saved))
    }

    /// Takes the gradient of the stream and the change that [`Block::forward`] returned, which is
    /// one, since they are added; returns that of those which it took, and the gradients of the
    /// parameters.
    pub fn backward(
        &self,
        layers: &Layers,
        config: &Config,
        bias: &Buffer<f32>,
        saved: &Saved,
        given: &Bf16,
    ) -> Result<(Bf16, Block<Bf16>)> {
        let [x, y] = &saved.before;
        let inputs = self.expert_inputs(config, &saved.expert_input, &saved.logits, bias)?;
        let forward = Forward { inputs: &inputs, routing: &saved.routing, saved: &saved.experts };
        let (mut of_experts, _) = layers.moe.backward(&forward, given.as_buffer()?, None)?;
        if let Balancing::Auxiliary(coefficients) = config.balancing {
            self.add_auxiliary(layers, config, saved, &coefficients, &mut of_experts.logits)?;
        }
        let of_input = tensor(of_experts.tokens, x.shape())?;
        let (of_input, router) = self.route_gradient(config, saved, of_experts.logits, of_input)?;
        let (of_y, expert_norm) =
            layers.add_and_norm_gradient(y, self.expert_norm.weights(), &of_input, given)?;

        let (of_attended, output) = linear_gradient(&saved.attended.output, self.output.weights(), &of_y)?;
        let [of_queries, of_keys, of_values] = layers.attend_gradient(&saved.attended, &of_attended)?;
        let back = |weights: &Parameter<bf16>, of_output| {
            linear_gradient(&saved.attention_input, weights.weights(), of_output)
        };
        let (through_queries, query) = back(&self.query, &of_queries)?;
        let (through_keys, key) = back(&self.key, &of_keys)?;
        let (through_values, value) = back(&self.value, &of_values)?;
        let of_input = through_queries.add(&through_keys)?.add(&through_values)?;
        let (of_x, attention_norm) =
            layers.add_and_norm_gradient(x, self.attention_norm.weights(), &of_input, &of_y)?;

        let up = tensor(of_experts.up, self.up.weights().shape())?;
        let down = tensor(of_experts.down, self.down.weights().shape())?;
        let gradients = Block { attention_norm, query, key, value, output, expert_norm, router, up, down };
        Ok((of_x, gradients))
    }

    /// The router's logits, in f32: which experts are chosen should not depend on how they are
    /// rounded.
    fn route(&self, config: &Config, input: &Bf16) -> Result<Tensor<f32>> {
        if config.experts == 1 {
            return Ok(Tensor::zeros(input.device(), (config.tokens(), 1))?);
        }
        let weights = self.router.weights().cast::<f32>()?;
        Ok(input.cast::<f32>()?.matmul(&weights.transpose(0, 1)?)?)
    }

    /// Adds what leads through the router to the gradient of the experts' input; returns that of
    /// the router's weights too.
    fn route_gradient(
        &self,
        config: &Config,
        saved: &Saved,
        of_logits: Buffer<f32>,
        of_input: Bf16,
    ) -> Result<(Bf16, Bf16)> {
        let weights = self.router.weights();
        if config.experts == 1 {
            return Ok((of_input, Bf16::zeros(weights.device(), weights.shape())?));
        }
        let of_logits = Tensor::from_buffer(of_logits, (config.tokens(), config.experts))?;
        let through = of_logits.matmul(&weights.cast()?)?.cast::<bf16>()?;
        let of_weights = of_logits.transpose(0, 1)?.matmul(&saved.expert_input.cast()?)?;
        Ok((of_input.add(&through)?, of_weights.cast()?))
    }

    /// Adds the gradient of the losses that keep the router in balance.
    fn add_auxiliary(
        &self,
        layers: &Layers,
        config: &Config,
        saved: &Saved,
        coefficients: &Auxiliary,
        of_logits: &mut Buffer<f32>,
    ) -> Result<()> {
        let router = Router { logits: saved.logits.as_buffer()?, loads: &saved.routing.loads };
        let (mut losses, shape) = (layers.device.zeros(2)?, config.expert_shape());
        layers.moe.auxiliary_into(&router, coefficients, &mut losses, of_logits, &shape, layers.stream())
    }

    fn expert_inputs<'a>(
        &'a self,
        config: &Config,
        input: &'a Bf16,
        logits: &'a Tensor<f32>,
        bias: &'a Buffer<f32>,
    ) -> Result<Inputs<'a, Buffer<bf16>>> {
        Ok(Inputs {
            tokens: input.as_buffer()?,
            logits: logits.as_buffer()?,
            bias: matches!(config.balancing, Balancing::LossFree { .. }).then_some(bias),
            up: self.up.weights().as_buffer()?,
            down: self.down.weights().as_buffer()?,
        })
    }
}
