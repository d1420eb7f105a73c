//! PTX for other GPUs than it was written for.
//!
//! A driver refuses a module whose `.version` or `.target` is too new, even if nothing in the
//! module needs either. [`check`] says for each kernel whether a [`Gpu`] takes it as it is, takes
//! it after changes, or does not take it, and which instruction is the reason. [`lower`] makes the
//! changes: first those of the header, then, instruction by instruction, those of the table
//! [`ROWS`]; [`costs`] predicts what they cost.
//!
//! ```
//! use ptx_retarget::{Gpu, lower};
//! let source = ".version 8.6\n.target sm_100\n.address_size 64\n.visible .entry k() {\n\
//!               .reg .b64 %rd<3>;\nadd.f32x2 %rd0, %rd1, %rd2;\nret; }\n";
//! let gpu = Gpu { capability: 80, newest: (9, 0) };
//! let lowered = lower(&ptx::parse(source).unwrap(), gpu, false);
//! assert!(lowered.blocked.is_empty());
//! assert_eq!((lowered.changes[0].line, lowered.changes[0].row.name), (6, "f32x2"));
//! assert_eq!(&*lowered.module.target[0], "sm_75");
//! ```
//!
//! # Rules
//!
//! 1. [`ptx::forms`] and [`ptx::needs`] say what needs which version and target.
//!    `scripts/ptx-gates.py` asks four versions of ptxas about them, and the test `gates` compares.
//! 2. An *exact* row gives the same bits as the original wherever the ISA fixes them, and otherwise
//!    one of the results that the ISA allows. The others are *approximate*, and are applied only if
//!    the caller asks for them.
//! 3. Results of a row are lowered in turn, in a bounded number of passes.
//! 4. The header becomes the least that suffices for what is left, but no version before
//!    [`OLDEST`], because older ones give some instructions another meaning, and no target before
//!    [`OLDEST_TARGET`], because toolkits no longer have these; of an older GPU the GPU's own.
//! 5. What no row lowers is reported and left as it is: the caller then uses the original.

mod check;
mod code;
mod cost;
mod gates;
mod gpu;
mod lowering;
mod rows;
mod site;

pub use check::{Kernel, Verdict, check};
pub use cost::{Cost, costs};
pub use gpu::{Gpu, Header, OLDEST, OLDEST_TARGET, newest_of_driver};
pub use lowering::{Blocked, Change, Lowered, lower};
pub use rows::{ROWS, Row};
