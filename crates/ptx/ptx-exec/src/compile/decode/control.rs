//! Control flow: blocks, branches, calls, returns.

use ptx::body::{LabelId, Line, Operand, Symbol};
use ptx::instruction::{Flag, Logic, Opcode};
use ptx::{ScalarType, Variable};
use ptx_lower::Meaning;

use crate::code::{BarrierKind, Builtin, Call, Callee, Op, Transfer};
use crate::compile::decode::Undecoded;
use crate::compile::decode::{load_store, stack};
use crate::compile::frame::{formal_bytes, parameter_layout};
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::native::Lowered;
use crate::operands::{Args, Class, Guard, Reg};
use crate::registers::shapes::unary;
use crate::runtime::builtin::Signature;
use crate::runtime::device_runtime;

/// Decodes what changes or delays control flow. `None` if the opcode is none of these.
pub(crate) fn decode<'m>(
    compiler: &mut FunctionCompiler<'m>,
    line: &Line<'m>,
    form: &mut Undecoded,
    next: Option<usize>,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Bra => branch(compiler, line, form, next),
        Opcode::Brx => branch_indexed(compiler, line, form),
        Opcode::Call => call(compiler, line, form),
        Opcode::Ret => {
            form.take(Flag::Uniform);
            leave(compiler)
        }
        Opcode::Exit => {
            compiler.push(Op::Exit);
            Ok(())
        }
        Opcode::Trap | Opcode::Brkpt => {
            compiler.push(Op::Trap);
            Ok(())
        }
        Opcode::Bar | Opcode::Barrier => barrier(compiler, line, form),
        Opcode::Membar | Opcode::Fence => {
            fence(compiler, form);
            Ok(())
        }
        Opcode::Nanosleep => {
            form.take_type();
            compiler.push(Op::Yield);
            Ok(())
        }
        // Grids follow each other anyway, registers are no scarce resource, and nobody counts
        // events.
        Opcode::Pmevent | Opcode::Griddepcontrol | Opcode::Setmaxnreg => {
            form.take_all();
            Ok(())
        }
        _ => return None,
    })
}

/// The block that a label stands at the beginning of.
fn block_at(compiler: &FunctionCompiler, label: LabelId) -> u32 {
    let target = compiler.body.target(label);
    match target.index() < compiler.body.lines.len() {
        true => compiler.flow.block_of(target).0,
        // The end of the listing is a block of its own.
        false => compiler.flow.blocks.len() as u32,
    }
}

fn branch(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
    next: Option<usize>,
) -> Decoded<()> {
    form.take(Flag::Uniform);
    let [Operand::Name(Symbol::Label(label))] = line.operands.as_slice() else {
        return invalid("`bra` takes a label of this function");
    };
    let target = block_at(compiler, *label);
    if compiler.guard != Guard::Always || next != Some(target as usize) {
        compiler.push(Op::Jump { target });
    }
    Ok(())
}

