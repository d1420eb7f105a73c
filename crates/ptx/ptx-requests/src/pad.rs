//! The rows of an array in shared memory get padding, so that a column lies in all banks.
//!
//! Registers keep the addresses that the program computes. At each access to the array, its place
//! `at` becomes `at + at / row * padding`, which is another place for each element, and the array
//! grows by as much. So the rewritten kernel computes the same, if every access to the array is
//! known and none crosses the end of a row.

use crate::tree::{lists, rewritten};
use crate::{Change, Tried, is_excessive, place};
use cuda_launch::LaunchConfig;
use ptx::Position;
use ptx::analysis::{Atom, Values};
use ptx::body::{Base, Body, InstructionId, Names, Symbol, VariableId};
use ptx::flow::Flow;
use ptx::instruction::{Operations, Shape, accesses as accesses_of};
use ptx::syntax::tree::{
    Address, AddressBase, Constant, Instruction, Item, Linkage, Mnemonic, Name, Operand, Statement, Variable,
};
use ptx::syntax::{Module, ScalarType, StateSpace};
use ptx_estimate::Requested;
use std::collections::HashMap;

/// Most lengths of a row that are tried for an array.
const MOST_ROWS: usize = 6;
/// Shared memory that every block may have without asking for more, bytes.
const MOST_SHARED: u64 = 48 << 10;
/// Registers that the rewritten kernel has in addition.
const SCRATCH: &str = "%padded_";

/// An array with all accesses to it.
struct Array {
    name: Name,
    is_dynamic: bool,
    bytes: u64,
    /// Most bytes of an access, which is the padding.
    widest: u64,
    /// Positions of the accesses, and the bits of the register that holds the address.
    places: HashMap<(u32, u32), u32>,
}

/// The padded kernels: for each array with conflicts, some lengths of its rows.
pub(crate) fn changes(
    module: &Module,
    kernel: &str,
    accesses: &[Requested],
    launch: LaunchConfig,
) -> Vec<Tried> {
    let conflicts = |access: &&Requested| access.space == StateSpace::Shared && is_excessive(access);
    if !accesses.iter().any(|access| conflicts(&access)) {
        return Vec::new();
    }
    let mut tried = Vec::new();
    for array in arrays(module, kernel, &launch).unwrap_or_default() {
        let own: Vec<usize> =
            (0..accesses.len()).filter(|&at| array.places.contains_key(&place(&accesses[at]))).collect();
        let steps = own.iter().map(|&at| &accesses[at]).filter(conflicts);
        for row in rows(&array, steps) {
            let padded = padded(module, kernel, &array, row);
            let more = array.bytes.div_ceil(row) * array.widest;
            let mut launch = launch;
            if array.is_dynamic {
                launch.dynamic_shared_bytes = launch.dynamic_shared_bytes.saturating_add(more as u32);
            }
            let variable = array.name.to_string();
            let change = Change::PadRows { variable, row_bytes: row, padding: array.widest };
            let accesses = Some(own.iter().copied().filter(|&at| is_excessive(&accesses[at])).collect());
            tried.extend(padded.map(|module| Tried { change, module, launch, conditional: false, accesses }));
        }
    }
    tried
}

/// Lengths that rows may have: the distances of lanes that conflict, and the banks' 128 bytes.
fn rows<'a>(array: &Array, conflicts: impl Iterator<Item = &'a Requested>) -> Vec<u64> {
    let steps = conflicts.filter_map(|access| access.cost?.lane_step).map(i64::unsigned_abs);
    let mut all: Vec<u64> = steps.chain([128]).collect();
    all.retain(|row| *row > array.widest && row % array.widest == 0 && *row <= array.bytes / 2);
    all.sort_unstable();
    all.dedup();
    all.truncate(MOST_ROWS);
    all
}

