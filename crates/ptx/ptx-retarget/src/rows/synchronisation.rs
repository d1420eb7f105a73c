//! Barriers in shared memory, fences, and hints that become nothing.

use crate::code::Code;
use crate::site::Site;

/// Whether a word is an order or a scope.
fn is_order(word: &str) -> bool {
    matches!(word, "acquire" | "release" | "relaxed" | "cta" | "cluster")
}

/// `mbarrier.try_wait d, [a], b, hint`: a test without waiting.
pub(super) fn try_wait(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    if site.opcode() != "mbarrier" || !site.has("try_wait") {
        return None;
    }
    let mnemonic = site.rewritten(|word| match word {
        "try_wait" => Some("test_wait"),
        word if is_order(word) => None,
        word => Some(word),
    });
    code.op(format!("{mnemonic} {}, {}, {}", site.operand(0)?, site.operand(1)?, site.operand(2)?));
    Some(())
}

/// `mbarrier.test_wait` with an order or scope, and `mbarrier.arrive` with them or with a count.
pub(super) fn arrive(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    let arrives = site.has("arrive") || site.has("arrive_drop");
    let counts = arrives && site.operands().len() == 3;
    let ordered = site.words[1..].iter().any(|word| is_order(word));
    let is_ours = site.opcode() == "mbarrier" && (arrives || site.has("test_wait"));
    if !is_ours || site.has("expect_tx") || site.has("noComplete") || !(counts || ordered) {
        return None;
    }
    // `.relaxed` is newer than the scopes: where only it is missing, the scope has to stay.
    if site.has("relaxed") {
        let order = if arrives { "release" } else { "acquire" };
        let mnemonic = site.rewritten(|word| Some(if word == "relaxed" { order } else { word }));
        code.op(format!("{mnemonic} {}", site.rest(0)));
        return Some(());
    }
    let mnemonic = site.rewritten(|word| (!is_order(word)).then_some(word));
    if !counts {
        code.op(format!("{mnemonic} {}", site.rest(0)));
        return Some(());
    }
    let (left, state) = (code.copy("b32", &site.operand(2)?), code.register("b64"));
    let more = code.register("pred");
    let address = site.operand(1)?;
    code.region(|code, _, _| {
        code.op(format!("{mnemonic} {state}, {address}"));
        code.region(|code, start, _| {
            code.op(format!("setp.gt.u32 {more}, {left}, 1"));
            code.op(format!("sub.u32 {left}, {left}, 1"));
            code.when(&more, format!("{mnemonic} _, {address}"));
            code.when(&more, format!("bra {start}"));
        });
        if !crate::code::is_sink(&site.operands()[0]) {
            code.op(format!("mov.b64 {}, {state}", site.operands()[0]));
        }
    });
    Some(())
}

/// `fence.proxy.async`.
pub(super) fn proxy(site: &Site<'_, '_>, _: &mut Code) -> Option<()> {
    (site.opcode() == "fence" && site.has("proxy") && (site.has("async") || site.has("async::generic")))
        .then_some(())
}

/// `fence.mbarrier_init.release.cluster`.
pub(super) fn mbarrier_fence(site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
    (site.opcode() == "fence" && site.has("mbarrier_init")).then(|| code.op("fence.acq_rel.gpu"))
}

/// `setmaxnreg`.
pub(super) fn nothing_of_setmaxnreg(site: &Site<'_, '_>, _: &mut Code) -> Option<()> {
    (site.opcode() == "setmaxnreg").then_some(())
}

/// `griddepcontrol`.
pub(super) fn nothing_of_griddepcontrol(site: &Site<'_, '_>, _: &mut Code) -> Option<()> {
    (site.opcode() == "griddepcontrol").then_some(())
}
