//! Code for what is narrower than a word: bytes, and words' lower halves.
//!
//! Registers hold them in the lowest bits of words. The bits above are undefined: each reader
//! extends the value that it reads.

use ptx::instruction::Comparison;

use super::{A, B, C, Generator, stack};
use crate::assembler::{Gpr, If, RAX, RCX, RSP, Rm, Vex, op};
use crate::kind::{Kind, Second};
use crate::region::{Guard, Reg};

/// The number of bytes, and whether they have a sign.
type Narrow = (u8, bool);

impl Generator<'_> {
    /// Extends the lowest bytes of words.
    pub(super) fn extend_narrow(&mut self, (bytes, signed): Narrow, to: u8, from: u8) {
        let unused = self.asm.constant([32 - 8 * u32::from(bytes); 8]);
        self.asm.vector(op::PSLLVD, to, from, unused);
        self.asm.vector(if signed { op::PSRAVD } else { op::PSRLVD }, to, to, unused);
    }

    /// Puts the lowest bytes of eight words side by side, into the lowest bytes of `A`. Overwrites
    /// `B`.
    pub(super) fn pack(&mut self, bytes: u8, from: u8) {
        let kept = 4 * usize::from(bytes);
        let byte = |half: usize, at: usize| match at.checked_sub(half * kept) {
            Some(at) if at < kept => (at / usize::from(bytes) * 4 + at % usize::from(bytes)) as u8,
            _ => 0x80,
        };
        let word =
            |index: usize| u32::from_le_bytes(std::array::from_fn(|at| byte(index / 4, index % 4 * 4 + at)));
        let places = self.asm.constant(std::array::from_fn(word));
        self.asm.vector(op::PSHUFB, A, from, places);
        self.asm.with_byte(op::EXTRACTI128, A, 0, Rm::Ymm(B), 1);
        self.asm.vector(op::POR, A, A, Rm::Ymm(B));
    }

    /// An access of consecutive elements, from a place on.
    pub(super) fn consecutive_narrow(
        &mut self,
        (bytes, signed): Narrow,
        reg: Reg,
        store: bool,
        (base, distance): (Gpr, i32),
    ) {
        let place = Rm::Memory(base, distance);
        if store {
            let from = self.reg(reg, 0, A);
            self.pack(bytes, from);
            return match bytes {
                1 => self.asm.scalar(op::PEXTRQ, A, place, Some(0)),
                _ => self.asm.scalar(op::MOVUPS_STORE, A, place, None),
            };
        }
        let vex = match (bytes, signed) {
            (1, false) => op::PMOVZXBD,
            (1, true) => op::PMOVSXBD,
            (_, false) => op::PMOVZXWD,
            (_, true) => op::PMOVSXWD,
        };
        let to = self.target(reg, 0, None);
        self.asm.two(vex, to, place);
        self.finish(reg, 0, to, None);
    }

    /// An access thread by thread, in those of the guard, at addresses on the stack plus a
    /// distance.
    pub(super) fn scattered_narrow(
        &mut self,
        (bytes, signed): Narrow,
        reg: Reg,
        store: bool,
        (addresses, distance): (i32, i32),
        guard: Option<Guard>,
    ) {
        guard.into_iter().for_each(|guard| self.lanes_of(guard));
        let from = if store { self.reg(reg, 0, A) } else { A };
        if store {
            self.asm.with_byte(op::EXTRACTI128, from, 0, Rm::Ymm(B), 1);
        }
        for lane in 0..8u8 {
            let next = self.asm.label();
            if guard.is_some() {
                self.asm.test(RAX, 1 << lane);
                self.asm.jump_if(If::Zero, next);
            }
            self.asm.load(RCX, RSP, addresses + i32::from(lane) * 8);
            if store {
                let (vex, part) = if bytes == 1 { (op::PEXTRB, 4) } else { (op::PEXTRW, 2) };
                let of = if lane < 4 { from } else { B };
                self.asm.scalar(vex, of, Rm::Memory(RCX, distance), Some(lane % 4 * part));
            } else {
                self.asm.load_narrow((bytes, signed), RCX, RCX, distance);
                self.asm.store_low(RSP, stack::GATHERED + i32::from(lane) * 4, RCX);
            }
            self.asm.bind(next);
        }
        if !store {
            self.asm.two(op::MOVUPS_LOAD, C, Rm::Memory(RSP, stack::GATHERED));
            self.finish(reg, 0, C, guard);
        }
    }

    /// A register of two bytes, extended.
    pub(super) fn extend_short(&mut self, reg: Reg, signed: bool, to: u8) {
        let from = self.reg(reg, 0, to);
        self.extend_narrow((2, signed), to, from);
    }

    /// An operation on integers of two bytes.
    pub(super) fn short(&mut self, vex: Vex, signed: bool, second: Second, to: u8, sources: &[Reg]) {
        self.extend_short(sources[0], signed, A);
        match second {
            Second::Word => self.fetch(sources[1], 0, B),
            _ => self.extend_short(sources[1], signed, B),
        }
        if second == Second::Widening {
            return self.asm.vector(vex, to, A, Rm::Ymm(B));
        }
        self.asm.vector(vex, A, A, Rm::Ymm(B));
        self.extend_narrow((2, signed), to, A);
    }

    /// Compares the signed words in `A` and `B`.
    pub(super) fn compare_extended(&mut self, relation: Comparison, to: u8) {
        use Comparison::{Equal, Greater, GreaterEqual, LessEqual, NotEqual};
        match relation {
            Equal | NotEqual => self.asm.vector(op::PCMPEQD, A, A, Rm::Ymm(B)),
            Greater | LessEqual => self.asm.vector(op::PCMPGTD, A, A, Rm::Ymm(B)),
            _ => self.asm.vector(op::PCMPGTD, A, B, Rm::Ymm(A)),
        }
        match relation {
            NotEqual | LessEqual | GreaterEqual => {
                let all = self.asm.constant([u32::MAX; 8]);
                self.asm.vector(op::PXOR, to, A, all);
            }
            _ => self.asm.two(op::MOVAPS, to, Rm::Ymm(A)),
        }
    }

    /// Converts between `.f16` and `.f32`.
    pub(super) fn convert_halves(&mut self, kind: Kind, to: u8, source: Reg) {
        let from = self.reg(source, 0, C);
        if kind == Kind::HalfToSingle {
            self.pack(2, from);
            return self.asm.two(op::CVTPH2PS, to, Rm::Ymm(A));
        }
        self.asm.with_byte(op::CVTPS2PH, from, 0, Rm::Ymm(A), 0);
        self.asm.two(op::PMOVZXWD, A, Rm::Ymm(A));
        self.asm.with_byte(op::CMPPS, B, from, Rm::Ymm(from), 3);
        let nan = self.asm.constant([0x7fff; 8]);
        self.asm.blend(to, A, nan, B);
    }
}
