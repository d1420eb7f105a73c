//! Memory between the kernels of a call, and the way in which a caller provides it.
//!
//! [`Attention`] keeps memory of its own, as large as the largest call needed. A caller who must
//! not have that (a framework counts its memory, or captures a stream and replays the graph beside
//! other work) makes a [`Workspace`] for each call instead: nothing is then allocated, and no call
//! waits for another.

use std::sync::{Arc, Mutex};

use apex_gpu::{Buffer, Stream};

use crate::Result;
use crate::attention::problem::Problem;
use crate::attention::{Attention, AttentionForm, Options, Shape, backward, hopper};
use crate::workspace::reserve;

/// Memory between the kernels of a call.
#[derive(Debug)]
pub struct Workspace {
    /// Counters from which blocks of the Hopper form take tiles: at least [`Workspace::COUNTERS`]
    /// zeros, which are zeros again after each launch.
    pub counters: Buffer<u32>,
    /// Partial results. They may hold anything.
    pub partial: [Buffer<f32>; 2],
}

impl Workspace {
    /// Elements of [`Workspace::counters`].
    pub const COUNTERS: usize = 2;

    /// Reserves the partial results, with at least this number of elements.
    pub(super) fn reserve(&mut self, lengths: [usize; 2], stream: &Stream) -> Result<[&mut Buffer<f32>; 2]> {
        for (buffer, len) in self.partial.iter_mut().zip(lengths) {
            reserve(buffer, len, stream)?;
        }
        Ok(self.partial.each_mut())
    }
}

impl Attention {
    /// Elements of [`Workspace::partial`] that a forward pass needs.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) as [`Attention::forward_into`].
    pub fn forward_workspace(&self, shape: &Shape, options: &Options) -> Result<[usize; 2]> {
        Problem::new(shape, options)?;
        Ok(match options.form.unwrap_or_else(|| self.form_for(shape)) {
            AttentionForm::Decode => self.decode_partial(shape),
            AttentionForm::Standard | AttentionForm::Flash | AttentionForm::Hopper => [0, 0],
        })
    }

    /// Elements of [`Workspace::partial`] that a forward pass over `count` packed sequences needs,
    /// whose rows are those of `all`.
    ///
    /// # Errors
    /// As [`Attention::forward_sequences_into`].
    pub fn forward_sequences_workspace(
        &self,
        all: &Shape,
        count: usize,
        options: &Options,
    ) -> Result<[usize; 2]> {
        Problem::new(all, options)?;
        Ok(match self.form_of_sequences(all, options)? {
            AttentionForm::Hopper => [hopper::forward_plan_words(all, count), 0],
            _ => [0, 0],
        })
    }

    /// The same of a backward pass.
    ///
    /// # Errors
    /// As [`Attention::backward_sequences_into`].
    pub fn backward_sequences_workspace(
        &self,
        all: &Shape,
        count: usize,
        options: &Options,
    ) -> Result<[usize; 2]> {
        Problem::new(all, options)?;
        Ok(match self.form_of_sequences(all, options)? {
            AttentionForm::Hopper => backward::sequences_partial(all, count),
            _ => backward::flash_partial(all),
        })
    }

    /// Elements of [`Workspace::partial`] that a backward pass needs.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) as [`Attention::backward_into`].
    pub fn backward_workspace(&self, shape: &Shape, options: &Options) -> Result<[usize; 2]> {
        Problem::new(shape, options)?;
        let form = options.form.unwrap_or_else(|| self.fastest());
        Ok(self.backward_partial(form, shape))
    }

    /// Attention with the same loaded kernels, whose calls use `workspace`. If it is too small for
    /// a call, the call replaces it.
    ///
    /// ```
    /// use apex_kernels::{Attention, Options, Shape, Workspace};
    /// use half::f16;
    ///
    /// let device = apex_gpu::Device::open(0)?;
    /// let attention = Attention::new(&device)?;
    /// let shape = Shape { batch: 1, heads: 1, key_heads: 1, queries: 1, keys: 2048, dim: 64 };
    /// let [outputs, sums] = attention.forward_workspace(&shape, &Options::default())?;
    /// assert!(outputs > 0 && sums > 0); // the decode form's
    /// let workspace = Workspace {
    ///     counters: device.zeros(Workspace::COUNTERS)?,
    ///     partial: [device.zeros(outputs)?, device.zeros(sums)?],
    /// };
    /// let (q, k) = (device.zeros::<f16>(64)?, device.zeros::<f16>(2048 * 64)?);
    /// let done = attention.with_workspace(workspace).forward(&q, &k, &k, &shape, &Options::default())?;
    /// assert!((done.log_sum_exp.to_vec()?[0] - 2048f32.ln()).abs() < 1e-5);
    /// # apex_kernels::Result::Ok(())
    /// ```
    pub fn with_workspace(&self, workspace: Workspace) -> Attention {
        Attention {
            device: self.device.clone(),
            images: Arc::clone(&self.images),
            workspace: Mutex::new(workspace),
        }
    }
}
