//! Instructions that affect only ordering or speed, or query an address. The results of a program
//! that uses them must be the same as without them.

use super::expand;
use crate::case::{Case, Rule};
use crate::coverage::is_there;
use crate::kernel::Kernel;
use crate::values::Values;
use ptx::forms;

const BLOCK: u32 = 64;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for form in named("prefetch") {
        let place = if form.contains(".local") { "$local" } else { "$address" };
        // Nothing has to be a tensor map before it is used as one.
        let place = match form.split('.').nth(1) {
            Some("param") => "inputs",
            Some("const") => "table",
            Some("tensormap") => "$generic",
            _ => place,
        };
        cases.push(around_load(&form, &format!("{form} [{place}];")));
    }
    cases.push(around_load("prefetchu.L1", "prefetchu.L1 [$generic];"));
    cases.push(around_load("pmevent", "pmevent 7;"));
    cases.push(around_load("pmevent.mask", "pmevent.mask 5;"));
    cases.push(around_load("nanosleep.u32", "nanosleep.u32 20;"));
    for form in named("applypriority") {
        cases.push(around_load(&form, &format!("{form} [$line], 128;")));
    }
    for form in named("griddepcontrol") {
        cases.push(around_load(&form, &format!("{form};")));
    }
    for form in named("createpolicy") {
        cases.push(with_policy(
            &form,
            &match form.split('.').nth(1) {
                Some("range") => format!("{form} $policy, [$address], 4096, 8192;"),
                Some("cvt") => format!("{form} $policy, 0x12f0000000000000;"),
                _ => format!("{form} $policy, 0.5;"),
            },
        ));
    }
    for opcode in ["fence", "membar"] {
        for form in named(opcode) {
            let operands = if form.contains("tensormap::generic.acquire") { " [$address], 128" } else { "" };
            cases.push(handover(&form, &format!("{form}{operands};")));
        }
    }
    for form in expand("bar{.cta,}.arrive") {
        cases.push(arrive(&form, "bar.sync"));
    }
    cases.push(arrive("bar.cta.arrive", "bar.cta.sync"));
    for form in expand("barrier{.cta,}.arrive{.aligned,}") {
        cases.push(arrive(&form, "barrier.sync"));
    }
    for form in ["barrier.cta.sync", "barrier.cta.sync.aligned", "barrier.sync.aligned"] {
        cases.push(arrive(&form.replace("sync", "arrive"), form));
    }
    for arrive in named("barrier.cluster.arrive") {
        for wait in named("barrier.cluster.wait") {
            cases.push(cluster(&arrive, &wait));
        }
    }
    for form in named("discard") {
        cases.push(discard(&form));
    }
    cases.push(trap());
    cases.push(spaces());
    cases.push(windows());
    cases.push(stack());
    cases.push(active_mask());
}

/// The mnemonics of the table that begin so.
fn named(start: &str) -> Vec<String> {
    let opcode = start.split('.').next().unwrap_or(start);
    let instances = forms::of_opcode(opcode).iter().flat_map(|form| form.instances());
    let mut names: Vec<String> = instances
        .filter(|instance| is_there(&instance.needs) && instance.mnemonic.starts_with(start))
        .map(|instance| instance.mnemonic)
        .collect();
    names.dedup();
    names
}

/// Asks for the least version and target that a form needs, beyond what all programs have.
fn set_target(kernel: &mut Kernel, form: &str) {
    let needs: Vec<_> =
        forms::named(form).into_iter().flatten().flat_map(|instance| instance.needs).collect();
    let fits = |target: u32| needs.iter().any(|need| need.target.number <= target && need.version <= (8, 0));
    if needs.is_empty() || fits(80) {
        return;
    }
    let (version, target) = if fits(90) { ("8.0", "sm_90") } else { ("9.0", "sm_90") };
    kernel.set_target(version, target);
}

