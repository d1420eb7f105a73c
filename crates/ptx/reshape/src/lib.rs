//! Proves from PTX that a kernel computes the same in blocks of another shape.
//!
//! See `docs/reshape.md` for what is proven and what is refused.
//!
//! ```
//! use apex_reshape::{Proof, Reason};
//! let source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { bar.sync 0; ret; }\n";
//! let module = ptx::parse(source).unwrap();
//! assert_eq!(Proof::of(&module, "k").unwrap_err().reason, Reason::Instruction);
//! ```
//!
//! # Invariants
//! 1. *Unknown means no.*
//! 2. The answer is about the PTX: whoever uses it makes sure that this PTX is the code that runs
//!    ([`virtual_architecture`]).

mod launch;
mod refusal;

pub use launch::{Change, Launch};
pub use refusal::{Place, Reason, Refusal};

use cuda_launch::{Dim3, LaunchConfig};
use launch_condition::Condition;

/// What is proven about a kernel, whatever the launch is, and what a launch must meet.
#[derive(Clone, Debug)]
pub struct Proof {
    most_threads: u32,
}

impl Proof {
    /// Analyses a kernel.
    ///
    /// # Errors
    /// If the result may depend on the launch's shape in any launch.
    pub fn of(_module: &ptx::Module, _kernel: &str) -> Result<Proof, Refusal> {
        Err(Refusal::of(Reason::Instruction))
    }

    /// What must hold of a launch, as data for who cannot read PTX.
    ///
    /// # Errors
    /// If the code does not tell how much of a buffer is accessed, so that only the allocations
    /// behind the launch's pointers can: then [`judge`](Proof::judge) is left.
    pub fn condition(&self) -> Result<Condition, Refusal> {
        Err(Refusal::of(Reason::Overlap))
    }

    /// The blocks that are worth trying for a launch; [`judge`](Proof::judge) decides about each.
    pub fn candidates(&self, launch: &LaunchConfig) -> Vec<Dim3> {
        launch::blocks(launch, self.most_threads)
    }

    /// Decides whether a launch may be made in blocks of this shape, in a grid of the fewest blocks
    /// that hold its threads along each axis ([`LaunchConfig::with_block`]).
    ///
    /// # Errors
    /// If the result might differ, or the new launch would be invalid.
    pub fn judge(&self, launch: &Launch<'_>, block: Dim3) -> Result<(LaunchConfig, Change), Refusal> {
        let shaped = launch.config.with_block(block).ok_or(Refusal::of(Reason::Shape))?;
        if !launch::is_valid(&shaped) || launch::threads(&shaped) == [0; 3] {
            return Err(Refusal::of(Reason::Shape));
        }
        Err(Refusal::of(Reason::Launch))
    }
}

/// The virtual architecture for which a module is written, such as `sm_80`. Machine code that was
/// compiled for another one may be of other source code (`__CUDA_ARCH__`), about which a proof from
/// this PTX says nothing.
pub fn virtual_architecture(module: &ptx::Module) -> Option<&str> {
    module.target.first().map(|name| &**name)
}
