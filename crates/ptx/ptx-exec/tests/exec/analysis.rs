//! Checks that the executor computes what `ptx::analysis` determines about registers and addresses.
//!
//! [`checked`] adds to a module, after every instruction whose result is known as a sum and before
//! every access whose address is, code that computes the same out of special registers, parameters
//! and counters of rounds, and traps where the two differ. The kernels of the corpus and random
//! ones are executed in that form.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use cuda_launch::LaunchConfig;
use ptx::analysis::{Address, Atom, Definition, Element, Origin, Sum, Values};
use ptx::body::{Body, Home, InstructionId, Names, Operand, RegisterId, Symbol};
use ptx::flow::Flow;
use ptx::instruction::{Control, Operations, accesses};
use ptx::{Instruction, Item, Module, Statement};
use ptx_exec::LaunchParams;

use crate::device::{Device, pack};
use apex_random::Random;

/// Texts that go before and after instructions.
#[derive(Default)]
struct Insertions {
    before: BTreeMap<usize, String>,
    after: BTreeMap<usize, String>,
    /// Declarations at the beginning of the body, and what follows them.
    start: String,
}

/// The checks of a function.
struct Checks<'a, 'm> {
    body: &'a Body<'m>,
    operations: &'a Operations,
    flow: &'a Flow,
    values: &'a Values,
    insertions: Insertions,
    /// Copies of values of which nothing is known, by number.
    copies: HashMap<Definition, usize>,
    rounds: BTreeSet<u32>,
    temporaries: usize,
    /// Sums that were compared, and how many of them depend on a loop.
    compared: (usize, usize),
}

