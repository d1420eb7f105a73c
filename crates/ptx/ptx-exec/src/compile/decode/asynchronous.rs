//! Asynchronous copies, and the barriers in memory by which they are waited for.
//!
//! A copy is done when it is issued, so groups of copies need no record, and waiting for them no
//! time. A program that forgets to wait gets the right data here all the same.

use ptx::body::{Line, Operand};
use ptx::instruction::{Flag, Opcode, Phase};
use ptx::{ScalarType, StateSpace};
use ptx_lower::memory;

use crate::arithmetic::reduction;
use crate::compile::decode::Undecoded;
use crate::compile::decode::address::generic_of_shared;
use crate::compile::decode::load_store;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::memory::access::{self, AccessHandler};
use crate::memory::{bulk, mbarrier, tensor};
use crate::operands::{AccessArgs, AccessKind, Args, Class, Reg, Space};
use crate::registers::shapes::{binary, compare, select, unary};

/// Decodes `cp`, `mbarrier`, `st.async`, `red.async`, `st.bulk` and `clusterlaunchcontrol`. `None`
/// if the instruction is none of these.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Cp => copy(compiler, line, form),
        Opcode::Mbarrier => barrier(compiler, line, form),
        Opcode::St | Opcode::Red if form.has(Flag::Asynchronous) => {
            form.take(Flag::Asynchronous);
            store(compiler, line, form)
        }
        Opcode::St if form.has(Flag::Bulk) => store_zeros(compiler, line, form),
        Opcode::Clusterlaunchcontrol => launch_control(compiler, line, form),
        _ => return None,
    })
}

/// `st.async` and `red.async`: the store or reduction, and its bytes counted at an mbarrier.
fn store(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    form.take(Flag::CompletesBytes);
    let vector = u64::from(form.vector.unwrap_or(1));
    let bytes = vector * form.types().first().map_or(0, |ty| ty.bytes());
    let ([_, _, object], Some(outcome)) =
        (line.operands.as_slice(), load_store::decode(compiler, line, form))
    else {
        return invalid("an asynchronous store takes an address, a value and the address of an mbarrier");
    };
    outcome?;
    let count = compiler.constant(Class::Word, bytes);
    let object = (object, Some(StateSpace::Shared));
    change(compiler, mbarrier::complete_bytes(), object, [count, Reg::NONE], Reg::NONE)
}

/// `st.bulk`: zeros in shared memory, at once.
fn store_zeros(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let [place, size, ..] = line.operands.as_slice() else {
        return invalid("`st.bulk` takes an address, a size and 0");
    };
    let space = form.take_space();
    form.take_all();
    let bytes = compiler.source(size, ScalarType::U32)?;
    let place = load_store::address(compiler, place, space)?;
    zeros(compiler, place, bytes);
    Ok(())
}

/// Adds a step that fills memory with zeros.
fn zeros(compiler: &mut FunctionCompiler, place: AccessArgs, bytes: Reg) {
    let (operands, kind) = (Reg::list(&[bytes]), AccessKind::Bulk);
    compiler.access(bulk::copy(), AccessArgs { operands, kind, ..place });
}

/// Bytes of the answer to a request for another cluster's work.
const ANSWER: u64 = 16;

/// `clusterlaunchcontrol`: a request to cancel the launch of a cluster is always refused, as it may
/// be when none is left to cancel. The answer is 16 zeros.
fn launch_control(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let mnemonic = line.instruction.mnemonic.text();
    form.take_all();
    match line.operands.as_slice() {
        [place, object] if mnemonic.contains(".try_cancel") && !mnemonic.contains(".multicast") => {
            let space = Some(StateSpace::Shared);
            let bytes = compiler.constant(Class::Word, ANSWER);
            let place = load_store::address(compiler, place, space)?;
            zeros(compiler, place, bytes);
            change(compiler, mbarrier::complete_bytes(), (object, space), [bytes, Reg::NONE], Reg::NONE)
        }
        [Operand::Name(answer), _] if mnemonic.contains(".is_canceled") => {
            let (d, a) = (compiler.predicate(*answer)?, compiler.constant(Class::Word, 0));
            compiler.lanes(compare(|a: u32, b: u32| a != b), Args { d, a, b: a, ..Args::EMPTY });
            Ok(())
        }
        [blocks, _] if mnemonic.contains(".get_first_ctaid") => {
            let count = if mnemonic.contains(".v4") { 4 } else { 1 };
            let zero = compiler.constant(Class::Word, 0);
            for block in load_store::elements(blocks, count)? {
                let destination = compiler.destination(&block, ScalarType::B32)?;
                let args = Args { d: destination.reg, a: zero, ..Args::EMPTY };
                compiler.lanes(unary(|a: u32| a), args);
                compiler.widen(destination);
            }
            Ok(())
        }
        _ => unsupported(format!("`{mnemonic}` is not supported")),
    }
}

