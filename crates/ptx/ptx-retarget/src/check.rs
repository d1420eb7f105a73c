//! Finds the kernels of a module that a GPU takes. What the verifier refuses, no driver takes, and
//! a driver takes a module as a whole or not at all.

use std::collections::{HashMap, HashSet};

use ptx::body::{Body, Names, Operand, Symbol};
use ptx::forms::Need;
use ptx::{Function, Module, Statement, needs};

use crate::cost::{self, Cost};
use crate::gates::{Catalog, of_declarations, special_registers};
use crate::lowering::{Blocked, Change, Lowered, lower};
use crate::{Gpu, Header};

/// Verdict on a kernel for one GPU.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The kernel runs as it is.
    Runs,
    /// It runs after these changes and with this header; without changes, the header alone is too
    /// new.
    Lowered(Header, Vec<Change>),
    /// It does not run.
    Cannot(Vec<Blocked>),
}

impl Verdict {
    /// Whether every change is exact.
    pub fn is_exact(&self) -> bool {
        match self {
            Verdict::Lowered(_, changes) => changes.iter().all(|change| change.row.exact),
            _ => true,
        }
    }
}

/// A kernel and what a GPU does with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// The line of its name, from 1.
    pub line: u32,
    /// The verdict, with approximate changes if exact ones do not suffice.
    pub verdict: Verdict,
    /// What it costs after changes of instructions, predicted; of the first [`MOST_COSTS`] kernels
    /// with some.
    pub cost: Option<Cost>,
}

/// Kernels of a module whose costs are predicted at most: each takes about a millisecond.
pub const MOST_COSTS: usize = 64;

/// Judges each kernel that the module defines, together with the functions that it may call.
pub fn check(module: &Module, gpu: Gpu) -> Vec<Kernel> {
    let names = Names::new(module);
    let kernels = module.kernels();
    let graph = Graph::of(module, &names);
    let lowered = lower(module, gpu, true);
    let mut invalid = invalid(module, &names);
    let lowered = Lowered { blocked: explained(lowered.blocked, &mut invalid, module), ..lowered };
    let mut kernels: Vec<Kernel> = kernels
        .map(|kernel| {
            let reached = graph.reached(kernel);
            // What belongs to no function concerns the whole module.
            let of = |name: &str| name.is_empty() || reached.contains(name);
            let blocked = lowered.blocked.iter().chain(&invalid).filter(|found| of(&found.function));
            let blocked: Vec<Blocked> = blocked.cloned().collect();
            let changes: Vec<Change> =
                lowered.changes.iter().filter(|change| of(&change.function)).cloned().collect();
            let verdict = match lowered.headers {
                _ if !blocked.is_empty() => Verdict::Cannot(blocked),
                Some((own, _)) if changes.is_empty() && gpu.takes(own) => Verdict::Runs,
                Some((_, after)) => Verdict::Lowered(after, changes),
                None => Verdict::Cannot(vec![no_target(kernel)]),
            };
            Kernel { name: kernel.name.to_string(), line: kernel.position.line, verdict, cost: None }
        })
        .collect();
    predict(&mut kernels, module, &lowered.module);
    kernels
}

/// Predicts what kernels with changes cost.
fn predict(kernels: &mut [Kernel], module: &Module, lowered: &Module) {
    let is_changed =
        |kernel: &&mut Kernel| matches!(&kernel.verdict, Verdict::Lowered(_, changes) if !changes.is_empty());
    for kernel in kernels.iter_mut().filter(is_changed).take(MOST_COSTS) {
        let function = lowered.functions().find(|function| *function.name == *kernel.name);
        kernel.cost = function.and_then(|function| cost::of_kernel(module, lowered, function));
    }
}

fn no_target(kernel: &Function) -> Blocked {
    let (function, line) = (kernel.name.clone(), kernel.position.line);
    let form = ".target".to_owned();
    Blocked { function, line, form, needs: Vec::new(), approximate: None, refusal: None }
}

/// What the module may not use by its own header: no driver takes it, the newest included.
fn invalid(module: &Module, names: &Names<'_>) -> Vec<Blocked> {
    let Some(header) = Header::of(module) else { return Vec::new() };
    let catalog = Catalog::default();
    let mut found = Vec::new();
    if !header.is_known() {
        let since = header.target.exists().then(|| Header { version: header.target.since(), ..header });
        found.push(Blocked::by_header(header, since.map(Header::as_need)));
    }
    for function in module.functions().filter(|function| function.body.is_some()) {
        let mut note = |line: u32, form: String, needs: Vec<_>| {
            if !header.meets(&needs) {
                let function = function.name.clone();
                let refusal = Some(by_own_header(header, &needs));
                found.push(Blocked { function, line, form, needs, approximate: None, refusal });
            }
        };
        for need in of_declarations(function) {
            note(function.position.line, "a variable of this type".to_owned(), vec![need]);
        }
        let body = names.body(function);
        for line in &body.lines {
            let place = line.instruction.position.line;
            for register in special_registers(line) {
                note(place, register.name(), vec![needs::of_register(register)]);
            }
            note(place, line.instruction.mnemonic.text().to_owned(), catalog.of_instruction(&body, line));
        }
    }
    found
}

