//! The axes x and y of threads and blocks exchange their roles.
//!
//! In the kernel every `.x` of `%tid`, `%ntid`, `%ctaid` and `%nctaid` becomes `.y` and the other
//! way round; in the launch the sides of block and grid do. The thread at (x, y) then does what the
//! thread at (y, x) did, and all threads of a block stay together. Warps are made of other threads,
//! so a kernel that works by warps is not changed. Where a kernel's result is proven not to depend
//! on the block, the launch also keeps the block that it has.

use crate::tree::rewritten;
use crate::{Change, Tried, is_excessive};
use apex_reshape::Proof;
use cuda_launch::{Dim3, LaunchConfig};
use ptx::syntax::tree::{Address, AddressBase, Function, Instruction, Name, Operand, Statement};
use ptx::syntax::{Module, StateSpace};
use ptx_estimate::Requested;

/// Most blocks along y.
const MOST_ROWS: u32 = 65_535;

/// The exchanged kernel with the launches that do the same.
pub(crate) fn changes(
    module: &Module,
    kernel: &str,
    accesses: &[Requested],
    launch: LaunchConfig,
) -> Vec<Tried> {
    let is_wide = |access: &Requested| access.space == StateSpace::Global && is_excessive(access);
    let exchanged = (accesses.iter().any(is_wide) && module.kernel(kernel).is_some_and(is_exchangeable))
        .then(|| rewritten(module, kernel, exchange))
        .flatten();
    let Some(exchanged) = exchanged else { return Vec::new() };
    let launches = launches(module, kernel, launch).into_iter();
    let tried = launches.map(|(launch, conditional)| Tried {
        change: Change::ExchangeAxes,
        module: exchanged.clone(),
        launch,
        conditional,
        accesses: None,
    });
    tried.collect()
}

/// Launches of the exchanged kernel that do what this one did, and whether they rest on conditions.
fn launches(module: &Module, kernel: &str, launch: LaunchConfig) -> Vec<(LaunchConfig, bool)> {
    let swap = |sides: Dim3| Dim3::new(sides.y, sides.x, sides.z);
    let swapped = LaunchConfig { grid: swap(launch.grid), block: swap(launch.block), ..launch };
    let mut all = Vec::new();
    if launch.cluster.is_empty() || launch.cluster.count() == 1 {
        all.push((swapped, false));
        let threads = |axis: fn(Dim3) -> u32| u64::from(axis(swapped.grid)) * u64::from(axis(swapped.block));
        let divides = threads(|sides| sides.x) % u64::from(launch.block.x.max(1)) == 0
            && threads(|sides| sides.y) % u64::from(launch.block.y.max(1)) == 0;
        if launch.block != swapped.block && divides && Proof::of(module, kernel).is_ok() {
            all.extend(swapped.with_block(launch.block).map(|launch| (launch, true)));
        }
    }
    all.retain(|(launch, _)| launch.grid.y <= MOST_ROWS && launch.grid.x > 0);
    all
}

/// Whether the kernel uses y and nothing that depends on which threads make a warp.
fn is_exchangeable(kernel: &Function) -> bool {
    let demands = ["reqntid", "reqnctapercluster", "explicitcluster"];
    let (mut uses_y, mut by_warp) = (false, false);
    kernel.visit(&mut |statement| {
        let Statement::Instruction(instruction) = statement else { return };
        instruction.operands.iter().for_each(|operand| uses_y |= is_y(operand));
        by_warp |= works_by_warp(instruction);
    });
    uses_y && !by_warp && !demands.iter().any(|name| kernel.directive(name).is_some())
}

fn is_y(operand: &Operand) -> bool {
    matches!(operand, Operand::Component(name, axis) if is_place(name) && &**axis == "y")
}

fn is_place(name: &str) -> bool {
    matches!(name, "%tid" | "%ntid" | "%ctaid" | "%nctaid")
}

/// Whether an instruction depends on the threads of its warp or on their order, or names the place
/// as a whole.
fn works_by_warp(instruction: &Instruction) -> bool {
    const BY_WARP: [&str; 16] = [
        "shfl",
        "vote",
        "match",
        "redux",
        "activemask",
        "wmma",
        "mma",
        "ldmatrix",
        "stmatrix",
        "movmatrix",
        "wgmma",
        "elect",
        "call",
        "barrier",
        "tcgen05",
        "setmaxnreg",
    ];
    let mut whole = false;
    instruction.operands.iter().for_each(|operand| whole |= names_whole(operand));
    let (text, opcode) = (instruction.mnemonic.text(), instruction.mnemonic.opcode());
    // A barrier of some warps; an atomic operation whose result, or rounding, depends on the order.
    let of_some = opcode == "bar" && (instruction.operands.len() != 1 || !text.starts_with("bar.sync"));
    let in_order = opcode == "atom" || opcode == "red" && (text.contains(".f") || text.contains(".bf"));
    whole || of_some || in_order || BY_WARP.contains(&opcode) || text.contains(".warp")
}

/// Whether an operand names a register that tells the place of a thread in another way.
fn names_whole(operand: &Operand) -> bool {
    let tells = |name: &str| {
        ["%laneid", "%warpid", "%lanemask", "%cluster", "%nwarpid"]
            .iter()
            .any(|known| name.starts_with(known))
    };
    match operand {
        Operand::Name(name) => is_place(name) || tells(name),
        Operand::Component(name, _) => tells(name),
        Operand::Vector(parts) | Operand::List(parts) => parts.iter().any(names_whole),
        _ => false,
    }
}

/// Exchanges the axes in all statements.
fn exchange(body: &mut Vec<Statement>) -> Option<()> {
    crate::tree::lists(body, &mut |list| {
        for statement in list {
            if let Statement::Instruction(instruction) = statement {
                instruction.operands.iter_mut().for_each(exchange_operand);
            }
        }
    });
    Some(())
}

fn exchange_operand(operand: &mut Operand) {
    let other = |axis: &mut Name| match &**axis {
        "x" => *axis = Name::from("y"),
        "y" => *axis = Name::from("x"),
        _ => {}
    };
    match operand {
        Operand::Component(name, axis) if is_place(name) => other(axis),
        Operand::Vector(parts) | Operand::List(parts) => parts.iter_mut().for_each(exchange_operand),
        Operand::Address(Address { base: AddressBase::Component(name, axis), .. }) if is_place(name) => {
            other(axis);
        }
        _ => {}
    }
}
