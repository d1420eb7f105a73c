//! Expert choice: each expert chooses tokens, and all experts as many (arXiv 2202.09368).
//! `cuda/moe_expert_choice.cu`.
//!
//! Invariant: what [`ExpertChoice`] holds is of one forward pass, with its shape and options, so
//! that a backward pass cannot be asked for with others.

use std::sync::{Arc, PoisonError};

use apex_gpu::{Buffer, Device, Kernel, Stream};

use crate::images::{Code, Image};
use crate::moe::backward::{Kept, nothing_saved};
use crate::moe::plan::Plan;
use crate::moe::portable::{MOST_BLOCKS, THREADS};
use crate::moe::shape::{Gate, MOST_ROWS, Options, Shape, check_capacity, check_elements, wrong};
use crate::moe::{Between, Call, Gradients, Inputs, Moe, MoeForm, Workspace, check};
use crate::{Element, Result};

const EXPERT_CHOICE: Image = Image {
    name: "moe_expert_choice",
    code: Code::Ptx(include_bytes!("../../binaries/moe_expert_choice.ptx.zst")),
};

/// As `moe::SELECT` and `moe::SCAN`: threads of a block that selects, and tokens of a block that
/// lists.
const SELECT: u32 = 1024;
const SCAN: usize = 256;

/// Options of the experts' choice. The default is a softmax, and as many choices as if each token
/// had made [`Shape::top_k`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExpertOptions {
    /// The conversion of logits to scores. An expert chooses the tokens of its largest scores in
    /// float32, the lower token among equals; the scores are the weights. NaN counts as minus
    /// infinity.
    pub gate: Gate,
    /// Tokens that each expert chooses, all of them if there are not more;
    /// [`shape.capacity(1.0)`](Shape::capacity) if it is `None`.
    pub capacity: Option<usize>,
    /// The form; that of [`Moe::form_for`] if it is `None`.
    pub form: Option<MoeForm>,
}

impl ExpertOptions {
    /// Tokens that each expert chooses.
    pub(super) fn rows_of_expert(&self, shape: &Shape) -> usize {
        self.capacity.unwrap_or_else(|| shape.capacity(1.0)).min(shape.tokens)
    }

    pub(super) fn check(&self, shape: &Shape, biased: bool) -> Result<()> {
        check_capacity(self.capacity)?;
        let (experts, capacity) = (shape.experts, self.rows_of_expert(shape));
        if experts * capacity > MOST_ROWS {
            return Err(wrong(format!(
                "{experts} experts that choose {capacity} tokens each make more than {MOST_ROWS} rows; split the tokens"
            )));
        }
        if biased {
            return Err(wrong("a bias changes nothing where experts choose; leave it out".to_owned()));
        }
        Ok(())
    }
}

/// A pass of a layer whose experts choose: what they chose, and what a backward pass needs. It may
/// be used for one pass after another.
///
/// ```
/// use apex_gpu::Device;
/// use apex_kernels::moe::{ExpertChoice, ExpertOptions, Gradients, Inputs, Moe, Shape};
/// use half::bf16;
///
/// let device = Device::open(0)?;
/// let moe = Moe::new(&device)?;
/// let shape = Shape { tokens: 4, experts: 2, top_k: 1, dim: 4, hidden: 2 };
/// let ones = |len| device.upload(&vec![bf16::ONE; len]);
/// let (tokens, up, down) = (ones(shape.token_elements())?, ones(shape.up_elements())?, ones(shape.down_elements())?);
/// let logits = device.upload(&[0.0f32, 3.0, 5.0, 0.0, 0.0, 4.0, 0.0, 0.0])?;
/// let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
///
/// let mut output = device.zeros(shape.token_elements())?;
/// let mut choice = ExpertChoice::saving(&device, &shape, &ExpertOptions::default())?;
/// moe.expert_choice(&inputs, &mut output, &mut choice, device.stream())?;
/// assert_eq!(choice.tokens.to_vec()?, [1, 3, 0, 2]); // two for each expert
/// assert_eq!(choice.loads.to_vec()?, [1, 1, 1, 1]); // experts of each token
///
/// let mut gradients = Gradients::new(&device, &shape)?;
/// moe.expert_choice_backward(&inputs, &choice, &ones(shape.token_elements())?, &mut gradients, device.stream())?;
/// # apex_kernels::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ExpertChoice<T> {
    /// `[experts, capacity]`: the tokens that each expert chose, in their order.
    pub tokens: Buffer<u32>,
    /// Their weights.
    pub weights: Buffer<f32>,
    /// Experts that chose each token: 0 for a token whose output is zero.
    pub loads: Buffer<u32>,
    plan: Plan,
    /// `[experts, tokens]`: scores, then the row of each token.
    slots: Buffer<u32>,
    /// `[tokens + 1]`: where the rows of each token begin in those of all tokens, `[rows]`.
    starts: Buffer<u32>,
    token_rows: Buffer<u32>,
    /// Rows of each block of tokens.
    sums: Buffer<u32>,
    projections: Option<Buffer<T>>,
    shape: Shape,
    options: ExpertOptions,
    /// Whether a forward pass has filled it.
    filled: bool,
}