/// The register with the blocks of the cluster to which a copy goes, if the mnemonic has a mask:
/// the operand `at`.
fn ranks(compiler: &mut FunctionCompiler, line: &Line, at: usize) -> Decoded<Reg> {
    if !line.instruction.mnemonic.text().contains(".multicast::cluster") {
        return Ok(Reg::NONE);
    }
    match line.operands.get(at) {
        Some(mask) => compiler.source(mask, ScalarType::U16),
        None => invalid("a copy to several blocks of a cluster takes a mask of their ranks"),
    }
}

/// A copy of any kind, or what waits for one.
fn copy(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    if !form.take(Flag::Asynchronous) {
        return unsupported(format!("`{}` is not supported", line.instruction.mnemonic));
    }
    if form.take(Flag::Bulk) {
        return bulk_copy(compiler, line, form);
    }
    if form.take_one(&[Flag::CommitGroup, Flag::WaitGroup, Flag::WaitAll]).is_some() {
        return Ok(());
    }
    if form.take(Flag::Mbarrier) {
        return arrive_after_copies(compiler, line, form);
    }
    copy_element(compiler, line, form)
}

/// `cp.async.mbarrier.arrive`: the copies before it are done, so it arrives. Without `.noinc` it
/// has first made the object wait for one more arrival, and nothing remains of it.
fn arrive_after_copies(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    form.take(Flag::Arrive);
    let count = u64::from(form.take(Flag::NoIncrement));
    let space = form.take_space();
    form.take_type();
    let [object] = line.operands.as_slice() else {
        return invalid("`cp.async.mbarrier.arrive` takes the address of an mbarrier");
    };
    let count = compiler.constant(Class::Word, count);
    change(compiler, mbarrier::arrive(), (object, space), [count, Reg::NONE], Reg::NONE)
}

/// `cp.async` of 4, 8 or 16 bytes for each lane.
fn copy_element(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let policy = form.take(Flag::CacheHint);
    memory::take_cache_hints(form);
    let (_, _) = (form.take_space(), form.take_space());
    let mut operands = line.operands.as_slice();
    if policy {
        operands = &operands[..operands.len().saturating_sub(1)];
    }
    let [destination, source, Operand::Constant(ptx::Constant::Integer(bytes)), rest @ ..] = operands else {
        return invalid("`cp.async` takes two addresses and a size");
    };
    let run = match bytes {
        4 => access::copy::<[u8; 4]>(),
        8 => access::copy::<[u8; 8]>(),
        16 => access::copy::<[u8; 16]>(),
        _ => return invalid("`cp.async` copies 4, 8 or 16 bytes"),
    };
    let size = match rest.first() {
        None => Reg::NONE,
        Some(operand) => copied_bytes(compiler, operand, *bytes as u64)?,
    };
    let from = load_store::address(compiler, source, Some(StateSpace::Global))?;
    let source = with_offset(compiler, &from);
    let to = load_store::address(compiler, destination, Some(StateSpace::Shared))?;
    let (operands, copied) = (Reg::list(&[source, size]), *bytes as u32);
    compiler.access(run, AccessArgs { operands, kind: AccessKind::Copy, copied, ..to });
    Ok(())
}

/// Returns the number of bytes to copy from the source: the operand states it, or is a predicate
/// for ignoring the source.
fn copied_bytes(compiler: &mut FunctionCompiler, operand: &Operand, bytes: u64) -> Decoded<Reg> {
    let (predicate, ignored) = match operand {
        Operand::Not(name) => (compiler.predicate(*name)?, false),
        Operand::Name(name) if matches!(compiler.register(*name, None)?, Some((_, ScalarType::Pred))) => {
            (compiler.predicate(*name)?, true)
        }
        size => return compiler.source(size, ScalarType::U32),
    };
    let (all, none) = (compiler.constant(Class::Word, bytes), compiler.constant(Class::Word, 0));
    let (a, b) = if ignored { (none, all) } else { (all, none) };
    let d = compiler.fresh(Class::Word);
    let choose = select(|a: u32, b: u32, first| if first { a } else { b });
    compiler.lanes(choose, Args { d, a, b, c: predicate, ..Args::EMPTY });
    Ok(d)
}

