//! `cp.async.bulk` and `cp.reduce.async.bulk`: into shared memory, the block's own, another
//! block's, or that of several; and back to global memory.

use super::{declare_barriers, declare_pool, dump, fill, kernel, meet, publish, size, wait};
use crate::case::Rule;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

/// Bytes of a copy's destination in the pool, and copies at most.
const SLOT: usize = 512;
const COPIES: usize = 4;

/// Operations on what lies at the destination in shared memory.
const OPERATIONS: [&str; 14] = [
    "add.u32", "add.s32", "add.u64", "min.u32", "min.s32", "max.u32", "max.s32", "inc.u32", "dec.u32",
    "and.b32", "or.b32", "xor.b32", "add.u64", "max.u32",
];

/// The way of a copy into shared memory.
enum Way {
    /// From global memory to the own block.
    Load,
    /// From global memory to the blocks of a mask, by the block with this rank.
    Multicast { rank: usize, mask: usize },
    /// From the own block to the block this many ranks further, with an operation.
    Remote { further: usize, operation: Option<&'static str> },
}

pub(super) fn write(random: &mut Random) -> Kernel {
    let cluster = *random.pick(&[1, 1, 2, 4]);
    let (grid, block) = (cluster * (1 + random.below(2) as u32), *random.pick(&[32, 64, 128]));
    let mut kernel = kernel(grid, cluster, block);
    let copies = 1 + random.below(COPIES);
    declare_pool(&mut kernel, 2 * COPIES * SLOT);
    declare_barriers(&mut kernel, copies, 1);
    fill(&mut kernel, block, 2 * COPIES * SLOT / 4, Some(Values::B32));
    publish(&mut kernel);
    let given = kernel.column(Values::B32, SLOT);
    meet(&mut kernel, cluster);
    for copy in 0..copies {
        load(&mut kernel, random, cluster, (copy, given));
    }
    for copy in 0..copies {
        wait(&mut kernel, random, copy, 0);
    }
    meet(&mut kernel, cluster);
    dump(&mut kernel, (grid, block), COPIES * SLOT / 4, "pool");
    if random.below(2) == 0 {
        store(&mut kernel, random, grid);
    }
    kernel
}

/// A way that a cluster of so many blocks allows.
fn way(random: &mut Random, blocks: usize) -> Way {
    match random.below(3) {
        1 if blocks > 1 => {
            Way::Multicast { rank: random.below(blocks), mask: 1 + random.below((1 << blocks) - 1) }
        }
        // Without a cluster a GPU traps.
        2 if blocks > 1 => Way::Remote {
            further: random.below(blocks),
            operation: (random.below(2) == 0).then(|| *random.pick(&OPERATIONS)),
        },
        _ => Way::Load,
    }
}

/// A copy into slot `copy` of the pool, which its mbarrier counts.
fn load(kernel: &mut Kernel, random: &mut Random, cluster: u32, (copy, given): (usize, usize)) {
    let bytes = size(random, SLOT);
    let to = copy * SLOT + 16 * random.below((SLOT - bytes) / 16 + 1);
    let way = way(random, cluster as usize);
    let bar = 8 * copy;
    let hint = if random.once_in(6) { ".L2::cache_hint" } else { "" };
    let policy = if hint.is_empty() { "" } else { ", policy" };
    let head = format!(
        "{{\n.reg .pred p, q;\n.reg .b32 a, b, m, s;\n.reg .b64 g, policy;\n.reg .b16 k;\nmov.u32 a, %cluster_ctarank;\nadd.u64 g, in, {};\n\
         createpolicy.fractional.L2::evict_first.b64 policy, 1.0;",
        given + 16 * random.below((4 * SLOT - bytes) / 16)
    );
    let expect = format!(
        "@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars+{bar}], {bytes};\n@q mbarrier.arrive.shared::cta.b64 _, [bars+{bar}];"
    );
    let body = match way {
        Way::Load => {
            let space = *random.pick(&["shared::cluster", "shared::cta"]);
            format!(
                "mov.pred p, first;\nmov.pred q, 0;\n{expect}\n@first cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes{hint} \
                 [pool+{to}], [g], {bytes}, [bars+{bar}]{policy};"
            )
        }
        Way::Multicast { rank, mask } => format!(
            "shr.u32 b, {mask}, a;\nand.b32 b, b, 1;\nsetp.ne.and.u32 p, b, 0, first;\nsetp.eq.and.u32 q, b, 0, first;\n{expect}\n\
             setp.eq.and.u32 p, a, {rank}, first;\nmov.u16 k, {mask};\n\
             @p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster{hint} [pool+{to}], [g], \
             {bytes}, [bars+{bar}], k{policy};"
        ),
        Way::Remote { further, operation } => {
            let from = (COPIES + copy) * SLOT + 16 * random.below((SLOT - bytes) / 16 + 1);
            let copy = match operation {
                None => "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes".to_owned(),
                Some(operation) => format!(
                    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation}"
                ),
            };
            format!(
                "mov.pred p, first;\nmov.pred q, 0;\n{expect}\nadd.u32 a, a, {further};\nrem.u32 a, a, {cluster};\n\
                 mov.u32 b, pool;\nadd.u32 b, b, {to};\nmapa.shared::cluster.u32 b, b, a;\nmov.u32 m, bars;\nadd.u32 m, m, {bar};\n\
                 mapa.shared::cluster.u32 m, m, a;\nmov.u32 s, pool;\n@first {copy} [b], [s+{from}], {bytes}, [m];"
            )
        }
    };
    kernel.line(format!("{head}\n{body}\n}}"));
}

/// Copies from the pool to the results: each block to a place of its own.
fn store(kernel: &mut Kernel, random: &mut Random, grid: u32) {
    let copies = 1 + random.below(3);
    let slot = kernel.slot("stored", Values::B32, grid as usize * copies * SLOT / 4, Rule::Exact);
    kernel.line("fence.proxy.async.shared::cta;\nbar.sync 0;");
    for copy in 0..copies {
        let bytes = size(random, SLOT);
        let [to, from] = [SLOT, COPIES * SLOT].map(|end| 16 * random.below((end - bytes) / 16 + 1));
        kernel.line(format!(
            "{{\n.reg .b32 a;\n.reg .b64 g;\nmov.u32 a, %ctaid.x;\nmul.wide.u32 g, a, {};\nadd.u64 g, g, out;\n@first \
             cp.async.bulk.global.shared::cta.bulk_group [g+{}], [pool+{from}], {bytes};\n@first cp.async.bulk.commit_group;\n}}",
            copies * SLOT,
            slot + copy * SLOT + to
        ));
    }
    let read = if random.below(2) == 0 { ".read" } else { "" };
    kernel.line(format!("@first cp.async.bulk.wait_group{read} 0;"));
}
