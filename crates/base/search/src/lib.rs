//! Search among declared parameters.
//!
//! A [`Space`] has parameters with their values, and restrictions. A [`Strategy`] decides which
//! configuration is measured next; [`tune`] drives it, measures new bests twice, and confirms what
//! it found by pairs. The measured function is the caller's: a closure, a process, another
//! language.
//!
//! ```
//! use apex_search::{Options, Outcome, Parameter, Results, Space, tune};
//!
//! let (block, tile) = (Parameter::new("block", [32, 64, 128]), Parameter::new("tile", [1, 2, 4]));
//! let space = Space::new(vec![block, tile], &["block * tile <= 1024"])?;
//! let options = Options { original: Some(0), ..Options::for_space(&space) };
//! let found = tune(&space, &options, &mut Results::default(), &mut |ask: apex_search::Ask| {
//!     let values = space.values(ask.number);
//!     let values: Vec<f64> = values.iter().filter_map(apex_search::Value::number).collect();
//!     Ok(Outcome::Times(vec![1.0 + (values[0] - 64.0).abs() + (values[1] - 2.0).abs()]))
//! });
//! let (best, milliseconds) = found.best.unwrap();
//! assert_eq!((space.describe(best).as_str(), milliseconds), ("block=64, tile=2", 1.0));
//! # Ok::<(), apex_search::SpaceError>(())
//! ```
//!
//! Everything is the same for the same seed and the same outcomes. [`Results`] keep outcomes
//! between runs and belong to a key, [`t4`] is their file, and [`input`] reads files of spaces.

pub mod expression;
mod forest;
pub mod input;
mod named;
mod paired;
mod results;
mod space;
mod strategy;
pub mod t4;
mod tuning;
mod value;

pub use named::Named;
pub use paired::{LEAST_PAIRS, MOST_RATIO, Ratio, median, rounded};
pub use results::{Invalid, Key, Measured, Outcome, Results, difference};
pub use space::{MOST_CONFIGURATIONS, Number, Parameter, Space, SpaceError};
pub use strategy::{Stop, Strategy, Trials};
pub use tuning::{Ask, Found, Kept, Measure, Options, Purpose, tune};
pub use value::Value;
