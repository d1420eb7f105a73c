//! Instructions whose effect is order, speed or a question about an address: programs that use them, whose results must
//! be as if they were not there.

use super::expand;
use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::values::Values;

const BLOCK: u32 = 64;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for form in expand("prefetch{.global,}{.L1,.L2}") {
        cases.push(around_load(&form, &format!("{form} [$address];"), "8.0"));
    }
    cases.push(around_load("prefetchu.L1", "prefetchu.L1 [$generic];", "8.0"));
    for form in expand("prefetch.global.L2::{evict_last,evict_normal}") {
        cases.push(around_load(&form, &format!("{form} [$address];"), "8.0"));
    }
    cases.push(around_load("pmevent", "pmevent 7;", "8.0"));
    cases.push(around_load("nanosleep.u32", "nanosleep.u32 20;", "8.0"));
    for priority in ["evict_last", "evict_normal", "evict_first", "evict_unchanged"] {
        let form = format!("createpolicy.fractional.L2::{priority}.b64");
        cases.push(with_policy(&form, &format!("{form} $policy, 0.5;")));
    }
    let form = "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64";
    cases.push(with_policy(form, &format!("{form} $policy, 1.0;")));
    for form in expand("createpolicy.range.global.L2::{evict_last,evict_first}.L2::evict_unchanged.b64") {
        cases.push(with_policy(&form, &format!("{form} $policy, [$address], 4096, 8192;")));
    }
    for form in expand("fence{.sc,.acq_rel,}{.cta,.gpu,.sys}") {
        cases.push(handover(&form, &format!("{form};")));
    }
    for form in expand("membar{.cta,.gl,.sys}") {
        cases.push(handover(&form, &format!("{form};")));
    }
    cases.push(handover("fence.proxy.alias", "fence.proxy.alias;"));
    for form in expand("bar{.cta,}.arrive") {
        cases.push(arrive(&form, "bar.sync"));
    }
    for form in expand("barrier{.cta,}.arrive{.aligned,}") {
        cases.push(arrive(&form, "barrier.sync"));
    }
    cases.push(spaces());
    cases.push(active_mask());
}

/// `hint` before a load: what is loaded is stored.
fn around_load(form: &str, hint: &str, version: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target(version, "sm_80");
    let column = kernel.column(Values::B32, kernel.threads());
    let (address, generic, value) = (kernel.register(64), kernel.register(64), kernel.register(32));
    kernel.line(format!(
        "mad.wide.u32 {address}, row, 4, in;\nadd.u64 {address}, {address}, {column};\ncvta.global.u64 {generic}, {address};"
    ));
    kernel.line(hint.replace("$address", &address).replace("$generic", &generic));
    kernel.line(format!("ld.global.u32 {value}, [{address}];"));
    kernel.store("loaded", Values::B32, Rule::Exact, &value);
    kernel.finish(format!("{form}/0"))
}

/// Loads, stores and atomics with a cache policy that `create` makes.
fn with_policy(form: &str, create: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    let column = kernel.column(Values::B32, kernel.threads());
    let slot = kernel.slot("stored", Values::B32, kernel.threads(), Rule::Exact);
    let (address, policy, target) = (kernel.register(64), kernel.register(64), kernel.register(64));
    let [value, old] = [0, 1].map(|_| kernel.register(32));
    kernel.line(format!("mad.wide.u32 {address}, row, 4, in;\nadd.u64 {address}, {address}, {column};"));
    kernel.line(create.replace("$policy", &policy).replace("$address", &address));
    kernel.line(format!(
        "ld.global.L2::cache_hint.u32 {value}, [{address}], {policy};\nmad.wide.u32 {target}, row, 4, out;\nadd.u64 {target}, \
         {target}, {slot};\nst.global.L2::cache_hint.u32 [{target}], {value}, \
         {policy};\natom.global.add.L2::cache_hint.u32 {old}, [{target}], {value}, {policy};\nred.global.xor.L2::cache_hint\
         .b32 [{target}], 77, {policy};"
    ));
    kernel.store("before", Values::B32, Rule::Exact, &old);
    kernel.finish(format!("{form}/0"))
}

