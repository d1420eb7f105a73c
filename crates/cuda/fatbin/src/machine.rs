//! Machine instructions: how much of a kernel is arithmetic in FP32 and FP64, conversions between
//! these, and accesses to memory.
//!
//! Since Volta (compute capability 7.0) an instruction has 128 bits. The lowest 9 of these say what
//! it does, the next 3 where its operands come from (registers, numbers, constant memory). NVIDIA
//! documents no encoding; the ones here are those that CuAssembler and turingas, which others
//! wrote, use for compute capabilities 7.0 to 8.6, and that nvdisasm prints for 7.5 to 12.0. All
//! others are told as [`Kind::Other`]. Nothing is executed: an instruction between the target of a
//! branch back and that branch is in a loop, and counts [`ROUNDS`] times as much as one outside.
//!
//! Invariants: any bytes have an answer, in time linear in their number.

use crate::{u32_at, u64_at};

/// Bytes of an instruction.
const BYTES: usize = 16;
/// Rounds that a loop is taken to have.
const ROUNDS: f64 = 8.0;
/// Loops in loops that count.
const DEPTH: i32 = 4;
/// The register that holds the address of the stack.
const STACK: u8 = 1;

/// The effect of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// FADD, FMUL, FFMA.
    Single,
    /// DADD, DMUL, DFMA.
    Double,
    /// F2F between FP64 and another type.
    Conversion,
    /// LDG, and LD, whose address may be of global memory.
    GlobalLoad,
    /// Another access to global or shared memory.
    Access,
    /// LDL or STL at a number of bytes from the stack's address: a register that was spilled, or
    /// an element of an array at a known index.
    Stack,
    /// LDL or STL at another address: an array that is indexed by a variable.
    Array,
    /// BRA.
    Branch,
    /// Anything else.
    Other,
}

/// The weights of a kernel's instructions by their effect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Weight of [`Kind::Single`].
    pub single: f64,
    /// Weight of [`Kind::Double`].
    pub double: f64,
    /// Weight of [`Kind::Conversion`].
    pub conversions: f64,
    /// Weight of [`Kind::GlobalLoad`].
    pub global_loads: f64,
    /// Weight of all accesses to memory.
    pub accesses: f64,
    /// Weight of [`Kind::Array`].
    pub arrays: f64,
    /// Weight of all instructions.
    pub all: f64,
}

impl Kind {
    /// Returns the effect of an instruction, by its lower half.
    pub fn of(low: u64) -> Self {
        match low & 0x1ff {
            0x020 | 0x021 | 0x023 => Self::Single,
            0x028 | 0x029 | 0x02b => Self::Double,
            0x110 => Self::Conversion,
            0x180 | 0x181 => Self::GlobalLoad,
            // LDS, ST, STG, STS, ATOM, ATOMS, RED and their forms.
            0x184..=0x186 | 0x188 | 0x18a..=0x18e | 0x1a6 | 0x1a8 | 0x1a9 => Self::Access,
            0x183 | 0x187 if (low >> 24) as u8 == STACK => Self::Stack,
            0x183 | 0x187 => Self::Array,
            0x147 => Self::Branch,
            _ => Self::Other,
        }
    }
}

impl Work {
    /// Sums the instructions in the machine code of a kernel.
    pub fn of(code: &[u8]) -> Self {
        let mut work = Work::default();
        for (instruction, depth) in code.chunks_exact(BYTES).zip(depths(code)) {
            let weight = ROUNDS.powi(depth.min(DEPTH));
            work.all += weight;
            let low = u64_at(instruction, 0).unwrap_or(0);
            match Kind::of(low) {
                Kind::Single => work.single += weight,
                Kind::Double => work.double += weight,
                Kind::Conversion => work.conversions += weight,
                Kind::GlobalLoad => {
                    (work.global_loads, work.accesses) = (work.global_loads + weight, work.accesses + weight)
                }
                Kind::Access | Kind::Stack => work.accesses += weight,
                Kind::Array => (work.arrays, work.accesses) = (work.arrays + weight, work.accesses + weight),
                Kind::Branch | Kind::Other => {}
            }
        }
        work
    }
}