impl<T: Element> ExpertChoice<T> {
    /// Memory for passes of a shape without a backward pass.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shape or a capacity is wrong;
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn new(device: &Device, shape: &Shape, options: &ExpertOptions) -> Result<ExpertChoice<T>> {
        shape.check()?;
        options.check(shape, false)?;
        let rows = shape.experts * options.rows_of_expert(shape);
        let mut plan = Plan::new(device)?;
        plan.reserve(rows, 0, shape.experts, device.stream())?;
        Ok(ExpertChoice {
            tokens: device.zeros(rows)?,
            weights: device.zeros(rows)?,
            loads: device.zeros(shape.tokens)?,
            plan,
            slots: device.zeros(shape.logits())?,
            starts: device.zeros(shape.tokens + 1)?,
            token_rows: device.zeros(rows)?,
            sums: device.zeros(shape.tokens.div_ceil(SCAN))?,
            projections: None,
            shape: *shape,
            options: *options,
            filled: false,
        })
    }

    /// The same with memory for what a backward pass needs, `2 · rows · hidden` elements.
    ///
    /// # Errors
    /// As [`ExpertChoice::new`].
    pub fn saving(device: &Device, shape: &Shape, options: &ExpertOptions) -> Result<ExpertChoice<T>> {
        let mut choice = ExpertChoice::new(device, shape, options)?;
        choice.projections = Some(device.zeros(2 * choice.rows() * shape.hidden)?);
        Ok(choice)
    }

    fn rows(&self) -> usize {
        self.shape.experts * self.options.rows_of_expert(&self.shape)
    }

    fn check(&self, inputs: &Inputs<'_, Buffer<T>>, what: &str, output: usize) -> Result<()> {
        let shape = &self.shape;
        check(shape, [inputs.tokens.len(), inputs.logits.len(), inputs.up.len(), inputs.down.len()])?;
        self.options.check(shape, inputs.bias.is_some())?;
        check_elements(what, &[("tokens", shape.tokens), ("dim", shape.dim)], output)?;
        let chosen = [("experts", shape.experts), ("capacity", self.options.rows_of_expert(shape))];
        check_elements("the chosen tokens", &chosen, self.tokens.len())?;
        check_elements("the weights of choices", &chosen, self.weights.len())?;
        check_elements("the loads of tokens", &[("tokens", shape.tokens)], self.loads.len())
    }
}

