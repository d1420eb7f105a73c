//! Whether a module is PTX that an assembler would take.
//!
//! [`verify`] looks at everything and gives every problem that it finds, in source order. It judges by the table of
//! [`forms`] and by the ISA's rules for names and types, as far as ptxas applies them: what it refuses, ptxas refuses
//! too; what nvcc, NVRTC and Triton write passes. `tests/verify.rs` holds it to both: of 5,171 random changes to single
//! instructions of real modules, ptxas 13.5 and the verifier refuse 4,365, neither 801, ptxas alone 5.
//!
//! # What is checked
//!
//! 1. The target exists, and the module's version knows it.
//! 2. No name is declared twice in one scope, no function defined twice, no label set twice in one scope; functions
//!    that are declared again take and return as many parameters.
//! 3. Entries return nothing. Variables are not wider than a vector may be. Only `.global` and `.const` variables have
//!    initial values; these are not longer than the variable, name what exists, and numbers are of the variable's kind.
//! 4. Every instruction is in the table, with its modifiers in any order that keeps types and layouts in theirs; the
//!    module's version and target have it.
//! 5. Operands are as many as the form wants, and each of its kind: register, constant, predicate, vector of that
//!    length, address, label, pair. Registers have the width and class of the form's type, with the freedom that loads,
//!    stores and conversions give. Numbers are of the type's kind, and within bounds where the form states some. Results
//!    go to registers. Special registers are read by `mov` and `cvt` only.
//! 6. Names resolve: registers, variables, functions, components of vectors, labels, tables of targets, prototypes.
//! 7. Addresses start from integer registers or from variables in the space that the instruction names.
//! 8. Guards are predicates.
//! 9. Calls pass and get as many parameters as the function or the prototype has, of the same size and, for arrays,
//!    alignment.
//!
//! # What is not checked
//!
//! Modifiers that are repeated or in an order that the ISA has not, as long as types and layouts are in theirs; a `.pred`
//! that ptxas ignores beside another type is refused. Functions where an integer is read: ptxas takes their address.
//! Values: constants that an instruction cuts to its width, barrier numbers, thread counts, sizes of copies, alignment of
//! addresses, offsets beyond a variable. Whether registers are written before they are read. Control flow: whether
//! the end of a function is reached, whether barriers are. Directives of functions and performance hints. The sum of
//! parameters, shared and constant memory against limits. Instructions that ptxas refuses from some target on
//! (`shfl` without `.sync`). Debugging sections, `.loc`. `.extern` against the definition in another module.

mod call;
mod data;
mod names;
mod operand;
mod types;

use std::collections::{HashMap, HashSet};

use crate::diagnostic::Diagnostic;
use crate::forms::{self, Instance, Target, Unknown};
use crate::syntax::{
    Function, FunctionKind, Instruction, Item, Module, Name, Position, Prototype, Statement, Variable,
};
use names::{Scope, Symbol};

/// Every problem of the module; none if it is fine.
pub fn verify(module: &Module) -> Vec<Diagnostic> {
    let mut verifier = Verifier {
        module,
        target: None,
        scopes: vec![Scope::default()],
        labels: Labels::default(),
        forms: HashMap::new(),
        problems: Vec::new(),
    };
    verifier.header();
    for item in &module.items {
        verifier.item(item);
    }
    verifier.problems
}

struct Verifier<'m> {
    module: &'m Module,
    /// `None` where the module's makes no sense.
    target: Option<Target>,
    /// The module's scope first, the innermost last.
    scopes: Vec<Scope<'m>>,
    /// Of the function that is being looked at.
    labels: Labels<'m>,
    /// What the table says to each mnemonic met so far.
    forms: HashMap<&'m str, std::rc::Rc<Result<Vec<Instance>, Unknown>>>,
    problems: Vec<Diagnostic>,
}

/// What a function labels; labels may be used before they stand.
#[derive(Default)]
struct Labels<'m> {
    places: HashSet<&'m str>,
    prototypes: HashMap<&'m str, &'m Prototype>,
    call_targets: HashMap<&'m str, &'m [Name]>,
    branch_targets: HashSet<&'m str>,
}

