//! Resolves the names of a function, statement by statement, and makes its [`Body`].

use std::collections::HashMap;

use super::module::{Global, Names};
use super::scope::{Declared, Scope};
use super::special::SpecialRegister;
use super::{
    Address, Base, Body, COMPONENTS, Guard, Home, Indexed, InstructionId, Label, LabelId, Line, Operand,
    Register, RegisterId, Symbol, TableId, UsedVariable, VariableId,
};
use crate::diagnostic::{Diagnostic, Position};
use crate::syntax::tree::{self, Function, Instruction, Location, Name, Statement, Variable};
use crate::syntax::types::StateSpace;

/// A function whose names are being resolved.
struct Resolver<'n, 'm> {
    names: &'n Names<'m>,
    /// Items of the module before this one are known.
    item: usize,
    body: Body<'m>,
    scopes: Vec<Scope<'m>>,
    /// Declarations of registers.
    declarations: Vec<&'m Variable>,
    /// Registers by declaration and number.
    registers: HashMap<(u32, u32), RegisterId>,
    undeclared: HashMap<&'m str, RegisterId>,
    globals: HashMap<&'m str, VariableId>,
    location: Option<&'m Location>,
}

impl<'m> Names<'m> {
    /// The listing of a function, which need not be one of the module's.
    pub fn body(&self, function: &'m Function) -> Body<'m> {
        let mut resolver = Resolver {
            names: self,
            item: self.item(function),
            body: Body {
                function,
                lines: Vec::new(),
                registers: Vec::new(),
                variables: Vec::new(),
                labels: Vec::new(),
                branch_targets: Vec::new(),
                call_targets: Vec::new(),
                problems: Vec::new(),
            },
            scopes: Vec::new(),
            declarations: Vec::new(),
            registers: HashMap::new(),
            undeclared: HashMap::new(),
            globals: HashMap::new(),
            location: None,
        };
        resolver.run();
        resolver.body
    }
}

impl<'m> Resolver<'_, 'm> {
    fn run(&mut self) {
        let function = self.body.function;
        let statements = function.body.as_deref().unwrap_or_default();
        self.open(statements);
        let numbered = |variables: &'m [Variable]| (0u32..).zip(variables);
        for (index, variable) in numbered(&function.returns) {
            self.parameter(variable, Home::Return(index));
        }
        for (index, variable) in numbered(&function.params) {
            self.parameter(variable, Home::Parameter(index));
        }
        let mut left = vec![statements.iter()];
        while let Some(top) = left.last_mut() {
            match top.next() {
                Some(Statement::Block(inner)) => {
                    self.open(inner);
                    left.push(inner.iter());
                }
                Some(statement) => self.statement(statement),
                None => {
                    left.pop();
                    self.scopes.pop();
                }
            }
        }
    }

    /// Opens a scope with its labels.
    fn open(&mut self, statements: &'m [Statement]) {
        let mut scope = Scope::default();
        for statement in statements {
            let Statement::Label(name, position) = statement else { continue };
            if scope.labels.contains_key(&**name) {
                let message = format!("the label `{name}` stands twice in this scope");
                self.body.problems.push(Diagnostic::new(*position, message));
                continue;
            }
            scope.labels.insert(name, LabelId(self.body.labels.len() as u32));
            // The place is known when the statement is reached.
            self.body.labels.push(Label { name, target: InstructionId(0) });
        }
        self.scopes.push(scope);
    }

    fn parameter(&mut self, variable: &'m Variable, home: Home) {
        // Prototypes and declarations may leave names out.
        if &*variable.name != "_" {
            self.variable(variable, home);
        }
    }

    fn variable(&mut self, variable: &'m Variable, home: Home) {
        let what = if variable.space == StateSpace::Reg {
            self.declarations.push(variable);
            Declared::Registers(self.declarations.len() as u32 - 1)
        } else {
            self.body.variables.push(UsedVariable { declaration: variable, home });
            Declared::Variable(VariableId(self.body.variables.len() as u32 - 1))
        };
        if self.declare(&variable.name, variable.count, what) {
            let message = format!("`{}` is declared twice in this scope: rename one", variable.name);
            self.body.problems.push(Diagnostic::new(variable.position, message));
        }
    }