impl Moe {
    /// Computes a layer whose experts choose in the order of `stream`, and returns the form that
    /// ran. Results may hold anything before. Returns before the work is done.
    ///
    /// A token's experts depend on the other tokens of the call: where tokens must not know of
    /// later ones, as in a decoder, that leaks.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if a buffer has another size or there is a bias;
    /// [`Error::Form`](crate::Error::Form) if the form does not run on this device or has no kernel
    /// for the shape; [`Error::Gpu`](crate::Error::Gpu).
    pub fn expert_choice<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        output: &mut Buffer<T>,
        choice: &mut ExpertChoice<T>,
        stream: &Stream,
    ) -> Result<MoeForm> {
        choice.check(inputs, "the outputs", output.len())?;
        let form = self.expert_form(choice)?;
        choice.filled = true;
        if choice.shape.tokens == 0 {
            return Ok(form);
        }
        let shape = choice.shape;
        let call = self.expert_call(&shape, choice, stream);
        call.expert_route(inputs.logits, choice)?;
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let Workspace { counters, hidden, rows, .. } = &mut *workspace;
        let ExpertChoice { plan, projections, .. } = choice;
        let between = Between { plan, counters, projections: projections.as_mut(), hidden, rows };
        call.products(form, inputs, between)?;
        call.expert_combine(rows, Some(&choice.weights), choice, output)?;
        Ok(form)
    }

    /// Computes the gradients of what a layer read whose experts chose from that of its output,
    /// `[tokens, dim]`, in the order of `stream`, and returns the form that ran. Which tokens
    /// experts choose is taken as given. Gradients may hold anything before. Returns before the
    /// work is done.
    ///
    /// # Errors
    /// As [`Moe::expert_choice`]; and [`Error::Shape`](crate::Error::Shape) if no forward pass has
    /// filled `choice`, or it saves nothing.
    pub fn expert_choice_backward<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        choice: &ExpertChoice<T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<Buffer<T>>,
        stream: &Stream,
    ) -> Result<MoeForm> {
        choice.check(inputs, "the output's gradients", output_gradient.len())?;
        let shape = &choice.shape;
        let Gradients { tokens, logits, up, down } = &*gradients;
        check(shape, [tokens.len(), logits.len(), up.len(), down.len()])?;
        let form = self.expert_form(choice)?;
        let Some(projections) = choice.projections.as_ref().filter(|_| choice.filled) else {
            return Err(nothing_saved("Moe::expert_choice does, with ExpertChoice::saving"));
        };
        if shape.tokens == 0 {
            gradients.up.clear_on(stream)?;
            gradients.down.clear_on(stream)?;
            return Ok(form);
        }
        let call = self.expert_call(shape, choice, stream);
        let kept = Kept { inputs, weights: &choice.weights, plan: &choice.plan, projections };
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = call.row_gradients(form, &kept, output_gradient, gradients, &mut workspace)?;
        let Workspace { rows, weight_parts, .. } = &*workspace;
        call.expert_gate_gradient(inputs.logits, choice, weight_parts, parts, &mut gradients.logits)?;
        call.expert_combine(rows, None, choice, &mut gradients.tokens)?;
        Ok(form)
    }

    fn expert_form<T>(&self, choice: &ExpertChoice<T>) -> Result<MoeForm> {
        let form = choice.options.form.unwrap_or_else(|| self.form_for(&choice.shape));
        match self.refusal(form, &choice.shape) {
            Some(why) => Err(self.refused(form, why)),
            None => Ok(form),
        }
    }

    fn expert_call<'a, T: Element>(
        &'a self,
        shape: &'a Shape,
        choice: &ExpertChoice<T>,
        stream: &'a Stream,
    ) -> Call<'a> {
        let options = Options { gate: choice.options.gate, renormalise: false, ..Options::default() };
        Call { moe: self, problem: shape.problem(&options), shape, rows: choice.rows(), stream }
    }
}

