//! Instructions on addresses: conversions between state spaces, mapping to other blocks of a
//! cluster, prefetches.

use ptx::body::{Line, Operand};
use ptx::instruction::{Flag, Opcode};
use ptx::{ScalarType, StateSpace};

use crate::code::{ClusterInput, Input};
use crate::compile::decode::Undecoded;
use crate::compile::decode::control;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::memory::spaces::CLUSTER_UNIT;
use crate::operands::{Args, Class, Reg};
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::{binary, combine, compare, logic, unary};

/// Decodes these instructions. `None` if the opcode is none of them.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Cvta => convert_address(compiler, line, form),
        Opcode::Isspacep => is_space(compiler, line, form),
        Opcode::Mapa => map_address(compiler, line, form),
        Opcode::Getctarank => rank(compiler, line, form),
        Opcode::Createpolicy => policy(compiler, line, form),
        // Hints: there are no caches to move anything into or out of.
        Opcode::Prefetch | Opcode::Prefetchu | Opcode::Discard | Opcode::Applypriority => {
            form.take_all();
            Ok(())
        }
        _ => return None,
    })
}

/// Returns the value to add to an address of a space to make it generic; `None` if both are the
/// same.
fn window(compiler: &mut FunctionCompiler, space: StateSpace) -> Decoded<Option<Reg>> {
    match space {
        StateSpace::Global | StateSpace::Const => Ok(None),
        StateSpace::Param if compiler.is_kernel() => Ok(None),
        StateSpace::Shared => Ok(Some(compiler.input(Class::Long, Input::SharedWindow))),
        StateSpace::Local | StateSpace::Param => Ok(Some(compiler.input(Class::Long, Input::LocalWindow))),
        _ => unsupported(format!("{space} has no generic addresses")),
    }
}

fn convert_address(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let from_generic = form.take(Flag::To);
    let Some(space) = form.take_space() else { return invalid("`cvta` needs a state space") };
    let ty = form.take_type();
    let [destination, source] = line.operands.as_slice() else {
        return invalid("`cvta` takes a destination and an address");
    };
    if ty != Some(ScalarType::U64) {
        return unsupported("32-bit generic addresses are not supported");
    }
    let source = compiler.source(source, ScalarType::U64)?;
    let destination = compiler.destination(destination, ScalarType::U64)?;
    match window(compiler, space)? {
        None => control::copy(compiler, destination.reg, source),
        Some(window) => {
            let run = match from_generic {
                true => binary(|a: u64, b: u64| a.wrapping_sub(b)),
                false => binary(|a: u64, b: u64| a.wrapping_add(b)),
            };
            compiler.lanes(run, Args { d: destination.reg, a: source, b: window, ..Args::EMPTY });
        }
    }
    compiler.widen(destination);
    Ok(())
}

fn is_space(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let Some(space) = form.take_space() else { return invalid("`isspacep` needs a state space") };
    let [Operand::Name(result), source] = line.operands.as_slice() else {
        return invalid("`isspacep` takes a predicate and an address");
    };
    let result = compiler.predicate(*result)?;
    let source = compiler.source(source, ScalarType::U64)?;
    match space {
        StateSpace::Shared if line.instruction.mnemonic.text().contains("::cluster") => {
            in_cluster(compiler, result, source);
        }
        StateSpace::Shared => inside(compiler, result, source, Input::SharedWindow, Input::SharedWindowEnd),
        StateSpace::Local => inside(compiler, result, source, Input::LocalWindow, Input::LocalWindowEnd),
        StateSpace::Param => inside(compiler, result, source, Input::ParamAddress(0), Input::ParamEnd),
        StateSpace::Const => in_constants(compiler, result, source),
        StateSpace::Global => {
            // Whatever is in no window; that of parameters counts as global.
            let [shared, local, constant] = [(); 3].map(|()| compiler.fresh(Class::Predicate));
            inside(compiler, shared, source, Input::SharedWindow, Input::SharedWindowEnd);
            inside(compiler, local, source, Input::LocalWindow, Input::LocalWindowEnd);
            in_constants(compiler, constant, source);
            let run = logic(|a, b, c| !(a | b | c));
            compiler.lanes(run, Args { d: result, a: shared, b: local, c: constant, ..Args::EMPTY });
        }
        _ => return unsupported(format!("`isspacep` is not supported for {space}")),
    }
    Ok(())
}

