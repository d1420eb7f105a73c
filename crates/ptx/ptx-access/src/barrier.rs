//! Kernels whose accesses are not known: no other launch may run beside them.

use std::fmt;

use ptx::instruction::{Flag, Opcode, Operation};

/// Why the accesses of a kernel are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The address is computed from something that was loaded from memory, or was returned.
    Loaded,
    /// The address is, or may be, computed from no parameter and no variable.
    Absolute,
    /// A function is called.
    Call,
    /// What the instruction accesses is not known: textures, bulk copies, launches.
    Instruction,
    /// The PTX is not what a compiler writes for 64-bit programs, or is too long.
    Malformed,
}

impl Reason {
    /// What it means, as a sentence without full stop.
    pub fn sentence(self) -> &'static str {
        match self {
            Reason::Loaded => "the address may come from memory",
            Reason::Absolute => "the address may come from no parameter",
            Reason::Call => "a function is called",
            Reason::Instruction => "what this instruction accesses is not known",
            Reason::Malformed => "the PTX is too long, or not what a compiler writes for 64-bit programs",
        }
    }

    /// A name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Loaded => "loaded",
            Reason::Absolute => "absolute",
            Reason::Call => "call",
            Reason::Instruction => "instruction",
            Reason::Malformed => "malformed",
        }
    }
}

/// The first instruction whose accesses are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The reason.
    pub reason: Reason,
    /// The instruction as PTX text; empty if the reason is not about one.
    pub instruction: String,
    /// Its line in the PTX, from 1; 0 if there is none.
    pub line: u32,
}

impl fmt::Display for Barrier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.reason.sentence())?;
        match self.instruction.is_empty() {
            true => Ok(()),
            false => write!(out, ": `{}` (PTX line {})", self.instruction, self.line),
        }
    }
}

/// Instructions that access no memory that other launches see, and those of which
/// [`ptx::instruction::accesses`] tells all accesses. Everything else is a barrier.
pub(crate) fn is_known(operation: &Operation) -> bool {
    use Opcode::*;
    let Some(opcode) = operation.opcode.filter(|_| operation.unknown == 0) else { return false };
    match opcode {
        Abs | Activemask | Add | Addc | And | Bar | Barrier | Bfe | Bfi | Bfind | Bmsk | Bra | Brev | Brx
        | Clz | Cnot | Copysign | Cos | Cvt | Cvta | Div | Dp2a | Dp4a | Elect | Ex2 | Exit | Fence | Fma
        | Fns | Isspacep | Lg2 | Lop3 | Mad | Mad24 | Madc | Match | Max | Membar | Min | Mma | Mov
        | Movmatrix | Mul | Mul24 | Nanosleep | Neg | Not | Or | Popc | Prmt | Rcp | Redux | Rem | Ret
        | Rsqrt | Sad | Selp | Set | Setp | Shf | Shfl | Shl | Shr | Sin | Slct | Sqrt | Sub | Subc
        | Szext | Tanh | Testp | Trap | Vote | Xor => true,
        Ld | Ldu | Ldmatrix | St | Stmatrix | Atom | Red | Wmma => true,
        Cp => ![Flag::Bulk, Flag::Tensor, Flag::Reduce].iter().any(|flag| operation.has(*flag)),
        _ => false,
    }
}
