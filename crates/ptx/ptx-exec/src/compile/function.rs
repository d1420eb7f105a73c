//! Translates one function from its body into steps.
//!
//! [`FunctionCompiler`] owns what is made (steps, registers, inputs) and gives the decoders what
//! they ask for: a register for an operand, converted to the width that the instruction wants; a
//! step pushed under the guard of the current instruction.

use std::collections::{HashMap, HashSet};

use ptx::analysis::Values;
use ptx::body::{self, Body};
use ptx::flow::Flow;
use ptx::instruction::{Operation, Operations};
use ptx::{Diagnostic, Function, FunctionKind};

use crate::code::{Classes, Code, Input, Named, Op, Origin, Source, Step};
use crate::compile::ModuleNames;
use crate::compile::allocate::{Span, allocate};
use crate::compile::decode::{self, control, load_store, stack};
use crate::compile::fold::{idle, mark_straight, name_patterns};
use crate::compile::frame::SymbolPlace;
use crate::compile::layout::{Block, blocks, order};
use crate::compile::prologue;
use crate::compile::regions;
use crate::memory::access::AccessHandler;
use crate::native::{self, Lowered, Native};
use crate::operands::{AccessArgs, Args, Class, Guard, Reg};
use crate::registers::handler::LaneHandler;

/// The reason why an instruction cannot be compiled.
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

/// The function that is being compiled.
pub(super) struct FunctionCompiler<'m> {
    pub(super) module: &'m ModuleNames<'m>,
    pub(super) function: &'m Function,
    pub(super) body: &'m Body<'m>,
    pub(super) operations: &'m Operations,
    pub(super) flow: &'m Flow,
    pub(super) values: &'m Values,
    /// The line that is compiled.
    pub(super) line: Option<usize>,
    /// The line that made the first step.
    pub(super) first_line: Option<usize>,
    /// Class of each virtual register.
    classes: Vec<Class>,
    /// The virtual register of each register of the body, made when it is first needed.
    pub(super) registers: Vec<Reg>,
    inputs: HashMap<(Class, Input), Reg>,
    input_registers: HashSet<Reg>,
    /// Registers that always equal an input.
    pub(super) bound: HashMap<Reg, Reg>,
    /// The place of each variable of the body; `None` for those without an address.
    pub(super) places: Vec<Option<SymbolPlace>>,
    pub(super) frame_bytes: u32,
    /// Bytes of the parameters of a kernel.
    pub(super) param_bytes: u64,
    steps: Vec<Step>,
    /// Meaning of each step.
    lowered: Vec<Lowered>,
    /// Meaning of the next step.
    means: Lowered,
    origin_of: Vec<u32>,
    origins: Vec<Origin>,
    unsupported: Vec<String>,
    pub(super) calls: Vec<u32>,
    pub(super) calls_indirectly: bool,
    shared: Vec<u32>,
    pub(super) variables: Vec<Named>,
    /// Guard of the current instruction.
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
    let body = module.names.body(function);
    let operations = Operations::of(&body);
    let flow = Flow::of(&body, &operations);
    let values = Values::of(&body, &operations, &flow);
    let mut compiler = FunctionCompiler {
        module,
        function,
        body: &body,
        operations: &operations,
        flow: &flow,
        values: &values,
        line: None,
        first_line: None,
        classes: Vec::new(),
        registers: vec![Reg::NONE; body.registers.len()],
        inputs: HashMap::new(),
        input_registers: HashSet::new(),
        bound: HashMap::new(),
        places: Vec::new(),
        frame_bytes: 0,
        param_bytes: 0,
        steps: Vec::new(),
        lowered: Vec::new(),
        means: Lowered::Other,
        origin_of: Vec::new(),
        origins: Vec::new(),
        unsupported: Vec::new(),
        calls: Vec::new(),
        calls_indirectly: false,
        shared: Vec::new(),
        variables: Vec::new(),
        guard: Guard::Always,
        carry_flag: Reg::NONE,
        stack_before: None,
    };
    compiler.carry_flag = compiler.fresh(Class::Predicate);
    compiler.lay_out_frame();
    compiler.run()
}

