//! One function: from its body to steps.
//!
//! [`FunctionCompiler`] owns what is made (steps, registers, inputs) and gives the decoders what they ask for: a
//! register for an operand, converted to the width that the instruction wants; a step pushed under the guard of the
//! current instruction.

use std::collections::{HashMap, HashSet};

use ptx::{
    Constant, Diagnostic, Function, FunctionKind, Instruction, Operand, ScalarType, StateSpace, Variable,
};

use crate::arithmetic::soft;
use crate::code::{Classes, Code, Input, LaneMask, Named, Op, Origin, Step};
use crate::compile::ModuleNames;
use crate::compile::allocate::{Span, allocate};
use crate::compile::decode::{self, control, load_store, stack};
use crate::compile::fold::{Known, fold, mark_straight, name_patterns};
use crate::compile::layout::{Block, order};
use crate::compile::prologue;
use crate::compile::scope::{Body, Symbol};
use crate::memory::access::AccessHandler;
use crate::operands::{AccessArgs, Args, Class, Guard, Reg};
use crate::program::function_address;
use crate::registers::lanes::{LaneHandler, binary, logic, unary};

/// Why an instruction cannot be compiled.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The PTX is wrong: the module does not load.
    Invalid(String),
    /// The PTX may be right, but this device does not execute it: a kernel that gets there faults.
    Unsupported(String),
}

pub(super) type Decoded<T> = Result<T, Refusal>;

pub(super) fn invalid<T>(message: impl Into<String>) -> Decoded<T> {
    Err(Refusal::Invalid(message.into()))
}

pub(super) fn unsupported<T>(message: impl Into<String>) -> Decoded<T> {
    Err(Refusal::Unsupported(message.into()))
}

/// The class of register that holds a type.
pub(super) fn class_of(ty: ScalarType) -> Decoded<Class> {
    match ty {
        ScalarType::Pred => Ok(Class::Predicate),
        _ => match ty.bytes() {
            1..=4 => Ok(Class::Word),
            8 => Ok(Class::Long),
            _ => unsupported(format!("{ty} registers are not supported")),
        },
    }
}

/// Bytes that a formal parameter takes in a frame; a predicate takes one.
pub(super) fn formal_bytes(variable: &Variable) -> u64 {
    match variable.ty {
        ScalarType::Pred => variable.vector.into(),
        _ => variable.bytes().unwrap_or(0),
    }
}

/// Where formal parameters lie in a function's frame: offset and size of each, and the size of all.
pub(super) fn parameter_layout<'v>(variables: impl Iterator<Item = &'v Variable>) -> (Vec<(u32, u32)>, u32) {
    let (mut places, mut end) = (Vec::new(), 0u64);
    for variable in variables {
        let bytes = formal_bytes(variable);
        let start = end.next_multiple_of(variable.alignment());
        places.push((start.min(u32::MAX.into()) as u32, bytes.min(u32::MAX.into()) as u32));
        end = start.saturating_add(bytes);
    }
    (places, end.next_multiple_of(8).min(u32::MAX.into()) as u32)
}

/// The function that is being compiled.
pub(super) struct FunctionCompiler<'m> {
    pub(super) module: &'m ModuleNames<'m>,
    pub(super) function: &'m Function,
    pub(super) body: Body<'m>,
    /// Class of each virtual register.
    classes: Vec<Class>,
    /// Registers of the PTX by declaring scope and name (with component).
    registers: HashMap<(usize, String), (Reg, ScalarType)>,
    inputs: HashMap<(Class, Input), Reg>,
    input_registers: HashSet<Reg>,
    /// Registers that always equal an input.
    pub(super) bound: HashMap<Reg, Reg>,
    /// Offsets in the frame of `.local` and `.param` variables (formal parameters too), by scope and name.
    frame: HashMap<(usize, &'m str), u32>,
    frame_bytes: u32,
    steps: Vec<Step>,
    origin_of: Vec<u32>,
    origins: Vec<Origin>,
    unsupported: Vec<String>,
    pub(super) calls: Vec<u32>,
    pub(super) calls_indirectly: bool,
    shared: Vec<u32>,
    variables: Vec<Named>,
    /// Scope and guard of the current instruction.
    pub(super) scope: usize,
    pub(super) guard: Guard,
    /// The condition-code register of `add.cc` and its like.
    pub(super) carry_flag: Reg,
    /// The stack pointer that the caller of this function had, where this one moves it.
    pub(super) stack_before: Option<Reg>,
}