/// One warp hands values to the other through shared memory and a flag, with `fence` between.
fn handover(form: &str, fence: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.declarations +=
        &format!(".shared .align 4 .b32 pool[{BLOCK}];\n.shared .align 4 .b32 flags[{BLOCK}];\n");
    let value = kernel.load(Values::B32);
    let [mine, flag, other] = [0, 1, 2].map(|_| kernel.register(64));
    let (index, seen, waiting) = (kernel.register(32), kernel.register(32), kernel.register(1));
    kernel.line(format!(
        "mov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 4, {mine};\nmov.u64 {flag}, flags;\nmad.wide.u32 {flag}, \
         thread, 4, {flag};\nst.shared.u32 [{flag}], 0;\nbar.sync 0;\nst.shared.u32 [{mine}], \
         {value};\n{fence}\nst.volatile.shared.u32 [{flag}], 1;\nxor.b32 {index}, thread, 45;\nmov.u64 {other}, \
         flags;\nmad.wide.u32 {other}, {index}, 4, {other};\nwait:\nld.volatile.shared.u32 {seen}, [{other}];\nsetp.eq.u32 \
         {waiting}, {seen}, 0;\n@{waiting} bra wait;\n{fence}\nmov.u64 {other}, pool;\nmad.wide.u32 {other}, {index}, 4, \
         {other};\nld.shared.u32 {value}, [{other}];"
    ));
    kernel.store("handed over", Values::B32, Rule::Exact, &value);
    kernel.finish(format!("{form}/handover"))
}

/// One warp arrives at a barrier and goes on, the other waits there for what the first has written.
fn arrive(form: &str, wait: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.declarations += &format!(".shared .align 4 .b32 pool[{BLOCK}];\n");
    let value = kernel.load(Values::B32);
    let address = kernel.register(64);
    let (is_first, index) = (kernel.register(1), kernel.register(32));
    kernel.line(format!(
        "mov.u64 {address}, pool;\nmad.wide.u32 {address}, thread, 4, {address};\nsetp.lt.u32 {is_first}, thread, \
         32;\n@!{is_first} bra second;\nst.shared.u32 [{address}], {value};\n{form} 3, {BLOCK};\nbra \
         joined;\nsecond:\n{wait} 3, {BLOCK};\nsub.u32 {index}, 63, thread;\nmov.u64 {address}, pool;\nmad.wide.u32 \
         {address}, {index}, 4, {address};\nld.shared.u32 {value}, [{address}];\njoined:"
    ));
    kernel.store("value", Values::B32, Rule::Exact, &value);
    kernel.finish(format!("{form}/0"))
}

/// Which space a generic address is in, and the way back to an address of the space.
fn spaces() -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.module += ".global .align 4 .b32 everybody[4];\n.const .align 4 .b32 table[4];\n";
    kernel.declarations += ".shared .align 4 .b32 pool[4];\n.local .align 4 .b32 own[4];\n";
    let (address, is_there) = (kernel.register(64), kernel.register(1));
    let (back, word) = (kernel.register(64), kernel.register(32));
    for (space, variable) in
        [("global", "everybody"), ("const", "table"), ("shared", "pool"), ("local", "own")]
    {
        kernel.line(format!("mov.u64 {address}, {variable};\ncvta.{space}.u64 {address}, {address};"));
        for asked in ["global", "const", "shared", "local"] {
            // Constant memory may lie in global memory or not.
            if (space, asked) == ("const", "global") || (space, asked) == ("global", "const") {
                continue;
            }
            kernel.line(format!("isspacep.{asked} {is_there}, {address};"));
            kernel.store(&format!("{space} is {asked}"), Values::Pred, Rule::Exact, &is_there);
        }
        kernel.line(format!(
            "cvta.to.{space}.u64 {back}, {address};\nmov.u64 {address}, {variable};\nsub.u64 {back}, {back}, \
             {address};\ncvt.u32.u64 {word}, {back};"
        ));
        kernel.store(&format!("{space} and back"), Values::B32, Rule::Exact, &word);
    }
    kernel.finish("isspacep and cvta/0".into())
}

fn active_mask() -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    let mask = kernel.register(32);
    kernel.line(format!("activemask.b32 {mask};"));
    kernel.store("all", Values::B32, Rule::Exact, &mask);
    kernel.finish("activemask.b32/0".into())
}
