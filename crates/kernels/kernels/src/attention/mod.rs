//! Attention, forward and backward.
//!
//! One interface over several forms. [`Attention::forward_into`] checks shapes and options once,
//! for all forms, and turns them into a [`Problem`], the structure that every kernel takes; a form
//! is then little more than a launch.
//!
//! Invariants:
//! - What is refused is refused before anything is launched.
//! - Every element of the output and of the log-sum-exps is written, also for rows that see no key
//!   (zeros, and minus infinity), so outputs may hold anything before.

mod backward;
mod decode;
mod hopper;
mod portable;
mod problem;
pub mod reference;
mod sequences;
mod shape;
mod workspace;

use std::sync::{Arc, Mutex};

use apex_gpu::{Buffer, Device, Kernel, Stream};

pub use backward::{Gradients, Saved};
pub use sequences::Sequences;
pub use shape::{Layout, Mask, Options, Shape};
pub use workspace::Workspace;

use crate::images::{Image, Images};
use crate::{Element, Error, Result};
use problem::Problem;

/// As errors name it.
const TECHNIQUE: &str = "attention";

/// A way to compute attention, see the [crate's](crate) table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttentionForm {
    /// Three kernels: all scores, their softmax, the product with V.
    Standard,
    /// One kernel that walks over the keys in blocks, with the online softmax.
    Flash,
    /// The same idea on Hopper's tensor cores and copy engine.
    Hopper,
    /// Two kernels for a few queries against many keys: one for chunks of the keys, one that
    /// merges.
    Decode,
}

impl AttentionForm {
    fn name(self) -> &'static str {
        match self {
            AttentionForm::Standard => "the standard form",
            AttentionForm::Flash => "the flash form",
            AttentionForm::Hopper => "the Hopper form",
            AttentionForm::Decode => "the decode form",
        }
    }
}

/// The result of [`Attention::forward`].
#[derive(Debug)]
pub struct Output<T> {
    /// As the queries: [`Shape::query_elements`] elements in the same layout.
    pub output: Buffer<T>,
    /// The natural logarithm of the sum of each row's exponentials: `[batch, heads, queries]`.
    pub log_sum_exp: Buffer<f32>,
    /// The form that ran.
    pub form: AttentionForm,
}

/// Attention on one device. Keeps what it has loaded, and memory that kernels need beside their
/// results: make one, use it for all calls. It may be shared among threads.
///
/// ```
/// use half::f16;
/// use apex_kernels::{Attention, AttentionForm, Options, Shape};
///
/// let device = apex_gpu::Device::open(0)?;
/// let attention = Attention::new(&device)?;
/// let shape = Shape { batch: 1, heads: 1, key_heads: 1, queries: 2, keys: 3, dim: 64 };
/// let q = device.zeros::<f16>(shape.query_elements())?;
/// let k = device.zeros::<f16>(shape.key_elements())?;
/// let done = attention.forward(&q, &k, &k, &shape, &Options { form: Some(AttentionForm::Standard), ..Options::default() })?;
/// assert_eq!(done.form, AttentionForm::Standard);
/// assert!((done.log_sum_exp.to_vec()?[0] - 3f32.ln()).abs() < 1e-6); // three scores of zero
///
/// let wrong = Shape { keys: 4, ..shape };
/// let error = attention.forward(&q, &k, &k, &wrong, &Options::default()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "attention: K has 192 elements, and its shape [batch 1, heads 1, rows 4, dim 64] needs 256"
/// );
/// # apex_kernels::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Attention {
    device: Device,
    images: Arc<Images>,
    /// As large as the largest call needed. Launches on different streams take turns at it, as
    /// `gpu` orders the uses of a buffer.
    workspace: Mutex<Workspace>,
}

impl Attention {
    /// Attention on `device`. Kernels are loaded when they are first needed.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there is no memory for two counters.
    pub fn new(device: &Device) -> Result<Attention> {
        let workspace = Workspace {
            counters: device.zeros(Workspace::COUNTERS)?,
            partial: [device.zeros(0)?, device.zeros(0)?],
        };
        Ok(Attention {
            device: device.clone(),
            images: Arc::new(Images::default()),
            workspace: Mutex::new(workspace),
        })
    }

