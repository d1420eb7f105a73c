//! Control flow: blocks, branches, calls, returns.

use ptx::{Instruction, Operand, ScalarType, Variable};

use crate::code::{BarrierKind, Builtin, Call, Callee, Clock, Op, Transfer};
use crate::compile::decode::form::Form;
use crate::compile::decode::{load_store, stack};
use crate::compile::function::{
    Decoded, FunctionCompiler, Refusal, SymbolPlace, invalid, parameter_layout, show, unsupported,
};
use crate::compile::layout::Block;
use crate::compile::scope::{Body, Symbol};
use crate::operands::{Args, Class, Guard, Reg};
use crate::registers::lanes::unary;
use crate::runtime::device_runtime;

/// Whether control does not go on to the next instruction after one that is not guarded.
pub(crate) fn ends(opcode: &str) -> bool {
    matches!(opcode, "bra" | "brx" | "ret" | "exit" | "trap")
}

/// The clock that a special register reads.
pub(crate) fn clock(name: &str) -> Option<Clock> {
    Some(match name {
        "%clock" | "%clock64" => Clock { wall: false, high: false },
        "%clock_hi" => Clock { wall: false, high: true },
        "%globaltimer" | "%globaltimer_lo" => Clock { wall: true, high: false },
        "%globaltimer_hi" => Clock { wall: true, high: true },
        _ => return None,
    })
}

/// The basic blocks of a body in source order; an error names the line at fault.
pub(crate) fn blocks(body: &Body) -> Result<Vec<Block>, (usize, String)> {
    let count = body.lines.len();
    let mut targets: Vec<Vec<usize>> = Vec::with_capacity(count);
    let mut starts = vec![false; count + 1];
    starts[0] = true;
    for (index, line) in body.lines.iter().enumerate() {
        let lines = branch_targets(body, line.instruction, line.scope).map_err(|message| (index, message))?;
        lines.iter().for_each(|&target| starts[target] = true);
        if ends(line.instruction.mnemonic.opcode()) {
            starts[index + 1] = true;
        }
        targets.push(lines);
    }
    let first: Vec<usize> = (0..=count).filter(|&line| starts[line]).collect();
    let mut block_of = vec![0; count + 1];
    for (block, &start) in first.iter().enumerate() {
        let end = first.get(block + 1).copied().unwrap_or(count + 1);
        block_of[start..end].fill(block);
    }
    let mut blocks = Vec::with_capacity(first.len());
    for (block, &start) in first.iter().enumerate() {
        let end = first.get(block + 1).copied().unwrap_or(count);
        let last = (end > start).then(|| &body.lines[end - 1].instruction);
        let falls = last.is_none_or(|last| last.predicate.is_some() || !ends(last.mnemonic.opcode()));
        let mut successors = Vec::new();
        successors.extend((falls && block + 1 < first.len()).then_some(block + 1));
        if end > start {
            successors.extend(targets[end - 1].iter().map(|&target| block_of[target]));
        }
        blocks.push(Block { start, end, successors });
    }
    Ok(blocks)
}

/// The lines that a branch may go to.
fn branch_targets(body: &Body, instruction: &Instruction, scope: usize) -> Result<Vec<usize>, String> {
    let label = |name: &str, scope| match body.lookup(scope, name) {
        Some((_, Symbol::Label(line))) => Ok(line),
        _ => Err(format!("unknown label `{name}`")),
    };
    match (instruction.mnemonic.opcode(), instruction.operands.as_slice()) {
        ("bra", [Operand::Name(name)]) => Ok(vec![label(name, scope)?]),
        ("bra", _) => Err("`bra` takes a label".to_owned()),
        ("brx", [_, Operand::Name(list)]) => match body.lookup(scope, list) {
            Some((_, Symbol::BranchTargets(names))) => names.iter().map(|name| label(name, scope)).collect(),
            _ => Err(format!("`{list}` is not a list of branch targets")),
        },
        ("brx", _) => Err("`brx.idx` takes an index and a list of branch targets".to_owned()),
        _ => Ok(Vec::new()),
    }
}

