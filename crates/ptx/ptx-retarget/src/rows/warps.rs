//! Lanes of a warp among each other.

use ptx::syntax::tree::Operand;

use crate::code::{Code, is_sink};
use crate::site::Site;

/// The bits of the NaN that instructions give.
const NAN: &str = "0x7fffffff";

/// `redux.sync.min.f32`: floats become unsigned integers in the same order, by a change that is
/// undone afterwards. No number becomes 0 or the largest integer, which stand for NaN: at the end
/// where NaN lose, or at the one where a NaN wins (`.NaN`).
pub(super) fn float_redux(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "redux" || site.last() != "f32" {
        return None;
    }
    let is_min = site.has("min");
    let of_nan = if is_min == site.has("NaN") { "0" } else { "0xffffffff" };
    let float = code.copy("f32", &site.operand(1)?);
    let bits = code.copy("b32", &float);
    let [key, magnitude] = [code.register("b32"), code.register("b32")];
    let is_nan = code.register("pred");
    code.op(format!("and.b32 {magnitude}, {bits}, 0x7fffffff"));
    if site.has("abs") {
        code.op(format!("mov.b32 {bits}, {magnitude}"));
    }
    code.op(format!("shr.s32 {key}, {bits}, 31"));
    code.op(format!("or.b32 {key}, {key}, 0x80000000"));
    code.op(format!("xor.b32 {key}, {key}, {bits}"));
    code.op(format!("setp.gt.u32 {is_nan}, {magnitude}, 0x7f800000"));
    code.op(format!("selp.b32 {key}, {of_nan}, {key}, {is_nan}"));
    code.op(format!(
        "redux.sync.{}.u32 {key}, {key}, {}",
        if is_min { "min" } else { "max" },
        site.operand(2)?
    ));
    code.op(format!("setp.eq.u32 {is_nan}, {key}, {of_nan}"));
    code.op(format!("shr.s32 {magnitude}, {key}, 31"));
    code.op(format!("not.b32 {magnitude}, {magnitude}"));
    code.op(format!("or.b32 {magnitude}, {magnitude}, 0x80000000"));
    code.op(format!("xor.b32 {key}, {key}, {magnitude}"));
    code.op(format!("selp.b32 {key}, {NAN}, {key}, {is_nan}"));
    code.op(format!("mov.b32 {}, {key}", site.operand(0)?));
    Some(())
}

/// `redux.sync.add.u32`: each lane reads those of the others that the mask names, one by one.
pub(super) fn integer_redux(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let ty = site.last();
    if site.opcode() != "redux" || !matches!(ty, "u32" | "s32" | "b32") {
        return None;
    }
    let operation = site.words.get(2)?;
    let (value, mask) = (code.copy("b32", &site.operand(1)?), code.copy("b32", &site.operand(2)?));
    let [left, lane, sum, other] = [(); 4].map(|()| code.register("b32"));
    let done = code.register("pred");
    code.region(|code, _, _| {
        code.op(format!("brev.b32 {lane}, {mask}"));
        code.op(format!("clz.b32 {lane}, {lane}"));
        code.op(format!("shfl.sync.idx.b32 {sum}, {value}, {lane}, 31, {mask}"));
        code.op(format!("sub.u32 {left}, {mask}, 1"));
        code.op(format!("and.b32 {left}, {left}, {mask}"));
        code.region(|code, start, end| {
            code.op(format!("setp.eq.u32 {done}, {left}, 0"));
            code.when(&done, format!("bra {end}"));
            code.op(format!("brev.b32 {lane}, {left}"));
            code.op(format!("clz.b32 {lane}, {lane}"));
            code.op(format!("shfl.sync.idx.b32 {other}, {value}, {lane}, 31, {mask}"));
            code.op(format!("{operation}.{ty} {sum}, {sum}, {other}"));
            code.op(format!("sub.u32 {lane}, {left}, 1"));
            code.op(format!("and.b32 {left}, {left}, {lane}"));
            code.op(format!("bra {start}"));
        });
        code.op(format!("mov.b32 {}, {sum}", site.operands()[0]));
    });
    Some(())
}

/// `elect.sync d|p, mask`: the lowest lane, after all lanes of the mask have come.
pub(super) fn elect(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "elect" {
        return None;
    }
    let Operand::Pair(lane, elected) = site.operands().first()? else { return None };
    let mask = code.copy("b32", &site.operand(1)?);
    let [lowest, own] = [code.register("b32"), code.register("b32")];
    code.op(format!("bar.warp.sync {mask}"));
    code.op(format!("brev.b32 {lowest}, {mask}"));
    code.op(format!("clz.b32 {lowest}, {lowest}"));
    code.op(format!("mov.u32 {own}, %laneid"));
    if !is_sink(lane) {
        code.op(format!("mov.b32 {lane}, {lowest}"));
    }
    if !is_sink(elected) {
        code.op(format!("setp.eq.u32 {elected}, {own}, {lowest}"));
    }
    Some(())
}
