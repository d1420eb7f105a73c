//! Asynchronous copies and the barriers that wait for them.

use super::expand;
use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::values::Values;

const BLOCK: u32 = 64;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for (form, size) in [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)] {
        for ending in ["wait_all", "wait_group", "mbarrier"] {
            cases.push(copy(&format!("cp.async.{form}.shared.global"), size, ending));
        }
    }
    for form in expand("cp.async.{ca,cg}.shared.global{.L2::64B,.L2::128B,.L2::256B}") {
        cases.push(copy(&form, 16, "wait_all"));
    }
    for space in [".shared", ".shared::cta", ""] {
        cases.push(phases(space, "test_wait", "sm_80"));
        cases.push(phases(space, "try_wait", "sm_90"));
    }
    cases.push(bulk("bulk_group", "", "in and out"));
    cases.push(bulk("bulk_group.L2::cache_hint", ".read", "with a hint"));
}

/// Copies cells of `size` bytes into shared memory: whole, partly (the rest becomes zero), and not
/// at all. Then each thread reads what another one copied.
fn copy(form: &str, size: usize, ending: &str) -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.declarations += &format!(
        ".shared .align 16 .b8 pool[{}];\n.shared .align 8 .b64 barrier;\n",
        3 * size * BLOCK as usize
    );
    let part = kernel.load(Values::Cell);
    let column = kernel.column(Values::B64, 2 * kernel.threads());
    let [from, to, state] = [0, 1, 2].map(|_| kernel.register(64));
    let (first, waiting) = (kernel.register(1), kernel.register(1));
    let third = size * BLOCK as usize;
    if ending == "mbarrier" {
        kernel.line(format!(
            "setp.eq.u32 {first}, thread, 0;\n@{first} mbarrier.init.shared.b64 [barrier], {BLOCK};\nbar.sync 0;"
        ));
    }
    kernel.line(format!(
        "mad.wide.u32 {from}, row, 16, in;\nadd.u64 {from}, {from}, {column};\nmov.u64 {to}, pool;\nmad.wide.u32 {to}, \
         thread, {size}, {to};\nshr.u32 {part}, {part}, 2;\nrem.u32 {part}, {part}, {};\n{form} [{to}], [{from}], {size};\n\
         {form} [{to}+{third}], [{from}], {size}, {part};\n{form} [{to}+{}], [{from}], {size}, 0;",
        size + 1,
        2 * third
    ));
    kernel.line(match ending {
        "wait_all" => "cp.async.wait_all;\nbar.sync 0;".to_owned(),
        "wait_group" => {
            "cp.async.commit_group;\ncp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;".to_owned()
        }
        _ => format!(
            "cp.async.mbarrier.arrive.noinc.shared.b64 [barrier];\nmov.b64 {state}, 0;\nwait:\n\
             mbarrier.test_wait.parity.shared.b64 {waiting}, [barrier], 0;\n@!{waiting} bra wait;"
        ),
    });
    let (other, value) = (kernel.register(32), kernel.register(32));
    kernel.line(format!(
        "xor.b32 {other}, thread, 37;\nmov.u64 {to}, pool;\nmad.wide.u32 {to}, {other}, {size}, {to};"
    ));
    for (index, name) in ["whole", "part", "nothing"].into_iter().enumerate() {
        for word in 0..size / 4 {
            kernel.line(format!("ld.shared.u32 {value}, [{to}+{}];", index * third + 4 * word));
            kernel.store(&format!("{name}: word {word}"), Values::B32, Rule::Exact, &value);
        }
    }
    kernel.finish(format!("{form}, {size}/{ending}"))
}

