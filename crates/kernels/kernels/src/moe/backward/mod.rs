//! The backward pass: the gradients of tokens, logits and weights from that of the output.
//!
//! Invariant: what [`Saved`] holds is of one forward pass, with its shape and options, so that a
//! backward pass cannot be asked for with others.

mod hopper;
mod portable;

use std::sync::PoisonError;

use apex_gpu::{Buffer, Device, Stream};

use crate::moe::plan::Plan;
use crate::moe::shape::{Options, Shape, check_elements, wrong};
use crate::moe::{Call, Inputs, Moe, MoeForm, Output, Routing, Workspace, check};
use crate::workspace::reserve;
use crate::{Element, Result};

/// The state that a forward pass keeps for a backward pass: the rows of experts, and the products
/// with Gate and Up, `tokens · top_k · 2 · hidden` elements.
#[derive(Debug)]
pub struct Saved<T> {
    plan: Plan,
    projections: Buffer<T>,
    of: Option<(Shape, Options)>,
}

impl<T: Element> Saved<T> {
    /// Nothing yet. Memory is taken by [`Moe::forward_saving_into`], and kept for further passes of
    /// shapes that are not larger.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn new(device: &Device) -> Result<Saved<T>> {
        Ok(Saved { plan: Plan::new(device)?, projections: device.zeros(0)?, of: None })
    }

    /// Nothing yet, in memory that the caller has: `plan` has [`Plan::lengths`], `projections`
    /// `tokens · top_k · 2 · hidden` elements. If it is too small for a pass, the pass replaces it.
    pub fn in_memory(plan: Plan, projections: Buffer<T>) -> Saved<T> {
        Saved { plan, projections, of: None }
    }

    /// The state that a forward pass of this shape, with these options, left in memory that the
    /// caller has.
    ///
    /// # Safety
    /// [`Moe::forward_saving_into`] with this shape and these options wrote both buffers, which
    /// were [`in_memory`](Saved::in_memory) then, and nobody has written to them since.
    pub unsafe fn from_memory(
        plan: Plan,
        projections: Buffer<T>,
        shape: &Shape,
        options: &Options,
    ) -> Saved<T> {
        Saved { plan, projections, of: Some((*shape, *options)) }
    }

    /// The buffers to which a forward pass writes.
    pub(super) fn prepare(
        &mut self,
        shape: &Shape,
        options: &Options,
        stream: &Stream,
    ) -> Result<(&mut Plan, Option<&mut Buffer<T>>)> {
        self.of = Some((*shape, *options));
        let projections = reserve(&mut self.projections, 2 * shape.choices() * shape.hidden, stream)?;
        Ok((&mut self.plan, Some(projections)))
    }
}

/// A forward pass, as its backward pass reads it.
#[derive(Debug)]
pub struct Forward<'a, T> {
    /// The inputs.
    pub inputs: &'a Inputs<'a, Buffer<T>>,
    /// The choices of tokens.
    pub routing: &'a Routing,
    /// The state that it kept.
    pub saved: &'a Saved<T>,
}

/// Gradients of what a layer reads, each as large as that: buffers of a device, or vectors on the
/// host.
#[derive(Clone, Debug)]
pub struct Gradients<T, L = Buffer<f32>> {
    /// `[tokens, dim]`, but for what leads through the logits to a router that reads the tokens.
    pub tokens: T,
    /// `[tokens, experts]`. That of a router's weights is the product of its transpose with the
    /// tokens.
    pub logits: L,
    /// `[experts, 2, hidden, dim]`
    pub up: T,
    /// `[experts, dim, hidden]`
    pub down: T,
}

impl<T: Element> Gradients<Buffer<T>> {
    /// Buffers for the gradients of a shape.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape); [`Error::Gpu`](crate::Error::Gpu).
    pub fn new(device: &Device, shape: &Shape) -> Result<Gradients<Buffer<T>>> {
        shape.check()?;
        Ok(Gradients {
            tokens: device.zeros(shape.token_elements())?,
            logits: device.zeros(shape.logits())?,
            up: device.zeros(shape.up_elements())?,
            down: device.zeros(shape.down_elements())?,
        })
    }
}

