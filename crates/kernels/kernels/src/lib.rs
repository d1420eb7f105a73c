//! The kernels that decide how fast a transformer runs, on top of [`apex_gpu`].
//!
//! This crate holds three techniques, and what a model needs beside them to learn:
//!
//! - [`Attention`] computes `softmax(scale · Q Kᵀ) V` and the log-sum-exp of each row, and from
//!   these the gradients of Q, K and V, with causal masks, sliding windows and grouped-query heads.
//! - [`moe::Moe`] computes each token by the few experts that it chooses, a mixture of experts.
//! - [`fusion::Fused`] computes graphs of elementwise operations, reductions of rows, softmax,
//!   normalisation, top-k and histograms by kernels that it generates, as few as the graph allows.
//! - [`training`] has embeddings and AdamW; the example `train` is a transformer made of all this.
//!
//! [`Sequences`] are batches whose sequences differ in length, for attention in its `Flash` form,
//! and for heads of 64 and 128 elements in its `Hopper` form.
//! Attention and mixtures of experts take bf16 and f16, fusion f32 too.
//!
//! Each kernel exists in several forms, from one that is easy to check to one that is fast. The
//! caller may name one ([`Options::form`]), and each call returns the form that ran. Those of
//! attention are:
//!
//! | form | runs on | memory for scores | backward |
//! | --- | --- | --- | --- |
//! | [`reference`](mod@reference) | the host, in f64 | one row | yes |
//! | [`AttentionForm::Standard`] | any GPU from compute capability 8.0 on, the CPU device | all of them | no |
//! | [`AttentionForm::Flash`] | the same | none | yes |
//! | [`AttentionForm::Hopper`] | compute capability 9.0 (H100, H200) | none | yes |
//! | [`AttentionForm::Decode`] | as `Standard` | none; partial results of chunks of the keys | no |
//!
//! `Standard` and `Flash` compute on the ordinary units of the GPU, without tensor cores: they are
//! there to be right everywhere. `Hopper` is the one to be fast, and `Decode` is where a few
//! queries meet a long cache of keys: `docs/results/attention-h200.md` compares them with PyTorch
//! and cuDNN.
//!
//! ```
//! use apex_gpu::Device;
//! use half::bf16;
//! use apex_kernels::{Attention, Mask, Options, Shape};
//!
//! let device = Device::open(0)?;
//! let attention = Attention::new(&device)?;
//! let shape = Shape { batch: 1, heads: 2, key_heads: 1, queries: 5, keys: 7, dim: 64 };
//! let q = device.upload(&vec![bf16::from_f32(0.5); shape.query_elements()])?;
//! let k = device.upload(&vec![bf16::from_f32(0.25); shape.key_elements()])?;
//! let v = device.upload(&vec![bf16::from_f32(3.0); shape.key_elements()])?;
//!
//! let done = attention.forward(&q, &k, &v, &shape, &Options { mask: Mask::Causal, ..Options::default() })?;
//! assert!(done.output.to_vec()?.iter().all(|&x| x == bf16::from_f32(3.0))); // a mean of equal rows
//! println!("{:?} ran", done.form);
//! # apex_kernels::Result::Ok(())
//! ```
//!
//! # How the kernels come to be here
//!
//! Their sources are CUDA C++ in `cuda/`; `scripts/kernels.sh` compiles them into `binaries/`,
//! which is checked in, so that building this crate needs no CUDA. A test proves that sources and
//! binaries belong together.

/// The examples of the first page, which are tested with those of this documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FirstPage;

mod attention;
mod element;
mod error;
pub mod fusion;
mod hopper;
mod images;
pub mod moe;
pub mod training;
mod workspace;

pub use attention::{
    Attention, AttentionForm, Gradients, Layout, Mask, Options, Output, Saved, Sequences, Shape, Workspace,
    reference,
};
pub use element::Element;
pub use error::{Error, Result};
