//! Which PTX instructions are executed: `docs/coverage-ptx.md`, made by compiling every instance of
//! every form of the instruction table and asking whether a kernel would get to a step that is not
//! executed. `BLESS=1` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use ptx::forms::{self, Form, Instance, Kind, OperandForm, Selector};
use ptx::{ScalarType, StateSpace};
use ptx_exec::Program;

/// A register's declared type: those that only instructions have are untyped bits.
fn declared(ty: ScalarType) -> ScalarType {
    match ty {
        ScalarType::Pred => ScalarType::Pred,
        _ => match ty.bytes() {
            1 => ScalarType::B8,
            2 => ScalarType::B16,
            8 => ScalarType::B64,
            16 => ScalarType::B128,
            _ => ScalarType::B32,
        },
    }
}

fn register(ty: ScalarType, index: usize) -> String {
    format!("%{}_{index}", declared(ty).name())
}

/// Which operands a statement has.
#[derive(Clone, Copy, PartialEq)]
enum Operands {
    /// Those that must be there.
    Least,
    /// All but samplers.
    Most,
    /// All.
    Sampler,
}

/// An operand of this kind, in registers of its own.
fn operand(kind: &Kind, written: bool, which: Operands, next: &mut usize) -> String {
    *next += 1;
    match kind {
        // Where a part is written the rest of the register has to come from somewhere; parts that
        // are read are free.
        Kind::Selected(ty, Selector::Part) if written => format!("{}.h1", register(*ty, *next)),
        Kind::Value { ty, .. } | Kind::Selected(ty, _) => register(*ty, *next),
        Kind::Vector(element, length) => {
            let elements: Vec<_> = (0..*length).map(|_| operand(element, written, which, next)).collect();
            format!("{{{}}}", elements.join(", "))
        }
        Kind::Predicate => format!("%pred_{next}"),
        Kind::Pair(first, second, _) => {
            format!("{}|{}", operand(first, written, which, next), operand(second, written, which, next))
        }
        Kind::Immediate(least, most) => 1.clamp(*least, *most).to_string(),
        Kind::Sink => "_".to_owned(),
        Kind::TensorAddress => format!("[%b32_{next}]"),
        Kind::Address { space, sampler, rest } => {
            let base = match space {
                Some(StateSpace::Param) => "PARAMETER".to_owned(),
                _ => format!("%b64_{next}"),
            };
            let rest: String =
                rest.iter().map(|kind| format!(", {}", operand(kind, false, which, next))).collect();
            let sampler = if *sampler && which == Operands::Sampler {
                format!(", %b64_{}", *next + 1)
            } else {
                String::new()
            };
            format!("[{base}{sampler}{rest}]")
        }
        Kind::Label => "DONE".to_owned(),
        Kind::Function => "callee".to_owned(),
        Kind::List => "()".to_owned(),
        Kind::Targets => "TARGETS".to_owned(),
        Kind::Table => "PROTOTYPE".to_owned(),
    }
}

fn statement(instance: &Instance, which: Operands) -> String {
    let mut next = 0;
    let operands: Vec<_> = instance
        .operands
        .iter()
        .filter(|form| which != Operands::Least || !form.optional)
        .map(|form| operand(&form.kind, form.is_written(), which, &mut next))
        .collect();
    format!("{} {};", instance.mnemonic, operands.join(", "))
}

/// The line of a module's first statement, from 1.
const FIRST_LINE: usize = 13;

fn module(statements: &[String]) -> String {
    let mut text = ".version 9.0\n.target sm_100a\n.address_size 64\n.func callee() { ret; }\n\
                    .entry kernel(.param .align 64 .b8 PARAMETER[64]) {\n"
        .to_owned();
    for ty in ["pred", "b8", "b16", "b32", "b64", "b128"] {
        writeln!(text, ".reg .{ty} %{ty}_<300>;").unwrap();
    }
    text.push_str("TARGETS: .branchtargets DONE; PROTOTYPE: .callprototype _ ();\n");
    assert_eq!(text.lines().count() + 1, FIRST_LINE);
    statements.iter().for_each(|statement| writeln!(text, "{statement}").unwrap());
    text + "DONE: ret;\n}\n"
}