impl Moe {
    /// As [`Moe::forward`], and keeps what a backward pass needs.
    ///
    /// ```
    /// use apex_kernels::moe::{Forward, Inputs, Moe, Options, Shape};
    /// use half::bf16;
    ///
    /// let device = apex_gpu::Device::open(0)?;
    /// let moe = Moe::new(&device)?;
    /// let shape = Shape { tokens: 3, experts: 2, top_k: 1, dim: 4, hidden: 2 };
    /// let ones = |len| device.upload(&vec![bf16::ONE; len]);
    /// let (tokens, up, down) = (ones(shape.token_elements())?, ones(shape.up_elements())?, ones(shape.down_elements())?);
    /// let logits = device.upload(&[0.0f32, 1.0, 1.0, 0.0, 0.0, 1.0])?;
    /// let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
    ///
    /// let (done, saved) = moe.forward_saving(&inputs, &shape, &Options::default())?;
    /// let forward = Forward { inputs: &inputs, routing: &done.routing, saved: &saved };
    /// let (gradients, _) = moe.backward(&forward, &ones(shape.token_elements())?, None)?;
    /// // Two tokens chose the second expert, and one the first.
    /// let down = gradients.down.to_vec()?;
    /// assert!((down[8].to_f32() / down[0].to_f32() - 2.0).abs() < 0.02);
    /// # apex_kernels::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Moe::forward_into`].
    pub fn forward_saving<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        shape: &Shape,
        options: &Options,
    ) -> Result<(Output<T>, Saved<T>)> {
        let mut routing = Routing::new(&self.device, shape)?;
        let mut output = self.device.zeros(shape.token_elements())?;
        let mut saved = Saved::new(&self.device)?;
        let stream = self.device.stream();
        let form =
            self.forward_saving_into(inputs, &mut output, &mut routing, &mut saved, shape, options, stream)?;
        Ok((Output { output, routing, form }, saved))
    }

    /// As [`Moe::forward_into`], and keeps what a backward pass needs in `saved`, which may hold
    /// that of another pass before.
    ///
    /// # Errors
    /// As [`Moe::forward_into`].
    #[expect(clippy::too_many_arguments, reason = "inputs, three results, and what to do")]
    pub fn forward_saving_into<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        output: &mut Buffer<T>,
        routing: &mut Routing,
        saved: &mut Saved<T>,
        shape: &Shape,
        options: &Options,
        stream: &Stream,
    ) -> Result<MoeForm> {
        self.run(inputs, output, routing, Some(saved), shape, options, stream)
    }

    /// Computes the gradients of what a layer read from that of its output, `[tokens, dim]`, on the
    /// device's own stream, into new buffers, and returns the form that ran too. If `form` is
    /// `None`, that is [`Moe::form_for`]'s; it need not be that of the forward pass.
    ///
    /// Which experts a token chooses is taken as given: logits of others have a gradient of zero,
    /// unless the gate divides by what they add to its softmax.
    ///
    /// # Errors
    /// As [`Moe::backward_into`].
    pub fn backward<T: Element>(
        &self,
        forward: &Forward<'_, T>,
        output_gradient: &Buffer<T>,
        form: Option<MoeForm>,
    ) -> Result<(Gradients<Buffer<T>>, MoeForm)> {
        let (shape, _) = forward.saved.of.ok_or_else(|| nothing_saved("Moe::forward_saving does"))?;
        let mut gradients = Gradients::new(&self.device, &shape)?;
        let form =
            self.backward_into(forward, output_gradient, &mut gradients, form, self.device.stream())?;
        Ok((gradients, form))
    }

    /// The same in the order of `stream`, into buffers that the caller has, which may hold anything
    /// before. Returns before the work is done.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if no forward pass has saved anything or a buffer has
    /// another size than its shape says; [`Error::Form`](crate::Error::Form) if the form does not
    /// run on this device or has no kernel for the shape; [`Error::Gpu`](crate::Error::Gpu).
    pub fn backward_into<T: Element>(
        &self,
        forward: &Forward<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<Buffer<T>>,
        form: Option<MoeForm>,
        stream: &Stream,
    ) -> Result<MoeForm> {
        let Forward { inputs, routing, saved } = forward;
        let (shape, options) = &saved.of.ok_or_else(|| nothing_saved("Moe::forward_saving does"))?;
        check(shape, [inputs.tokens.len(), inputs.logits.len(), inputs.up.len(), inputs.down.len()])?;
        routing.check(shape)?;
        check_elements(
            "the output's gradients",
            &[("tokens", shape.tokens), ("dim", shape.dim)],
            output_gradient.len(),
        )?;
        let Gradients { tokens, logits, up, down } = &*gradients;
        check(shape, [tokens.len(), logits.len(), up.len(), down.len()])?;
        let form = form.unwrap_or_else(|| self.form_for(shape));
        if let Some(why) = self.refusal(form, shape) {
            return Err(self.refused(form, why));
        }
        if shape.tokens == 0 {
            gradients.up.clear_on(stream)?;
            gradients.down.clear_on(stream)?;
            return Ok(form);
        }
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = shape.problem(options);
        let call = Call { moe: self, problem, shape, rows: shape.choices(), stream };
        let Saved { plan, projections, .. } = saved;
        let kept = Kept { inputs, weights: &routing.weights, plan, projections };
        let parts = call.row_gradients(form, &kept, output_gradient, gradients, &mut workspace)?;
        let weight_parts = &workspace.weight_parts;
        call.gate_gradient(forward, weight_parts, parts, &mut gradients.logits)?;
        call.combine(&workspace.rows, None, &saved.plan, &mut gradients.tokens)?;
        Ok(form)
    }
}

