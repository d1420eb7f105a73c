//! AdamW: Adam (Kingma and Ba, 2014) with decoupled weight decay (Loshchilov and Hutter, 2017).

use super::Options;
use super::gradient::{Chunk, Plan};
use crate::parallel::in_parallel;
use std::ops::Range;

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.999;
const EPSILON: f32 = 1e-8;

/// Parameters that are stepped together: small enough that threads share the work evenly.
const PIECE: usize = 1 << 14;

/// Running means of the gradient and of its square, and which parameters decay.
pub(super) struct Adam {
    mean: Vec<f32>,
    square: Vec<f32>,
    pieces: Vec<(Range<usize>, f32)>,
    steps: i32,
}

/// The part of [`Adam::step`] for one piece.
struct Step<'a> {
    range: Range<usize>,
    decay: f32,
    parameters: &'a mut [f32],
    mean: &'a mut [f32],
    square: &'a mut [f32],
}

impl Adam {
    pub(super) fn new(plan: &Plan, options: &Options) -> Adam {
        let spans = plan.places.iter().flat_map(|place| {
            [(place.weights.clone(), options.weight_decay as f32), (place.bias.clone(), 0.0)]
        });
        let pieces = spans.flat_map(|(span, decay)| {
            let end = span.end;
            span.step_by(PIECE).map(move |start| (start..end.min(start + PIECE), decay))
        });
        let zeros = vec![0.0; plan.parameters()];
        Adam { mean: zeros.clone(), square: zeros, pieces: pieces.collect(), steps: 0 }
    }

    /// One step against the mean gradient: the sum of the chunks' gradients divided by the
    /// number of `examples`.
    pub(super) fn step(
        &mut self,
        parameters: &mut [f32],
        chunks: &[Chunk<f32>],
        examples: usize,
        rate: f64,
        threads: usize,
    ) {
        self.steps += 1;
        let per_example = (1.0 / examples as f64) as f32;
        let step = (rate / (1.0 - BETA_1.powi(self.steps))) as f32;
        let unbias = (1.0 / (1.0 - BETA_2.powi(self.steps))) as f32;
        let mut pieces = self.split(parameters);
        in_parallel(threads, &mut pieces, |_, piece| {
            let shrink = 1.0 - rate as f32 * piece.decay;
            let (first, rest) = chunks.split_first().expect("a minibatch has a chunk");
            let mut gradient = first.gradient[piece.range.clone()].to_vec();
            for chunk in rest {
                let more = &chunk.gradient[piece.range.clone()];
                gradient.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
            let state = piece.mean.iter_mut().zip(piece.square.iter_mut());
            for ((parameter, gradient), (mean, square)) in
                piece.parameters.iter_mut().zip(gradient).zip(state)
            {
                let gradient = gradient * per_example;
                *mean += (1.0 - BETA_1) as f32 * (gradient - *mean);
                *square += (1.0 - BETA_2) as f32 * (gradient * gradient - *square);
                let direction = *mean / ((*square * unbias).sqrt() + EPSILON);
                *parameter = *parameter * shrink - step * direction;
            }
        });
    }

    fn split<'a>(&'a mut self, mut parameters: &'a mut [f32]) -> Vec<Step<'a>> {
        let (mut mean, mut square) = (self.mean.as_mut_slice(), self.square.as_mut_slice());
        let cut = |(range, decay): &(Range<usize>, f32)| Step {
            range: range.clone(),
            decay: *decay,
            parameters: parameters.split_off_mut(..range.len()).expect("pieces cover all parameters"),
            mean: mean.split_off_mut(..range.len()).expect("pieces cover all parameters"),
            square: square.split_off_mut(..range.len()).expect("pieces cover all parameters"),
        };
        self.pieces.iter().map(cut).collect()
    }
}
