//! Random programs on what compute capability 9.0 has alone: bulk copies, tensor maps, mbarriers,
//! clusters, products of warp groups.
//!
//! A program belongs to its number, so a part of them is the same whoever asks for it. Each is
//! deterministic by the PTX ISA: what several threads change at once are sums, extrema and bits of
//! integers, and what is rounded is changed once.

mod bulk;
mod clusters;
mod groups;
mod mbarriers;
mod pixels;
mod reductions;
mod sparse;
mod stores;
mod tensors;

use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

/// Programs of a full round.
pub const ROUND: u64 = 2000;

/// Bytes of shared memory that programs copy to and from, and their name in PTX: `pool`.
const POOL: usize = 8192;

/// The program with a number.
pub fn case(number: u64) -> Case {
    let mut random = Random::of(&[0x0000_9009, number]);
    let (kind, write): (&str, fn(&mut Random) -> Kernel) = match number % 20 {
        0 | 1 => ("bulk copies", bulk::write),
        2..=5 => ("tensor loads", tensors::write),
        6 | 7 => ("tensor stores", stores::write),
        8 => ("reductions", reductions::write),
        9 | 10 => ("pixels", pixels::write),
        11 => ("mbarrier states", mbarriers::states),
        12 => ("mbarrier stages", mbarriers::stages),
        13 | 14 => ("clusters", clusters::write),
        15..=18 => ("warp groups", groups::write),
        _ => ("sparse products", sparse::write),
    };
    write(&mut random).finish(format!("{kind}/{number}"))
}

/// A kernel of clusters of `cluster` blocks.
fn kernel(grid: u32, cluster: u32, block: u32) -> Kernel {
    let mut kernel = Kernel::new(grid, block);
    kernel.set_target("8.6", "sm_90a");
    if cluster > 1 {
        kernel.directives = format!("\n.reqnctapercluster {cluster}");
    }
    kernel
}

/// Waits for the whole cluster.
fn meet(kernel: &mut Kernel, cluster: u32) {
    kernel.line(match cluster {
        1 => "bar.sync 0;",
        _ => "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
    });
}

/// Declares the pool, which has `bytes` bytes.
fn declare_pool(kernel: &mut Kernel, bytes: usize) {
    kernel.declarations += &format!(".shared .align 1024 .b8 pool[{bytes}];\n");
}

/// Fills `words` words of the pool: with a column of values, or with a pattern. The blocks of the
/// grid have different ones if these are integers.
fn fill(kernel: &mut Kernel, block: u32, words: usize, values: Option<Values>) {
    let value = match values {
        None => "mad.lo.u32 v, i, 0x9e3779b9, 0x1234567;".to_owned(),
        Some(values) => {
            let start = kernel.column(values, 4 * words / values.bytes());
            format!("mul.wide.u32 p, i, 4;\nadd.u64 p, p, in;\nld.global.b32 v, [p+{start}];")
        }
    };
    let vary = match values {
        None | Some(Values::B32 | Values::B64) => "mov.u32 a, %ctaid.x;\nmad.lo.u32 v, a, 0x01010101, v;\n",
        _ => "",
    };
    kernel.line(format!(
        "{{\n.reg .b32 i, v, a;\n.reg .b64 p;\n.reg .pred q;\nmov.u32 i, thread;\nfill:\nsetp.ge.u32 q, i, {words};\n@q bra \
         filled;\n{value}\n{vary}mov.u32 a, pool;\nmad.lo.u32 a, i, 4, a;\nst.shared.b32 [a], v;\nadd.u32 i, i, \
         {block};\nbra fill;\nfilled:\n}}"
    ));
}

/// Makes what threads have stored visible to copies.
fn publish(kernel: &mut Kernel) {
    kernel.line("fence.proxy.async.shared::cta;\nbar.sync 0;");
}

