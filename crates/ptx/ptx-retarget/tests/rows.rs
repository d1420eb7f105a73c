//! Each row of the table: the lowered kernel gives the original's bits on random inputs, and ptxas
//! takes it.
//!
//! Both run on the executor of PTX, which knows most forms of newer GPUs. Those that it does not
//! know are held to references written here.

#[path = "../../ptx/tests/common/mod.rs"]
mod common;
#[path = "../../ptx-exec/tests/exec/device.rs"]
#[allow(dead_code, reason = "the tests of `ptx-exec` use more of it")]
#[allow(clippy::result_large_err, reason = "a fault of a test, made once")]
mod device;

use std::collections::BTreeSet;

use apex_random::Random;
use cuda_launch::LaunchConfig;
use device::{Device, pack};
use ptx_exec::LaunchParams;
use ptx_retarget::{Gpu, Lowered, ROWS, lower};

/// Threads of a run: several warps.
const THREADS: usize = 128;
/// Words of 32 bits that each thread reads and writes.
const WORDS: usize = 8;

/// A kernel body. `%in` and `%out` are the addresses of the thread's words, `%t` is its number, and
/// `memory` has 4 KiB of shared memory.
struct Case {
    /// The row that has to be used.
    row: &'static str,
    /// The original's version and target.
    header: (&'static str, &'static str),
    /// The GPU for which it is lowered.
    capability: u32,
    body: &'static str,
}

/// A case for sm_80 from sm_100a.
const fn case(row: &'static str, body: &'static str) -> Case {
    Case { row, header: ("8.8", "sm_100a"), capability: 80, body }
}

