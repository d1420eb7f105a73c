//! Loads, stores, atomics and conversions of addresses.

use ptx::{AddressBase, Instruction, Operand, ScalarType, StateSpace, Variable};

use super::super::access::{self, AccessHandler, Extend};
use super::super::code::{AccessArgs, AccessKind, Args, Class, Input, Reg, Space};
use super::super::lanes::{binary, compare};
use super::form::Form;
use super::function::{
    Decoded, Destination, FunctionCompiler, SymbolPlace, invalid, parameter_layout, show, unsupported,
};
use super::{control, float};

/// Decodes what touches memory or deals in addresses. `None` if the opcode does neither.
pub(super) fn decode(
    compiler: &mut FunctionCompiler,
    instruction: &Instruction,
    form: &mut Form,
) -> Option<Decoded<()>> {
    Some(match form.opcode {
        "ld" | "ldu" => load(compiler, instruction, form),
        "st" => store(compiler, instruction, form),
        "atom" | "red" => atomic(compiler, instruction, form),
        "cvta" => convert_address(compiler, instruction, form),
        "isspacep" => is_space(compiler, instruction, form),
        _ => return None,
    })
}

/// Takes the modifiers that say how an access is ordered; whether it is a strong one.
pub(super) fn ordering(form: &mut Form) -> bool {
    let strong = form.one_of(&["volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"]).is_some();
    form.one_of(&["cta", "cluster", "gpu", "sys"]);
    form.flag("weak");
    strong
}

/// Takes the cache hints, which mean nothing here.
pub(super) fn cache_hints(form: &mut Form) {
    let hints = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"];
    while form.one_of(&hints).is_some() {}
    while form.take(|m| (m.starts_with("L1::") || m.starts_with("L2::")).then_some(())).is_some() {}
}

pub(super) fn state_space(form: &mut Form) -> Decoded<Option<StateSpace>> {
    let space = form.take(|m| match m {
        "shared::cta" => Some(Ok(StateSpace::Shared)),
        "shared::cluster" => Some(Err("shared memory of other blocks is not supported")),
        "param::entry" | "param::func" => Some(Ok(StateSpace::Param)),
        _ => StateSpace::from_name(m).map(Ok),
    });
    match space {
        Some(Err(message)) => unsupported(message),
        Some(Ok(space)) => Ok(Some(space)),
        None => Ok(None),
    }
}

/// An address operand, resolved as far as it can be before the launch.
struct Place {
    space: Space,
    address: Reg,
    offset: i64,
}

fn place(compiler: &mut FunctionCompiler, operand: &Operand, space: Option<StateSpace>) -> Decoded<Place> {
    let Operand::Address(address) = operand else {
        return invalid(format!("`{}` is not an address", show(operand)));
    };
    if !address.rest.is_empty() {
        return invalid("this address takes no coordinates");
    }
    let (base, mut offset) = match &address.base {
        AddressBase::Absolute => return absolute(compiler, address.offset, space),
        AddressBase::Name(name) => (Operand::Name(name.clone()), address.offset),
        AddressBase::Component(name, component) => {
            (Operand::Component(name.clone(), component.clone()), address.offset)
        }
    };
    let mut found = match space {
        None => Space::Generic,
        Some(StateSpace::Global | StateSpace::Const) => Space::Global,
        Some(StateSpace::Shared) => Space::Shared,
        Some(StateSpace::Local) => Space::Local,
        // A register that points to parameters: those of a kernel have host addresses.
        Some(StateSpace::Param) if compiler.is_kernel() => Space::Generic,
        Some(StateSpace::Param) => Space::Local,
        Some(space) => return unsupported(format!("accesses to {space} are not supported")),
    };
    if let Operand::Name(name) = &base
        && compiler.register(name, None)?.is_none()
        && !name.starts_with('%')
    {
        // A variable: its space is known, and offsets fold into places that are.
        let (class, input) = match compiler.symbol_input(name)? {
            SymbolPlace::Frame(start) => {
                found = Space::Local;
                let input = Input::Frame(start.wrapping_add(offset as u32));
                offset = 0;
                (Class::Long, input)
            }
            SymbolPlace::Param(start) => {
                found = Space::Generic;
                (Class::Long, Input::ParamAddress(start))
            }
            SymbolPlace::Shared(index) => {
                found = Space::Shared;
                compiler.note_shared(index);
                (Class::Word, Input::SharedVariable(index))
            }
            SymbolPlace::Global(index) => {
                found = Space::Global;
                (Class::Long, Input::Global(index))
            }
            SymbolPlace::Function(_) => return invalid(format!("`{name}` is a function")),
        };
        let address = compiler.input(class, input);
        return Ok(Place { space: found, address, offset });
    }
    let narrow = match &base {
        Operand::Name(name) => compiler.register(name, None)?,
        Operand::Component(name, component) => compiler.register(name, Some(component))?,
        _ => None,
    }
    .is_some_and(|(reg, _)| compiler.class(reg) == Class::Word);
    let address = compiler.source(&base, if narrow { ScalarType::U32 } else { ScalarType::U64 })?;
    Ok(Place { space: found, address, offset })
}