/// Copies `words` words of the pool to the results.
fn dump(kernel: &mut Kernel, (grid, block): (u32, u32), words: usize, name: &str) {
    let slot = kernel.slot(name, Values::B32, words * grid as usize, Rule::Exact);
    kernel.line(format!(
        "{{\n.reg .b32 i, v, a;\n.reg .b64 p;\n.reg .pred q;\nmov.u32 i, thread;\ndump:\nsetp.ge.u32 q, i, {words};\n@q bra \
         dumped;\nmov.u32 a, pool;\nmad.lo.u32 a, i, 4, a;\nld.shared.b32 v, [a];\nmov.u32 a, %ctaid.x;\nmad.lo.u32 a, a, {words}, \
         i;\nmul.wide.u32 p, a, 4;\nadd.u64 p, p, out;\nst.global.b32 [p+{slot}], v;\nadd.u32 i, i, {block};\nbra dump;\ndumped:\n}}"
    ));
}

/// Gives `bytes` bytes of the results at `slot` the values of a column, by the first block, and
/// makes them visible to copies.
fn preset(kernel: &mut Kernel, (block, values): (u32, Values), slot: usize, bytes: usize) {
    let start = kernel.column(values, bytes / values.bytes());
    kernel.line(format!(
        "{{\n.reg .b32 i, v;\n.reg .b64 p, t;\n.reg .pred q;\nmov.u32 i, thread;\npreset:\nsetp.ge.u32 q, i, {};\n@q bra \
         done;\nmul.wide.u32 p, i, 4;\nadd.u64 t, p, in;\nadd.u64 p, p, out;\nld.global.b32 v, [t+{start}];\nst.global.b32 [p+{slot}], \
         v;\nadd.u32 i, i, {block};\nbra preset;\ndone:\n}}\nfence.proxy.async;\nbar.sync 0;",
        bytes / 4
    ));
}

/// Declares `count` mbarriers `bars`; the first thread gives each this number of arrivals, and sets
/// the predicate `first` apart.
fn declare_barriers(kernel: &mut Kernel, count: usize, arrivals: u32) {
    kernel.declarations += &format!(".shared .align 8 .b64 bars[{count}];\n.reg .pred first;\n");
    kernel.line("setp.eq.u32 first, thread, 0;");
    for bar in 0..count {
        kernel.line(format!("@first mbarrier.init.shared::cta.b64 [bars+{}], {arrivals};", 8 * bar));
    }
    kernel.line("@first fence.mbarrier_init.release.cluster;");
}

/// Cycles after which a program does not wait any longer: 20 ms of an H200. One that goes wrong
/// shows it by its results.
const PATIENCE: u32 = 40_000_000;

/// Waits for a phase of an mbarrier; whether it came is a result.
fn wait(kernel: &mut Kernel, random: &mut Random, bar: usize, parity: u32) {
    let how = *random.pick(&["", ".acquire.cta", ".acquire.cluster"]);
    let (test, hint) = match random.below(3) {
        0 => ("test_wait", ""),
        1 => ("try_wait", ", 0x100"),
        _ => ("try_wait", ", 100"),
    };
    let word = kernel.register(32);
    kernel.line(format!(
        "{{\n.reg .b64 since, now;\n.reg .pred p, q;\nmov.u64 since, %clock64;\nwait:\nmbarrier.{test}.parity{how}.shared::cta.b64 \
         p, [bars+{}], {parity}{hint};\nmov.u64 now, %clock64;\nsub.u64 now, now, since;\nsetp.lt.and.u64 q, now, {PATIENCE}, \
         !p;\n@q bra wait;\nselp.u32 {word}, 1, 0, p;\n}}",
        8 * bar
    ));
    kernel.store(&format!("waited {bar}"), Values::B32, Rule::Exact, &word);
}

/// A number of bytes from 16 to `most`, a multiple of 16.
fn size(random: &mut Random, most: usize) -> usize {
    16 * (1 + random.below(most / 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_parse_and_belong_to_their_numbers() {
        for number in (0..ROUND).step_by(7) {
            let case = case(number);
            assert_eq!(case, super::case(number));
            if let Err(error) = ptx::parse(&case.ptx) {
                panic!("{}", error.render(&case.name, &case.ptx));
            }
        }
    }
}
