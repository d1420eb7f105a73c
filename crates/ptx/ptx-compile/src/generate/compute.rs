//! Code for what computes a register of others.
//!
//! A result is written after the last source was read, for they may be the same register.

use ptx::instruction::Comparison;
use ptx_lower::Meaning;

use super::{A, B, C, DEFAULT_CONTROL, Generator};
use crate::assembler::{Rm, Vex, op};
use crate::kind::{Kind, kind};
use crate::region::{Class, Guard, Reg};

impl Generator<'_> {
    /// `d = f(sources)` in the threads that the guard lets act; `at_once` tells that NaNs are
    /// replaced, as `nans` does for guarded instructions.
    pub(super) fn compute(
        &mut self,
        meaning: &Meaning,
        d: Reg,
        sources: &[Reg],
        guard: Option<Guard>,
        at_once: bool,
    ) {
        let kind = kind(meaning).expect("whoever makes regions asks what is supported");
        for half in 0..self.halves(d) {
            let to = self.target(d, half, guard);
            self.half(kind, to, sources, half);
            if kind.makes_nans() && (at_once || self.nans.eager[d.0 as usize]) {
                self.replace_nans(to, to);
            }
            self.finish(d, half, to, guard);
        }
    }

    /// The vector register in which a result is computed.
    pub(super) fn target(&self, d: Reg, half: usize, guard: Option<Guard>) -> u8 {
        match self.rm(d, half) {
            Rm::Ymm(number) if guard.is_none() => number,
            _ => C,
        }
    }

    /// Puts a result where it belongs, in the threads that the guard lets act.
    pub(super) fn finish(&mut self, d: Reg, half: usize, from: u8, guard: Option<Guard>) {
        let place = self.rm(d, half);
        let Some(guard) = guard else {
            if place != Rm::Ymm(from) {
                self.asm.two(op::MOVUPS_STORE, from, place);
            }
            return;
        };
        if self.class(d) == Class::Long {
            self.widen(guard.predicate, half, true, B);
        } else {
            self.fetch(guard.predicate, 0, B);
        }
        self.fetch(d, half, A);
        match guard.negated {
            false => self.asm.blend(A, A, Rm::Ymm(from), B),
            true => self.asm.blend(A, from, Rm::Ymm(A), B),
        }
        self.asm.two(op::MOVUPS_STORE, A, place);
    }

    /// One vector of a result.
    fn half(&mut self, kind: Kind, to: u8, sources: &[Reg], half: usize) {
        match kind {
            Kind::Copy => self.fetch(sources[0], half, to),
            Kind::Simple(vex) | Kind::Float(vex) => self.binary(vex, to, sources, half),
            Kind::Fma => self.multiply_add(to, sources),
            Kind::SquareRoot => self.unary(op::SQRTPS, to, sources[0], 0),
            Kind::Reciprocal => self.reciprocal(to, sources[0]),
            Kind::Extremum { least } => self.extremum(least, to, sources),
            Kind::FmaDirected(control) => {
                self.asm.set_control(control);
                self.multiply_add(to, sources);
                self.asm.set_control(DEFAULT_CONTROL);
            }
            Kind::Unary(vex) => self.unary(vex, to, sources[0], half),
            Kind::Round(direction) => self.round(op::ROUNDPS, direction, to, sources[0], 0),
            Kind::RoundDouble(direction) => self.round(op::ROUNDPD, direction, to, sources[0], half),
            Kind::Keep(bits) => self.with_constant(op::PAND, to, sources[0], half, bits),
            Kind::Flip(bits) => self.with_constant(op::PXOR, to, sources[0], half, bits),
            Kind::Negate(vex) => self.negate(vex, to, sources[0], half),
            Kind::ExtremumDouble { least } => self.extremum_of_doubles(least, to, sources, half),
            Kind::FmaDouble | Kind::ReciprocalDouble | Kind::Widen | Kind::ToDouble { .. } => {
                self.double(kind, to, sources, half);
            }
            Kind::Saturate | Kind::DivideApproximately => self.approximate_quotient(kind, to, sources),
            Kind::ReciprocalRoot | Kind::PowerOfTwo { .. } | Kind::Narrow | Kind::UnsignedToFloat => {
                self.through_doubles(kind, to, sources);
            }
            Kind::ToWord { direction, signed } => self.single_to_word(direction, signed, to, sources[0]),
            Kind::DoubleToWord(direction) => self.double_to_word(direction, to, sources[0]),
            Kind::CompareDouble(code) => self.compare_doubles(code, to, sources),
            Kind::MultiplyHigh { signed } => self.multiply_high(signed, to, sources),
            Kind::MultiplyLong { add } => self.multiply_long(add, to, sources, half),
            Kind::ExtremumLong { least, signed } => self.extremum_of_longs(least, signed, to, sources, half),
            Kind::ShiftRightLong => self.shift_right_long(to, sources, half),
            Kind::Funnel { left } => self.funnel(left, to, sources),
            Kind::Divide { signed, remainder } => self.divide(signed, remainder, to, sources),
            Kind::Resize(sizes) => self.resize(sizes, to, sources[0]),
            Kind::MultiplyAdd => self.multiply_add_words(to, sources),
            Kind::Wide { signed, add } => self.wide(signed, add, to, sources, half),
            Kind::ShiftLong(vex) => self.shift_long(vex, to, sources, half),
            Kind::CompareFloat(code) => self.compare_singles(code, to, sources),
            Kind::Compare { relation, signed, long } => self.compare(relation, signed, long, to, sources),
            Kind::Select { long } => self.select(long, to, sources, half),
            Kind::Extend { signed } => self.widen(sources[0], half, signed, to),
            Kind::Truncate => self.truncate(to, sources[0]),
            Kind::ToFloat => self.unary(op::CVTDQ2PS, to, sources[0], 0),
            Kind::NarrowToFloat { bytes, signed } => {
                let a = self.reg(sources[0], 0, A);
                self.extend_narrow((bytes, signed), A, a);
                self.asm.two(op::CVTDQ2PS, to, Rm::Ymm(A));
            }
            Kind::HalfToSingle | Kind::SingleToHalf => self.convert_halves(kind, to, sources[0]),
            Kind::Short { vex, signed, second } => self.short(vex, signed, second, to, sources),
            Kind::CompareShort { relation, signed } => {
                self.extend_short(sources[1], signed, B);
                self.extend_short(sources[0], signed, A);
                self.compare_extended(relation, to);
            }
        }
    }

    fn unary(&mut self, vex: Vex, to: u8, a: Reg, half: usize) {
        let a = self.rm(a, half);
        self.asm.two(vex, to, a);
    }

    fn binary(&mut self, vex: Vex, to: u8, sources: &[Reg], half: usize) {
        let a = self.reg(sources[0], half, A);
        let b = self.rm(sources[1], half);
        self.asm.vector(vex, to, a, b);
    }

    fn round(&mut self, vex: Vex, direction: u8, to: u8, a: Reg, half: usize) {
        let a = self.rm(a, half);
        self.asm.with_byte(vex, to, 0, a, direction);
    }

    fn reciprocal(&mut self, to: u8, a: Reg) {
        let one = self.asm.constant([1f32.to_bits(); 8]);
        self.asm.two(op::MOVUPS_LOAD, A, one);
        let a = self.rm(a, 0);
        self.asm.vector(op::DIVPS, to, A, a);
    }

    /// `0 - a`.
    fn negate(&mut self, vex: Vex, to: u8, a: Reg, half: usize) {
        let a = self.rm(a, half);
        self.asm.vector(op::PXOR, B, B, Rm::Ymm(B));
        self.asm.vector(vex, to, B, a);
    }

    fn multiply_add_words(&mut self, to: u8, sources: &[Reg]) {
        self.binary(op::PMULLD, A, sources, 0);
        let c = self.rm(sources[2], 0);
        self.asm.vector(op::PADDD, to, A, c);
    }

    /// Shifts longs by words.
    fn shift_long(&mut self, vex: Vex, to: u8, sources: &[Reg], half: usize) {
        self.widen(sources[1], half, false, B);
        let a = self.reg(sources[0], half, A);
        self.asm.vector(vex, to, a, Rm::Ymm(B));
    }

    fn compare_singles(&mut self, code: u8, to: u8, sources: &[Reg]) {
        let a = self.reg(sources[0], 0, A);
        let b = self.rm(sources[1], 0);
        self.asm.with_byte(op::CMPPS, to, a, b, code);
    }

    fn select(&mut self, long: bool, to: u8, sources: &[Reg], half: usize) {
        match long {
            true => self.widen(sources[2], half, true, B),
            false => self.fetch(sources[2], 0, B),
        }
        let no = self.reg(sources[1], half, A);
        let yes = self.rm(sources[0], half);
        self.asm.blend(to, no, yes, B);
    }

    /// The lower words of longs.
    fn truncate(&mut self, to: u8, long: Reg) {
        self.fetch(long, 0, C);
        self.fetch(long, 1, A);
        self.join_halves(to);
    }

    /// `a * b + c`. The result may be in the register of any of the three.
    fn multiply_add(&mut self, to: u8, sources: &[Reg]) {
        let [a, b, c] = [0, 1, 2].map(|index| self.rm(sources[index], 0));
        if a == Rm::Ymm(to) && c != a {
            let b = self.reg(sources[1], 0, B);
            return self.asm.vector(op::FMADD213PS, to, b, c);
        }
        if b == Rm::Ymm(to) && c != b {
            let a = self.reg(sources[0], 0, A);
            return self.asm.vector(op::FMADD213PS, to, a, c);
        }
        self.fetch(sources[2], 0, to);
        let b = self.reg(sources[1], 0, B);
        self.asm.vector(op::FMADD231PS, to, b, a);
    }

    fn with_constant(&mut self, vex: Vex, to: u8, a: Reg, half: usize, bits: [u32; 2]) {
        let bits = self.asm.constant(std::array::from_fn(|lane| bits[lane % 2]));
        let a = self.reg(a, half, A);
        self.asm.vector(vex, to, a, bits);
    }

    /// A half of a word's lanes as longs. With its sign a mask stays one.
    pub(super) fn widen(&mut self, word: Reg, half: usize, signed: bool, to: u8) {
        let vex = if signed { op::PMOVSXDQ } else { op::PMOVZXDQ };
        self.widen_by(vex, word, half, to);
    }

    /// A half of a word's lanes, made twice as wide by an instruction.
    pub(super) fn widen_by(&mut self, vex: Vex, word: Reg, half: usize, to: u8) {
        match self.rm(word, 0) {
            Rm::Memory(base, distance) => {
                self.asm.two(vex, to, Rm::Memory(base, distance + half as i32 * 16));
            }
            Rm::Ymm(number) if half == 1 => {
                self.asm.with_byte(op::EXTRACTI128, number, 0, Rm::Ymm(to), 1);
                self.asm.two(vex, to, Rm::Ymm(to));
            }
            from => self.asm.two(vex, to, from),
        }
    }

    fn wide(&mut self, signed: bool, add: bool, to: u8, sources: &[Reg], half: usize) {
        self.widen(sources[0], half, signed, A);
        self.widen(sources[1], half, signed, B);
        let product = if signed { op::PMULDQ } else { op::PMULUDQ };
        if !add {
            return self.asm.vector(product, to, A, Rm::Ymm(B));
        }
        self.asm.vector(product, A, A, Rm::Ymm(B));
        let c = self.rm(sources[2], half);
        self.asm.vector(op::PADDQ, to, A, c);
    }

    /// The lesser or greater number: a NaN loses, and -0 is less than 0.
    fn extremum(&mut self, least: bool, to: u8, sources: &[Reg]) {
        let (vex, join) = if least { (op::MINPS, op::POR) } else { (op::MAXPS, op::PAND) };
        self.extremum_by([vex, join, op::CMPPS], to, sources, 0);
    }

    /// [`extremum`](Self::extremum) by an instruction, what joins its results where the numbers are
    /// equal, and a comparison.
    pub(super) fn extremum_by(
        &mut self,
        [vex, join, compare]: [Vex; 3],
        to: u8,
        sources: &[Reg],
        half: usize,
    ) {
        let (a, b) = (sources[0], sources[1]);
        self.fetch(a, half, A);
        self.fetch(b, half, B);
        // The instruction gives its second source where the numbers are equal.
        let (first, second) = (A, B);
        self.asm.vector(vex, C, first, Rm::Ymm(second));
        self.asm.vector(vex, A, second, Rm::Ymm(first));
        self.asm.vector(join, C, C, Rm::Ymm(A));
        self.fetch(a, half, A);
        self.asm.with_byte(compare, A, A, Rm::Ymm(A), 3);
        self.asm.blend(C, C, Rm::Ymm(B), A);
        self.asm.with_byte(compare, B, B, Rm::Ymm(B), 3);
        self.fetch(a, half, A);
        self.asm.blend(to, C, Rm::Ymm(A), B);
    }

    fn compare(&mut self, relation: Comparison, signed: bool, long: bool, to: u8, sources: &[Reg]) {
        use Comparison::{Equal, Greater, GreaterEqual, LessEqual, NotEqual};
        let turned = !matches!(relation, Greater | LessEqual);
        let equality = matches!(relation, Equal | NotEqual);
        let (a, b) = match turned {
            true => (sources[1], sources[0]),
            false => (sources[0], sources[1]),
        };
        let vex = match (equality, long) {
            (true, false) => op::PCMPEQD,
            (true, true) => op::PCMPEQQ,
            (false, false) => op::PCMPGTD,
            (false, true) => op::PCMPGTQ,
        };
        let halves = if long { 2 } else { 1 };
        // The upper half stays in `A`, the lower one in `C`.
        for half in (0..halves).rev() {
            self.fetch(a, half, if half == 1 { A } else { C });
            self.fetch(b, half, B);
            let left = if half == 1 { A } else { C };
            if !signed && !equality {
                let sign = match long {
                    true => [0, 1 << 31, 0, 1 << 31, 0, 1 << 31, 0, 1 << 31],
                    false => [1 << 31; 8],
                };
                let sign = self.asm.constant(sign);
                self.asm.vector(op::PXOR, left, left, sign);
                self.asm.vector(op::PXOR, B, B, sign);
            }
            self.asm.vector(vex, left, left, Rm::Ymm(B));
        }
        if long {
            self.join_halves(C);
        }
        match matches!(relation, NotEqual | LessEqual | GreaterEqual) {
            true => {
                let all = self.asm.constant([u32::MAX; 8]);
                self.asm.vector(op::PXOR, to, C, all);
            }
            false => self.asm.two(op::MOVAPS, to, Rm::Ymm(C)),
        }
    }
}
