//! From a function's statements to the steps of a walk.
//!
//! Names become numbers, functions that are called directly are put in place, and what an instruction does to registers is
//! written down as far as a walk follows it; any other instruction makes an unknown result of its operands.

use std::collections::HashMap;

use super::code::{Action, Code, Guard, Input, LaneMask, NONE, Register, Special, Step};
use super::latency::Latency;
use super::schedule::{self, Issue, Order};
use super::slice;
use crate::instruction::Class;
use crate::syntax::{
    AddressBase, Constant, Function, FunctionKind, Instruction, Module, Name, Operand, Predicate, Statement,
};
use crate::syntax::{ScalarType, StateSpace};

/// Calls within calls that are followed.
const DEPTH: usize = 8;
/// Steps beyond which no further call is followed.
const MOST_STEPS: usize = 100_000;
/// Where made-up addresses of variables lie: shared memory from 0, then local memory, then the rest.
pub(super) const LOCAL_BASE: u64 = 0x0100_0000;
const GLOBAL_BASE: u64 = 0x7000_0000_0000;

/// Translates a function.
pub(super) fn compile(module: &Module, function: &Function) -> Code {
    let mut compiler = Compiler::new(module);
    let params = function.params.iter().enumerate();
    let params = params.map(|(index, param)| (&*param.name, Param::Kernel(index as u32))).collect();
    compiler.frames.push(Frame { params, ..Frame::default() });
    compiler.body(function);
    compiler.finish()
}

/// What the name of a parameter stands for.
#[derive(Clone, Copy)]
enum Param<'a> {
    /// A parameter of the kernel.
    Kernel(u32),
    /// A variable of the function with that number.
    Variable(u32, &'a str),
}

/// Registers that a scope declares: names, or the beginning of so many numbered names.
type Declared<'a> = Vec<(&'a str, Option<u32>)>;

/// A function that is being translated.
#[derive(Default)]
struct Frame<'a> {
    /// Tells it from other functions, and from itself elsewhere.
    id: u32,
    params: HashMap<&'a str, Param<'a>>,
    /// Scopes that are open, each with a number and the registers that it declares.
    scopes: Vec<(u32, Declared<'a>)>,
    /// Addresses of variables.
    symbols: HashMap<&'a str, u64>,
}

