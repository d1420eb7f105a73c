//! `atom` and `red`.
//!
//! Vectors are atomic element by element, so they are executed like that; before the first one the
//! alignment of the whole is checked.

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::{Atomic, Opcode};
use ptx_lower::Memory;

use crate::arithmetic::half_numbers::{add_bf16, add_f16, least_bf16, least_f16, most_bf16, most_f16};
use crate::arithmetic::numbers;
use crate::compile::decode::Undecoded;
use crate::compile::decode::control::copy;
use crate::compile::decode::load_store::{NO_DATA, ResolvedAddress, elements, place, wide_registers};
use crate::compile::decode::{halves, load_store};
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::compile::operand::class_of;
use crate::memory::access::{self, AccessHandler};
use crate::memory::atomics;
use crate::operands::{AccessArgs, AccessKind, Class, Reg, Space};

/// Decodes `atom` and `red`.
pub(crate) fn decode(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    if form.atomic.is_none() {
        return unsupported("this atomic operation is not supported");
    }
    let Some(Memory { atomic: Some(operation), space, ty, length: vector, .. }) = Memory::of(form) else {
        return invalid("an atomic needs a type");
    };
    let (destination, operands) = match (form.opcode, line.operands.as_slice()) {
        (Some(Opcode::Atom), [destination, operands @ ..]) => (Some(destination), operands),
        (_, operands) => (None, operands),
    };
    let (address, b, c) = match (operation, operands) {
        (Atomic::CompareAndSwap, [address, b, c, ..]) => (address, b, Some(c)),
        (_, [address, b, ..]) if operation != Atomic::CompareAndSwap => (address, b, None),
        _ => return invalid("an atomic has too few operands"),
    };
    let place = place(compiler, address, space)?;
    if ty == ScalarType::B128 {
        return wide(compiler, place, operation, destination, b, c);
    }
    let allowed = vector == 1 && !is_vector_only(operation, ty) || vector != 1 && is_vector(operation, ty);
    let run = atomic_handler(operation, ty, place.space).filter(|_| allowed);
    let Some(run) = run else {
        return unsupported(format!("this atomic operation on {ty} is not supported"));
    };
    if vector == 1 {
        let b = compiler.source(b, ty)?;
        return scalar(compiler, run, place, ty, destination, b, c);
    }
    let bytes = vector as u64 * ty.bytes();
    let place = check_alignment(compiler, place, bytes)?;
    let destinations = destination.map(|operand| elements(operand, vector)).transpose()?;
    let values = elements(b, vector)?;
    let values = values.iter().map(|b| kept_source(compiler, b, ty, destination.is_some()));
    for (index, b) in values.collect::<Decoded<Vec<_>>>()?.into_iter().enumerate() {
        let offset = place.offset.wrapping_add(index as i64 * ty.bytes() as i64);
        let element = ResolvedAddress { offset, ..place };
        scalar(compiler, run, element, ty, destinations.as_ref().map(|all| &all[index]), b, None)?;
    }
    Ok(())
}

/// The register of an element's value; a copy where the results of elements before it may overwrite
/// it.
fn kept_source(compiler: &mut FunctionCompiler, b: &Operand, ty: ScalarType, copied: bool) -> Decoded<Reg> {
    let source = compiler.source(b, ty)?;
    if !copied {
        return Ok(source);
    }
    let class = compiler.class(source);
    let kept = compiler.fresh(class);
    copy(compiler, kept, source);
    Ok(kept)
}

fn scalar(
    compiler: &mut FunctionCompiler,
    run: AccessHandler,
    place: ResolvedAddress,
    ty: ScalarType,
    destination: Option<&Operand>,
    b: Reg,
    c: Option<&Operand>,
) -> Decoded<()> {
    let c = c.map_or(Ok(Reg::NONE), |c| compiler.source(c, ty))?;
    let destination = destination.map(|operand| compiler.destination(operand, ty)).transpose()?;
    let data = Reg::list(&[destination.as_ref().map_or(Reg::NONE, |destination| destination.reg)]);
    let (operands, kind) = (Reg::list(&[b, c]), AccessKind::Atomic);
    load_store::access(
        compiler,
        run,
        place,
        AccessArgs { data, operands, kind, synchronises: true, ..NO_DATA },
    );
    if let Some(destination) = destination {
        compiler.widen(destination);
    }
    Ok(())
}

