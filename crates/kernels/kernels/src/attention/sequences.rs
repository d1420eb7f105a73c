//! Packed batches of sequences of different lengths (also called varlen, by `cu_seqlens`):
//! `cuda/attention_sequences.cuh`, and `cuda/attention_tiles.cuh` for the Hopper form.
//!
//! Invariant: what is computed for a sequence is what a call with this sequence alone computes in
//! the same form, bit by bit, but for the gradient of Q in the Hopper form: the kernels are
//! compiled from the same source, and only look elsewhere for rows.

use std::sync::PoisonError;

use apex_gpu::{Buffer, Device, Stream};

use crate::attention::problem::Problem;
use crate::attention::shape::{Options, Shape};
use crate::attention::{
    Attention, AttentionForm, Call, Gradients, Output, Saved, Tensors, backward, portable,
};
use crate::images::{Code, Image};
use crate::{Element, Result};

const FORWARD: Image = Image {
    name: "attention_sequences",
    code: Code::Ptx(include_bytes!("../../binaries/attention_sequences.ptx.zst")),
};
const BACKWARD: Image = Image {
    name: "attention_backward_sequences",
    code: Code::Ptx(include_bytes!("../../binaries/attention_backward_sequences.ptx.zst")),
};

/// Blocks along x of a grid; kernels loop over what is more.
const MOST_BLOCKS: usize = 1 << 20;
/// Blocks along y, of which a grid can have 65535; kernels loop over what is more.
const MOST_SEQUENCES: usize = 65535;

/// A packed batch of sequences of different lengths: they lie one after another without gaps in Q,
/// K, V and O, each as [`Options::layout`] says: with [`Layout::RowsFirst`], Q is `[all queries,
/// heads, dim]`. Log-sum-exps lie one sequence after another too, each `[heads, queries]`.
///
/// [`Layout::RowsFirst`]: crate::Layout::RowsFirst
///
/// ```
/// use apex_kernels::{Attention, Mask, Options, Sequences, Shape};
/// use half::bf16;
///
/// let device = apex_gpu::Device::open(0)?;
/// let attention = Attention::new(&device)?;
/// let heads = Shape { batch: 1, heads: 1, key_heads: 1, queries: 0, keys: 0, dim: 64 };
/// let sequences = Sequences::new(&device, &heads, &[(1, 1), (0, 0), (2, 2)])?;
/// let v: Vec<bf16> = [1.0, 2.0, 4.0].iter().flat_map(|&x| [bf16::from_f32(x); 64]).collect();
/// let (v, q) = (device.upload(&v)?, device.zeros(3 * 64)?);
/// let options = Options { mask: Mask::Causal, ..Options::default() };
/// let done = attention.forward_sequences(&q, &q, &v, &sequences, &options)?;
/// let rows: Vec<f32> = done.output.to_vec()?.iter().step_by(64).map(|x| x.to_f32()).collect();
/// assert_eq!(rows, [1.0, 2.0, 3.0]); // the second sequence sees nothing of the first
/// # apex_kernels::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Sequences {
    /// Heads and their dimension, a batch of one, and the rows of all sequences.
    all: Shape,
    /// Their number.
    pub(super) count: usize,
    /// The most queries and the most keys that one of them has.
    pub(super) longest: [usize; 2],
    /// The queries and keys of the sequences before each, and at the end those of all.
    pub(super) starts: Buffer<[u32; 2]>,
}

impl Sequences {
    /// Sequences with these numbers of queries and keys, and the heads and head dimension of
    /// `heads`, whose other sizes are not looked at. Any number may be zero.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) as for one sequence that is as long as all of them;
    /// [`Error::Gpu`](crate::Error::Gpu).
    pub fn new(device: &Device, heads: &Shape, lengths: &[(usize, usize)]) -> Result<Sequences> {
        let (mut queries, mut keys, mut longest) = (0usize, 0usize, [0, 0]);
        let mut starts = vec![[0, 0]];
        for &(its_queries, its_keys) in lengths {
            // Saturated sums are refused below, before anything reads their low bits.
            queries = queries.saturating_add(its_queries);
            keys = keys.saturating_add(its_keys);
            starts.push([queries as u32, keys as u32]);
            longest = [longest[0].max(its_queries), longest[1].max(its_keys)];
        }
        let all = Shape { batch: 1, queries, keys, ..*heads };
        all.check()?;
        Ok(Sequences { all, count: lengths.len(), longest, starts: device.upload(&starts)? })
    }