pub(super) struct Compiler<'a> {
    functions: HashMap<&'a str, &'a Function>,
    globals: HashMap<&'a str, u64>,
    frames: Vec<Frame<'a>>,
    scopes: u32,
    registers: HashMap<(u32, String), Register>,
    inputs: HashMap<Input, Register>,
    count: Register,
    steps: Vec<Step>,
    /// What each step waits for.
    issues: Vec<Issue>,
    labels: HashMap<(u32, &'a str), usize>,
    tables: HashMap<(u32, &'a str), &'a [Name]>,
    /// Steps whose targets are labels that may come later.
    jumps: Vec<(usize, u32, &'a str)>,
    shared: u64,
    local: u64,
    global: u64,
    incomplete: bool,
}

impl<'a> Compiler<'a> {
    fn new(module: &'a Module) -> Compiler<'a> {
        let defined = module.functions().filter(|function| function.body.is_some());
        let mut compiler = Compiler {
            functions: defined.map(|function| (&*function.name, function)).collect(),
            globals: HashMap::new(),
            frames: Vec::new(),
            scopes: 0,
            registers: HashMap::new(),
            inputs: HashMap::new(),
            count: 0,
            steps: Vec::new(),
            issues: Vec::new(),
            labels: HashMap::new(),
            tables: HashMap::new(),
            jumps: Vec::new(),
            shared: 0,
            local: LOCAL_BASE,
            global: GLOBAL_BASE,
            incomplete: false,
        };
        // Shared memory whose size the launch says comes last.
        let variables = || module.variables();
        for sized in [true, false] {
            for variable in variables().filter(|variable| variable.bytes().is_some() == sized) {
                let address = compiler.place(variable.space, variable.bytes(), variable.alignment());
                compiler.globals.insert(&variable.name, address);
            }
        }
        compiler
    }

    /// A place for a variable.
    fn place(&mut self, space: StateSpace, bytes: Option<u64>, alignment: u64) -> u64 {
        let top = match space {
            StateSpace::Shared => &mut self.shared,
            StateSpace::Local => &mut self.local,
            _ => &mut self.global,
        };
        let address = top.checked_next_multiple_of(alignment.max(1)).unwrap_or(*top);
        *top = address.saturating_add(bytes.unwrap_or(0).min(1 << 40));
        address
    }

    fn body(&mut self, function: &'a Function) {
        let Some(body) = &function.body else { return };
        self.scope(body);
        self.push(None, Action::Nothing, Vec::new(), Issue::default());
    }

    /// Statements of a scope; the parser bounds how deep they nest.
    fn scope(&mut self, statements: &'a [Statement]) {
        self.scopes += 1;
        let id = self.scopes;
        let registers = |statement: &'a Statement| match statement {
            Statement::Variable(variable) if variable.space == StateSpace::Reg => {
                Some((&*variable.name, variable.count))
            }
            _ => None,
        };
        let declared = statements.iter().filter_map(registers).collect();
        self.frame().scopes.push((id, declared));
        for statement in statements {
            self.statement(statement);
        }
        self.frame().scopes.pop();
    }

    fn statement(&mut self, statement: &'a Statement) {
        let frame = self.frame().id;
        match statement {
            Statement::Label(name, _) => drop(self.labels.insert((frame, name), self.steps.len())),
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::Block(inner) => self.scope(inner),
            Statement::BranchTargets(name, labels) => drop(self.tables.insert((frame, name), labels)),
            Statement::Variable(variable) => match variable.space {
                StateSpace::Reg => {}
                StateSpace::Param => {
                    self.frame().params.insert(&variable.name, Param::Variable(frame, &variable.name));
                }
                space => {
                    let address = self.place(space, variable.bytes(), variable.alignment());
                    self.frame().symbols.insert(&variable.name, address);
                }
            },
            _ => {}
        }
    }

    fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("the function that is translated has a frame")
    }

    /// Adds a step that stands for one instruction.
    pub(super) fn emit(&mut self, instruction: &Instruction, action: Action) {
        let guard = self.guard(instruction.predicate.as_ref());
        let class = crate::instruction::Operation::of(&instruction.mnemonic).class();
        let mut issue = Issue {
            latency: Latency::of(instruction),
            guard,
            order: Order::of(instruction),
            ..Issue::default()
        };
        if class != Class::Control {
            self.dependences(instruction, &mut issue);
        }
        self.push(guard, action, vec![(class, 1)], issue);
    }

    fn push(&mut self, guard: Option<Guard>, action: Action, tally: Vec<(Class, u32)>, issue: Issue) {
        self.steps.push(Step { guard, action, tally, cycles: 0.0 });
        self.issues.push(issue);
    }

    /// The registers that an instruction reads and writes, whatever it does with them.
    fn dependences(&mut self, instruction: &Instruction, issue: &mut Issue) {
        let mut operands = instruction.operands.iter();
        if let Some(result) =
            instruction.operands.first().filter(|operand| !matches!(operand, Operand::Address(_)))
        {
            self.registers_of(result, &mut issue.writes);
            operands.next();
        }
        operands.for_each(|operand| self.registers_of(operand, &mut issue.reads));
    }

    fn registers_of(&mut self, operand: &Operand, registers: &mut Vec<Register>) {
        match operand {
            Operand::Name(name) | Operand::Negated(name) | Operand::Not(name) => {
                if special(name, None).is_none() && self.symbol(name).is_none() {
                    registers.push(self.named(name));
                }
            }
            Operand::Component(name, selector) => {
                if special(name, Some(selector)).is_none() {
                    registers.push(self.component(name, selector));
                }
            }
            Operand::Pair(first, second) => {
                self.registers_of(first, registers);
                self.registers_of(second, registers);
            }
            Operand::Vector(parts) | Operand::List(parts) => {
                parts.iter().for_each(|part| self.registers_of(part, registers));
            }
            Operand::Address(address) => {
                if let AddressBase::Name(name) = &address.base {
                    self.registers_of(&Operand::Name(name.clone()), registers);
                }
                address.rest.iter().for_each(|part| self.registers_of(part, registers));
            }
            Operand::Sink | Operand::Constant(_) | Operand::Offset(..) | Operand::Element(..) => {}
        }
    }

    /// Adds a step that is a further part of an instruction.
    pub(super) fn emit_part(&mut self, instruction: &Instruction, action: Action) {
        let guard = self.guard(instruction.predicate.as_ref());
        self.push(guard, action, Vec::new(), Issue::default());
    }

    fn guard(&mut self, predicate: Option<&Predicate>) -> Option<Guard> {
        let predicate = predicate?;
        Some(Guard { register: self.named(&predicate.register), negated: predicate.negated })
    }

    /// A register that nothing names.
    pub(super) fn temporary(&mut self) -> Register {
        self.count += 1;
        self.count - 1
    }

    /// The register with this name: of the innermost scope that declares it, else of the function.
    fn named(&mut self, name: &str) -> Register {
        let frame = self.frame();
        let declares = |(declared, count): &(&str, Option<u32>)| match count {
            None => *declared == name,
            Some(count) => {
                let number = name.strip_prefix(declared).and_then(|number| number.parse::<u32>().ok());
                number.is_some_and(|number| number < *count)
            }
        };
        let scope = frame.scopes.iter().rev().find(|(_, registers)| registers.iter().any(declares));
        let scope = scope.or(frame.scopes.first()).map_or(0, |(id, _)| *id);
        self.keyed(scope, name.to_owned())
    }

    fn keyed(&mut self, scope: u32, name: String) -> Register {
        let count = &mut self.count;
        *self.registers.entry((scope, name)).or_insert_with(|| {
            *count += 1;
            *count - 1
        })
    }

    /// The register that has this when a warp begins.
    pub(super) fn input(&mut self, input: Input) -> Register {
        let count = &mut self.count;
        *self.inputs.entry(input).or_insert_with(|| {
            *count += 1;
            *count - 1
        })
    }

    pub(super) fn constant(&mut self, value: u64) -> Register {
        self.input(Input::Constant(value))
    }

    /// The register that stands for bytes of a parameter, if `name` is one.
    pub(super) fn parameter(&mut self, name: &str, offset: i64, bytes: u64) -> Option<Register> {
        let param = *self.frame().params.get(name)?;
        Some(match param {
            Param::Kernel(index) => {
                self.input(Input::Parameter { index, offset: offset as u32, bytes: bytes as u32 })
            }
            // Scopes begin at 1: variables of parameters have numbers of their own.
            Param::Variable(frame, name) => self.keyed(u32::MAX - frame, format!("{name}+{offset}")),
        })
    }

    /// The address of a variable.
    pub(super) fn symbol(&mut self, name: &str) -> Option<u64> {
        let own = self.frame().symbols.get(name).copied();
        own.or_else(|| self.globals.get(name).copied())
    }

    /// The register of an operand that is read as a number of this type.
    pub(super) fn read(&mut self, operand: &Operand, ty: ScalarType) -> Register {
        match operand {
            Operand::Name(name) | Operand::Negated(name) | Operand::Not(name) => self.read_name(name),
            Operand::Component(name, selector) => match special(name, Some(selector)) {
                Some(input) => self.input(input),
                None => self.component(name, selector),
            },
            Operand::Offset(name, bytes) | Operand::Element(name, bytes) => {
                let address = self.symbol(name).unwrap_or(0);
                self.constant(address.wrapping_add_signed(*bytes))
            }
            Operand::Constant(constant) => self.constant(bits(*constant, ty)),
            Operand::Pair(first, _) => match &**first {
                Operand::Name(name) => self.named(name),
                _ => self.constant(0),
            },
            Operand::Sink | Operand::Vector(_) | Operand::List(_) | Operand::Address(_) => self.constant(0),
        }
    }

    pub(super) fn read_name(&mut self, name: &str) -> Register {
        if let Some(input) = special(name, None) {
            return self.input(input);
        }
        match self.symbol(name) {
            Some(address) => self.constant(address),
            None => self.named(name),
        }
    }

    /// A component of a vector register.
    pub(super) fn component(&mut self, name: &str, selector: &str) -> Register {
        self.named(&format!("{name}.{selector}"))
    }

    /// The register of an operand that is written; [`NONE`] for `_`.
    pub(super) fn write(&mut self, operand: &Operand) -> Register {
        match operand {
            Operand::Name(name) => self.named(name),
            Operand::Component(name, selector) => self.component(name, selector),
            Operand::Pair(first, _) => match &**first {
                Operand::Name(name) => self.named(name),
                _ => NONE,
            },
            _ => NONE,
        }
    }

    /// A branch to a label.
    pub(super) fn jump(&mut self, instruction: &Instruction, label: &'a str) {
        let frame = self.frame().id;
        self.jumps.push((self.steps.len(), frame, label));
        self.emit(instruction, Action::Branch { target: 0 });
    }

    /// A branch to one of the labels that `table` lists.
    pub(super) fn jump_table(&mut self, instruction: &Instruction, index: Register, table: &'a str) {
        let frame = self.frame().id;
        self.jumps.push((self.steps.len(), frame, table));
        self.emit(instruction, Action::Table { index, targets: Vec::new() });
    }

    /// `ret`: ends the thread, or goes to the end of the function that was called.
    pub(super) fn leave(&mut self, instruction: &Instruction) {
        if self.frames.len() == 1 {
            return self.emit(instruction, Action::Exit);
        }
        self.jump(instruction, "");
    }

    /// A call: of a function that is there, its body stands in its place.
    pub(super) fn call(&mut self, instruction: &'a Instruction) {
        let mut operands = instruction.operands.iter().peekable();
        let list = |operand: Option<&'a Operand>| match operand {
            Some(Operand::List(list)) => list.as_slice(),
            _ => &[],
        };
        let returns = list(operands.next_if(|operand| matches!(operand, Operand::List(_))));
        let callee = match operands.next() {
            Some(Operand::Name(name)) => self.functions.get(&**name).copied(),
            _ => None,
        };
        let arguments = list(operands.next());
        let known = callee.filter(|callee| {
            callee.kind == FunctionKind::Func && self.frames.len() <= DEPTH && self.steps.len() < MOST_STEPS
        });
        let Some(callee) = known else {
            self.incomplete = true;
            return self.emit(instruction, Action::Nothing);
        };
        self.enter(instruction, callee, returns, arguments);
    }

    fn enter(
        &mut self,
        instruction: &'a Instruction,
        callee: &'a Function,
        returns: &'a [Operand],
        arguments: &'a [Operand],
    ) {
        let guard = self.guard(instruction.predicate.as_ref());
        let skip = guard.map(|guard| Guard { negated: !guard.negated, ..guard });
        let tally = vec![(Class::Control, 1)];
        let around = self.steps.len();
        let action = if skip.is_some() { Action::Branch { target: 0 } } else { Action::Nothing };
        self.push(skip, action, tally, Issue { guard: skip, ..Issue::default() });

        self.scopes += 1;
        let id = self.scopes;
        let mut frame = Frame { id, ..Frame::default() };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let caller = self.frame();
        let bound = callee.params.iter().zip(arguments).map(|pair| (pair, false));
        for ((variable, operand), result) in
            bound.chain(callee.returns.iter().zip(returns).map(|p| (p, true)))
        {
            match (variable.space, operand) {
                (StateSpace::Reg, _) if result => after.push((variable, operand)),
                (StateSpace::Reg, _) => before.push((variable, operand)),
                (_, Operand::Name(name)) => {
                    let own = Param::Variable(caller.id, name);
                    let param = caller.params.get(&**name).copied().unwrap_or(own);
                    frame.params.insert(&variable.name, param);
                }
                _ => {}
            }
        }
        let values: Vec<Register> = before.iter().map(|(v, operand)| self.read(operand, v.ty)).collect();
        self.scopes += 1;
        let registers = callee.params.iter().chain(&callee.returns);
        let registers = registers.filter(|v| v.space == StateSpace::Reg).map(|v| (&*v.name, v.count));
        frame.scopes.push((self.scopes, registers.collect()));
        self.frames.push(frame);
        for ((variable, _), from) in before.iter().zip(values) {
            let to = self.named(&variable.name);
            self.copy(to, from, variable.ty);
        }
        self.body(callee);
        self.labels.insert((id, ""), self.steps.len());
        let results: Vec<Register> = after.iter().map(|(variable, _)| self.named(&variable.name)).collect();
        self.frames.pop();
        for ((variable, operand), from) in after.iter().zip(results) {
            let to = self.write(operand);
            self.copy(to, from, variable.ty);
        }
        let end = self.steps.len();
        self.push(None, Action::Nothing, Vec::new(), Issue::default());
        if let Action::Branch { target } = &mut self.steps[around].action {
            *target = end;
        }
    }

    fn copy(&mut self, to: Register, from: Register, ty: ScalarType) {
        let action = super::decode::movement(to, from, ty);
        self.push(None, action, Vec::new(), Issue::default());
    }

    fn finish(mut self) -> Code {
        let end = self.steps.len();
        for (step, frame, name) in &self.jumps {
            let label = |name: &str| self.labels.get(&(*frame, name)).copied().unwrap_or(end);
            match &mut self.steps[*step].action {
                Action::Branch { target } => *target = label(name),
                Action::Table { targets, .. } => {
                    let labels = self.tables.get(&(*frame, *name)).copied().unwrap_or_default();
                    *targets = labels.iter().map(|name| label(name)).collect();
                }
                _ => {}
            }
        }
        schedule::schedule(&mut self.steps, &self.issues, self.count as usize);
        let code = Code {
            steps: self.steps,
            registers: self.count as usize,
            inputs: self.inputs.into_iter().map(|(input, register)| (register, input)).collect(),
            incomplete: self.incomplete,
        };
        slice::slice(code)
    }
}

