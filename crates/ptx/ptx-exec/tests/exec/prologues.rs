//! Kernels that begin with the index of their thread and a check of it compute, count and fault the
//! same whether warps pass that beginning together or each computes it.
//!
//! Watched launches compute everything, so random kernels are run both ways and compared.

use std::fmt::Write;

use cuda_launch::LaunchConfig;
use ptx_exec::{Fault, LaunchParams, LaunchStats};

use crate::device::{Device, pack};
use apex_random::Random;

const BLOCKS: u32 = 6;

/// Elements of each array: what most indices stay below.
const ELEMENTS: u32 = 2048;

/// Words between the arrays: more than indices that stay in their allocation differ by.
const GAP: usize = 16 << 10;

/// The index `%r1` and a check of it, and whether there is a check, which sets `%p1`. Most kernels
/// in the wild begin with the first choice of each.
fn beginning(random: &mut Random) -> (String, bool) {
    let mut text = String::new();
    let (a, b, thread) = match random.below(4) {
        0 | 1 => ("%ctaid.x", "%ntid.x", "%tid.x"),
        // Through zero in either direction, or to where signed numbers end.
        2 => ("%ctaid.x", random.choose(&["-1", "-40", "%m", "0x40000000", "0x3ffffff8"]), "%tid.x"),
        _ => (
            random.choose(&["%ntid.x", "%ctaid.x", "%n", "7", "-1"]),
            random.choose(&["%ctaid.x", "%nctaid.x", "3", "%m"]),
            random.choose(&["%tid.x", "%tid.y", "%laneid", "%n"]),
        ),
    };
    let ty = random.choose(&["s32", "u32"]);
    writeln!(
        text,
        "mov.u32 %t1, {a}; mov.u32 %t2, {b}; mov.u32 %t3, {thread}; mad.lo.{ty} %r1, %t1, %t2, %t3;"
    )
    .unwrap();
    if random.below(6) == 0 {
        return (text, false);
    }
    let relation = random.choose(&["ge", "gt", "lt", "le", "ge", "gt", "eq", "ne"]);
    let ty = random.choose(&["s32", "u32"]);
    let bound = random.choose(&["%n", "%n", "%m", "%t1", "100", "-5"]);
    let (a, b) = random.choose(&[("%r1", bound), (bound, "%r1"), ("%r1", bound)]);
    let (a, b) = if a.starts_with('%') { (a, b) } else { (b, a) };
    let guard = random.choose(&["%p1", "!%p1", "%p1"]);
    writeln!(text, "setp.{relation}.{ty} %p1, {a}, {b}; @{guard} bra END;").unwrap();
    (text, true)
}

/// Something that is done with elements, or with others. What is written is not read: threads may
/// have the same index.
fn part(random: &mut Random, labels: &mut u32, is_checked: bool) -> String {
    let element = "mul.wide.s32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;";
    match random.below(12) {
        0..=3 => format!("{element} ld.global.u32 %r2, [%rd4]; mad.lo.u32 %r3, %r3, 31, %r2;"),
        4 | 5 => format!("{element} ld.u32 %r2, [%rd4]; add.u32 %r3, %r3, %r2; st.global.u32 [%rd5], %r3;"),
        6 => "mul.wide.u32 %rd3, %r1, 8; add.s64 %rd4, %rd3, %rd1; ld.global.v2.u32 {%r2, %r4}, [%rd4];
              xor.b32 %r3, %r3, %r2; add.u32 %r3, %r3, %r4;"
            .to_owned(),
        7 => {
            *labels += 1;
            format!(
                "{element} and.b32 %r4, %r3, 4; setp.eq.u32 %p2, %r4, 0; @%p2 bra L{labels};
                 ld.global.u32 %r2, [%rd4+4]; add.u32 %r3, %r3, %r2; L{labels}:"
            )
        }
        8 => format!("{element} setp.gt.s32 %p2, %r3, 0; @%p2 ld.global.u32 %r3, [%rd4];"),
        9 => "bar.warp.sync 0xffffffff; shl.b32 %r3, %r3, 1;".to_owned(),
        10 => "mov.u32 %r4, %tid.x; add.u32 %r3, %r3, %r4;".to_owned(),
        // Whoever reads these needs what the beginning computes. The last reads the check.
        _ => random
            .choose(
                &[
                    "add.u32 %r3, %r3, %r1;",
                    "mov.u32 %r4, %ctaid.x; xor.b32 %r3, %r3, %r4;",
                    "selp.u32 %r4, 3, 5, %p1; add.u32 %r3, %r3, %r4;",
                ][..if is_checked { 3 } else { 2 }],
            )
            .to_owned(),
    }
}

