//! Mixture of experts: each token is computed by the few experts that it chooses.
//!
//! [`Moe`] computes, for each token `x` and the `top_k` experts `e` of its largest logits, `Σ w_e ·
//! Down_e (silu(Gate_e x) ∘ Up_e x)`. No choice is dropped, whatever the loads of experts are,
//! unless [`Options::capacity`] bounds these.
//!
//! A forward pass is six kernels: three route (choose, count, and give each choice its *row*,
//! sorted by expert), one multiplies the rows with Gate and Up, one with Down, one adds up the rows
//! of each token. Rows of tokens are gathered by the product that reads them, and added up by a
//! gather too: nothing is added atomically, and results are the same in each run.
//!
//! To train, [`Moe::forward_saving`] keeps the products with Gate and Up, and [`Moe::backward`]
//! returns the gradients of tokens, logits and both weights, in six kernels more: one for the
//! hidden layers, with the gradient of SwiGLU, one for the gate, one for each weight, one for the
//! rows of tokens, and one that adds these up. Sums have one order there too.
//!
//! Instead of tokens, experts may choose: [`ExpertChoice`] gives each expert the same number of
//! tokens, which its largest scores name.
//!
//! | form | runs on |
//! | --- | --- |
//! | [`reference`](mod@reference) | the host, in f64 |
//! | [`MoeForm::Portable`] | any GPU from compute capability 8.0 on, the CPU device |
//! | [`MoeForm::Hopper`] | compute capability 9.0 (H100, H200), if `dim` and `hidden` are multiples of 8 |
//!
//! Tokens choose as their logits say, however uneven that is: [`Balance`] says how uneven, and
//! [`Drops`] what a capacity takes away. Against it there are losses, with their gradients, in
//! [`Moe::auxiliary_into`], and without a loss a bias on what tokens choose, [`Inputs::bias`],
//! which [`Moe::balance_bias`] keeps.
//!
//! `docs/results/moe-h200.md` compares them with PyTorch.
//!
//! ```
//! use apex_gpu::Device;
//! use apex_kernels::moe::{Inputs, Moe, Options, Shape};
//! use half::bf16;
//!
//! let device = Device::open(0)?;
//! let moe = Moe::new(&device)?;
//! let shape = Shape { tokens: 3, experts: 2, top_k: 1, dim: 4, hidden: 2 };
//! let half = |len| device.upload(&vec![bf16::from_f32(0.5); len]);
//! let (tokens, up, down) = (half(shape.token_elements())?, half(shape.up_elements())?, half(shape.down_elements())?);
//! let logits = device.upload(&[0.0f32, 1.0, 1.0, 0.0, 0.0, 1.0])?;
//!
//! let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
//! let done = moe.forward(&inputs, &shape, &Options::default())?;
//! assert_eq!(done.routing.experts.to_vec()?, [1, 0, 1]);
//! assert_eq!(done.routing.loads.to_vec()?, [1, 2]); // tokens of each expert
//! println!("{:?} ran", done.form);
//! # apex_kernels::Result::Ok(())
//! ```

mod backward;
mod balance;
mod expert_choice;
mod hopper;
mod losses;
mod plan;
mod portable;
pub mod reference;
mod shape;
mod workspace;

use std::sync::{Arc, Mutex, PoisonError};

use apex_gpu::{Buffer, Device, Kernel, Stream};

pub use backward::{Forward, Gradients, Saved};
pub use balance::{Balance, Drops};
pub use expert_choice::{ExpertChoice, ExpertOptions};
pub use losses::{Auxiliary, Router};
pub use plan::Plan;
pub use shape::{Gate, Options, Shape};
pub use workspace::{Workspace, WorkspaceLengths};

use crate::images::{Image, Images};
use crate::workspace::reserve;
use crate::{Element, Error, Result};
use shape::{Problem, check_elements};

/// As errors name it.
const TECHNIQUE: &str = "mixture of experts";

/// A way to compute a mixture of experts, see the [module's](self) table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MoeForm {
    /// Products in float32, without tensor cores: it is there to be right everywhere.
    Portable,
    /// Products on Hopper's tensor cores, fed by its copy engine.
    Hopper,
}

/// The inputs of a layer: buffers of a device, or slices on the host.
#[derive(Debug)]
pub struct Inputs<'a, T: ?Sized, L: ?Sized = Buffer<f32>> {
    /// `[tokens, dim]`
    pub tokens: &'a T,
    /// `[tokens, experts]`, the router's: those of a token decide which experts it chooses, and
    /// their weights.
    pub logits: &'a L,
    /// `[experts]`: what is added to the scores of experts when a token chooses, and not to
    /// weights. It has no gradient.
    pub bias: Option<&'a L>,
    /// `[experts, 2, hidden, dim]`: weights of the gate, then those of what it gates.
    pub up: &'a T,
    /// `[experts, dim, hidden]`
    pub down: &'a T,
}