fn branch_indexed(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    form.take(Flag::Indexed);
    form.take(Flag::Uniform);
    let [index, Operand::Name(Symbol::BranchTargets(table))] = line.operands.as_slice() else {
        return invalid("`brx.idx` takes an index and a list of branch targets");
    };
    let labels = &compiler.body.branch_targets[table.index()];
    let targets = labels.iter().map(|label| label.map(|label| block_at(compiler, label)));
    let Some(targets) = targets.collect::<Option<Box<[u32]>>>() else {
        return invalid("a list of branch targets names what is no label of this function");
    };
    if targets.is_empty() {
        return invalid("a list of branch targets must not be empty");
    }
    let index = compiler.source(index, ScalarType::U32)?;
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

fn fence(compiler: &mut FunctionCompiler, form: &mut Undecoded) {
    // Every fence is the strongest one, whatever its scope; asynchronous proxies do not exist here.
    form.take_all();
    compiler.push(Op::Fence);
}

fn barrier(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    form.scope.take();
    form.take(Flag::Aligned);
    if form.opcode == Some(Opcode::Bar) && form.take(Flag::Warp) {
        form.take(Flag::Synchronous);
        return crate::compile::decode::warp::warp_barrier(compiler, line);
    }
    if form.take(Flag::Cluster) {
        return cluster_barrier(compiler, form);
    }
    let operands = line.operands.as_slice();
    let Some(mode) = form.take_one(&[Flag::Synchronous, Flag::Arrive, Flag::Reduce]) else {
        return invalid("a barrier needs `.sync`, `.arrive` or `.red`");
    };
    let (mut kind, mut rest, mut result, mut source, mut negated) =
        (BarrierKind::Sync, operands, Reg::NONE, Reg::NONE, false);
    let mut settled = None;
    match mode {
        Flag::Arrive => kind = BarrierKind::Arrive,
        Flag::Reduce => {
            kind = match (form.take(Flag::PopulationCount), form.logic.take()) {
                (true, None) => BarrierKind::Popc,
                (false, Some(Logic::And)) => BarrierKind::And,
                (false, Some(Logic::Or)) => BarrierKind::Or,
                _ => return invalid("a reducing barrier needs `.popc`, `.and` or `.or`"),
            };
            let ty = form.take_type();
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
                Operand::Not(name) => (compiler.predicate(*name)?, true),
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
    form.take_type();
    compiler.push(Op::Barrier { kind, barrier, threads, source, negated, result });
    if let Some(destination) = settled {
        compiler.widen(destination);
    }
    Ok(())
}

/// `barrier.cluster`: its orders are those of every barrier here.
fn cluster_barrier(compiler: &mut FunctionCompiler, form: &mut Undecoded) -> Decoded<()> {
    let kind = match form.take_one(&[Flag::Arrive, Flag::Wait]) {
        Some(Flag::Arrive) => BarrierKind::ClusterArrive,
        Some(_) => BarrierKind::ClusterWait,
        None => return invalid("`barrier.cluster` needs `.arrive` or `.wait`"),
    };
    form.order.take();
    let (barrier, threads, source, result) = (Reg::NONE, Reg::NONE, Reg::NONE, Reg::NONE);
    compiler.push(Op::Barrier { kind, barrier, threads, source, negated: false, result });
    Ok(())
}

/// The parts of a `call`: results, callee, arguments, prototype or list of targets.
struct CallParts<'i, 'm> {
    results: &'i [Operand<'m>],
    callee: &'i Operand<'m>,
    arguments: &'i [Operand<'m>],
    last: Option<&'i Operand<'m>>,
}

fn call_parts<'i, 'm>(operands: &'i [Operand<'m>]) -> Option<CallParts<'i, 'm>> {
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

fn call<'m>(compiler: &mut FunctionCompiler<'m>, line: &Line<'m>, form: &mut Undecoded) -> Decoded<()> {
    form.take(Flag::Uniform);
    let Some(parts) = call_parts(&line.operands) else { return invalid("`call` takes a function") };
    let (callee, (returns, params)) = match *parts.callee {
        Operand::Name(Symbol::Function(function)) => {
            let name = &*function.name;
            let callee = match (builtin(name), compiler.module.index(function)) {
                (_, Some(index)) if function.body.is_some() => {
                    compiler.calls.push(index);
                    Callee::Function(index)
                }
                (Some(builtin), _) => Callee::Builtin(builtin),
                (None, _) => {
                    return unsupported(device_runtime::refusal(name).unwrap_or_else(|| {
                        format!("function `{name}` is declared and defined nowhere: link the module that defines it")
                    }));
                }
            };
            (callee, (function.returns.as_slice(), function.params.as_slice()))
        }
        Operand::Name(symbol) if let Some((reg, _)) = compiler.register(symbol, None)? => {
            let signature = signature(compiler, parts.last)?;
            if compiler.class(reg) != Class::Long {
                return unsupported("calls through 32-bit addresses are not supported");
            }
            compiler.calls_indirectly = true;
            // The register itself may stand for an input that was never moved into it.
            (Callee::Indirect(compiler.source(parts.callee, ScalarType::U64)?), signature)
        }
        _ => return invalid(format!("`{}` cannot be called", compiler.show(parts.callee))),
    };
    if parts.arguments.len() != params.len() || parts.results.len() > returns.len() {
        let name = compiler.show(parts.callee);
        return invalid(format!("`{name}` takes {} parameters and returns {}", params.len(), returns.len()));
    }
    let (places, _) = match callee {
        Callee::Builtin(builtin) => {
            // The function finds its arguments behind its result, which the caller may not fetch.
            compiler.frame_space(8, 8);
            (provided_layout(&compiler.show(parts.callee), builtin, returns, params)?, 0)
        }
        _ => parameter_layout(returns.iter().chain(params)),
    };
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

/// Returns the offsets of the results and arguments of a function that the device provides, in the
/// function's layout, whether or not the declaration has its result.
fn provided_layout(
    name: &str,
    builtin: Builtin,
    returns: &[Variable],
    params: &[Variable],
) -> Decoded<Vec<(u32, u32)>> {
    let Signature { result, params: expected } = builtin.signature();
    let bytes = |variables: &[Variable]| -> Vec<u32> {
        variables.iter().map(|variable| formal_bytes(variable).min(u32::MAX.into()) as u32).collect()
    };
    let (returned, declared) = (bytes(returns), bytes(params));
    let fits = (returned.is_empty() || returned == [result])
        && (result != 0 || returned.is_empty())
        && expected.is_none_or(|expected| declared == expected);
    if !fits {
        let expected = expected.map_or_else(|| "any".to_owned(), |bytes| format!("{bytes:?}"));
        return invalid(format!(
            "`{name}` is provided by the device with parameters of {expected} bytes and a result of {result}, but is \
             declared with {declared:?} and {returned:?}"
        ));
    }
    let arguments = Signature::offsets(&declared, result).into_iter().zip(declared);
    Ok(returned.iter().map(|&bytes| (0, bytes)).chain(arguments).collect())
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

/// Returns the results and parameters of the functions that an indirect call may call, from its
/// last operand.
fn signature<'m>(
    compiler: &FunctionCompiler<'m>,
    last: Option<&Operand<'m>>,
) -> Decoded<(&'m [Variable], &'m [Variable])> {
    match last {
        Some(Operand::Name(Symbol::Prototype(prototype))) => Ok((&prototype.returns, &prototype.params)),
        Some(Operand::Name(Symbol::CallTargets(table))) => {
            match compiler.body.call_targets[table.index()].first() {
                Some(Some(function)) => Ok((&function.returns, &function.params)),
                _ => invalid("a list of call targets names no known function first"),
            }
        }
        _ => invalid("an indirect call needs a prototype or a list of targets"),
    }
}

/// `d = a` for a register of any class.
pub(crate) fn copy(compiler: &mut FunctionCompiler, d: Reg, a: Reg) {
    let run = match compiler.class(d) {
        Class::Word => unary(|a: u32| a),
        Class::Long => unary(|a: u64| a),
        Class::Predicate => crate::registers::shapes::logic(|a, _, _| a),
    };
    let ty = match compiler.class(d) {
        Class::Word => ScalarType::B32,
        Class::Long => ScalarType::B64,
        Class::Predicate => ScalarType::Pred,
    };
    compiler.means(Lowered::Computes(Meaning::plain(ptx_lower::Op::Move, ty)));
    compiler.lanes(run, Args { d, a, ..Args::EMPTY });
}