/// Lets a vector whose address is no multiple of its size fault, and keeps the address: results may
/// overwrite it.
fn check_alignment(
    compiler: &mut FunctionCompiler,
    place: ResolvedAddress,
    bytes: u64,
) -> Decoded<ResolvedAddress> {
    let class = compiler.class(place.address);
    let address = compiler.fresh(class);
    copy(compiler, address, place.address);
    let place = ResolvedAddress { address, ..place };
    let Some(probe) = access::probe(bytes) else {
        return invalid(format!("no vector has {bytes} bytes"));
    };
    let data = compiler.fresh(Class::Word);
    let mut args = NO_DATA;
    args.data[0] = data;
    load_store::access(compiler, probe, ResolvedAddress { ..place }, args);
    Ok(place)
}

/// `.b128`: `exch` and `cas`.
fn wide(
    compiler: &mut FunctionCompiler,
    place: ResolvedAddress,
    operation: Atomic,
    destination: Option<&Operand>,
    b: &Operand,
    c: Option<&Operand>,
) -> Decoded<()> {
    let [b_low, b_high] = compiler.wide(b)?;
    let (run, operands) = match (operation, c) {
        (Atomic::Exchange, None) => (atomics::exchange128(), Reg::list(&[b_low, b_high])),
        (Atomic::CompareAndSwap, Some(c)) => {
            let [c_low, c_high] = compiler.wide(c)?;
            (atomics::compare_and_swap128(), [b_low, b_high, c_low, c_high])
        }
        _ => return unsupported("this atomic operation on .b128 is not supported"),
    };
    let data = match destination {
        Some(destination) => wide_registers(compiler, std::slice::from_ref(destination))?,
        None => [Reg::NONE; 8],
    };
    let args = AccessArgs { data, operands, kind: AccessKind::Atomic, synchronises: true, ..NO_DATA };
    load_store::access(compiler, run, place, args);
    Ok(())
}

/// Whether there are vectors of this type.
fn is_vector(operation: Atomic, ty: ScalarType) -> bool {
    use ScalarType::*;
    match ty {
        F32 => operation == Atomic::Add,
        F16 | Bf16 | F16x2 | Bf16x2 => matches!(operation, Atomic::Add | Atomic::Minimum | Atomic::Maximum),
        _ => false,
    }
}

/// Whether there is no scalar of this type: `min` and `max` on halves.
fn is_vector_only(operation: Atomic, ty: ScalarType) -> bool {
    is_vector(operation, ty) && operation != Atomic::Add
}

