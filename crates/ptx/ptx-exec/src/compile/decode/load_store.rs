//! Loads and stores, and the addresses that they access.

use ptx::body::{Base, Indexed, Line, Operand, Symbol};
use ptx::instruction::{Flag, Opcode};
use ptx::{ScalarType, StateSpace, Variable};
use ptx_lower::Memory;

use crate::code::Input;
use crate::compile::decode::Undecoded;
use crate::compile::decode::atomic;
use crate::compile::frame::{SymbolPlace, formal_bytes, parameter_layout};
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::compile::operand::{Destination, components, is_register};
use crate::memory::access::{self, AccessHandler, Extend};
use crate::memory::atomics;
use crate::native::Lowered;
use crate::operands::{AccessArgs, AccessKind, Args, Class, Reg, Space};
use crate::registers::shapes::{select, test};

/// Decodes what touches memory or deals in addresses. `None` if the opcode does neither.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Ld | Opcode::Ldu => load(compiler, line, form),
        Opcode::St => store(compiler, line, form),
        Opcode::Atom | Opcode::Red => atomic::decode(compiler, line, form),
        _ => return None,
    })
}

/// An address operand, resolved as far as it can be before the launch.
pub(crate) struct ResolvedAddress {
    pub(crate) space: Space,
    pub(crate) address: Reg,
    pub(crate) offset: i64,
}

pub(crate) fn place(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    space: Option<StateSpace>,
) -> Decoded<ResolvedAddress> {
    let (base, offset) = match operand {
        Operand::Address(address) if !address.rest.is_empty() => {
            return invalid("this address takes no coordinates");
        }
        _ => match operand.place() {
            Some(place) => place,
            None => return invalid(format!("`{}` is not an address", compiler.show(operand))),
        },
    };
    if let Base::Indexed(element) = base {
        return indexed(compiler, element);
    }
    let Some(base) = base.operand() else { return absolute(compiler, offset, space) };
    let space = match space {
        None => Space::Generic,
        Some(StateSpace::Global | StateSpace::Const) => Space::Global,
        Some(StateSpace::Shared) => Space::Shared,
        Some(StateSpace::Local) => Space::Local,
        // A register that points to parameters: those of a kernel have host addresses.
        Some(StateSpace::Param) if compiler.is_kernel() => Space::Generic,
        Some(StateSpace::Param) => Space::Local,
        Some(space) => return unsupported(format!("accesses to {space} are not supported")),
    };
    if let Operand::Name(symbol) = base
        && !is_register(symbol)
    {
        return variable(compiler, symbol, offset);
    }
    let narrow = compiler.named(&base)?.is_some_and(|(reg, _)| compiler.class(reg) == Class::Word);
    let address = compiler.source(&base, if narrow { ScalarType::U32 } else { ScalarType::U64 })?;
    Ok(ResolvedAddress { space, address, offset })
}

/// A place in a variable: its space is known, and offsets fold into places that are.
fn variable(compiler: &mut FunctionCompiler, symbol: Symbol, offset: i64) -> Decoded<ResolvedAddress> {
    let (space, class, input, offset) = match compiler.symbol_place(symbol)? {
        SymbolPlace::Frame(start) => {
            (Space::Local, Class::Long, Input::Frame(start.wrapping_add(offset as u32)), 0)
        }
        SymbolPlace::Param(start) => (Space::Generic, Class::Long, Input::ParamAddress(start), offset),
        SymbolPlace::Shared(index) => {
            compiler.note_shared(index);
            (Space::Shared, Class::Word, Input::SharedVariable(index), offset)
        }
        SymbolPlace::Global(index) => (Space::Global, Class::Long, Input::Global(index), offset),
        SymbolPlace::Function(_) => {
            return invalid(format!("`{}` is a function", compiler.body.name(symbol)));
        }
    };
    Ok(ResolvedAddress { space, address: compiler.input(class, input), offset })
}

/// An element of an array: its space is that of the array.
fn indexed(compiler: &mut FunctionCompiler, element: Indexed) -> Decoded<ResolvedAddress> {
    let ResolvedAddress { space, address, .. } = variable(compiler, element.array, 0)?;
    let address = compiler.element_address(element, compiler.class(address))?;
    Ok(ResolvedAddress { space, address, offset: 0 })
}