/// Decodes what changes or delays control flow. `None` if the opcode is none of these.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    instruction: &Instruction,
    form: &mut Form,
    blocks: &[Block],
    next: Option<usize>,
) -> Option<Decoded<()>> {
    Some(match form.opcode {
        "bra" => branch(compiler, instruction, form, blocks, next),
        "brx" => branch_indexed(compiler, instruction, form, blocks),
        "call" => call(compiler, instruction, form),
        "ret" => {
            form.flag("uni");
            leave(compiler)
        }
        "exit" => {
            compiler.push(Op::Exit);
            Ok(())
        }
        "trap" | "brkpt" => {
            compiler.push(Op::Trap);
            Ok(())
        }
        "bar" | "barrier" => barrier(compiler, instruction, form),
        "membar" | "fence" => {
            fence(compiler, form);
            Ok(())
        }
        "nanosleep" => {
            form.ty();
            compiler.push(Op::Yield);
            Ok(())
        }
        // Grids follow each other anyway, registers are no scarce resource, and nobody counts events.
        "pmevent" | "griddepcontrol" | "setmaxnreg" => {
            while form.take(|_| Some(())).is_some() {}
            Ok(())
        }
        _ => return None,
    })
}

/// The block that starts at a line.
fn block_at(blocks: &[Block], line: usize) -> u32 {
    // Labels stand at the first line of a block; empty blocks come before the block that has the line.
    blocks.partition_point(|block| block.start < line) as u32
}

fn branch(
    compiler: &mut FunctionCompiler,
    instruction: &Instruction,
    form: &mut Form,
    blocks: &[Block],
    next: Option<usize>,
) -> Decoded<()> {
    form.flag("uni");
    let lines = branch_targets(&compiler.body, instruction, compiler.scope).map_err(Refusal::Invalid)?;
    let target = block_at(blocks, lines[0]);
    if compiler.guard != Guard::Always || next != Some(target as usize) {
        compiler.push(Op::Jump { target });
    }
    Ok(())
}

fn branch_indexed(
    compiler: &mut FunctionCompiler,
    instruction: &Instruction,
    form: &mut Form,
    blocks: &[Block],
) -> Decoded<()> {
    form.flag("idx");
    form.flag("uni");
    let lines = branch_targets(&compiler.body, instruction, compiler.scope).map_err(Refusal::Invalid)?;
    let targets: Box<[u32]> = lines.iter().map(|&line| block_at(blocks, line)).collect();
    if targets.is_empty() {
        return invalid("a list of branch targets must not be empty");
    }
    let index = compiler.source(&instruction.operands[0], ScalarType::U32)?;
    compiler.push(Op::JumpTable { index, targets });
    Ok(())
}

/// `ret`: results in registers go to the frame first.
pub(crate) fn leave(compiler: &mut FunctionCompiler) -> Decoded<()> {
    if !compiler.is_kernel() {
        load_store::store_register_results(compiler)?;
        stack::leave(compiler);
    }
    compiler.push(Op::Return);
    Ok(())
}

fn fence(compiler: &mut FunctionCompiler, form: &mut Form) {
    // Every fence is the strongest one, whatever its scope; asynchronous proxies do not exist here.
    while form.take(|_| Some(())).is_some() {}
    compiler.push(Op::Fence);
}

