//! Checks that a module is PTX that an assembler accepts.
//!
//! [`verify`] looks at everything and gives every problem that it finds, in source order. It judges
//! by the table of [`forms`] and by the ISA's rules for names and types, as far as ptxas applies
//! them: what it refuses, ptxas refuses too; what nvcc, NVRTC and Triton write passes.
//! `tests/verify.rs` holds it to both: of 5,171 random changes to single instructions of real
//! modules, ptxas 13.5 and the verifier refuse 4,365, neither 801, ptxas alone 5.
//!
//! The CPU device takes no module with a problem. Tests run the verifier on generated PTX.
//!
//! # What is checked
//!
//! 1. Version, target and the target's options exist, and the version knows the target. Addresses
//!    have 64 bits; a module for debugging has a section about it.
//! 2. No name is declared twice in one scope, no function defined twice, no label set twice in one
//!    scope; functions that are declared again take and return as many parameters.
//! 3. Entries return nothing, have counts of threads from 1 on, and not both a required and a
//!    maximum block. Variables have bytes, and are not wider than a vector may be. Only `.global`
//!    and `.const` variables have initial values; these are not longer than the variable, name what
//!    exists, and numbers are of the variable's kind.
//! 4. Every instruction is in the table, with its modifiers in any order that keeps types and
//!    layouts in theirs; the module's version and target have it.
//! 5. Operands are as many as the form wants, and each of its kind: register, constant, predicate,
//!    vector of that length, address, label, pair. Registers have the width and class of the form's
//!    type, with the freedom that loads, stores and conversions give. Numbers are of the type's
//!    kind, and within bounds where the form states some. Results go to registers. Special
//!    registers are read by `mov` and `cvt` only, and where the module's version and target have
//!    them; the same holds for directives of functions.
//! 6. Names resolve: registers, variables, functions, components of vectors, labels, tables of
//!    targets, prototypes.
//! 7. Addresses start from integer registers or from variables in the space that the instruction
//!    names. Generic and global addresses have 64 bits. The registers of a vector have one width.
//! 8. Guards are predicates.
//! 9. Calls pass and get as many parameters as the function or the prototype has, of the same size
//!    and, for arrays, alignment.
//! 10. A kernel's parameters, the shared memory that it and its callees declare, and the module's
//!     constants are within the limits. `shfl` and `vote` have `.sync` where version and target
//!     want it.
//!
//! # What is not checked
//!
//! Modifiers that are repeated or in an order that the ISA has not, as long as types and layouts
//! are in theirs; a `.pred` that ptxas ignores beside another type is refused. Tables of targets
//! that stand after the instruction that names them. Functions where an integer is read: ptxas
//! takes their address. Values: constants that an instruction cuts to its width, sizes of copies,
//! alignment of addresses, offsets beyond a variable. Whether registers are written before they are
//! read. Control flow: whether the end of a function is reached, whether barriers are. Performance
//! hints. Debugging sections, `.loc`. `.extern` against the definition in another module.

mod call;
mod data;
mod header;
mod limits;
mod operand;
mod types;

use std::collections::HashMap;

use crate::body::{Body, Line, Names};
use crate::diagnostic::Diagnostic;
use crate::diagnostic::Position;
use crate::forms::{self, Instance, Need, Target, Unknown};
use crate::needs;
use crate::syntax::{Function, FunctionKind, Item, Module, Statement};
use operand::Operands;

/// Every problem of the module, in source order; none if it is fine.
pub fn verify(module: &Module) -> Vec<Diagnostic> {
    let names = Names::new(module);
    let mut verifier = Verifier {
        module,
        names: &names,
        target: None,
        forms: HashMap::new(),
        problems: names.problems.clone(),
        has_much_shared: limits::has_much_shared(module),
    };
    verifier.header();
    for (index, item) in module.items.iter().enumerate() {
        match item {
            Item::Variable(variable) => verifier.variable(variable, index, None),
            Item::Function(function) => verifier.function(function, index),
            _ => {}
        }
    }
    verifier.constants();
    verifier.problems.sort_by_key(|problem| (problem.position.line, problem.position.column));
    verifier.problems
}

/// Whether an instruction is this instance: its operands are as many as the instance takes, and
/// each is of its kind. The instance's modifiers and needs are not compared.
pub fn takes<'m>(body: &Body<'m>, line: &Line<'m>, instance: &Instance) -> bool {
    Operands { body }.fit(line, instance).is_ok()
}