fn absolute(
    compiler: &mut FunctionCompiler,
    address: i64,
    space: Option<StateSpace>,
) -> Decoded<ResolvedAddress> {
    let space = match space {
        Some(StateSpace::Shared) => Space::Shared,
        Some(StateSpace::Local) => Space::Local,
        _ => Space::Generic,
    };
    Ok(ResolvedAddress { space, address: compiler.constant(Class::Long, address as u64), offset: 0 })
}

/// Adds a step that accesses a place.
pub(crate) fn access(
    compiler: &mut FunctionCompiler,
    handler: AccessHandler,
    place: ResolvedAddress,
    args: AccessArgs,
) {
    let narrow = compiler.class(place.address) == Class::Word;
    let args =
        AccessArgs { space: place.space, address: place.address, offset: place.offset, narrow, ..args };
    compiler.access(handler, args);
}

pub(crate) const NO_DATA: AccessArgs = AccessArgs {
    space: Space::Global,
    data: [Reg::NONE; 8],
    address: Reg::NONE,
    narrow: false,
    offset: 0,
    indexed: None,
    pattern: 0,
    fresh: true,
    like: None,
    operands: [Reg::NONE; 4],
    kind: AccessKind::Load,
    wide: false,
    copied: 0,
    synchronises: false,
};

/// Returns an access with the address `operand`; the rest is empty.
pub(crate) fn address(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    space: Option<StateSpace>,
) -> Decoded<AccessArgs> {
    let ResolvedAddress { space, address, offset } = place(compiler, operand, space)?;
    let narrow = compiler.class(address) == Class::Word;
    Ok(AccessArgs { space, address, offset, narrow, ..NO_DATA })
}

/// The handler that moves cells of a type between memory and registers.
#[derive(Clone, Copy)]
enum Move {
    Load,
    Store,
    LoadStrong,
    StoreStrong,
}

impl Move {
    /// Whether it is a plain read or write.
    fn is_weak(self) -> bool {
        matches!(self, Move::Load | Move::Store)
    }

    fn handler<R: crate::registers::lanes::Lane, C: Extend<R>>(self) -> AccessHandler {
        match self {
            Move::Load => access::load::<R, C>(),
            Move::Store => access::store::<R, C>(),
            Move::LoadStrong => access::load_strong::<R, C>(),
            Move::StoreStrong => access::store_strong::<R, C>(),
        }
    }

    fn handler_for(self, ty: ScalarType, class: Class) -> Decoded<AccessHandler> {
        Ok(match (ty.bytes(), ty.is_signed(), class) {
            (1, false, Class::Word) => self.handler::<u32, u8>(),
            (1, true, Class::Word) => self.handler::<u32, i8>(),
            (2, false, Class::Word) => self.handler::<u32, u16>(),
            (2, true, Class::Word) => self.handler::<u32, i16>(),
            (4, _, Class::Word) => self.handler::<u32, u32>(),
            (1, false, Class::Long) => self.handler::<u64, u8>(),
            (1, true, Class::Long) => self.handler::<u64, i8>(),
            (2, false, Class::Long) => self.handler::<u64, u16>(),
            (2, true, Class::Long) => self.handler::<u64, i16>(),
            (4, false, Class::Long) => self.handler::<u64, u32>(),
            (4, true, Class::Long) => self.handler::<u64, i32>(),
            (8, _, Class::Long) => self.handler::<u64, u64>(),
            _ => return unsupported(format!("accesses of type {ty} are not supported")),
        })
    }
}

/// The meaning of a load or store, of a vector that is no longer than the 32 bytes of the longest
/// access.
fn memory(form: &mut Undecoded) -> Decoded<Memory> {
    match Memory::of(form) {
        Some(Memory { length, ty, .. }) if length as u64 * ty.bytes() > 32 => {
            invalid(format!("{length} times {ty} is too long"))
        }
        Some(memory) => Ok(memory),
        None => invalid("a load or store needs a type"),
    }
}

