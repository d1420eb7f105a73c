//! Gradients: `cuda/attention_backward_portable.cu`, `cuda/attention_backward_hopper.cu`, and
//! `cuda/attention_backward_wide_hopper.cu` for the largest heads.

use std::sync::PoisonError;

use apex_gpu::{Buffer, Device, Launch, Stream};

use crate::attention::hopper;
use crate::attention::problem::Problem;
use crate::attention::sequences::tiles_of;
use crate::attention::shape::{Mask, Options, Shape};
use crate::attention::{Attention, AttentionForm, Call};
use crate::images::{Code, Image};
use crate::{Element, Result};

const PORTABLE: Image = Image {
    name: "attention_backward_portable",
    code: Code::Ptx(include_bytes!("../../binaries/attention_backward_portable.ptx.zst")),
};

/// The tensors that a forward pass read and wrote, with which the backward pass begins.
#[derive(Debug)]
pub struct Saved<'a, T> {
    /// Queries.
    pub q: &'a Buffer<T>,
    /// Keys.
    pub k: &'a Buffer<T>,
    /// Values.
    pub v: &'a Buffer<T>,
    /// [`Output::output`](crate::Output::output).
    pub output: &'a Buffer<T>,
    /// [`Output::log_sum_exp`](crate::Output::log_sum_exp).
    pub log_sum_exp: &'a Buffer<f32>,
}

/// Gradients, each in the layout of what it belongs to.
#[derive(Debug)]
pub struct Gradients<T> {
    /// Gradient of the queries.
    pub q: Buffer<T>,
    /// Gradient of the keys.
    pub k: Buffer<T>,
    /// Gradient of the values.
    pub v: Buffer<T>,
}

impl<T: Element> Gradients<T> {
    /// Zeros, for a problem of this shape.
    pub(super) fn zeros(device: &Device, shape: &Shape) -> Result<Self> {
        Ok(Self {
            q: device.zeros(shape.query_elements())?,
            k: device.zeros(shape.key_elements())?,
            v: device.zeros(shape.key_elements())?,
        })
    }
}

/// As `attention::Chosen` in `cuda/attention_backward_hopper.cu`, and `attention::Config` in
/// `cuda/attention_backward_wide_hopper.cu`.
struct Config {
    image: Image,
    /// Queries of a block.
    queries: usize,
    /// Blocks of threads that share [`KEYS`] keys: those of a cluster.
    cluster: usize,
    /// Panels of 64 elements that one copy brings.
    panels: usize,
    /// Bytes of shared memory.
    shared: u32,
}

impl Config {
    fn of(dim: usize) -> Config {
        macro_rules! config {
            ($name:literal, $queries:literal, $cluster:literal, $panels:literal, $shared:expr) => {
                Config {
                    image: Image {
                        name: $name,
                        code: Code::Binary(include_bytes!(concat!("../../binaries/", $name, ".fatbin"))),
                    },
                    queries: $queries,
                    cluster: $cluster,
                    panels: $panels,
                    shared: $shared,
                }
            };
        }
        match dim {
            64 => config!("attention_backward_hopper_d64", 128, 1, 1, shared(64, 128)),
            128 => config!("attention_backward_hopper_d128", 64, 1, 2, shared(128, 64)),
            _ => config!("attention_backward_hopper_d256", 64, 2, 2, WIDE_SHARED),
        }
    }

    /// Blocks of queries of all heads; of so many packed sequences, at most.
    fn blocks(&self, shape: &Shape, sequences: Option<usize>) -> usize {
        let of_head = match sequences {
            None => shape.queries.div_ceil(self.queries),
            Some(count) => tiles_of(shape.queries, self.queries, count),
        };
        shape.batch * shape.heads * of_head
    }

    /// Elements of the sums that become the gradient of Q, and of the statistics of rows, with
    /// those that fill up the last block of each head; behind the statistics lies the plan of
    /// packed sequences.
    fn partial(&self, shape: &Shape, sequences: Option<usize>) -> [usize; 2] {
        let rows = self.blocks(shape, sequences) * self.queries;
        let plan = sequences.map_or(0, |count| hopper::plan_words(tiles_of(shape.keys, KEYS, count)));
        [rows * shape.dim, 2 * rows + plan]
    }
}

/// Elements of the partial results of a backward pass over `count` packed sequences.
pub fn sequences_partial(all: &Shape, count: usize) -> [usize; 2] {
    Config::of(all.dim).partial(all, Some(count))
}

/// The same of the flash form, which has one statistic for each row.
pub fn flash_partial(shape: &Shape) -> [usize; 2] {
    [0, shape.rows()]
}