/// Says that the module's own header does not allow what it uses.
fn by_own_header(own: Header, needs: &[Need]) -> String {
    let needs: Vec<String> = needs.iter().map(ToString::to_string).collect();
    match needs.is_empty() {
        true => "is in no table of PTX, or has other operands".to_owned(),
        false => format!("needs {} in the module's header, which says {own}", needs.join(", or ")),
    }
}

/// Adds what the verifier refuses to `invalid`, and gives what a GPU lacks with the verifier's
/// reason where no table has the form.
fn explained(blocked: Vec<Blocked>, invalid: &mut Vec<Blocked>, module: &Module) -> Vec<Blocked> {
    let mut problems: HashMap<u32, Vec<String>> = HashMap::new();
    for problem in ptx::verify(module) {
        problems.entry(problem.position.line).or_default().push(problem.message);
    }
    let mut told: HashSet<u32> = HashSet::new();
    let explain = |found: Blocked| {
        let problem = problems.get(&found.line).filter(|_| found.needs.is_empty() && found.line > 0);
        match problem {
            Some(messages) => Blocked { refusal: Some(messages.join("; ")), ..found },
            None => found,
        }
    };
    let blocked: Vec<Blocked> = blocked.into_iter().map(explain).collect();
    *invalid = std::mem::take(invalid).into_iter().map(explain).collect();
    told.extend(blocked.iter().filter(|found| found.needs.is_empty()).map(|found| found.line));
    told.extend(invalid.iter().map(|found| found.line));
    // (A header that no driver takes is told with line 0.)
    let is_header_told = told.contains(&0);
    let mut rest: Vec<(u32, Vec<String>)> = problems
        .into_iter()
        .filter(|(line, _)| !(told.contains(line) || *line == 1 && is_header_told))
        .collect();
    rest.sort();
    invalid.extend(rest.into_iter().map(|(line, messages)| Blocked {
        function: "".into(),
        line,
        form: String::new(),
        needs: Vec::new(),
        approximate: None,
        refusal: Some(messages.join("; ")),
    }));
    blocked
}

/// Functions that each function may call.
struct Graph {
    /// By name: those that it names.
    callees: HashMap<String, Vec<String>>,
    /// Functions with calls through registers, which may reach every function that is named
    /// somewhere else than in a call.
    indirect: HashSet<String>,
    addressed: Vec<String>,
}

impl Graph {
    fn of(module: &Module, names: &Names<'_>) -> Graph {
        let mut graph = Graph { callees: HashMap::new(), indirect: HashSet::new(), addressed: Vec::new() };
        for function in module.functions().filter(|function| function.body.is_some()) {
            graph.note(&names.body(function));
        }
        // Tables in variables name functions too.
        let functions: HashSet<&str> = module.functions().map(|function| &*function.name).collect();
        let note_table = |variable: &ptx::Variable, addressed: &mut Vec<String>| {
            if let Some(initializer) = &variable.initializer {
                symbols(initializer, &mut |name| {
                    if functions.contains(name) {
                        addressed.push(name.to_owned());
                    }
                });
            }
        };
        module.variables().for_each(|variable| note_table(variable, &mut graph.addressed));
        for function in module.functions() {
            function.visit(&mut |statement| {
                if let Statement::Variable(variable) = statement {
                    note_table(variable, &mut graph.addressed);
                }
            });
        }
        graph
    }

    fn note(&mut self, body: &Body<'_>) {
        let mut callees = Vec::new();
        for line in &body.lines {
            let is_call = line.instruction.mnemonic.opcode() == "call";
            let mut named = Vec::new();
            line.operands.iter().for_each(|operand| functions(operand, &mut named));
            if is_call && named.is_empty() {
                self.indirect.insert(body.function.name.to_string());
            }
            if !is_call {
                self.addressed.extend(named.iter().cloned());
            }
            callees.extend(named);
        }
        callees.extend(body.call_targets.iter().flatten().flatten().map(|target| target.name.to_string()));
        self.callees.insert(body.function.name.to_string(), callees);
    }

    /// The names of a kernel and of all that it may call.
    fn reached(&self, kernel: &Function) -> HashSet<String> {
        let mut reached = HashSet::new();
        let mut open = vec![kernel.name.to_string()];
        while let Some(name) = open.pop() {
            if self.indirect.contains(&name) {
                open.extend(self.addressed.iter().filter(|other| !reached.contains(*other)).cloned());
            }
            let callees = self.callees.get(&name).into_iter().flatten();
            open.extend(callees.filter(|callee| !reached.contains(*callee)).cloned());
            reached.insert(name);
        }
        reached
    }
}

/// Notes the functions that an operand names. The parser bounds how deep operands nest.
fn functions(operand: &Operand<'_>, named: &mut Vec<String>) {
    match operand {
        Operand::Name(Symbol::Function(function)) | Operand::Offset(Symbol::Function(function), _) => {
            named.push(function.name.to_string());
        }
        Operand::Vector(items) | Operand::List(items) => items.iter().for_each(|item| functions(item, named)),
        _ => {}
    }
}

/// Calls `note` for each symbol of an initial value. The parser bounds the depth.
fn symbols(initializer: &ptx::Initializer, note: &mut impl FnMut(&str)) {
    match initializer {
        ptx::Initializer::Symbol(symbol) => note(&symbol.name),
        ptx::Initializer::List(items) => items.iter().for_each(|item| symbols(item, note)),
        _ => {}
    }
}
