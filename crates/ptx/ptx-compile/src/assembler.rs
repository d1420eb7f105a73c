//! The encoder of the few dozen instruction forms that the generator needs.
//!
//! Vector instructions have the three-byte VEX prefix, whatever could be shorter: one way to encode
//! is one way to be wrong. Jumps have 32-bit distances and are patched when their label is bound.
//! A test has another decoder read every form.

/// A general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpr(pub(crate) u8);

pub(crate) const RAX: Gpr = Gpr(0);
pub(crate) const RCX: Gpr = Gpr(1);
pub(crate) const RDX: Gpr = Gpr(2);
pub(crate) const RBX: Gpr = Gpr(3);
pub(crate) const RSP: Gpr = Gpr(4);
pub(crate) const RBP: Gpr = Gpr(5);
pub(crate) const RSI: Gpr = Gpr(6);
pub(crate) const RDI: Gpr = Gpr(7);
pub(crate) const R8: Gpr = Gpr(8);
pub(crate) const R9: Gpr = Gpr(9);
pub(crate) const R10: Gpr = Gpr(10);
pub(crate) const R11: Gpr = Gpr(11);
pub(crate) const R12: Gpr = Gpr(12);
pub(crate) const R13: Gpr = Gpr(13);
pub(crate) const R14: Gpr = Gpr(14);
pub(crate) const R15: Gpr = Gpr(15);

/// The operand that may be a register or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rm {
    /// A vector register.
    Ymm(u8),
    /// Bytes at a distance from a general register.
    Memory(Gpr, i32),
    /// An entry of the constant pool.
    Constant(Constant),
}

/// An entry of the constant pool, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constant(pub(crate) u32);

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label(u32);

/// The encoding of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vex {
    /// The implied prefix: none, 66, F3, F2.
    prefix: u8,
    /// The opcode map: 0F, 0F38, 0F3A.
    map: u8,
    wide: bool,
    opcode: u8,
}

const fn vex(prefix: u8, map: u8, opcode: u8) -> Vex {
    Vex { prefix, map, wide: false, opcode }
}

/// The instructions, by Intel's names without the `v`.
pub(crate) mod op {
    use super::{Vex, vex};