    /// Sequences that `all` holds together, whose `starts` are on the device: the queries and keys
    /// of the sequences before each, and at the end those of all. `longest` has the most queries
    /// and the most keys of a sequence; more is slower, and less leaves rows out.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if there is no end, or as [`Sequences::new`].
    ///
    /// # Safety
    /// While anything computes with them, both columns of `starts` begin with zero, never fall, and
    /// end with the queries and the keys of `all`.
    pub unsafe fn from_starts(
        all: &Shape,
        starts: Buffer<[u32; 2]>,
        longest: [usize; 2],
    ) -> Result<Sequences> {
        let all = Shape { batch: 1, ..*all };
        all.check()?;
        let Some(count) = starts.len().checked_sub(1) else {
            let why = "the starts of sequences end with the rows of all, and there are none".to_owned();
            return Err(crate::Error::Shape { technique: super::TECHNIQUE, why });
        };
        Ok(Sequences { all, count, longest, starts })
    }

    /// The shape that holds all rows: how large Q, K, V and O are.
    pub fn all(&self) -> &Shape {
        &self.all
    }

    /// The grid whose blocks along x are enough for a sequence with so many rows.
    fn grid(&self, heads: usize, tile: usize, longest: usize) -> [u32; 3] {
        let tiles = (heads * longest.div_ceil(tile)).clamp(1, MOST_BLOCKS);
        [tiles as u32, self.count.clamp(1, MOST_SEQUENCES) as u32, 1]
    }
}

/// Tiles of `rows` rows each for `all` rows of `count` sequences, at most: a sequence ends in the
/// middle of one.
pub fn tiles_of(all: usize, rows: usize, count: usize) -> usize {
    all / rows + count
}

impl Attention {
    /// As [`Attention::forward`], for sequences of different lengths. If no form is asked for, it
    /// is the Hopper form where the device and the head dimension (64 or 128) allow it, and else
    /// the flash form; no other form has sequences.
    ///
    /// # Errors
    /// As [`Attention::forward_sequences_into`].
    pub fn forward_sequences<T: Element>(
        &self,
        q: &Buffer<T>,
        k: &Buffer<T>,
        v: &Buffer<T>,
        sequences: &Sequences,
        options: &Options,
    ) -> Result<Output<T>> {
        let mut output = self.device.zeros(sequences.all.query_elements())?;
        let mut log_sum_exp = self.device.zeros(sequences.all.rows())?;
        let stream = self.device.stream();
        let form =
            self.forward_sequences_into(q, k, v, &mut output, &mut log_sum_exp, sequences, options, stream)?;
        Ok(Output { output, log_sum_exp, form })
    }

    /// As [`Attention::forward_into`], for sequences of different lengths.
    ///
    /// # Errors
    /// As [`Attention::forward_into`]; [`Error::Form`](crate::Error::Form) if the form has no
    /// sequences.
    #[expect(clippy::too_many_arguments, reason = "three inputs, two outputs, and what to do")]
    pub fn forward_sequences_into<T: Element>(
        &self,
        q: &Buffer<T>,
        k: &Buffer<T>,
        v: &Buffer<T>,
        output: &mut Buffer<T>,
        log_sum_exp: &mut Buffer<f32>,
        sequences: &Sequences,
        options: &Options,
        stream: &Stream,
    ) -> Result<AttentionForm> {
        let all = &sequences.all;
        let problem = Problem::new(all, options)?;
        all.check_queries("Q", q.len())?;
        all.check_keys("K", k.len())?;
        all.check_keys("V", v.len())?;
        all.check_queries("the output", output.len())?;
        all.check_log_sum_exp(log_sum_exp.len())?;
        let form = self.form_of_sequences(all, options)?;
        if all.rows() == 0 {
            return Ok(form);
        }
        let call = self.call_of(sequences, problem, options, stream);
        if form == AttentionForm::Hopper && all.keys > 0 {
            call.hopper(Tensors { q, k, v, output, log_sum_exp })?;
            return Ok(form);
        }
        let name = format!("attention_flash_sequences_{}_d{}", T::NAME, all.dim);
        let kernel = self.kernel(FORWARD, &name)?;
        let grid = sequences.grid(all.heads, portable::FLASH_ROWS, sequences.longest[0]);
        let launch = kernel.launch(grid, [128, 1, 1]).on(stream).arg(q).arg(k).arg(v).arg(output);
        let launch = launch.arg(log_sum_exp).arg(&sequences.starts).arg(sequences.count as i32);
        // SAFETY: the buffers have the sizes that the problem says, which are those of all
        // sequences; `starts` has one entry more than there are sequences, each within these sizes.
        unsafe { launch.arg(problem).arg(call.mask_number()).launch()? };
        Ok(form)
    }

