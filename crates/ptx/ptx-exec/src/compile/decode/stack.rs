//! The stack that programs move themselves: `alloca`, `stacksave`, `stackrestore`.
//!
//! Frames grow from the start of a thread's local memory, this stack grows down from its end. The
//! stack pointer is an offset in local memory and lies in the last eight bytes of it. Kernels set
//! it where any function of the module moves it; functions that move it put back what they found.
//! An `alloca` for which there is no room gives a pointer that points nowhere, so that its first
//! use faults. (Only recursion can get frames and stack into each other's way.)

use ptx::body::{Line, Operand};
use ptx::instruction::Opcode;
use ptx::{Constant, Function, ScalarType, Statement};

use crate::code::Input;
use crate::compile::decode::Undecoded;
use crate::compile::decode::control::copy;
use crate::compile::decode::load_store::{NO_DATA, ResolvedAddress, access as push_access};
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::memory::access;
use crate::operands::{AccessArgs, AccessKind, Args, Class, Reg, Space};
use crate::registers::shapes::{binary, compare, select, ternary};

/// Bytes at the end of local memory that are kept for the stack pointer: as many as alignment asks.
const RESERVED: u64 = 16;

/// The instructions that move the stack pointer.
const OPCODES: [Opcode; 3] = [Opcode::Alloca, Opcode::Stackrestore, Opcode::Stacksave];

/// A place outside every thread's local memory.
const NOWHERE: u64 = 1 << 40;

/// Whether a function moves the stack pointer.
pub(crate) fn moves(function: &Function) -> bool {
    let mut found = false;
    function.visit(&mut |statement| {
        if let Statement::Instruction(instruction) = statement {
            found |= Opcode::from_name(instruction.mnemonic.opcode())
                .is_some_and(|opcode| OPCODES.contains(&opcode));
        }
    });
    found
}

/// Emits what a function does about the stack before anything else.
pub(crate) fn enter(compiler: &mut FunctionCompiler) {
    if compiler.is_kernel() && compiler.module.moves_stack {
        let end = compiler.input(Class::Long, Input::StackEnd);
        let (reserved, top) = (compiler.constant(Class::Long, RESERVED), compiler.fresh(Class::Long));
        let subtract = binary(|a: u64, b: u64| a.wrapping_sub(b));
        compiler.lanes(subtract, Args { d: top, a: end, b: reserved, ..Args::EMPTY });
        set_pointer(compiler, top);
    } else if moves(compiler.function) {
        let before = pointer(compiler);
        compiler.stack_before = Some(before);
    }
}

/// Emits what a function does about the stack before it returns.
pub(crate) fn leave(compiler: &mut FunctionCompiler) {
    if let Some(before) = compiler.stack_before {
        set_pointer(compiler, before);
    }
}

/// Decodes stack instructions. `None` if the opcode is none.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    if !form.is(&OPCODES) {
        return None;
    }
    if form.take_type() != Some(ScalarType::U64) {
        return Some(unsupported("32-bit addresses are not supported"));
    }
    Some(match form.opcode? {
        Opcode::Alloca => allocate(compiler, line),
        Opcode::Stacksave => save(compiler, line),
        _ => restore(compiler, line),
    })
}

/// Returns the place of the stack pointer.
fn place(compiler: &mut FunctionCompiler) -> ResolvedAddress {
    let address = compiler.input(Class::Long, Input::StackEnd);
    ResolvedAddress { space: Space::Local, address, offset: -8 }
}

fn pointer(compiler: &mut FunctionCompiler) -> Reg {
    let (place, register) = (place(compiler), compiler.fresh(Class::Long));
    let mut args = NO_DATA;
    args.data[0] = register;
    push_access(compiler, access::load::<u64, u64>(), place, args);
    register
}

fn set_pointer(compiler: &mut FunctionCompiler, register: Reg) {
    let place = place(compiler);
    let mut args = AccessArgs { kind: AccessKind::Store, ..NO_DATA };
    args.data[0] = register;
    push_access(compiler, access::store::<u64, u64>(), place, args);
}

fn allocate(compiler: &mut FunctionCompiler, line: &Line) -> Decoded<()> {
    let (destination, size, align) = match line.operands.as_slice() {
        [destination, size] => (destination, size, 8),
        [destination, size, Operand::Constant(Constant::Integer(align))] => (destination, size, *align),
        _ => return invalid("`alloca` takes a destination, a size and perhaps an alignment"),
    };
    if !(1..=1 << 23).contains(&align) || align & (align - 1) != 0 {
        return invalid("the alignment of `alloca` is a power of two up to 2^23");
    }
    let size = compiler.source(size, ScalarType::U64)?;
    let align = compiler.constant(Class::Long, align.max(8) as u64);
    let (before, wanted) = (pointer(compiler), compiler.fresh(Class::Long));
    // Lanes that do not act compute as well, on whatever they hold.
    let below =
        ternary(|before: u64, size: u64, align: u64| before.saturating_sub(size) & align.wrapping_neg());
    compiler.lanes(below, Args { d: wanted, a: before, b: size, c: align, ..Args::EMPTY });
    let start = compiler.input(Class::Long, Input::StackStart);
    let fits = compiler.fresh(Class::Predicate);
    compiler.lanes(compare(|a: u64, b: u64| a > b), Args { d: fits, a: wanted, b: start, ..Args::EMPTY });
    let choose = select(|a: u64, b: u64, fits| if fits { a } else { b });
    let after = compiler.fresh(Class::Long);
    compiler.lanes(choose, Args { d: after, a: wanted, b: before, c: fits, ..Args::EMPTY });
    set_pointer(compiler, after);
    let nowhere = compiler.constant(Class::Long, NOWHERE);
    let destination = compiler.destination(destination, ScalarType::U64)?;
    compiler.lanes(choose, Args { d: destination.reg, a: wanted, b: nowhere, c: fits, ..Args::EMPTY });
    compiler.widen(destination);
    Ok(())
}

fn save(compiler: &mut FunctionCompiler, line: &Line) -> Decoded<()> {
    let [destination] = line.operands.as_slice() else {
        return invalid("`stacksave` takes a destination");
    };
    let now = pointer(compiler);
    let destination = compiler.destination(destination, ScalarType::U64)?;
    copy(compiler, destination.reg, now);
    compiler.widen(destination);
    Ok(())
}

fn restore(compiler: &mut FunctionCompiler, line: &Line) -> Decoded<()> {
    let [source] = line.operands.as_slice() else { return invalid("`stackrestore` takes a pointer") };
    let source = compiler.source(source, ScalarType::U64)?;
    set_pointer(compiler, source);
    Ok(())
}