/// `hint` before a load: what is loaded is stored.
fn around_load(form: &str, hint: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    set_target(&mut kernel, form);
    kernel.declarations += ".local .align 16 .b8 own[16];\n";
    kernel.module += ".const .align 128 .b8 table[128];\n";
    let column = kernel.column(Values::B32, kernel.threads());
    let (address, generic, value) = (kernel.register(64), kernel.register(64), kernel.register(32));
    kernel.line(format!(
        "mad.wide.u32 {address}, row, 4, in;\nadd.u64 {address}, {address}, {column};\ncvta.global.u64 {generic}, {address};"
    ));
    let (local, line) = (kernel.register(64), kernel.register(64));
    kernel.line(format!("mov.u64 {local}, own;\nand.b64 {line}, {address}, -128;"));
    let places = [("$address", &address), ("$generic", &generic), ("$local", &local), ("$line", &line)];
    let hint = places.iter().fold(hint.to_owned(), |hint, (name, register)| hint.replace(name, register));
    kernel.line(hint);
    kernel.line(format!("ld.global.u32 {value}, [{address}];"));
    kernel.store("loaded", Values::B32, Rule::Exact, &value);
    kernel.finish(format!("{form}/0"))
}

/// Loads, stores and atomics with a cache policy that `create` makes.
fn with_policy(form: &str, create: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    set_target(&mut kernel, form);
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
    set_target(&mut kernel, form);
    let fence = match fence.contains("$address") {
        // Where a tensor map might lie.
        true => {
            kernel.module += ".global .align 128 .b8 map[128];\n";
            let map = kernel.register(64);
            kernel.line(format!("mov.u64 {map}, map;\ncvta.global.u64 {map}, {map};"));
            fence.replace("$address", &map)
        }
        false => fence.to_owned(),
    };
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
    // Those that wait in another way are programs of their own.
    let program = if matches!(wait, "bar.sync" | "barrier.sync") { "0" } else { wait };
    kernel.finish(format!("{form}/{program}"))
}

/// Builds a case that asks for the space of a generic address, and converts it back to an address
/// of the space.
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

/// Builds a case about addresses of shared memory in a cluster of one block, and addresses of
/// parameters.
fn windows() -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target("9.0", "sm_90");
    kernel.declarations += &format!(".shared .align 4 .b32 pool[{BLOCK}];\n.local .align 4 .b32 own[4];\n");
    let value = kernel.load(Values::B32);
    let [mine, generic, back] = [0, 1, 2].map(|_| kernel.register(64));
    let [near, rank, word] = [0, 1, 2].map(|_| kernel.register(32));
    let is_there = kernel.register(1);
    kernel.line(format!(
        "mov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 4, {mine};\nst.shared.u32 [{mine}], {value};\nmov.u32 {near}, \
         pool;\nmad.lo.u32 {near}, thread, 4, {near};"
    ));
    for window in ["shared::cta", "shared::cluster"] {
        kernel.line(format!("cvta.{window}.u64 {generic}, {mine};\nld.u32 {word}, [{generic}];"));
        kernel.store(&format!("through {window}"), Values::B32, Rule::Exact, &word);
        kernel.line(format!("cvta.to.{window}.u64 {back}, {generic};\nld.{window}.u32 {word}, [{back}];"));
        kernel.store(&format!("to {window}"), Values::B32, Rule::Exact, &word);
        kernel.line(format!("isspacep.{window} {is_there}, {generic};"));
        kernel.store(&format!("is {window}"), Values::Pred, Rule::Exact, &is_there);
    }
    for (form, address) in
        [("mapa.u64", &generic), ("mapa.shared::cluster.u64", &mine), ("mapa.shared::cluster.u32", &near)]
    {
        let (to, space) = if address == &near {
            (near.clone(), ".shared::cluster")
        } else {
            (back.clone(), if form == "mapa.u64" { "" } else { ".shared::cluster" })
        };
        kernel.line(format!("{form} {to}, {address}, 0;\nld{space}.u32 {word}, [{to}];"));
        kernel.store(form, Values::B32, Rule::Exact, &word);
    }
    for (form, address) in [
        ("getctarank.u64", &generic),
        ("getctarank.shared::cluster.u64", &mine),
        ("getctarank.shared::cluster.u32", &near),
    ] {
        kernel.line(format!("{form} {rank}, {address};"));
        kernel.store(form, Values::B32, Rule::Exact, &rank);
    }
    for window in ["param", "param::entry"] {
        kernel.line(format!(
            "mov.b64 {back}, inputs;\ncvta.{window}.u64 {generic}, {back};\nld.u64 {back}, [{generic}];\ncvta.global.u64 \
             {mine}, in;\nsub.u64 {back}, {back}, {mine};\ncvt.u32.u64 {word}, {back};"
        ));
        kernel.store(&format!("through {window}"), Values::B32, Rule::Exact, &word);
        kernel.line(format!("isspacep.{window} {is_there}, {generic};"));
        kernel.store(&format!("is {window}"), Values::Pred, Rule::Exact, &is_there);
        kernel.line(format!(
            "cvta.to.{window}.u64 {back}, {generic};\nld.{window}.u64 {back}, [{back}];\nsub.u64 {back}, {back}, \
             {mine};\ncvt.u32.u64 {word}, {back};"
        ));
        kernel.store(&format!("to {window}"), Values::B32, Rule::Exact, &word);
    }
    kernel.finish("windows/0".into())
}

