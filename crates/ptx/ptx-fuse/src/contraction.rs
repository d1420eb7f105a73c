//! Contraction: the compiler may round a product and a sum once, as if they were one `fma`, if
//! neither names a rounding. It also does this with approximate quotients, which are products with
//! a reciprocal (`findings/ptxas-contracts-approximate-divisions.sh`).
//!
//! A kernel in which a product may reach a sum is refused ([`check`]): the compiler decides, and
//! might decide otherwise in the joined kernel. In all others, no product is contracted, so
//! [`forbid`] names the rounding of each product and each sum, which is what they had, and no sum
//! behind the seam can be joined with a product before it.

use ptx::syntax::tree::{Function, Instruction, Mnemonic, Operand, Statement};
use std::collections::HashSet;

/// Instructions that do not pass on the product in a source: their result is another number, or no
/// number. (A fused sum is one even where it adds zero: the compiler leaves it.)
const ENDS: [&str; 14] =
    ["fma", "mad", "div", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "setp", "set", "ld"];

/// Refuses a kernel in which a product may be contracted with a sum.
///
/// # Errors
/// The line of the sum.
pub(crate) fn check(function: &Function) -> Result<(), u32> {
    let mut products: HashSet<String> = HashSet::new();
    let mut instructions: Vec<&Instruction> = Vec::new();
    function.visit(&mut |statement| {
        if let Statement::Instruction(instruction) = statement {
            instructions.push(instruction);
        }
    });
    // Registers that may hold a product, whatever the order in which instructions run.
    loop {
        let before = products.len();
        for instruction in &instructions {
            if is_product(instruction) || passes(instruction, &products) {
                products.extend(results(instruction));
            }
        }
        if products.len() == before {
            break;
        }
    }
    // (A product may come back from the thread's own memory.)
    let keeps = |instruction: &&&Instruction| instruction.mnemonic.text().starts_with("st.local");
    let kept = instructions.iter().filter(keeps).any(|one| sources(one).any(|name| products.contains(&name)));
    let sum = instructions.iter().find(|instruction| {
        is_sum(instruction) && (kept || sources(instruction).any(|name| products.contains(&name)))
    });
    sum.map_or(Ok(()), |sum| Err(sum.position.line))
}

/// Whether the result may be a product that is in a source. The compiler removes what changes
/// nothing before it contracts: conversions to the same type, the minimum of a number and itself,
/// rounded products with 1 (`findings/ptxas-contracts-through-identities.sh`).
fn passes(instruction: &Instruction, products: &HashSet<String>) -> bool {
    let is_one = |name: String| products.contains(&name);
    match instruction.mnemonic.opcode() {
        _ if is_integer(instruction) => sources(instruction).any(is_one),
        // (Another number among the operands may be the result, so that the compiler keeps it.)
        "min" | "max" => sources(instruction).next().is_some() && sources(instruction).all(is_one),
        "cvt" if !is_between_floats(instruction) => false,
        opcode => !ENDS.contains(&opcode) && sources(instruction).any(is_one),
    }
}

/// Names the rounding of a product or a sum that names none.
pub(crate) fn forbid(instruction: &mut Instruction) {
    let opcode = instruction.mnemonic.opcode();
    if matches!(opcode, "mul" | "add" | "sub") && is_open(instruction) {
        let rest = instruction.mnemonic.text().strip_prefix(opcode).unwrap_or_default();
        instruction.mnemonic = Mnemonic::new(format!("{opcode}.rn{rest}").as_str().into());
    }
}

/// Whether an instruction multiplies numbers, or divides them approximately, and leaves the
/// rounding open.
fn is_product(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic.opcode(), "mul" | "div") && is_open(instruction)
}

fn is_sum(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic.opcode(), "add" | "sub") && is_open(instruction)
}

/// Whether it is of floating-point numbers, without a rounding.
fn is_open(instruction: &Instruction) -> bool {
    let rounds = |part: &str| matches!(part, "rn" | "rz" | "rm" | "rp" | "rna");
    !is_integer(instruction) && !instruction.mnemonic.modifiers().any(rounds)
}

/// Whether no type of it is one of floating-point numbers.
fn is_integer(instruction: &Instruction) -> bool {
    !instruction.mnemonic.modifiers().any(is_float)
}

/// Whether a conversion is of a floating-point number to one, and not to a whole number.
fn is_between_floats(instruction: &Instruction) -> bool {
    let is_whole = |part: &str| matches!(part, "rni" | "rzi" | "rmi" | "rpi");
    let floats = instruction.mnemonic.modifiers().filter(|part| is_float(part)).count();
    floats > 1 && !instruction.mnemonic.modifiers().any(is_whole)
}

fn is_float(part: &str) -> bool {
    part.starts_with("bf") || part.starts_with('f') && part[1..].starts_with(|c: char| c.is_ascii_digit())
}

/// Names in the first operand.
fn results(instruction: &Instruction) -> impl Iterator<Item = String> {
    names(instruction.operands.iter().take(1).cloned().collect())
}

/// Names in the others; of a store, in all.
fn sources(instruction: &Instruction) -> impl Iterator<Item = String> {
    let is_store = matches!(instruction.mnemonic.opcode(), "st" | "red");
    names(instruction.operands.iter().skip(usize::from(!is_store)).cloned().collect())
}

fn names(operands: Vec<Operand>) -> impl Iterator<Item = String> {
    let mut all = Vec::new();
    for operand in &operands {
        operand.names(&mut |name| all.push(name.to_owned()));
    }
    all.into_iter()
}
