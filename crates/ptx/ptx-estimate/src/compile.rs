//! Translates a function's listing into the steps of an estimate.
//!
//! Functions that are called directly are put in place, and what an instruction does to registers
//! is written down as far as an estimate follows it; any other instruction makes an unknown result
//! of its operands.

use std::collections::HashMap;
use std::rc::Rc;

use super::code::{Action, Code, Guard, Input, NONE, Register, Step};
use super::latency::Latency;
use super::schedule::{self, Issue, Order};
use super::slice;
use ptx::Position;
use ptx::body::{
    Body, Home, LabelId, Line, Names, Operand, RegisterId, SpecialRegister, Symbol, TableId, VariableId,
    component,
};
use ptx::facts::Place;
use ptx::instruction::{Class, Operation, Operations};
use ptx::machine;
use ptx::syntax::{Constant, Function, FunctionKind, Module, ScalarType, StateSpace, Variable};

/// Calls within calls that are followed.
const DEPTH: usize = 8;
/// Functions that no module has because the driver does: what they do is left out.
const SYSTEM_CALLS: [&str; 4] = ["vprintf", "__assertfail", "malloc", "free"];
/// Steps beyond which no further call is followed.
const MOST_STEPS: usize = 250_000;
/// The start of invented addresses of variables in local memory: shared memory begins at 0, and the
/// rest follows local memory.
pub(super) const LOCAL_BASE: u64 = 0x0100_0000;
const GLOBAL_BASE: u64 = 0x7000_0000_0000;

/// Translates a function.
pub(super) fn compile(module: &Module, function: &Function) -> Code {
    let names = Names::new(module);
    let mut compiler = Compiler::new(module, &names);
    let frame = compiler.frame(function);
    compiler.frames.push(frame);
    compiler.body();
    compiler.finish()
}

/// A function's listing and what its instructions do.
struct Unit<'m> {
    body: Body<'m>,
    operations: Operations,
    /// Instructions of the machine that each becomes.
    machine: Vec<f64>,
}

/// An instruction that is being translated.
#[derive(Clone, Copy)]
pub(super) struct Site<'u, 'm> {
    pub(super) line: &'u Line<'m>,
    pub(super) operation: &'u Operation,
    body: &'u Body<'m>,
    /// Instructions of the machine that it becomes.
    machine: f64,
}

impl<'u, 'm> Site<'u, 'm> {
    pub(super) fn operands(self) -> &'u [Operand<'m>] {
        &self.line.operands
    }

    /// The declared type of a register.
    pub(super) fn type_of(self, register: RegisterId) -> Option<ScalarType> {
        Some(self.body.registers[register.index()].declaration?.ty)
    }
}

/// The meaning of a variable in `.param`.
#[derive(Clone, Copy)]
enum Param {
    /// A parameter of the kernel.
    Kernel(u32),
    /// A variable of the function with that number.
    Variable(u32, VariableId),
    /// A register that was passed for it.
    Register(Register),
}

/// A function that is being translated.
struct Frame<'m> {
    unit: Rc<Unit<'m>>,
    /// Tells it from other functions, and from itself elsewhere.
    id: u32,
    /// By [`RegisterId`]; [`NONE`] for those that nothing has named yet.
    registers: Vec<Register>,
    params: HashMap<VariableId, Param>,
    /// Addresses of variables.
    addresses: HashMap<VariableId, u64>,
}

/// The target of a branch.
#[derive(Clone, Copy)]
enum Jump {
    Label(LabelId),
    Table(TableId),
    /// To the end of the function.
    End,
}

/// The code of a function that has been translated.
struct Placed<'m> {
    unit: Rc<Unit<'m>>,
    /// The first step of each instruction, and the end of the last.
    starts: Vec<usize>,
    /// The step after the function.
    end: usize,
}

pub(super) struct Compiler<'n, 'm> {
    names: &'n Names<'m>,
    units: HashMap<&'m str, Rc<Unit<'m>>>,
    globals: HashMap<&'m str, u64>,
    frames: Vec<Frame<'m>>,
    /// Functions that were entered.
    entered: u32,
    /// Registers for bytes of variables in `.param`.
    params: HashMap<(u32, VariableId, i64), Register>,
    inputs: HashMap<Input, Register>,
    count: Register,
    steps: Vec<Step>,
    /// The dependencies of each step.
    issues: Vec<Issue>,
    placed: HashMap<u32, Placed<'m>>,
    /// Steps whose targets may come later, each with the function that it is of.
    jumps: Vec<(usize, u32, Jump)>,
    shared: u64,
    local: u64,
    global: u64,
}