/// The arrays in shared memory of a kernel; none if an access to one of them is not known.
fn arrays(module: &Module, kernel: &str, launch: &LaunchConfig) -> Option<Vec<Array>> {
    let function = module.kernel(kernel)?;
    let body = Names::new(module).body(function);
    let operations = Operations::of(&body);
    let flow = Flow::of(&body, &operations);
    let values = Values::of(&body, &operations, &flow);
    let mut arrays: Vec<(VariableId, Array)> = Vec::new();
    let shared = |id: &VariableId| body.variable(*id).space == StateSpace::Shared;
    let ids: Vec<VariableId> = (0..body.variables.len() as u32).map(VariableId).filter(shared).collect();
    for (at, line) in (0..).map(InstructionId).zip(&body.lines) {
        let text = line.instruction.mnemonic.text();
        if line.instruction.mnemonic.opcode() == "call"
            || text.starts_with("cvta.") && text.contains("shared")
            || text.starts_with("mbarrier")
        {
            return None;
        }
        let operation = &operations[at.index()];
        let touched = accesses_of(operation, &line.operands);
        if touched.is_empty() && text.contains("shared") {
            return None;
        }
        for (index, access) in touched.iter().enumerate() {
            if access.space != Some(StateSpace::Shared) {
                continue;
            }
            if access.shape != Shape::Lanes || touched.len() > 1 {
                return None;
            }
            let (bits, direct) = width(&body, access.base)?;
            let variable = match (direct, &ids[..]) {
                (Some(variable), _) => variable,
                (None, [only]) => *only,
                _ => variable_of(&values, at, index)?,
            };
            let known = arrays.iter().position(|(id, _)| *id == variable);
            let known = match known {
                Some(known) => known,
                None => {
                    arrays.push((variable, array(body.variable(variable), launch)?));
                    arrays.len() - 1
                }
            };
            let (_, array) = &mut arrays[known];
            let position = line.instruction.position;
            array.places.insert((position.line, position.column), bits);
            array.widest = array.widest.max(access.bytes);
        }
    }
    // Arrays that are sized at launch begin at one address.
    let dynamic = arrays.iter().filter(|(_, array)| array.is_dynamic).count();
    let dynamic_ids = ids.iter().filter(|id| body.variable(**id).stated_bytes().is_none()).count();
    arrays.retain(|(_, array)| array.bytes > 0 && array.widest.is_power_of_two());
    (dynamic <= 1 && dynamic_ids <= 1).then(|| arrays.into_iter().map(|(_, array)| array).collect())
}

fn array(variable: &Variable, launch: &LaunchConfig) -> Option<Array> {
    let stated = variable.stated_bytes();
    Some(Array {
        name: variable.name.clone(),
        is_dynamic: stated.is_none(),
        bytes: stated.unwrap_or(launch.dynamic_shared_bytes.into()),
        widest: 1,
        places: HashMap::new(),
    })
}

/// The bits of the register with an address, or the variable that the address names.
fn width(body: &Body<'_>, base: Base<'_>) -> Option<(u32, Option<VariableId>)> {
    match base {
        Base::Name(Symbol::Variable(variable)) => Some((32, Some(variable))),
        Base::Name(Symbol::Register(register)) => {
            let ty = body.registers[register.index()].declaration?.ty;
            let bits = 8 * ty.bytes() as u32;
            matches!(bits, 32 | 64).then_some((bits, None))
        }
        _ => None,
    }
}

