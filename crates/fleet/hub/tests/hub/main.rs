//! The hub against a model: totals are those of the newest message of each recording, whatever is
//! delivered how often, in which order, and whoever is killed meanwhile.

mod alerts;
mod chaos;
mod common;
mod hostile;
mod interface;
mod segments;
mod sums;
mod tls;
mod totals;
mod views;