fn barrier(compiler: &mut FunctionCompiler, instruction: &Instruction, form: &mut Form) -> Decoded<()> {
    form.flag("cta");
    form.flag("aligned");
    if form.opcode == "bar" && form.flag("warp") {
        form.flag("sync");
        return crate::compile::decode::warp::warp_barrier(compiler, instruction);
    }
    if form.flag("cluster") {
        return cluster_barrier(compiler, form);
    }
    let operands = instruction.operands.as_slice();
    let Some(mode) = form.one_of(&["sync", "arrive", "red"]) else {
        return invalid("a barrier needs `.sync`, `.arrive` or `.red`");
    };
    let (mut kind, mut rest, mut result, mut source, mut negated) =
        (BarrierKind::Sync, operands, Reg::NONE, Reg::NONE, false);
    let mut settled = None;
    match mode {
        "arrive" => kind = BarrierKind::Arrive,
        "red" => {
            kind = match form.one_of(&["popc", "and", "or"]) {
                Some("popc") => BarrierKind::Popc,
                Some("and") => BarrierKind::And,
                Some(_) => BarrierKind::Or,
                None => return invalid("a reducing barrier needs `.popc`, `.and` or `.or`"),
            };
            let ty = form.ty();
            if ty != Some(if kind == BarrierKind::Popc { ScalarType::U32 } else { ScalarType::Pred }) {
                return invalid("`.popc` gives a `.u32`, `.and` and `.or` give a `.pred`");
            }
            let [destination, middle @ .., predicate] = operands else {
                return invalid("a reducing barrier takes a result, a barrier and a predicate");
            };
            let destination = compiler.destination(destination, ty.unwrap_or(ScalarType::Pred))?;
            result = destination.reg;
            settled = Some(destination);
            (source, negated) = match predicate {
                Operand::Not(name) => (compiler.predicate(name)?, true),
                other => (compiler.source(other, ScalarType::Pred)?, false),
            };
            rest = middle;
        }
        _ => {}
    }
    let (barrier, threads) = match rest {
        [barrier] => (compiler.source(barrier, ScalarType::U32)?, Reg::NONE),
        [barrier, threads] => {
            (compiler.source(barrier, ScalarType::U32)?, compiler.source(threads, ScalarType::U32)?)
        }
        _ => return invalid("a barrier takes a number and perhaps a count of threads"),
    };
    form.flag("b32");
    compiler.push(Op::Barrier { kind, barrier, threads, source, negated, result });
    if let Some(destination) = settled {
        compiler.widen(destination);
    }
    Ok(())
}

/// `barrier.cluster`: its orders are those of every barrier here.
fn cluster_barrier(compiler: &mut FunctionCompiler, form: &mut Form) -> Decoded<()> {
    let kind = match form.one_of(&["arrive", "wait"]) {
        Some("arrive") => BarrierKind::ClusterArrive,
        Some(_) => BarrierKind::ClusterWait,
        None => return invalid("`barrier.cluster` needs `.arrive` or `.wait`"),
    };
    form.one_of(&["release", "relaxed", "acquire"]);
    let (barrier, threads, source, result) = (Reg::NONE, Reg::NONE, Reg::NONE, Reg::NONE);
    compiler.push(Op::Barrier { kind, barrier, threads, source, negated: false, result });
    Ok(())
}

/// The parts of a `call`: results, callee, arguments, prototype or list of targets.
struct CallParts<'i> {
    results: &'i [Operand],
    callee: &'i Operand,
    arguments: &'i [Operand],
    last: Option<&'i Operand>,
}

fn call_parts(operands: &[Operand]) -> Option<CallParts<'_>> {
    let (results, rest) = match operands {
        [Operand::List(results), rest @ ..] => (results.as_slice(), rest),
        rest => (&[][..], rest),
    };
    let (callee, rest) = rest.split_first()?;
    let (arguments, rest) = match rest {
        [Operand::List(arguments), rest @ ..] => (arguments.as_slice(), rest),
        rest => (&[][..], rest),
    };
    Some(CallParts { results, callee, arguments, last: rest.first() })
}

