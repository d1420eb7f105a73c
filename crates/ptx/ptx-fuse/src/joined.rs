//! The code of two kernels one after the other.
//!
//! Each kernel's code stands in braces of its own, so that names of registers and labels do not
//! meet. The end of the first one's code is a branch to the seam between them. Parameters have new
//! names. `ld.global.nc` becomes `ld.global`, because memory that the kernel writes may not be read
//! by it. Lines of the source are left out, because files have numbers by module.

use crate::contraction;
use crate::{Kernel, MOST_PARAMETER_BYTES, NAME, Part, Refusal, Same};
use ptx::Position;
use ptx::syntax::Module;
use ptx::syntax::tree::{
    Address, AddressBase, Directive, Function, Instruction, Item, Linkage, Mnemonic, Name, Operand,
    Statement, Variable,
};
use std::collections::HashMap;

/// The label between both kernels' code.
const SEAM: &str = "$apex_seam";

/// Whether a name may be one of the joined kernel's own: within a kernel's code, it would hide that
/// one.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == SEAM || name.starts_with(NAME)
}

/// The module with the joined kernel, and where its parameters come from.
pub(crate) fn module(
    first: Kernel<'_>,
    second: Kernel<'_>,
    same: &[Same],
) -> Result<(Module, Vec<(Part, usize)>), Refusal> {
    let [one, other] = [(Part::First, first), (Part::Second, second)]
        .map(|(part, kernel)| kernel.function().ok_or(Refusal::NoCode(part)));
    let (one, other) = (one?, other?);
    if first.module.target != second.module.target || first.module.address_size != second.module.address_size
    {
        return Err(Refusal::Targets);
    }
    let parameters = parameters(one, other, same)?;
    let origin = |place: usize| match parameters.origins[place] {
        (Part::First, index) => &one.params[index],
        (Part::Second, index) => &other.params[index],
    };
    let params: Vec<Variable> = (0..parameters.origins.len())
        .map(|place| Variable { name: parameter_name(place), ..origin(place).clone() })
        .collect();
    if bytes(&params) > MOST_PARAMETER_BYTES {
        return Err(Refusal::Parameters);
    }
    let mut body = vec![Statement::Block(code(one, &parameters.first, true))];
    body.push(Statement::Label(Name::from(SEAM), Position::default()));
    body.push(Statement::Block(code(other, &parameters.second, false)));
    body.push(instruction("ret", Vec::new()));
    let function = Function {
        linkage: Linkage::Visible,
        attributes: Vec::new(),
        returns: Vec::new(),
        name: Name::from(NAME),
        params,
        directives: directives(one, other),
        body: Some(body),
        ..one.clone()
    };
    let module = Module {
        version: first.module.version.max(second.module.version),
        items: vec![Item::Function(function)],
        ..first.module.clone()
    };
    Ok((module, parameters.origins))
}

/// The parameters of the joined kernel: where they come from, and what those of both are called.
struct Parameters {
    origins: Vec<(Part, usize)>,
    first: HashMap<Name, Name>,
    second: HashMap<Name, Name>,
}

fn parameter_name(place: usize) -> Name {
    Name::from(&*format!("{NAME}_param_{place}"))
}

fn parameters(one: &Function, other: &Function, same: &[Same]) -> Result<Parameters, Refusal> {
    let mut origins: Vec<(Part, usize)> = (0..one.params.len()).map(|index| (Part::First, index)).collect();
    let first = one.params.iter().enumerate().map(|(place, one)| (one.name.clone(), parameter_name(place)));
    let mut second = HashMap::new();
    for (index, parameter) in other.params.iter().enumerate() {
        let shared = same.iter().find(|same| same.second == index);
        let place = match shared {
            Some(Same { first, .. }) => {
                let known = one.params.get(*first).ok_or(Refusal::Parameters)?;
                if known.bytes() != parameter.bytes() || known.bytes().is_none() {
                    return Err(Refusal::Parameters);
                }
                *first
            }
            None => {
                origins.push((Part::Second, index));
                origins.len() - 1
            }
        };
        second.insert(parameter.name.clone(), parameter_name(place));
    }
    if same.iter().any(|same| same.second >= other.params.len()) {
        return Err(Refusal::Parameters);
    }
    Ok(Parameters { origins, first: first.collect(), second })
}

/// Bytes of parameters, each aligned.
fn bytes(params: &[Variable]) -> u64 {
    params.iter().fold(0, |end: u64, parameter| {
        let start = end.next_multiple_of(parameter.alignment());
        start.saturating_add(parameter.bytes().unwrap_or(u64::MAX))
    })
}

/// The bound on threads that holds for both.
fn directives(one: &Function, other: &Function) -> Vec<Directive> {
    let of = |function: &Function| {
        let bounds = function.directives.iter().filter(|directive| &*directive.name == "maxntid");
        bounds.cloned().collect::<Vec<_>>()
    };
    let threads = |directive: &Directive| directive.values.iter().fold(1u64, |a, b| a.saturating_mul(*b));
    let mut all = of(one);
    all.extend(of(other));
    all.sort_by_key(threads);
    all.truncate(1);
    all
}

pub(crate) fn instruction(mnemonic: &str, operands: Vec<Operand>) -> Statement {
    let mnemonic = Mnemonic::new(mnemonic.into());
    Statement::Instruction(Instruction { predicate: None, mnemonic, operands, position: Position::default() })
}

/// The code of a kernel with other names of parameters.
fn code(function: &Function, names: &HashMap<Name, Name>, to_seam: bool) -> Vec<Statement> {
    rewritten(function.body.as_deref().unwrap_or_default(), names, to_seam)
}

/// Scopes are as deep as the parser allows, which is not deep.
fn rewritten(statements: &[Statement], names: &HashMap<Name, Name>, to_seam: bool) -> Vec<Statement> {
    let one = |statement: &Statement| match statement {
        Statement::Location(_) => None,
        Statement::Block(inner) => Some(Statement::Block(rewritten(inner, names, to_seam))),
        Statement::Instruction(known) => {
            let mut known = known.clone();
            known.operands.iter_mut().for_each(|operand| rename(operand, names));
            contraction::forbid(&mut known);
            without_nc(&mut known);
            if to_seam && matches!(known.mnemonic.opcode(), "ret" | "exit") {
                known.mnemonic = Mnemonic::new("bra".into());
                known.operands = vec![Operand::Name(Name::from(SEAM))];
            }
            Some(Statement::Instruction(known))
        }
        other => Some(other.clone()),
    };
    statements.iter().filter_map(one).collect()
}

/// A load through the cache of memory that never changes becomes a plain one.
fn without_nc(instruction: &mut Instruction) {
    let text = instruction.mnemonic.text();
    if instruction.mnemonic.opcode() == "ld" && instruction.mnemonic.modifiers().any(|part| part == "nc") {
        instruction.mnemonic = Mnemonic::new(text.replacen(".nc", "", 1).as_str().into());
    }
}

fn rename(operand: &mut Operand, names: &HashMap<Name, Name>) {
    let other = |name: &mut Name| {
        if let Some(new) = names.get(name) {
            *name = new.clone();
        }
    };
    match operand {
        Operand::Name(name) | Operand::Offset(name, _) | Operand::Element(name, _) => other(name),
        Operand::Indexed(name, _, _) => other(name),
        Operand::Vector(parts) | Operand::List(parts) => {
            parts.iter_mut().for_each(|part| rename(part, names))
        }
        Operand::Address(Address { base: AddressBase::Name(name), .. }) => other(name),
        _ => {}
    }
}