    /// As [`Attention::backward`], for sequences of different lengths.
    ///
    /// # Errors
    /// As [`Attention::backward_sequences_into`].
    pub fn backward_sequences<T: Element>(
        &self,
        saved: &Saved<'_, T>,
        output_gradient: &Buffer<T>,
        sequences: &Sequences,
        options: &Options,
    ) -> Result<(Gradients<T>, AttentionForm)> {
        let (all, device) = (&sequences.all, &self.device);
        let mut gradients = Gradients::zeros(device, all)?;
        let stream = device.stream();
        let form =
            self.backward_sequences_into(saved, output_gradient, &mut gradients, sequences, options, stream)?;
        Ok((gradients, form))
    }

    /// As [`Attention::backward_into`], for sequences of different lengths.
    ///
    /// # Errors
    /// As [`Attention::backward_into`]; [`Error::Form`](crate::Error::Form) if the form has no
    /// sequences.
    pub fn backward_sequences_into<T: Element>(
        &self,
        saved: &Saved<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<T>,
        sequences: &Sequences,
        options: &Options,
        stream: &Stream,
    ) -> Result<AttentionForm> {
        let all = &sequences.all;
        let problem = Problem::new(all, options)?;
        backward::check(saved, output_gradient, gradients, all)?;
        let form = self.form_of_sequences(all, options)?;
        let call = self.call_of(sequences, problem, options, stream);
        if form == AttentionForm::Hopper && all.rows() > 0 && all.keys > 0 {
            call.hopper_backward(saved, output_gradient, gradients)?;
            return Ok(form);
        }
        let kernel = |part| {
            let name = format!("attention_gradient_{part}_sequences_{}_d{}", T::NAME, all.dim);
            self.kernel(BACKWARD, &name)
        };
        let count = sequences.count as i32;
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let [_, deltas] = workspace.reserve(backward::flash_partial(all), stream)?;

        if all.rows() > 0 {
            let grid = sequences.grid(all.heads, backward::FLASH_ROWS, sequences.longest[0]);
            let kernel = kernel("queries")?;
            let launch = kernel.launch(grid, [128, 1, 1]).on(stream).arg(saved.q).arg(saved.k);
            let launch = launch.arg(saved.v).arg(saved.output).arg(output_gradient);
            let launch = launch.arg(saved.log_sum_exp).arg(&mut *deltas).arg(&mut gradients.q);
            let launch = launch.arg(&sequences.starts).arg(count).arg(problem).arg(call.mask_number());
            // SAFETY: the buffers have the sizes that the problem says, which are those of all
            // sequences, there is a delta for each row, and `starts` is as in the forward pass.
            unsafe { launch.launch()? };
        }
        if all.key_elements() > 0 {
            let grid = sequences.grid(all.key_heads, backward::FLASH_ROWS, sequences.longest[1]);
            let kernel = kernel("keys")?;
            let launch = kernel.launch(grid, [128, 1, 1]).on(stream).arg(saved.q).arg(saved.k);
            let launch = launch.arg(saved.v).arg(output_gradient).arg(saved.log_sum_exp).arg(&*deltas);
            let launch = launch.arg(&mut gradients.k).arg(&mut gradients.v);
            let launch = launch.arg(&sequences.starts).arg(count).arg(problem).arg(call.mask_number());
            // SAFETY: as above; the first kernel has written the deltas of all rows.
            unsafe { launch.launch()? };
        }
        Ok(form)
    }

    fn call_of<'a>(
        &'a self,
        sequences: &'a Sequences,
        problem: Problem,
        options: &Options,
        stream: &'a Stream,
    ) -> Call<'a> {
        let (shape, mask) = (&sequences.all, options.mask);
        Call { attention: self, problem, shape, sequences: Some(sequences), mask, stream }
    }

    /// The form that computes packed sequences with these heads: the fastest that there is, unless
    /// one is asked for.
    ///
    /// # Errors
    /// [`Error::Form`](crate::Error::Form) if the form that is asked for has no sequences, or does
    /// not run on this device.
    pub fn form_of_sequences(&self, all: &Shape, options: &Options) -> Result<AttentionForm> {
        let refusal = match all.dim {
            256 => Some("it has no sequences with heads of 256 elements; the flash form has".to_owned()),
            _ => crate::hopper::refusal(&self.device),
        };
        match (options.form, refusal) {
            (Some(AttentionForm::Flash), _) | (None, Some(_)) => Ok(AttentionForm::Flash),
            (None | Some(AttentionForm::Hopper), None) => Ok(AttentionForm::Hopper),
            (Some(form @ AttentionForm::Hopper), Some(why)) => Err(self.refused(form, why)),
            (Some(form), _) => {
                let why = "it has no sequences of different lengths; the flash form has".to_owned();
                Err(self.refused(form, why))
            }
        }
    }
}