/// Compiles a function that has a body.
pub(super) fn compile<'m>(
    module: &'m ModuleNames<'m>,
    function: &'m Function,
) -> Result<(Code, u32), Diagnostic> {
    let mut compiler = FunctionCompiler {
        module,
        function,
        body: Body::new(function),
        classes: Vec::new(),
        registers: HashMap::new(),
        inputs: HashMap::new(),
        input_registers: HashSet::new(),
        bound: HashMap::new(),
        frame: HashMap::new(),
        frame_bytes: 0,
        steps: Vec::new(),
        origin_of: Vec::new(),
        origins: Vec::new(),
        unsupported: Vec::new(),
        calls: Vec::new(),
        calls_indirectly: false,
        shared: Vec::new(),
        variables: Vec::new(),
        scope: 0,
        guard: Guard::Always,
        carry_flag: Reg::NONE,
        stack_before: None,
    };
    compiler.carry_flag = compiler.fresh(Class::Predicate);
    compiler.lay_out_frame();
    compiler.run()
}

impl<'m> FunctionCompiler<'m> {
    pub(super) fn is_kernel(&self) -> bool {
        self.function.kind == FunctionKind::Entry
    }

    /// Formal parameters first (so that callers know where), then local variables and the parameters of calls.
    fn lay_out_frame(&mut self) {
        let formals = self.function.returns.iter().chain(&self.function.params);
        let mut end = 0;
        if !self.is_kernel() {
            let (places, bytes) = parameter_layout(formals.clone());
            for (variable, (offset, _)) in formals.zip(places) {
                self.frame.insert((0, &variable.name), offset);
            }
            end = u64::from(bytes);
        }
        for &(scope, variable) in &self.body.variables {
            let local = matches!(variable.space, StateSpace::Local | StateSpace::Param);
            if !local
                || self.frame.contains_key(&(scope, &*variable.name))
                || (scope == 0 && self.is_formal(variable))
            {
                continue;
            }
            end = end.next_multiple_of(variable.alignment());
            self.frame.insert((scope, &variable.name), end.min(u32::MAX.into()) as u32);
            let (name, bytes) = (variable.name.to_string(), variable.bytes().unwrap_or(0));
            self.variables.push(Named { name, start: end, bytes });
            end = end.saturating_add(bytes);
        }
        self.frame_bytes = end.min(u32::MAX.into()) as u32;
    }

    fn is_formal(&self, variable: &Variable) -> bool {
        self.function.returns.iter().chain(&self.function.params).any(|formal| std::ptr::eq(formal, variable))
    }

    /// The whole function.
    fn run(mut self) -> Result<(Code, u32), Diagnostic> {
        let blocks = control::blocks(&self.body).map_err(|(line, message)| self.diagnose(line, message))?;
        let order = order(&blocks);
        self.bind_inputs();
        stack::enter(&mut self);
        if !self.is_kernel() {
            self.guard = Guard::Always;
            load_store::load_register_parameters(&mut self).map_err(|_| {
                self.diagnose(usize::MAX, "a parameter has a type that no register holds".to_owned())
            })?;
        }
        let mut starts = vec![0; blocks.len()];
        let mut spans = Vec::new();
        for (place, &index) in order.iter().enumerate() {
            // What precedes the first block's own steps belongs to it.
            let start = if place == 0 { 0 } else { self.steps.len() };
            starts[index] = start as u32;
            self.block(&blocks, index, order.get(place + 1).copied())?;
            spans.push((start, self.steps.len()));
        }
        let mut place_of = vec![usize::MAX; blocks.len()];
        order.iter().enumerate().for_each(|(place, &index)| place_of[index] = place);
        let spans: Vec<Span> = order
            .iter()
            .zip(spans)
            .map(|(&index, (start, end))| Span {
                start,
                end,
                successors: blocks[index].successors.iter().map(|&next| place_of[next]).collect(),
            })
            .collect();
        for step in &mut self.steps {
            match &mut step.op {
                Op::Jump { target } => *target = starts[*target as usize],
                Op::JumpTable { targets, .. } => {
                    targets.iter_mut().for_each(|target| *target = starts[*target as usize]);
                }
                _ => {}
            }
        }
        Ok(self.finish(&spans))
    }