/// Loops around each instruction.
fn depths(code: &[u8]) -> Vec<i32> {
    let count = code.len() / BYTES;
    // The last branch to each target: a loop may have several.
    let mut ends = vec![None; count];
    for (at, instruction) in code.chunks_exact(BYTES).enumerate() {
        if let Some(target) = target(at, instruction, count).filter(|&target| target < at) {
            ends[target] = Some(at);
        }
    }
    let mut changes = vec![0; count + 1];
    for (target, end) in ends.into_iter().enumerate() {
        if let Some(end) = end {
            changes[target] += 1;
            changes[end + 1] -= 1;
        }
    }
    let mut depth = 0;
    let sum = |change: i32| {
        depth += change;
        depth
    };
    changes.into_iter().take(count).map(sum).collect()
}

/// The instruction that a branch leads to; `None` for other instructions, and where that lies
/// outside. The distance is in words of 4 bytes from the next instruction on: 48 bits from bit 34,
/// and since compute capability 9.0 another 8 bits below these, from bit 16.
fn target(at: usize, instruction: &[u8], count: usize) -> Option<usize> {
    let (low, high) = (u64_at(instruction, 0).ok()?, u32_at(instruction, 8).ok()?);
    if Kind::of(low) != Kind::Branch {
        return None;
    }
    let upper = (u64::from(high & 0x3_ffff) << 30 | low >> 34) << 16;
    let upper = upper as i64 >> 16;
    let lower = (low >> 16 & 0xff) as i64;
    let older = upper;
    let newer = upper.checked_mul(256)? | lower;
    // A distance is a whole number of instructions, of four words.
    let words = if lower == 0 && older % 4 == 0 { older } else { newer };
    let target = (at as i64 + 1).checked_add(words / 4)?;
    usize::try_from(target).ok().filter(|&target| words % 4 == 0 && target < count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lowest 12 bits of instructions as other decoders know them.
    #[test]
    fn instructions_are_told_by_their_lowest_bits() {
        let of =
            |all: &[u64], kind: Kind| all.iter().for_each(|&low| assert_eq!(Kind::of(low), kind, "{low:x}"));
        of(
            &[0x221, 0x421, 0x621, 0xe21, 0x220, 0x820, 0xa20, 0xc20, 0x223, 0x423, 0x823, 0xa23],
            Kind::Single,
        );
        of(&[0x229, 0x429, 0x629, 0xe29, 0x228, 0x828, 0xa28, 0x22b, 0x42b, 0x82b, 0xe2b], Kind::Double);
        of(&[0x310, 0xb10], Kind::Conversion);
        of(&[0x381, 0x981, 0x980], Kind::GlobalLoad);
        of(
            &[0x386, 0x986, 0x385, 0x985, 0x984, 0x388, 0x988, 0x38a, 0x38c, 0x3a8, 0x9a9, 0x98e, 0x9a6],
            Kind::Access,
        );
        of(&[0x0100_0983, 0x0100_0387, 0x0100_0987], Kind::Stack);
        of(&[0x0500_0983, 0x0500_0387, 0xff00_0987], Kind::Array);
        of(&[0x947, 0x547], Kind::Branch);
        // DSETP, F2F between FP32 and FP16, HMMA, BAR, EXIT.
        of(&[0x22a, 0x304, 0x23c, 0xb1d, 0x94d], Kind::Other);
    }

    /// An instruction of these 128 bits.
    fn instruction(low: u64, high: u64) -> Vec<u8> {
        [low.to_le_bytes(), high.to_le_bytes()].concat()
    }

    /// A branch over so many words, as compute capability 8 and 9 encode it.
    fn branches(words: i64) -> [Vec<u8>; 2] {
        let older = u128::from(words as u64 & 0xffff_ffff_ffff) << 34 | 0x947;
        let upper = u128::from((words >> 8) as u64 & 0xffff_ffff_ffff) << 34;
        let newer = upper | u128::from(words as u64 & 0xff) << 16 | 0x947;
        [older, newer].map(|bits| bits.to_le_bytes().to_vec())
    }

    #[test]
    fn what_branches_lead_back_over_counts_as_often_as_a_loop_has_rounds() {
        for (form, back) in branches(-8).into_iter().enumerate() {
            let double = instruction(0x22b, 0);
            let code = [double.clone(), double, back].concat();
            let work = Work::of(&code);
            assert_eq!((work.double, work.all), (9.0, 17.0), "{form}");
        }
        // A branch to itself, behind the end, is no loop; neither is one forward.
        for words in [-4, 4] {
            for branch in branches(words) {
                assert_eq!(Work::of(&[branch, instruction(0x22b, 0), instruction(0, 0)].concat()).all, 3.0);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(code in proptest::collection::vec(any::<u8>(), 0..600)) {
            let work = Work::of(&code);
            prop_assert!(work.all >= (code.len() / BYTES) as f64);
        }
    }
}