impl FunctionCompiler<'_> {
    pub(super) fn is_kernel(&self) -> bool {
        self.function.kind == FunctionKind::Entry
    }

    /// The whole function.
    fn run(mut self) -> Result<(Code, u32), Diagnostic> {
        let blocks = blocks(self.body, self.operations, self.flow);
        let order = order(&blocks);
        self.bind_inputs();
        stack::enter(&mut self);
        if !self.is_kernel() {
            self.guard = Guard::Always;
            load_store::load_register_parameters(&mut self).map_err(|_| {
                let message = "a parameter has a type that no register holds";
                Diagnostic::new(self.function.position, message.to_owned())
            })?;
        }
        let mut starts = vec![0; blocks.len()];
        let mut spans = Vec::new();
        for (place, &index) in order.iter().enumerate() {
            // What precedes the first block's own steps belongs to it.
            let start = if place == 0 { 0 } else { self.steps.len() };
            starts[index] = start as u32;
            self.block(&blocks[index], order.get(place + 1).copied())?;
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
        let start = self.start();
        let is_kernel = self.is_kernel();
        let mut inputs: Vec<((Class, Input), Reg)> = self.inputs.into_iter().collect();
        inputs.sort_by_key(|(_, reg)| *reg);
        let pinned: Vec<Reg> = inputs.iter().map(|(_, reg)| *reg).collect();
        let input_of: HashMap<Reg, Input> = inputs.iter().map(|((_, input), reg)| (*reg, *input)).collect();
        let idle = idle(&mut self.steps, self.classes.len());
        let candidate = prologue::find(&mut self.steps, spans, &idle, &input_of, start);
        let kept: Vec<Reg> = candidate.iter().flat_map(|candidate| candidate.registers()).collect();
        let mut classes = Classes::default();
        let of = &self.classes;
        self.steps.iter_mut().for_each(|step| classes.push(step, |reg| of[reg.0 as usize]));
        let before = (is_kernel && native::is_possible()).then(|| self.steps.clone());
        let (places, sizes) = allocate(&mut self.steps, spans, &self.classes, &pinned, &kept);
        name_patterns(&mut self.steps);
        let native = before.map_or_else(Native::default, |steps| {
            let source =
                regions::Source { steps, lowered: &self.lowered, classes: &self.classes, places: &places };
            let deferred = candidate.as_ref().map(|candidate| regions::Deferred {
                end: candidate.steps(),
                registers: candidate.registers().collect(),
            });
            regions::find(source, spans, &input_of, deferred)
        });
        mark_straight(&mut self.steps, &idle, |at| native.is_worth_it(at as u32));
        let prologue = candidate.map(|candidate| candidate.placed(|reg| places[reg.0 as usize]));
        let inputs =
            inputs.iter().map(|((class, input), reg)| (places[reg.0 as usize], *class, *input)).collect();
        self.shared.sort_unstable();
        self.shared.dedup();
        let code = Code {
            steps: self.steps,
            classes,
            native,
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

    /// The instructions of a block, and how it goes on to the block laid out after it.
    fn block(&mut self, block: &Block, next: Option<usize>) -> Result<(), Diagnostic> {
        for line in block.start..block.end {
            self.line(line, next)?;
        }
        match block.falls.then(|| block.successors.first().copied()) {
            Some(Some(follower)) if Some(follower) == next => {}
            Some(Some(follower)) => self.jump_to(follower, next),
            // The end of the body is a `ret`.
            Some(None) => {
                (self.guard, self.line) = (Guard::Always, None);
                control::leave(self).map_err(|_| {
                    let message = "a result has a type that no register holds";
                    Diagnostic::new(self.function.position, message.to_owned())
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

    fn line(&mut self, index: usize, next: Option<usize>) -> Result<(), Diagnostic> {
        self.line = Some(index);
        let line = &self.body.lines[index];
        let instruction = line.instruction;
        let source = line.location.map(|location| Source {
            at: (location.file, location.line),
            inlined_at: location.inlined.as_ref().map(|inlined| (inlined.file, inlined.line)),
        });
        self.origins.push(Origin {
            line: instruction.position.line,
            mnemonic: instruction.mnemonic.clone(),
            operation: self.operations[index],
            source,
        });
        let first = self.steps.len();
        let outcome = self.guard_of(line.guard).and_then(|guard| {
            self.guard = guard;
            let operation = self.operations[index];
            if self.is_bound(line, &operation) {
                Ok(())
            } else {
                decode::instruction(self, line, operation, next)
            }
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(Refusal::Invalid(message)) => Err(Diagnostic::new(instruction.position, message)),
            Err(Refusal::Unsupported(message)) => {
                self.steps.truncate(first);
                self.lowered.truncate(first);
                self.means = Lowered::Other;
                self.origin_of.truncate(first);
                self.complain(message);
                Ok(())
            }
        }
    }

    fn guard_of(&mut self, guard: Option<body::Guard>) -> Decoded<Guard> {
        let Some(guard) = guard else { return Ok(Guard::Always) };
        self.guard = Guard::Always;
        let reg = self.predicate(guard.symbol)?;
        Ok(if guard.negated { Guard::Unless(reg) } else { Guard::If(reg) })
    }

    /// Adds a step under the guard of the current instruction.
    pub(super) fn push(&mut self, op: Op) {
        if self.origins.is_empty() {
            let mnemonic = ptx::Mnemonic::new("ret".into());
            let operation = Operation::of(&mnemonic);
            self.origins.push(Origin {
                line: self.function.position.line,
                mnemonic,
                operation,
                source: None,
            });
        }
        if self.steps.is_empty() {
            self.first_line = self.line;
        }
        self.steps.push(Step::new(self.guard, op));
        self.lowered.push(std::mem::take(&mut self.means));
        self.origin_of.push(self.origins.len() as u32 - 1);
    }

    /// Adds a step for all lanes.
    pub(super) fn unguarded(&mut self, op: Op) {
        let guard = std::mem::replace(&mut self.guard, Guard::Always);
        self.push(op);
        self.guard = guard;
    }

    /// Tells what the next step means.
    pub(super) fn means(&mut self, means: Lowered) {
        self.means = means;
    }

    /// Adds a step on registers.
    pub(super) fn lanes(&mut self, handler: LaneHandler, args: Args) {
        if handler.needs.met_by(&args, |reg| self.class(reg)) {
            self.push(Op::Lanes { run: handler.run, compares: handler.compares, args });
        } else {
            // The handler would take a register for something else: a mistake of this crate, not of
            // the PTX.
            self.complain(format!("no way to execute this with {:?} for {args:?}", handler.needs));
        }
    }

    /// Adds a step that accesses memory.
    pub(super) fn access(&mut self, handler: AccessHandler, args: AccessArgs) {
        if handler.takes(&args, |reg| self.class(reg)) {
            let wide = args.data[0].is_some() && self.class(args.data[0]) == Class::Long;
            let args = AccessArgs { wide, indexed: self.element(&args), ..args };
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

    /// The register that holds `input`, if anything has asked for it.
    pub(super) fn known_input(&self, class: Class, input: Input) -> Option<Reg> {
        self.inputs.get(&(class, input)).copied()
    }

    pub(super) fn constant(&mut self, class: Class, bits: u64) -> Reg {
        self.input(class, Input::Constant(bits))
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