    pub(crate) const MOVUPS_LOAD: Vex = vex(0, 1, 0x10);
    pub(crate) const MOVUPS_STORE: Vex = vex(0, 1, 0x11);
    pub(crate) const MOVAPS: Vex = vex(0, 1, 0x28);
    pub(crate) const ADDPS: Vex = vex(0, 1, 0x58);
    pub(crate) const MULPS: Vex = vex(0, 1, 0x59);
    pub(crate) const SUBPS: Vex = vex(0, 1, 0x5c);
    pub(crate) const MINPS: Vex = vex(0, 1, 0x5d);
    pub(crate) const DIVPS: Vex = vex(0, 1, 0x5e);
    pub(crate) const MAXPS: Vex = vex(0, 1, 0x5f);
    pub(crate) const SQRTPS: Vex = vex(0, 1, 0x51);
    pub(crate) const CMPPS: Vex = vex(0, 1, 0xc2);
    pub(crate) const CVTDQ2PS: Vex = vex(0, 1, 0x5b);
    pub(crate) const MOVMSKPS: Vex = vex(0, 1, 0x50);
    pub(crate) const SHUFPS: Vex = vex(0, 1, 0xc6);
    pub(crate) const FMADD231PS: Vex = vex(1, 2, 0xb8);
    pub(crate) const FMADD213PS: Vex = vex(1, 2, 0xa8);
    pub(crate) const FMADD231PD: Vex = Vex { wide: true, ..FMADD231PS };
    pub(crate) const ADDPD: Vex = vex(1, 1, 0x58);
    pub(crate) const MULPD: Vex = vex(1, 1, 0x59);
    pub(crate) const SUBPD: Vex = vex(1, 1, 0x5c);
    pub(crate) const MINPD: Vex = vex(1, 1, 0x5d);
    pub(crate) const DIVPD: Vex = vex(1, 1, 0x5e);
    pub(crate) const MAXPD: Vex = vex(1, 1, 0x5f);
    pub(crate) const SQRTPD: Vex = vex(1, 1, 0x51);
    pub(crate) const CMPPD: Vex = vex(1, 1, 0xc2);
    pub(crate) const ROUNDPS: Vex = vex(1, 3, 0x08);
    pub(crate) const ROUNDPD: Vex = vex(1, 3, 0x09);
    pub(crate) const CVTPS2PD: Vex = vex(0, 1, 0x5a);
    pub(crate) const CVTPD2PS: Vex = vex(1, 1, 0x5a);
    pub(crate) const CVTDQ2PD: Vex = vex(2, 1, 0xe6);
    pub(crate) const CVTTPD2DQ: Vex = vex(1, 1, 0xe6);
    pub(crate) const CVTTPS2DQ: Vex = vex(2, 1, 0x5b);
    pub(crate) const MOVSHDUP: Vex = vex(2, 1, 0x16);
    pub(crate) const PBLENDD: Vex = vex(1, 3, 0x02);
    pub(crate) const PABSD: Vex = vex(1, 2, 0x1e);
    pub(crate) const BROADCASTSD: Vex = vex(1, 2, 0x19);
    pub(crate) const PEXTRQ: Vex = Vex { wide: true, ..PEXTRD };
    pub(crate) const INSERTI128: Vex = vex(1, 3, 0x38);
    pub(crate) const LDMXCSR: Vex = vex(0, 1, 0xae);
    pub(crate) const PADDD: Vex = vex(1, 1, 0xfe);
    pub(crate) const PSUBD: Vex = vex(1, 1, 0xfa);
    pub(crate) const PADDQ: Vex = vex(1, 1, 0xd4);
    pub(crate) const PSUBQ: Vex = vex(1, 1, 0xfb);
    pub(crate) const PAND: Vex = vex(1, 1, 0xdb);
    pub(crate) const PANDN: Vex = vex(1, 1, 0xdf);
    pub(crate) const POR: Vex = vex(1, 1, 0xeb);
    pub(crate) const PXOR: Vex = vex(1, 1, 0xef);
    pub(crate) const PCMPEQD: Vex = vex(1, 1, 0x76);
    pub(crate) const PCMPGTD: Vex = vex(1, 1, 0x66);
    pub(crate) const PCMPEQQ: Vex = vex(1, 2, 0x29);
    pub(crate) const PCMPGTQ: Vex = vex(1, 2, 0x37);
    pub(crate) const PMULLD: Vex = vex(1, 2, 0x40);
    pub(crate) const PMULUDQ: Vex = vex(1, 1, 0xf4);
    pub(crate) const PMULDQ: Vex = vex(1, 2, 0x28);
    pub(crate) const PMINSD: Vex = vex(1, 2, 0x39);
    pub(crate) const PMINUD: Vex = vex(1, 2, 0x3b);
    pub(crate) const PMAXSD: Vex = vex(1, 2, 0x3d);
    pub(crate) const PMAXUD: Vex = vex(1, 2, 0x3f);
    pub(crate) const PSLLVD: Vex = vex(1, 2, 0x47);
    pub(crate) const PSLLVQ: Vex = Vex { wide: true, ..PSLLVD };
    pub(crate) const PSRLVD: Vex = vex(1, 2, 0x45);
    pub(crate) const PSRLVQ: Vex = Vex { wide: true, ..PSRLVD };
    pub(crate) const PSRAVD: Vex = vex(1, 2, 0x46);
    pub(crate) const BLENDVPS: Vex = vex(1, 3, 0x4a);
    pub(crate) const PMOVSXDQ: Vex = vex(1, 2, 0x25);
    pub(crate) const PMOVZXDQ: Vex = vex(1, 2, 0x35);
    pub(crate) const BROADCASTSS: Vex = vex(1, 2, 0x18);
    pub(crate) const PBROADCASTD: Vex = vex(1, 2, 0x58);
    pub(crate) const PBROADCASTQ: Vex = vex(1, 2, 0x59);
    pub(crate) const PBROADCASTB: Vex = vex(1, 2, 0x78);
    pub(crate) const PBROADCASTW: Vex = vex(1, 2, 0x79);
    pub(crate) const PMOVSXBD: Vex = vex(1, 2, 0x21);
    pub(crate) const PMOVSXWD: Vex = vex(1, 2, 0x23);
    pub(crate) const PMOVZXBD: Vex = vex(1, 2, 0x31);
    pub(crate) const PMOVZXWD: Vex = vex(1, 2, 0x33);
    pub(crate) const PSHUFB: Vex = vex(1, 2, 0x00);
    pub(crate) const PEXTRB: Vex = vex(1, 3, 0x14);
    pub(crate) const PEXTRW: Vex = vex(1, 3, 0x15);
    pub(crate) const CVTPH2PS: Vex = vex(1, 2, 0x13);
    pub(crate) const CVTPS2PH: Vex = vex(1, 3, 0x1d);
    pub(crate) const TESTPS: Vex = vex(1, 2, 0x0e);
    pub(crate) const PTEST: Vex = vex(1, 2, 0x17);
    pub(crate) const PMOVMSKB: Vex = vex(1, 1, 0xd7);
    pub(crate) const MOVMSKPD: Vex = vex(1, 1, 0x50);
    pub(crate) const EXTRACTI128: Vex = vex(1, 3, 0x39);
    pub(crate) const PERMD: Vex = vex(1, 2, 0x36);
    pub(crate) const PERMQ: Vex = Vex { wide: true, ..vex(1, 3, 0x00) };
    pub(crate) const MOVD: Vex = vex(1, 1, 0x7e);
    pub(crate) const MOVQ: Vex = Vex { wide: true, ..MOVD };
    pub(crate) const PEXTRD: Vex = vex(1, 3, 0x16);
    pub(crate) const GATHERQPS: Vex = vex(1, 2, 0x93);
    pub(crate) const GATHERQPD: Vex = Vex { wide: true, ..GATHERQPS };
}

/// A condition of a jump: the low bits of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum If {
    AboveOrEqual = 3,
    Zero = 4,
    NotZero = 5,
    Above = 7,
    Greater = 15,
}