/// The choices of tokens.
#[derive(Debug)]
pub struct Routing {
    /// `[tokens, top_k]`, from the largest logit down.
    pub experts: Buffer<u32>,
    /// Their weights.
    pub weights: Buffer<f32>,
    /// Tokens that chose each expert; [`Balance::of`] says how even they are.
    pub loads: Buffer<u32>,
    /// One element: the number of choices that experts did not take, and of tokens of which no
    /// expert took any; [`Drops::of`] has their shares.
    pub drops: Buffer<[u32; 2]>,
}

impl Routing {
    /// Buffers for the choices of a shape.
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::Gpu`].
    pub fn new(device: &Device, shape: &Shape) -> Result<Routing> {
        shape.check()?;
        Ok(Routing {
            experts: device.zeros(shape.choices())?,
            weights: device.zeros(shape.choices())?,
            loads: device.zeros(shape.experts)?,
            drops: device.zeros(1)?,
        })
    }

    fn check(&self, shape: &Shape) -> Result<()> {
        let choices = [("tokens", shape.tokens), ("top_k", shape.top_k)];
        check_elements("the routing's experts", &choices, self.experts.len())?;
        check_elements("the routing's weights", &choices, self.weights.len())?;
        check_elements("the routing's loads", &[("experts", shape.experts)], self.loads.len())?;
        check_elements("the routing's drops", &[("calls", 1)], self.drops.len())
    }
}

/// The result of [`Moe::forward`].
#[derive(Debug)]
pub struct Output<T> {
    /// `[tokens, dim]`
    pub output: Buffer<T>,
    /// The choices of tokens.
    pub routing: Routing,
    /// The form that ran.
    pub form: MoeForm,
}

/// Mixtures of experts on one device. Keeps what it has loaded, and memory that kernels need beside
/// their results: make one, use it for all layers. It may be shared among threads.
///
/// ```
/// use apex_kernels::moe::{Inputs, Moe, Options, Shape};
/// use half::f16;
///
/// let device = apex_gpu::Device::open(0)?;
/// let moe = Moe::new(&device)?;
/// let shape = Shape { tokens: 2, experts: 4, top_k: 2, dim: 16, hidden: 8 };
/// let tokens = device.zeros::<f16>(shape.token_elements())?;
/// let logits = device.zeros::<f32>(shape.logits() - 1)?;
/// let (up, down) = (device.zeros(shape.up_elements())?, device.zeros(shape.down_elements())?);
/// let inputs = Inputs { tokens: &tokens, logits: &logits, bias: None, up: &up, down: &down };
/// let error = moe.forward(&inputs, &shape, &Options::default()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "mixture of experts: the logits have 7 elements, and their shape [tokens 2, experts 4] needs 8"
/// );
/// # apex_kernels::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Moe {
    device: Device,
    images: Arc<Images>,
    workspace: Mutex<Workspace>,
}

/// Checks that a layer's tensors have as many elements as the shape states, in the order of
/// [`Inputs`].
fn check(shape: &Shape, [tokens, logits, up, down]: [usize; 4]) -> Result<()> {
    shape.check()?;
    let (experts, dim, hidden) = (("experts", shape.experts), ("dim", shape.dim), ("hidden", shape.hidden));
    let all_tokens = ("tokens", shape.tokens);
    check_elements("the tokens", &[all_tokens, dim], tokens)?;
    check_elements("the logits", &[all_tokens, experts], logits)?;
    check_elements("the up weights", &[experts, ("gate and up", 2), hidden, dim], up)?;
    check_elements("the down weights", &[experts, dim, hidden], down)
}

/// Checks that there is a bias for each expert, or none.
fn check_bias(shape: &Shape, bias: Option<usize>) -> Result<()> {
    bias.map_or(Ok(()), |found| check_elements("the biases", &[("experts", shape.experts)], found))
}

impl Moe {
    /// Mixtures of experts on `device`. Kernels are loaded when they are first needed.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there is no memory for two counters.
    pub fn new(device: &Device) -> Result<Moe> {
        let workspace = Workspace::new(device)?;
        Ok(Moe { device: device.clone(), images: Arc::default(), workspace: Mutex::new(workspace) })
    }

    /// The form that runs for a shape if none is asked for, the fastest that the device has.
    ///
    /// ```
    /// # use apex_kernels::moe::{MoeForm, Moe, Shape};
    /// let moe = Moe::new(&apex_gpu::Device::open(0)?)?;
    /// let odd = Shape { tokens: 100, experts: 8, top_k: 2, dim: 100, hidden: 33 };
    /// assert_eq!(moe.form_for(&odd), MoeForm::Portable);
    /// # apex_kernels::Result::Ok(())
    /// ```
    pub fn form_for(&self, shape: &Shape) -> MoeForm {
        if self.refusal(MoeForm::Hopper, shape).is_none() { MoeForm::Hopper } else { MoeForm::Portable }
    }