/// The registers of a vector operand: `{a, b}`, the name of a vector register, or one register.
pub(crate) fn elements<'m>(operand: &Operand<'m>, count: usize) -> Decoded<Vec<Operand<'m>>> {
    let elements = match operand {
        Operand::Vector(elements) => elements.clone(),
        Operand::Name(symbol) if count > 1 => components(*symbol, count),
        other => vec![other.clone()],
    };
    if elements.len() != count {
        return invalid(format!("expected {count} registers, found {}", elements.len()));
    }
    Ok(elements)
}

/// The register that an element of a load goes to: its own if it takes the type, whatever its
/// width.
fn loaded(compiler: &mut FunctionCompiler, operand: &Operand, ty: ScalarType) -> Decoded<Destination> {
    match compiler.named(operand)? {
        // Loads extend to the register's width by themselves.
        Some((_, declared)) if declared.bytes() > ty.bytes() => compiler.destination(operand, declared),
        _ => compiler.destination(operand, ty),
    }
}

fn load(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let memory = memory(form)?;
    let (ty, strong) = (memory.ty, memory.is_strong);
    let [destination, address, ..] = line.operands.as_slice() else {
        return invalid("`ld` takes a destination and an address");
    };
    let place = place(compiler, address, memory.space)?;
    if ty == ScalarType::B128 {
        return load_wide(compiler, place, &elements(destination, memory.length)?, strong);
    }
    let mut data = [Reg::NONE; 8];
    let mut class = None;
    let mut destinations = Vec::new();
    for (slot, element) in data.iter_mut().zip(elements(destination, memory.length)?) {
        let destination = loaded(compiler, &element, ty)?;
        *slot = destination.reg;
        let this = compiler.class(destination.reg);
        if element != Operand::Sink && class.replace(this).is_some_and(|before| before != this) {
            return unsupported("a vector load into registers of different widths");
        }
        destinations.push((element, destination));
    }
    let class = class.unwrap_or(if ty.bytes() == 8 { Class::Long } else { Class::Word });
    let kind =
        if memory.is_indivisible() && place.space != Space::Shared { Move::LoadStrong } else { Move::Load };
    for (slot, (element, _)) in data.iter_mut().zip(&destinations) {
        if *element == Operand::Sink {
            *slot = compiler.fresh(class);
        }
    }
    let args = AccessArgs { data, synchronises: strong, ..NO_DATA };
    compiler.means(if kind.is_weak() { Lowered::Moves(ty) } else { Lowered::Other });
    access(compiler, kind.handler_for(ty, class)?, place, args);
    destinations.into_iter().for_each(|(_, destination)| compiler.widen(destination));
    Ok(())
}

fn store(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    if form.take(Flag::Bulk) {
        return unsupported(format!("`{}` is not supported", line.instruction.mnemonic));
    }
    let memory = memory(form)?;
    let ty = memory.ty;
    let [address, source, ..] = line.operands.as_slice() else {
        return invalid("`st` takes an address and a value");
    };
    let place = place(compiler, address, memory.space)?;
    if ty == ScalarType::B128 {
        return store_wide(compiler, place, &elements(source, memory.length)?, memory.is_strong);
    }
    let mut data = [Reg::NONE; 8];
    for (slot, element) in data.iter_mut().zip(elements(source, memory.length)?) {
        *slot = compiler.source(&element, ty)?;
    }
    let class = compiler.class(data[0]);
    let kind =
        if memory.is_indivisible() && place.space != Space::Shared { Move::StoreStrong } else { Move::Store };
    compiler.means(if kind.is_weak() { Lowered::Moves(ty) } else { Lowered::Other });
    access(
        compiler,
        kind.handler_for(ty, class)?,
        place,
        AccessArgs { data, kind: AccessKind::Store, ..NO_DATA },
    );
    Ok(())
}

/// The registers of `.b128` values, two for each.
pub(crate) fn wide_registers(compiler: &mut FunctionCompiler, values: &[Operand]) -> Decoded<[Reg; 8]> {
    let mut data = [Reg::NONE; 8];
    for (pair, value) in data.chunks_mut(2).zip(values) {
        pair.copy_from_slice(&compiler.wide(value)?);
    }
    Ok(data)
}