impl<'m> Labels<'m> {
    fn of(function: &'m Function) -> Self {
        let mut labels = Labels::default();
        function.visit(&mut |statement| match statement {
            Statement::Label(name, _) => {
                labels.places.insert(name);
            }
            Statement::Prototype(prototype) => {
                labels.prototypes.insert(&prototype.name, prototype);
            }
            Statement::CallTargets(name, targets) => {
                labels.call_targets.insert(name, targets);
            }
            Statement::BranchTargets(name, _) => {
                labels.branch_targets.insert(name);
            }
            _ => {}
        });
        labels
    }
}

impl<'m> Verifier<'m> {
    fn problem(&mut self, position: Position, message: impl Into<String>) {
        self.problems.push(Diagnostic::new(position, message));
    }

    /// What a name means here: innermost scope first.
    fn lookup(&self, name: &str) -> Option<Symbol<'m>> {
        let declared = self.scopes.iter().rev().find_map(|scope| scope.lookup(name));
        declared.or_else(|| names::special(name).map(Symbol::Special))
    }

    fn scope(&mut self) -> &mut Scope<'m> {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn header(&mut self) {
        let start = Position { line: 1, column: 1 };
        let (major, minor) = self.module.version;
        let Some(name) = self.module.target.first() else {
            return self.problem(start, "the module has no target: name one, such as `.target sm_80`");
        };
        match name.parse::<Target>() {
            Err(message) => self.problem(start, message),
            Ok(target) => {
                self.target = Some(target);
                let since = target.since();
                if self.module.version < since {
                    let message = format!(
                        "PTX {major}.{minor} has no target {target}: write `.version {}.{}` or newer",
                        since.0, since.1
                    );
                    self.problem(start, message);
                }
            }
        }
    }

    fn item(&mut self, item: &'m Item) {
        match item {
            Item::Variable(variable) => self.declare(variable),
            Item::Function(function) => self.function(function),
            Item::Alias { name, function } => {
                if !matches!(self.lookup(function), Some(Symbol::Function(_))) {
                    let message = format!("`{name}` is an alias of `{function}`, which is no function");
                    self.problem(Position::default(), message);
                }
            }
            Item::File(_) | Item::Section(_) | Item::Pragma(_) => {}
        }
    }

    fn declare(&mut self, variable: &'m Variable) {
        self.variable(variable);
        let before = self.scope().variable(variable);
        // A variable may be declared `.extern` and defined later.
        let again = match before {
            None => false,
            Some(Symbol::Variable(other)) => {
                let external = crate::syntax::Linkage::Extern;
                !(other.linkage == external || variable.linkage == external)
            }
            Some(_) => true,
        };
        if again {
            let message = format!("`{}` is declared twice in this scope: rename one", variable.name);
            self.problem(variable.position, message);
        }
    }

    fn function(&mut self, function: &'m Function) {
        match self.scope().function(function) {
            None => {}
            Some(Symbol::Function(other)) => self.redeclaration(function, other),
            Some(_) => {
                let message = format!("`{}` is a variable already: rename one", function.name);
                self.problem(function.position, message);
            }
        }
        if function.kind == FunctionKind::Entry && !function.returns.is_empty() {
            let message = format!("the entry `{}` cannot return anything: use `.func`", function.name);
            self.problem(function.position, message);
        }
        let Some(body) = &function.body else { return };
        self.labels = Labels::of(function);
        self.scopes.push(Scope::default());
        for parameter in function.returns.iter().chain(&function.params).filter(|p| &*p.name != "_") {
            self.declare(parameter);
        }
        self.statements(body);
        self.scopes.pop();
    }

    fn redeclaration(&mut self, function: &'m Function, other: &'m Function) {
        if function.body.is_some() && other.body.is_some() {
            let message = format!("`{}` is defined twice: remove or rename one", function.name);
            self.problem(function.position, message);
        }
        let counts = |function: &Function| (function.returns.len(), function.params.len());
        if counts(function) != counts(other) {
            let message = format!(
                "`{}` was declared with {} parameters and {} results, here it has {} and {}",
                function.name,
                other.params.len(),
                other.returns.len(),
                function.params.len(),
                function.returns.len()
            );
            self.problem(function.position, message);
        }
    }

    /// The statements of one pair of braces, whose scope is open. The parser bounds how deep they nest.
    fn statements(&mut self, statements: &'m [Statement]) {
        let mut labels: HashSet<&str> = HashSet::new();
        for statement in statements {
            match statement {
                Statement::Label(name, position) => {
                    if !labels.insert(name) {
                        self.problem(*position, format!("the label `{name}` stands twice in this scope"));
                    }
                }
                Statement::Instruction(instruction) => self.instruction(instruction),
                Statement::Variable(variable) => self.declare(variable),
                Statement::Block(inner) => {
                    self.scopes.push(Scope::default());
                    self.statements(inner);
                    self.scopes.pop();
                }
                Statement::BranchTargets(name, targets) => {
                    for target in targets.iter().filter(|target| !self.labels.places.contains(&***target)) {
                        let message =
                            format!("`{name}` lists `{target}`, which is no label of this function");
                        self.problems.push(Diagnostic::new(Position::default(), message));
                    }
                }
                Statement::CallTargets(name, targets) => {
                    for target in targets {
                        if !matches!(self.lookup(target), Some(Symbol::Function(_))) {
                            let message = format!("`{name}` lists `{target}`, which is no function");
                            self.problem(Position::default(), message);
                        }
                    }
                }
                Statement::Location(_) | Statement::Pragma(_) | Statement::Prototype(_) => {}
            }
        }
    }

    fn instruction(&mut self, instruction: &'m Instruction) {
        let position = instruction.position;
        if let Some(guard) = &instruction.predicate
            && let Err(message) = self.predicate_register(&guard.register)
        {
            self.problem(position, format!("the guard must be a `.pred` register: {message}"));
        }
        let text = instruction.mnemonic.text();
        let found = self.forms.entry(text).or_insert_with(|| forms::in_any_order(text).into()).clone();
        let message = match &*found {
            Err(Unknown::Opcode) => format!("unknown instruction `{}`", instruction.mnemonic.opcode()),
            Err(Unknown::Modifier(modifier)) => {
                format!(
                    "unknown instruction `{text}`: no form of `{}` has `.{modifier}` there",
                    instruction.mnemonic.opcode()
                )
            }
            Err(Unknown::Incomplete) => {
                format!("unknown instruction `{text}`: a modifier is missing at its end")
            }
            Ok(instances) => match self.against(instruction, instances) {
                Ok(()) => return,
                Err(message) => message,
            },
        };
        self.problem(position, message);
    }

    /// Whether some instance takes the operands and is there for the module's version and target; else what is wrong
    /// with the most promising one.
    fn against(&self, instruction: &'m Instruction, instances: &[Instance]) -> Result<(), String> {
        let mut best: Option<(usize, String)> = None;
        for instance in instances {
            let (progress, message) = match self.operands(instruction, instance) {
                Err(wrong) => wrong,
                Ok(()) => match self.missing(instance) {
                    None => return self.call_signature(instruction),
                    Some(message) => (usize::MAX, message),
                },
            };
            if best.as_ref().is_none_or(|(furthest, _)| progress > *furthest) {
                best = Some((progress, message));
            }
        }
        Err(best.map_or_else(|| "no form fits".to_owned(), |(_, message)| message))
    }

    /// What the module lacks for the instance, in words.
    fn missing(&self, instance: &Instance) -> Option<String> {
        let (version, target) = (self.module.version, self.target?);
        if instance.needs.iter().any(|need| need.is_met(version, target)) {
            return None;
        }
        let needs: Vec<String> = instance.needs.iter().map(ToString::to_string).collect();
        Some(format!(
            "`{}` needs {}; the module is for PTX {}.{} and {target}",
            instance.mnemonic,
            needs.join(", or "),
            version.0,
            version.1
        ))
    }
}