    fn finish(mut self, spans: &[Span]) -> (Code, u32) {
        let mut inputs: Vec<((Class, Input), Reg)> = self.inputs.into_iter().collect();
        inputs.sort_by_key(|(_, reg)| *reg);
        let pinned: Vec<Reg> = inputs.iter().map(|(_, reg)| *reg).collect();
        let input_of: HashMap<Reg, Input> = inputs.iter().map(|((_, input), reg)| (*reg, *input)).collect();
        let known = Known {
            uniform: &|reg| input_of.get(&reg).is_some_and(|input| !input.is_of_warp()),
            constant: &|reg| match input_of.get(&reg) {
                Some(Input::Constant(bits)) => Some(*bits),
                _ => None,
            },
        };
        let idle = fold(&mut self.steps, spans, &self.classes, &known);
        let candidate = prologue::find(&mut self.steps, spans, &idle, &input_of);
        let kept: Vec<Reg> = candidate.iter().flat_map(|candidate| candidate.registers()).collect();
        let mut classes = Classes::default();
        let of = &self.classes;
        self.steps.iter_mut().for_each(|step| classes.push(step, |reg| of[reg.0 as usize]));
        let (places, sizes) = allocate(&mut self.steps, spans, &self.classes, &pinned, &kept);
        name_patterns(&mut self.steps);
        mark_straight(&mut self.steps, &idle);
        let prologue = candidate.map(|candidate| candidate.placed(|reg| places[reg.0 as usize]));
        let inputs =
            inputs.iter().map(|((class, input), reg)| (places[reg.0 as usize], *class, *input)).collect();
        self.shared.sort_unstable();
        self.shared.dedup();
        let code = Code {
            steps: self.steps,
            classes,
            origin_of: self.origin_of,
            origins: self.origins,
            prologue,
            inputs,
            registers: sizes.registers,
            frame_bytes: self.frame_bytes,
            unsupported: self.unsupported,
            calls: self.calls,
            calls_indirectly: self.calls_indirectly,
            shared: self.shared,
            variables: self.variables,
        };
        (code, sizes.pressure)
    }

    fn diagnose(&self, line: usize, message: String) -> Diagnostic {
        let position =
            self.body.lines.get(line).map_or(self.function.position, |line| line.instruction.position);
        Diagnostic::new(position, message)
    }

    /// The instructions of a block, and how it goes on to the block laid out after it.
    fn block(&mut self, blocks: &[Block], index: usize, next: Option<usize>) -> Result<(), Diagnostic> {
        let block = &blocks[index];
        for line in block.start..block.end {
            self.line(line, blocks, next)?;
        }
        let falls_into = (!self.ends_block(block)).then(|| block.successors.first().copied());
        match falls_into {
            Some(Some(follower)) if Some(follower) == next => {}
            Some(Some(follower)) => self.jump_to(follower, next),
            // The end of the body is a `ret`.
            Some(None) => {
                self.guard = Guard::Always;
                control::leave(self).map_err(|_| {
                    self.diagnose(usize::MAX, "a result has a type that no register holds".to_owned())
                })?;
            }
            None => {}
        }
        Ok(())
    }

    /// Goes on to `follower`. A branch to the block laid out next is turned round instead.
    fn jump_to(&mut self, follower: usize, next: Option<usize>) {
        if let Some(Step { guard, op: Op::Jump { target }, .. }) = self.steps.last_mut()
            && next == Some(*target as usize)
            && *guard != Guard::Always
        {
            *guard = guard.inverted();
            *target = follower as u32;
            return;
        }
        self.unguarded(Op::Jump { target: follower as u32 });
    }

    fn ends_block(&self, block: &Block) -> bool {
        block.end > block.start && {
            let last = self.body.lines[block.end - 1].instruction;
            last.predicate.is_none() && control::ends(last.mnemonic.opcode())
        }
    }