/// Keys of a tile of the Hopper form: two warpgroups of a block of threads have 64 each, or two
/// blocks of a cluster.
const KEYS: usize = 128;
/// Threads of a block: two warpgroups that compute, and one that loads.
const THREADS: u32 = 384;

/// Bytes of shared memory for heads of up to 128 elements: K and V; two blocks of Q, of dO and of
/// their statistics; two of dS; one of dQ in float32; barriers and room to align.
const fn shared(dim: usize, queries: usize) -> u32 {
    let keys = 2 * KEYS * 2 * dim;
    (1024 + keys + queries * (4 * (2 * dim + 4) + 4 * KEYS + 4 * dim) + 256) as u32
}

/// Bytes of shared memory for heads of 256 elements: all that a block can have.
const WIDE_SHARED: u32 = 227 * 1024;

/// Threads of a block of the kernels before and after it.
const FEW_THREADS: usize = 256;
/// Queries, or keys, of a tile of the flash form.
pub const FLASH_ROWS: usize = 8;
/// Blocks of a grid; kernels loop over what is more.
const MOST_BLOCKS: usize = 1 << 20;

impl Attention {
    /// Computes the gradients of Q, K and V from that of the output, on the device's own stream,
    /// into new buffers, and returns the form that ran too. Options must be those of the forward
    /// pass, but for the form, which may be another one: if none is asked for, it is
    /// [`Attention::fastest`].
    ///
    /// ```
    /// use apex_kernels::{Attention, Options, Saved, Shape};
    /// use half::bf16;
    ///
    /// let device = apex_gpu::Device::open(0)?;
    /// let attention = Attention::new(&device)?;
    /// let shape = Shape { batch: 1, heads: 2, key_heads: 1, queries: 3, keys: 4, dim: 64 };
    /// let q = device.zeros::<bf16>(shape.query_elements())?;
    /// let k = device.zeros::<bf16>(shape.key_elements())?;
    /// let done = attention.forward(&q, &k, &k, &shape, &Options::default())?;
    ///
    /// let saved = Saved { q: &q, k: &k, v: &k, output: &done.output, log_sum_exp: &done.log_sum_exp };
    /// let ones = device.upload(&vec![bf16::ONE; shape.query_elements()])?;
    /// let (gradients, _) = attention.backward(&saved, &ones, &shape, &Options::default())?;
    /// // Six rows of queries give each of the four keys a quarter of their weight.
    /// assert!(gradients.v.to_vec()?.iter().all(|&x| x == bf16::from_f32(1.5)));
    /// # apex_kernels::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Attention::backward_into`].
    pub fn backward<T: Element>(
        &self,
        saved: &Saved<'_, T>,
        output_gradient: &Buffer<T>,
        shape: &Shape,
        options: &Options,
    ) -> Result<(Gradients<T>, AttentionForm)> {
        shape.check()?;
        let device = &self.device;
        let mut gradients = Gradients::zeros(device, shape)?;
        let form =
            self.backward_into(saved, output_gradient, &mut gradients, shape, options, device.stream())?;
        Ok((gradients, form))
    }

    /// The same in the order of `stream`, into buffers that the caller has, which may hold anything
    /// before. Returns before the work is done.
    ///
    /// The Hopper form adds up the gradient of Q in an order that varies: it may differ in the last
    /// bits from run to run. The gradients of K and V, and all of the flash form, do not.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if a shape is wrong, a buffer has another size, or
    /// there is no kernel for the head dimension; [`Error::Form`](crate::Error::Form) if the form
    /// has no backward pass, or does not run on this device; [`Error::Gpu`](crate::Error::Gpu).
    pub fn backward_into<T: Element>(
        &self,
        saved: &Saved<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<T>,
        shape: &Shape,
        options: &Options,
        stream: &Stream,
    ) -> Result<AttentionForm> {
        let problem = Problem::new(shape, options)?;
        check(saved, output_gradient, gradients, shape)?;
        let form = options.form.unwrap_or_else(|| self.fastest());
        if let Some(why) = self.backward_refusal(form) {
            return Err(self.refused(form, why));
        }
        if shape.rows() == 0 || shape.keys == 0 {
            // Nobody sees anything, and there is nothing to launch over.
            gradients.q.clear_on(stream)?;
            gradients.k.clear_on(stream)?;
            gradients.v.clear_on(stream)?;
            return Ok(form);
        }
        let call = Call { attention: self, problem, shape, sequences: None, mask: options.mask, stream };
        match form {
            AttentionForm::Hopper => call.hopper_backward(saved, output_gradient, gradients)?,
            _ => call.flash_backward(saved, output_gradient, gradients)?,
        }
        Ok(form)
    }