fn absolute(compiler: &mut FunctionCompiler, address: i64, space: Option<StateSpace>) -> Decoded<Place> {
    let space = match space {
        Some(StateSpace::Shared) => Space::Shared,
        Some(StateSpace::Local) => Space::Local,
        _ => Space::Generic,
    };
    Ok(Place { space, address: compiler.constant(Class::Long, address as u64), offset: 0 })
}

fn access(compiler: &mut FunctionCompiler, handler: AccessHandler, place: Place, args: AccessArgs) {
    let narrow = compiler.class(place.address) == Class::Word;
    let args =
        AccessArgs { space: place.space, address: place.address, offset: place.offset, narrow, ..args };
    compiler.access(handler, args);
}

const NO_DATA: AccessArgs = AccessArgs {
    space: Space::Global,
    data: [Reg::NONE; 4],
    address: Reg::NONE,
    narrow: false,
    offset: 0,
    operands: [Reg::NONE; 2],
    kind: AccessKind::Load,
    wide: false,
    copied: 0,
    synchronises: false,
};

/// What an access has of the address `operand`; the rest is empty.
pub(super) fn address(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    space: Option<StateSpace>,
) -> Decoded<AccessArgs> {
    let Place { space, address, offset } = place(compiler, operand, space)?;
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
    fn handler<R: super::super::lanes::Lane, C: Extend<R>>(self) -> AccessHandler {
        match self {
            Move::Load => access::load::<R, C>(),
            Move::Store => access::store::<R, C>(),
            Move::LoadStrong => access::load_strong::<R, C>(),
            Move::StoreStrong => access::store_strong::<R, C>(),
        }
    }

    fn of(self, ty: ScalarType, class: Class) -> Decoded<AccessHandler> {
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

/// `.v2`, `.v4` and the type.
fn vector_and_type(form: &mut Form) -> Decoded<(usize, ScalarType)> {
    let vector = match form.one_of(&["v2", "v4", "v8"]) {
        None => 1,
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => return unsupported("vectors of eight are not supported"),
    };
    match form.ty() {
        Some(ty) => Ok((vector, ty)),
        None => invalid("a load or store needs a type"),
    }
}

/// The registers of a vector operand: `{a, b}`, the name of a vector register, or one register.
pub(super) fn elements(operand: &Operand, count: usize) -> Decoded<Vec<Operand>> {
    let elements = match operand {
        Operand::Vector(elements) => elements.clone(),
        Operand::Name(name) if count > 1 => ["x", "y", "z", "w"]
            .iter()
            .take(count)
            .map(|component| Operand::Component(name.clone(), (*component).into()))
            .collect(),
        other => vec![other.clone()],
    };
    if elements.len() != count {
        return invalid(format!("expected {count} registers, found {}", elements.len()));
    }
    Ok(elements)
}

/// The register that an element of a load goes to: its own if it takes the type, whatever its width.
fn loaded(compiler: &mut FunctionCompiler, operand: &Operand, ty: ScalarType) -> Decoded<Destination> {
    let declared = match operand {
        Operand::Name(name) => compiler.register(name, None)?,
        Operand::Component(name, component) => compiler.register(name, Some(component))?,
        _ => None,
    };
    match declared {
        // Loads extend to the register's width by themselves.
        Some((_, declared)) if declared.bytes() > ty.bytes() => compiler.destination(operand, declared),
        _ => compiler.destination(operand, ty),
    }
}

fn load(compiler: &mut FunctionCompiler, instruction: &Instruction, form: &mut Form) -> Decoded<()> {
    let strong = ordering(form);
    let space = state_space(form)?;
    cache_hints(form);
    let (vector, ty) = vector_and_type(form)?;
    let [destination, address, ..] = instruction.operands.as_slice() else {
        return invalid("`ld` takes a destination and an address");
    };
    let place = place(compiler, address, space)?;
    let mut data = [Reg::NONE; 4];
    let mut class = None;
    let mut destinations = Vec::new();
    for (slot, element) in data.iter_mut().zip(elements(destination, vector)?) {
        let destination = loaded(compiler, &element, ty)?;
        *slot = destination.reg;
        let this = compiler.class(destination.reg);
        if element != Operand::Sink && class.replace(this).is_some_and(|before| before != this) {
            return unsupported("a vector load into registers of different widths");
        }
        destinations.push((element, destination));
    }
    let class = class.unwrap_or(if ty.bytes() == 8 { Class::Long } else { Class::Word });
    let kind = if strong && place.space != Space::Shared { Move::LoadStrong } else { Move::Load };
    for (slot, (element, _)) in data.iter_mut().zip(&destinations) {
        if *element == Operand::Sink {
            *slot = compiler.fresh(class);
        }
    }
    let args = AccessArgs { data, synchronises: strong, ..NO_DATA };
    access(compiler, kind.of(ty, class)?, place, args);
    destinations.into_iter().for_each(|(_, destination)| compiler.settle(destination));
    Ok(())
}

fn store(compiler: &mut FunctionCompiler, instruction: &Instruction, form: &mut Form) -> Decoded<()> {
    let strong = ordering(form);
    let space = state_space(form)?;
    cache_hints(form);
    if form.flag("async") {
        return unsupported("asynchronous stores are not supported");
    }
    let (vector, ty) = vector_and_type(form)?;
    let [address, source, ..] = instruction.operands.as_slice() else {
        return invalid("`st` takes an address and a value");
    };
    let place = place(compiler, address, space)?;
    let mut data = [Reg::NONE; 4];
    for (slot, element) in data.iter_mut().zip(elements(source, vector)?) {
        *slot = compiler.source(&element, ty)?;
    }
    let class = compiler.class(data[0]);
    let kind = if strong && place.space != Space::Shared { Move::StoreStrong } else { Move::Store };
    access(compiler, kind.of(ty, class)?, place, AccessArgs { data, kind: AccessKind::Store, ..NO_DATA });
    Ok(())
}

fn atomic(compiler: &mut FunctionCompiler, instruction: &Instruction, form: &mut Form) -> Decoded<()> {
    ordering(form);
    let space = state_space(form)?;
    cache_hints(form);
    let names = ["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"];
    let Some(operation) = form.one_of(&names) else {
        return unsupported("this atomic operation is not supported");
    };
    let noftz = form.flag("noftz");
    if form.one_of(&["v2", "v4", "v8"]).is_some() {
        return unsupported("atomics on vectors are not supported");
    }
    let Some(ty) = form.ty() else { return invalid("an atomic needs a type") };
    let (destination, operands) = match (form.opcode, instruction.operands.as_slice()) {
        ("atom", [destination, operands @ ..]) => (Some(destination), operands),
        (_, operands) => (None, operands),
    };
    let (address, b, c) = match (operation, operands) {
        ("cas", [address, b, c, ..]) => (address, b, Some(c)),
        (_, [address, b, ..]) if operation != "cas" => (address, b, None),
        _ => return invalid("an atomic has too few operands"),
    };
    let Some(run) = atomic_handler(operation, ty, noftz) else {
        return unsupported(format!("`{operation}` on {ty} is not supported as an atomic"));
    };
    let place = place(compiler, address, space)?;
    let b = compiler.source(b, ty)?;
    let c = c.map_or(Ok(Reg::NONE), |c| compiler.source(c, ty))?;
    let destination = destination.map(|operand| compiler.destination(operand, ty)).transpose()?;
    let mut data = [Reg::NONE; 4];
    data[0] = destination.as_ref().map_or(Reg::NONE, |destination| destination.reg);
    let (operands, kind) = ([b, c], AccessKind::Atomic);
    access(compiler, run, place, AccessArgs { data, operands, kind, synchronises: true, ..NO_DATA });
    if let Some(destination) = destination {
        compiler.settle(destination);
    }
    Ok(())
}

fn atomic_handler(operation: &str, ty: ScalarType, _noftz: bool) -> Option<AccessHandler> {
    use ScalarType::*;
    use access::atomic;
    Some(match (operation, ty) {
        ("add", U32 | S32) => atomic(|old: u32, b: u32, _| old.wrapping_add(b)),
        ("add", U64 | S64) => atomic(|old: u64, b: u64, _| old.wrapping_add(b)),
        ("add", F32) => atomic(|old: u32, b: u32, _| float::add_f32(old, b)),
        ("add", F64) => atomic(|old: u64, b: u64, _| (f64::from_bits(old) + f64::from_bits(b)).to_bits()),
        ("add", F16) => atomic(|old: u16, b: u16, _| float::add_f16(old, b)),
        ("add", Bf16) => atomic(|old: u16, b: u16, _| float::add_bf16(old, b)),
        ("add", F16x2) => atomic(|old: u32, b: u32, _| float::pairwise(old, b, float::add_f16)),
        ("add", Bf16x2) => atomic(|old: u32, b: u32, _| float::pairwise(old, b, float::add_bf16)),
        ("min", U32) => atomic(|old: u32, b: u32, _| old.min(b)),
        ("max", U32) => atomic(|old: u32, b: u32, _| old.max(b)),
        ("min", S32) => atomic(|old: u32, b: u32, _| (old as i32).min(b as i32) as u32),
        ("max", S32) => atomic(|old: u32, b: u32, _| (old as i32).max(b as i32) as u32),
        ("min", U64) => atomic(|old: u64, b: u64, _| old.min(b)),
        ("max", U64) => atomic(|old: u64, b: u64, _| old.max(b)),
        ("min", S64) => atomic(|old: u64, b: u64, _| (old as i64).min(b as i64) as u64),
        ("max", S64) => atomic(|old: u64, b: u64, _| (old as i64).max(b as i64) as u64),
        ("inc", U32) => atomic(|old: u32, b: u32, _| if old >= b { 0 } else { old + 1 }),
        ("dec", U32) => atomic(|old: u32, b: u32, _| if old == 0 || old > b { b } else { old - 1 }),
        ("and", B32) => atomic(|old: u32, b: u32, _| old & b),
        ("or", B32) => atomic(|old: u32, b: u32, _| old | b),
        ("xor", B32) => atomic(|old: u32, b: u32, _| old ^ b),
        ("and", B64) => atomic(|old: u64, b: u64, _| old & b),
        ("or", B64) => atomic(|old: u64, b: u64, _| old | b),
        ("xor", B64) => atomic(|old: u64, b: u64, _| old ^ b),
        ("exch", B32 | U32 | S32 | F32) => atomic(|_: u32, b: u32, _| b),
        ("exch", B64 | U64 | S64 | F64) => atomic(|_: u64, b: u64, _| b),
        ("cas", B16 | U16 | S16) => atomic(|old: u16, b: u16, c: u16| if old == b { c } else { old }),
        ("cas", B32 | U32 | S32) => atomic(|old: u32, b: u32, c: u32| if old == b { c } else { old }),
        ("cas", B64 | U64 | S64) => atomic(|old: u64, b: u64, c: u64| if old == b { c } else { old }),
        _ => return None,
    })
}

/// What must be added to an address of a space to make it generic; `None` where both are the same.
fn window(compiler: &mut FunctionCompiler, space: StateSpace) -> Decoded<Option<Reg>> {
    match space {
        StateSpace::Global | StateSpace::Const => Ok(None),
        StateSpace::Param if compiler.is_kernel() => Ok(None),
        StateSpace::Shared => Ok(Some(compiler.input(Class::Long, Input::SharedWindow))),
        StateSpace::Local | StateSpace::Param => Ok(Some(compiler.input(Class::Long, Input::LocalWindow))),
        _ => unsupported(format!("{space} has no generic addresses")),
    }
}

fn convert_address(
    compiler: &mut FunctionCompiler,
    instruction: &Instruction,
    form: &mut Form,
) -> Decoded<()> {
    let from_generic = form.flag("to");
    let Some(space) = state_space(form)? else { return invalid("`cvta` needs a state space") };
    let ty = form.ty();
    let [destination, source] = instruction.operands.as_slice() else {
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
    compiler.settle(destination);
    Ok(())
}

fn is_space(compiler: &mut FunctionCompiler, instruction: &Instruction, form: &mut Form) -> Decoded<()> {
    let Some(space) = state_space(form)? else { return invalid("`isspacep` needs a state space") };
    let [Operand::Name(result), source] = instruction.operands.as_slice() else {
        return invalid("`isspacep` takes a predicate and an address");
    };
    let result = compiler.predicate(result)?;
    let source = compiler.source(source, ScalarType::U64)?;
    let inside = |compiler: &mut FunctionCompiler, d: Reg, start: Input, end: Input| {
        let (start, end) = (compiler.input(Class::Long, start), compiler.input(Class::Long, end));
        let from_start = compiler.fresh(Class::Predicate);
        compiler.lanes(
            compare(|a: u64, b: u64| a >= b),
            Args { d: from_start, a: source, b: start, ..Args::EMPTY },
        );
        let immediate = super::super::lanes::combine::AND;
        compiler.lanes(
            compare(|a: u64, b: u64| a < b),
            Args { d, a: source, b: end, c: from_start, immediate, ..Args::EMPTY },
        );
    };
    match space {
        StateSpace::Shared => inside(compiler, result, Input::SharedWindow, Input::SharedWindowEnd),
        StateSpace::Local => inside(compiler, result, Input::LocalWindow, Input::LocalWindowEnd),
        StateSpace::Param if compiler.is_kernel() => {
            inside(compiler, result, Input::ParamAddress(0), Input::ParamEnd);
        }
        StateSpace::Global => {
            // Whatever is in no window.
            let (shared, local) = (compiler.fresh(Class::Predicate), compiler.fresh(Class::Predicate));
            inside(compiler, shared, Input::SharedWindow, Input::SharedWindowEnd);
            inside(compiler, local, Input::LocalWindow, Input::LocalWindowEnd);
            let run = super::super::lanes::logic(|a, b, _| !(a | b));
            compiler.lanes(run, Args { d: result, a: shared, b: local, ..Args::EMPTY });
        }
        _ => return unsupported(format!("`isspacep` is not supported for {space}")),
    }
    Ok(())
}

/// Emits a load of a frame's bytes into a register.
pub(super) fn load_frame(
    compiler: &mut FunctionCompiler,
    register: Reg,
    ty: ScalarType,
    offset: u32,
) -> Decoded<()> {
    let (address, class) = (compiler.input(Class::Long, Input::Frame(offset)), compiler.class(register));
    let data = [register, Reg::NONE, Reg::NONE, Reg::NONE];
    let place = Place { space: Space::Local, address, offset: 0 };
    access(compiler, Move::Load.of(ty, class)?, place, AccessArgs { data, ..NO_DATA });
    Ok(())
}

/// Emits a store of a register into the frame.
fn store_frame(compiler: &mut FunctionCompiler, register: Reg, ty: ScalarType, offset: u32) -> Decoded<()> {
    let (address, class) = (compiler.input(Class::Long, Input::Frame(offset)), compiler.class(register));
    let data = [register, Reg::NONE, Reg::NONE, Reg::NONE];
    let place = Place { space: Space::Local, address, offset: 0 };
    access(
        compiler,
        Move::Store.of(ty, class)?,
        place,
        AccessArgs { data, kind: AccessKind::Store, ..NO_DATA },
    );
    Ok(())
}

/// Where the argument `operand` lies in the caller's frame. Registers and constants are put there.
pub(super) fn spill_argument(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    formal: &Variable,
) -> Decoded<u32> {
    if let Some(offset) = frame_variable(compiler, operand)? {
        return Ok(offset);
    }
    let register = compiler.source(operand, formal.ty)?;
    let offset = compiler.frame_space(formal.alignment(), formal.element_bytes());
    store_frame(compiler, register, formal.ty, offset)?;
    Ok(offset)
}

/// Where the caller's frame takes a result, and the register that it goes on to, if it does.
pub(super) fn result_place(
    compiler: &mut FunctionCompiler,
    operand: &Operand,
    formal: &Variable,
) -> Decoded<(u32, Option<Reg>)> {
    if let Some(offset) = frame_variable(compiler, operand)? {
        return Ok((offset, None));
    }
    let offset = compiler.frame_space(formal.alignment(), formal.element_bytes());
    let register = match operand {
        Operand::Sink => None,
        other => Some(compiler.destination(other, formal.ty)?.reg),
    };
    Ok((offset, register))
}

fn frame_variable(compiler: &mut FunctionCompiler, operand: &Operand) -> Decoded<Option<u32>> {
    let Operand::Name(name) = operand else { return Ok(None) };
    if compiler.register(name, None)?.is_some() || name.starts_with('%') {
        return Ok(None);
    }
    match compiler.symbol_input(name)? {
        SymbolPlace::Frame(offset) => Ok(Some(offset)),
        _ => invalid(format!("`{name}` is not a parameter variable of this function")),
    }
}

/// Formal parameters in registers are loaded when a function starts.
pub(super) fn load_register_parameters(compiler: &mut FunctionCompiler) -> Decoded<()> {
    register_formals(compiler, false, &mut |compiler, reg, ty, offset| load_frame(compiler, reg, ty, offset))
}

/// Results in registers are stored when it returns.
pub(super) fn store_register_results(compiler: &mut FunctionCompiler) -> Decoded<()> {
    register_formals(compiler, true, &mut |compiler, reg, ty, offset| store_frame(compiler, reg, ty, offset))
}

type MoveFormal<'a> = &'a mut dyn FnMut(&mut FunctionCompiler, Reg, ScalarType, u32) -> Decoded<()>;

fn register_formals(compiler: &mut FunctionCompiler, results: bool, each: MoveFormal) -> Decoded<()> {
    let function = compiler.function;
    let scope = std::mem::replace(&mut compiler.scope, 0);
    let (places, _) = parameter_layout(function.returns.iter().chain(&function.params));
    let formals = function.returns.iter().chain(&function.params).zip(places).enumerate();
    for (index, (variable, (offset, _))) in formals {
        if variable.space != StateSpace::Reg || (index < function.returns.len()) != results {
            continue;
        }
        if let Some((reg, ty)) = compiler.register(&variable.name, None)? {
            each(compiler, reg, ty, offset)?;
        }
    }
    compiler.scope = scope;
    Ok(())
}

/// Whether the address is that of a kernel parameter, and where: for loads that need not be executed.
pub(super) fn kernel_param(compiler: &mut FunctionCompiler, operand: &Operand) -> Option<u32> {
    let Operand::Address(address) = operand else { return None };
    let AddressBase::Name(name) = &address.base else { return None };
    match compiler.symbol_input(name) {
        Ok(SymbolPlace::Param(start)) => start.checked_add_signed(i32::try_from(address.offset).ok()?),
        _ => None,
    }
}

/// The state space that `cvta` converts from or to, if generic addresses equal those of the space.
pub(super) fn is_identity(compiler: &FunctionCompiler, form: &mut Form) -> bool {
    form.flag("to");
    match state_space(form) {
        Ok(Some(StateSpace::Global | StateSpace::Const)) => true,
        Ok(Some(StateSpace::Param)) => compiler.is_kernel(),
        _ => false,
    }
}
