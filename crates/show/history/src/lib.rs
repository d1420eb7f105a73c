//! The history of a project's runs: a file with a line for each run, and what it says about each
//! figure over commits.
//!
//! * [`Run`] is a line: the commit, the program, the device, and figures by name.
//! * [`History`] is the file. Lines are only added, so that branches merge line by line.
//! * [`Series`] is one figure of one program on one device over the runs, with its changes.
//! * [`Report`] selects what is shown of the series: all, or what ran since a moment.
//!
//! Invariants:
//!
//! 1. A figure that is the same in each run of the same program (a count on the CPU device) has
//!    changed wherever it differs. Of any other figure, [`apex_change_points`] says where it
//!    changed.
//! 2. Moments are texts in the form of RFC 3339 in UTC, whose order is that of time.
//! 3. A line that cannot be used is an error with its number. Nothing is skipped silently.

mod file;
mod markdown;
mod page;
mod report;
mod series;

pub use file::{Error, Figures, History, Run, Values};
pub use markdown::markdown;
pub use page::page;
pub use report::{Report, sparkline};
pub use series::{Change, Point, Series};

/// A number with four significant digits.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        return format!("{value}");
    }
    let digits = if size >= 1e4 { 0 } else { (3 - size.max(1e-6).log10().floor() as i32).max(0) };
    format!("{value:.*}", digits as usize)
}
