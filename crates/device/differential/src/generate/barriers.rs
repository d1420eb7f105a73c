//! Every form of asynchronous operations, and of the barriers that signal their completion:
//! `mbarrier`, copies, stores and reductions by the asynchronous proxy.
//!
//! Each thread of a warp has a private barrier and 16 private bytes of shared memory. A program
//! contains the forms of one kind, and a result is a digest of what a thread sees of several of
//! them.

use crate::case::{Case, Rule};
use crate::coverage::is_there;
use crate::kernel::Kernel;
use crate::values::Values;
use ptx::forms::{self, Instance, Kind};
use ptx::{ScalarType, StateSpace};

const BLOCK: u32 = 32;

/// Instructions that one result sums up.
const GROUP: usize = 8;

pub(super) fn generate(cases: &mut Vec<Case>) {
    let kinds: [(&str, &str, Write); 10] = [
        ("arrivals", "mbarrier.arrive", arrival),
        ("waits", "mbarrier.test_wait", wait),
        ("waits that suspend", "mbarrier.try_wait", wait),
        ("expected bytes", "mbarrier.expect_tx", transaction),
        ("completed bytes", "mbarrier.complete_tx", transaction),
        ("asynchronous stores", "st.async", store),
        ("asynchronous reductions", "red.async", store),
        ("small copies", "cp.async.c", small_copy),
        ("arrivals of copies", "cp.async.mbarrier.arrive", copy_arrival),
        ("bulk copies", "cp.async.bulk", bulk_copy),
    ];
    for (name, start, write) in kinds {
        let opcode = start.split('.').next().unwrap_or(start);
        let instances: Vec<Instance> = forms::of_opcode(opcode)
            .iter()
            .flat_map(|form| form.instances())
            .filter(|instance| instance.mnemonic.starts_with(start) && is_there(&instance.needs))
            .collect();
        let (generic, shared): (Vec<_>, Vec<_>) =
            instances.into_iter().partition(|instance| !instance.mnemonic.contains(".shared"));
        for (place, instances) in [("shared", shared), ("generic", generic)] {
            if !instances.is_empty() {
                cases.push(program(&format!("sweep: {name}/{place}"), &instances, write));
            }
        }
    }
}

/// Writes an instruction with what it needs before and what shows its effect. Nothing is written
/// for a form that has no such program.
type Write = fn(&mut Body, &Instance);

/// A program that is being written.
struct Body {
    kernel: Kernel,
    labels: usize,
}

impl Body {
    fn line(&mut self, text: impl AsRef<str>) {
        self.kernel.line(text);
    }

    /// Initialises the thread's barrier.
    fn init(&mut self, count: u32) {
        self.line(format!(
            "mbarrier.init.shared.b64 [barrier], {count};\nfence.mbarrier_init.release.cluster;"
        ));
    }

    /// Waits for the first phase of the thread's barrier, and invalidates it.
    fn wait(&mut self) {
        let label = self.labels;
        self.labels += 1;
        self.line(format!(
            "wait{label}:\nmbarrier.try_wait.parity.shared.b64 done, [barrier], 0;\n@!done bra wait{label};"
        ));
        self.line("mbarrier.inval.shared.b64 [barrier];");
    }

    /// Adds whether the first phase is complete to the sum.
    fn add_phase(&mut self) {
        self.line("mbarrier.test_wait.parity.shared.b64 done, [barrier], 0;");
        self.add_done();
    }

    fn add_done(&mut self) {
        self.line("selp.b64 low, 3, 5, done;\nmad.lo.u64 sum, sum, 6364136223846793005, low;");
    }

    /// Adds the thread's 16 bytes to the sum.
    fn add_cell(&mut self) {
        self.line(
            "ld.shared.v2.b64 {low, high}, [cell];\nmad.lo.u64 sum, sum, 6364136223846793005, low;\nmad.lo.u64 sum, sum, \
             6364136223846793005, high;",
        );
    }
}

const REGISTERS: &str = ".reg .b64 barrier, cell, generic_barrier, generic_cell, from, sum, low, high, first, second, \
    policy, state;\n.reg .b32 count;\n.reg .pred done, odd;\n";