/// What a user is told who runs each statement; nothing if it is executed.
fn refusals(statements: &[String]) -> Vec<Option<String>> {
    let source = module(statements);
    let compiled = ptx::parse(&source).and_then(|parsed| Program::compile(&parsed));
    match compiled {
        Ok(program) => {
            let mut refusals = vec![None; statements.len()];
            for (_, line, complaint) in program.unsupported() {
                if let Some(refusal) = refusals.get_mut((line as usize).wrapping_sub(FIRST_LINE)) {
                    *refusal = Some(complaint.to_owned());
                }
            }
            refusals
        }
        // Whatever a module contains, it loads: the page says so.
        Err(error) if statements.len() == 1 => panic!("{}: {}", statements[0], error.message),
        // One mistake spoils the module: each has to be asked alone.
        Err(_) => statements.chunks(statements.len().div_ceil(2)).flat_map(refusals).collect(),
    }
}

/// Statements of one module.
const BATCH: usize = 512;

/// Why each of the instances is refused with these operands, if it is.
fn judge(instances: &[Instance], which: Operands) -> Vec<Option<String>> {
    let statements: Vec<_> = instances.iter().map(|instance| statement(instance, which)).collect();
    statements.chunks(BATCH).flat_map(refusals).collect()
}

/// The mnemonics of a form and why they are refused. Those that have operands which may be missing
/// are there once more with them, which is noted like a modifier.
fn judged(form: &'static Form) -> Judged {
    let instances = form.instances();
    let mut judged = Judged::new();
    let mut add = |which: Operands, note: &dyn Fn(&Instance) -> Option<String>| {
        let noted: Vec<_> =
            instances.iter().filter_map(|instance| Some((instance, note(instance)?))).collect();
        let asked: Vec<Instance> = noted.iter().map(|(instance, _)| (*instance).clone()).collect();
        let names = noted.into_iter().map(|(instance, note)| format!("{}{note}", instance.mnemonic));
        judged.extend(names.zip(judge(&asked, which)));
    };
    add(Operands::Least, &|instance| {
        let second = |form: &OperandForm| form.is_written() && matches!(form.kind, Kind::Pair(_, _, false));
        Some(if instance.operands.iter().any(second) { ".[a second result]" } else { "" }.to_owned())
    });
    add(Operands::Most, &|instance| {
        let optional = instance.operands.iter().filter(|form| form.optional);
        let notes: String = optional.map(|form| format!(".[operand {}]", form.name)).collect();
        (!notes.is_empty()).then_some(notes)
    });
    add(Operands::Sampler, &|instance| {
        let takes_sampler = |form: &OperandForm| matches!(form.kind, Kind::Address { sampler: true, .. });
        instance.operands.iter().any(takes_sampler).then(|| ".[a sampler of its own]".to_owned())
    });
    judged
}

/// The instances of an opcode: mnemonic, and why it is refused, if it is.
type Judged = Vec<(String, Option<String>)>;