    /// Returns the form that runs for a shape if none is asked for: [`AttentionForm::Decode`] where
    /// up to 8 queries share each of at least 1,024 keys, counting all heads of queries of a head
    /// of keys; [`Attention::fastest`] elsewhere.
    ///
    /// ```
    /// # use apex_kernels::{Attention, AttentionForm, Shape};
    /// let attention = Attention::new(&apex_gpu::Device::open(0)?)?;
    /// let token = Shape { batch: 4, heads: 32, key_heads: 8, queries: 1, keys: 65_536, dim: 128 };
    /// assert_eq!(attention.form_for(&token), AttentionForm::Decode);
    /// assert_eq!(attention.form_for(&Shape { queries: 65_536, ..token }), attention.fastest());
    /// # apex_kernels::Result::Ok(())
    /// ```
    pub fn form_for(&self, shape: &Shape) -> AttentionForm {
        if decode::suits(shape) { AttentionForm::Decode } else { self.fastest() }
    }

    /// The fastest form that the device has for as many queries as keys, and for gradients.
    pub fn fastest(&self) -> AttentionForm {
        match crate::hopper::refusal(&self.device) {
            None => AttentionForm::Hopper,
            Some(_) => AttentionForm::Flash,
        }
    }

    /// Computes attention on the device's own stream, into new buffers.
    ///
    /// # Errors
    /// As [`Attention::forward_into`].
    pub fn forward<T: Element>(
        &self,
        q: &Buffer<T>,
        k: &Buffer<T>,
        v: &Buffer<T>,
        shape: &Shape,
        options: &Options,
    ) -> Result<Output<T>> {
        shape.check()?;
        let mut output = self.device.zeros(shape.query_elements())?;
        let mut log_sum_exp = self.device.zeros(shape.rows())?;
        let stream = self.device.stream();
        let form = self.forward_into(q, k, v, &mut output, &mut log_sum_exp, shape, options, stream)?;
        Ok(Output { output, log_sum_exp, form })
    }

    /// Computes attention in the order of `stream`, into buffers that the caller has, and returns
    /// the form that ran. Returns before the work is done.
    ///
    /// # Errors
    /// [`Error::Shape`] if a shape is wrong, a buffer has another size, or there is no kernel for
    /// the head dimension; [`Error::Form`] if the form does not run on this device; [`Error::Gpu`].
    #[expect(clippy::too_many_arguments, reason = "three inputs, two outputs, and what to do")]
    pub fn forward_into<T: Element>(
        &self,
        q: &Buffer<T>,
        k: &Buffer<T>,
        v: &Buffer<T>,
        output: &mut Buffer<T>,
        log_sum_exp: &mut Buffer<f32>,
        shape: &Shape,
        options: &Options,
        stream: &Stream,
    ) -> Result<AttentionForm> {
        let problem = Problem::new(shape, options)?;
        shape.check_queries("Q", q.len())?;
        shape.check_keys("K", k.len())?;
        shape.check_keys("V", v.len())?;
        shape.check_queries("the output", output.len())?;
        shape.check_log_sum_exp(log_sum_exp.len())?;
        let form = options.form.unwrap_or_else(|| self.form_for(shape));
        if form == AttentionForm::Hopper
            && let Some(why) = crate::hopper::refusal(&self.device)
        {
            return Err(self.refused(form, why));
        }
        if shape.rows() == 0 {
            return Ok(form);
        }
        if shape.keys == 0 {
            // Nobody sees anything, and there is nothing to launch over.
            output.clear_on(stream)?;
            log_sum_exp.write_on(&vec![f32::NEG_INFINITY; shape.rows()], stream)?;
            return Ok(form);
        }
        let call = Call { attention: self, problem, shape, sequences: None, mask: options.mask, stream };
        let tensors = Tensors { q, k, v, output, log_sum_exp };
        match form {
            AttentionForm::Standard => call.standard(tensors)?,
            AttentionForm::Flash => call.flash(tensors)?,
            AttentionForm::Hopper => call.hopper(tensors)?,
            AttentionForm::Decode => call.decode(tensors)?,
        }
        Ok(form)
    }

    fn refused(&self, form: AttentionForm, why: String) -> Error {
        Error::Form { technique: TECHNIQUE, form: form.name(), device: self.device.name().to_owned(), why }
    }

    /// The kernel of this name, from memory or loaded now.
    fn kernel(&self, image: Image, name: &str) -> Result<Arc<Kernel>> {
        self.images.kernel(&self.device, image, name)
    }
}

/// The buffers that a forward pass reads and writes.
struct Tensors<'a, T> {
    q: &'a Buffer<T>,
    k: &'a Buffer<T>,
    v: &'a Buffer<T>,
    output: &'a mut Buffer<T>,
    log_sum_exp: &'a mut Buffer<f32>,
}

/// One call: its problem is consistent and fits its buffers; whoever launches sees to it that there
/// are rows.
struct Call<'a> {
    attention: &'a Attention,
    problem: Problem,
    shape: &'a Shape,
    /// Packed sequences, all of which are in `shape`.
    sequences: Option<&'a Sequences>,
    mask: Mask,
    stream: &'a Stream,
}