/// The address itself, in a long.
fn with_offset(compiler: &mut FunctionCompiler, place: &AccessArgs) -> Reg {
    let offset = compiler.constant(Class::Long, place.offset as u64);
    let sum = compiler.fresh(Class::Long);
    let mut base = place.address;
    if place.narrow {
        base = compiler.fresh(Class::Long);
        compiler.lanes(unary(|a: u32| u64::from(a)), Args { d: base, a: place.address, ..Args::EMPTY });
    }
    let add = binary(|a: u64, b: u64| a.wrapping_add(b));
    compiler.lanes(add, Args { d: sum, a: base, b: offset, ..Args::EMPTY });
    sum
}

/// The generic address of a place in global or shared memory.
fn generic_address(compiler: &mut FunctionCompiler, place: &AccessArgs) -> Reg {
    let address = with_offset(compiler, place);
    match place.space {
        Space::Shared => generic_of_shared(compiler, address),
        _ => address,
    }
}

/// `cp.async.bulk` between global and shared memory.
fn bulk_copy(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    if form.take_one(&[Flag::CommitGroup, Flag::WaitGroup]).is_some() {
        form.take(Flag::Read);
        return Ok(());
    }
    if form.take(Flag::Prefetch) {
        form.take_all();
        return Ok(());
    }
    if form.take(Flag::Tensor) {
        return tensor_copy(compiler, line, form);
    }
    let operation = bulk_operation(line, form)?;
    form.take(Flag::CacheHint);
    let spaces = [form.take_space(), form.take_space()];
    let counted =
        form.take_one(&[Flag::CompletesBytes, Flag::BulkGroup]).map(|how| how == Flag::CompletesBytes);
    let ([Some(to), Some(from)], Some(counted)) = (spaces, counted) else {
        return invalid("`cp.async.bulk` needs two state spaces, and how it is waited for");
    };
    let [destination, source, size, rest @ ..] = line.operands.as_slice() else {
        return invalid("`cp.async.bulk` takes two addresses and a size");
    };
    let from = load_store::address(compiler, source, Some(from))?;
    let from = generic_address(compiler, &from);
    let object = match (counted, rest.first()) {
        (true, Some(object)) => {
            let object = load_store::address(compiler, object, Some(StateSpace::Shared))?;
            generic_address(compiler, &object)
        }
        (true, None) => return invalid("this `cp.async.bulk` takes the address of an mbarrier"),
        (false, _) => Reg::NONE,
    };
    let bytes = compiler.source(size, ScalarType::U32)?;
    let ranks = ranks(compiler, line, 4)?;
    if ranks.is_some() {
        form.unknown = form.unknown.saturating_sub(1);
    }
    let to = load_store::address(compiler, destination, Some(to))?;
    let data = Reg::list(&[from, object]);
    let (operands, kind, copied) = (Reg::list(&[bytes, ranks]), AccessKind::Bulk, operation);
    compiler.access(bulk::copy(), AccessArgs { data, operands, kind, copied, synchronises: counted, ..to });
    Ok(())
}

/// The number of what `cp.reduce.async.bulk` does to its destination; 0 for a copy.
fn bulk_operation(line: &Line, form: &mut Undecoded) -> Decoded<u32> {
    let mnemonic = line.instruction.mnemonic.text();
    if !mnemonic.starts_with("cp.reduce.") {
        return Ok(0);
    }
    let number = match (form.atomic.take(), form.take_type()) {
        (Some(operation), Some(ty)) => reduction::number_on(operation, ty),
        _ => None,
    };
    // `.reduce`, and `.noftz`, which the types with this modifier always have.
    form.unknown = form.unknown.saturating_sub(1);
    form.take(Flag::NoFlush);
    match number {
        Some(number) => Ok(number),
        None => unsupported(format!("`{mnemonic}` is not supported")),
    }
}

/// Modifiers of copies by tensor map that change nothing of how they are executed here, beside
/// spaces and dimensions.
const OF_TENSORS: &[&str] = &[
    "async",
    "bulk",
    "tensor",
    "tile",
    "im2col",
    "im2col_no_offs",
    "mbarrier::complete_tx::bytes",
    "bulk_group",
    "multicast::cluster",
    "L2::cache_hint",
];