    /// Elements of both buffers between the kernels of a backward pass in this form.
    pub(super) fn backward_partial(&self, form: AttentionForm, shape: &Shape) -> [usize; 2] {
        if form == AttentionForm::Hopper {
            Config::of(shape.dim).partial(shape, None)
        } else {
            flash_partial(shape)
        }
    }

    /// Returns the reason why there is no backward pass in this form, if there is none.
    fn backward_refusal(&self, form: AttentionForm) -> Option<String> {
        match form {
            AttentionForm::Flash => None,
            AttentionForm::Hopper => crate::hopper::refusal(&self.device),
            AttentionForm::Standard | AttentionForm::Decode => {
                Some("it has no backward pass; the flash form and the Hopper form have".to_owned())
            }
        }
    }
}

impl Call<'_> {
    /// A kernel for the gradient of Q, which leaves `rowsum(dO ∘ O)` for the one for K and V.
    fn flash_backward<T: Element>(
        &self,
        saved: &Saved<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<T>,
    ) -> Result<()> {
        let (shape, attention) = (self.shape, self.attention);
        let kernel = |part| {
            attention.kernel(PORTABLE, &format!("attention_gradient_{part}_{}_d{}", T::NAME, shape.dim))
        };
        let (of_queries, of_keys) = (kernel("queries")?, kernel("keys")?);
        let blocks = |heads: usize, rows: usize| {
            [(shape.batch * heads * rows.div_ceil(FLASH_ROWS)).min(MOST_BLOCKS) as u32, 1, 1]
        };
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = attention.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let [_, deltas] = workspace.reserve(flash_partial(shape), self.stream)?;

        let launch = of_queries.launch(blocks(shape.heads, shape.queries), [128, 1, 1]).on(self.stream);
        let launch = launch.arg(saved.q).arg(saved.k).arg(saved.v).arg(saved.output).arg(output_gradient);
        let launch = launch.arg(saved.log_sum_exp).arg(&mut *deltas).arg(&mut gradients.q);
        // SAFETY: the buffers have the sizes that the problem says, and there is a delta for each
        // row.
        unsafe { launch.arg(self.problem).arg(self.mask_number()).launch()? };

        let launch = of_keys.launch(blocks(shape.key_heads, shape.keys), [128, 1, 1]).on(self.stream);
        let launch = launch.arg(saved.q).arg(saved.k).arg(saved.v).arg(output_gradient);
        let launch = launch.arg(saved.log_sum_exp).arg(&*deltas).arg(&mut gradients.k).arg(&mut gradients.v);
        // SAFETY: as above; the first kernel has written the deltas of all rows.
        unsafe { launch.arg(self.problem).arg(self.mask_number()).launch()? };
        Ok(())
    }

    /// A kernel that prepares statistics of rows, one that computes, and one that rounds the
    /// gradient of Q.
    pub fn hopper_backward<T: Element>(
        &self,
        saved: &Saved<'_, T>,
        output_gradient: &Buffer<T>,
        gradients: &mut Gradients<T>,
    ) -> Result<()> {
        let (shape, attention, config) = (self.shape, self.attention, Config::of(self.shape.dim));
        let mut problem = self.problem;
        let count = self.sequences.map(|sequences| sequences.count);
        problem.query_tiles = shape.queries.div_ceil(config.queries) as i32;
        problem.head_group = self.key_head_group() as i32;
        let kernel = |part: &str, mask: &str| {
            let name = format!("attention_gradient{part}_{}_d{}{mask}", T::NAME, shape.dim);
            attention.kernel(config.image, &name)
        };
        let (start, finish) = (kernel("_start", "")?, kernel("_finish", "")?);
        let main = kernel("", &format!("_{}", self.mask_name()))?;
        let (query_blocks, partial) = (config.blocks(shape, count), config.partial(shape, count));
        let rows = query_blocks * config.queries;
        // Whoever panicked while holding the buffers left whole ones.
        let mut workspace = attention.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let [sums, statistics] = workspace.reserve(partial, self.stream)?;
        if let Some(sequences) = self.sequences {
            let (of_keys, block) = (true, config.queries);
            let tiles = hopper::Tiles { of_keys, rows: KEYS, others: block, block };
            self.plan(sequences, &tiles, statistics.slice_mut(2 * rows..partial[1]))?;
        }

        let blocks = (rows * shape.dim / 8).div_ceil(FEW_THREADS).min(MOST_BLOCKS) as u32;
        let launch = start.launch([blocks, 1, 1], [FEW_THREADS as u32, 1, 1]).on(self.stream);
        let launch = launch.arg(saved.output).arg(output_gradient).arg(saved.log_sum_exp);
        let launch = launch.arg(&mut *statistics).arg(&mut *sums).arg(problem);
        // SAFETY: the buffers have the sizes that the problem says; rows are counted with those
        // that fill up the last block of each head, and have `dim` sums and two statistics each.
        unsafe { self.with_starts(launch).launch()? };

        let queries = |buffer| self.query_map(buffer, [config.queries, config.panels]);
        let keys = |buffer| self.key_map(buffer, [KEYS / config.cluster, config.panels]);
        let (q_map, gradient_map) = (queries(saved.q)?, queries(output_gradient)?);
        let (k_map, v_map) = (keys(saved.k)?, keys(saved.v)?);
        let of_head = count.map_or(shape.keys.div_ceil(KEYS), |count| tiles_of(shape.keys, KEYS, count));
        let tiles = shape.batch * shape.key_heads * of_head;
        let launch = main.launch([(tiles * config.cluster) as u32, 1, 1], [THREADS, 1, 1]);
        let launch = launch.shared(config.shared);
        let launch = launch.on(self.stream).arg(q_map).arg(k_map).arg(v_map).arg(gradient_map);
        let launch = launch.arg(saved.q).arg(saved.k).arg(saved.v).arg(output_gradient).arg(&*statistics);
        let launch = launch.arg(&mut *sums).arg(&mut gradients.k).arg(&mut gradients.v).arg(problem);
        let launch = match self.sequences {
            _ if shape.dim == 256 => launch,
            None => launch.arg(hopper::NO_PLAN),
            Some(_) => launch.arg(statistics.slice(2 * rows..)),
        };
        // SAFETY: as above; the maps describe the buffers, and the first kernel has written all
        // statistics and cleared all sums.
        unsafe { launch.launch()? };

        let launch = finish.launch([query_blocks as u32, 1, 1], [FEW_THREADS as u32, 1, 1]).on(self.stream);
        let launch = launch.arg(&*sums).arg(&mut gradients.q).arg(problem);
        // SAFETY: as above.
        unsafe { self.with_starts(launch).launch()? };
        Ok(())
    }

    /// A launch with the starts of packed sequences and their number, which kernels for the largest
    /// heads do not take.
    fn with_starts<'a>(&'a self, launch: Launch<'a>) -> Launch<'a> {
        match self.sequences {
            _ if self.shape.dim == 256 => launch,
            None => launch.arg(hopper::NO_PLAN).arg(0i32),
            Some(sequences) => launch.arg(&sequences.starts).arg(sequences.count as i32),
        }
    }

    /// Heads of keys whose tiles are interleaved.
    fn key_head_group(&self) -> usize {
        match self.sequences {
            None => head_group(self.shape, self.mask),
            Some(sequences) => {
                let shape = Shape { queries: sequences.longest[0].max(1), ..*self.shape };
                head_group(&shape, Mask::Causal)
            }
        }
    }
}

