//! Code for `.f64`, conversions, and operations that take several machine instructions.
//!
//! Invariant: the results are bit for bit those of the interpreter's functions; where rounding
//! matters, the code does the same operations in the same order.

use super::{A, B, C, Generator, VECTOR, stack};
use crate::assembler::{RSP, Rm, Vex, op};
use crate::kind::Kind;
use crate::region::Reg;

const TWO_31: f64 = 2_147_483_648.0;

/// Adding this to a whole number below 2^51 leaves its integer in the low bits.
const WHOLE: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// Coefficients of the Taylor series of `2^x`: ln(2)^k / k!. The interpreter uses the same, since
/// both give the same bits.
pub const POWERS: [f64; 9] = [
    1.0,
    std::f64::consts::LN_2,
    0.240_226_506_959_100_7,
    0.055_504_108_664_821_58,
    0.009_618_129_107_628_477,
    0.001_333_355_814_642_844_3,
    0.000_154_035_303_933_816_1,
    0.000_015_252_733_804_059_84,
    0.000_001_321_548_679_014_431,
];

impl Generator<'_> {
    fn long_constant(&mut self, bits: u64) -> Rm {
        self.asm.constant(std::array::from_fn(|lane| (bits >> (32 * (lane % 2))) as u32))
    }

    fn number(&mut self, number: f64) -> Rm {
        self.long_constant(number.to_bits())
    }

    fn single(&mut self, number: f32) -> Rm {
        self.asm.constant([number.to_bits(); 8])
    }

    /// The lower words of the longs in `C` and `A`. The generator's own registers may be changed.
    pub(super) fn join_halves(&mut self, to: u8) {
        self.asm.with_byte(op::SHUFPS, A, C, Rm::Ymm(A), 0x88);
        self.asm.with_byte(op::PERMQ, to, 0, Rm::Ymm(A), 0xd8);
    }

    /// Half of a word's lanes as numbers of `.f64`.
    fn double_of(&mut self, word: Reg, half: usize, signed: bool, to: u8) {
        if signed {
            return self.widen_by(op::CVTDQ2PD, word, half, to);
        }
        // The integer as the low fraction bits of 2^52.
        let zero = self.number(4_503_599_627_370_496.0);
        self.widen(word, half, false, to);
        self.asm.vector(op::POR, to, to, zero);
        self.asm.vector(op::SUBPD, to, to, zero);
    }

    /// Operations with an `.f64` result that take several instructions.
    pub(super) fn double(&mut self, kind: Kind, to: u8, sources: &[Reg], half: usize) {
        match kind {
            Kind::FmaDouble => {
                let a = self.reg(sources[0], half, A);
                self.fetch(sources[2], half, B);
                let b = self.rm(sources[1], half);
                self.asm.vector(op::FMADD231PD, B, a, b);
                self.asm.two(op::MOVAPS, to, Rm::Ymm(B));
            }
            Kind::ReciprocalDouble => {
                let one = self.number(1.0);
                self.asm.two(op::MOVUPS_LOAD, A, one);
                let a = self.rm(sources[0], half);
                self.asm.vector(op::DIVPD, to, A, a);
            }
            Kind::Widen => self.widen_by(op::CVTPS2PD, sources[0], half, to),
            Kind::ToDouble { signed } => self.double_of(sources[0], half, signed, to),
            other => unreachable!("{other:?} is no number of `.f64`"),
        }
    }

    pub(super) fn extremum_of_doubles(&mut self, least: bool, to: u8, sources: &[Reg], half: usize) {
        let (vex, join) = if least { (op::MINPD, op::POR) } else { (op::MAXPD, op::PAND) };
        self.extremum_by([vex, join, op::CMPPD], to, sources, half);
    }

    pub(super) fn compare_doubles(&mut self, code: u8, to: u8, sources: &[Reg]) {
        for (half, result) in [(1, A), (0, C)] {
            // `B`, for `A` has the upper half already.
            let a = self.reg(sources[0], half, B);
            let b = self.rm(sources[1], half);
            self.asm.with_byte(op::CMPPD, result, a, b, code);
        }
        self.join_halves(to);
    }

    /// Operations on `.f32` that are computed in `.f64`, and conversions to `.f32`.
    pub(super) fn through_doubles(&mut self, kind: Kind, to: u8, sources: &[Reg]) {
        for half in 0..2 {
            match kind {
                Kind::Narrow => self.fetch(sources[0], half, A),
                Kind::UnsignedToFloat => self.double_of(sources[0], half, false, A),
                Kind::ReciprocalRoot => {
                    self.widen_by(op::CVTPS2PD, sources[0], half, A);
                    self.asm.two(op::SQRTPD, B, Rm::Ymm(A));
                    let one = self.number(1.0);
                    self.asm.two(op::MOVUPS_LOAD, A, one);
                    self.asm.vector(op::DIVPD, A, A, Rm::Ymm(B));
                }
                _ => self.power_of_two(sources[0], half),
            }
            self.asm.two(op::CVTPD2PS, A, Rm::Ymm(A));
            let half = Rm::Memory(RSP, stack::GATHERED + half as i32 * VECTOR / 2);
            self.asm.scalar(op::MOVUPS_STORE, A, half, None);
        }
        let whole = Rm::Memory(RSP, stack::GATHERED);
        let Kind::PowerOfTwo { flushes } = kind else { return self.asm.two(op::MOVUPS_LOAD, to, whole) };
        self.asm.two(op::MOVUPS_LOAD, A, whole);
        if flushes {
            let exponent = self.asm.constant([0x7f80_0000; 8]);
            self.asm.vector(op::PAND, B, A, exponent);
            self.asm.vector(op::PXOR, C, C, Rm::Ymm(C));
            self.asm.vector(op::PCMPEQD, B, B, Rm::Ymm(C));
            self.asm.vector(op::PANDN, A, B, Rm::Ymm(A));
        }
        // A NaN is not a power.
        self.fetch(sources[0], 0, B);
        self.asm.with_byte(op::CMPPS, C, B, Rm::Ymm(B), 3);
        self.asm.blend(to, A, Rm::Ymm(B), C);
    }

    /// `2^x` of half of a word's lanes, in `A`.
    fn power_of_two(&mut self, word: Reg, half: usize) {
        self.widen_by(op::CVTPS2PD, word, half, A);
        for (vex, bound) in [(op::MAXPD, -200.0), (op::MINPD, 200.0)] {
            let bound = self.number(bound);
            self.asm.two(op::MOVUPS_LOAD, B, bound);
            self.asm.vector(vex, A, B, Rm::Ymm(A));
        }
        let whole = self.number(WHOLE);
        self.asm.vector(op::ADDPD, B, A, whole);
        self.asm.vector(op::SUBPD, C, B, whole);
        self.asm.vector(op::SUBPD, C, A, Rm::Ymm(C));
        let exponent = self.long_constant(52);
        self.asm.vector(op::PSLLVQ, B, B, exponent);
        let [.., last] = POWERS;
        let last = self.number(last);
        self.asm.two(op::MOVUPS_LOAD, A, last);
        for factor in POWERS.into_iter().rev().skip(1) {
            let factor = self.number(factor);
            self.asm.vector(op::MULPD, A, A, Rm::Ymm(C));
            self.asm.vector(op::ADDPD, A, A, factor);
        }
        self.asm.vector(op::PADDQ, A, A, Rm::Ymm(B));
    }

    /// `.sat`, and `div.approx`, for which numbers beyond 2^126 are infinite.
    pub(super) fn approximate_quotient(&mut self, kind: Kind, to: u8, sources: &[Reg]) {
        if kind == Kind::Saturate {
            let a = self.reg(sources[0], 0, A);
            self.asm.vector(op::PXOR, B, B, Rm::Ymm(B));
            self.asm.vector(op::MAXPS, A, a, Rm::Ymm(B));
            let one = self.single(1.0);
            return self.asm.vector(op::MINPS, to, A, one);
        }
        let (magnitude, sign) = (self.asm.constant([0x7fff_ffff; 8]), self.asm.constant([1 << 31; 8]));
        let b = self.reg(sources[1], 0, B);
        self.asm.vector(op::PAND, A, b, magnitude);
        // Greater than 2^126 and less than infinity.
        let least = self.asm.constant([0x7e80_0000; 8]);
        self.asm.vector(op::PCMPGTD, C, A, least);
        let infinity = self.asm.constant([0x7f80_0000; 8]);
        self.asm.two(op::MOVUPS_LOAD, B, infinity);
        self.asm.vector(op::PCMPGTD, A, B, Rm::Ymm(A));
        self.asm.vector(op::PAND, C, C, Rm::Ymm(A));
        let b = self.reg(sources[1], 0, B);
        self.asm.vector(op::PAND, A, b, sign);
        let first = self.rm(sources[0], 0);
        self.asm.vector(op::MULPS, A, A, first);
        let b = self.rm(sources[1], 0);
        let first = self.reg(sources[0], 0, B);
        self.asm.vector(op::DIVPS, B, first, b);
        self.asm.blend(to, B, Rm::Ymm(A), C);
    }

    /// Converts `.f32` to an integer, saturating; a NaN becomes 0.
    pub(super) fn single_to_word(&mut self, direction: u8, signed: bool, to: u8, a: Reg) {
        let a = self.rm(a, 0);
        self.asm.with_byte(op::ROUNDPS, A, 0, a, direction);
        let end = self.single(TWO_31 as f32);
        if signed {
            self.asm.two(op::CVTTPS2DQ, B, Rm::Ymm(A));
            self.asm.with_byte(op::CMPPS, C, A, end, 0x1d);
            self.asm.vector(op::PXOR, B, B, Rm::Ymm(C));
            self.asm.with_byte(op::CMPPS, A, A, Rm::Ymm(A), 7);
            return self.asm.vector(op::PAND, to, B, Rm::Ymm(A));
        }
        self.asm.vector(op::PXOR, B, B, Rm::Ymm(B));
        self.asm.vector(op::MAXPS, A, A, Rm::Ymm(B));
        self.asm.with_byte(op::CMPPS, C, A, end, 0x1d);
        self.asm.vector(op::PAND, B, C, end);
        self.asm.vector(op::SUBPS, B, A, Rm::Ymm(B));
        self.asm.two(op::CVTTPS2DQ, B, Rm::Ymm(B));
        let top = self.asm.constant([1 << 31; 8]);
        self.asm.vector(op::PAND, C, C, top);
        self.asm.vector(op::POR, B, B, Rm::Ymm(C));
        let end = self.single(2.0 * TWO_31 as f32);
        self.asm.with_byte(op::CMPPS, A, A, end, 0x1d);
        self.asm.vector(op::POR, to, B, Rm::Ymm(A));
    }

    /// Converts `.f64` to a signed integer, saturating; a NaN becomes the minimum.
    pub(super) fn double_to_word(&mut self, direction: u8, to: u8, a: Reg) {
        for (half, result) in [(0, C), (1, A)] {
            let a = self.rm(a, half);
            self.asm.with_byte(op::ROUNDPD, A, 0, a, direction);
            let most = self.number(TWO_31 - 1.0);
            self.asm.two(op::MOVUPS_LOAD, B, most);
            self.asm.vector(op::MINPD, A, B, Rm::Ymm(A));
            self.asm.two(op::CVTTPD2DQ, result, Rm::Ymm(A));
        }
        self.asm.with_byte(op::INSERTI128, to, C, Rm::Ymm(A), 1);
    }

    pub(super) fn multiply_high(&mut self, signed: bool, to: u8, sources: &[Reg]) {
        let product = if signed { op::PMULDQ } else { op::PMULUDQ };
        let (a, b) = (self.rm(sources[0], 0), self.rm(sources[1], 0));
        self.asm.two(op::MOVSHDUP, A, a);
        self.asm.two(op::MOVSHDUP, B, b);
        self.asm.vector(product, B, A, Rm::Ymm(B));
        let a = self.reg(sources[0], 0, A);
        self.asm.vector(product, A, a, b);
        self.asm.two(op::MOVSHDUP, A, Rm::Ymm(A));
        self.asm.with_byte(op::PBLENDD, to, A, Rm::Ymm(B), 0xaa);
    }

    /// The product of longs, from three products of words.
    pub(super) fn multiply_long(&mut self, add: bool, to: u8, sources: &[Reg], half: usize) {
        let upper = self.long_constant(32);
        let a = self.reg(sources[0], half, A);
        let b = self.rm(sources[1], half);
        self.asm.vector(op::PSRLVQ, B, a, upper);
        self.asm.vector(op::PMULUDQ, B, B, b);
        let of_b = self.reg(sources[1], half, C);
        self.asm.vector(op::PSRLVQ, C, of_b, upper);
        self.asm.vector(op::PMULUDQ, C, C, Rm::Ymm(a));
        self.asm.vector(op::PADDQ, B, B, Rm::Ymm(C));
        self.asm.vector(op::PSLLVQ, B, B, upper);
        self.asm.vector(op::PMULUDQ, A, a, b);
        if !add {
            return self.asm.vector(op::PADDQ, to, A, Rm::Ymm(B));
        }
        self.asm.vector(op::PADDQ, A, A, Rm::Ymm(B));
        let c = self.rm(sources[2], half);
        self.asm.vector(op::PADDQ, to, A, c);
    }

    pub(super) fn extremum_of_longs(
        &mut self,
        least: bool,
        signed: bool,
        to: u8,
        sources: &[Reg],
        half: usize,
    ) {
        self.fetch(sources[0], half, A);
        self.fetch(sources[1], half, B);
        if !signed {
            let sign = self.long_constant(1 << 63);
            self.asm.vector(op::PXOR, A, A, sign);
            self.asm.vector(op::PXOR, B, B, sign);
        }
        self.asm.vector(op::PCMPGTQ, C, A, Rm::Ymm(B));
        let (greater, other) = if least { (sources[1], sources[0]) } else { (sources[0], sources[1]) };
        let other = self.reg(other, half, A);
        let greater = self.rm(greater, half);
        self.asm.blend(to, other, greater, C);
    }

    pub(super) fn shift_right_long(&mut self, to: u8, sources: &[Reg], half: usize) {
        self.widen(sources[1], half, false, B);
        let a = self.reg(sources[0], half, A);
        self.asm.vector(op::PXOR, C, C, Rm::Ymm(C));
        self.asm.vector(op::PCMPGTQ, C, C, Rm::Ymm(a));
        // Negative numbers are inverted, so that zeros are shifted in, and inverted back.
        self.asm.vector(op::PXOR, A, a, Rm::Ymm(C));
        self.asm.vector(op::PSRLVQ, A, A, Rm::Ymm(B));
        self.asm.vector(op::PXOR, to, A, Rm::Ymm(C));
    }

    pub(super) fn funnel(&mut self, left: bool, to: u8, sources: &[Reg]) {
        let (bits, all) = (self.asm.constant([31; 8]), self.asm.constant([32; 8]));
        // The word that is kept, and the one whose bits come in.
        let (kept, other): ((Reg, Vex), (Reg, Vex)) = match left {
            true => ((sources[1], op::PSLLVD), (sources[0], op::PSRLVD)),
            false => ((sources[0], op::PSRLVD), (sources[1], op::PSLLVD)),
        };
        let amount = self.reg(sources[2], 0, B);
        self.asm.vector(op::PAND, B, amount, bits);
        let word = self.reg(kept.0, 0, A);
        self.asm.vector(kept.1, A, word, Rm::Ymm(B));
        self.asm.two(op::MOVUPS_LOAD, C, all);
        self.asm.vector(op::PSUBD, C, C, Rm::Ymm(B));
        let word = self.reg(other.0, 0, B);
        self.asm.vector(other.1, B, word, Rm::Ymm(C));
        self.asm.vector(op::POR, to, A, Rm::Ymm(B));
    }

    /// A quotient or remainder of words, computed in `.f64`, which is exact; all ones if the
    /// divisor is 0.
    pub(super) fn divide(&mut self, signed: bool, remainder: bool, to: u8, sources: &[Reg]) {
        let whole = self.number(WHOLE);
        for (half, result) in [(0, C), (1, A)] {
            self.double_of(sources[0], half, signed, A);
            self.double_of(sources[1], half, signed, B);
            self.asm.vector(op::DIVPD, A, A, Rm::Ymm(B));
            self.asm.with_byte(op::ROUNDPD, A, 0, Rm::Ymm(A), 3);
            self.asm.vector(op::ADDPD, result, A, whole);
        }
        self.join_halves(A);
        if remainder {
            let b = self.rm(sources[1], 0);
            self.asm.vector(op::PMULLD, A, A, b);
            let a = self.reg(sources[0], 0, B);
            self.asm.vector(op::PSUBD, A, a, Rm::Ymm(A));
        }
        let b = self.rm(sources[1], 0);
        self.asm.vector(op::PXOR, B, B, Rm::Ymm(B));
        self.asm.vector(op::PCMPEQD, B, B, b);
        self.asm.vector(op::POR, to, A, Rm::Ymm(B));
    }

    /// Truncates and extends a word to the size of one type, and then to that of another.
    pub(super) fn resize(&mut self, sizes: [(u8, bool); 2], to: u8, a: Reg) {
        self.fetch(a, 0, A);
        for (bits, signed) in sizes.into_iter().filter(|(bits, _)| *bits < 32) {
            let unused = self.asm.constant([32 - u32::from(bits); 8]);
            let back = if signed { op::PSRAVD } else { op::PSRLVD };
            self.asm.vector(op::PSLLVD, A, A, unused);
            self.asm.vector(back, A, A, unused);
        }
        self.asm.two(op::MOVAPS, to, Rm::Ymm(A));
    }
}