/// `cp.async.bulk.tensor`: a box of a tensor, to or from shared memory.
fn tensor_copy(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let mnemonic = line.instruction.mnemonic.text();
    let operation = form.atomic.take().filter(|_| mnemonic.starts_with("cp.reduce."));
    form.take_all();
    let (mut loads, mut rank) = (None, 0);
    for word in mnemonic.split('.').skip(1) {
        match word {
            // The destination comes first.
            "shared::cluster" | "shared::cta" => loads = loads.or(Some(true)),
            "global" => loads = loads.or(Some(false)),
            "1d" | "2d" | "3d" | "4d" | "5d" => rank = u32::from(word.as_bytes()[0] - b'0'),
            _ if OF_TENSORS.contains(&word) => {}
            "reduce" | "add" | "min" | "max" | "inc" | "dec" | "and" | "or" | "xor"
                if operation.is_some() => {}
            _ => return unsupported(format!("`.{word}` is not supported in `{mnemonic}`")),
        }
    }
    let (map, shared, object) = match (loads, line.operands.as_slice()) {
        (Some(true), [shared, map, object, ..]) => (map, shared, Some(object)),
        (Some(false), [map, shared, ..]) => (map, shared, None),
        _ => return invalid("`cp.async.bulk.tensor` takes a tensor map and an address in shared memory"),
    };
    let (map, coordinates) = tensor_place(compiler, map)?;
    let object = match object {
        Some(object) => {
            let object = load_store::address(compiler, object, Some(StateSpace::Shared))?;
            generic_address(compiler, &object)
        }
        None => Reg::NONE,
    };
    // Observers want to know the size before the copy.
    let bytes = compiler.fresh(Class::Word);
    let size = AccessArgs {
        space: Space::Generic,
        data: Reg::list(&[bytes]),
        address: map,
        offset: tensor::BOX_BYTES,
        ..load_store::NO_DATA
    };
    compiler.access(access::load::<u32, u32>(), size);
    let pixels = mnemonic.contains(".im2col");
    let of_loads = pixels && loads == Some(true);
    let ranks = ranks(compiler, line, if of_loads { 4 } else { 3 })?;
    let offsets = match line.operands.get(3) {
        Some(offsets) if of_loads => pixel_offsets(compiler, offsets)?,
        _ => [Reg::NONE; 2],
    };
    let place = load_store::address(compiler, shared, Some(StateSpace::Shared))?;
    let [c01, c23, c4] = coordinates;
    let data = Reg::list(&[map, object, c01, c23, c4, offsets[0], offsets[1]]);
    let (operands, kind) = (Reg::list(&[bytes, ranks]), AccessKind::Tensor);
    let copied = if pixels { rank | tensor::PIXELS } else { rank };
    let number = operation.and_then(reduction::number_of).unwrap_or(0);
    let copied = copied | number << tensor::OPERATION_SHIFT;
    let run = if loads == Some(true) { tensor::load() } else { tensor::store() };
    let synchronises = object.is_some();
    compiler.access(run, AccessArgs { data, operands, kind, copied, synchronises, ..place });
    Ok(())
}

/// How far from its pixel each element lies that is copied, two in a long.
fn pixel_offsets(compiler: &mut FunctionCompiler, operand: &Operand) -> Decoded<[Reg; 2]> {
    let Operand::Vector(items) = operand else {
        return invalid("`.im2col` takes the offsets of pixels, behind the mbarrier");
    };
    let mut half = |at: usize| match items.get(at) {
        Some(offset) => compiler.source(offset, ScalarType::U16),
        None => Ok(compiler.constant(Class::Word, 0)),
    };
    let words = [half(0)?, half(1)?, half(2)?];
    let none = compiler.constant(Class::Word, 0);
    Ok([packed(compiler, words[0], words[1]), packed(compiler, words[2], none)])
}

/// The generic address of a tensor map, and the coordinates beside it, two in a long.
fn tensor_place(compiler: &mut FunctionCompiler, operand: &Operand) -> Decoded<(Reg, [Reg; 3])> {
    let Operand::Address(address) = operand else {
        return invalid("a tensor map stands in brackets, before its coordinates");
    };
    let coordinates = match address.rest.as_slice() {
        [Operand::Vector(items)] => items.as_slice(),
        plain => plain,
    };
    if coordinates.len() > tensor::MAX_RANK {
        return invalid("a tensor has at most five dimensions");
    }
    let alone = Operand::Address(ptx::body::Address { rest: Vec::new(), ..address.clone() });
    let place = load_store::address(compiler, &alone, None)?;
    let map = generic_address(compiler, &place);
    let mut pairs = [Reg::NONE; 3];
    for (index, pair) in pairs.iter_mut().enumerate() {
        let mut half = |at: usize| match coordinates.get(at) {
            Some(coordinate) => compiler.source(coordinate, ScalarType::S32),
            None => Ok(compiler.constant(Class::Word, 0)),
        };
        let (low, high) = (half(2 * index)?, half(2 * index + 1)?);
        *pair = packed(compiler, low, high);
    }
    Ok((map, pairs))
}