/// Loads of `.b128`: strong ones of one value at once, all others like vectors of `.b64`.
fn load_wide(
    compiler: &mut FunctionCompiler,
    place: ResolvedAddress,
    values: &[Operand],
    strong: bool,
) -> Decoded<()> {
    let args = AccessArgs { data: wide_registers(compiler, values)?, synchronises: strong, ..NO_DATA };
    let handler = match strong && values.len() == 1 {
        true => atomics::load128(),
        false => Move::Load.handler_for(ScalarType::B64, Class::Long)?,
    };
    access(compiler, handler, place, args);
    Ok(())
}

/// Stores of `.b128`, likewise.
fn store_wide(
    compiler: &mut FunctionCompiler,
    place: ResolvedAddress,
    values: &[Operand],
    strong: bool,
) -> Decoded<()> {
    let data = wide_registers(compiler, values)?;
    if strong && values.len() == 1 {
        let operands = Reg::list(&data[..2]);
        let args = AccessArgs { operands, kind: AccessKind::Atomic, ..NO_DATA };
        access(compiler, atomics::exchange128(), place, args);
        return Ok(());
    }
    let handler = Move::Store.handler_for(ScalarType::B64, Class::Long)?;
    access(compiler, handler, place, AccessArgs { data, kind: AccessKind::Store, ..NO_DATA });
    Ok(())
}

/// Emits a load of a frame's bytes into a register.
pub(crate) fn load_frame(compiler: &mut FunctionCompiler, value: &FrameValue) -> Decoded<()> {
    let &FrameValue { register, ty, offset } = value;
    if ty == ScalarType::Pred {
        let word = compiler.fresh(Class::Word);
        load_frame(compiler, &FrameValue { register: word, ty: ScalarType::U8, offset })?;
        compiler.lanes(test(|a: u32| a != 0), Args { d: register, a: word, ..Args::EMPTY });
        return Ok(());
    }
    let handler = Move::Load.handler_for(ty, compiler.class(register))?;
    access_frame(compiler, handler, value, AccessKind::Load);
    Ok(())
}

/// Emits a store of a register into the frame.
fn store_frame(compiler: &mut FunctionCompiler, value: &FrameValue) -> Decoded<()> {
    let &FrameValue { register, ty, offset } = value;
    if ty == ScalarType::Pred {
        let [yes, no] = [1, 0].map(|bit| compiler.constant(Class::Word, bit));
        let word = compiler.fresh(Class::Word);
        let run = select(|yes: u32, no: u32, chosen| if chosen { yes } else { no });
        compiler.lanes(run, Args { d: word, a: yes, b: no, c: register, ..Args::EMPTY });
        return store_frame(compiler, &FrameValue { register: word, ty: ScalarType::U8, offset });
    }
    let handler = Move::Store.handler_for(ty, compiler.class(register))?;
    access_frame(compiler, handler, value, AccessKind::Store);
    Ok(())
}

fn access_frame(
    compiler: &mut FunctionCompiler,
    handler: AccessHandler,
    value: &FrameValue,
    kind: AccessKind,
) {
    let address = compiler.input(Class::Long, Input::Frame(value.offset));
    let place = ResolvedAddress { space: Space::Local, address, offset: 0 };
    let (data, copied) = (Reg::list(&[value.register]), value.ty.bytes() as u32);
    access(compiler, handler, place, AccessArgs { data, kind, copied, ..NO_DATA });
}

/// A register of a parameter or result, and where the value lies in a frame.
pub(crate) struct FrameValue {
    register: Reg,
    ty: ScalarType,
    offset: u32,
}

/// The registers of a parameter or result that lies at `offset` of the frame: those of a vector's
/// components, the halves of a `.b128`, or one, which `find` gets for an operand.
fn frame_values(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    ty: ScalarType,
    offset: u32,
    mut find: impl FnMut(&mut FunctionCompiler, &Operand) -> Decoded<Reg>,
) -> Decoded<Vec<FrameValue>> {
    if ty == ScalarType::B128 {
        let halves = compiler.wide(operand)?.into_iter().zip([offset, offset + 8]);
        let value = |(register, offset)| FrameValue { register, ty: ScalarType::B64, offset };
        return Ok(halves.map(value).collect());
    }
    let parts = compiler.components(operand).unwrap_or_else(|| vec![operand.clone()]);
    let places = (offset..).step_by(ty.bytes().max(1) as usize);
    let value = |(part, offset)| Ok(FrameValue { register: find(compiler, part)?, ty, offset });
    parts.iter().zip(places).map(value).collect()
}