/// Code that is being written.
#[derive(Default)]
pub(crate) struct Assembler {
    pub(crate) code: Vec<u8>,
    /// Position of each label, once it is bound.
    labels: Vec<Option<usize>>,
    /// Distances to be filled in: where, and to what.
    jumps: Vec<(usize, Label)>,
    constants: Vec<[u32; 8]>,
    /// Places of distances to constants, and the number of bytes that follow them.
    references: Vec<(usize, Constant, usize)>,
}

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    /// Puts a label here.
    pub(crate) fn bind(&mut self, label: Label) {
        self.labels[label.0 as usize] = Some(self.code.len());
    }

    /// The constant with these words.
    pub(crate) fn constant(&mut self, words: [u32; 8]) -> Rm {
        let known = self.constants.iter().position(|known| *known == words);
        let index = known.unwrap_or_else(|| {
            self.constants.push(words);
            self.constants.len() - 1
        });
        Rm::Constant(Constant(index as u32))
    }

    /// `op reg, first, rm` on 256 bits.
    pub(crate) fn vector(&mut self, vex: Vex, reg: u8, first: u8, rm: Rm) {
        self.encode(vex, true, reg, first, rm, None);
    }

    /// `op reg, rm`: an instruction with two operands.
    pub(crate) fn two(&mut self, vex: Vex, reg: u8, rm: Rm) {
        self.encode(vex, true, reg, 0, rm, None);
    }

    /// `op reg, first, rm, byte`.
    pub(crate) fn with_byte(&mut self, vex: Vex, reg: u8, first: u8, rm: Rm, byte: u8) {
        self.encode(vex, true, reg, first, rm, Some(byte));
    }

    /// `op` on 128 bits, between a vector register and a general one or memory.
    pub(crate) fn scalar(&mut self, vex: Vex, reg: u8, rm: Rm, byte: Option<u8>) {
        self.encode(vex, false, reg, 0, rm, byte);
    }

    /// `vblendvps to, old, new, mask`.
    pub(crate) fn blend(&mut self, to: u8, old: u8, new: Rm, mask: u8) {
        self.with_byte(op::BLENDVPS, to, old, new, mask << 4);
    }

    /// Sets the control register of the vector unit.
    pub(crate) fn set_control(&mut self, value: u32) {
        let value = self.constant([value; 8]);
        self.scalar(op::LDMXCSR, 2, value, None);
    }

    /// `vgatherqps to(xmm), [addresses(ymm) + distance], mask(xmm)`, and `vgatherqpd to(ymm), …,
    /// mask(ymm)`.
    pub(crate) fn gather(&mut self, vex: Vex, to: u8, addresses: u8, distance: i32, mask: u8) {
        let high = |register: u8| register >> 3 & 1;
        self.code.extend([0xc4, (high(to) ^ 1) << 7 | (high(addresses) ^ 1) << 6 | 1 << 5 | vex.map]);
        self.code.extend([u8::from(vex.wide) << 7 | (!mask & 15) << 3 | 1 << 2 | vex.prefix, vex.opcode]);
        // No base: the distance is always there.
        self.code.extend([(to & 7) << 3 | 4, (addresses & 7) << 3 | 5]);
        self.code.extend(distance.to_le_bytes());
    }

    fn encode(&mut self, vex: Vex, long: bool, reg: u8, first: u8, rm: Rm, byte: Option<u8>) {
        let base = match rm {
            Rm::Ymm(number) => number,
            Rm::Memory(base, _) => base.0,
            Rm::Constant(_) => 0,
        };
        self.code.extend([0xc4, (reg >> 3 ^ 1) << 7 | 1 << 6 | (base >> 3 ^ 1) << 5 | vex.map]);
        let w = u8::from(vex.wide) << 7;
        self.code.extend([w | (!first & 15) << 3 | u8::from(long) << 2 | vex.prefix, vex.opcode]);
        self.operand(reg, rm, usize::from(byte.is_some()));
        self.code.extend(byte);
    }

    /// The bytes that name a register and the operand that may be memory.
    fn operand(&mut self, reg: u8, rm: Rm, after: usize) {
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Ymm(number) => self.code.push(0xc0 | reg | number & 7),
            Rm::Memory(base, distance) => {
                self.code.push(0x80 | reg | base.0 & 7);
                if base.0 & 7 == 4 {
                    self.code.push(0x24);
                }
                self.code.extend(distance.to_le_bytes());
            }
            Rm::Constant(constant) => {
                self.code.push(reg | 5);
                self.references.push((self.code.len(), constant, after));
                self.code.extend([0; 4]);
            }
        }
    }

    /// `op reg, [base + distance]` and the like on general registers.
    fn general(&mut self, wide: bool, opcode: u8, reg: u8, rm: Rm, after: usize) {
        let base = match rm {
            Rm::Ymm(number) => number,
            Rm::Memory(base, _) => base.0,
            Rm::Constant(_) => 0,
        };
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | base >> 3;
        self.code.extend([rex, opcode]);
        self.operand(reg, rm, after);
    }

    /// Loads four bytes without a sign.
    pub(crate) fn load_low(&mut self, to: Gpr, base: Gpr, distance: i32) {
        self.general(false, 0x8b, to.0, Rm::Memory(base, distance), 0);
    }

    pub(crate) fn load(&mut self, to: Gpr, base: Gpr, distance: i32) {
        self.general(true, 0x8b, to.0, Rm::Memory(base, distance), 0);
    }

    /// Loads one or two bytes, extended to four.
    pub(crate) fn load_narrow(&mut self, (bytes, signed): (u8, bool), to: Gpr, base: Gpr, distance: i32) {
        let opcode = 0xb6 | u8::from(signed) << 3 | (bytes - 1);
        self.code.extend([0x40 | (to.0 >> 3) << 2 | base.0 >> 3, 0x0f, opcode]);
        self.operand(to.0, Rm::Memory(base, distance), 0);
    }

    /// Stores the lower half of a register.
    pub(crate) fn store_low(&mut self, base: Gpr, distance: i32, from: Gpr) {
        self.general(false, 0x89, from.0, Rm::Memory(base, distance), 0);
    }

    pub(crate) fn store(&mut self, base: Gpr, distance: i32, from: Gpr) {
        self.general(true, 0x89, from.0, Rm::Memory(base, distance), 0);
    }

    /// Stores the lowest byte of `rax`.
    pub(crate) fn store_byte(&mut self, base: Gpr, distance: i32) {
        self.general(false, 0x88, 0, Rm::Memory(base, distance), 0);
    }

    /// Stores four bytes of a number.
    pub(crate) fn store_number(&mut self, base: Gpr, distance: i32, number: u32) {
        self.general(false, 0xc7, 0, Rm::Memory(base, distance), 4);
        self.code.extend(number.to_le_bytes());
    }

    pub(crate) fn copy(&mut self, to: Gpr, from: Gpr) {
        self.general(true, 0x8b, to.0, Rm::Ymm(from.0), 0);
    }

    /// Sets a register to a number without a sign.
    pub(crate) fn set(&mut self, to: Gpr, number: u32) {
        self.code.extend([0x40 | to.0 >> 3, 0xb8 | to.0 & 7]);
        self.code.extend(number.to_le_bytes());
    }

    /// `to += [base + distance]`.
    pub(crate) fn add_memory(&mut self, to: Gpr, base: Gpr, distance: i32) {
        self.general(true, 0x03, to.0, Rm::Memory(base, distance), 0);
    }

    /// `to -= [base + distance]`.
    pub(crate) fn subtract_memory(&mut self, to: Gpr, base: Gpr, distance: i32) {
        self.general(true, 0x2b, to.0, Rm::Memory(base, distance), 0);
    }

    /// Compares without a sign: `left` with `[base + distance]`.
    pub(crate) fn compare_memory(&mut self, left: Gpr, base: Gpr, distance: i32) {
        self.general(true, 0x3b, left.0, Rm::Memory(base, distance), 0);
    }

    /// `to += number`.
    pub(crate) fn add(&mut self, to: Gpr, number: i32) {
        self.general(true, 0x81, 0, Rm::Ymm(to.0), 4);
        self.code.extend(number.to_le_bytes());
    }

    /// Compares the lower half of a register with a number.
    pub(crate) fn compare(&mut self, left: Gpr, number: i32) {
        self.general(false, 0x81, 7, Rm::Ymm(left.0), 4);
        self.code.extend(number.to_le_bytes());
    }

    /// Compares four bytes in memory with a number.
    pub(crate) fn compare_in_memory(&mut self, base: Gpr, distance: i32, number: i32) {
        self.general(false, 0x81, 7, Rm::Memory(base, distance), 4);
        self.code.extend(number.to_le_bytes());
    }

    /// Tests bits of the lower half of a register.
    pub(crate) fn test(&mut self, left: Gpr, bits: u32) {
        self.general(false, 0xf7, 0, Rm::Ymm(left.0), 4);
        self.code.extend(bits.to_le_bytes());
    }

    /// Sets the zero flag if a register is zero.
    pub(crate) fn test_zero(&mut self, register: Gpr) {
        self.general(true, 0x85, register.0, Rm::Ymm(register.0), 0);
    }

    /// Flips bits of the lower half of a register.
    pub(crate) fn flip(&mut self, register: Gpr, bits: u32) {
        self.general(false, 0x81, 6, Rm::Ymm(register.0), 4);
        self.code.extend(bits.to_le_bytes());
    }

    /// `[base + distance] += 1`, of eight bytes.
    pub(crate) fn increment(&mut self, base: Gpr, distance: i32) {
        self.general(true, 0xff, 0, Rm::Memory(base, distance), 0);
    }

    /// `[base + distance] += from`, of eight bytes.
    pub(crate) fn add_to_memory(&mut self, base: Gpr, distance: i32, from: Gpr) {
        self.general(true, 0x01, from.0, Rm::Memory(base, distance), 0);
    }

    /// `[base + distance] -= 1`, of eight bytes; sets the zero flag.
    pub(crate) fn decrement_memory(&mut self, base: Gpr, distance: i32) {
        self.general(true, 0xff, 1, Rm::Memory(base, distance), 0);
    }

    /// `register -= 1`; sets the zero flag.
    pub(crate) fn decrement(&mut self, register: Gpr) {
        self.general(true, 0xff, 1, Rm::Ymm(register.0), 0);
    }

    /// `register <<= bits`.
    pub(crate) fn shift_left(&mut self, register: Gpr, bits: u8) {
        self.general(true, 0xc1, 4, Rm::Ymm(register.0), 1);
        self.code.push(bits);
    }

    /// Extends the lower half of a register by its sign.
    pub(crate) fn extend(&mut self, register: Gpr) {
        self.general(true, 0x63, register.0, Rm::Ymm(register.0), 0);
    }

    /// Counts the bits of `from`.
    pub(crate) fn count_bits(&mut self, to: Gpr, from: Gpr) {
        self.code.extend([0xf3, 0x40 | (to.0 >> 3) << 2 | from.0 >> 3, 0x0f, 0xb8]);
        self.operand(to.0, Rm::Ymm(from.0), 0);
    }

    pub(crate) fn push(&mut self, register: Gpr) {
        self.code.extend([0x40 | register.0 >> 3, 0x50 | register.0 & 7]);
    }

    pub(crate) fn pop(&mut self, register: Gpr) {
        self.code.extend([0x40 | register.0 >> 3, 0x58 | register.0 & 7]);
    }

    /// Calls the function at `[base + distance]`.
    pub(crate) fn call_memory(&mut self, base: Gpr, distance: i32) {
        self.general(false, 0xff, 2, Rm::Memory(base, distance), 0);
    }

    /// Jumps to the address at `[base + distance]`.
    pub(crate) fn jump_memory(&mut self, base: Gpr, distance: i32) {
        self.general(false, 0xff, 4, Rm::Memory(base, distance), 0);
    }

    /// Sets a register to the address of a label.
    pub(crate) fn address(&mut self, to: Gpr, label: Label) {
        self.code.extend([0x48 | (to.0 >> 3) << 2, 0x8d, (to.0 & 7) << 3 | 5]);
        self.distance(label);
    }

    pub(crate) fn call(&mut self, label: Label) {
        self.code.push(0xe8);
        self.distance(label);
    }

    pub(crate) fn jump(&mut self, label: Label) {
        self.code.push(0xe9);
        self.distance(label);
    }

    pub(crate) fn jump_if(&mut self, condition: If, label: Label) {
        self.code.extend([0x0f, 0x80 | condition as u8]);
        self.distance(label);
    }

    fn distance(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.code.extend([0; 4]);
    }

    /// Clears the upper halves of the vector registers, as functions in other languages expect.
    pub(crate) fn zero_upper(&mut self) {
        self.code.extend([0xc5, 0xf8, 0x77]);
    }

    pub(crate) fn ret(&mut self) {
        self.code.push(0xc3);
    }

    /// The code, with its constants behind it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        while !self.code.len().is_multiple_of(32) {
            self.code.push(0xcc);
        }
        let pool = self.code.len();
        let mut patch = |at: usize, target: usize, after: usize| {
            let distance = target as i64 - (at + 4 + after) as i64;
            self.code[at..at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        };
        for (at, constant, after) in self.references {
            patch(at, pool + 32 * constant.0 as usize, after);
        }
        for (at, label) in self.jumps {
            patch(at, self.labels[label.0 as usize].expect("every label is bound"), 0);
        }
        self.code.extend(self.constants.iter().flatten().flat_map(|word| word.to_le_bytes()));
        self.code
    }
}