const CASES: &[Case] = &[
    case(
        "f32x2",
        "add.f32x2 %d0, %d1, %d2; sub.rz.ftz.f32x2 %d3, %d2, %d1; st.global.v2.b64 [%out], {%d0, %d3};",
    ),
    case(
        "f32x2",
        "mul.rm.f32x2 %d1, %d1, %d2; fma.rp.f32x2 %d0, %d0, %d2, %d1; st.global.v2.b64 [%out], {%d0, %d1};",
    ),
    case(
        "f32x2",
        "setp.lt.u32 %p, %t, 77; @!%p fma.rn.ftz.f32x2 %d0, %d0, %d1, %d2; st.global.b64 [%out], %d0;",
    ),
    case(
        "three-input extremum",
        "min.f32 %f0, %f1, %f2, %f3; max.ftz.f32 %f1, %f2, %f3, %f4; st.global.v2.f32 [%out], {%f0, %f1};",
    ),
    case(
        "three-input extremum",
        "min.NaN.f32 %f0, %f0, %f1, %f2; max.NaN.abs.f32 %f1, %f2, 0f3FC00000, %f3; st.global.v2.f32 [%out], {%f0, %f1};",
    ),
    case(
        "mixed precision",
        "cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r1; add.f32.bf16 %f2, %h0, %f2; sub.rz.sat.f32.f16 %f3, %h1, %f3; st.global.v2.f32 [%out], {%f2, %f3};",
    ),
    case(
        "mixed precision",
        "cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r1; fma.rp.f32.bf16 %f2, %h0, %h1, %f2; fma.rn.f32.f16 %f3, %h1, %h0, %f3; st.global.v2.f32 [%out], {%f2, %f3};",
    ),
    case(
        "wide access",
        "ld.global.v8.b32 {%r0, %r1, %r2, _, %r4, %r5, %r6, %r7}, [%in]; st.global.L1::no_allocate.v8.b32 [%out], {%r7, %r6, %r5, %r0, %r2, %r1, %r0, %r4};",
    ),
    case(
        "wide access",
        "ld.global.L2::evict_last.v4.b64 {%d0, %in, %d2, %d3}, [%in]; st.global.v4.b64 [%out], {%d3, %d2, %in, %d0};",
    ),
    case(
        "float redux",
        "redux.sync.min.f32 %f0, %f0, 0xffffffff; redux.sync.max.NaN.f32 %f1, %f1, 0xffffffff; st.global.v2.f32 [%out], {%f0, %f1};",
    ),
    case(
        "float redux",
        "and.b32 %r0, %t, 16; setp.eq.u32 %p, %r0, 0; selp.b32 %r0, 0x0000ffff, 0xffff0000, %p; redux.sync.max.abs.f32 %f0, %f0, %r0; redux.sync.min.abs.NaN.f32 %f1, %f1, %r0; redux.sync.min.abs.f32 %f2, %f2, %r0; st.global.v4.f32 [%out], {%f0, %f1, %f2, %f2};",
    ),
    Case {
        capability: 75,
        ..case("float redux", "redux.sync.min.f32 %f0, %f0, 0xffffffff; st.global.f32 [%out], %f0;")
    },
    Case {
        capability: 75,
        header: ("7.0", "sm_80"),
        ..case(
            "integer redux",
            "and.b32 %r0, %t, 1; setp.eq.u32 %p, %r0, 0; selp.b32 %r3, 0x55555555, 0xaaaaaaaa, %p; redux.sync.add.u32 %r0, %r1, %r3; redux.sync.min.s32 %r1, %r1, %r3; redux.sync.xor.b32 %r2, %r2, %r3; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
        )
    },
    case(
        "elect",
        "setp.ge.u32 %p, %t, 37; @%p bra $high; mov.u32 %r0, 5; bra $end; $high: activemask.b32 %r1; elect.sync %r0|%p, %r1; selp.u32 %r1, 1, 0, %p; st.global.b32 [%out+4], %r1; $end: st.global.b32 [%out], %r0;",
    ),
    case(
        "store matrix",
        "mul.wide.u32 %d0, %t, 16; cvt.u32.u64 %r4, %d0; mov.u32 %r5, memory; add.u32 %r5, %r5, %r4; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r0, %r1, %r2, %r3}; bar.sync 0; ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r5]; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    ),
    case(
        "store matrix",
        "mul.wide.u32 %d0, %t, 16; mov.u64 %d1, memory; add.u64 %d1, %d1, %d0; cvta.shared.u64 %d2, %d1; mov.u32 %r4, 0; st.shared.v4.b32 [%d1], {%r4, %r4, %r4, %r4}; bar.sync 0; stmatrix.sync.aligned.m8n8.x2.trans.b16 [%d2], {%r0, %r1}; bar.sync 0; ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%d1]; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    ),
    case(
        "bf16 arithmetic",
        "add.bf16x2 %r0, %r1, %r2; sub.rn.bf16x2 %r1, %r3, %r4; mul.bf16x2 %r2, %r5, %r6; cvt.u16.u32 %h0, %r3; cvt.u16.u32 %h1, %r4; sub.bf16 %h2, %h0, %h1; mul.bf16 %h3, %h0, %h1; add.bf16 %h0, %h0, %h1; mov.b32 %r3, {%h2, %h3}; cvt.u32.u16 %r4, %h0; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3}; st.global.b32 [%out+16], %r4;",
    ),
    case(
        "bf16 comparison",
        "cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r1; setp.ltu.bf16 %p, %h0, %h1; setp.ge.and.bf16 %q, %h1, %h0, !%p; selp.u32 %r0, 1, 0, %p; selp.u32 %r1, 1, 0, %q; setp.equ.or.bf16x2 %p|%q, %r2, %r3, %p; selp.u32 %r2, 1, 0, %p; selp.u32 %r3, 1, 0, %q; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    ),
    case(
        "bf16 comparison",
        "setp.gt.bf16x2 %p|%q, %r2, %r3; @%p setp.lt.bf16x2 %p|%q, %r4, %r5; selp.u32 %r2, 1, 0, %p; selp.u32 %r3, 1, 0, %q; st.global.v2.b32 [%out], {%r2, %r3};",
    ),
    case(
        "bf16 conversion",
        "cvt.u16.u32 %h0, %r0; cvt.f64.bf16 %d0, %h0; cvt.rzi.s32.bf16 %r1, %h0; cvt.rn.f16.bf16 %h1, %h0; cvt.rpi.bf16.bf16 %h2, %h0; cvt.rm.bf16.s32 %h3, %r3; mov.b32 %r2, {%h1, %h2}; st.global.b64 [%out], %d0; st.global.v2.b32 [%out+8], {%r1, %r2}; st.global.b16 [%out+16], %h3;",
    ),
    case(
        "bf16 conversion",
        "cvt.u16.u32 %h0, %r0; cvt.rn.bf16.f16 %h1, %h0; cvt.rn.bf16.s16 %h2, %h0; cvt.rz.bf16.f64 %h3, %d1; cvt.rni.u64.bf16 %d0, %h0; mov.b64 %d2, {%h0, %h1, %h2, %h3}; st.global.v2.b64 [%out], {%d0, %d2};",
    ),
    case(
        "packed integers",
        "add.u16x2 %r0, %r0, %r1; min.s16x2 %r1, %r1, %r2; max.u16x2 %r2, %r2, %r3; min.relu.s16x2 %r3, %r4, %r5; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    ),
    case(
        "relu extremum",
        "max.relu.s32 %r0, %r0, %r1; min.relu.s32 %r1, %r1, %r2; st.global.v2.b32 [%out], {%r0, %r1};",
    ),
    case(
        "vector atomics",
        "red.global.add.v4.f32 [%out], {%f0, %f1, %f2, %f3}; atom.global.add.v2.f32 {%f4, _}, [%out+16], {%f5, %f6}; st.global.f32 [%out+24], %f4;",
    ),
    case(
        "vector atomics",
        "atom.acq_rel.gpu.global.add.noftz.v2.f16x2 {%r0, %r1}, [%out], {%r1, %r0}; red.global.add.noftz.v2.bf16x2 [%out+8], {%r2, %r3}; st.global.v2.b32 [%out+16], {%r0, %r1};",
    ),
    case(
        "bf16 atomics",
        "setp.lt.u32 %p, %t, 100; @%p atom.global.add.noftz.bf16x2 %r0, [%out], %r1; cvt.u16.u32 %h0, %r2; red.global.add.noftz.bf16 [%out+4], %h0; st.global.b32 [%out+8], %r0;",
    ),
    case(
        "try_wait",
        "setp.ne.u32 %p, %t, 0; @!%p mbarrier.init.shared.b64 [memory], 128; bar.sync 0; mbarrier.arrive.shared.b64 %d0, [memory]; $wait: mbarrier.try_wait.acquire.cta.shared::cta.b64 %q, [memory], %d0, 10; @!%q bra $wait; mbarrier.try_wait.parity.shared.b64 %q, [memory], 0; selp.u32 %r0, 1, 0, %q; st.global.b32 [%out], %r0;",
    ),
    case(
        "mbarrier arrival",
        "setp.ne.u32 %p, %t, 0; @!%p mbarrier.init.shared.b64 [memory], 384; bar.sync 0; mbarrier.arrive.release.cta.shared.b64 %d0, [memory], 3; $wait: mbarrier.test_wait.shared.b64 %q, [memory], %d0; @!%q bra $wait; st.global.b32 [%out], %r0;",
    ),
    case(
        "async proxy",
        "st.shared.b32 [memory], %t; fence.proxy.async.shared::cta; st.global.b32 [%out], %t;",
    ),
    case("mbarrier fence", "fence.mbarrier_init.release.cluster; st.global.b32 [%out], %t;"),
    case("register hint", "setmaxnreg.inc.sync.aligned.u32 64; st.global.b32 [%out], %t;"),
    case(
        "dependent launch",
        "griddepcontrol.wait; st.global.b32 [%out], %t; griddepcontrol.launch_dependents;",
    ),
    case(
        "cluster scope",
        "fence.acq_rel.cluster; fence.sc.cluster; st.release.cluster.global.b32 [%out], %r0; ld.acquire.cluster.global.b32 %r1, [%out]; atom.relaxed.cluster.global.add.u32 %r2, [%out+4], %r1; st.global.b32 [%out+8], %r2;",
    ),
    case(
        "cluster memory",
        "mul.wide.u32 %d0, %t, 4; mov.u64 %d1, memory; add.u64 %d1, %d1, %d0; mapa.shared::cluster.u64 %d2, %d1, 0; st.shared::cluster.b32 [%d2], %r0; getctarank.shared::cluster.u64 %r1, %d2; ld.shared::cluster.b32 %r2, [%d1]; st.global.v2.b32 [%out], {%r1, %r2};",
    ),
    case(
        "cluster registers",
        "mov.u32 %r0, %cluster_ctaid.x; mov.u32 %r1, %clusterid.y; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %nclusterid.x; mov.pred %p, %is_explicit_cluster; selp.u32 %r4, 1, 0, %p; mov.u32 %r5, %cluster_nctaid.z; mov.v4.u32 {%r6, _, _, _}, %cluster_ctaid; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3}; st.global.v2.b32 [%out+16], {%r4, %r5}; st.global.b32 [%out+24], %r6;",
    ),
    Case {
        capability: 75,
        header: ("8.8", "sm_80"),
        ..case(
            "cache hint",
            "createpolicy.fractional.L2::evict_first.b64 %d0; prefetch.global.L2::evict_last [%in]; ld.global.L2::cache_hint.b32 %r0, [%in], %d0; st.global.L2::cache_hint.b32 [%out], %r0, %d0; discard.global.L2 [%in], 128;",
        )
    },
    Case {
        capability: 75,
        header: ("8.8", "sm_80"),
        ..case(
            "asynchronous copy",
            "mul.wide.u32 %d0, %t, 16; mov.u64 %d1, memory; add.u64 %d1, %d1, %d0; cp.async.cg.shared.global [%d1], [%in+16], 16; cp.async.commit_group; cp.async.wait_group 0; ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%d1]; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
        )
    },
    case(
        "bulk store",
        "mul.wide.u32 %d0, %t, 32; mov.u64 %d1, memory; add.u64 %d1, %d1, %d0; st.shared.v4.b32 [%d1], {%r0, %r1, %r2, %r3}; st.shared.v4.b32 [%d1+16], {%r4, %r5, %r6, %r7}; bar.sync 0; mov.u64 %d2, 16; st.bulk.weak.shared::cta [%d1+8], %d2, 0; bar.sync 0; ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%d1]; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%d1+16]; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3}; st.global.v4.b32 [%out+16], {%r4, %r5, %r6, %r7};",
    ),
    case(
        "narrow floats",
        "cvt.u16.u32 %h0, %r0; cvt.rn.f16x2.e3m2x2 %r1, %h0; cvt.rn.relu.f16x2.e2m3x2 %r2, %h0; cvt.rn.bf16x2.ue8m0x2 %r3, %h0; st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    ),
    case(
        "narrow floats",
        "cvt.u16.u32 %h0, %r0; cvt.rn.f16x2.e4m3x2 %r1, %h0; cvt.rn.relu.f16x2.e5m2x2 %r2, %h0; cvt.rn.f16x2.e5m2x2 %r3, %h0; cvt.rn.relu.f16x2.e4m3x2 %r4, %h0; st.global.v4.b32 [%out], {%r1, %r2, %r3, %r4};",
    ),
];

/// The module of a case.
fn module(case: &Case) -> String {
    let (version, target) = case.header;
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n\
         .visible .entry k(.param .u64 from, .param .u64 to) {{\n\
         .shared .align 128 .b8 memory[4096];\n\
         .reg .b64 %in, %out, %d<8>; .reg .b32 %t, %r<8>; .reg .f32 %f<8>; .reg .b16 %h<8>; .reg .pred %p, %q;\n\
         mov.u32 %t, %tid.x; ld.param.u64 %in, [from]; ld.param.u64 %out, [to];\n\
         mul.wide.u32 %d0, %t, {bytes}; add.u64 %in, %in, %d0; add.u64 %out, %out, %d0;\n\
         ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%in]; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%in+16];\n\
         ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%in]; ld.global.v4.f32 {{%f4, %f5, %f6, %f7}}, [%in+16];\n\
         ld.global.v2.b64 {{%d0, %d1}}, [%in]; ld.global.v2.b64 {{%d2, %d3}}, [%in+16];\n\
         {}\nret;\n}}\n",
        case.body,
        bytes = 4 * WORDS,
    )
}

/// A word: numbers around which things change in each type, or any bits.
fn word(random: &mut Random) -> u32 {
    const SPECIAL: [u32; 18] = [
        0,
        1,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0xffff_ffff,
        0x3f80_0000,
        0xbf80_3f80,
        0x0001_8001,
        0x7f7f_7f80,
        0x7fff_8000,
        0x0080_0000,
        0x007f_ffff,
        0x3c00_fc00,
        0x7e01_0400,
        0x7f7f_ffff,
        0x4200_c2c8,
    ];
    let bits = random.bits() as u32;
    match random.below(6) {
        0 | 1 => random.choose(&SPECIAL),
        2 => (bits as i32 as f32 / 65536.0).to_bits(),
        3 => (bits & 0x8fff_8fff) | 0x3000_3000,
        _ => bits,
    }
}

/// Runs the kernel `k` of a module on words for each thread, and gives what it wrote over other
/// words.
fn run(source: &str, words: &[u32]) -> Result<Vec<u32>, String> {
    let parsed = ptx::parse(source).map_err(|error| error.render("k.ptx", source))?;
    let program = ptx_exec::Program::compile(&parsed).map_err(|error| error.render("k.ptx", source))?;
    if let Some((_, line, why)) = program.unsupported().next() {
        return Err(format!("line {line}: {why}"));
    }
    let device = Device::default();
    let linked = device.load(source);
    let kernel = linked.program().kernel("k").unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let initial: Vec<u8> = words.iter().rev().flat_map(|word| (word & 0x7fff_3fff).to_le_bytes()).collect();
    let (from, to) = (device.upload(&bytes), device.upload(&initial));
    let params = pack(&linked, kernel, &[from.to_le_bytes().to_vec(), to.to_le_bytes().to_vec()]);
    let config = LaunchConfig::new(1, THREADS as u32);
    let params = LaunchParams { config, cooperative: false, stack: 0, workers: 1, params: &params };
    device.run(&linked, kernel, &params).map_err(|fault| fault.to_string())?;
    let written = device.download(to, bytes.len());
    Ok(written.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

fn lowered(source: &str, capability: u32) -> Lowered {
    let module = ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render("k.ptx", source)));
    assert_eq!(ptx::verify(&module), [], "{source}");
    lower(&module, Gpu { capability, newest: (9, 0) }, true)
}

fn words(name: &str) -> Vec<u32> {
    let mut random = Random::named(0, name);
    (0..THREADS * WORDS).map(|_| word(&mut random)).collect()
}

#[test]
fn lowered_kernels_give_the_same_bits() {
    let mut failures = Vec::new();
    for case in CASES {
        let source = module(case);
        let lowered = lowered(&source, case.capability);
        let rows: BTreeSet<&str> = lowered.changes.iter().map(|change| change.row.name).collect();
        assert!(lowered.blocked.is_empty(), "{}: {:?}", case.body, lowered.blocked);
        assert!(rows.contains(case.row), "{}: {rows:?}", case.body);
        let text = lowered.module.to_string();
        assert_eq!(ptx::verify(&ptx::parse(&text).unwrap()), [], "{text}");
        let words = words(case.body);
        match (run(&source, &words), run(&text, &words)) {
            (Ok(original), Ok(new)) => {
                if let Some(place) = (0..original.len()).find(|place| original[*place] != new[*place]) {
                    failures.push(format!(
                        "{}: {}: word {} of thread {}: {:#x} instead of {:#x}, inputs {:x?}",
                        case.row,
                        case.body,
                        place % WORDS,
                        place / WORDS,
                        new[place],
                        original[place],
                        &words[place / WORDS * WORDS..place / WORDS * WORDS + WORDS]
                    ));
                }
            }
            (original, new) => {
                failures.push(format!("{}: {:?} {:?}\n{text}", case.body, original.err(), new.err()))
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn ptxas_takes_lowered_kernels() {
    let Some(ptxas) = common::Ptxas::find() else { return };
    for case in CASES {
        let source = module(case);
        let architecture = common::architecture(&ptx::parse(&source).unwrap());
        assert_eq!(ptxas.errors(&source, &architecture), Default::default(), "{source}");
        let text = lowered(&source, case.capability).module.to_string();
        let architecture = format!("compute_{}", case.capability);
        assert_eq!(ptxas.errors(&text, &architecture), Default::default(), "{text}");
    }
}

#[test]
fn each_row_has_a_case() {
    let tested: BTreeSet<&str> = CASES.iter().map(|case| case.row).chain(OF_OTHER_TESTS).collect();
    let untested: Vec<&str> = ROWS.iter().map(|row| row.name).filter(|name| !tested.contains(name)).collect();
    assert_eq!(untested, [] as [&str; 0]);
}

/// Products of FP8, of which only a GPU knows the rounding: whatever the bits of the factors, they
/// are below 2, and those of C are below 1.
const PRODUCTS: [Case; 4] = [
    of_hopper(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
    ),
    of_hopper(
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, %d1, %p, 1, 1;",
    ),
    of_hopper(
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e4m3 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, %d1, %p, 1, 1;",
    ),
    of_hopper(
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e5m2.e5m2 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, %d1, %p, 1, 1;",
    ),
];

/// A product of a warp group or of each of its warps.
const fn of_hopper(body: &'static str) -> Case {
    Case { row: "", header: ("8.4", "sm_90a"), capability: 90, body }
}

/// The module of a product, with B in shared memory too.
fn product_module(case: &Case) -> String {
    const BEFORE: &str = "mul.wide.u32 %d0, %t, 16; mov.u64 %d1, memory; add.u64 %d1, %d1, %d0;";
    let mut body = String::new();
    for register in 0..8 {
        body += &format!("and.b32 %r{register}, %r{register}, 0xbfbfbfbf;\n");
    }
    body += BEFORE;
    body += "st.shared.v4.b32 [%d1], {%r4, %r5, %r6, %r7}; fence.proxy.async; bar.sync 0;\n\
             mov.u64 %d1, memory; shr.u64 %d1, %d1, 4; or.b64 %d1, %d1, 0x80000; setp.eq.u32 %p, %t, %t;\n";
    for register in 0..4 {
        body += &format!(
            "mov.b32 %q{register}, %f{register}; and.b32 %q{register}, %q{register}, 0x807fffff;\n\
             or.b32 %q{register}, %q{register}, 0x3f000000; mov.b32 %f{register}, %q{register};\n"
        );
    }
    let (before, after) = match case.body.starts_with("wgmma") {
        true => {
            ("wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")
        }
        false => ("", ""),
    };
    body += &format!("{before} {} {after}\nst.global.v4.f32 [%out], {{%f0, %f1, %f2, %f3}};", case.body);
    let empty = module(&Case { body: "", ..*case });
    empty.replace("\n\nret;", &format!("\n.reg .b32 %q<4>;\n{body}\nret;"))
}

/// Writes the cases for `scripts/gpu/universal.py`: for each the text that a GPU of 9.0 takes, the
/// lowered one if there is one, the words that its threads read, and those that they leave on the
/// CPU device.
#[test]
#[ignore = "writes files for a GPU: UNIVERSAL_CASES=FOLDER cargo test --test rows -- --ignored"]
fn cases_for_a_gpu() {
    let folder = std::path::PathBuf::from(std::env::var_os("UNIVERSAL_CASES").expect("a folder"));
    let write = |number: usize, case: &Case, texts: &[(&str, String)], source: &str| {
        let words = words(case.body);
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let name = |what: &str| folder.join(format!("{number:02}.{what}"));
        for (what, text) in texts {
            std::fs::write(name(&format!("{what}.ptx")), text).unwrap();
        }
        std::fs::write(name("row"), format!("{}\n{}\n", case.row, case.body)).unwrap();
        std::fs::write(name("from"), bytes(&words)).unwrap();
        std::fs::write(name("expected"), bytes(&run(source, &words).unwrap())).unwrap();
    };
    for (number, case) in CASES.iter().enumerate() {
        let source = module(case);
        let text = |capability| lowered(&source, capability).module.to_string();
        write(number, case, &[("native", text(90)), ("lowered", text(case.capability))], &source);
    }
    for (number, case) in PRODUCTS.iter().enumerate() {
        let source = product_module(case);
        write(CASES.len() + number, case, &[("native", source.clone())], &source);
    }
}

/// Rows whose result differs.
const OF_OTHER_TESTS: [&str; 1] = ["approximate bf16"];

/// A kernel for one result of each thread.
fn converted(instruction: &str) -> Vec<(u32, u32)> {
    let case = case("", "");
    let source =
        module(&case).replace("\n\nret;", &format!("\n{instruction} st.global.b32 [%out], %r1;\nret;"));
    let lowered = lowered(&source, 80);
    assert!(lowered.blocked.is_empty(), "{instruction}: {:?}", lowered.blocked);
    assert!(!lowered.changes.is_empty(), "{source}");
    if let Some(ptxas) = common::Ptxas::find() {
        assert_eq!(
            ptxas.errors(&lowered.module.to_string(), "compute_80"),
            Default::default(),
            "{instruction}"
        );
    }
    let words = words(instruction);
    let results = run(&lowered.module.to_string(), &words).unwrap();
    (0..THREADS).map(|thread| (words[thread * WORDS], results[thread * WORDS])).collect()
}

/// The half-precision bits of a number that they hold exactly.
fn half(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    match value.abs() {
        0.0 => sign,
        value => sign | (((value.to_bits() >> 23) - 112) << 10) | (value.to_bits() >> 13 & 0x3ff),
    }
}

/// A number of `exponent` and `mantissa` bits below its sign.
fn small(bits: u32, exponent: u32, mantissa: u32) -> f32 {
    let bias = (1 << (exponent - 1)) - 1;
    let fraction = (bits & ((1 << mantissa) - 1)) as f32 / (1 << mantissa) as f32;
    let field = bits >> mantissa & ((1 << exponent) - 1);
    let magnitude = match field {
        0 => fraction * 2f32.powi(1 - bias),
        _ => (1.0 + fraction) * 2f32.powi(field as i32 - bias),
    };
    if bits >> (exponent + mantissa) & 1 == 1 { -magnitude } else { magnitude }
}

#[test]
fn floats_of_six_and_four_bits_are_exact() {
    for (name, exponent, mantissa, bits) in [("e3m2x2", 3, 2, 8), ("e2m3x2", 2, 3, 8), ("e2m1x2", 2, 1, 4)] {
        let narrow = match bits {
            4 => "cvt.u32.u8 %r1, %r0; .reg .b8 %b; mov.b16 {%b, _}, %h0;",
            _ => "",
        };
        let source = if bits == 4 { "%b" } else { "%h0" };
        let instruction = format!("cvt.u16.u32 %h0, %r0; {narrow} cvt.rn.f16x2.{name} %r1, {source};");
        for (word, result) in converted(&instruction) {
            let of = |bits: u32| half(small(bits, exponent, mantissa));
            assert_eq!(result, of(word) | of(word >> bits) << 16, "{name} of {word:#x}");
        }
    }
}

#[test]
fn scales_are_powers_of_two() {
    for (word, result) in converted("cvt.u16.u32 %h0, %r0; cvt.rn.bf16x2.ue8m0x2 %r1, %h0;") {
        let of = |byte: u32| match byte & 0xff {
            0 => 0x40,
            0xff => 0x7fff,
            exponent => exponent << 7,
        };
        assert_eq!(result, of(word) | of(word >> 8) << 16, "{word:#x}");
    }
}

#[test]
fn bulk_stores_write_zeros_and_nothing_else() {
    let text = "mov.u32 %r2, memory; st.shared.v2.b32 [%r2+8], {%r0, %r0}; st.shared.v2.b32 [%r2], {%r0, %r0}; \
                bar.sync 0; mov.u64 %d0, 8; st.bulk.weak.shared::cta [%r2], %d0, 0; ld.shared.b32 %r1, [%r2+8]; \
                ld.shared.b32 %r3, [%r2+4]; or.b32 %r3, %r3, 0; setp.ne.u32 %p, %r3, 0; @%p mov.u32 %r1, 77; \
                setp.eq.u32 %q, %r1, 77; @!%q mov.u32 %r1, 5;";
    assert!(converted(text).iter().all(|(_, result)| *result == 5));
}

/// 2^-7, the distance of neighbours in `.bf16`, relative; the ISA allows as much.
#[test]
fn approximate_rows_are_close_and_named() {
    let text = "and.b32 %r0, %r0, 0xbfffffff; cvt.u16.u32 %h0, %r0; tanh.approx.bf16 %h1, %h0; cvt.u32.u16 %r1, %h1;";
    for (word, result) in converted(text) {
        let (x, y) = (f32::from_bits(word << 16), f32::from_bits(result << 16));
        let exact = x.tanh();
        assert!(x.is_nan() || (y - exact).abs() <= exact.abs() / 64.0 + 1e-38, "tanh {x}: {y}, not {exact}");
    }
    let source = module(&case("", "")).replace("\n\nret;", &format!("\n{text}\nret;"));
    let exact = lower(&ptx::parse(&source).unwrap(), Gpu { capability: 80, newest: (9, 0) }, false);
    assert_eq!(exact.blocked.len(), 1);
    assert_eq!(exact.blocked[0].approximate.unwrap().name, "approximate bf16");
}