impl Checks<'_, '_> {
    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("%check{}", self.temporaries)
    }

    fn name(&self, register: RegisterId) -> Option<String> {
        let known = &self.body.registers[register.index()];
        known.component.is_none().then(|| self.body.name(Symbol::Register(register)).into_owned())
    }

    fn bits(&self, register: RegisterId) -> u64 {
        self.body.registers[register.index()].declaration.map_or(0, |variable| 8 * variable.ty.bytes())
    }

    /// Code that computes a sum into a 64-bit register, which it names; none if it depends on what
    /// cannot be copied.
    fn compute(&mut self, sum: &Sum, code: &mut String) -> Option<String> {
        let result = self.temporary();
        writeln!(code, "mov.u64 {result}, {};", sum.constant as i64).unwrap();
        for term in &sum.terms {
            let product = self.temporary();
            writeln!(code, "mov.u64 {product}, {};", term.coefficient as i64).unwrap();
            for &factor in &term.factors {
                let factor = self.atom(self.values.sums().atom(factor), code)?;
                writeln!(code, "mul.lo.u64 {product}, {product}, {factor};").unwrap();
            }
            writeln!(code, "add.u64 {result}, {result}, {product};").unwrap();
        }
        if sum.bits == 32 {
            writeln!(code, "and.b64 {result}, {result}, 0xffffffff;").unwrap();
        }
        Some(result)
    }

    fn atom(&mut self, atom: Atom, code: &mut String) -> Option<String> {
        let result = self.temporary();
        let axis = |axis: u8| ["x", "y", "z"][usize::from(axis)];
        let special = match atom {
            Atom::Thread(of) => format!("%tid.{}", axis(of)),
            Atom::Block(of) => format!("%ctaid.{}", axis(of)),
            Atom::BlockSize(of) => format!("%ntid.{}", axis(of)),
            Atom::GridSize(of) => format!("%nctaid.{}", axis(of)),
            Atom::Special(special) => special.name(),
            Atom::Parameter { variable, offset, bytes } => {
                let name = &self.body.variable(variable).name;
                writeln!(code, "ld.param.u{} {result}, [{name}+{offset}];", 8 * bytes).unwrap();
                return Some(result);
            }
            Atom::Address(variable) => {
                let place = self.body.variables[variable.index()];
                // A name in an inner scope may not be known where the check stands.
                (place.home == Home::Module).then_some(())?;
                writeln!(code, "mov.u64 {result}, {};", place.declaration.name).unwrap();
                return Some(result);
            }
            Atom::Round(round) => {
                self.rounds.insert(round);
                return Some(format!("%round{round}"));
            }
            Atom::Extended { value, signed, .. } => {
                let value = self.values.sums().get(value).clone();
                let inner = self.compute(&value, code)?;
                let shift = if signed { "shr.s64" } else { "shr.u64" };
                writeln!(code, "shl.b64 {result}, {inner}, 32; {shift} {result}, {result}, 32;").unwrap();
                return Some(result);
            }
            Atom::Unknown(definition) => {
                let next = self.copies.len();
                let known = self.name(definition.register).is_some() && definition.origin != Origin::Entry;
                let number = *self.copies.entry(definition).or_insert(next);
                return known.then(|| format!("%copy{number}"));
            }
        };
        writeln!(code, "{{ .reg .u32 %word; mov.u32 %word, {special}; cvt.u64.u32 {result}, %word; }}")
            .unwrap();
        Some(result)
    }

    /// Code that traps where a register does not have the value of a sum.
    fn compare(&mut self, sum: &Sum, register: RegisterId) -> Option<String> {
        let first = self.temporaries;
        let mut code = String::new();
        let expected = self.compute(sum, &mut code)?;
        let actual = self.temporary();
        let (name, bits) = (self.name(register)?, self.bits(register));
        writeln!(code, "cvt.u64.u{bits} {actual}, {name};").unwrap();
        let declarations: String =
            (first + 1..=self.temporaries).map(|number| format!(".reg .b64 %check{number};\n")).collect();
        let mut looped = false;
        self.values.sums().atoms_of(sum, &mut |atom| looped |= matches!(atom, Atom::Round(_)));
        self.compared.0 += 1;
        self.compared.1 += usize::from(looped);
        Some(format!(
            "{{ {declarations} .reg .pred %wrong; {code}
             setp.ne.u64 %wrong, {expected}, {actual}; @%wrong trap; }}\n"
        ))
    }

    /// Checks results and addresses of an instruction.
    fn instruction(&mut self, at: usize) {
        let (line, operation) = (&self.body.lines[at], &self.operations[at]);
        let id = InstructionId(at as u32);
        let mut written = Vec::new();
        operation.writes(line, self.body, &mut |register| written.push(register));
        for register in written {
            if let Some(sum) = self.values.result(id, register).cloned()
                && !self.is_itself(&sum, register, id)
                && let Some(code) = self.compare(&sum, register)
            {
                self.insertions.after.entry(at).or_default().push_str(&code);
            }
        }
        for (place, access) in accesses(operation, &line.operands).iter().enumerate() {
            if let Some(Address { value, element }) = self.values.address(id, place)
                && let Some(register) = access.base.register()
            {
                let sum = self.values.sums().get(value).clone();
                let mut code = self.compare(&sum, register).unwrap_or_default();
                code.extend(element.and_then(|element| self.element(element, register)));
                self.insertions.before.entry(at).or_default().push_str(&code);
            }
        }
    }

    fn is_itself(&self, sum: &Sum, register: RegisterId, at: InstructionId) -> bool {
        let itself = Atom::Unknown(Definition { register, origin: Origin::Instruction(at) });
        let mut found = false;
        self.values.sums().atoms_of(sum, &mut |atom| found |= atom == itself);
        found
    }

    /// Code that traps where a register does not hold the address of an element.
    fn element(&mut self, element: Element, register: RegisterId) -> Option<String> {
        let (mut code, first) = (String::new(), self.temporaries);
        let base = self.atom(element.base, &mut code)?;
        let (index, actual) = (self.name(element.index)?, self.name(register)?);
        let (sign, shift) = (if element.signed { "s32" } else { "u32" }, element.shift);
        let declarations: String =
            (first + 1..=self.temporaries).map(|number| format!(".reg .b64 %check{number};\n")).collect();
        Some(format!(
            "{{ {declarations} .reg .pred %wrong; .reg .b64 %sum; {code}
             cvt.{}64.{sign} %sum, {index}; shl.b64 %sum, %sum, {shift}; add.u64 %sum, %sum, {base};
             setp.ne.u64 %wrong, %sum, {actual}; @%wrong trap; }}\n",
            &sign[..1]
        ))
    }

    /// Keeps the counters of rounds and the copies of values.
    fn keep(&mut self) {
        for &round in &self.rounds {
            let found = &self.values.loops()[round as usize];
            write!(self.insertions.start, ".reg .b64 %round{round};").unwrap();
            let head = self.flow.block(found.head);
            let first = self.insertions.before.entry(head.first.index()).or_default();
            first.insert_str(0, &format!("add.u64 %round{round}, %round{round}, 1;\n"));
            for &before in head.predecessors.iter().filter(|block| !found.blocks.contains(block)) {
                let last = self.flow.block(before).end.index() - 1;
                let reset = format!("mov.u64 %round{round}, -1;\n");
                if self.operations[last].control() == Control::Next {
                    self.insertions.after.entry(last).or_default().push_str(&reset);
                } else {
                    self.insertions.before.entry(last).or_default().push_str(&reset);
                }
            }
        }
        for (definition, number) in &self.copies {
            let Definition { register, origin } = *definition;
            write!(self.insertions.start, ".reg .b64 %copy{number};").unwrap();
            let Some(name) = self.name(register) else { continue };
            let copy = format!("cvt.u64.u{} %copy{number}, {name};\n", self.bits(register));
            let (texts, at) = match origin {
                Origin::Entry => continue,
                Origin::Instruction(at) => (&mut self.insertions.after, at),
                Origin::Block(block) => (&mut self.insertions.before, self.flow.block(block).first),
            };
            texts.entry(at.index()).or_default().insert_str(0, &copy);
        }
    }
}