    fn line(&mut self, index: usize, blocks: &[Block], next: Option<usize>) -> Result<(), Diagnostic> {
        let line = &self.body.lines[index];
        let (instruction, source) = (line.instruction, line.source);
        self.scope = line.scope;
        self.origins.push(Origin {
            line: instruction.position.line,
            mnemonic: instruction.mnemonic.clone(),
            source,
        });
        let first = self.steps.len();
        let outcome = self.guard_of(instruction).and_then(|guard| {
            self.guard = guard;
            if self.is_bound(instruction) {
                Ok(())
            } else {
                decode::instruction(self, instruction, blocks, next)
            }
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(Refusal::Invalid(message)) => Err(Diagnostic::new(instruction.position, message)),
            Err(Refusal::Unsupported(message)) => {
                self.steps.truncate(first);
                self.origin_of.truncate(first);
                self.complain(message);
                Ok(())
            }
        }
    }

    fn guard_of(&mut self, instruction: &Instruction) -> Decoded<Guard> {
        let Some(predicate) = &instruction.predicate else { return Ok(Guard::Always) };
        self.guard = Guard::Always;
        let reg = self.predicate(&predicate.register)?;
        Ok(if predicate.negated { Guard::Unless(reg) } else { Guard::If(reg) })
    }

    /// Adds a step under the guard of the current instruction.
    pub(super) fn push(&mut self, op: Op) {
        if self.origins.is_empty() {
            let mnemonic = ptx::Mnemonic::new("ret".into());
            self.origins.push(Origin { line: self.function.position.line, mnemonic, source: None });
        }
        self.steps.push(Step::new(self.guard, op));
        self.origin_of.push(self.origins.len() as u32 - 1);
    }

    /// Adds a step for all lanes.
    pub(super) fn unguarded(&mut self, op: Op) {
        let guard = std::mem::replace(&mut self.guard, Guard::Always);
        self.push(op);
        self.guard = guard;
    }

    /// Adds a step on registers.
    pub(super) fn lanes(&mut self, handler: LaneHandler, args: Args) {
        if handler.needs.met_by(&args, |reg| self.class(reg)) {
            self.push(Op::Lanes { run: handler.run, meaning: handler.meaning, args });
        } else {
            // The handler would take a register for something else: a mistake of this crate, not of the PTX.
            self.complain(format!("no way to execute this with {:?} for {args:?}", handler.needs));
        }
    }

    /// Adds a step that accesses memory.
    pub(super) fn access(&mut self, handler: AccessHandler, args: AccessArgs) {
        if handler.takes(&args, |reg| self.class(reg)) {
            let wide = args.data[0].is_some() && self.class(args.data[0]) == Class::Long;
            let args = AccessArgs { wide, ..args };
            self.push(Op::Access { run: handler.run, regular: handler.regular, args: Box::new(args) });
        } else {
            self.complain(format!("no way to access memory with {args:?}"));
        }
    }

    /// Adds a step that faults.
    fn complain(&mut self, message: String) {
        self.unsupported.push(message);
        self.push(Op::Unsupported(self.unsupported.len() as u32 - 1));
    }

    /// A new register.
    pub(super) fn fresh(&mut self, class: Class) -> Reg {
        self.classes.push(class);
        Reg(self.classes.len() as u32 - 1)
    }

    pub(super) fn class(&self, reg: Reg) -> Class {
        self.classes[reg.0 as usize]
    }

    /// The register that holds `input`.
    pub(super) fn input(&mut self, class: Class, input: Input) -> Reg {
        if let Some(reg) = self.inputs.get(&(class, input)) {
            return *reg;
        }
        let reg = self.fresh(class);
        self.inputs.insert((class, input), reg);
        self.input_registers.insert(reg);
        reg
    }

    pub(super) fn constant(&mut self, class: Class, bits: u64) -> Reg {
        self.input(class, Input::Constant(bits))
    }

    /// Whether `name` is a register, special ones included.
    pub(super) fn is_register(&self, name: &str) -> bool {
        match self.body.lookup(self.scope, name) {
            Some((_, symbol)) => matches!(symbol, Symbol::Register { .. }),
            None => name.starts_with('%'),
        }
    }

    /// The components of `operand` where it is a vector register: `v` means `{v.x, v.y}`.
    pub(super) fn components(&self, operand: &Operand) -> Option<Vec<Operand>> {
        let Operand::Name(name) = operand else { return None };
        match self.body.lookup(self.scope, name) {
            Some((_, Symbol::Register { vector: count @ 2.., .. })) => {
                let component = |selector: &&str| Operand::Component(name.clone(), (*selector).into());
                Some(COMPONENTS.iter().take(count.into()).map(component).collect())
            }
            _ => None,
        }
    }

    /// The register called `name` (or a component of it), if it is one, with its declared type.
    pub(super) fn register(
        &mut self,
        name: &str,
        component: Option<&str>,
    ) -> Decoded<Option<(Reg, ScalarType)>> {
        let Some((scope, Symbol::Register { ty, vector })) = self.body.lookup(self.scope, name) else {
            return Ok(None);
        };
        let name = &*self.body.canonical_name(scope, name);
        match component {
            None if vector != 1 => {
                return invalid(format!("vector register `{name}` needs a component such as `.x`"));
            }
            Some(component) if vector == 1 || !is_component(component, vector) => {
                return invalid(format!("register `{name}` has no component `.{component}`"));
            }
            _ => {}
        }
        let key = match component {
            None => name.to_owned(),
            Some(component) => format!("{name}.{}", canonical_component(component)),
        };
        if let Some(found) = self.registers.get(&(scope, key.clone())) {
            return Ok(Some(*found));
        }
        let class = class_of(ty)?;
        let reg = self.fresh(class);
        self.registers.insert((scope, key), (reg, ty));
        Ok(Some((reg, ty)))
    }

    /// The halves of a `.b128` register, which is two longs here, or of a constant, whose upper half is 0.
    pub(super) fn wide(&mut self, operand: &Operand) -> Decoded<[Reg; 2]> {
        let name = match operand {
            Operand::Sink => return Ok([self.fresh(Class::Long), self.fresh(Class::Long)]),
            Operand::Constant(Constant::Integer(value)) => {
                return Ok([*value as u64, 0].map(|half| self.constant(Class::Long, half)));
            }
            Operand::Name(name) => name,
            _ => return invalid(format!("`{}` is not a .b128 register", show(operand))),
        };
        let Some((scope, Symbol::Register { ty: ScalarType::B128, vector: 1 })) =
            self.body.lookup(self.scope, name)
        else {
            return invalid(format!("`{name}` is not a .b128 register"));
        };
        let name = self.body.canonical_name(scope, name);
        Ok(["low", "high"].map(|half| {
            let key = (scope, format!("{name}.{half}"));
            if let Some((reg, _)) = self.registers.get(&key) {
                return *reg;
            }
            let reg = self.fresh(Class::Long);
            self.registers.insert(key, (reg, ScalarType::B64));
            reg
        }))
    }

    /// A predicate register by name.
    pub(super) fn predicate(&mut self, name: &str) -> Decoded<Reg> {
        match self.register(name, None)? {
            Some((reg, ScalarType::Pred)) => Ok(reg),
            Some(_) => invalid(format!("`{name}` is not a predicate")),
            None => invalid(format!("unknown predicate register `{name}`")),
        }
    }

    /// A register to write `operand` to, of the class of `ty`; the second part tells how the value must be put into
    /// the register that the PTX names, where that is wider.
    pub(super) fn destination(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Destination> {
        let class = class_of(ty)?;
        let (reg, declared) = match operand {
            Operand::Sink => return Ok(Destination { reg: self.fresh(class), widen: None }),
            Operand::Name(name) => self.register(name, None)?,
            Operand::Component(name, component) => self.register(name, Some(component))?,
            _ => None,
        }
        .ok_or_else(|| Refusal::Invalid(format!("`{}` is not a register", show(operand))))?;
        if class_of(declared)? == class && declared.bytes() >= ty.bytes() {
            return Ok(Destination { reg, widen: None });
        }
        if class == Class::Word && self.class(reg) == Class::Long {
            return Ok(Destination { reg: self.fresh(class), widen: Some((reg, ty)) });
        }
        invalid(format!("register `{}` of type {declared} cannot hold a {ty}", show(operand)))
    }

    /// Completes what [`destination`](Self::destination) began, after the step that writes it.
    pub(super) fn widen(&mut self, destination: Destination) {
        let Some((wide, ty)) = destination.widen else { return };
        let run = if ty.is_signed() { unary(|a: i32| i64::from(a)) } else { unary(|a: u32| u64::from(a)) };
        self.lanes(run, Args { d: wide, a: destination.reg, ..Args::EMPTY });
    }

    /// A register with the value of `operand`, read as `ty`.
    pub(super) fn source(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Reg> {
        let class = class_of(ty)?;
        if class == Class::Predicate {
            return self.predicate_source(operand);
        }
        let found = match operand {
            Operand::Constant(constant) => Some(self.constant(class, constant_bits(*constant, ty))),
            Operand::Name(name) => self.value_of_name(name, class)?,
            Operand::Component(name, component) => self.value_of_component(name, component, class)?,
            Operand::Offset(name, offset) if self.is_register(name) => {
                let base = self.source(&Operand::Name(name.clone()), ty)?;
                Some(self.sum(base, *offset, ty)?)
            }
            Operand::Offset(name, offset) => Some(self.symbol_address(name, *offset, class)?),
            Operand::Element(name, index) => {
                let bytes = self.element_bytes(name)?;
                Some(self.symbol_address(name, index.wrapping_mul(bytes), class)?)
            }
            Operand::Negated(name) => {
                let reg = self.source(&Operand::Name(name.clone()), ty)?;
                Some(self.negated(reg, ty)?)
            }
            _ => None,
        };
        let Some(reg) = found else { return invalid(format!("`{}` is not a value", show(operand))) };
        match (self.class(reg), class) {
            (have, want) if have == want => Ok(reg),
            (Class::Long, Class::Word) => {
                let low = self.fresh(Class::Word);
                self.lanes(unary(|a: u64| a as u32), Args { d: low, a: reg, ..Args::EMPTY });
                Ok(low)
            }
            _ => invalid(format!("`{}` is too narrow for {ty}", show(operand))),
        }
    }

    fn negated(&mut self, reg: Reg, ty: ScalarType) -> Decoded<Reg> {
        let (class, run) = match ty {
            ScalarType::F32 => (Class::Word, binary(|a: u32, b: u32| a ^ b)),
            _ => return unsupported("negated operands are supported for .f32 only"),
        };
        let (sign, result) = (self.constant(class, 0x8000_0000), self.fresh(class));
        self.lanes(run, Args { d: result, a: reg, b: sign, ..Args::EMPTY });
        Ok(result)
    }

    fn predicate_source(&mut self, operand: &Operand) -> Decoded<Reg> {
        match operand {
            // There are no clusters but those that every block is by itself.
            Operand::Name(name) if &**name == "%is_explicit_cluster" => {
                Ok(self.input(Class::Predicate, Input::Constant(0)))
            }
            Operand::Name(name) => self.predicate(name),
            Operand::Not(name) => {
                let (a, d) = (self.predicate(name)?, self.fresh(Class::Predicate));
                self.lanes(logic(|a, _, _| !a), Args { d, a, ..Args::EMPTY });
                Ok(d)
            }
            Operand::Constant(Constant::Integer(value)) => {
                Ok(self.input(Class::Predicate, Input::Constant(if *value != 0 { u64::MAX } else { 0 })))
            }
            _ => invalid(format!("`{}` is not a predicate", show(operand))),
        }
    }

    /// The value of a register, special register or the address of a symbol.
    fn value_of_name(&mut self, name: &str, class: Class) -> Decoded<Option<Reg>> {
        if let Some((reg, _)) = self.register(name, None)? {
            return Ok(Some(self.bound.get(&reg).copied().unwrap_or(reg)));
        }
        if let Some(input) = special(name, None) {
            return Ok(Some(self.input(class, input)));
        }
        if let Some(clock) = control::clock(name) {
            let reg = self.fresh(class);
            self.push(Op::Clock { d: reg, class, clock });
            return Ok(Some(reg));
        }
        if name.starts_with('%') {
            return match self.body.lookup(self.scope, name) {
                Some(_) => invalid(format!("`{name}` is not a register")),
                None => invalid(format!("unknown register `{name}`")),
            };
        }
        self.symbol_address(name, 0, class).map(Some)
    }

    fn value_of_component(&mut self, name: &str, component: &str, class: Class) -> Decoded<Option<Reg>> {
        if let Some((reg, _)) = self.register(name, Some(component))? {
            return Ok(Some(self.bound.get(&reg).copied().unwrap_or(reg)));
        }
        match special(name, Some(component)) {
            Some(input) => Ok(Some(self.input(class, input))),
            None => invalid(format!("unknown register `{name}`")),
        }
    }

    /// What an address that starts from the symbol `name` is made of.
    pub(super) fn symbol_input(&mut self, name: &str) -> Decoded<SymbolPlace> {
        if let Some((scope, symbol)) = self.body.lookup(self.scope, name) {
            let Symbol::Variable(variable) = symbol else {
                return invalid(format!("`{name}` is not a variable"));
            };
            match variable.space {
                StateSpace::Local | StateSpace::Param => {
                    if let Some(offset) = self.frame.get(&(scope, &*variable.name)) {
                        return Ok(SymbolPlace::Frame(*offset));
                    }
                    let index = self.function.params.iter().position(|param| param.name == variable.name);
                    let (places, _) = parameter_layout(self.function.params.iter());
                    return match index {
                        Some(index) => Ok(SymbolPlace::Param(places[index].0)),
                        None => invalid(format!("`{name}` has no place")),
                    };
                }
                _ => {}
            }
        }
        self.module
            .place(self.function, name)
            .ok_or_else(|| Refusal::Invalid(format!("unknown name `{name}`")))
    }

    /// A register with the address of `name + offset`, in the symbol's own space.
    pub(super) fn symbol_address(&mut self, name: &str, offset: i64, class: Class) -> Decoded<Reg> {
        let (input, offset) = match self.symbol_input(name)? {
            SymbolPlace::Frame(start) => (Input::Frame(start.wrapping_add(offset as u32)), 0),
            SymbolPlace::Param(start) => (Input::ParamAddress(start.wrapping_add(offset as u32)), 0),
            SymbolPlace::Function(index) => {
                (Input::Constant(function_address(index).wrapping_add(offset as u64)), 0)
            }
            SymbolPlace::Shared(index) => {
                self.shared.push(index);
                (Input::SharedVariable(index), offset)
            }
            SymbolPlace::Global(index) => (Input::Global(index), offset),
        };
        let base = self.input(class, input);
        if offset == 0 {
            return Ok(base);
        }
        self.sum(base, offset, if class == Class::Long { ScalarType::U64 } else { ScalarType::U32 })
    }

    /// A register with `base + offset`, of the width of `ty`.
    fn sum(&mut self, base: Reg, offset: i64, ty: ScalarType) -> Decoded<Reg> {
        let run = match ty.bytes() {
            _ if ty.is_float() => {
                return invalid(format!("a number cannot be added to an operand of type {ty}"));
            }
            8 => binary(|a: u64, b: u64| a.wrapping_add(b)),
            2 => binary(|a: u16, b: u16| a.wrapping_add(b)),
            _ => binary(|a: u32, b: u32| a.wrapping_add(b)),
        };
        let class = class_of(ty)?;
        let (d, b) = (self.fresh(class), self.constant(class, offset as u64));
        self.lanes(run, Args { d, a: base, b, ..Args::EMPTY });
        Ok(d)
    }

    /// Bytes of an element of the array `name`.
    pub(super) fn element_bytes(&self, name: &str) -> Decoded<i64> {
        let variable = match self.body.lookup(self.scope, name) {
            Some((_, Symbol::Variable(variable))) => Some(variable),
            _ => self.module.variable(name),
        };
        match variable {
            Some(variable) => Ok(variable.element_bytes() as i64),
            None => invalid(format!("`{name}` is not an array")),
        }
    }

    /// New space in the frame, in bytes; where it is.
    pub(super) fn frame_space(&mut self, align: u64, bytes: u64) -> u32 {
        let start = u64::from(self.frame_bytes).next_multiple_of(align.max(1));
        self.frame_bytes = start.saturating_add(bytes).min(u32::MAX.into()) as u32;
        start.min(u32::MAX.into()) as u32
    }

    /// Bytes of the parameters of a kernel.
    pub(super) fn param_bytes(&self) -> u64 {
        let (places, _) = parameter_layout(self.function.params.iter());
        places.last().map_or(0, |&(offset, bytes)| u64::from(offset) + u64::from(bytes))
    }

    /// Whether a register is filled before the function starts and never written.
    pub(super) fn is_input(&self, reg: Reg) -> bool {
        self.input_registers.contains(&reg)
    }

    /// Names a shared variable that is addressed directly.
    pub(super) fn note_shared(&mut self, index: u32) {
        self.shared.push(index);
    }
}

/// Where a symbol's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymbolPlace {
    /// At an offset of the function's frame in local memory.
    Frame(u32),
    /// At an offset of the kernel's parameters.
    Param(u32),
    /// A shared variable, by index.
    Shared(u32),
    /// A global or constant variable, by index.
    Global(u32),
    /// A function, by index.
    Function(u32),
}

/// A destination register, and the wider one that the PTX means.
#[must_use]
pub(super) struct Destination {
    pub(super) reg: Reg,
    widen: Option<(Reg, ScalarType)>,
}

/// The components of a vector.
const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

fn canonical_component(component: &str) -> &str {
    match component {
        "r" => "x",
        "g" => "y",
        "b" => "z",
        "a" => "w",
        other => other,
    }
}

fn is_component(component: &str, vector: u8) -> bool {
    COMPONENTS.iter().take(vector.into()).any(|name| *name == canonical_component(component))
}

/// An operand as it is written in messages.
pub(super) fn show(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) | Operand::Element(name, _) | Operand::Offset(name, _) => name.to_string(),
        Operand::Not(name) => format!("!{name}"),
        Operand::Negated(name) => format!("-{name}"),
        Operand::Component(name, component) => format!("{name}.{component}"),
        Operand::Constant(Constant::Integer(value)) => value.to_string(),
        Operand::Constant(Constant::Single(bits)) => format!("0f{bits:08X}"),
        Operand::Constant(Constant::Double(bits)) => format!("0d{bits:016X}"),
        Operand::Sink => "_".to_owned(),
        Operand::Pair(..) => "d|p".to_owned(),
        Operand::Vector(_) => "{…}".to_owned(),
        Operand::List(_) => "(…)".to_owned(),
        Operand::Address(_) => "[…]".to_owned(),
    }
}