/// Checks that all buffers of a backward pass have the sizes that the shape states.
pub fn check<T: Element>(
    saved: &Saved<'_, T>,
    output_gradient: &Buffer<T>,
    gradients: &Gradients<T>,
    shape: &Shape,
) -> Result<()> {
    shape.check_queries("Q", saved.q.len())?;
    shape.check_keys("K", saved.k.len())?;
    shape.check_keys("V", saved.v.len())?;
    shape.check_queries("the output", saved.output.len())?;
    shape.check_log_sum_exp(saved.log_sum_exp.len())?;
    shape.check_queries("the output's gradient", output_gradient.len())?;
    shape.check_queries("the gradient of Q", gradients.q.len())?;
    shape.check_keys("the gradient of K", gradients.k.len())?;
    shape.check_keys("the gradient of V", gradients.v.len())
}

/// Heads of keys whose tiles are interleaved. Only the causal form takes tiles out of their order,
/// the longest first.
fn head_group(shape: &Shape, mask: Mask) -> usize {
    if mask != Mask::Causal {
        return 1;
    }
    let bytes = 4 * shape.queries * shape.dim * (shape.heads / shape.key_heads); // Q and dO
    hopper::interleaved(bytes).min(shape.key_heads * shape.batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_fits_a_multiprocessor() {
        for dim in [64, 128, 256] {
            let config = Config::of(dim);
            assert!(config.shared <= 227 * 1024, "dim {dim}: {} bytes", config.shared);
            assert!(config.queries <= 256);
        }
    }

    #[test]
    fn a_group_of_heads_is_never_more_than_there_are() {
        let shape = Shape { batch: 2, heads: 64, key_heads: 64, queries: 2048, keys: 2048, dim: 128 };
        assert_eq!(head_group(&shape, Mask::Causal), 32);
        assert_eq!(head_group(&Shape { key_heads: 2, ..shape }, Mask::Causal), 4);
        assert_eq!(head_group(&shape, Mask::Full), 1);
    }
}