/// The statements that a text is.
fn statements(text: &str) -> Vec<Statement> {
    let source = format!(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() {{ {text} }}");
    let mut module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("k", &source)));
    match module.items.pop() {
        Some(Item::Function(function)) => function.body.unwrap(),
        _ => panic!("a function was written"),
    }
}

/// A body with what goes before and after its instructions.
fn rewritten(old: &[Statement], body: &Body, insertions: &Insertions, next: &mut usize) -> Vec<Statement> {
    let mut new = Vec::new();
    for statement in old {
        match statement {
            Statement::Instruction(instruction) => {
                assert!(std::ptr::eq::<Instruction>(body.lines[*next].instruction, instruction));
                new.extend(insertions.before.get(next).iter().flat_map(|text| statements(text)));
                new.push(statement.clone());
                new.extend(insertions.after.get(next).iter().flat_map(|text| statements(text)));
                *next += 1;
            }
            Statement::Block(inner) => new.push(Statement::Block(rewritten(inner, body, insertions, next))),
            other => new.push(other.clone()),
        }
    }
    new
}

/// A module that checks itself, and how much it checks.
pub fn checked(source: &str) -> (String, (usize, usize)) {
    let module = ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("test", source)));
    let (mut result, mut compared) = (module.clone(), (0, 0));
    let names = Names::new(&module);
    for (item, new) in module.items.iter().zip(&mut result.items) {
        let (Item::Function(function), Item::Function(new)) = (item, new) else { continue };
        let Some(old) = &function.body else { continue };
        let body = names.body(function);
        let operations = Operations::of(&body);
        let flow = Flow::of(&body, &operations);
        let values = Values::of(&body, &operations, &flow);
        let mut checks = Checks {
            body: &body,
            operations: &operations,
            flow: &flow,
            values: &values,
            insertions: Insertions::default(),
            copies: HashMap::new(),
            rounds: BTreeSet::new(),
            temporaries: 0,
            compared: (0, 0),
        };
        (0..body.lines.len()).for_each(|at| checks.instruction(at));
        checks.keep();
        compared = (compared.0 + checks.compared.0, compared.1 + checks.compared.1);
        let mut statements = statements(&checks.insertions.start);
        statements.extend(rewritten(old, &body, &checks.insertions, &mut 0));
        new.body = Some(statements);
    }
    (Module::to_string(&result), compared)
}