fn call(compiler: &mut FunctionCompiler, instruction: &Instruction, form: &mut Form) -> Decoded<()> {
    form.flag("uni");
    let Some(parts) = call_parts(&instruction.operands) else { return invalid("`call` takes a function") };
    let Operand::Name(name) = parts.callee else {
        return invalid(format!("`{}` cannot be called", show(parts.callee)));
    };
    let module = compiler.module;
    let (callee, returns, params): (_, &[Variable], &[Variable]) = match compiler.register(name, None)? {
        Some((reg, _)) => {
            let (returns, params) = signature(compiler, parts.last)?;
            if compiler.class(reg) != Class::Long {
                return unsupported("calls through 32-bit addresses are not supported");
            }
            compiler.calls_indirectly = true;
            // The register itself may stand for an input that was never moved into it.
            let target = compiler.source(parts.callee, ScalarType::U64)?;
            (Callee::Indirect(target), returns, params)
        }
        None => {
            let Ok(SymbolPlace::Function(index)) = compiler.symbol_input(name) else {
                return invalid(format!("unknown function `{name}`"));
            };
            let function = module.functions[index as usize];
            let callee = match (builtin(name), &function.body) {
                (_, Some(_)) => {
                    compiler.calls.push(index);
                    Callee::Function(index)
                }
                (Some(builtin), None) => Callee::Builtin(builtin),
                (None, None) => {
                    return unsupported(device_runtime::refusal(name).unwrap_or_else(|| {
                        format!("function `{name}` is declared and defined nowhere: link the module that defines it")
                    }));
                }
            };
            (callee, function.returns.as_slice(), function.params.as_slice())
        }
    };
    if parts.arguments.len() != params.len() || parts.results.len() > returns.len() {
        return invalid(format!("`{name}` takes {} parameters and returns {}", params.len(), returns.len()));
    }
    let (places, _) = parameter_layout(returns.iter().chain(params));
    let (result_places, argument_places) = places.split_at(returns.len());
    let mut arguments = Vec::new();
    for ((operand, variable), &(callee, bytes)) in parts.arguments.iter().zip(params).zip(argument_places) {
        let caller = load_store::spill_argument(compiler, operand, variable)?;
        arguments.push(Transfer { caller, callee, bytes });
    }
    compiler.push(Op::Call(Box::new(Call { callee, arguments })));
    let (mut results, mut registers) = (Vec::new(), Vec::new());
    for ((operand, variable), &(callee, bytes)) in parts.results.iter().zip(returns).zip(result_places) {
        let (caller, values) = load_store::result_place(compiler, operand, variable)?;
        results.push(Transfer { caller, callee, bytes });
        registers.extend(values);
    }
    compiler.push(Op::Results(results.into()));
    registers.iter().try_for_each(|value| load_store::load_frame(compiler, value))
}

/// Whether the function called `name` needs no definition.
pub(crate) fn is_provided(name: &str) -> bool {
    builtin(name).is_some() || device_runtime::refusal(name).is_some()
}

fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "vprintf" => Builtin::Print,
        "malloc" => Builtin::Malloc,
        "free" => Builtin::Free,
        "__assertfail" => Builtin::AssertFail,
        _ => return device_runtime::provided(name).map(Builtin::Runtime),
    })
}

type Signature<'m> = (&'m [Variable], &'m [Variable]);

/// What an indirect call's last operand says about the functions it may call.
fn signature<'m>(compiler: &FunctionCompiler<'m>, last: Option<&Operand>) -> Decoded<Signature<'m>> {
    let Some(Operand::Name(name)) = last else {
        return invalid("an indirect call needs a prototype or a list of targets");
    };
    match compiler.body.lookup(compiler.scope, name) {
        Some((_, Symbol::Prototype(prototype))) => Ok((&prototype.returns, &prototype.params)),
        Some((_, Symbol::CallTargets(targets))) => {
            let first = targets.first().and_then(|target| compiler.module.function(target));
            match first {
                Some(function) => Ok((&function.returns, &function.params)),
                None => invalid(format!("`{name}` lists no known function")),
            }
        }
        _ => invalid(format!("unknown prototype `{name}`")),
    }
}

/// `d = a` for a register of any class.
pub(crate) fn copy(compiler: &mut FunctionCompiler, d: Reg, a: Reg) {
    let run = match compiler.class(d) {
        Class::Word => unary(|a: u32| a),
        Class::Long => unary(|a: u64| a),
        Class::Predicate => crate::registers::lanes::logic(|a, _, _| a),
    };
    compiler.lanes(run, Args { d, a, ..Args::EMPTY });
}
