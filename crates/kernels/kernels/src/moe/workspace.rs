//! Memory between the kernels of a call, and the way in which a caller provides it.
//!
//! [`Moe`] keeps memory of its own, as large as the largest call needed. A caller who must not have
//! that (a framework counts its memory, or captures a stream) makes a [`Workspace`] for each call
//! instead: nothing is then allocated, and no call waits for another.

use std::sync::{Arc, Mutex};

use apex_gpu::{Buffer, Device};

use crate::Result;
use crate::moe::backward::weight_parts;
use crate::moe::plan::Plan;
use crate::moe::{Moe, MoeForm, Options, Shape};

/// Memory between the kernels of a call. All but the counters may hold anything before a call.
#[derive(Debug)]
pub struct Workspace {
    /// `[experts, chunks]`: choices of each chunk of tokens, then choices of the chunks before.
    pub counts: Buffer<u32>,
    /// The rows of a forward pass that saves nothing.
    pub plan: Plan,
    /// Counters from which the Hopper form's blocks take tiles: [`Workspace::COUNTERS`] zeros,
    /// which are zeros again after each launch.
    pub counters: Buffer<u32>,
    /// Hidden layers, `[rows, hidden]`: 16-bit elements of either type.
    pub hidden: Buffer<u16>,
    /// Results, `[rows, dim]`, of either type.
    pub rows: Buffer<u16>,
    /// Gradients of the products with Gate and Up in a backward pass, `[rows, 2, hidden]`.
    pub projection_gradient: Buffer<u16>,
    /// Contributions of tiles of columns to the gradients of weights in a backward pass,
    /// `[rows, tiles]`; contributions of chunks to the losses.
    pub weight_parts: Buffer<f32>,
}

/// The elements of a [`Workspace`] that a call needs, beside the counters and the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceLengths {
    /// Elements of [`Workspace::counts`].
    pub counts: usize,
    /// Elements of [`Workspace::hidden`].
    pub hidden: usize,
    /// Elements of [`Workspace::rows`].
    pub rows: usize,
    /// Elements of [`Workspace::projection_gradient`].
    pub projection_gradient: usize,
    /// Elements of [`Workspace::weight_parts`].
    pub weight_parts: usize,
}

impl Workspace {
    /// Elements of [`Workspace::counters`].
    pub const COUNTERS: usize = 2;

    pub(super) fn new(device: &Device) -> Result<Workspace> {
        Ok(Workspace {
            counts: device.zeros(0)?,
            plan: Plan::new(device)?,
            counters: device.zeros(Workspace::COUNTERS)?,
            hidden: device.zeros(0)?,
            rows: device.zeros(0)?,
            projection_gradient: device.zeros(0)?,
            weight_parts: device.zeros(0)?,
        })
    }
}

impl Moe {
    /// The lengths that a forward pass needs.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape).
    pub fn forward_workspace(shape: &Shape) -> Result<WorkspaceLengths> {
        shape.check()?;
        let (counts, rows) = (shape.experts * shape.chunks(), shape.choices());
        let (hidden, rows) = (rows * shape.hidden, rows * shape.dim);
        Ok(WorkspaceLengths { counts, hidden, rows, ..WorkspaceLengths::default() })
    }

    /// The lengths that a backward pass in this form needs.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape).
    pub fn backward_workspace(shape: &Shape, form: MoeForm) -> Result<WorkspaceLengths> {
        let lengths = Moe::forward_workspace(shape)?;
        let (projection_gradient, parts) = (2 * lengths.hidden, shape.choices() * weight_parts(form, shape));
        Ok(WorkspaceLengths { counts: 0, projection_gradient, weight_parts: parts, ..lengths })
    }

    /// Mixtures of experts with the same loaded kernels, whose calls use `workspace`. If it is too
    /// small for a call, the call replaces it.
    pub fn with_workspace(&self, workspace: Workspace) -> Moe {
        Moe {
            device: self.device.clone(),
            images: Arc::clone(&self.images),
            workspace: Mutex::new(workspace),
        }
    }

    /// The form that runs with these options.
    ///
    /// ```
    /// use apex_kernels::moe::{Moe, MoeForm, Options, Shape};
    ///
    /// let moe = Moe::new(&apex_gpu::Device::open(0)?)?;
    /// let shape = Shape { tokens: 100, experts: 8, top_k: 2, dim: 64, hidden: 32 };
    /// let options = Options { form: Some(MoeForm::Portable), ..Options::default() };
    /// assert_eq!(moe.form_with(&shape, &options), MoeForm::Portable);
    /// # apex_kernels::Result::Ok(())
    /// ```
    pub fn form_with(&self, shape: &Shape, options: &Options) -> MoeForm {
        options.form.unwrap_or_else(|| self.form_for(shape))
    }
}
