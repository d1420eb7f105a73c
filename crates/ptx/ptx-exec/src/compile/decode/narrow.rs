//! `cvt` from and to pairs of floats of six and four bits and of exponents (`.ue8m0`).
//!
//! The table of [meanings](ptx_lower) has no such types: no other instruction computes with them.
//! Each element is converted by the definition, [`soft::convert`].

use ptx::ScalarType;
use ptx::body::Line;
use ptx::instruction::{Flag, Opcode};

use crate::arithmetic::soft::{self, Format, Rounding};
use crate::compile::decode::Undecoded;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::operands::Args;
use crate::registers::lanes::{Register, map, zip};
use crate::registers::shapes::registers;

/// The types of which pairs are converted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Small {
    E2m1,
    E2m3,
    E3m2,
    /// An exponent: a power of two.
    Ue8m0,
}

const SMALL: [(&str, Small); 4] =
    [("e2m1x2", Small::E2m1), ("e2m3x2", Small::E2m3), ("e3m2x2", Small::E3m2), ("ue8m0x2", Small::Ue8m0)];

/// Decodes `cvt` with one of these types. `None` for every other instruction.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    if form.opcode? != Opcode::Cvt {
        return None;
    }
    let mnemonic = line.instruction.mnemonic.text();
    let words: Vec<&str> = mnemonic.split('.').skip(1).collect();
    let at = words.iter().position(|word| SMALL.iter().any(|(name, _)| name == word))?;
    Some(convert(compiler, line, form, &words, at))
}

fn convert(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
    words: &[&str],
    at: usize,
) -> Decoded<()> {
    let rectified = form.take(Flag::Rectified);
    let saturates = form.take(Flag::SaturateFinite);
    form.take_all();
    let small = SMALL.iter().find(|(name, _)| *name == words[at]).map_or(Small::E2m1, |(_, small)| *small);
    let how = How { small, rectified, saturates, up: words.contains(&"rp") };
    let narrow = if small == Small::E2m1 { ScalarType::B8 } else { ScalarType::B16 };
    let (run, types, result) = match (words.get(at + 1), words.last()) {
        (Some(&"f32"), _) => (
            registers!(u32 => u32, |a, b, _, how| narrowed(a, b, How::unpack(how))),
            vec![ScalarType::F32; 2],
            narrow,
        ),
        (Some(&"bf16x2"), _) => (
            registers!(u32 => u32, |a, _, _, how| exponents(a, How::unpack(how))),
            vec![ScalarType::B32],
            narrow,
        ),
        (None, Some(_)) => (
            registers!(u32 => u32, |a, _, _, how| widened(a, How::unpack(how))),
            vec![narrow],
            ScalarType::B32,
        ),
        _ => return unsupported(format!("`{}` is not supported", line.instruction.mnemonic)),
    };
    let Some((destination, sources)) = line.operands.split_first() else {
        return invalid("`cvt` needs operands");
    };
    if sources.len() != types.len() {
        return invalid(format!("this `cvt` takes {} source operands, not {}", types.len(), sources.len()));
    }
    let mut args = Args { immediate: how.pack(), ..Args::EMPTY };
    for ((slot, operand), ty) in [&mut args.a, &mut args.b].into_iter().zip(sources).zip(types) {
        *slot = compiler.source(operand, ty)?;
    }
    let destination = compiler.destination(destination, result)?;
    compiler.lanes(run, Args { d: destination.reg, ..args });
    compiler.widen(destination);
    Ok(())
}

/// A conversion, as the immediate of its step has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct How {
    small: Small,
    rectified: bool,
    /// Infinities become the largest number: of `.ue8m0` alone, the others have no infinities.
    saturates: bool,
    /// `.ue8m0` is rounded up, not towards zero.
    up: bool,
}

impl How {
    fn pack(self) -> u32 {
        let flags = [self.rectified, self.saturates, self.up];
        flags.iter().fold(self.small as u32, |bits, &flag| bits << 1 | u32::from(flag))
    }

    fn unpack(bits: u32) -> How {
        let flag = |at: u32| bits >> at & 1 != 0;
        let small = SMALL[(bits >> 3) as usize % SMALL.len()].1;
        How { small, rectified: flag(2), saturates: flag(1), up: flag(0) }
    }

    /// The format of the elements; `None` for exponents.
    fn format(self) -> Option<Format> {
        match self.small {
            Small::E2m1 => Some(soft::E2M1),
            Small::E2m3 => Some(soft::E2M3),
            Small::E3m2 => Some(soft::E3M2),
            Small::Ue8m0 => None,
        }
    }

    /// Bits of an element's place in the pair.
    fn width(self) -> u32 {
        if self.small == Small::E2m1 { 4 } else { 8 }
    }

    /// The element for an `.f32`.
    fn narrow(self, bits: u32) -> u32 {
        let Some(format) = self.format() else { return self.exponent(bits) };
        let narrow = soft::convert(bits.into(), soft::F32, format, Rounding::NearestEven);
        if self.rectified && narrow & format.sign() != 0 { 0 } else { narrow as u32 }
    }