impl Call<'_> {
    fn expert_kernel(&self, name: &str) -> Result<Arc<Kernel>> {
        self.moe.kernel(EXPERT_CHOICE, &format!("moe_expert_{name}"))
    }

    fn capacity(&self) -> i32 {
        // `ExpertOptions::check` has seen to it that it fits.
        (self.rows / self.shape.experts) as i32
    }

    /// Lets experts choose, and lists the rows of tokens.
    fn expert_route<T>(&self, logits: &Buffer<f32>, choice: &mut ExpertChoice<T>) -> Result<()> {
        let kernel = |name| self.expert_kernel(name);
        let (scores, select) = (kernel("scores")?, kernel("select")?);
        let (count, list) = (kernel("count")?, kernel("list")?);
        let ExpertChoice { tokens, weights, loads, plan, slots, starts, token_rows, sums, .. } = choice;

        let chunks = self.shape.chunks().min(MOST_BLOCKS) as u32;
        let launch = scores.launch(chunks, THREADS).on(self.stream).arg(logits).arg(&mut *slots);
        // SAFETY: the buffers have the sizes that the problem says.
        unsafe { launch.arg(self.problem).launch()? };

        let launch = select.launch(self.shape.experts as u32, SELECT).on(self.stream);
        let launch = launch.arg(&mut *slots).arg(tokens).arg(weights);
        let launch = launch.arg(&mut plan.row_tokens).arg(&mut plan.row_choices);
        let launch = launch.arg(&mut plan.spans).arg(&mut plan.tiles).arg(self.capacity());
        // SAFETY: as above; there are not more rows of an expert than tokens, and as many in the
        // plan as all experts have.
        unsafe { launch.arg(self.problem).launch()? };

        let blocks = self.shape.tokens.div_ceil(SCAN).min(MOST_BLOCKS) as u32;
        let launch = count.launch(blocks, THREADS).on(self.stream).arg(&*slots).arg(loads);
        // SAFETY: as above; there is a sum for each block of tokens.
        unsafe { launch.arg(&mut *starts).arg(&mut *sums).arg(self.problem).launch()? };
        let launch = list.launch(blocks, THREADS).on(self.stream).arg(&*slots).arg(&*sums);
        // SAFETY: as above; each row is that of one token.
        unsafe { launch.arg(starts).arg(token_rows).arg(self.problem).launch()? };
        Ok(())
    }

    /// Adds up the rows of each token, by their weights if there are any.
    fn expert_combine<T: Element>(
        &self,
        rows: &Buffer<u16>,
        weights: Option<&Buffer<f32>>,
        choice: &ExpertChoice<T>,
        output: &mut Buffer<T>,
    ) -> Result<()> {
        let kernel = self.expert_kernel(&format!("combine_{}", T::NAME))?;
        let launch = kernel.launch(self.shape.tokens.min(MOST_BLOCKS) as u32, THREADS).on(self.stream);
        let launch = launch.arg(rows);
        let launch = match weights {
            Some(weights) => launch.arg(weights),
            None => launch.arg(0u64),
        };
        let launch = launch.arg(&choice.starts).arg(&choice.token_rows).arg(output);
        // SAFETY: the buffers have the sizes that the problem says, and all rows have been written.
        unsafe { launch.arg(self.problem).launch()? };
        Ok(())
    }

    /// Adds up the parts of the weights' gradients, `parts` for each row, and leads them through
    /// the gate.
    fn expert_gate_gradient<T>(
        &self,
        logits: &Buffer<f32>,
        choice: &ExpertChoice<T>,
        weight_parts: &Buffer<f32>,
        parts: usize,
        gradient: &mut Buffer<f32>,
    ) -> Result<()> {
        let kernel = self.expert_kernel("gate_gradient")?;
        let warps = THREADS / 32;
        let blocks = self.shape.tokens.div_ceil(warps as usize).min(MOST_BLOCKS) as u32;
        let shared = 4 * warps * self.shape.experts as u32;
        let launch = kernel.launch(blocks, THREADS).shared(shared).on(self.stream).arg(logits);
        let launch = launch.arg(&choice.weights).arg(&choice.starts).arg(&choice.token_rows);
        let launch = launch.arg(weight_parts).arg(parts as i32).arg(self.capacity());
        // SAFETY: the buffers have the sizes that the problem says, and each row's parts have been
        // written.
        unsafe { launch.arg(gradient).arg(self.problem).launch()? };
        Ok(())
    }
}