impl<'n, 'm> Compiler<'n, 'm> {
    fn new(module: &'m Module, names: &'n Names<'m>) -> Compiler<'n, 'm> {
        let mut compiler = Compiler {
            names,
            units: HashMap::new(),
            globals: HashMap::new(),
            frames: Vec::new(),
            entered: 0,
            params: HashMap::new(),
            inputs: HashMap::new(),
            count: 0,
            steps: Vec::new(),
            issues: Vec::new(),
            placed: HashMap::new(),
            jumps: Vec::new(),
            shared: 0,
            local: LOCAL_BASE,
            global: GLOBAL_BASE,
        };
        // Shared memory whose size the launch says comes last.
        let variables = || module.variables();
        for sized in [true, false] {
            for variable in variables().filter(|variable| variable.stated_bytes().is_some() == sized) {
                let address = compiler.place(variable);
                compiler.globals.insert(&variable.name, address);
            }
        }
        compiler
    }

    /// A place for a variable.
    fn place(&mut self, variable: &Variable) -> u64 {
        let top = match variable.space {
            StateSpace::Shared => &mut self.shared,
            StateSpace::Local => &mut self.local,
            _ => &mut self.global,
        };
        let address = top.checked_next_multiple_of(variable.alignment().max(1)).unwrap_or(*top);
        *top = address.saturating_add(variable.bytes().unwrap_or(0).min(1 << 40));
        address
    }

    /// A frame for a function, its variables in their places.
    fn frame(&mut self, function: &'m Function) -> Frame<'m> {
        let names = self.names;
        let unit = self.units.entry(&function.name).or_insert_with(|| {
            let body = names.body(function);
            let operations = Operations::of(&body);
            let machine = machine::instructions(&body, &operations);
            Rc::new(Unit { body, operations, machine })
        });
        let unit = Rc::clone(unit);
        let id = self.entered;
        self.entered += 1;
        let registers = vec![NONE; unit.body.registers.len()];
        let (mut params, mut addresses) = (HashMap::new(), HashMap::new());
        for (variable, place) in (0..).map(VariableId).zip(&unit.body.variables) {
            let declaration = place.declaration;
            match (place.home, declaration.space) {
                (Home::Parameter(index), _) if self.frames.is_empty() => {
                    params.insert(variable, Param::Kernel(index));
                }
                (Home::Parameter(_) | Home::Return(_), _) => {}
                (Home::Body, StateSpace::Param) => {
                    params.insert(variable, Param::Variable(id, variable));
                }
                (Home::Body, _) => {
                    addresses.insert(variable, self.place(declaration));
                }
                (Home::Module, _) => {
                    let address = self.globals.get(&*declaration.name).copied();
                    address.map(|address| addresses.insert(variable, address));
                }
            }
        }
        Frame { unit, id, registers, params, addresses }
    }

    /// The instructions of the function on top.
    fn body(&mut self) {
        let (unit, id) = (Rc::clone(&self.top().unit), self.top().id);
        let body = &unit.body;
        if body.function.body.is_none() {
            return;
        }
        let mut starts = Vec::with_capacity(body.lines.len() + 1);
        for ((line, operation), &machine) in body.lines.iter().zip(unit.operations.iter()).zip(&unit.machine)
        {
            starts.push(self.steps.len());
            self.instruction(Site { line, operation, body, machine });
        }
        starts.push(self.steps.len());
        self.push(None, Action::Nothing, (Vec::new(), 0.0), Issue::default());
        self.placed.insert(id, Placed { unit: Rc::clone(&unit), starts, end: self.steps.len() });
    }

    fn top(&mut self) -> &mut Frame<'m> {
        self.frames.last_mut().expect("the function that is translated has a frame")
    }

    /// Adds a step that stands for one instruction.
    pub(super) fn emit(&mut self, site: Site<'_, 'm>, action: Action) {
        let guard = self.guard(site.line);
        let class = site.operation.class();
        let mut issue = Issue {
            latency: Latency::of(site.operation),
            guard,
            order: Order::of(site.operation, &site.line.operands),
            ..Issue::default()
        };
        if class != Class::Control {
            let (result, operands) = site.operation.split(site.operands());
            result.into_iter().for_each(|operand| self.mentioned(site, operand, &mut issue.writes));
            operands.iter().for_each(|operand| self.mentioned(site, operand, &mut issue.reads));
        }
        self.push(guard, action, (vec![(class, 1)], site.machine), issue);
        if let Some(step) = self.steps.last_mut() {
            step.place = Place::of(site.line);
            step.position = site.line.instruction.position;
        }
    }

