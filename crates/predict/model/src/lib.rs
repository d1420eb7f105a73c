//! Small neural networks that predict the behaviour of launches, trained and run on the CPU.
//!
//! * [`network`]: a multilayer perceptron as data, its scaling of features and targets included.
//! * [`predict`]: the network made ready: a microsecond or a few tens of them on one thread, no
//!   allocation, no lock.
//! * [`train`](mod@train): AdamW; the same weights for the same seed, whatever the number of
//!   threads.
//! * [`forecast`]: a network with its features' names and its intervals; [`file`](mod@file): that
//!   as bytes.
//! * [`cache`]: forecasts that were made before.
//! * [`onnx`]: the network as an ONNX file.
//! * [`baseline`]: the boosted trees that a network must beat.
//! * [`conformal`]: intervals that hold as often as they say.
//! * [`evaluate`]: measures, their confidence intervals, splits by whole groups.
//!
//! This crate prints nothing. It knows nothing of kernels: what the features are is the caller's
//! business.
//!
//! ```
//! use apex_model::network::{Activation, Network, Target};
//! use apex_model::train::{Examples, Options, train};
//! use apex_model::{Matrix, Precision, Predictor, Scratch};
//! use std::ops::ControlFlow;
//!
//! // The area of rectangles, as a logarithm, and how square they are.
//! let (mut inputs, mut targets) = (Matrix::empty(2), Matrix::empty(2));
//! for (width, height) in (1..=20).flat_map(|width| (1..=20).map(move |height| (width as f32, height as f32))) {
//!     inputs.push(&[width, height])?;
//!     targets.push(&[(width * height).ln(), width.min(height) / width.max(height)])?;
//! }
//! let examples = Examples::new(inputs, targets)?;
//!
//! let outputs = vec![Target::real("log area"), Target::fraction("squareness")];
//! let mut network = Network::new(2, &[16, 16], Activation::Silu, outputs, 1)?;
//! network.fit_scaling(examples.inputs(), examples.targets())?;
//! let options = Options { epochs: 200, batch: 64, learning_rate: 1e-2, ..Options::for_network(&network) };
//! train(&mut network, &examples, None, &options, |_| ControlFlow::Continue(()))?;
//!
//! let predictor = Predictor::new(&network, Precision::F32);
//! let (mut scratch, mut found) = (Scratch::new(), [0.0; 2]);
//! predictor.predict(&[7.0, 14.0], &mut scratch, &mut found)?;
//! assert!((found[0].exp() / 98.0 - 1.0).abs() < 0.1, "{found:?}");
//! assert!((found[1] - 0.5).abs() < 0.1, "{found:?}");
//! # Ok::<(), apex_model::Error>(())
//! ```

pub mod baseline;
pub mod cache;
pub mod conformal;
mod ensemble;
mod error;
pub mod evaluate;
pub mod file;
pub mod forecast;
mod math;
mod matrix;
pub mod network;
pub mod onnx;
mod parallel;
pub mod predict;
pub mod train;

pub use cache::Cache;
pub use error::Error;
pub use forecast::Model;
pub use matrix::Matrix;
pub use network::{Activation, Network, Target};
pub use predict::{InstructionSet, Precision, Predictor, Scratch};

/// Whatever predicts rows of targets from rows of features: a network made ready, or a
/// [`baseline`].
pub trait Regressor {
    /// One row of predictions for each row of features.
    ///
    /// # Errors
    /// [`Error`] when the features are not those that it was made for.
    fn predict_rows(&self, features: &Matrix) -> Result<Matrix, Error>;
}
