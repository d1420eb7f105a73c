//! Limits on the bytes of a kernel's parameters, of its shared memory and of the module's
//! constants, and instructions that ptxas no longer accepts.
//!
//! The limits are those of every target, as ptxas 13.0 names them. Constants are added without the
//! gaps that alignment makes, so that nothing is refused that ptxas accepts.

use super::Verifier;
use crate::analysis::static_shared_bytes;
use crate::body::Line;
use crate::diagnostic::Position;
use crate::forms::Version;
use crate::syntax::{Function, Linkage, Module, StateSpace, Statement, Variable};

/// Bytes of shared memory that the declarations of a kernel, and of what it calls, may have.
const MOST_SHARED: u64 = 48 << 10;
/// Bytes of constants of a module.
const MOST_CONSTANT: u64 = 64 << 10;
/// Bytes of a kernel's parameters, up to the version and the target that allow more.
const FEW_PARAMETERS: u64 = 4352;
const MORE_SINCE: (Version, u32) = ((8, 1), 70);
/// Bytes of a kernel's parameters after that.
const MOST_PARAMETERS: u64 = 32764;
/// From this version on, and for these targets, lanes exchange values with `.sync` alone.
const SYNC_SINCE: (Version, u32) = ((6, 4), 70);

/// Whether the shared variables of all functions together are more than one kernel may have.
pub(super) fn has_much_shared(module: &Module) -> bool {
    let mut bytes = 0u64;
    let mut add = |variable: &Variable| {
        if variable.space == StateSpace::Shared {
            let gap = variable.alignment();
            bytes = bytes.saturating_add(variable.bytes().unwrap_or(0)).saturating_add(gap);
        }
    };
    module.variables().for_each(&mut add);
    for function in module.functions() {
        function.visit(&mut |statement| {
            if let Statement::Variable(variable) = statement {
                add(variable);
            }
        });
    }
    bytes > MOST_SHARED
}

impl<'m> Verifier<'_, 'm> {
    /// Checks the module's constants.
    pub(super) fn constants(&mut self) {
        let placed =
            |variable: &&Variable| variable.space == StateSpace::Const && variable.linkage != Linkage::Extern;
        let constants = self.module.variables().filter(placed).map(|variable| variable.bytes().unwrap_or(0));
        let bytes = constants.fold(0, u64::saturating_add);
        if bytes > MOST_CONSTANT {
            let message =
                format!("the module has {bytes} bytes of constants (`.const`), and {MOST_CONSTANT} at most");
            self.problem(Position { line: 1, column: 1 }, message);
        }
    }

    /// Checks the shared memory of a kernel with what it calls.
    pub(super) fn shared(&mut self, kernel: &'m Function) {
        let bytes = static_shared_bytes(self.module, kernel);
        if bytes > MOST_SHARED {
            let message = format!(
                "the kernel `{}` declares {bytes} bytes of shared memory, and a block has {MOST_SHARED}: declare the \
                 array `.extern` and name its size at the launch",
                kernel.name
            );
            self.problem(kernel.position, message);
        }
    }

    /// Checks the bytes of a kernel's parameters.
    pub(super) fn parameters(&mut self, kernel: &'m Function) {
        let end = |at: u64, parameter: &Variable| {
            let at = at.checked_next_multiple_of(parameter.alignment().max(1)).unwrap_or(u64::MAX);
            at.saturating_add(parameter.bytes().unwrap_or(0))
        };
        let bytes = kernel.params.iter().fold(0, end);
        let number = self.target.map_or(0, |target| target.number);
        let has_more = self.module.version >= MORE_SINCE.0 && number >= MORE_SINCE.1;
        let most = if has_more { MOST_PARAMETERS } else { FEW_PARAMETERS };
        if bytes > most {
            let hint = match !has_more && bytes <= MOST_PARAMETERS {
                true => ": `.version 8.1` and `.target sm_70` allow more",
                false => "",
            };
            let message = format!(
                "the parameters of the kernel `{}` have {bytes} bytes, and {most} at most{hint}",
                kernel.name
            );
            self.problem(kernel.position, message);
        }
    }

    /// Refuses exchanges between lanes that do not say which lanes take part.
    pub(super) fn retired(&mut self, line: &Line<'m>) {
        let mnemonic = &line.instruction.mnemonic;
        let is_exchange = matches!(mnemonic.opcode(), "shfl" | "vote");
        let number = self.target.map_or(0, |target| target.number);
        let is_late = self.module.version >= SYNC_SINCE.0 && number >= SYNC_SINCE.1;
        if is_exchange && is_late && !mnemonic.text().contains(".sync") {
            let message = format!(
                "`{}` without `.sync` is not supported by targets from sm_70 on since PTX 6.4: write `{1}.sync`, with \
                 the mask of its lanes",
                mnemonic.text(),
                mnemonic.opcode()
            );
            self.problem(line.instruction.position, message);
        }
    }
}