    fn declare(&mut self, name: &'m str, count: Option<u32>, what: Declared<'m>) -> bool {
        self.scopes.last_mut().is_some_and(|scope| scope.declare(name, count, what))
    }

    fn statement(&mut self, statement: &'m Statement) {
        match statement {
            Statement::Label(name, _) => {
                let next = InstructionId(self.body.lines.len() as u32);
                let label = self.scopes.last().and_then(|scope| scope.labels.get(&**name));
                if let Some(label) = label {
                    self.body.labels[label.index()].target = next;
                }
            }
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::Variable(variable) => self.variable(variable, Home::Body),
            Statement::Location(location) if location.line != 0 => self.location = Some(location),
            Statement::Prototype(prototype) => self.list(&prototype.name, Declared::Prototype(prototype)),
            Statement::BranchTargets(name, targets) => self.branch_targets(name, targets),
            Statement::CallTargets(name, targets) => self.call_targets(name, targets),
            Statement::Location(_) | Statement::Pragma(_) | Statement::Block(_) => {}
        }
    }

    fn branch_targets(&mut self, name: &'m Name, targets: &'m [Name]) {
        let labels: Vec<Option<LabelId>> = targets.iter().map(|target| self.label(target)).collect();
        for (target, label) in targets.iter().zip(&labels) {
            if label.is_none() {
                let message = format!("`{name}` lists `{target}`, which is no label of this function");
                self.problem(message);
            }
        }
        self.body.branch_targets.push(labels);
        let table = TableId(self.body.branch_targets.len() as u32 - 1);
        self.list(name, Declared::BranchTargets(table));
    }

    fn call_targets(&mut self, name: &'m Name, targets: &'m [Name]) {
        let mut functions = Vec::new();
        for target in targets {
            let function = match self.resolve(target) {
                Symbol::Function(function) => Some(function),
                _ => {
                    self.problem(format!("`{name}` lists `{target}`, which is no function"));
                    None
                }
            };
            functions.push(function);
        }
        self.body.call_targets.push(functions);
        let table = TableId(self.body.call_targets.len() as u32 - 1);
        self.list(name, Declared::CallTargets(table));
    }

    /// Declares the name of a list or a prototype.
    fn list(&mut self, name: &'m Name, what: Declared<'m>) {
        let is_label = self.scopes.last().is_some_and(|scope| scope.labels.contains_key(&**name));
        if self.declare(name, None, what) || is_label {
            self.problem(format!("`{name}` is declared twice in this scope: rename one"));
        }
    }

    /// Something is wrong with a statement that has no position of its own.
    fn problem(&mut self, message: String) {
        self.body.problems.push(Diagnostic::new(Position::default(), message));
    }

    fn label(&self, name: &str) -> Option<LabelId> {
        self.scopes.iter().rev().find_map(|scope| scope.labels.get(name)).copied()
    }

    fn instruction(&mut self, instruction: &'m Instruction) {
        let guard = instruction
            .predicate
            .as_ref()
            .map(|predicate| Guard { symbol: self.resolve(&predicate.register), negated: predicate.negated });
        let operands = instruction.operands.iter().map(|operand| self.operand(operand)).collect();
        let location = self.location;
        self.body.lines.push(Line { instruction, guard, operands, location });
    }