fn kernel(random: &mut Random) -> String {
    let (beginning, is_checked) = beginning(random);
    let mut labels = 0;
    let body: Vec<String> = (0..1 + random.below(4)).map(|_| part(random, &mut labels, is_checked)).collect();
    let ending = random.choose(&["", "", "mul.wide.s32 %rd3, %r1, 4; add.s64 %rd5, %rd2, %rd3;"]);
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n
         .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n, .param .u32 m) {{
             .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b32 %t<4>; .reg .b32 %n; .reg .b32 %m; .reg .b64 %rd<8>;
             ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u32 %n, [n]; ld.param.u32 %m, [m];
             {beginning}
             mov.u32 %r3, 5;
             {}
             mul.wide.s32 %rd3, %r1, 4; add.s64 %rd5, %rd2, %rd3; st.global.u32 [%rd5], %r3;
             END: {ending}
             ret;\n}}",
        body.join("\n"),
    )
}

fn run(
    source: &str,
    watched: bool,
    block: [u32; 3],
    [n, m]: [u32; 2],
    contents: &[u8],
) -> Result<(LaunchStats, Vec<u8>), Fault> {
    let device = Device::watched(watched);
    let linked = device.load(source);
    let kernel = linked.program().kernel("k").unwrap();
    // One allocation, so that an index far outside of one array is not by chance in the other.
    let gap = vec![0; 4 * GAP];
    let memory = [&gap, contents, &gap, contents].concat();
    let start = device.upload(&memory);
    let output = start + gap.len() as u64;
    let input = output + (contents.len() + gap.len()) as u64;
    let addresses = [input, output].map(|address| address.to_le_bytes().to_vec());
    let [n, m] = [n, m].map(|word| word.to_le_bytes().to_vec());
    let params = pack(&linked, kernel, &[&addresses[..], &[n, m]].concat());
    let launch = LaunchParams {
        config: LaunchConfig::new(BLOCKS, block),
        cooperative: false,
        stack: 1024,
        workers: 1,
        params: &params,
    };
    let stats = device.run(&linked, kernel, &launch)?;
    Ok((stats, device.download(start, memory.len())))
}

#[test]
fn random_beginnings_do_the_same_together_and_alone() {
    let mut random = Random::new(2024);
    let contents: Vec<u8> = (0..4 * ELEMENTS).map(|_| random.below(256) as u8).collect();
    let (mut done, mut faults) = (0, 0);
    for round in 0..1500 {
        let source = kernel(&mut random);
        let block =
            random.choose(&[[256, 1, 1], [64, 1, 1], [96, 1, 1], [200, 1, 1], [320, 1, 1], [64, 4, 1]]);
        let all = BLOCKS * block[0];
        let bounds = [
            random.choose(&[all, all - 1, all / 2, all - 70, 0, 1 << 31, u32::MAX]),
            random.choose(&[all - 33, 1, 64, 0x7fff_ff80, 0x8000_0000, u32::MAX]),
        ];
        let together = run(&source, false, block, bounds, &contents);
        let alone = run(&source, true, block, bounds, &contents);
        let about = || format!("round {round}, {block:?}, {bounds:?}\n{source}");
        match (together, alone) {
            (Ok(together), Ok(alone)) => {
                assert!(together == alone, "{} {:?} {:?}", about(), together.0, alone.0);
                done += 1;
            }
            (Err(together), Err(alone)) => {
                let what = |fault: &Fault| {
                    (fault.kind, fault.block, fault.thread, fault.address.is_some(), fault.line)
                };
                assert_eq!(what(&together), what(&alone), "{}", about());
                faults += 1;
            }
            (one, other) => panic!("{} {:?}, {:?}", about(), one.err(), other.err()),
        }
    }
    assert!(done > 500 && faults > 100, "{done} done, {faults} faults");
}