/// A kernel that computes on random numbers of threads, parameters and rounds.
struct Kernel {
    random: Random,
    body: String,
    labels: u32,
    depth: u32,
}

impl Kernel {
    fn write(seed: u64) -> String {
        let random = Random::new(seed);
        let mut kernel = Kernel { random, body: String::new(), labels: 0, depth: 0 };
        (0..8).for_each(|_| kernel.part());
        format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n
             .visible .entry k(.param .u64 out, .param .u32 n, .param .u64 wide) {{
                 .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b32 %n<9>; .reg .b64 %d<8>; .reg .b64 %out;
                 ld.param.u64 %out, [out]; ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x;
                 mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.y; mov.u32 %r5, 3;
                 mov.u32 %r6, %laneid; mov.u32 %r7, %nctaid.x; ld.param.u64 %d0, [wide];
                 mov.u64 %d1, 77; mov.u64 %d2, %out; cvt.u64.u32 %d3, %r1; mov.u64 %d4, %d0;
                 mov.u64 %d5, 0; mov.u64 %d6, -5; mov.u64 %d7, 1;
                 {}
                 mad.lo.s32 %r1, %r2, %r3, %r1; mul.wide.s32 %d1, %r1, 8; add.s64 %d2, %out, %d1;
                 st.global.u64 [%d2], %d3;
                 ret; }}",
            kernel.body
        )
    }

    fn word(&mut self) -> String {
        format!("%r{}", self.random.below(8))
    }

    fn long(&mut self) -> String {
        format!("%d{}", self.random.below(8))
    }

    fn line(&mut self) {
        let guard = if self.random.below(8) == 0 { "@%p0 " } else { "" };
        let [a, b, c, to] = std::array::from_fn(|_| self.word());
        let [x, y, z] = std::array::from_fn(|_| self.long());
        let number = self.random.choose(&["1", "-1", "4", "0x7fffffff", "12", "-100000"]);
        let line = match self.random.below(18) {
            0 => format!("add.s32 {to}, {a}, {b};"),
            1 => format!("sub.u32 {to}, {a}, {b};"),
            2 => format!("mul.lo.s32 {to}, {a}, {b};"),
            3 => format!("mad.lo.s32 {to}, {a}, {b}, {c};"),
            4 => format!("shl.b32 {to}, {a}, {};", self.random.choose(&["2", "5", "31", "33"])),
            5 => format!("neg.s32 {to}, {a};"),
            6 => format!("mov.b32 {to}, {a};"),
            7 => format!("add.s32 {to}, {a}, {number};"),
            8 => format!("mul.wide.s32 {x}, {a}, {number};"),
            9 => format!("mul.wide.u32 {x}, {a}, {b};"),
            10 => format!("mad.wide.s32 {x}, {a}, 4, {y};"),
            11 => format!("cvt.s64.s32 {x}, {a};"),
            12 => format!("cvt.u32.u64 {to}, {x};"),
            13 => format!("add.s64 {x}, {y}, {z};"),
            14 => format!("sub.s64 {x}, {y}, {z};"),
            15 => format!("shl.b64 {x}, {y}, 3;"),
            16 => format!("xor.b32 {to}, {a}, {b};"),
            _ => format!("setp.lt.s32 %p0, {a}, {b};"),
        };
        writeln!(self.body, "{guard}{line}").unwrap();
    }

    fn part(&mut self) {
        self.labels += 1;
        let (label, depth) = (self.labels, self.depth);
        match self.random.below(5) {
            0 if depth < 3 => {
                let (a, b) = (self.word(), self.word());
                writeln!(self.body, "setp.gt.s32 %p1, {a}, {b}; @%p1 bra L{label};").unwrap();
                self.depth += 1;
                (0..2).for_each(|_| self.part());
                self.depth -= 1;
                writeln!(self.body, "L{label}:").unwrap();
            }
            // Loops of up to seven rounds, which may be left early, and step by what stays the
            // same.
            1 | 2 if depth < 3 => {
                let rounds = self.random.choose(&["2", "5", "7"]);
                writeln!(self.body, "mov.u32 %n{depth}, 0; L{label}:").unwrap();
                self.depth += 1;
                (0..2).for_each(|_| self.part());
                self.depth -= 1;
                for _ in 0..self.random.below(3) {
                    let (word, long) = (self.word(), self.long());
                    let by = self.random.choose(&["1", "-3", "%r3", "%r0", "%r5"]);
                    let text = match self.random.below(3) {
                        0 => format!("add.s64 {long}, {long}, 128;"),
                        1 => format!("sub.s64 {long}, {long}, %d7;"),
                        _ => format!("add.s32 {word}, {word}, {by};"),
                    };
                    writeln!(self.body, "{text}").unwrap();
                }
                if self.random.below(3) == 0 {
                    let (a, b) = (self.word(), self.word());
                    writeln!(self.body, "setp.eq.s32 %p2, {a}, {b}; @%p2 bra END{label};").unwrap();
                }
                writeln!(
                    self.body,
                    "add.u32 %n{depth}, %n{depth}, 1; setp.lt.u32 %p2, %n{depth}, {rounds};
                     @%p2 bra L{label}; END{label}:"
                )
                .unwrap();
            }
            _ => (0..3).for_each(|_| self.line()),
        }
    }
}