/// The bits of a constant as a value of type `ty`.
pub(super) fn constant_bits(constant: Constant, ty: ScalarType) -> u64 {
    let double = match constant {
        Constant::Integer(value) => {
            let bits = value as u64;
            return match ty.bytes() {
                1 => bits & 0xff,
                2 => bits & 0xffff,
                4 => bits & 0xffff_ffff,
                _ => bits,
            };
        }
        Constant::Single(bits) if ty == ScalarType::F64 => f64::from(f32::from_bits(bits)),
        Constant::Single(bits) if !matches!(ty, ScalarType::F16 | ScalarType::Bf16) => return bits.into(),
        Constant::Single(bits) => f64::from(f32::from_bits(bits)),
        Constant::Double(bits) if matches!(ty.bytes(), 8) => return bits,
        Constant::Double(bits) => f64::from_bits(bits),
    };
    let format = match ty {
        ScalarType::F16 => soft::F16,
        ScalarType::Bf16 => soft::BF16,
        ScalarType::F64 => return double.to_bits(),
        _ => soft::F32,
    };
    soft::convert(double.to_bits(), soft::F64, format, soft::Rounding::NearestEven)
}

/// The input that a special register is.
fn special(name: &str, component: Option<&str>) -> Option<Input> {
    let axis = match component.map(canonical_component) {
        None => None,
        Some("x") => Some(0),
        Some("y") => Some(1),
        Some("z") => Some(2),
        // The fourth component of %ntid and %nctaid reads as 0, as that of %tid and %ctaid does.
        Some("w")
            if matches!(name, "%tid" | "%ntid" | "%ctaid" | "%nctaid" | "%clusterid" | "%nclusterid")
                || matches!(name, "%cluster_ctaid" | "%cluster_nctaid") =>
        {
            return Some(Input::Constant(0));
        }
        Some(_) => return None,
    };
    Some(match (name, axis) {
        ("%tid", Some(axis)) => Input::Thread(axis),
        ("%ntid", Some(axis)) => Input::BlockSize(axis),
        ("%ctaid", Some(axis)) => Input::Block(axis),
        ("%nctaid", Some(axis)) => Input::GridSize(axis),
        // Without clusters every block is a cluster of its own.
        ("%clusterid", Some(axis)) => Input::Block(axis),
        ("%nclusterid", Some(axis)) => Input::GridSize(axis),
        ("%cluster_ctaid", Some(_)) => Input::Constant(0),
        ("%cluster_nctaid", Some(_)) => Input::Constant(1),
        ("%cluster_ctarank", None) => Input::Constant(0),
        ("%cluster_nctarank", None) => Input::Constant(1),
        ("%laneid", None) => Input::Lane,
        ("%warpid", None) => Input::Warp,
        ("%nwarpid", None) => Input::Warps,
        ("%smid", None) => Input::Processor,
        ("%nsmid", None) => Input::Processors,
        ("%gridid", None) => Input::Grid,
        ("%envreg1", None) => Input::Workspace { high: true },
        ("%envreg2", None) => Input::Workspace { high: false },
        ("%lanemask_eq", None) => Input::LaneMask(LaneMask::Equal),
        ("%lanemask_le", None) => Input::LaneMask(LaneMask::LessEqual),
        ("%lanemask_lt", None) => Input::LaneMask(LaneMask::Less),
        ("%lanemask_ge", None) => Input::LaneMask(LaneMask::GreaterEqual),
        ("%lanemask_gt", None) => Input::LaneMask(LaneMask::Greater),
        ("%total_smem_size" | "%aggr_smem_size", None) => Input::SharedBytes { fixed: true, dynamic: true },
        ("%dynamic_smem_size", None) => Input::SharedBytes { fixed: false, dynamic: true },
        // No graph, no environment, no counters, no shared memory that the system keeps for itself.
        ("%current_graph_exec", None) => Input::Constant(0),
        ("%reserved_smem_offset_begin" | "%reserved_smem_offset_end", None) => Input::Constant(0),
        ("%reserved_smem_offset_cap", None) => Input::Constant(0),
        (name, None) if is_numbered(name, "%reserved_smem_offset_", "", 2) => Input::Constant(0),
        (name, None) if is_numbered(name, "%envreg", "", 32) => Input::Constant(0),
        (name, None) if is_numbered(name, "%pm", "", 8) || is_numbered(name, "%pm", "_64", 8) => {
            Input::Constant(0)
        }
        ("WARP_SZ", None) => Input::Constant(32),
        _ => return None,
    })
}

/// Whether `name` is `start`, a number below `end`, then `rest`.
fn is_numbered(name: &str, start: &str, rest: &str, end: u32) -> bool {
    let number = name.strip_prefix(start).and_then(|name| name.strip_suffix(rest));
    number.and_then(|number| number.parse().ok()).is_some_and(|number: u32| number < end)
}