/// Memory from the stack, kept and given back.
fn stack() -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    let value = kernel.load(Values::B32);
    let [top, first, second, bytes] = [0, 1, 2, 3].map(|_| kernel.register(64));
    let (size, word) = (kernel.register(32), kernel.register(32));
    kernel.line(format!(
        "and.b32 {size}, thread, 7;\nmad.lo.u32 {size}, {size}, 16, 32;\ncvt.u64.u32 {bytes}, {size};\nalloca.u64 {first}, \
         {bytes};\nst.local.u32 [{first}+16], {value};\nstacksave.u64 {top};\nalloca.u64 {second}, {bytes}, 8;\nst.local.u32 \
         [{second}], 7;\nst.local.u32 [{second}+28], thread;\nstackrestore.u64 {top};\nalloca.u64 {second}, \
         {bytes};\nst.local.u32 [{second}+4], 9;\nld.local.u32 {word}, [{first}+16];"
    ));
    kernel.store("kept", Values::B32, Rule::Exact, &word);
    kernel.finish("alloca.u64/0".into())
}

/// One warp arrives at the barrier of a cluster of one block and goes on to wait, as the other
/// does.
fn cluster(arrive: &str, wait: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target("8.0", "sm_90");
    kernel.declarations += &format!(".shared .align 4 .b32 pool[{BLOCK}];\n");
    let value = kernel.load(Values::B32);
    let (address, index) = (kernel.register(64), kernel.register(32));
    // What is relaxed needs a fence.
    let fence = if arrive.contains("relaxed") { "fence.acq_rel.cluster;\n" } else { "" };
    kernel.line(format!(
        "mov.u64 {address}, pool;\nmad.wide.u32 {address}, thread, 4, {address};\nst.shared.u32 [{address}], \
         {value};\n{fence}{arrive};\n{wait};\nsub.u32 {index}, 63, thread;\nmov.u64 {address}, pool;\nmad.wide.u32 \
         {address}, {index}, 4, {address};\nld.shared.u32 {value}, [{address}];"
    ));
    kernel.store("value", Values::B32, Rule::Exact, &value);
    kernel.finish(format!("{arrive}/{wait}"))
}

/// A line of the cache that is given up, then written again by one thread.
fn discard(form: &str) -> Case {
    let mut kernel = Kernel::new(1, 32);
    kernel.module += ".global .align 128 .b8 lines[4096];\n";
    let (line, value) = (kernel.register(64), kernel.load(Values::B32));
    let generic =
        if form.contains(".global") { String::new() } else { format!("cvta.global.u64 {line}, {line};\n") };
    let dot = if form.contains(".global") { ".global" } else { "" };
    kernel.line(format!(
        "mov.u64 {line}, lines;\nmad.wide.u32 {line}, thread, 128, {line};\n{generic}st{dot}.u32 [{line}], thread;\n{form} \
         [{line}], 128;\nst{dot}.u32 [{line}], {value};\nld{dot}.u32 {value}, [{line}];"
    ));
    kernel.store("again", Values::B32, Rule::Exact, &value);
    kernel.finish(format!("{form}/0"))
}

/// A kernel that gives up.
fn trap() -> Case {
    let mut kernel = Kernel::new(1, 32);
    let value = kernel.load(Values::Pred);
    kernel.line(format!("@{value} trap;"));
    kernel.finish("trap/0".into())
}
