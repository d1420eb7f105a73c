//! Integers: pairs of 16 bits, and extrema without a negative result.

use crate::code::Code;
use crate::site::Site;

/// `add.u16x2` and the like: each half for itself.
pub(super) fn pairs(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let scalar = match site.last() {
        "u16x2" => "u16",
        "s16x2" => "s16",
        _ => return None,
    };
    if !matches!(site.opcode(), "add" | "min" | "max") {
        return None;
    }
    let a = code.halves("b32", "b16", &site.operand(1)?);
    let b = code.halves("b32", "b16", &site.operand(2)?);
    let results = [0, 1].map(|half| {
        let result = code.register("b16");
        code.op(format!("{}.{scalar} {result}, {}, {}", site.opcode(), a[half], b[half]));
        if site.has("relu") {
            code.op(format!("max.s16 {result}, {result}, 0"));
        }
        result
    });
    code.op(format!("mov.b32 {}, {{{}, {}}}", site.operand(0)?, results[0], results[1]));
    Some(())
}

/// `min.relu.s32`: a negative result becomes 0.
pub(super) fn relu(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if !matches!(site.opcode(), "min" | "max") || !site.has("relu") || site.last() != "s32" {
        return None;
    }
    let result = code.register("s32");
    code.op(format!("{}.s32 {result}, {}", site.opcode(), site.rest(1)));
    code.op(format!("max.s32 {}, {result}, 0", site.operand(0)?));
    Some(())
}
