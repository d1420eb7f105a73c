//! Floats of eight bits and less, to `.f16x2` and `.bf16x2`: their fields are moved to where the
//! wider type has them, and a product with a power of two makes up for the different bias of the
//! exponents, subnormal numbers included.

use crate::code::Code;
use crate::site::Site;

/// A type of which two fill a half-precision pair.
struct Narrow {
    /// Bits without the sign.
    magnitude: u32,
    /// Bits that the magnitude moves up in its half.
    shift: u32,
    /// The power of two, in half precision, in both halves.
    scale: u32,
}

/// `cvt.rn.f16x2.e4m3x2` and the like.
pub(super) fn widening(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "cvt" || site.operands().len() != 2 {
        return None;
    }
    let narrow = match site.last() {
        "ue8m0x2" if site.has("bf16x2") => return exponents(site, code),
        _ if !site.has("f16x2") => return None,
        "e5m2x2" => Narrow { magnitude: 7, shift: 8, scale: 0x3c00 },
        "e4m3x2" => Narrow { magnitude: 7, shift: 7, scale: 0x5c00 },
        "e3m2x2" => Narrow { magnitude: 5, shift: 8, scale: 0x6c00 },
        "e2m3x2" => Narrow { magnitude: 5, shift: 7, scale: 0x7400 },
        "e2m1x2" => Narrow { magnitude: 3, shift: 9, scale: 0x7400 },
        _ => return None,
    };
    let halves = spread(site, code, if narrow.magnitude == 3 { 4 } else { 8 })?;
    let [sign, value] = [code.register("b32"), code.register("b32")];
    code.op(format!("and.b32 {sign}, {halves}, {}", both(1 << narrow.magnitude)));
    code.op(format!("shl.b32 {sign}, {sign}, {}", 15 - narrow.magnitude));
    code.op(format!("and.b32 {value}, {halves}, {}", both((1 << narrow.magnitude) - 1)));
    let unscaled = code.copy("b32", &value);
    code.op(format!("shl.b32 {value}, {value}, {}", narrow.shift));
    let scale = code.copy("b32", &both(narrow.scale));
    code.op(format!("mul.rn.f16x2 {value}, {value}, {scale}"));
    code.op(format!("or.b32 {value}, {value}, {sign}"));
    // A NaN is what is larger than infinity, which `.e4m3` has not.
    match site.last() {
        "e4m3x2" => nan_above(code, &value, &unscaled, 0x7e),
        "e5m2x2" => nan_above(code, &value, &unscaled, 0x7c),
        _ => {}
    }
    if site.has("relu") {
        let zero = code.copy("b32", "0");
        code.op(format!("max.NaN.f16x2 {value}, {value}, {zero}"));
    }
    code.op(format!("mov.b32 {}, {value}", site.operand(0)?));
    Some(())
}

/// Both halves of a word, as a number.
fn both(half: u32) -> String {
    (half * 0x1_0001).to_string()
}

/// The two numbers of the source, `bits` wide, each in a half of a word.
fn spread(site: &Site<'_, '_>, code: &mut Code, bits: u32) -> Option<String> {
    let [word, high] = [code.register("b32"), code.register("b32")];
    let ty = if bits == 4 { "u8" } else { "u16" };
    code.op(format!("cvt.u32.{ty} {word}, {}", site.operand(1)?));
    code.op(format!("shr.b32 {high}, {word}, {bits}"));
    code.op(format!("shl.b32 {high}, {high}, 16"));
    code.op(format!("and.b32 {word}, {word}, {}", (1 << bits) - 1));
    code.op(format!("or.b32 {word}, {word}, {high}"));
    Some(word)
}

/// Makes each half of `value` a NaN whose half of `magnitude` is above `limit`.
fn nan_above(code: &mut Code, value: &str, magnitude: &str, limit: u32) {
    let [excess, mask] = [code.register("b32"), code.register("b32")];
    code.op(format!("add.u32 {excess}, {magnitude}, {}", both(0x7f - limit)));
    code.op(format!("and.b32 {excess}, {excess}, {}", both(0x80)));
    code.op(format!("shr.b32 {excess}, {excess}, 7"));
    code.op(format!("mul.lo.u32 {mask}, {excess}, 0xffff"));
    code.op(format!("not.b32 {mask}, {mask}"));
    code.op(format!("and.b32 {value}, {value}, {mask}"));
    code.op(format!("mul.lo.u32 {excess}, {excess}, 0x7fff"));
    code.op(format!("or.b32 {value}, {value}, {excess}"));
}

/// `cvt.rn.bf16x2.ue8m0x2`: powers of two. The least is subnormal in `.bf16`, the greatest is NaN.
fn exponents(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let halves = spread(site, code, 8)?;
    let [value, special] = [code.register("b32"), code.register("b32")];
    code.op(format!("shl.b32 {value}, {halves}, 7"));
    code.op(format!("add.u32 {special}, {halves}, {}", both(0xff)));
    code.op(format!("not.b32 {special}, {special}"));
    code.op(format!("and.b32 {special}, {special}, {}", both(0x100)));
    code.op(format!("shr.b32 {special}, {special}, 2"));
    code.op(format!("or.b32 {value}, {value}, {special}"));
    code.op(format!("add.u32 {special}, {halves}, {}", both(1)));
    code.op(format!("and.b32 {special}, {special}, {}", both(0x100)));
    code.op(format!("shr.b32 {special}, {special}, 8"));
    code.op(format!("mul.lo.u32 {special}, {special}, 0x7f"));
    code.op(format!("or.b32 {value}, {value}, {special}"));
    code.op(format!("mov.b32 {}, {value}", site.operand(0)?));
    Some(())
}
