//! Clusters: shared memory of other blocks (loads, stores, atomics, asynchronous stores), barriers,
//! and what a thread learns of its cluster.

use super::{declare_barriers, declare_pool, dump, fill, kernel, meet, wait};
use crate::case::Rule;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

/// Words of a block's shared memory that others reach.
const WORDS: usize = 256;

/// Operations whose order does not matter.
const ATOMICS: [&str; 10] = [
    "add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32",
    "add.u64",
];

/// The same as asynchronous reductions.
const REDUCTIONS: [&str; 8] =
    ["add.u32", "add.s32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32", "add.u64"];

pub(super) fn write(random: &mut Random) -> Kernel {
    let cluster = *random.pick(&[2, 2, 4, 8]);
    let grid = cluster * (1 + random.below(if cluster > 4 { 1 } else { 3 }) as u32);
    let block = *random.pick(&[32, 64, 128]);
    let mut kernel = kernel(grid, cluster, block);
    let phases = 2 + random.below(4);
    declare_pool(&mut kernel, 4 * WORDS);
    declare_barriers(&mut kernel, phases, 1);
    kernel.declarations += ".reg .b32 sum, rank;\n";
    kernel.line("mov.u32 sum, thread;\nmov.u32 rank, %cluster_ctarank;");
    fill(&mut kernel, block, WORDS, Some(Values::B32));
    meet(&mut kernel, cluster);
    for phase in 0..phases {
        step(&mut kernel, random, (cluster, block), phase);
    }
    special(&mut kernel, random);
    kernel.store("sum", Values::B32, Rule::Exact, "sum");
    dump(&mut kernel, (grid, block), WORDS, "shared");
    kernel
}

/// Sets `to` to the rank some blocks further, and `at` to the byte offset of one of the words that
/// are this thread's alone of those of a block: it has as many as threads go into them.
fn elsewhere(random: &mut Random, (cluster, block): (u32, u32), bytes: usize) -> String {
    let cells = 4 * WORDS / bytes;
    let odd = 1 + 2 * random.below(16);
    format!(
        "add.u32 to, rank, {};\nrem.u32 to, to, {cluster};\nmad.lo.u32 at, thread, {odd}, {};\nand.b32 at, at, {};\nmul.lo.u32 at, at, \
         {bytes};\n",
        random.below(cluster as usize),
        random.below(64),
        cells.min(block.next_power_of_two() as usize) - 1,
    )
}

/// The address of `at` in the block `to`, in `p` of the space that is returned.
fn address(random: &mut Random) -> (&'static str, &'static str, &'static str) {
    match random.below(3) {
        0 => (
            "",
            "d",
            "mov.u64 d, pool;\ncvta.shared.u64 d, d;\nmapa.u64 d, d, to;\ncvt.u64.u32 e, at;\nadd.u64 d, d, e;\n",
        ),
        1 => (
            ".shared::cluster",
            "r",
            "mov.u32 r, pool;\nadd.u32 r, r, at;\nmapa.shared::cluster.u32 r, r, to;\n",
        ),
        _ => (
            ".shared::cluster",
            "d",
            "mov.u64 d, pool;\nmapa.shared::cluster.u64 d, d, to;\ncvt.u64.u32 e, at;\nadd.u64 d, d, e;\n",
        ),
    }
}

const SCOPE: &str = "{\n.reg .b32 to, at, r, v, w, m;\n.reg .b64 d, e, l;\n.reg .pred q;\n";

/// Something that reaches another block's memory, and a barrier behind it.
fn step(kernel: &mut Kernel, random: &mut Random, of: (u32, u32), phase: usize) {
    match random.below(6) {
        0 | 1 => load(kernel, random, of),
        2 => store(kernel, random, of),
        3 => atomics(kernel, random, of),
        4 => asynchronous(kernel, random, of, phase),
        _ => exchange(kernel, random, of),
    }
    barrier(kernel, random);
}

/// The barrier in one of its forms.
fn barrier(kernel: &mut Kernel, random: &mut Random) {
    let aligned = *random.pick(&["", ".aligned"]);
    let (release, acquire) = *random.pick(&[("", ""), (".release", ".acquire"), ("", ".acquire")]);
    let between = if random.below(2) == 0 { "mad.lo.u32 sum, sum, 5, 3;\n" } else { "" };
    kernel.line(format!(
        "barrier.cluster.arrive{release}{aligned};\n{between}barrier.cluster.wait{acquire}{aligned};"
    ));
}

fn load(kernel: &mut Kernel, random: &mut Random, of: (u32, u32)) {
    let elsewhere = elsewhere(random, of, 4);
    let (space, register, address) = address(random);
    let form = *random.pick(&["ld", "ld.volatile", "ld.relaxed.cluster", "ld.acquire.cluster"]);
    kernel.line(format!(
        "{SCOPE}{elsewhere}{address}{form}{space}.u32 v, [{register}];\nmad.lo.u32 sum, sum, 31, v;\n}}"
    ));
}