/// Predicate `d`: whether the address lies from `start` to before `end`.
fn inside(compiler: &mut FunctionCompiler, d: Reg, address: Reg, start: Input, end: Input) {
    let (start, end) = (compiler.input(Class::Long, start), compiler.input(Class::Long, end));
    between(compiler, d, address, start, end);
}

fn between(compiler: &mut FunctionCompiler, d: Reg, address: Reg, start: Reg, end: Reg) {
    let from_start = compiler.fresh(Class::Predicate);
    let at_least = compare(|a: u64, b: u64| a >= b);
    compiler.lanes(at_least, Args { d: from_start, a: address, b: start, ..Args::EMPTY });
    let below = compare(|a: u64, b: u64| a < b);
    let immediate = combine::AND;
    compiler.lanes(below, Args { d, a: address, b: end, c: from_start, immediate, ..Args::EMPTY });
}

/// Predicate `d`: whether the address lies in the shared memory of a block of the cluster.
fn in_cluster(compiler: &mut FunctionCompiler, d: Reg, address: Reg) {
    let [start, stride, blocks] = [ClusterInput::Window, ClusterInput::Stride, ClusterInput::Blocks]
        .map(|which| of_cluster(compiler, which));
    let bytes = long(compiler, binary(|a: u64, b: u64| a.wrapping_mul(b)), stride, blocks);
    let end = long(compiler, binary(|a: u64, b: u64| a.wrapping_add(b)), start, bytes);
    between(compiler, d, address, start, end);
}

/// Predicate `d`: whether the address lies in a constant variable of the module.
fn in_constants(compiler: &mut FunctionCompiler, d: Reg, address: Reg) {
    let any = compiler.fresh(Class::Predicate);
    compiler.lanes(logic(|_, _, _| 0), Args { d: any, ..Args::EMPTY });
    for (index, bytes) in compiler.module.constants.clone() {
        let start = compiler.input(Class::Long, Input::Global(index));
        let (length, end) = (compiler.constant(Class::Long, bytes), compiler.fresh(Class::Long));
        let add = binary(|a: u64, b: u64| a.wrapping_add(b));
        compiler.lanes(add, Args { d: end, a: start, b: length, ..Args::EMPTY });
        let this = compiler.fresh(Class::Predicate);
        between(compiler, this, address, start, end);
        compiler.lanes(logic(|a, b, _| a | b), Args { d: any, a: any, b: this, ..Args::EMPTY });
    }
    compiler.lanes(logic(|a, _, _| a), Args { d, a: any, ..Args::EMPTY });
}

/// `d = a op b` on longs, in a fresh register.
fn long(compiler: &mut FunctionCompiler, op: LaneHandler, a: Reg, b: Reg) -> Reg {
    let d = compiler.fresh(Class::Long);
    compiler.lanes(op, Args { d, a, b, ..Args::EMPTY });
    d
}

/// An operand of this type, as a long.
fn as_long(compiler: &mut FunctionCompiler, operand: &Operand, ty: ScalarType) -> Decoded<Reg> {
    let source = compiler.source(operand, ty)?;
    if ty.bytes() == 8 {
        return Ok(source);
    }
    let d = compiler.fresh(Class::Long);
    compiler.lanes(unary(|a: u32| u64::from(a)), Args { d, a: source, ..Args::EMPTY });
    Ok(d)
}

/// Writes a long to a destination of this type.
fn write_long(
    compiler: &mut FunctionCompiler,
    destination: &Operand,
    ty: ScalarType,
    value: Reg,
) -> Decoded<()> {
    let destination = compiler.destination(destination, ty)?;
    match ty.bytes() {
        8 => control::copy(compiler, destination.reg, value),
        _ => {
            let args = Args { d: destination.reg, a: value, ..Args::EMPTY };
            compiler.lanes(unary(|a: u64| a as u32), args);
        }
    }
    compiler.widen(destination);
    Ok(())
}

/// An input that tells about the cluster, as a long.
fn of_cluster(compiler: &mut FunctionCompiler, which: ClusterInput) -> Reg {
    compiler.input(Class::Long, Input::Cluster(which))
}