#[cfg(test)]
mod tests {
    use test_process::Command;

    use super::*;

    /// What another decoder reads, a line for each instruction, without its spaces; `None` if there
    /// is no decoder.
    fn disassemble(name: &str, code: &[u8]) -> Option<Vec<String>> {
        let file = std::env::temp_dir().join(format!("ptx-compile-{name}-{}.bin", std::process::id()));
        std::fs::write(&file, code).ok()?;
        let arguments = ["-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "--no-show-raw-insn"];
        let output = Command::new("objdump").args(arguments).arg(&file).output();
        let _ = std::fs::remove_file(&file);
        let text = String::from_utf8(output.ok()?.stdout).ok()?;
        let lines = text.lines().filter_map(|line| line.trim().split_once(":\t"));
        let instruction = |(_, text): (&str, &str)| -> String {
            text.split('#').next().unwrap_or("").chars().filter(|char| !char.is_whitespace()).collect()
        };
        Some(lines.map(instruction).collect())
    }

    fn check(name: &str, code: Vec<u8>, expected: &[String]) {
        let Some(found) = disassemble(name, &code) else { return };
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found, expected, "instruction {index}");
        }
        assert!(found.len() >= expected.len(), "{} of {}", found.len(), expected.len());
    }

    const THREE: [(Vex, &str); 40] = [
        (op::ADDPD, "vaddpd"),
        (op::MULPD, "vmulpd"),
        (op::SUBPD, "vsubpd"),
        (op::MINPD, "vminpd"),
        (op::DIVPD, "vdivpd"),
        (op::MAXPD, "vmaxpd"),
        (op::FMADD231PD, "vfmadd231pd"),
        (op::ADDPS, "vaddps"),
        (op::MULPS, "vmulps"),
        (op::SUBPS, "vsubps"),
        (op::MINPS, "vminps"),
        (op::DIVPS, "vdivps"),
        (op::MAXPS, "vmaxps"),
        (op::FMADD231PS, "vfmadd231ps"),
        (op::FMADD213PS, "vfmadd213ps"),
        (op::PADDD, "vpaddd"),
        (op::PSUBD, "vpsubd"),
        (op::PADDQ, "vpaddq"),
        (op::PSUBQ, "vpsubq"),
        (op::PAND, "vpand"),
        (op::PANDN, "vpandn"),
        (op::POR, "vpor"),
        (op::PXOR, "vpxor"),
        (op::PCMPEQD, "vpcmpeqd"),
        (op::PCMPGTD, "vpcmpgtd"),
        (op::PCMPEQQ, "vpcmpeqq"),
        (op::PCMPGTQ, "vpcmpgtq"),
        (op::PMULLD, "vpmulld"),
        (op::PMULUDQ, "vpmuludq"),
        (op::PMULDQ, "vpmuldq"),
        (op::PMINSD, "vpminsd"),
        (op::PMINUD, "vpminud"),
        (op::PMAXSD, "vpmaxsd"),
        (op::PMAXUD, "vpmaxud"),
        (op::PSLLVD, "vpsllvd"),
        (op::PSLLVQ, "vpsllvq"),
        (op::PSRLVD, "vpsrlvd"),
        (op::PSRLVQ, "vpsrlvq"),
        (op::PSRAVD, "vpsravd"),
        (op::PSHUFB, "vpshufb"),
    ];

    const TWO: [(Vex, &str, &str, &str); 25] = [
        (op::PBROADCASTW, "vpbroadcastw", "xmm", "WORDPTR"),
        (op::PMOVSXBD, "vpmovsxbd", "xmm", "QWORDPTR"),
        (op::PMOVSXWD, "vpmovsxwd", "xmm", "XMMWORDPTR"),
        (op::PMOVZXBD, "vpmovzxbd", "xmm", "QWORDPTR"),
        (op::PMOVZXWD, "vpmovzxwd", "xmm", "XMMWORDPTR"),
        (op::CVTPH2PS, "vcvtph2ps", "xmm", "XMMWORDPTR"),
        (op::SQRTPD, "vsqrtpd", "ymm", "YMMWORDPTR"),
        (op::CVTPS2PD, "vcvtps2pd", "xmm", "XMMWORDPTR"),
        (op::CVTDQ2PD, "vcvtdq2pd", "xmm", "XMMWORDPTR"),
        (op::CVTTPS2DQ, "vcvttps2dq", "ymm", "YMMWORDPTR"),
        (op::MOVSHDUP, "vmovshdup", "ymm", "YMMWORDPTR"),
        (op::PABSD, "vpabsd", "ymm", "YMMWORDPTR"),
        (op::BROADCASTSD, "vbroadcastsd", "xmm", "QWORDPTR"),
        (op::MOVUPS_LOAD, "vmovups", "ymm", "YMMWORDPTR"),
        (op::MOVAPS, "vmovaps", "ymm", "YMMWORDPTR"),
        (op::SQRTPS, "vsqrtps", "ymm", "YMMWORDPTR"),
        (op::CVTDQ2PS, "vcvtdq2ps", "ymm", "YMMWORDPTR"),
        (op::TESTPS, "vtestps", "ymm", "YMMWORDPTR"),
        (op::PTEST, "vptest", "ymm", "YMMWORDPTR"),
        (op::PMOVSXDQ, "vpmovsxdq", "xmm", "XMMWORDPTR"),
        (op::PMOVZXDQ, "vpmovzxdq", "xmm", "XMMWORDPTR"),
        (op::BROADCASTSS, "vbroadcastss", "xmm", "DWORDPTR"),
        (op::PBROADCASTD, "vpbroadcastd", "xmm", "DWORDPTR"),
        (op::PBROADCASTQ, "vpbroadcastq", "xmm", "QWORDPTR"),
        (op::PBROADCASTB, "vpbroadcastb", "xmm", "BYTEPTR"),
    ];

    const BASES: [(Gpr, &str); 13] = [
        (RAX, "rax"),
        (RCX, "rcx"),
        (RBX, "rbx"),
        (RSP, "rsp"),
        (RBP, "rbp"),
        (R8, "r8"),
        (R9, "r9"),
        (R10, "r10"),
        (R11, "r11"),
        (R12, "r12"),
        (R13, "r13"),
        (R14, "r14"),
        (R15, "r15"),
    ];

    #[test]
    fn another_decoder_reads_vector_instructions() {
        let (mut asm, mut expected) = (Assembler::default(), Vec::new());
        for number in 0..16u8 {
            let (first, other) = ((number + 11) % 16, (number + 6) % 16);
            let (base, name) = BASES[number as usize % 13];
            for (vex, text) in THREE {
                asm.vector(vex, number, first, Rm::Ymm(other));
                expected.push(format!("{text}ymm{number},ymm{first},ymm{other}"));
                asm.vector(vex, number, first, Rm::Memory(base, 0x120));
                expected.push(format!("{text}ymm{number},ymm{first},YMMWORDPTR[{name}+0x120]"));
            }
            for (vex, text, register, memory) in TWO {
                asm.two(vex, number, Rm::Ymm(other));
                expected.push(format!("{text}ymm{number},{register}{other}"));
                asm.two(vex, number, Rm::Memory(base, 0x1240));
                expected.push(format!("{text}ymm{number},{memory}[{name}+0x1240]"));
            }
            asm.two(op::MOVUPS_STORE, number, Rm::Memory(base, 0x40));
            expected.push(format!("vmovupsYMMWORDPTR[{name}+0x40],ymm{number}"));
            asm.blend(number, first, Rm::Ymm(other), (number + 1) % 16);
            expected.push(format!("vblendvpsymm{number},ymm{first},ymm{other},ymm{}", (number + 1) % 16));
            asm.with_byte(op::SHUFPS, number, first, Rm::Ymm(other), 0x88);
            expected.push(format!("vshufpsymm{number},ymm{first},ymm{other},0x88"));
            asm.vector(op::PERMD, number, first, Rm::Memory(base, 0x40));
            expected.push(format!("vpermdymm{number},ymm{first},YMMWORDPTR[{name}+0x40]"));
            asm.with_byte(op::PBLENDD, number, first, Rm::Ymm(other), 0x96);
            expected.push(format!("vpblenddymm{number},ymm{first},ymm{other},0x96"));
            asm.with_byte(op::PERMQ, number, 0, Rm::Ymm(other), 0xd8);
            expected.push(format!("vpermqymm{number},ymm{other},0xd8"));
            asm.with_byte(op::CMPPS, number, first, Rm::Ymm(other), 3);
            expected.push(format!("vcmpunordpsymm{number},ymm{first},ymm{other}"));
            asm.with_byte(op::EXTRACTI128, number, 0, Rm::Ymm(other), 1);
            expected.push(format!("vextracti128xmm{other},ymm{number},0x1"));
            asm.scalar(op::PEXTRD, number, Rm::Memory(base, 0x50), Some(3));
            expected.push(format!("vpextrdDWORDPTR[{name}+0x50],xmm{number},0x3"));
            asm.scalar(op::MOVD, number, Rm::Ymm(0), None);
            expected.push(format!("vmovdeax,xmm{number}"));
            asm.scalar(op::MOVQ, number, Rm::Ymm(0), None);
            expected.push(format!("vmovqrax,xmm{number}"));
            asm.scalar(op::MOVUPS_STORE, number, Rm::Memory(base, 0x60), None);
            expected.push(format!("vmovupsXMMWORDPTR[{name}+0x60],xmm{number}"));
            asm.two(op::MOVMSKPS, 0, Rm::Ymm(number));
            expected.push(format!("vmovmskpseax,ymm{number}"));
            asm.two(op::MOVMSKPD, 1, Rm::Ymm(number));
            expected.push(format!("vmovmskpdecx,ymm{number}"));
            asm.two(op::PMOVMSKB, 1, Rm::Ymm(number));
            expected.push(format!("vpmovmskbecx,ymm{number}"));
            asm.gather(op::GATHERQPS, number, first, 0x70, other);
            expected.push(format!("vgatherqpsxmm{number},DWORDPTR[ymm{first}*1+0x70],xmm{other}"));
            asm.gather(op::GATHERQPD, number, first, 0x70, other);
            expected.push(format!("vgatherqpdymm{number},QWORDPTR[ymm{first}*1+0x70],ymm{other}"));
            for (vex, text) in [(op::CVTPD2PS, "vcvtpd2ps"), (op::CVTTPD2DQ, "vcvttpd2dq")] {
                asm.two(vex, number, Rm::Ymm(other));
                expected.push(format!("{text}xmm{number},ymm{other}"));
                asm.two(vex, number, Rm::Memory(base, 0x80));
                expected.push(format!("{text}xmm{number},YMMWORDPTR[{name}+0x80]"));
            }
            for (vex, text) in [(op::ROUNDPS, "vroundps"), (op::ROUNDPD, "vroundpd")] {
                asm.with_byte(vex, number, 0, Rm::Ymm(other), 3);
                expected.push(format!("{text}ymm{number},ymm{other},0x3"));
            }
            asm.with_byte(op::CMPPD, number, first, Rm::Ymm(other), 3);
            expected.push(format!("vcmpunordpdymm{number},ymm{first},ymm{other}"));
            asm.with_byte(op::PBLENDD, number, first, Rm::Ymm(other), 0xaa);
            expected.push(format!("vpblenddymm{number},ymm{first},ymm{other},0xaa"));
            asm.with_byte(op::INSERTI128, number, first, Rm::Ymm(other), 1);
            expected.push(format!("vinserti128ymm{number},ymm{first},xmm{other},0x1"));
            asm.scalar(op::PEXTRQ, number, Rm::Memory(base, 0x50), Some(1));
            expected.push(format!("vpextrqQWORDPTR[{name}+0x50],xmm{number},0x1"));
            asm.with_byte(op::CVTPS2PH, number, 0, Rm::Ymm(other), 0);
            expected.push(format!("vcvtps2phxmm{other},ymm{number},0x0"));
            asm.scalar(op::PEXTRB, number, Rm::Memory(base, 0x50), Some(12));
            expected.push(format!("vpextrbBYTEPTR[{name}+0x50],xmm{number},0xc"));
            asm.scalar(op::PEXTRW, number, Rm::Memory(base, 0x50), Some(6));
            expected.push(format!("vpextrwWORDPTR[{name}+0x50],xmm{number},0x6"));
            asm.scalar(op::LDMXCSR, 2, Rm::Memory(base, 0x90), None);
            expected.push(format!("vldmxcsrDWORDPTR[{name}+0x90]"));
        }
        check("vectors", asm.code, &expected);
    }

    #[test]
    fn another_decoder_reads_general_instructions() {
        let (mut asm, mut expected) = (Assembler::default(), Vec::new());
        let registers = [
            (RAX, "rax", "eax"),
            (RCX, "rcx", "ecx"),
            (RBX, "rbx", "ebx"),
            (R10, "r10", "r10d"),
            (R15, "r15", "r15d"),
        ];
        for (register, name, low) in registers {
            for (base, of) in BASES {
                asm.load(register, base, 0x48);
                expected.push(format!("mov{name},QWORDPTR[{of}+0x48]"));
                asm.load_low(register, base, 0x48);
                expected.push(format!("mov{low},DWORDPTR[{of}+0x48]"));
                asm.decrement_memory(base, 0x48);
                expected.push(format!("decQWORDPTR[{of}+0x48]"));
                asm.jump_memory(base, 0x48);
                expected.push(format!("jmpQWORDPTR[{of}+0x48]"));
                asm.store(base, 0x48, register);
                expected.push(format!("movQWORDPTR[{of}+0x48],{name}"));
                asm.store_low(base, 0x48, register);
                expected.push(format!("movDWORDPTR[{of}+0x48],{low}"));
                for (kind, text) in [
                    ((1, false), format!("movzx{low},BYTEPTR")),
                    ((2, false), format!("movzx{low},WORDPTR")),
                    ((1, true), format!("movsx{low},BYTEPTR")),
                    ((2, true), format!("movsx{low},WORDPTR")),
                ] {
                    asm.load_narrow(kind, register, base, 0x48);
                    expected.push(format!("{text}[{of}+0x48]"));
                }
                asm.add_memory(register, base, 0x48);
                expected.push(format!("add{name},QWORDPTR[{of}+0x48]"));
                asm.subtract_memory(register, base, 0x48);
                expected.push(format!("sub{name},QWORDPTR[{of}+0x48]"));
                asm.compare_memory(register, base, 0x48);
                expected.push(format!("cmp{name},QWORDPTR[{of}+0x48]"));
                asm.add_to_memory(base, 0x48, register);
                expected.push(format!("addQWORDPTR[{of}+0x48],{name}"));
                asm.increment(base, 0x48);
                expected.push(format!("incQWORDPTR[{of}+0x48]"));
                asm.store_number(base, 0x48, 7);
                expected.push(format!("movDWORDPTR[{of}+0x48],0x7"));
                asm.store_byte(base, 0x48);
                expected.push(format!("movBYTEPTR[{of}+0x48],al"));
                asm.compare_in_memory(base, 0x48, 2);
                expected.push(format!("cmpDWORDPTR[{of}+0x48],0x2"));
                asm.call_memory(base, 0x48);
                expected.push(format!("callQWORDPTR[{of}+0x48]"));
                asm.copy(register, base);
                expected.push(format!("mov{name},{of}"));
                asm.count_bits(register, RAX);
                expected.push(format!("popcnt{low},eax"));
            }
            asm.set(register, 0x1234);
            expected.push(format!("mov{low},0x1234"));
            asm.add(register, 0x100);
            expected.push(format!("add{name},0x100"));
            asm.compare(register, 0x100);
            expected.push(format!("cmp{low},0x100"));
            asm.test(register, 0xff);
            expected.push(format!("test{low},0xff"));
            asm.test_zero(register);
            expected.push(format!("test{name},{name}"));
            asm.flip(register, 0xff);
            expected.push(format!("xor{low},0xff"));
            asm.decrement(register);
            expected.push(format!("dec{name}"));
            asm.shift_left(register, 3);
            expected.push(format!("shl{name},0x3"));
            asm.extend(register);
            expected.push(format!("movsxd{name},{low}"));
            asm.push(register);
            expected.push(format!("push{name}"));
            asm.pop(register);
            expected.push(format!("pop{name}"));
        }
        asm.zero_upper();
        asm.ret();
        expected.extend(["vzeroupper".to_owned(), "ret".to_owned()]);
        // Prefixes that say nothing are shown as such.
        let Some(found) = disassemble("general", &asm.code) else { return };
        let found: Vec<String> = found
            .iter()
            .map(|text| text.trim_start_matches("rex.W").trim_start_matches("rex").to_owned())
            .collect();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
        assert_eq!(found.len(), expected.len());
    }

    #[test]
    fn jumps_and_constants_are_patched() {
        let mut asm = Assembler::default();
        let (back, forth) = (asm.label(), asm.label());
        asm.bind(back);
        let constant = asm.constant([5; 8]);
        assert_eq!(asm.constant([5; 8]), constant);
        asm.vector(op::PADDD, 1, 2, constant);
        asm.jump_if(If::Zero, forth);
        asm.jump(back);
        asm.bind(forth);
        asm.ret();
        let code = asm.finish();
        assert_eq!(code.len(), 64);
        check(
            "jumps",
            code,
            &["vpadddymm1,ymm2,YMMWORDPTR[rip+0x17]", "je0x14", "jmp0x0", "ret"].map(str::to_owned),
        );
    }
}