#[test]
fn random_kernels_compute_what_is_known_of_them() {
    let mut compared = (0, 0);
    for seed in 0..400 {
        let source = Kernel::write(seed);
        let (text, count) = checked(&source);
        compared = (compared.0 + count.0, compared.1 + count.1);
        let device = Device::watched(false);
        let linked = device.load(&text);
        let kernel = linked.program().kernel("k").unwrap();
        let out = device.allocate(8 * 24 * 3, true);
        let values =
            [out.to_le_bytes().to_vec(), 19u32.to_le_bytes().to_vec(), 0xffff_fff0u64.to_le_bytes().to_vec()];
        let params = LaunchParams {
            config: LaunchConfig::new(3, [8, 3, 1]),
            cooperative: false,
            stack: 1024,
            workers: 1,
            params: &pack(&linked, kernel, &values),
        };
        if let Err(fault) = device.run(&linked, kernel, &params) {
            // Where the index is not what it was, the store at the end may miss.
            assert!(fault.kind != ptx_exec::FaultKind::Trap, "seed {seed}: {fault}\n{source}\n{text}");
        }
    }
    let (all, looped) = compared;
    assert!(all > 10_000 && looped > 1000, "{all} sums compared, {looped} of loops");
}

#[test]
fn accesses_to_elements_are_found() {
    let source = ".version 7.0\n.target sm_80\n.address_size 64\n
        .visible .entry k(.param .u64 out) {
            .reg .b32 %r<3>; .reg .b64 %d<5>;
            ld.param.u64 %d0, [out]; cvta.to.global.u64 %d1, %d0; mov.u32 %r1, %tid.x;
            mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2; ld.global.u32 %r2, [%d3];
            add.u32 %r1, %r1, 1; st.global.u32 [%d3], %r2; ret; }";
    let module = ptx::parse(source).unwrap();
    let function = module.functions().next().unwrap();
    let names = Names::new(&module);
    let body = names.body(function);
    let operations = Operations::of(&body);
    let flow = Flow::of(&body, &operations);
    let values = Values::of(&body, &operations, &flow);
    let element = |at: u32| values.address(InstructionId(at), 0).unwrap().element;
    let found = element(5).expect("the load's address is that of an element");
    assert_eq!((found.signed, found.shift), (false, 2));
    assert!(matches!(body.lines[2].operands[0], Operand::Name(Symbol::Register(id)) if id == found.index));
    // The index has changed.
    assert_eq!(element(7), None);
    let same = |at| values.address(InstructionId(at), 0).unwrap().value;
    assert_eq!(same(5), same(7));
}