/// Several phases of an mbarrier: arrivals by all threads, by one for two, with a drop; states
/// compared by what `pending_count` says.
fn phases(space: &str, wait: &str, target: &str) -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.set_target("8.0", target);
    kernel.declarations += &format!(".shared .align 8 .b64 barrier;\n.shared .align 4 .b32 pool[{BLOCK}];\n");
    let value = kernel.load(Values::B32);
    let [at, mine, state, other] = [0, 1, 2, 3].map(|_| kernel.register(64));
    let (first, done) = (kernel.register(1), kernel.register(1));
    let (index, taken, count) = (kernel.register(32), kernel.register(32), kernel.register(32));
    let generic = if space.is_empty() { format!("cvta.shared.u64 {at}, {at};\n") } else { String::new() };
    kernel.line(format!(
        "mov.u64 {at}, barrier;\n{generic}setp.eq.u32 {first}, thread, 0;\n@{first} mbarrier.init{space}.b64 [{at}], \
         {BLOCK};\nbar.sync 0;\nmov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 4, {mine};"
    ));
    for phase in 0..3 {
        kernel.line(format!(
            "st.shared.u32 [{mine}], {value};\nmbarrier.arrive{space}.b64 {state}, [{at}];\nwait{phase}:\n\
             mbarrier.{wait}{space}.b64 {done}, [{at}], {state};\n@!{done} bra wait{phase};\nxor.b32 {index}, thread, \
             {};\nmov.u64 {other}, pool;\nmad.wide.u32 {other}, {index}, 4, {other};\nld.shared.u32 {taken}, \
             [{other}];\nmad.lo.u32 {value}, {value}, 5, {taken};\nbar.sync 0;",
            11 + 20 * phase
        ));
    }
    kernel.store("value", Values::B32, Rule::Exact, &value);
    // One thread arrives for many, another drops out; each in a phase of its own, so counts are
    // certain.
    kernel.line(format!(
        "@{first} mbarrier.inval{space}.b64 [{at}];\nbar.sync 0;\n@{first} mbarrier.init{space}.b64 [{at}], 9;\nbar.sync \
         0;\nmov.b32 {count}, 0;"
    ));
    for (name, arrival) in [
        ("arrive 3", "arrive.noComplete"),
        ("drop 2", "arrive_drop.noComplete"),
        ("arrive 1", "arrive.noComplete"),
    ] {
        let amount = &name[name.len() - 1..];
        kernel.line(format!(
            "@{first} mbarrier.{arrival}{space}.b64 {state}, [{at}], {amount};\n@{first} mbarrier.pending_count.b64 \
             {count}, {state};"
        ));
        kernel.store(name, Values::B32, Rule::Exact, &count);
    }
    let name = if space.is_empty() { "mbarrier.generic".to_owned() } else { format!("mbarrier{space}") };
    kernel.finish(format!("{name}, {wait}/phases"))
}

/// One thread copies a block of memory in, all wait for it and change it, one copies it out.
fn bulk(group: &str, read: &str, name: &str) -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    let mut hint = String::new();
    if group.ends_with("cache_hint") {
        let policy = kernel.register(64);
        kernel.line(format!("createpolicy.fractional.L2::evict_first.b64 {policy}, 1.0;"));
        hint = format!(", {policy}");
    }
    // Waiting until shared memory has been read is enough where the grid ends.
    kernel.set_target("8.0", "sm_90");
    let bytes = 16 * BLOCK as usize;
    kernel.declarations += &format!(".shared .align 16 .b8 pool[{bytes}];\n.shared .align 8 .b64 barrier;\n");
    let column = kernel.column(Values::B64, 2 * kernel.threads());
    let slot = kernel.slot("copied out", Values::B64, 2 * kernel.threads(), Rule::Exact);
    let [from, to, mine, low, high] = [0, 1, 2, 3, 4].map(|_| kernel.register(64));
    let (first, done, block) = (kernel.register(1), kernel.register(1), kernel.register(32));
    kernel.line(format!(
        "mov.u32 {block}, %ctaid.x;\nmad.wide.u32 {from}, {block}, {bytes}, in;\nadd.u64 {from}, {from}, \
         {column};\nmad.wide.u32 {to}, {block}, {bytes}, out;\nadd.u64 {to}, {to}, {slot};\nsetp.eq.u32 {first}, thread, \
         0;\n@{first} mbarrier.init.shared.b64 [barrier], 1;\n@{first} fence.mbarrier_init.release.cluster;\nbar.sync \
         0;\n@{first} mbarrier.arrive.expect_tx.shared.b64 _, [barrier], {bytes};\n@{first} \
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [pool], [{from}], {bytes}, \
         [barrier];\nwait:\nmbarrier.try_wait.parity.shared.b64 {done}, [barrier], 0;\n@!{done} bra wait;"
    ));
    kernel.line(format!(
        "mov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 16, {mine};\nld.shared.v2.b64 {{{low}, {high}}}, \
         [{mine}];\nadd.u64 {low}, {low}, {high};\nst.shared.v2.b64 [{mine}], {{{high}, \
         {low}}};\nfence.proxy.async.shared::cta;\nbar.sync 0;\n@{first} cp.async.bulk.global.shared::cta.{group} [{to}], \
         [pool], {bytes}{hint};\n@{first} cp.async.bulk.commit_group;\n@{first} cp.async.bulk.wait_group{read} 0;"
    ));
    kernel.finish(format!("cp.async.bulk/{name}"))
}