    /// The exponent of an `.f32`, whose sign does not matter. The least is 2^-127, and what is no
    /// exponent is NaN.
    fn exponent(self, bits: u32) -> u32 {
        let magnitude = bits & 0x7fff_ffff;
        let inexact = magnitude & 0x7f_ffff != 0 && magnitude > 0x40_0000 && magnitude < 0x7f80_0000;
        let exponent = (magnitude >> 23) + u32::from(self.up && inexact);
        let is_nan = magnitude > 0x7f80_0000;
        if self.saturates && !is_nan { exponent.min(0xfe) } else { exponent }
    }

    /// The half for an element: `.f16`, or `.bf16` for an exponent.
    fn widen(self, bits: u32) -> u32 {
        match (self.format(), bits) {
            (Some(format), _) => {
                let half = soft::convert(bits.into(), format, soft::F16, Rounding::NearestEven) as u32;
                if self.rectified && half & 0x8000 != 0 { 0 } else { half }
            }
            (None, 0) => 0x40,
            (None, 0xff) => 0x7fff,
            (None, exponent) => exponent << 7,
        }
    }
}

/// Two `.f32`: `a` becomes the upper element, `b` the lower.
fn narrowed(a: &Register<u32>, b: &Register<u32>, how: How) -> Register<u32> {
    zip(a, b, |a, b| how.narrow(a) << how.width() | how.narrow(b))
}

/// The exponents of two `.bf16`.
fn exponents(a: &Register<u32>, how: How) -> Register<u32> {
    map(a, |a| how.narrow(a & 0xffff_0000) << how.width() | how.narrow(a << 16))
}

/// The halves of two elements.
fn widened(a: &Register<u32>, how: How) -> Register<u32> {
    let element = |bits: u32| {
        // Elements of six bits have bytes of their own, whose upper bits mean nothing.
        let wide = how.format().map_or(0xff, |format| 2 * format.sign() as u32 - 1);
        how.widen(bits & wide)
    };
    map(a, |a| element(a >> how.width()) << 16 | element(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: How = How { small: Small::E2m1, rectified: false, saturates: true, up: false };

    fn narrow(how: How, value: f32) -> u32 {
        how.narrow(value.to_bits())
    }

    #[test]
    fn hows_survive_packing() {
        for (_, small) in SMALL {
            for flags in 0..8 {
                let how =
                    How { small, rectified: flags & 1 != 0, saturates: flags & 2 != 0, up: flags & 4 != 0 };
                assert_eq!(How::unpack(how.pack()), how);
            }
        }
    }

    #[test]
    fn four_bits_are_rounded_to_nearest_and_end_at_six() {
        let values = [0.25, 0.26, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.1, 1e9, f32::INFINITY, f32::NAN];
        assert_eq!(values.map(|value| narrow(HOW, value)), [0, 1, 2, 2, 4, 4, 6, 6, 7, 7, 7, 7]);
        assert_eq!([-0.0, -5.1, f32::NEG_INFINITY].map(|value| narrow(HOW, value)), [8, 15, 15]);
        let rectified = How { rectified: true, ..HOW };
        assert_eq!([-0.0, -5.1, 5.1].map(|value| narrow(rectified, value)), [0, 0, 7]);
    }

    #[test]
    fn six_bits_end_at_their_largest_numbers() {
        let [e2m3, e3m2] = [Small::E2m3, Small::E3m2].map(|small| How { small, ..HOW });
        assert_eq!([7.5, 8.0, -1e3, 0.0625].map(|value| narrow(e2m3, value)), [31, 31, 63, 0]);
        assert_eq!([28.0, 1e3, 0.03125, 0.04].map(|value| narrow(e3m2, value)), [31, 31, 0, 1]);
    }

    #[test]
    fn exponents_ignore_the_sign_and_round_as_told() {
        let exponent = |up, saturates, bits| How { small: Small::Ue8m0, up, saturates, ..HOW }.narrow(bits);
        for sign in [0, 1 << 31] {
            assert_eq!(exponent(false, false, 1.5f32.to_bits() | sign), 127);
            assert_eq!(exponent(true, false, 1.5f32.to_bits() | sign), 128);
            assert_eq!(exponent(true, false, 1f32.to_bits() | sign), 127);
            assert_eq!(exponent(true, false, 0x40_0000 | sign), 0);
            assert_eq!(exponent(true, false, 0x40_0001 | sign), 1);
            assert_eq!(exponent(false, false, 0x7f80_0000 | sign), 255);
            assert_eq!(exponent(true, true, f32::MAX.to_bits() | sign), 254);
            assert_eq!(exponent(true, true, 0x7fc0_0000 | sign), 255);
        }
    }

    #[test]
    fn elements_come_back() {
        for (_, small) in SMALL {
            let how = How { small, saturates: true, ..HOW };
            for bits in 0..how.format().map_or(256, |format| 2 * format.sign() as u32) {
                let half = how.widen(bits);
                let wide = match small {
                    Small::Ue8m0 => half << 16,
                    _ => crate::arithmetic::half::f16_to_f32(half as u16).to_bits(),
                };
                assert_eq!(how.narrow(wide), bits, "{small:?}");
            }
        }
    }
}