/// The variable into which an address points, if its value has one.
fn variable_of(values: &Values, at: InstructionId, access: usize) -> Option<VariableId> {
    let sum = values.sums().get(values.address(at, access)?.value);
    let mut found = Vec::new();
    values.sums().atoms_of(sum, &mut |atom| {
        if let Atom::Address(variable) = atom {
            found.push(variable);
        }
    });
    match found[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// The kernel with padded rows of an array.
fn padded(module: &Module, kernel: &str, array: &Array, row: u64) -> Option<Module> {
    let more = array.bytes.div_ceil(row) * array.widest;
    if !array.is_dynamic && array.bytes + more > MOST_SHARED {
        return None;
    }
    let mut module = rewritten(module, kernel, |body| {
        let mut names = false;
        lists(body, &mut |list| {
            names |= list
                .iter()
                .any(|one| matches!(one, Statement::Variable(known) if known.name.starts_with(SCRATCH)));
            let mut rewritten = Vec::new();
            for statement in std::mem::take(list) {
                access(statement, array, row, &mut rewritten);
            }
            *list = rewritten;
            resize(list.iter_mut().filter_map(variable), array, more);
        });
        body.insert(0, scratch(32));
        body.insert(0, scratch(64));
        (!names).then_some(())
    })?;
    let of_module = module.items.iter_mut().filter_map(|item| match item {
        Item::Variable(variable) => Some(variable),
        _ => None,
    });
    resize(of_module, array, more);
    Some(module)
}

fn variable(statement: &mut Statement) -> Option<&mut Variable> {
    match statement {
        Statement::Variable(variable) => Some(variable),
        _ => None,
    }
}

/// Makes the declaration of the array as large as it has to be.
fn resize<'a>(variables: impl Iterator<Item = &'a mut Variable>, array: &Array, more: u64) {
    for variable in variables.filter(|one| one.name == array.name && one.space == StateSpace::Shared) {
        if variable.linkage != Linkage::Extern || !array.is_dynamic {
            let align = variable.alignment();
            variable.ty = ScalarType::B8;
            variable.vector = 1;
            variable.align = Some(align as u32);
            variable.dimensions = vec![Some(array.bytes + more)];
        }
    }
}

/// Three registers of a width.
fn scratch(bits: u32) -> Statement {
    Statement::Variable(Variable {
        linkage: Linkage::Internal,
        space: StateSpace::Reg,
        attributes: Vec::new(),
        align: None,
        vector: 1,
        ty: if bits == 64 { ScalarType::B64 } else { ScalarType::B32 },
        pointer: None,
        name: Name::from(&*format!("{SCRATCH}{bits}_")),
        count: Some(3),
        dimensions: Vec::new(),
        initializer: None,
        position: Position::default(),
    })
}

/// Puts a statement, and before an access to the array the computation of its padded address.
fn access(statement: Statement, array: &Array, row: u64, to: &mut Vec<Statement>) {
    let Statement::Instruction(mut instruction) = statement else {
        return to.push(statement);
    };
    let at = (instruction.position.line, instruction.position.column);
    let bits = array.places.get(&at);
    let operand = instruction.operands.iter_mut().find_map(|operand| match operand {
        Operand::Address(address) => Some(address),
        _ => None,
    });
    if let (Some(&bits), Some(address)) = (bits, operand) {
        move_address(address, array, row, bits, instruction.position, to);
    }
    to.push(Statement::Instruction(instruction));
}

/// Computes `address + (address - array) / row * padding`, and makes that the address.
fn move_address(
    address: &mut Address,
    array: &Array,
    row: u64,
    bits: u32,
    position: Position,
    to: &mut Vec<Statement>,
) {
    let register = |index: u32| Name::from(&*format!("{SCRATCH}{bits}_{index}"));
    let [base, place, rows] = [0, 1, 2].map(|index| Operand::Name(register(index)));
    let number = |number: i128| Operand::Constant(Constant::Integer(number));
    let AddressBase::Name(pointer) = address.base.clone() else { return };
    let pointer = Operand::Name(pointer);
    let mut put = |mnemonic: &str, operands: Vec<Operand>| {
        let mnemonic = Mnemonic::new(Name::from(&*format!("{mnemonic}{bits}")));
        to.push(Statement::Instruction(Instruction { predicate: None, mnemonic, operands, position }));
    };
    put("mov.u", vec![base.clone(), Operand::Name(array.name.clone())]);
    put("mov.u", vec![place.clone(), pointer]);
    put("add.s", vec![place.clone(), place.clone(), number(address.offset.into())]);
    put("sub.s", vec![rows.clone(), place.clone(), base]);
    put("div.u", vec![rows.clone(), rows.clone(), number(row.into())]);
    put("mul.lo.u", vec![rows.clone(), rows.clone(), number(array.widest.into())]);
    put("add.s", vec![place, Operand::Name(register(1)), rows]);
    *address = Address { base: AddressBase::Name(register(1)), offset: 0, rest: Vec::new() };
}
