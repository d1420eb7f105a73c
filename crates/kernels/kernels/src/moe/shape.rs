//! Shapes and options of a mixture of experts, and their validation.

use bytemuck::{Pod, Zeroable};

use crate::moe::MoeForm;
use crate::{Error, Result};

/// Sizes of a layer. There may be no tokens; everything else is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Tokens, each of which chooses for itself.
    pub tokens: usize,
    /// Experts; at most 512.
    pub experts: usize,
    /// Experts that each token chooses; at most 32, and at most all.
    pub top_k: usize,
    /// Elements of a token.
    pub dim: usize,
    /// Elements of an expert's hidden layer.
    pub hidden: usize,
}

/// The conversion of a token's logits to scores. The scores of the experts that it chooses are
/// their weights; it chooses those of the largest scores, which are those of the largest logits, or
/// of the largest sums of score and [`bias`](crate::moe::Inputs::bias) in float32. Among equals the
/// lower expert is first, and NaN counts as minus infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gate {
    /// The softmax over all experts.
    #[default]
    Softmax,
    /// The logistic function of each logit for itself.
    Sigmoid,
}

/// Options of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// The gate.
    pub gate: Gate,
    /// Whether a token's weights are divided by their sum.
    pub renormalise: bool,
    /// Most choices that an expert takes, at least 1: those of the first tokens. The others are
    /// dropped: they add nothing to the output of their tokens, and the weights of the others stay
    /// what they are. `None` takes all; [`Shape::capacity`] computes a usual one.
    pub capacity: Option<usize>,
    /// The form; that of [`Moe::form_for`](crate::moe::Moe::form_for) if it is `None`.
    pub form: Option<MoeForm>,
}

/// A softmax, renormalised, without a capacity, in the fastest form.
impl Default for Options {
    fn default() -> Options {
        Options { gate: Gate::Softmax, renormalise: true, capacity: None, form: None }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        check_capacity(self.capacity)
    }
}

/// Kernels keep the ranks of all experts in shared memory.
const MOST_EXPERTS: usize = 512;
/// A lane of a warp for each choice.
const MOST_CHOICES: usize = 32;
/// Most choices of all tokens, and most elements of a row: kernels number tiles in 32 bits.
pub const MOST_ROWS: usize = 1 << 26;
const MOST_ELEMENTS: usize = 1 << 17;

/// As `moe::TILE_ROWS` and `moe::CHUNK` in `cuda/moe.cuh`.
pub const TILE_ROWS: usize = 128;
pub const CHUNK: usize = 64;

/// The same bytes as `moe::Problem` in `cuda/moe.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Problem {
    tokens: i32,
    experts: i32,
    top_k: i32,
    dim: i32,
    hidden: i32,
    chunks: i32,
    sigmoid: i32,
    renormalise: i32,
}

impl Shape {
    /// Elements of the tokens, and of the output: `[tokens, dim]`.
    pub fn token_elements(&self) -> usize {
        self.tokens * self.dim
    }

    /// Elements of the logits: `[tokens, experts]`.
    pub fn logits(&self) -> usize {
        self.tokens * self.experts
    }

    /// Choices of all tokens: `[tokens, top_k]`.
    pub fn choices(&self) -> usize {
        self.tokens * self.top_k
    }

    /// Elements of the weights that lead to the hidden layers: `[experts, 2, hidden, dim]`, for
    /// each expert the gate's before those that it gates.
    pub fn up_elements(&self) -> usize {
        2 * self.down_elements()
    }

    /// Elements of the weights that lead from the hidden layers: `[experts, dim, hidden]`.
    pub fn down_elements(&self) -> usize {
        self.experts * self.dim * self.hidden
    }

    /// The capacity of an expert ([`Options::capacity`]) that is `factor` times its mean load,
    /// rounded up, and at least 1: the capacity factor of Switch Transformers (arXiv 2101.03961),
    /// for which 1.25 is a usual value.
    ///
    /// ```
    /// let shape = apex_kernels::moe::Shape { tokens: 100, experts: 8, top_k: 2, dim: 4, hidden: 2 };
    /// assert_eq!(shape.capacity(1.0), 25);
    /// assert_eq!(shape.capacity(1.25), 32); // of 31.25
    /// ```
    pub fn capacity(&self, factor: f64) -> usize {
        ((factor * self.choices() as f64 / self.experts as f64).ceil() as usize).max(1)
    }

    /// Most choices that an expert takes, and can have: at most one of each token.
    pub(crate) fn most_taken(&self, options: &Options) -> usize {
        options.capacity.map_or(self.tokens, |capacity| capacity.min(self.tokens))
    }

    /// Chunks of tokens.
    pub(crate) fn chunks(&self) -> usize {
        self.tokens.div_ceil(CHUNK)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let Shape { tokens, experts, top_k, dim, hidden } = *self;
        if !(1..=MOST_EXPERTS).contains(&experts) {
            return Err(wrong(format!("there are kernels for 1 to {MOST_EXPERTS} experts, not {experts}")));
        }
        if !(1..=MOST_CHOICES.min(experts)).contains(&top_k) {
            let most = MOST_CHOICES.min(experts);
            return Err(wrong(format!(
                "a token of {experts} experts can choose 1 to {most} of them, not {top_k}"
            )));
        }
        for (what, size) in [("dim", dim), ("hidden", hidden)] {
            if !(1..=MOST_ELEMENTS).contains(&size) {
                return Err(wrong(format!("{what} must be 1 to {MOST_ELEMENTS}, not {size}")));
            }
        }
        if tokens.checked_mul(top_k).is_none_or(|rows| rows > MOST_ROWS) {
            return Err(wrong(format!(
                "{tokens} tokens that choose {top_k} experts each make more than {MOST_ROWS} rows; split the tokens"
            )));
        }
        Ok(())
    }

    pub(crate) fn problem(&self, options: &Options) -> Problem {
        // `Shape::check` has seen to it that all of these fit.
        Problem {
            tokens: self.tokens as i32,
            experts: self.experts as i32,
            top_k: self.top_k as i32,
            dim: self.dim as i32,
            hidden: self.hidden as i32,
            chunks: self.chunks() as i32,
            sigmoid: i32::from(options.gate == Gate::Sigmoid),
            renormalise: i32::from(options.renormalise),
        }
    }
}

/// Tiles of rows, at most: each expert may have one that is not full.
pub fn most_tiles(rows: usize, experts: usize) -> usize {
    rows / TILE_ROWS + experts.min(rows)
}

pub fn check_capacity(capacity: Option<usize>) -> Result<()> {
    match capacity {
        Some(0) => Err(wrong("an expert's capacity must be at least 1, not 0".to_owned())),
        _ => Ok(()),
    }
}

/// Checks that a tensor, which errors call "`what` have", has as many elements as its shape states.
pub fn check_elements(what: &str, shape: &[(&str, usize)], found: usize) -> Result<()> {
    crate::error::check_elements(super::TECHNIQUE, what, shape, found)
}

pub fn wrong(why: String) -> Error {
    Error::Shape { technique: super::TECHNIQUE, why }
}