fn store(kernel: &mut Kernel, random: &mut Random, of: (u32, u32)) {
    // A store without an order may not be torn apart from what others store there, so each goes to
    // a place of its own.
    let elsewhere = elsewhere(random, of, 8);
    let (space, register, address) = address(random);
    let form = *random.pick(&["st", "st.relaxed.cluster", "st.release.cluster"]);
    kernel.line(format!(
        "{SCOPE}{elsewhere}{address}{form}{space}.u32 [{register}+4], sum;\nadd.u32 sum, sum, at;\n}}"
    ));
}

fn atomics(kernel: &mut Kernel, random: &mut Random, of: (u32, u32)) {
    let operation = *random.pick(&ATOMICS);
    let wide = operation.ends_with("64");
    let elsewhere = elsewhere(random, of, 8);
    let (space, register, address) = address(random);
    let (operation, ty) = operation.split_once('.').unwrap_or((operation, ""));
    let scope = *random.pick(&["", ".relaxed.cluster", ".acq_rel.cluster", ".relaxed.gpu"]);
    let scope = if scope == ".acq_rel.cluster" { ".release.cluster" } else { scope };
    let value = if wide { "l" } else { "sum" };
    kernel.line(format!(
        "{SCOPE}{elsewhere}{address}cvt.u64.u32 l, sum;\nand.b32 r, r, -1;\nred{scope}{space}.{operation}.{ty} [{register}], {value};\n}}"
    ));
}

/// Each thread exchanges with a word that nobody else reaches in this phase.
fn exchange(kernel: &mut Kernel, random: &mut Random, of: (u32, u32)) {
    let elsewhere = elsewhere(random, of, 4);
    let (space, register, address) = address(random);
    let form = *random.pick(&[
        "exch.b32 v, [R], sum",
        "cas.b32 v, [R], sum, thread",
        "add.u32 v, [R], sum",
        "inc.u32 v, [R], sum",
    ]);
    let (name, operands) = form.split_once(' ').unwrap_or((form, ""));
    let operands = operands.replace('R', register);
    kernel
        .line(format!("{SCOPE}{elsewhere}{address}atom{space}.{name} {operands};\nxor.b32 sum, sum, v;\n}}"));
}

/// `st.async` and `red.async`: each thread sends to another block, whose mbarrier counts the bytes.
fn asynchronous(kernel: &mut Kernel, random: &mut Random, of: (u32, u32), phase: usize) {
    let block = of.1;
    let (form, bytes, value) = match random.below(5) {
        0 => ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32".to_owned(), 4, "sum"),
        1 => ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64".to_owned(), 8, "l"),
        2 => ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32".to_owned(), 8, "{sum, at}"),
        _ => {
            let operation = *random.pick(&REDUCTIONS);
            let wide = operation.ends_with("64");
            (
                format!("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation}"),
                if wide { 8 } else { 4 },
                if wide { "l" } else { "sum" },
            )
        }
    };
    let elsewhere = elsewhere(random, of, 8);
    let bar = 8 * phase;
    kernel.line(format!(
        "{SCOPE}{elsewhere}@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars+{bar}], {};\ncvt.u64.u32 l, sum;\nshl.b64 l, l, \
         3;\nmov.u32 r, pool;\nadd.u32 r, r, at;\nmapa.shared::cluster.u32 r, r, to;\nmov.u32 m, bars;\nadd.u32 m, m, \
         {bar};\nmapa.shared::cluster.u32 m, m, to;\n{form} [r], {value}, [m];\n}}",
        bytes * block
    ));
    wait(kernel, random, phase, 0);
}

/// What a thread learns of its cluster.
fn special(kernel: &mut Kernel, random: &mut Random) {
    for name in [
        "%cluster_ctarank",
        "%cluster_nctarank",
        "%cluster_ctaid.x",
        "%cluster_nctaid.x",
        "%clusterid.x",
        "%nclusterid.x",
        "%cluster_ctaid.y",
        "%nclusterid.z",
    ] {
        if random.below(2) == 0 {
            kernel.line(format!("{{\n.reg .b32 v;\nmov.u32 v, {name};\nmad.lo.u32 sum, sum, 7, v;\n}}"));
        }
    }
    kernel.line(
        "{\n.reg .b32 v, r;\n.reg .b64 d;\n.reg .pred q;\nmov.pred q, %is_explicit_cluster;\nselp.u32 v, 5, 9, q;\nmad.lo.u32 sum, sum, \
         7, v;\nmov.u32 r, pool;\nmapa.shared::cluster.u32 r, r, 1;\ngetctarank.shared::cluster.u32 v, r;\nmad.lo.u32 sum, sum, 7, \
         v;\nmov.u64 d, pool;\ncvta.shared.u64 d, d;\nmapa.u64 d, d, 1;\ngetctarank.u64 v, d;\nmad.lo.u32 sum, sum, 7, \
         v;\nisspacep.shared::cluster q, d;\nselp.u32 v, 5, 9, q;\nmad.lo.u32 sum, sum, 7, v;\nisspacep.shared::cta q, d;\nselp.u32 v, \
         5, 9, q;\nmad.lo.u32 sum, sum, 7, v;\n}",
    );
}