    /// Adds a step that counts for instructions of the classes in `tally`, and for `machine`
    /// instructions of the machine.
    fn push(
        &mut self,
        guard: Option<Guard>,
        action: Action,
        (tally, machine): (Vec<(Class, u32)>, f64),
        issue: Issue,
    ) {
        let (place, position) = (None, Position::default());
        self.steps.push(Step {
            guard,
            action,
            place,
            position,
            tally,
            cycles: 0.0,
            serial_loads: 0.0,
            busy: 0.0,
            machine,
        });
        self.issues.push(issue);
    }

    fn mentioned(&mut self, site: Site<'_, 'm>, operand: &Operand<'m>, registers: &mut Vec<Register>) {
        operand.registers(site.body, &mut |id| registers.push(self.register(id)));
    }

    /// Whether an instruction of the function reads a register of an operand.
    pub(super) fn is_read(&mut self, site: Site<'_, 'm>, operand: &Operand<'m>) -> bool {
        let (unit, mut found) = (Rc::clone(&self.top().unit), false);
        operand.registers(site.body, &mut |result| {
            for (line, operation) in unit.body.lines.iter().zip(unit.operations.iter()) {
                let (_, read) = operation.split(&line.operands);
                read.iter().for_each(|one| one.registers(&unit.body, &mut |id| found |= id == result));
            }
        });
        found
    }

    /// Adds a step that is a further part of an instruction.
    pub(super) fn emit_part(&mut self, site: Site<'_, 'm>, action: Action) {
        let guard = self.guard(site.line);
        self.push(guard, action, (Vec::new(), 0.0), Issue::default());
    }

    fn guard(&mut self, line: &Line<'m>) -> Option<Guard> {
        let guard = line.guard?;
        Some(Guard { register: self.read_symbol(guard.symbol), negated: guard.negated })
    }

    /// A register that nothing names.
    pub(super) fn temporary(&mut self) -> Register {
        self.count += 1;
        self.count - 1
    }