/// `mapa`: the address in another block of the cluster. Shared addresses get the rank in their
/// upper part, generic ones are moved to the other block's memory.
fn map_address(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let space = form.take_space();
    let Some(ty) = form.take_type() else { return invalid("`mapa` needs a type") };
    let [destination, address, rank] = line.operands.as_slice() else {
        return invalid("`mapa` takes a destination, an address and a rank");
    };
    let address = as_long(compiler, address, ty)?;
    let rank = as_long(compiler, rank, ScalarType::U32)?;
    let value = match space {
        Some(_) => {
            let unit = of_cluster(compiler, ClusterInput::Unit);
            let of_rank = binary(|rank: u64, unit: u64| rank.wrapping_add(1).wrapping_mul(unit));
            let upper = long(compiler, of_rank, rank, unit);
            long(
                compiler,
                binary(|a: u64, upper: u64| (a % CLUSTER_UNIT).wrapping_add(upper)),
                address,
                upper,
            )
        }
        None => {
            let own = compiler.input(Class::Long, Input::SharedWindow);
            let offset = long(compiler, binary(|a: u64, own: u64| a.wrapping_sub(own)), address, own);
            let stride = of_cluster(compiler, ClusterInput::Stride);
            let moved = long(compiler, binary(|rank: u64, by: u64| rank.wrapping_mul(by)), rank, stride);
            let window = of_cluster(compiler, ClusterInput::Window);
            let sum = binary(|a: u64, b: u64| a.wrapping_add(b));
            let start = long(compiler, sum, window, moved);
            long(compiler, sum, start, offset)
        }
    };
    write_long(compiler, destination, ty, value)
}

/// `getctarank`: the rank of the block that an address belongs to.
fn rank(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let space = form.take_space();
    let ty = form.take_type().unwrap_or(ScalarType::U64);
    let [destination, address] = line.operands.as_slice() else {
        return invalid("`getctarank` takes a destination and an address");
    };
    let address = as_long(compiler, address, ty)?;
    let value = match space {
        Some(_) => {
            let own = compiler.input(Class::Long, Input::Block(9));
            let of = binary(|a: u64, own: u64| (a / CLUSTER_UNIT).checked_sub(1).unwrap_or(own));
            long(compiler, of, address, own)
        }
        None => {
            let window = of_cluster(compiler, ClusterInput::Window);
            let offset = long(compiler, binary(|a: u64, b: u64| a.wrapping_sub(b)), address, window);
            let stride = of_cluster(compiler, ClusterInput::Stride);
            long(compiler, binary(|a: u64, stride: u64| a / stride.max(1)), offset, stride)
        }
    };
    write_long(compiler, destination, ScalarType::U32, value)
}

/// The generic address of a shared one, which may be that of another block of the cluster.
pub(crate) fn generic_of_shared(compiler: &mut FunctionCompiler, address: Reg) -> Reg {
    let stride = of_cluster(compiler, ClusterInput::Stride);
    let window = of_cluster(compiler, ClusterInput::Window);
    let own = compiler.input(Class::Long, Input::SharedWindow);
    let of_first =
        long(compiler, binary(|window: u64, stride: u64| window.wrapping_sub(stride)), window, stride);
    let moved = binary(|a: u64, stride: u64| (a / CLUSTER_UNIT).wrapping_mul(stride));
    let moved = long(compiler, moved, address, stride);
    // Own addresses have no rank.
    let other = binary(|moved: u64, first: u64| if moved == 0 { 0 } else { first.wrapping_add(moved) });
    let other = long(compiler, other, moved, of_first);
    let start =
        long(compiler, binary(|other: u64, own: u64| if other == 0 { own } else { other }), other, own);
    long(compiler, binary(|start: u64, a: u64| start.wrapping_add(a % CLUSTER_UNIT)), start, address)
}

/// `createpolicy`: what a policy is, nobody may look at, and no access here heeds it.
fn policy(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    form.take_all();
    let Some(destination) = line.operands.first() else {
        return invalid("`createpolicy` takes a destination");
    };
    let destination = compiler.destination(destination, ScalarType::B64)?;
    let zero = compiler.constant(Class::Long, 0);
    control::copy(compiler, destination.reg, zero);
    compiler.widen(destination);
    Ok(())
}

/// The state space that `cvta` converts from or to, if generic addresses equal those of the space.
pub(crate) fn is_identity(compiler: &FunctionCompiler, form: &mut Undecoded) -> bool {
    form.take(Flag::To);
    match form.take_space() {
        Some(StateSpace::Global | StateSpace::Const) => true,
        Some(StateSpace::Param) => compiler.is_kernel(),
        _ => false,
    }
}