fn atomic_handler(operation: Atomic, ty: ScalarType, space: Space) -> Option<AccessHandler> {
    use ScalarType::*;
    use access::atomic;
    class_of(ty).ok()?;
    Some(match (operation, ty) {
        (Atomic::Add, U32 | S32) => atomic(|old: u32, b: u32, _| old.wrapping_add(b)),
        (Atomic::Add, U64 | S64) => atomic(|old: u64, b: u64, _| old.wrapping_add(b)),
        // In global memory subnormal numbers are flushed, in shared memory they are not.
        (Atomic::Add, F32) => match space {
            Space::Shared => atomic(|old: u32, b: u32, _| numbers::add_f32(old, b)),
            Space::Global => atomic(|old: u32, b: u32, _| numbers::add_f32_flushed(old, b)),
            _ => atomics::by_place(numbers::add_f32, numbers::add_f32_flushed),
        },
        (Atomic::Add, F64) => {
            atomic(|old: u64, b: u64, _| (f64::from_bits(old) + f64::from_bits(b)).to_bits())
        }
        (Atomic::Add, F16) => atomic(|old: u16, b: u16, _| add_f16(old, b)),
        (Atomic::Add, Bf16) => atomic(|old: u16, b: u16, _| add_bf16(old, b)),
        (Atomic::Add, F16x2) => atomic(|old: u32, b: u32, _| halves::pairwise(old, b, add_f16)),
        (Atomic::Add, Bf16x2) => atomic(|old: u32, b: u32, _| halves::pairwise(old, b, add_bf16)),
        (Atomic::Minimum | Atomic::Maximum, F16 | Bf16 | F16x2 | Bf16x2) => {
            half_extremum(operation == Atomic::Minimum, ty)?
        }
        (Atomic::Minimum, U32) => atomic(|old: u32, b: u32, _| old.min(b)),
        (Atomic::Maximum, U32) => atomic(|old: u32, b: u32, _| old.max(b)),
        (Atomic::Minimum, S32) => atomic(|old: u32, b: u32, _| (old as i32).min(b as i32) as u32),
        (Atomic::Maximum, S32) => atomic(|old: u32, b: u32, _| (old as i32).max(b as i32) as u32),
        (Atomic::Minimum, U64) => atomic(|old: u64, b: u64, _| old.min(b)),
        (Atomic::Maximum, U64) => atomic(|old: u64, b: u64, _| old.max(b)),
        (Atomic::Minimum, S64) => atomic(|old: u64, b: u64, _| (old as i64).min(b as i64) as u64),
        (Atomic::Maximum, S64) => atomic(|old: u64, b: u64, _| (old as i64).max(b as i64) as u64),
        (Atomic::Increment, U32) => atomic(|old: u32, b: u32, _| if old >= b { 0 } else { old + 1 }),
        (Atomic::Decrement, U32) => {
            atomic(|old: u32, b: u32, _| if old == 0 || old > b { b } else { old - 1 })
        }
        (Atomic::And, B32 | U32 | S32) => atomic(|old: u32, b: u32, _| old & b),
        (Atomic::Or, B32 | U32 | S32) => atomic(|old: u32, b: u32, _| old | b),
        (Atomic::Xor, B32 | U32 | S32) => atomic(|old: u32, b: u32, _| old ^ b),
        (Atomic::And, B64 | U64 | S64) => atomic(|old: u64, b: u64, _| old & b),
        (Atomic::Or, B64 | U64 | S64) => atomic(|old: u64, b: u64, _| old | b),
        (Atomic::Xor, B64 | U64 | S64) => atomic(|old: u64, b: u64, _| old ^ b),
        (Atomic::Exchange, B32 | U32 | S32 | F32) => atomic(|_: u32, b: u32, _| b),
        (Atomic::Exchange, B64 | U64 | S64 | F64) => atomic(|_: u64, b: u64, _| b),
        (Atomic::CompareAndSwap, B16 | U16 | S16) => {
            atomic(|old: u16, b: u16, c: u16| if old == b { c } else { old })
        }
        (Atomic::CompareAndSwap, B32 | U32 | S32) => {
            atomic(|old: u32, b: u32, c: u32| if old == b { c } else { old })
        }
        (Atomic::CompareAndSwap, B64 | U64 | S64) => {
            atomic(|old: u64, b: u64, c: u64| if old == b { c } else { old })
        }
        _ => return None,
    })
}

fn half_extremum(min: bool, ty: ScalarType) -> Option<AccessHandler> {
    use ScalarType::*;
    use access::atomic;
    use halves::pairwise;
    Some(match (min, ty) {
        (true, F16) => atomic(|old: u16, b: u16, _| least_f16(old, b)),
        (false, F16) => atomic(|old: u16, b: u16, _| most_f16(old, b)),
        (true, Bf16) => atomic(|old: u16, b: u16, _| least_bf16(old, b)),
        (false, Bf16) => atomic(|old: u16, b: u16, _| most_bf16(old, b)),
        (true, F16x2) => atomic(|old: u32, b: u32, _| pairwise(old, b, least_f16)),
        (false, F16x2) => atomic(|old: u32, b: u32, _| pairwise(old, b, most_f16)),
        (true, Bf16x2) => atomic(|old: u32, b: u32, _| pairwise(old, b, least_bf16)),
        (false, Bf16x2) => atomic(|old: u32, b: u32, _| pairwise(old, b, most_bf16)),
        _ => return None,
    })
}