    fn operand(&mut self, operand: &'m tree::Operand) -> Operand<'m> {
        match operand {
            tree::Operand::Name(name) => Operand::Name(self.resolve(name)),
            tree::Operand::Component(name, selector) => Operand::Component(self.resolve(name), selector),
            tree::Operand::Offset(name, bytes) => Operand::Offset(self.resolve(name), *bytes),
            tree::Operand::Element(name, index) => {
                let array = self.resolve(name);
                Operand::Element(array, index.wrapping_mul(self.scalar_bytes(array).into()))
            }
            tree::Operand::Indexed(name, register, plus) => {
                let array = self.resolve(name);
                let size = self.scalar_bytes(array);
                Operand::Indexed(Indexed { array, index: self.resolve(register), plus: *plus as u32, size })
            }
            tree::Operand::Constant(constant) => Operand::Constant(*constant),
            tree::Operand::Not(name) => Operand::Not(self.resolve(name)),
            tree::Operand::Negated(name) => Operand::Negated(self.resolve(name)),
            tree::Operand::Sink => Operand::Sink,
            tree::Operand::Pair(first, second) => {
                Operand::Pair(self.operand(first).into(), self.operand(second).into())
            }
            tree::Operand::Vector(parts) => Operand::Vector(self.operands(parts)),
            tree::Operand::List(parts) => Operand::List(self.operands(parts)),
            tree::Operand::Address(address) => {
                let base = match &address.base {
                    tree::AddressBase::Name(name) => Base::Name(self.resolve(name)),
                    tree::AddressBase::Component(name, selector) => {
                        Base::Component(self.resolve(name), selector)
                    }
                    tree::AddressBase::Absolute => Base::Absolute,
                };
                let rest = self.operands(&address.rest);
                Operand::Address(Address { base, offset: address.offset, rest })
            }
        }
    }

    /// Bytes that an index of an array counts: those of a scalar, in arrays of vectors too.
    fn scalar_bytes(&self, array: Symbol<'m>) -> u32 {
        match array {
            Symbol::Variable(id) => self.body.variable(id).ty.bytes() as u32,
            _ => 1,
        }
    }

    fn operands(&mut self, operands: &'m [tree::Operand]) -> Vec<Operand<'m>> {
        operands.iter().map(|operand| self.operand(operand)).collect()
    }

    /// Returns the meaning of a name at this place.
    fn resolve(&mut self, name: &'m Name) -> Symbol<'m> {
        for scope in self.scopes.iter().rev() {
            if let Some((declared, number)) = scope.find(name) {
                return match declared {
                    Declared::Registers(declaration) => self.register(declaration, number),
                    other => other.symbol().expect("everything but registers is a symbol"),
                };
            }
            if let Some(&label) = scope.labels.get(&**name) {
                return Symbol::Label(label);
            }
        }
        if let Some(special) = SpecialRegister::from_name(name) {
            return Symbol::Special(special);
        }
        match self.names.before(self.item, name) {
            Some(Global::Function(function)) => Symbol::Function(function),
            Some(Global::Variable(variable)) => {
                let variables = &mut self.body.variables;
                let id = self.globals.entry(&variable.name).or_insert_with(|| {
                    variables.push(UsedVariable { declaration: variable, home: Home::Module });
                    VariableId(variables.len() as u32 - 1)
                });
                Symbol::Variable(*id)
            }
            None => self.undeclared(name),
        }
    }

    fn register(&mut self, declaration: u32, number: u32) -> Symbol<'m> {
        let variable = self.declarations[declaration as usize];
        let registers = &mut self.body.registers;
        let id = *self.registers.entry((declaration, number)).or_insert_with(|| {
            let first = RegisterId(registers.len() as u32);
            let register = Register {
                declaration: Some(variable),
                stem: &variable.name,
                number: variable.count.map(|_| number),
                component: None,
            };
            match variable.vector {
                0 | 1 => registers.push(register),
                _ => registers.extend(
                    (0..COMPONENTS as u8).map(|place| Register { component: Some(place), ..register }),
                ),
            }
            first
        });
        if variable.vector > 1 { Symbol::Vector(id) } else { Symbol::Register(id) }
    }

    fn undeclared(&mut self, name: &'m Name) -> Symbol<'m> {
        let registers = &mut self.body.registers;
        Symbol::Register(*self.undeclared.entry(name).or_insert_with(|| {
            registers.push(Register { declaration: None, stem: name, number: None, component: None });
            RegisterId(registers.len() as u32 - 1)
        }))
    }
}
