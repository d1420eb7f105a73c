//! What a lowered kernel costs against the original: instructions of warps, predicted.

use cuda_launch::{Dim3, LaunchConfig};
use ptx::syntax::tree::Name;
use ptx::{Function, FunctionKind, Module};
use ptx_estimate::Estimator;

/// Blocks of the launch for which costs are predicted, and threads of a block where the kernel
/// requires none.
const GRID: u32 = 64;
const BLOCK: u32 = 128;

/// Steps of an estimate: kernels of most modules are estimated within a millisecond each.
const BUDGET: u64 = 10_000;

/// A kernel, and the instructions that all its warps execute in a launch of [`GRID`] blocks about
/// whose parameters nothing is known. Both are predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The kernel.
    pub kernel: Name,
    /// Instructions of the original.
    pub before: f64,
    /// Instructions of the lowered one.
    pub after: f64,
}

impl Cost {
    /// Instructions for each one of the original; 1 for a kernel without any.
    pub fn ratio(&self) -> f64 {
        if self.before > 0.0 { self.after / self.before } else { 1.0 }
    }
}

/// The costs of the first `most` kernels that execute another number of instructions than before.
pub fn costs(before: &Module, after: &Module, most: usize) -> Vec<Cost> {
    let kernels = after.functions().filter(|function| function.kind == FunctionKind::Entry);
    let costs = kernels.filter_map(|kernel| of_kernel(before, after, kernel));
    costs.filter(|cost| cost.before != cost.after).take(most).collect()
}

/// The cost of a kernel of the lowered module.
pub(crate) fn of_kernel(before: &Module, after: &Module, kernel: &Function) -> Option<Cost> {
    let original = before.functions().find(|function| function.name == kernel.name)?;
    let [before, after] = [predicted(before, original), predicted(after, kernel)];
    Some(Cost { kernel: kernel.name.clone(), before, after })
}

fn predicted(module: &Module, kernel: &Function) -> f64 {
    let launch = LaunchConfig::new([GRID, 1, 1], block(kernel));
    Estimator::new(module, kernel).estimate(&launch, &[], BUDGET).total()
}

/// The block that a kernel requires, or one of [`BLOCK`] threads.
fn block(kernel: &Function) -> Dim3 {
    let Some(sides) = kernel.directive("reqntid") else { return Dim3::new(BLOCK, 1, 1) };
    let side = |at: usize| sides.get(at).map_or(1, |side| (*side).clamp(1, 1024) as u32);
    Dim3::new(side(0), side(1), side(2))
}