struct Verifier<'n, 'm> {
    module: &'m Module,
    names: &'n Names<'m>,
    /// `None` where the module's makes no sense.
    target: Option<Target>,
    /// The instances of each mnemonic met so far, or why there are none.
    forms: HashMap<&'m str, std::rc::Rc<Result<Vec<Instance>, Unknown>>>,
    problems: Vec<Diagnostic>,
    /// Whether all shared variables together are more than a kernel may have.
    has_much_shared: bool,
}

impl<'m> Verifier<'_, 'm> {
    fn problem(&mut self, position: Position, message: impl Into<String>) {
        self.problems.push(Diagnostic::new(position, message));
    }

    fn function(&mut self, function: &'m Function, item: usize) {
        if function.kind == FunctionKind::Entry && !function.returns.is_empty() {
            let message = format!("the entry `{}` cannot return anything: use `.func`", function.name);
            self.problem(function.position, message);
        }
        self.directives(function);
        if function.kind == FunctionKind::Entry {
            self.parameters(function);
        }
        if function.body.is_none() {
            return;
        }
        let body = self.names.body(function);
        self.problems.extend(body.problems.iter().cloned());
        for parameter in function.returns.iter().chain(&function.params).filter(|p| &*p.name != "_") {
            self.variable(parameter, item, Some(&body));
        }
        function.visit(&mut |statement| {
            if let Statement::Variable(variable) = statement {
                self.variable(variable, item, Some(&body));
            }
        });
        for line in &body.lines {
            self.instruction(line, &body);
        }
        if function.kind == FunctionKind::Entry && self.has_much_shared {
            self.shared(function);
        }
    }

    fn instruction(&mut self, line: &Line<'m>, body: &Body<'m>) {
        let (instruction, position) = (line.instruction, line.instruction.position);
        let operands = Operands { body };
        if let Some(guard) = &line.guard
            && let Err(message) = operands.predicate_register(guard.symbol)
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
            Ok(instances) => match self.against(line, instances, operands) {
                Ok(()) => {
                    self.retired(line);
                    return self.special_registers(line);
                }
                Err(message) => message,
            },
        };
        self.problem(position, message);
    }

    /// Checks that the module's version and target have the special registers.
    fn special_registers(&mut self, line: &Line<'m>) {
        let mut found = Vec::new();
        line.operands
            .iter()
            .for_each(|operand| operand.special_registers(&mut |register| found.push(register)));
        for register in found {
            let missing = self.unmet(&register.name(), &[needs::of_register(register)]);
            missing.into_iter().for_each(|message| self.problem(line.instruction.position, message));
        }
    }

    /// Checks that some instance takes the operands and exists for the module's version and target;
    /// the error is that of the most promising instance.
    fn against(
        &self,
        line: &Line<'m>,
        instances: &[Instance],
        operands: Operands<'_, 'm>,
    ) -> Result<(), String> {
        let mut best: Option<(usize, String)> = None;
        for instance in instances {
            let (progress, message) = match operands.fit(line, instance) {
                Err(wrong) => wrong,
                Ok(()) => match self.missing(instance) {
                    None => return operands.call_signature(line),
                    Some(message) => (usize::MAX, message),
                },
            };
            if best.as_ref().is_none_or(|(furthest, _)| progress > *furthest) {
                best = Some((progress, message));
            }
        }
        Err(best.map_or_else(|| "no form fits".to_owned(), |(_, message)| message))
    }

    /// Describes the instance's alternative needs if the module meets none of them.
    fn missing(&self, instance: &Instance) -> Option<String> {
        self.unmet(&instance.mnemonic, &instance.needs)
    }

    /// Describes the alternative needs of `what` if the module meets none of them.
    fn unmet(&self, what: &str, needs: &[Need]) -> Option<String> {
        let (version, target) = (self.module.version, self.target?);
        if needs.iter().any(|need| need.is_met(version, target)) {
            return None;
        }
        let needs: Vec<String> = needs.iter().map(ToString::to_string).collect();
        Some(format!(
            "`{what}` needs {}; the module is for PTX {}.{} and {target}",
            needs.join(", or "),
            version.0,
            version.1
        ))
    }
}
