//! Facts of each layer about small functions: PTX in, facts out.
//!
//! A file of `tests/facts` begins with `// check: ` and the layers that it is about; the facts of
//! each function stand as comments below the PTX. `BLESS=1` writes what is found now.

use std::fmt::Write;
use std::path::Path;

use ptx::Function;
use ptx::body::{Body, Names, Operand, Symbol};
use ptx::flow::{BlockId, Flow};
use ptx::instruction::{Operations, accesses};

/// Begins a line of facts.
const FACT: &str = "//> ";

#[test]
fn facts_are_those_of_the_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/facts");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let expected = std::fs::read_to_string(&path).unwrap();
        let plain: String =
            expected.lines().filter(|line| !line.starts_with("//>")).map(|l| l.to_owned() + "\n").collect();
        let layers = plain.lines().next().and_then(|line| line.strip_prefix("// check: "));
        let layers: Vec<&str> =
            layers.unwrap_or_else(|| panic!("{}: no `check`", path.display())).split(' ').collect();
        let module = ptx::parse(&plain).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let problems = ptx::verify(&module);
        assert!(problems.is_empty(), "{}: {problems:?}", path.display());
        let names = Names::new(&module);
        let mut actual = plain.clone();
        for function in module.functions().filter(|function| function.body.is_some()) {
            for layer in &layers {
                writeln!(actual, "{FACT}{layer} of {}", function.name).unwrap();
                for line in facts(layer, &names, function) {
                    writeln!(actual, "{}", format!("{FACT}  {line}").trim_end()).unwrap();
                }
            }
        }
        test_golden::assert_file(path, &actual);
    }
}

fn facts<'m>(layer: &str, names: &Names<'m>, function: &'m Function) -> Vec<String> {
    let body = names.body(function);
    match layer {
        "body" => listing(&body),
        "instruction" => instructions(&body),
        "flow" => flow(&body),
        _ => panic!("no layer `{layer}`"),
    }
}

/// Each instruction with its operands' numbers.
fn listing(body: &Body<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, line) in body.lines.iter().enumerate() {
        for label in body.labels.iter().filter(|label| label.target.index() == at) {
            lines.push(format!("{}:", label.name));
        }
        let operands: Vec<String> = line.operands.iter().map(|operand| shown(operand, body)).collect();
        let guard = line.guard.map_or(String::new(), |guard| {
            format!("@{}{} ", if guard.negated { "!" } else { "" }, symbol(guard.symbol, body))
        });
        let source = line.location.map_or(String::new(), |l| format!(" ; line {}", l.line));
        lines.push(format!("{at}: {guard}{} {}{source}", line.instruction.mnemonic, operands.join(", ")));
    }
    lines
}

fn symbol<'m>(symbol: Symbol<'m>, body: &Body<'m>) -> String {
    match symbol {
        Symbol::Register(id) => format!("r{}={}", id.0, body.name(symbol)),
        Symbol::Vector(id) => format!("r{}..r{}={}", id.0, id.0 + 3, body.name(symbol)),
        Symbol::Variable(id) => format!("v{}={}", id.0, body.name(symbol)),
        Symbol::Label(id) => format!("{}@{}", body.name(symbol), body.target(id).0),
        Symbol::BranchTargets(table) => {
            let labels = &body.branch_targets[table.index()];
            let targets: Vec<_> =
                labels.iter().map(|label| label.map(|label| body.target(label).0)).collect();
            format!("{targets:?}")
        }
        _ => body.name(symbol).into_owned(),
    }
}

fn shown<'m>(operand: &Operand<'m>, body: &Body<'m>) -> String {
    let many =
        |parts: &[Operand<'m>]| parts.iter().map(|part| shown(part, body)).collect::<Vec<_>>().join(", ");
    match operand {
        Operand::Name(name) => symbol(*name, body),
        Operand::Component(name, selector) => match operand.register() {
            Some(id) => format!("r{}={}.{selector}", id.0, body.name(*name)),
            None => format!("{}.{selector}", body.name(*name)),
        },
        Operand::Vector(parts) => format!("{{{}}}", many(parts)),
        Operand::List(parts) => format!("({})", many(parts)),
        Operand::Pair(first, second) => format!("{}|{}", shown(first, body), shown(second, body)),
        Operand::Address(address) => match address.base {
            ptx::body::Base::Name(name) => format!("[{} + {}]", symbol(name, body), address.offset),
            other => format!("[{other:?} + {}]", address.offset),
        },
        other => format!("{other:?}"),
    }
}

/// Describes the reads, writes, accesses and effects of each instruction.
fn instructions(body: &Body<'_>) -> Vec<String> {
    let operations = Operations::of(body);
    let mut lines = Vec::new();
    for (line, operation) in body.lines.iter().zip(operations.iter()) {
        let mut said = format!("{}: {}", line.instruction.mnemonic, operation.class().name());
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        operation.reads(line, body, &mut |id| reads.push(body.name(Symbol::Register(id)).into_owned()));
        operation.writes(line, body, &mut |id| writes.push(body.name(Symbol::Register(id)).into_owned()));
        write!(said, ", reads [{}], writes [{}]", reads.join(" "), writes.join(" ")).unwrap();
        for access in accesses(operation, &line.operands) {
            let space = access.space.map_or("generic".to_owned(), |space| space.name().to_owned());
            write!(said, ", {:?} {} B of {space} {:?}", access.direction, access.bytes, access.shape)
                .unwrap();
        }
        for (what, value) in [
            ("order", operation.order.map(|order| format!("{order:?}"))),
            ("scope", operation.scope.map(|scope| format!("{scope:?}"))),
            ("atomic", operation.atomic.map(|atomic| format!("{atomic:?}"))),
            ("synchronization", operation.synchronization().map(|s| format!("{s:?}"))),
        ] {
            if let Some(value) = value {
                write!(said, ", {what} {value}").unwrap();
            }
        }
        if operation.control() != ptx::instruction::Control::Next {
            write!(said, ", {:?}", operation.control()).unwrap();
        }
        lines.push(said);
    }
    lines
}

/// Blocks with their edges and dominators; then loops.
fn flow(body: &Body<'_>) -> Vec<String> {
    let operations = Operations::of(body);
    let flow = Flow::of(body, &operations);
    let dominators = flow.dominators();
    let many =
        |blocks: &[BlockId]| blocks.iter().map(|id| format!("b{}", id.0)).collect::<Vec<_>>().join(" ");
    let parent = |id: Option<BlockId>| id.map_or("-".to_owned(), |id| format!("b{}", id.0));
    let mut lines = Vec::new();
    for id in flow.ids() {
        let block = flow.block(id);
        lines.push(format!(
            "b{}: {}..{} to [{}]{}, dominator {}",
            id.0,
            block.first.0,
            block.end.0,
            many(&block.successors),
            if block.leaves { " and out" } else { "" },
            parent(dominators.parent(id)),
        ));
    }
    for (index, found) in flow.loops(&dominators).iter().enumerate() {
        let around = found.parent.map_or(String::new(), |parent| format!(" in l{parent}"));
        lines.push(format!("l{index}: [{}] from [{}]{around}", many(&found.blocks), many(&found.latches)));
    }
    lines
}
