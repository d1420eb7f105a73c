//! Findings for other tools.
//!
//! * [`markdown`] writes the verdict, the accounts and the findings for a pull request, an issue or
//!   a chat.
//! * [`sarif`] writes the findings in SARIF 2.1.0, which editors and code scanning show at the lines
//!   of the program.
//!
//! Invariant: text from a session (names of kernels, paths, commands) is shown as it is and never
//! becomes markup, a link or a mention.

mod markdown;
mod sarif;

pub use markdown::{inline, markdown};
pub use sarif::{Sarif, placed, sarif};