fn program(name: &str, instances: &[Instance], write: Write) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target("9.0", "sm_90");
    kernel.declarations += REGISTERS;
    kernel.declarations +=
        &format!(".shared .align 16 .b8 pool[{}];\n.shared .align 8 .b64 barriers[{BLOCK}];\n", 32 * BLOCK);
    let (one, two) = (kernel.load(Values::B64), kernel.load(Values::B64));
    let column = kernel.column(Values::B64, 2 * kernel.threads());
    kernel.line(format!(
        "mov.b64 first, {one};\nmov.b64 second, {two};\nmov.u64 cell, pool;\nmad.wide.u32 cell, thread, 16, cell;\nmov.u64 \
         barrier, barriers;\nmad.wide.u32 barrier, thread, 8, barrier;\ncvta.shared.u64 generic_cell, \
         cell;\ncvta.shared.u64 generic_barrier, barrier;\nmad.wide.u32 from, row, 16, in;\nadd.u64 from, from, {column};\n\
         createpolicy.fractional.L2::evict_last.b64 policy, 1.0;\nand.b32 count, thread, 1;\nsetp.ne.u32 odd, count, 0;"
    ));
    let mut body = Body { kernel, labels: 0 };
    for (number, group) in instances.chunks(GROUP).enumerate() {
        body.line("mov.b64 sum, 0;");
        group.iter().for_each(|instance| write(&mut body, instance));
        body.kernel.store(&format!("from {}", GROUP * number), Values::B64, Rule::Exact, "sum");
    }
    body.kernel.finish(name.to_owned())
}

/// The address operand for a barrier or a cell.
fn address(kind: &Kind, what: &str) -> String {
    match kind {
        Kind::Address { space: None, .. } => format!("[generic_{what}]"),
        Kind::Address { space: Some(StateSpace::Global), .. } => "[from]".to_owned(),
        _ => format!("[{what}]"),
    }
}

/// Six arrivals are awaited: the form brings one or two of them, perhaps bytes that are awaited
/// too.
fn arrival(body: &mut Body, instance: &Instance) {
    let mnemonic = &instance.mnemonic;
    let expects = mnemonic.contains("expect_tx");
    let counts = instance.operands.iter().any(|operand| operand.name == "b");
    let arrivals = if counts && !expects { 2 } else { 1 };
    let texts: Vec<String> = instance
        .operands
        .iter()
        .map(|operand| match &operand.kind {
            Kind::Sink => "_".to_owned(),
            Kind::Address { .. } => address(&operand.kind, "barrier"),
            _ if operand.is_written() => "state".to_owned(),
            _ => if expects { "24" } else { "2" }.to_owned(),
        })
        .collect();
    body.init(6);
    body.line(format!("{mnemonic} {};", texts.join(", ")));
    if texts[0] == "state" {
        body.line(
            "mbarrier.pending_count.b64 count, state;\ncvt.u64.u32 low, count;\nmad.lo.u64 sum, sum, 6364136223846793005, \
             low;",
        );
    }
    body.line(format!(
        "mbarrier.arrive.shared.b64 state, [barrier];\nmbarrier.pending_count.b64 count, state;\ncvt.u64.u32 low, \
         count;\nmad.lo.u64 sum, sum, 6364136223846793005, low;\nmbarrier.arrive.shared.b64 state, [barrier], {};",
        5 - arrivals
    ));
    body.add_phase();
    if expects {
        body.line("mbarrier.complete_tx.relaxed.cta.shared.b64 [barrier], 24;");
        body.add_phase();
    }
    // What has dropped out does not count in the next phase.
    body.line(
        "mbarrier.arrive.shared.b64 state, [barrier];\nmbarrier.pending_count.b64 count, state;\ncvt.u64.u32 low, \
         count;\nmad.lo.u64 sum, sum, 6364136223846793005, low;\nmbarrier.inval.shared.b64 [barrier];",
    );
}

/// A phase that is complete, and where nothing suspends one that is not.
fn wait(body: &mut Body, instance: &Instance) {
    let mnemonic = &instance.mnemonic;
    let parity = mnemonic.contains(".parity");
    let suspends = mnemonic.contains("try_wait");
    for complete in [true, false].into_iter().filter(|complete| *complete || !suspends) {
        body.init(if complete { 1 } else { 2 });
        body.line("mbarrier.arrive.shared.b64 state, [barrier];");
        let place = address(&instance.operands[1].kind, "barrier");
        let phase = if parity { "0" } else { "state" };
        body.line(format!("{mnemonic} done, {place}, {phase};"));
        body.add_done();
        if suspends {
            body.line(format!("{mnemonic} done, {place}, {phase}, 1000;"));
            body.add_done();
        }
        body.line("mbarrier.inval.shared.b64 [barrier];");
    }
}

