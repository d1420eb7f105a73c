//! Decodes logic, shifts, selections, and instructions that look at single bits or bytes.

use ptx::Constant;
use ptx::body::Operand;
use ptx::instruction::{Flag, Limit, Opcode, Operation};

use crate::{Meaning, Op};

/// The instructions of this module.
pub(crate) const OPCODES: [Opcode; 21] = {
    use Opcode::*;
    [
        And, Or, Xor, Not, Cnot, Shl, Shr, Shf, Lop3, Popc, Clz, Brev, Bfind, Fns, Bfe, Bfi, Bmsk, Szext,
        Prmt, Selp, Slct,
    ]
};

/// Decodes an instruction on bits.
pub(crate) fn decode(operation: &mut Operation, operands: &[Operand<'_>]) -> Option<Meaning> {
    use Opcode::*;
    let op = match operation.opcode? {
        And => Op::And,
        Or => Op::Or,
        Xor => Op::Xor,
        Not => Op::Not,
        Cnot => Op::IsZero,
        Shl => Op::ShiftLeft,
        Shr => Op::ShiftRight,
        Shf => {
            let left = operation.take_one(&[Flag::Left, Flag::Right])? == Flag::Left;
            Op::Funnel { left, wrap: operation.limit.take()? != Limit::Clamp }
        }
        Lop3 => match operands.get(4) {
            Some(Operand::Constant(Constant::Integer(table))) => Op::Table(*table as u8),
            _ => return None,
        },
        Popc => Op::CountOnes,
        Clz => Op::CountLeadingZeros,
        Brev => Op::ReverseBits,
        Bfind => Op::FindHighest { amount: operation.take(Flag::ShiftAmount) },
        Fns => Op::FindNth,
        Bfe => Op::ExtractBits,
        Bfi => Op::InsertBits,
        Bmsk => Op::Mask { wrap: operation.limit.take()? != Limit::Clamp },
        Szext => Op::Extend { wrap: operation.limit.take()? != Limit::Clamp },
        Prmt => Op::Permute(operation.permutation.take()),
        Selp => Op::Select,
        Slct => return select_sign(operation),
        _ => return None,
    };
    Some(Meaning::plain(op, operation.take_type()?))
}

/// `slct`: the second type is that of the number whose sign selects.
fn select_sign(operation: &mut Operation) -> Option<Meaning> {
    let flush = operation.take(Flag::FlushToZero);
    let (ty, sign) = (operation.take_type()?, operation.take_type()?);
    Some(Meaning::plain(Op::SelectSign { sign, flush }, ty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_decoded() {
        let mnemonics = [
            "and.b32",
            "or.pred",
            "xor.b64",
            "not.b16",
            "cnot.b32",
            "shl.b64",
            "shr.s16",
            "shf.r.clamp.b32",
            "popc.b64",
            "clz.b32",
            "brev.b32",
            "bfind.shiftamt.u32",
            "fns.b32",
            "bfe.s64",
            "bfi.b32",
            "bmsk.wrap.b32",
            "szext.clamp.s32",
            "prmt.b32.f4e",
            "selp.f32",
            "slct.ftz.f32.f32",
        ];
        let table = [
            Operand::Sink,
            Operand::Sink,
            Operand::Sink,
            Operand::Sink,
            Operand::Constant(Constant::Integer(0x1e8)),
        ];
        for mnemonic in mnemonics.into_iter().chain(["lop3.b32"]) {
            let mut operation = Operation::of(&ptx::Mnemonic::new(mnemonic.into()));
            let meaning = decode(&mut operation, &table).expect(mnemonic);
            assert!(operation.is_spent(), "{mnemonic}");
            assert!((1..=4).contains(&meaning.sources().len()), "{mnemonic}");
            assert!(meaning.op != Op::Table(0), "the lowest byte is the table");
        }
        assert_eq!(mnemonics.len() + 1, OPCODES.len());
    }
}