/// Says which of `judged` are refused: modifiers (or two together) with which all are, then what is
/// left.
fn describe(judged: &Judged) -> String {
    let words = |mnemonic: &str| -> Vec<String> { mnemonic.split('.').skip(1).map(str::to_owned).collect() };
    let instances: Vec<(Vec<String>, bool)> =
        judged.iter().map(|(mnemonic, refusal)| (words(mnemonic), refusal.is_some())).collect();
    let mut left: Vec<usize> = (0..instances.len()).filter(|&index| instances[index].1).collect();
    let mut said = Vec::new();
    for size in 1..=2 {
        loop {
            let mut counts: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
            for &index in &left {
                let words = &instances[index].0;
                for (at, first) in words.iter().enumerate() {
                    match size {
                        1 => *counts.entry(vec![first]).or_default() += 1,
                        _ => words[at + 1..]
                            .iter()
                            .for_each(|second| *counts.entry(vec![first, second]).or_default() += 1),
                    }
                }
            }
            let has = |index: usize, set: &[&str]| {
                set.iter().all(|word| instances[index].0.iter().any(|w| w == word))
            };
            let always =
                |set: &[&str]| (0..instances.len()).all(|index| instances[index].1 || !has(index, set));
            let best = counts
                .iter()
                .filter(|(set, _)| always(set))
                .max_by_key(|(set, count)| (**count, std::cmp::Reverse((*set).clone())));
            let Some((set, _)) = best else { break };
            let set: Vec<String> = set.iter().map(|word| (*word).to_owned()).collect();
            let borrowed: Vec<&str> = set.iter().map(String::as_str).collect();
            left.retain(|&index| !has(index, &borrowed));
            said.push(format!("`.{}`", set.join("` with `.")));
        }
    }
    // What follows no rule is named, as far as that is of use.
    let (named, more) = left.split_at(left.len().min(4));
    said.extend(named.iter().map(|&index| format!("`{}`", judged[index].0)));
    said.extend((!more.is_empty()).then(|| format!("and {} more", more.len())));
    format!("not {}", said.join(", ").replace("`.[", "").replace("]`", ""))
}

/// Text that may stand in a cell of a table.
fn cell(text: &str) -> String {
    text.lines().next().unwrap_or("").replace('|', "\\|")
}

fn page() -> String {
    let mut chapters: Vec<&str> = Vec::new();
    let mut opcodes: BTreeMap<(&str, &str), Judged> = BTreeMap::new();
    for form in forms::all() {
        if !chapters.contains(&form.chapter) {
            chapters.push(form.chapter);
        }
        opcodes.entry((form.chapter, form.opcode)).or_default().extend(judged(form));
    }
    let (mut tables, mut counts) = (String::new(), [0; 3]);
    let (mut all, mut executed) = (0, 0);
    for chapter in chapters {
        write!(tables, "\n## {}{}\n\n", chapter[..1].to_uppercase(), &chapter[1..]).unwrap();
        tables.push_str("| instruction | forms | state | |\n| --- | --- | --- | --- |\n");
        for ((_, opcode), judged) in opcodes.range((chapter, "")..).take_while(|((of, _), _)| *of == chapter)
        {
            let refused = judged.iter().filter_map(|(_, refusal)| refusal.as_deref()).collect::<Vec<_>>();
            (all, executed) = (all + judged.len(), executed + judged.len() - refused.len());
            let (state, detail) = match refused.len() {
                0 => (0, String::new()),
                count if count == judged.len() => (2, cell(refused[0])),
                _ => (1, describe(judged)),
            };
            counts[state] += 1;
            let name = ["supported", "partial", "unsupported"][state];
            let done = judged.len() - refused.len();
            let forms =
                if state == 1 { format!("{done} of {}", judged.len()) } else { judged.len().to_string() };
            writeln!(tables, "| `{opcode}` | {forms} | {name} | {detail} |").unwrap();
        }
    }
    let [done, partly, refused] = counts;
    format!(
        "# PTX instructions\n\n\
         <!-- Generated from the code: BLESS=1 cargo test -p ptx-exec --test exec coverage writes it anew. -->\n\n\
         This page lists the instructions of the PTX ISA that the [CPU device](cpu-device.md) executes. Every form of every\n\
         instruction (the combinations of modifiers that ptxas accepts) was compiled. The device executes all forms of a\n\
         *supported* instruction, those without the named modifiers of a *partial* one, and no form of an *unsupported* one.\n\
         A module with unsupported instructions loads; a kernel that reaches one stops with `CUDA_ERROR_NOT_SUPPORTED`, and\n\
         standard error has the message that is shown here, with the kernel and the line.\n\n\
         {} instructions: {done} supported, {partly} partial, {refused} unsupported. {all} forms, of which {executed} are executed.\n{tables}",
        done + partly + refused
    )
}

#[test]
fn the_coverage_page_is_fresh() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coverage-ptx.md");
    test_golden::assert_file(path, &page());
}