/// The tensors from which the gradients of rows are computed.
pub(super) struct Kept<'a, T> {
    pub inputs: &'a Inputs<'a, Buffer<T>>,
    /// The weights of choices.
    pub weights: &'a Buffer<f32>,
    pub plan: &'a Plan,
    pub projections: &'a Buffer<T>,
}

impl Call<'_> {
    /// Gradients of both weights, and in the workspace those of the rows of tokens and parts of
    /// those of the weights of choices; returns how many parts each of these has.
    pub(super) fn row_gradients<T: Element>(
        &self,
        form: MoeForm,
        kept: &Kept<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<Buffer<T>>,
        workspace: &mut Workspace,
    ) -> Result<usize> {
        let (shape, stream) = (self.shape, self.stream);
        reserve(&mut workspace.projection_gradient, 2 * self.rows * shape.hidden, stream)?;
        reserve(&mut workspace.hidden, self.rows * shape.hidden, stream)?;
        reserve(&mut workspace.rows, self.rows * shape.dim, stream)?;
        let parts = weight_parts(form, shape);
        reserve(&mut workspace.weight_parts, self.rows * parts, stream)?;
        match form {
            MoeForm::Portable => self.portable_gradients(kept, output_gradient, gradients, workspace)?,
            MoeForm::Hopper => self.hopper_gradients(kept, output_gradient, gradients, workspace)?,
        }
        Ok(parts)
    }
}

/// Number of partial gradients of a row's weight.
pub(super) fn weight_parts(form: MoeForm, shape: &Shape) -> usize {
    match form {
        MoeForm::Portable => portable::weight_parts(shape),
        MoeForm::Hopper => hopper::weight_parts(shape),
    }
}

/// `saves` is what would have saved it.
pub(super) fn nothing_saved(saves: &str) -> crate::Error {
    wrong(format!("no forward pass has saved anything for a backward pass; {saves}"))
}