/// Bytes are expected and completed, one of the two by the form.
fn transaction(body: &mut Body, instance: &Instance) {
    let place = address(&instance.operands[0].kind, "barrier");
    let [expect, complete] = ["expect_tx", "complete_tx"].map(|what| {
        (instance.mnemonic.contains(what), format!("mbarrier.{what}.relaxed.cta.shared.b64 [barrier], 40;"))
    });
    let form = format!("{} {place}, 40;", instance.mnemonic);
    body.init(1);
    body.line(if expect.0 { &form } else { &expect.1 });
    body.line("mbarrier.arrive.shared.b64 state, [barrier];");
    body.add_phase();
    body.line(if complete.0 { &form } else { &complete.1 });
    body.add_phase();
    body.line("mbarrier.inval.shared.b64 [barrier];");
}

/// `st.async` and `red.async`: data goes to the thread's bytes, and the barrier counts it.
fn store(body: &mut Body, instance: &Instance) {
    let (ty, elements) = match &instance.operands[1].kind {
        Kind::Vector(element, count) => match **element {
            Kind::Value { ty, .. } => (ty, *count),
            _ => return,
        },
        Kind::Value { ty, .. } => (*ty, 1),
        _ => return,
    };
    let bits = 8 * ty.bytes();
    let registers: Vec<String> = (0..elements).map(|_| body.kernel.register(bits as usize)).collect();
    for (index, register) in registers.iter().enumerate() {
        let source = if index % 2 == 0 { "second" } else { "first" };
        body.line(match bits {
            32 => format!("shr.u64 low, {source}, {};\ncvt.u32.u64 {register}, low;", 7 * index + 1),
            _ => format!("mov.b64 {register}, {source};"),
        });
    }
    let data = match registers.as_slice() {
        [one] => one.clone(),
        several => format!("{{{}}}", several.join(", ")),
    };
    body.line("st.shared.v2.b64 [cell], {first, second};");
    body.init(1);
    body.line(format!(
        "mbarrier.arrive.expect_tx.shared.b64 state, [barrier], {};\n{} {}, {data}, {};",
        bits / 8 * elements as u64,
        instance.mnemonic,
        address(&instance.operands[0].kind, "cell"),
        address(&instance.operands[2].kind, "barrier"),
    ));
    body.wait();
    body.add_cell();
}

/// 16 bytes from global memory: whole, partly, or not at all.
fn small_copy(body: &mut Body, instance: &Instance) {
    if !instance.mnemonic.contains(".global") {
        return;
    }
    let hint = if instance.operands.iter().any(|operand| operand.name == "p") { ", policy" } else { "" };
    let ignores = instance.operands.iter().find(|operand| operand.name == "e");
    let tails = match ignores.map(|operand| &operand.kind) {
        Some(Kind::Value { ty: ScalarType::U32, .. }) => vec!["", ", 16", ", 5", ", 0"],
        Some(_) => vec![", odd"],
        None => vec![""],
    };
    for tail in tails {
        body.line(format!(
            "st.shared.v2.b64 [cell], {{first, second}};\n{} [cell], [from], 16{tail}{hint};\ncp.async.wait_all;",
            instance.mnemonic
        ));
        body.add_cell();
    }
}

/// A copy that arrives at the thread's barrier.
fn copy_arrival(body: &mut Body, instance: &Instance) {
    body.line("st.shared.v2.b64 [cell], {first, second};");
    body.init(1);
    body.line(format!(
        "cp.async.ca.shared.global [cell], [from], 16;\n{} {};",
        instance.mnemonic,
        address(&instance.operands[0].kind, "barrier")
    ));
    // Otherwise the copy takes back the arrival that it has added.
    if !instance.mnemonic.contains(".noinc") {
        body.line("mbarrier.arrive.shared.b64 state, [barrier];");
    }
    body.wait();
    body.add_cell();
}

/// 16 bytes into shared memory, within it, or ahead into the cache.
fn bulk_copy(body: &mut Body, instance: &Instance) {
    let mnemonic = &instance.mnemonic;
    let foreign = [".tensor", ".multicast", ".cp_mask"];
    if foreign.iter().any(|word| mnemonic.contains(word)) || mnemonic.contains("_group") {
        return;
    }
    let hint = if mnemonic.contains(".L2::cache_hint") { ", policy" } else { "" };
    if mnemonic.contains(".prefetch") {
        return body.line(format!("{mnemonic} [from], 16{hint};"));
    }
    let from = if mnemonic.contains(".global") { "[from]" } else { "[cell+512]" };
    body.line("st.shared.v2.b64 [cell], {first, second};");
    if from != "[from]" {
        // From the other half of the pool, through the proxy that copies.
        body.line("st.shared.v2.b64 [cell+512], {second, first};\nfence.proxy.async.shared::cta;");
    }
    body.init(1);
    body.line(format!(
        "mbarrier.arrive.expect_tx.shared.b64 state, [barrier], 16;\n{mnemonic} [cell], {from}, 16, [barrier]{hint};"
    ));
    body.wait();
    body.add_cell();
}