    /// Computes a layer on the device's own stream, into new buffers.
    ///
    /// # Errors
    /// As [`Moe::forward_into`].
    pub fn forward<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        shape: &Shape,
        options: &Options,
    ) -> Result<Output<T>> {
        let mut routing = Routing::new(&self.device, shape)?;
        let mut output = self.device.zeros(shape.token_elements())?;
        let form =
            self.forward_into(inputs, &mut output, &mut routing, shape, options, self.device.stream())?;
        Ok(Output { output, routing, form })
    }

    /// Computes a layer in the order of `stream`, into buffers that the caller has, which may hold
    /// anything before, and returns the form that ran. Returns before the work is done.
    ///
    /// # Errors
    /// [`Error::Shape`] if a shape is wrong or a buffer has another size; [`Error::Form`] if the
    /// form does not run on this device or has no kernel for the shape; [`Error::Gpu`].
    pub fn forward_into<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        output: &mut Buffer<T>,
        routing: &mut Routing,
        shape: &Shape,
        options: &Options,
        stream: &Stream,
    ) -> Result<MoeForm> {
        self.run(inputs, output, routing, None, shape, options, stream)
    }

    /// A forward pass, which leaves in `saved` what a backward pass needs.
    #[expect(clippy::too_many_arguments, reason = "inputs, three results, and what to do")]
    fn run<T: Element>(
        &self,
        inputs: &Inputs<'_, Buffer<T>>,
        output: &mut Buffer<T>,
        routing: &mut Routing,
        saved: Option<&mut Saved<T>>,
        shape: &Shape,
        options: &Options,
        stream: &Stream,
    ) -> Result<MoeForm> {
        check(shape, [inputs.tokens.len(), inputs.logits.len(), inputs.up.len(), inputs.down.len()])?;
        check_bias(shape, inputs.bias.map(Buffer::len))?;
        options.check()?;
        check_elements("the outputs", &[("tokens", shape.tokens), ("dim", shape.dim)], output.len())?;
        routing.check(shape)?;
        let form = self.form_with(shape, options);
        if let Some(why) = self.refusal(form, shape) {
            return Err(self.refused(form, why));
        }
        if shape.tokens == 0 {
            routing.loads.clear_on(stream)?;
            routing.drops.clear_on(stream)?;
            saved.map(|saved| saved.prepare(shape, options, stream)).transpose()?;
            return Ok(form);
        }
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let call = Call { moe: self, problem: shape.problem(options), shape, rows: shape.choices(), stream };
        let Workspace { counts, plan, counters, hidden, rows, .. } = &mut *workspace;
        let (plan, projections) = match saved {
            Some(saved) => saved.prepare(shape, options, stream)?,
            None => (plan, None),
        };
        call.route(inputs, options, routing, counts, plan)?;
        call.products(form, inputs, Between { plan, counters, projections, hidden, rows })?;
        call.combine(rows, Some(&routing.weights), plan, output)?;
        Ok(form)
    }

    /// Returns the reason why the form does not run for the shape on this device, if it does not.
    fn refusal(&self, form: MoeForm, shape: &Shape) -> Option<String> {
        match form {
            MoeForm::Portable => None,
            MoeForm::Hopper => hopper::refusal(shape).or_else(|| crate::hopper::refusal(&self.device)),
        }
    }

    fn refused(&self, form: MoeForm, why: String) -> Error {
        let form = match form {
            MoeForm::Portable => "the portable form",
            MoeForm::Hopper => "the Hopper form",
        };
        Error::Form { technique: TECHNIQUE, form, device: self.device.name().to_owned(), why }
    }

    fn kernel(&self, image: Image, name: &str) -> Result<Arc<Kernel>> {
        self.images.kernel(&self.device, image, name)
    }
}

/// The buffers that the products of a forward pass read and write, besides inputs. They reserve
/// what they write.
struct Between<'a, T> {
    plan: &'a Plan,
    counters: &'a mut Buffer<u32>,
    /// The products with Gate and Up, `[rows, 2, hidden]`, if they are to be kept.
    projections: Option<&'a mut Buffer<T>>,
    hidden: &'a mut Buffer<u16>,
    rows: &'a mut Buffer<u16>,
}

/// One call: its problem is consistent, has tokens, and fits its buffers.
struct Call<'a> {
    moe: &'a Moe,
    problem: Problem,
    shape: &'a Shape,
    /// The number of rows, at most.
    rows: usize,
    stream: &'a Stream,
}

impl Call<'_> {
    /// Both products, for the rows of the plan.
    fn products<T: Element>(
        &self,
        form: MoeForm,
        inputs: &Inputs<'_, Buffer<T>>,
        between: Between<'_, T>,
    ) -> Result<()> {
        reserve(between.hidden, self.rows * self.shape.hidden, self.stream)?;
        reserve(between.rows, self.rows * self.shape.dim, self.stream)?;
        match form {
            MoeForm::Portable => self.portable_products(inputs, between),
            MoeForm::Hopper => self.hopper_products(inputs, between),
        }
    }
}
