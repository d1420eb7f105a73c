//! One row of an unwinding table: how to compute the caller's registers from the registers of a
//! function.

use super::bytes::Bytes;

/// Most values on the stack of an expression.
const DEPTH: usize = 16;
/// Most operations of an expression; there are no jumps.
const OPERATIONS: usize = 64;

/// The rule for a frame's canonical address (the stack pointer before the call).
#[derive(Clone, Copy, Debug)]
pub enum Cfa<'b> {
    /// The row does not tell.
    Unknown,
    /// A register and an offset.
    Register(usize, i64),
    /// The result of an expression.
    Expression(&'b [u8]),
}

/// The rule for a register's value in the caller.
#[derive(Clone, Copy, Debug)]
pub enum Rule<'b> {
    /// Still in the register.
    Same,
    /// Nowhere.
    Undefined,
    /// On the stack, at an offset from the frame's canonical address.
    At(i64),
    /// It is that address and an offset.
    Value(i64),
    /// In another register.
    Register(usize),
    /// At the address that an expression gives.
    AtExpression(&'b [u8]),
    /// The result of an expression.
    ValueExpression(&'b [u8]),
}

/// The value of an expression of DWARF, of the operations that compilers use in unwinding tables;
/// `None` for others. `first` is on its stack to begin with.
pub fn evaluate(
    code: &[u8],
    registers: &[u64],
    first: Option<u64>,
    word: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    let (mut bytes, mut stack, mut depth) = (Bytes(code), [0u64; DEPTH], 0usize);
    if let Some(first) = first {
        (stack[0], depth) = (first, 1);
    }
    for _ in 0..OPERATIONS {
        let Some(operation) = bytes.byte() else {
            return stack.get(depth.checked_sub(1)?).copied();
        };
        let (taken, value) = match operation {
            0x06 => (1, word(*top(&stack, depth, 1)?)?),
            0x08 | 0x0a | 0x0c | 0x0e => (0, bytes.number(1 << ((operation - 0x08) / 2))?),
            0x09 | 0x0b | 0x0d | 0x0f => (0, bytes.signed(1 << ((operation - 0x09) / 2))? as u64),
            0x10 => (0, bytes.uleb()?),
            0x11 => (0, bytes.sleb()? as u64),
            0x12 => (0, *top(&stack, depth, 1)?),
            0x1a | 0x1c | 0x1e | 0x21 | 0x22 | 0x24 | 0x2a => {
                let (a, b) = (*top(&stack, depth, 2)?, *top(&stack, depth, 1)?);
                let value = match operation {
                    0x1a => a & b,
                    0x1c => a.wrapping_sub(b),
                    0x1e => a.wrapping_mul(b),
                    0x21 => a | b,
                    0x22 => a.wrapping_add(b),
                    0x24 => a.checked_shl(u32::try_from(b).ok()?).unwrap_or(0),
                    _ => u64::from(a as i64 >= b as i64),
                };
                (2, value)
            }
            0x23 => (1, top(&stack, depth, 1)?.wrapping_add(bytes.uleb()?)),
            0x30..=0x4f => (0, u64::from(operation - 0x30)),
            0x70..=0x8f => {
                let register = registers.get(usize::from(operation - 0x70))?;
                (0, register.wrapping_add_signed(bytes.sleb()?))
            }
            _ => return None,
        };
        depth -= taken;
        *stack.get_mut(depth)? = value;
        depth += 1;
    }
    None
}

/// The value `below` the top of the stack, counted from 1.
fn top(stack: &[u64; DEPTH], depth: usize, below: usize) -> Option<&u64> {
    stack.get(depth.checked_sub(below)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_compilers_have_values_and_others_have_none() {
        let registers: Vec<u64> = (100..117).collect();
        let mut word = |address| (address < 1000).then_some(address * 2);
        let mut of = |code: &[u8], first| evaluate(code, &registers, first, &mut word);
        // A realigned frame: what lies 8 below rbp.
        assert_eq!(of(&[0x76, 0x78, 0x06], None), Some(196));
        // The procedure linkage table: rsp + 8 + ((rip & 15) >= 11) * 8.
        let linkage = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(of(&linkage, None), Some(115));
        assert_eq!(of(&[0x23, 5], Some(1)), Some(6));
        assert_eq!(of(&[], None), None);
        assert_eq!(of(&[0x22], Some(1)), None);
        assert_eq!(of(&[0xff], Some(1)), None);
        assert_eq!(of(&[0x31; 40], None), None);
    }
}