    /// The register of the function on top with this identifier.
    pub(super) fn register(&mut self, id: RegisterId) -> Register {
        let next = self.count;
        let register = &mut self.top().registers[id.index()];
        if *register == NONE {
            *register = next;
            self.count += 1;
            return next;
        }
        *register
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

    /// The register that stands for bytes of a variable in `.param`, if the symbol is one.
    pub(super) fn parameter(&mut self, symbol: Symbol<'m>, offset: i64, bytes: u64) -> Option<Register> {
        let Symbol::Variable(variable) = symbol else { return None };
        match *self.top().params.get(&variable)? {
            Param::Kernel(index) => {
                Some(self.input(Input::Parameter { index, offset: offset as u32, bytes: bytes as u32 }))
            }
            Param::Variable(frame, variable) => {
                let count = &mut self.count;
                Some(*self.params.entry((frame, variable, offset)).or_insert_with(|| {
                    *count += 1;
                    *count - 1
                }))
            }
            Param::Register(register) => (offset == 0).then_some(register),
        }
    }

    /// The address of a variable.
    pub(super) fn address_of(&mut self, symbol: Symbol<'m>) -> Option<u64> {
        match symbol {
            Symbol::Variable(variable) => self.top().addresses.get(&variable).copied(),
            _ => None,
        }
    }

    /// The register of an operand that is read as a number of this type.
    pub(super) fn read(&mut self, operand: &Operand<'m>, ty: ScalarType) -> Register {
        match operand {
            Operand::Name(symbol) | Operand::Negated(symbol) | Operand::Not(symbol) => {
                self.read_symbol(*symbol)
            }
            Operand::Component(Symbol::Special(special), selector) => {
                let input = held(*special, component(selector).unwrap_or(0));
                self.input(input)
            }
            Operand::Component(symbol, selector) => match symbol.part(selector) {
                Some(id) => self.register(id),
                None => self.constant(0),
            },
            Operand::Offset(symbol, bytes) | Operand::Element(symbol, bytes) => {
                let address = self.address_of(*symbol).unwrap_or(0);
                self.constant(address.wrapping_add_signed(*bytes))
            }
            Operand::Constant(constant) => self.constant(bits(*constant, ty)),
            Operand::Pair(first, _) => self.read(first, ty),
            Operand::Sink
            | Operand::Indexed(_)
            | Operand::Vector(_)
            | Operand::List(_)
            | Operand::Address(_) => self.constant(0),
        }
    }

    pub(super) fn read_symbol(&mut self, symbol: Symbol<'m>) -> Register {
        match symbol {
            Symbol::Register(id) => self.register(id),
            Symbol::Special(special) => self.input(held(special, 0)),
            other => {
                let address = self.address_of(other).unwrap_or(0);
                self.constant(address)
            }
        }
    }

    /// The register of an operand that is written; [`NONE`] for `_`.
    pub(super) fn write(&mut self, operand: &Operand<'m>) -> Register {
        match operand {
            Operand::Name(_) | Operand::Component(..) => {
                operand.register().map_or(NONE, |id| self.register(id))
            }
            Operand::Pair(first, _) => first.register().map_or(NONE, |id| self.register(id)),
            _ => NONE,
        }
    }

    /// Registers of an operand that is written, and whether each is the predicate of a pair.
    pub(super) fn results(&mut self, site: Site<'_, 'm>, operand: &Operand<'m>) -> Vec<(Register, bool)> {
        match operand {
            Operand::Name(_) | Operand::Component(..) => {
                let mut registers = Vec::new();
                self.mentioned(site, operand, &mut registers);
                registers.into_iter().map(|register| (register, false)).collect()
            }
            Operand::Pair(first, second) => vec![(self.write(first), false), (self.write(second), true)],
            Operand::Vector(parts) => parts.iter().map(|part| (self.write(part), false)).collect(),
            _ => Vec::new(),
        }
    }

    fn jump(&mut self, site: Site<'_, 'm>, jump: Jump, action: Action) {
        let frame = self.top().id;
        self.jumps.push((self.steps.len(), frame, jump));
        self.emit(site, action);
    }

    /// `bra`: a branch to a label; to the end where the operand is none.
    pub(super) fn branch(&mut self, site: Site<'_, 'm>) {
        match site.operands().first() {
            Some(Operand::Name(Symbol::Label(label))) => {
                self.jump(site, Jump::Label(*label), Action::Branch { target: 0 });
            }
            Some(Operand::Name(_)) => self.jump(site, Jump::End, Action::Branch { target: 0 }),
            _ => self.emit(site, Action::Nothing),
        }
    }

    /// `brx`: a branch to one of the labels of a table.
    pub(super) fn branch_indexed(&mut self, site: Site<'_, 'm>) {
        match site.operands() {
            [index, Operand::Name(table), ..] => {
                let index = self.read(index, ScalarType::U32);
                let action = Action::Table { index, targets: Vec::new() };
                match table {
                    Symbol::BranchTargets(table) => self.jump(site, Jump::Table(*table), action),
                    _ => self.emit(site, action),
                }
            }
            _ => self.emit(site, Action::Nothing),
        }
    }

    /// `ret`: ends the thread, or goes to the end of the function that was called.
    pub(super) fn leave(&mut self, site: Site<'_, 'm>) {
        if self.frames.len() == 1 {
            return self.emit(site, Action::Exit);
        }
        self.jump(site, Jump::End, Action::Branch { target: 0 });
    }

    /// A call: of a function that is there, its body stands in its place.
    pub(super) fn call(&mut self, site: Site<'_, 'm>) {
        let (results, operands) = site.operation.split(site.operands());
        let list = |operand: Option<&'_ Operand<'m>>| match operand {
            Some(Operand::List(list)) => list.clone(),
            _ => Vec::new(),
        };
        let callee = match operands.first() {
            Some(Operand::Name(Symbol::Function(function))) => Some(*function),
            _ => None,
        };
        let known = callee.filter(|callee| {
            callee.kind == FunctionKind::Func
                && callee.body.is_some()
                && self.frames.len() <= DEPTH
                && self.steps.len() < MOST_STEPS
        });
        let Some(callee) = known else {
            let is_system_call = callee.is_some_and(|callee| SYSTEM_CALLS.contains(&&*callee.name));
            return self.emit(site, if is_system_call { Action::Nothing } else { Action::UnknownCall });
        };
        self.enter(site, callee, &list(results), &list(operands.get(1)));
    }

    fn enter(
        &mut self,
        site: Site<'_, 'm>,
        callee: &'m Function,
        results: &[Operand<'m>],
        arguments: &[Operand<'m>],
    ) {
        let guard = self.guard(site.line);
        let skip = guard.map(|guard| Guard { negated: !guard.negated, ..guard });
        let around = self.steps.len();
        let action = if skip.is_some() { Action::Branch { target: 0 } } else { Action::Nothing };
        let tally = (vec![(Class::Control, 1)], site.machine);
        self.push(skip, action, tally, Issue { guard: skip, ..Issue::default() });

        let mut frame = self.frame(callee);
        let unit = Rc::clone(&frame.unit);
        // Registers are copied before and after; what is passed in `.param` has another name
        // inside.
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (formal, operand) in callee.params.iter().zip(arguments) {
            let value = self.read(operand, formal.ty);
            self.bind(&mut frame, formal, operand, value, &mut before);
        }
        for (formal, operand) in callee.returns.iter().zip(results) {
            let value = self.write(operand);
            self.bind(&mut frame, formal, operand, value, &mut after);
        }
        self.frames.push(frame);
        for (formal, from) in before {
            if let Some(id) = unit.body.formal(formal) {
                let to = self.register(id);
                self.copy(to, from, formal.ty);
            }
        }
        self.body();
        let inner: Vec<(Register, Register, ScalarType)> = after
            .into_iter()
            .filter_map(|(formal, to)| Some((to, self.register(unit.body.formal(formal)?), formal.ty)))
            .collect();
        self.frames.pop();
        inner.into_iter().for_each(|(to, from, ty)| self.copy(to, from, ty));
        let end = self.steps.len();
        self.push(None, Action::Nothing, (Vec::new(), 0.0), Issue::default());
        if let Action::Branch { target } = &mut self.steps[around].action {
            *target = end;
        }
    }

    /// Binds what a call passes or gets to a formal parameter of the function that is about to be
    /// entered.
    fn bind(
        &mut self,
        frame: &mut Frame<'m>,
        formal: &'m Variable,
        operand: &Operand<'m>,
        value: Register,
        copies: &mut Vec<(&'m Variable, Register)>,
    ) {
        if formal.space == StateSpace::Reg {
            return copies.push((formal, value));
        }
        let outer = match operand {
            Operand::Name(Symbol::Variable(variable)) => self.top().params.get(variable).copied(),
            _ => Some(Param::Register(value)),
        };
        let variables = &frame.unit.body.variables;
        let inner = variables.iter().position(|place| std::ptr::eq(place.declaration, formal));
        if let (Some(inner), Some(outer)) = (inner, outer) {
            frame.params.insert(VariableId(inner as u32), outer);
        }
    }

    fn copy(&mut self, to: Register, from: Register, ty: ScalarType) {
        let action = super::decode::movement(to, from, ty);
        self.push(None, action, (Vec::new(), 0.0), Issue::default());
    }

    fn finish(mut self) -> Code {
        let last = self.steps.len();
        for (step, frame, jump) in &self.jumps {
            let Some(placed) = self.placed.get(frame) else { continue };
            let label = |label: LabelId| placed.starts[placed.unit.body.target(label).index()];
            match (&mut self.steps[*step].action, *jump) {
                (Action::Branch { target }, Jump::Label(to)) => *target = label(to),
                (Action::Branch { target }, _) => *target = placed.end,
                (Action::Table { targets, .. }, Jump::Table(table)) => {
                    let labels = &placed.unit.body.branch_targets[table.index()];
                    *targets = labels.iter().map(|to| to.map_or(last, label)).collect();
                }
                _ => {}
            }
        }
        schedule::schedule(&mut self.steps, &self.issues, self.count as usize);
        let code = Code {
            steps: self.steps,
            registers: self.count as usize,
            inputs: self.inputs.into_iter().map(|(input, register)| (register, input)).collect(),
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
        (Constant::Single(bits), _) => bits.into(),
        (Constant::Double(bits), ScalarType::F32) => (f64::from_bits(bits) as f32).to_bits().into(),
        (Constant::Double(bits), _) => bits,
    }
}

/// Returns the value of a special register's component when a warp begins.
fn held(register: SpecialRegister, dimension: u8) -> Input {
    use SpecialRegister as Of;
    match register {
        Of::Clusterid => Input::Special(Of::Ctaid, dimension),
        Of::Nclusterid => Input::Special(Of::Nctaid, dimension),
        Of::ClusterCtaid | Of::ClusterCtarank | Of::IsExplicitCluster => Input::Constant(0),
        Of::ClusterNctaid | Of::ClusterNctarank => Input::Constant(1),
        other => Input::Special(other, dimension),
    }
}
