//! Predictions of a launch on a GPU, before or without measuring it.
//!
//! * [`Case`]: what is known of a launch; [`Device`]: where it will run. The more is known, the
//!   better the prediction ([`Basis`]).
//! * [`features`]: that as numbers; [`bounds`]: how long each part of the device needs at least.
//! * [`timing`], [`throughput`]: how long a launch takes and how busy it keeps the multiprocessors,
//!   computed from what it executes and fitted rates.
//! * [`Models`]: networks made ready; [`Prediction`]: what they say, each figure with an interval.
//! * [`lines`]: launches out of CSV or JSON Lines; [`code`]: a kernel's PTX; [`Change`]: another
//!   configuration.
//! * [`measured`]: how the predicted duration differs from measured ones.
//! * [`reload`]: models that are replaced while they are in use.
//!
//! What can be computed exactly (theoretical occupancy, waves, block efficiency) is computed, by
//! crate `occupancy`, and goes into the features; the models learn what is left. This crate prints
//! nothing, and reads no file but models.

pub mod bounds;
mod case;
mod change;
pub mod code;
pub mod features;
pub mod lines;
pub mod measured;
mod models;
pub mod reload;
pub mod throughput;
pub mod timing;

pub use case::{Basis, Case, Device, Impossible, Placed, resident};
pub use change::Change;
pub use models::{Estimate, LoadError, Models, Prediction, WALKED_MARGIN, target};