/// The bits of a constant where a number of this type is meant.
fn bits(constant: Constant, ty: ScalarType) -> u64 {
    match (constant, ty) {
        (Constant::Integer(value), ScalarType::F32) => (value as f32).to_bits().into(),
        (Constant::Integer(value), ScalarType::F64) => (value as f64).to_bits(),
        (Constant::Integer(value), _) => value as u64,
        (Constant::Single(bits), ScalarType::F64) => f64::from(f32::from_bits(bits)).to_bits(),
        (Constant::Single(bits), _) => bits.into(),
        (Constant::Double(bits), ScalarType::F32) => (f64::from_bits(bits) as f32).to_bits().into(),
        (Constant::Double(bits), _) => bits,
    }
}

/// What a special register holds, if `name` is one.
fn special(name: &str, selector: Option<&str>) -> Option<Input> {
    let dimension = match selector {
        None | Some("x") => 0,
        Some("y") => 1,
        Some("z") => 2,
        _ => 3,
    };
    let known = match name {
        "%tid" => Special::Thread(dimension),
        "%ntid" => Special::ThreadsOfBlock(dimension),
        "%ctaid" | "%clusterid" => Special::Block(dimension),
        "%nctaid" | "%nclusterid" => Special::BlocksOfGrid(dimension),
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::WarpsOfBlock,
        "%lanemask_eq" => Special::LaneMask(LaneMask::Equal),
        "%lanemask_lt" => Special::LaneMask(LaneMask::Less),
        "%lanemask_le" => Special::LaneMask(LaneMask::LessEqual),
        "%lanemask_gt" => Special::LaneMask(LaneMask::Greater),
        "%lanemask_ge" => Special::LaneMask(LaneMask::GreaterEqual),
        "%dynamic_smem_size" => Special::DynamicShared,
        "%cluster_ctaid" | "%cluster_ctarank" => return Some(Input::Constant(0)),
        "%cluster_nctaid" | "%cluster_nctarank" => return Some(Input::Constant(1)),
        "%clock" | "%clock_hi" | "%clock64" | "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi"
        | "%smid" | "%nsmid" | "%gridid" | "%total_smem_size" | "%aggr_smem_size" => {
            Special::Other(name.len() as u32)
        }
        _ => return None,
    };
    Some(Input::Special(known))
}