/// Two words as a long.
fn packed(compiler: &mut FunctionCompiler, low: Reg, high: Reg) -> Reg {
    let [a, b, d] = [(); 3].map(|()| compiler.fresh(Class::Long));
    compiler.lanes(unary(|low: u32| u64::from(low)), Args { d: a, a: low, ..Args::EMPTY });
    compiler.lanes(unary(|high: u32| u64::from(high) << 32), Args { d: b, a: high, ..Args::EMPTY });
    compiler.lanes(binary(|a: u64, b: u64| a | b), Args { d, a, b, ..Args::EMPTY });
    d
}

/// `mbarrier`.
fn barrier(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let Some(operation) = form.phase.take() else { return invalid("`mbarrier` needs an operation") };
    let no_complete = form.take(Flag::NoComplete);
    let expects = form.take(Flag::ExpectsBytes);
    let parity = form.take(Flag::Parity);
    memory::take_order(form);
    let space = form.take_space();
    form.take_type();
    match (operation, line.operands.as_slice()) {
        (Phase::Initialize, [object, count]) => {
            let count = compiler.source(count, ScalarType::U32)?;
            change(compiler, mbarrier::init(), (object, space), [count, Reg::NONE], Reg::NONE)
        }
        (Phase::Invalidate, [object]) => {
            let nothing = compiler.constant(Class::Word, 0);
            change(compiler, mbarrier::invalidate(), (object, space), [nothing, Reg::NONE], Reg::NONE)
        }
        (Phase::Arrive | Phase::ArriveDrop, [state, object, rest @ ..]) => {
            let number = rest.first().map(|operand| compiler.source(operand, ScalarType::U32)).transpose()?;
            let operands = match (number, expects) {
                (Some(bytes), true) => [compiler.constant(Class::Word, 1), bytes],
                (Some(count), false) => [count, Reg::NONE],
                (None, false) if !no_complete => [compiler.constant(Class::Word, 1), Reg::NONE],
                _ => return invalid("this `mbarrier` operation takes a count"),
            };
            let run = if operation == Phase::Arrive { mbarrier::arrive() } else { mbarrier::arrive_drop() };
            arrive(compiler, run, state, (object, space), operands)
        }
        (Phase::TestWait | Phase::TryWait, [Operand::Name(over), object, phase, ..]) => {
            let over = compiler.predicate(*over)?;
            let (run, ty) = match parity {
                true => (mbarrier::test_parity(), ScalarType::U32),
                false => (mbarrier::test(), ScalarType::B64),
            };
            let phase = compiler.source(phase, ty)?;
            change(compiler, run, (object, space), [phase, Reg::NONE], over)
        }
        (Phase::ExpectBytes | Phase::CompleteBytes, [object, bytes]) => {
            let bytes = compiler.source(bytes, ScalarType::U32)?;
            let run = match operation {
                Phase::ExpectBytes => mbarrier::expect_bytes(),
                _ => mbarrier::complete_bytes(),
            };
            change(compiler, run, (object, space), [bytes, Reg::NONE], Reg::NONE)
        }
        (Phase::PendingCount, [count, state]) => {
            let state = compiler.source(state, ScalarType::B64)?;
            let count = compiler.destination(count, ScalarType::U32)?;
            let args = Args { d: count.reg, a: state, ..Args::EMPTY };
            compiler.lanes(unary(|state: u64| mbarrier::pending(state)), args);
            compiler.widen(count);
            Ok(())
        }
        _ => invalid("this `mbarrier` operation does not take these operands"),
    }
}

/// Adds a step by which threads arrive; `state`, if it is wanted, gets the object as it was before.
fn arrive(
    compiler: &mut FunctionCompiler,
    run: AccessHandler,
    state: &Operand,
    object: (&Operand, Option<StateSpace>),
    operands: [Reg; 2],
) -> Decoded<()> {
    if *state == Operand::Sink {
        return change(compiler, run, object, operands, Reg::NONE);
    }
    let state = compiler.destination(state, ScalarType::B64)?;
    change(compiler, run, object, operands, state.reg)?;
    compiler.widen(state);
    Ok(())
}

/// Adds a step on the mbarrier at an address. Threads wait by testing again and again, and so let
/// others run.
fn change(
    compiler: &mut FunctionCompiler,
    run: AccessHandler,
    (object, space): (&Operand, Option<StateSpace>),
    operands: [Reg; 2],
    result: Reg,
) -> Decoded<()> {
    let place = load_store::address(compiler, object, space)?;
    let (data, operands) = (Reg::list(&[result]), Reg::list(&operands));
    compiler
        .access(run, AccessArgs { data, operands, kind: AccessKind::Mbarrier, synchronises: true, ..place });
    Ok(())
}
