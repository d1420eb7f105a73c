//! Packs and unpacks: `mov` between a register and its parts, down to 8 and up to 128 bits.

use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::values::Values;

/// Bits of the whole, parts, bits of a part.
const PACKS: [(usize, usize, usize); 7] =
    [(16, 2, 8), (32, 4, 8), (32, 2, 16), (64, 4, 16), (64, 2, 32), (128, 2, 64), (128, 4, 32)];

pub(super) fn generate(cases: &mut Vec<Case>) {
    cases.extend(PACKS.map(|(whole, parts, bits)| pack(whole, parts, bits)));
}

/// Takes a whole apart and puts the parts together again in another order.
fn pack(whole: usize, parts: usize, bits: usize) -> Case {
    let mut kernel = Kernel::new(2, 32);
    kernel.set_target("8.3", "sm_80");
    kernel.declarations += &format!(".reg .b{bits} p<4>;\n.reg .b{whole} whole, turned;\n");
    // Through local memory, which takes all widths.
    kernel.declarations += ".local .align 16 .b8 own[16];\n";
    let [low, high] = [0, 1].map(|_| kernel.load(Values::B64));
    let names: Vec<String> = (0..parts).map(|part| format!("p{part}")).collect();
    let turned: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    kernel.line(format!(
        "st.local.v2.b64 [own], {{{low}, {high}}};\nld.local.b{whole} whole, [own];\nmov.b{whole} {{{}}}, whole;\nmov.b{whole} \
         turned, {{{}}};\nst.local.b{whole} [own], turned;\nld.local.v2.b64 {{{low}, {high}}}, [own];",
        names.join(", "),
        turned.join(", ")
    ));
    kernel.store("low", Values::B64, Rule::Exact, &low);
    kernel.store("high", Values::B64, Rule::Exact, &high);
    kernel.finish(format!("mov.b{whole}/{parts} parts"))
}