/// Returns the offset of the argument `operand` in the caller's frame. Registers and constants are
/// stored there.
pub(crate) fn spill_argument(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    formal: &Variable,
) -> Decoded<u32> {
    if let Some(offset) = frame_variable(compiler, operand)? {
        return Ok(offset);
    }
    let offset = compiler.frame_space(formal.alignment(), formal_bytes(formal));
    let find = |compiler: &mut FunctionCompiler, part: &Operand| compiler.source(part, formal.ty);
    for value in frame_values(compiler, operand, formal.ty, offset, find)? {
        store_frame(compiler, &value)?;
    }
    Ok(offset)
}

/// Returns the offset of a result in the caller's frame, and the registers that receive it.
pub(crate) fn result_place(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    formal: &Variable,
) -> Decoded<(u32, Vec<FrameValue>)> {
    if let Some(offset) = frame_variable(compiler, operand)? {
        return Ok((offset, Vec::new()));
    }
    let offset = compiler.frame_space(formal.alignment(), formal_bytes(formal));
    let values = match operand {
        Operand::Sink => Vec::new(),
        _ => frame_values(compiler, operand, formal.ty, offset, |compiler, part| {
            Ok(compiler.destination(part, formal.ty)?.reg)
        })?,
    };
    Ok((offset, values))
}

fn frame_variable(compiler: &mut FunctionCompiler, operand: &Operand) -> Decoded<Option<u32>> {
    let Operand::Name(symbol) = *operand else { return Ok(None) };
    if is_register(symbol) {
        return Ok(None);
    }
    match compiler.symbol_place(symbol)? {
        SymbolPlace::Frame(offset) => Ok(Some(offset)),
        _ => {
            let name = compiler.body.name(symbol);
            invalid(format!("`{name}` is not a parameter variable of this function"))
        }
    }
}

/// Formal parameters in registers are loaded when a function starts.
pub(crate) fn load_register_parameters(compiler: &mut FunctionCompiler) -> Decoded<()> {
    register_formals(compiler, false)?.iter().try_for_each(|value| load_frame(compiler, value))
}

/// Results in registers are stored when it returns.
pub(crate) fn store_register_results(compiler: &mut FunctionCompiler) -> Decoded<()> {
    register_formals(compiler, true)?.iter().try_for_each(|value| store_frame(compiler, value))
}

/// The parameters, or the results, that are in registers.
fn register_formals(compiler: &mut FunctionCompiler, results: bool) -> Decoded<Vec<FrameValue>> {
    let function = compiler.function;
    let (places, _) = parameter_layout(function.returns.iter().chain(&function.params));
    let formals = function.returns.iter().chain(&function.params).zip(places).enumerate();
    let mut values = Vec::new();
    for (index, (variable, (offset, _))) in formals {
        if variable.space != StateSpace::Reg || (index < function.returns.len()) != results {
            continue;
        }
        // A parameter that the function never mentions needs no register; the value of such a
        // result is open.
        let Some(id) = compiler.body.formal(variable) else { continue };
        let symbol = if variable.vector > 1 { Symbol::Vector(id) } else { Symbol::Register(id) };
        let find = |compiler: &mut FunctionCompiler, part: &Operand| {
            Ok(compiler.destination(part, variable.ty)?.reg)
        };
        values.extend(frame_values(compiler, &Operand::Name(symbol), variable.ty, offset, find)?);
    }
    Ok(values)
}

/// Returns the offset of a kernel parameter if the address is one: such loads need not be executed.
pub(crate) fn kernel_param(compiler: &FunctionCompiler, operand: &Operand) -> Option<u32> {
    let (Base::Name(symbol), offset) = operand.place()? else { return None };
    match compiler.symbol_place(symbol) {
        Ok(SymbolPlace::Param(start)) => start.checked_add_signed(i32::try_from(offset).ok()?),
        _ => None,
    }
}
