//! Kernels that look as if their shape did not matter, in several forms each.

use crate::case::{Case, Layout, Shot, Truth};

const X: &str =
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, %r2, %r3";
const XY: &str = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, %r2, %r3; \
                  mov.u32 %r4, %ctaid.y; mov.u32 %r5, %ntid.y; mov.u32 %r6, %tid.y; mad.lo.s32 %j, %r4, %r5, %r6";
const GUARD: &str = "setp.ge.s32 %p1, %i, %n; @%p1 bra $X";
const ADDRESSES: &str = "mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t";
const COPY: &str = "ld.global.f32 %f1, [%q10]; st.global.f32 [%q11], %f1";

fn lines() -> Vec<Shot> {
    let last = Shot::line(5, 128, 600).with_layout(Layout::Pool);
    vec![Shot::line(9, 64, 555), Shot::line(8, 64, 512), last]
}

fn planes() -> Vec<Shot> {
    vec![
        Shot::plane((3, 3, 1), (16, 8, 1), 37, 21),
        Shot::plane((2, 2, 1), (16, 16, 1), 32, 32),
        Shot::plane((4, 4, 1), (8, 8, 1), 32, 32).with_layout(Layout::Pool),
    ]
}

fn depends(name: &str, body: String, shots: Vec<Shot>) -> Case {
    Case::new(name, &body, shots, Truth::Depends)
}

pub fn cases() -> Vec<Case> {
    let mut cases = indices();
    cases.extend(memory());
    cases.extend(atomics());
    cases.extend(together());
    cases.extend(more_threads());
    cases.extend(planes_that_collide());
    cases.extend(calls());
    cases
}

/// Functions that tell threads apart, and arguments that do.
fn calls() -> Vec<Case> {
    let call = "{ .param .b32 p; .param .b32 q; st.param.b32 [p], %arg; call.uni (q), f, (p); ld.param.b32 %r9, [q]; }";
    let body = |argument: &str| {
        let call = call.replace("%arg", argument);
        format!("{X}; {GUARD}; {ADDRESSES}; {call}; st.global.u32 [%q11], %r9")
    };
    let case = |name: &str, argument: &str, inside: &str| {
        let case = depends(name, body(argument), lines());
        let function = format!(
            ".func (.param .b32 r) f(.param .b32 a) {{ .reg .b32 %r<4>; ld.param.b32 %r1, [a]; {inside} \
             st.param.b32 [r], %r1; ret; }}"
        );
        Case {
            source: case.source.replacen(".address_size 64", &format!(".address_size 64\n{function}"), 1),
            ..case
        }
    };
    vec![
        case("call_reads_thread", "%i", "mov.u32 %r2, %tid.x; add.s32 %r1, %r1, %r2;"),
        case("call_reads_block_size", "%i", "mov.u32 %r2, %ntid.x; xor.b32 %r1, %r1, %r2;"),
        case("call_is_given_block", "%r1", "add.s32 %r1, %r1, 1;"),
        case("call_is_given_thread", "%r3", "add.s32 %r1, %r1, 1;"),
    ]
}

/// The index is not the thread's place in the grid.
fn indices() -> Vec<Case> {
    let with = |index: &str| format!("{index}; {GUARD}; {ADDRESSES}; {COPY}");
    let literal =
        |size: &str| format!("mov.u32 %r1, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, {size}, %r3");
    let store_y = "mad.lo.s32 %r10, %j, %w, %i; mul.wide.s32 %t, %r10, 4; add.s64 %q11, %a, %t; st.global.u32 [%q11], %r10";
    vec![
        depends("literal_block", with(&literal("64")), lines()),
        depends("literal_block_128", with(&literal("128")), vec![Shot::line(5, 128, 600)]),
        depends(
            "literal_shift",
            with("mov.u32 %r1, %ctaid.x; shl.b32 %r2, %r1, 6; mov.u32 %r3, %tid.x; add.s32 %i, %r2, %r3"),
            lines(),
        ),
        depends(
            "literal_or",
            with("mov.u32 %r1, %ctaid.x; shl.b32 %r2, %r1, 6; mov.u32 %r3, %tid.x; or.b32 %i, %r2, %r3"),
            lines(),
        ),
        depends("thread_alone", with("mov.u32 %i, %tid.x"), lines()),
        depends("block_alone", with("mov.u32 %i, %ctaid.x"), lines()),
        depends(
            "size_of_the_grid",
            with(
                "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r3, %r2, %r1",
            ),
            vec![Shot::line(8, 64, 512)],
        ),
        depends(
            "threads_first",
            with(
                "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r3, %r2, %r1",
            ),
            vec![Shot::line(64, 64, 4096)],
        ),
        depends(
            "narrow_index",
            with(
                "mov.u32 %r1, %ctaid.x; cvt.u16.u32 %h1, %r1; mov.u32 %r3, %tid.x; cvt.u16.u32 %h2, %r3; \
                  mov.u32 %r2, %ntid.x; cvt.u16.u32 %h3, %r2; mad.lo.u16 %h4, %h1, %h3, %h2; cvt.u32.u16 %i, %h4",
            ),
            lines(),
        ),
        depends(
            "swapped_axes",
            format!(
                "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, %r2, %r3; \
                     mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.y; mad.lo.s32 %j, %r4, %r5, %r6; {store_y}"
            ),
            planes(),
        ),
        depends(
            "size_of_the_other_axis",
            format!("{}; {store_y}", XY.replace("%ntid.x", "%ntid.y")),
            planes(),
        ),
        depends(
            "flattened_blocks",
            with(
                "mov.u32 %r4, %ctaid.y; mov.u32 %r5, %nctaid.x; mov.u32 %r1, %ctaid.x; mad.lo.s32 %r6, %r4, %r5, %r1; \
                  mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r6, %r2, %r3",
            ),
            vec![Shot::plane((4, 3, 1), (32, 1, 1), 384, 1)],
        ),
        depends(
            "flattened_threads",
            with(
                "mov.u32 %r4, %tid.y; mov.u32 %r5, %ntid.x; mov.u32 %r1, %tid.x; mad.lo.s32 %r6, %r4, %r5, %r1; \
                  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.y; mul.lo.s32 %r7, %r3, %r5; mad.lo.s32 %i, %r2, %r7, %r6",
            ),
            vec![Shot::plane((4, 1, 1), (16, 8, 1), 512, 1)],
        ),
        depends(
            "parity_of_the_block",
            format!(
                "{X}; {GUARD}; and.b32 %r9, %r1, 1; setp.eq.s32 %p5, %r9, 0; @%p5 bra $X; {ADDRESSES}; {COPY}"
            ),
            lines(),
        ),
        depends(
            "first_thread_of_the_block",
            format!("{X}; {GUARD}; setp.ne.s32 %p5, %r3, 0; @%p5 bra $X; {ADDRESSES}; {COPY}"),
            lines(),
        ),
        depends(
            "rounds_by_thread",
            format!(
                "{X}; {GUARD}; mov.u32 %k, 0; mov.f32 %f1, 0f3F800000; $L:; add.f32 %f1, %f1, %f1; add.s32 %k, %k, 1; \
                     setp.lt.s32 %p5, %k, %r3; @%p5 bra $L; {ADDRESSES}; st.global.f32 [%q11], %f1"
            ),
            lines(),
        ),
        depends(
            "stride_of_the_block",
            format!(
                "mov.u32 %i, %tid.x; mov.u32 %r2, %ntid.x; mov.f32 %f9, 0f00000000; $L:; {ADDRESSES}; \
                     ld.global.f32 %f1, [%q10]; add.f32 %f9, %f9, %f1; add.s32 %i, %i, %r2; setp.lt.s32 %p2, %i, %n; \
                     @%p2 bra $L; st.global.f32 [%a], %f9"
            ),
            lines(),
        ),
        depends(
            "total_of_half_the_threads",
            format!(
                "{X}; mov.u32 %r5, %nctaid.x; mul.lo.s32 %r6, %r5, %r2; sub.s32 %r7, %r6, %r2; {GUARD}; {ADDRESSES}; \
                     st.global.u32 [%q11], %r7"
            ),
            lines(),
        ),
        depends(
            "thread_through_local_memory",
            format!(
                ".local .align 4 .b8 store[8]; {X}; {GUARD}; mov.u64 %q33, store; st.local.u32 [%q33], %r3; \
                     ld.local.u32 %r9, [%q33]; {ADDRESSES}; st.global.u32 [%q11], %r9"
            ),
            lines(),
        ),
        depends(
            "thread_through_a_select",
            format!("{X}; {GUARD}; min.u32 %r9, %r3, 50; {ADDRESSES}; st.global.u32 [%q11], %r9"),
            lines(),
        ),
        depends(
            "thread_as_an_offset_in_local_memory",
            format!(
                ".local .align 4 .b8 store[16]; {X}; {GUARD}; mov.u64 %q33, store; st.local.u32 [%q33], 1; \
                     st.local.u32 [%q33+4], 2; and.b32 %r9, %r1, 1; mul.wide.u32 %q34, %r9, 4; add.s64 %q35, %q33, %q34; \
                     ld.local.u32 %r10, [%q35]; {ADDRESSES}; st.global.u32 [%q11], %r10"
            ),
            lines(),
        ),
    ]
}

/// Threads meet in memory.
fn memory() -> Vec<Case> {
    let stencil = |offset: &str| {
        format!(
            "{X}; {GUARD}; {ADDRESSES}; ld.global.f32 %f1, [%q11]; ld.global.f32 %f2, [%q11+{offset}]; \
                 add.f32 %f3, %f1, %f2; st.global.f32 [%q11], %f3"
        )
    };
    let index = "ld.global.u32 %r30, [%q10]; and.b32 %r31, %r30, 63; mul.wide.u32 %q30, %r31, 4";
    let shifted = vec![
        Shot::line(9, 64, 555).with_layout(Layout::Shifted),
        Shot::line(8, 64, 512).with_layout(Layout::Shifted),
    ];
    vec![
        depends("stencil_in_place", stencil("4"), lines()),
        depends("stencil_in_place_far", stencil("256"), lines()),
        depends(
            "stencil_in_place_half",
            stencil("2").replace("ld.global.f32 %f2", "ld.global.u16 %h2"),
            lines(),
        ),
        depends(
            "scatter",
            format!("{X}; {GUARD}; {ADDRESSES}; {index}; add.s64 %q31, %a, %q30; st.global.u32 [%q31], %i"),
            lines(),
        ),
        depends(
            "scatter_through_local_memory",
            format!(
                ".local .align 8 .b8 store[8]; {X}; {GUARD}; {ADDRESSES}; {index}; mov.u64 %q33, store; st.local.u64 [%q33], %q30; \
                     ld.local.u64 %q34, [%q33]; add.s64 %q31, %a, %q34; st.global.u32 [%q31], %i"
            ),
            lines(),
        ),
        depends(
            "gather_in_place",
            format!(
                "{X}; {GUARD}; {ADDRESSES}; {index}; add.s64 %q31, %a, %q30; ld.global.f32 %f1, [%q31]; \
                     add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%q11], %f2"
            ),
            lines(),
        ),
        depends("shifted_by_one", format!("{X}; {GUARD}; {ADDRESSES}; {COPY}"), shifted.clone()),
        depends(
            "shifted_predicated",
            format!(
                "{X}; setp.lt.s32 %p1, %i, %n; {ADDRESSES}; mov.f32 %f1, 0f00000000; @%p1 ld.global.f32 %f1, [%q10]; \
                     @%p1 st.global.f32 [%q11], %f1"
            ),
            shifted,
        ),
        depends("one_address", format!("{X}; {GUARD}; st.global.u32 [%a], %i"), lines()),
        depends(
            "halved_address",
            format!(
                "{X}; {GUARD}; shr.u32 %r9, %i, 1; mul.wide.u32 %t, %r9, 4; add.s64 %q11, %a, %t; st.global.u32 [%q11], %i"
            ),
            lines(),
        ),
        depends(
            "masked_address",
            format!(
                "{X}; {GUARD}; and.b32 %r9, %i, 15; mul.wide.u32 %t, %r9, 4; add.s64 %q11, %a, %t; st.global.u32 [%q11], %i"
            ),
            lines(),
        ),
        depends(
            "squared_address",
            format!(
                "{X}; {GUARD}; mul.lo.s32 %r9, %i, %i; and.b32 %r10, %r9, 255; mul.wide.u32 %t, %r10, 4; add.s64 %q11, %a, %t; st.global.u32 [%q11], %i"
            ),
            lines(),
        ),
        depends(
            "two_stores",
            format!("{X}; {GUARD}; {ADDRESSES}; st.global.u32 [%q11], %i; st.global.u32 [%q11+4], %i"),
            lines(),
        ),
        depends(
            "wide_store",
            format!(
                "{X}; {GUARD}; mul.wide.s32 %t, %i, 8; add.s64 %q11, %a, %t; mov.u32 %r9, 7; \
            st.global.v4.u32 [%q11], {{%i, %r9, %i, %n}}"
            ),
            lines(),
        ),
        depends(
            "narrow_stride",
            format!(
                "{X}; {GUARD}; mul.wide.s32 %t, %i, 2; add.s64 %q11, %a, %t; st.global.u16 [%q11], 3; \
            and.b32 %r9, %i, 1; setp.eq.s32 %p2, %r9, 1; @%p2 bra $X; ld.global.u32 %r10, [%q11]; st.global.u32 [%q11], %i"
            ),
            lines(),
        ),
        depends(
            "forth_and_back",
            format!(
                "{X}; {GUARD}; {ADDRESSES}; st.global.u32 [%q11], %i; sub.s32 %r9, %n, %i; \
            add.s32 %r10, %r9, -1; mul.wide.s32 %q12, %r10, 4; add.s64 %q13, %a, %q12; st.global.u32 [%q13], %r10"
            ),
            lines(),
        ),
        depends(
            "reversed_in_place",
            format!(
                "{X}; {GUARD}; {ADDRESSES}; sub.s32 %r9, %n, %i; add.s32 %r10, %r9, -1; \
            mul.wide.s32 %q12, %r10, 4; add.s64 %q13, %a, %q12; ld.global.u32 %r11, [%q13]; st.global.u32 [%q11], %r11"
            ),
            lines(),
        ),
        depends(
            "pointer_in_memory",
            format!(
                "{X}; {GUARD}; {ADDRESSES}; st.global.u64 [%c], %a; ld.global.u64 %q20, [%c]; \
            mul.wide.s32 %q21, %i, 4; add.s64 %q22, %q20, %q21; st.global.u32 [%q22], %r3"
            ),
            lines(),
        ),
        depends(
            "read_through_a_pointer_in_memory",
            format!(
                "{X}; {GUARD}; {ADDRESSES}; ld.global.u64 %q20, [%c]; add.s64 %q21, %q20, %t; ld.global.f32 %f1, [%q21]; \
                     st.global.f32 [%q11], %f1"
            ),
            lines(),
        ),
        depends(
            "stored_through_a_pointer_in_memory",
            format!(
                "{X}; {GUARD}; {ADDRESSES}; ld.global.u64 %q20, [%c]; add.s64 %q21, %q20, %t; st.global.u32 [%q21], %i"
            ),
            lines(),
        ),
        depends(
            "address_of_local_memory",
            format!(
                ".local .align 8 .b8 store[8]; {X}; {GUARD}; mul.wide.s32 %t, %i, 8; add.s64 %q11, %a, %t; mov.u64 %q33, store; \
                     cvta.local.u64 %q34, %q33; st.global.u64 [%q11], %q34"
            ),
            lines(),
        ),
        depends(
            "overlapping_rows",
            format!(
                "{X}; {GUARD}; mul.wide.s32 %q20, %i, 4; add.s64 %q21, %a, %q20; mov.u32 %k, 0; $L:; \
            st.global.u32 [%q21], %i; add.s64 %q21, %q21, 4; add.s32 %k, %k, 1; setp.lt.s32 %p7, %k, 3; @%p7 bra $L"
            ),
            lines(),
        ),
        depends(
            "stride_short_of_the_total",
            format!(
                "{X}; mov.u32 %r5, %nctaid.x; mul.lo.s32 %r6, %r5, %r2; add.s32 %r6, %r6, -1; {GUARD}; \
            $L:; {ADDRESSES}; st.global.u32 [%q11], %r6; add.s32 %i, %i, %r6; setp.lt.s32 %p2, %i, %n; @%p2 bra $L"
            ),
            vec![Shot::line(3, 64, 700)],
        ),
    ]
}

/// The order of atomic operations shows.
fn atomics() -> Vec<Case> {
    let with = |work: &str| {
        format!(
            "{XY}; mad.lo.s32 %r10, %j, %w, %i; mul.wide.s32 %t, %r10, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; {work}"
        )
    };
    let shots =
        || vec![Shot::plane((4, 4, 1), (8, 8, 1), 32, 32), Shot::plane((2, 4, 1), (16, 8, 1), 32, 32)];
    let all = [
        (
            "slot",
            "atom.global.add.u32 %r20, [%c], 1; and.b32 %r21, %r20, 1023; mul.wide.u32 %q20, %r21, 4; add.s64 %q21, %a, %q20; st.global.u32 [%q21], %r10",
        ),
        ("ticket", "atom.global.add.u32 %r20, [%c], 1; st.global.u32 [%q11], %r20"),
        (
            "ticket_in_a_branch",
            "atom.global.add.u32 %r20, [%c], 1; and.b32 %r21, %r20, 1; setp.eq.s32 %p5, %r21, 0; @%p5 bra $X; st.global.u32 [%q11], 5",
        ),
        ("float_sum", "ld.global.f32 %f1, [%q10]; red.global.add.f32 [%c], %f1"),
        ("exchange", "atom.global.exch.b32 %r20, [%c], %r10"),
        ("compare_and_swap", "atom.global.cas.b32 %r20, [%c], %r10, %i"),
        ("increment", "atom.global.inc.u32 %r20, [%c], 100; st.global.u32 [%q11], %r20"),
        (
            "sum_and_maximum",
            "red.global.add.u32 [%c], %r10; red.global.max.u32 [%c], 0x7fffffff; red.global.max.u32 [%c], %r10",
        ),
        ("sum_and_load", "red.global.add.u32 [%c], 1; ld.global.u32 %r20, [%c]; st.global.u32 [%q11], %r20"),
        (
            "sum_and_store",
            "red.global.add.u32 [%c], 1; setp.ne.s32 %p5, %r10, 200; @%p5 bra $X; st.global.u32 [%c], 7",
        ),
        (
            "result_by_register",
            "mov.u32 %r20, 3; mov.u32 %k, 0; $L:; atom.global.add.u32 %r20, [%c], %r20; add.s32 %k, %k, 1; \
          setp.lt.s32 %p5, %k, 2; @%p5 bra $L",
        ),
    ];
    all.into_iter().map(|(name, work)| depends(name, with(work), shots())).collect()
}

/// Threads of a block or warp work together.
fn together() -> Vec<Case> {
    let with = |work: &str| {
        format!("{X}; {ADDRESSES}; ld.global.u32 %r20, [%q10]; {work}; st.global.u32 [%q11], %r21")
    };
    let all = [
        ("barrier", "bar.sync 0; mov.u32 %r21, %r20"),
        ("barrier_of_a_warp", "bar.warp.sync -1; mov.u32 %r21, %r20"),
        ("shuffle_down", "shfl.sync.down.b32 %r21|%p5, %r20, 1, 31, -1"),
        ("vote", "setp.gt.s32 %p5, %r20, 0; vote.sync.any.pred %p6, %p5, -1; selp.u32 %r21, 1, 0, %p6"),
        ("active_lanes", "activemask.b32 %r21"),
        ("match", "match.any.sync.b32 %r21, %r20, -1"),
        ("warp_number", "mov.u32 %r21, %warpid"),
        ("lane_number", "mov.u32 %r21, %laneid"),
        ("lane_mask", "mov.u32 %r21, %lanemask_lt"),
        ("multiprocessor", "mov.u32 %r21, %smid"),
        ("clock", "mov.u32 %r21, %clock"),
        ("timer", "mov.u64 %q20, %globaltimer; cvt.u32.u64 %r21, %q20"),
        ("grid_number", "mov.u64 %q20, %gridid; cvt.u32.u64 %r21, %q20"),
        ("shared_bytes", "mov.u32 %r21, %dynamic_smem_size"),
        ("volatile", "ld.volatile.global.u32 %r21, [%q10]"),
        ("relaxed", "ld.relaxed.gpu.global.u32 %r21, [%q10]"),
        ("fence", "membar.gl; mov.u32 %r21, %r20"),
        ("trap", "setp.eq.s32 %p5, %r20, 12; @%p5 trap; mov.u32 %r21, %r20"),
        ("undefined", "add.s32 %r21, %r22, 1"),
        (
            "shared",
            ".shared .align 4 .b8 memory[4096]; mov.u32 %r22, memory; shl.b32 %r23, %r3, 2; add.s32 %r24, %r22, %r23; \
          st.shared.u32 [%r24], %r20; bar.sync 0; xor.b32 %r25, %r3, 1; shl.b32 %r26, %r25, 2; add.s32 %r27, %r22, %r26; \
          ld.shared.u32 %r21, [%r27]",
        ),
        (
            "shared_without_barrier",
            ".shared .align 4 .b8 memory[4096]; mov.u32 %r22, memory; st.shared.u32 [%r22], %r20; \
          ld.shared.u32 %r21, [%r22]",
        ),
    ];
    let mut cases: Vec<Case> =
        all.into_iter().map(|(name, work)| depends(name, with(work), vec![Shot::line(8, 64, 512)])).collect();
    for directive in [".reqntid 64, 1, 1", ".reqntid 64"] {
        let mut case = depends("required_block", with("mov.u32 %r21, %r20"), vec![Shot::line(8, 64, 512)]);
        case.source = case.source.replace("\n)\n{", &format!("\n)\n{directive}\n{{"));
        cases.push(case);
    }
    cases
}

/// More threads would do more. The blocks of these launches cannot be divided otherwise, so each
/// other shape has more threads or is refused for another reason.
fn more_threads() -> Vec<Case> {
    let prime = |n: u32| vec![Shot::line(1, 31, n), Shot::line(1, 37, n)];
    let store = "st.global.u32 [%q11], %i";
    let guard = |guard: &str| format!("{X}; {guard}; {ADDRESSES}; {store}");
    let rest = |name: &str, body: String, shots: Vec<Shot>| Case::new(name, &body, shots, Truth::Qualifies);
    let total = "mov.u32 %r5, %nctaid.x; mul.lo.s32 %r6, %r5, %r2";
    // The same threads one by one are fine in each of them.
    vec![
        rest("unguarded", guard(""), prime(31)),
        rest("n_above_the_threads", guard(GUARD), prime(600)),
        rest("n_above_the_threads_unsigned", guard("setp.ge.u32 %p1, %i, %n; @%p1 bra $X"), prime(600)),
        rest(
            "n_above_the_threads_wide",
            guard("cvt.u64.u32 %l, %i; setp.ge.u64 %p1, %l, %m; @%p1 bra $X"),
            prime(600),
        ),
        rest("negative_n_as_unsigned", guard("setp.ge.u32 %p1, %i, %n; @%p1 bra $X"), prime(u32::MAX)),
        rest("guard_by_inequality", guard("setp.eq.s32 %p1, %i, %n; @%p1 bra $X"), prime(31)),
        rest("guard_the_wrong_way", guard("setp.lt.s32 %p1, %i, %n; @%p1 bra $X"), prime(5)),
        rest(
            "guard_of_another_axis",
            format!("{XY}; setp.ge.s32 %p1, %j, %n; @%p1 bra $X; {ADDRESSES}; {store}"),
            prime(31),
        ),
        rest(
            "guard_by_one_of_two",
            guard("setp.ge.s32 %p1, %i, %n; setp.ne.s32 %p2, %w, 4; and.pred %p3, %p1, %p2; @%p3 bra $X"),
            vec![Shot { w: 4, ..Shot::line(1, 31, 31) }],
        ),
        rest(
            "guard_after_the_store",
            format!("{X}; {ADDRESSES}; {store}; {GUARD}; st.global.u32 [%q11], %n"),
            prime(31),
        ),
        rest(
            "guard_of_a_shifted_index",
            guard("add.s32 %r9, %i, -40; setp.ge.s32 %p1, %r9, %n; @%p1 bra $X"),
            prime(20),
        ),
        rest(
            "guard_loaded",
            guard("ld.global.u32 %r9, [%c]; shr.u32 %r10, %r9, 20; setp.ge.u32 %p1, %i, %r10; @%p1 bra $X"),
            prime(31),
        ),
        rest(
            "guarded_store_only",
            format!(
                "{X}; {ADDRESSES}; ld.global.u32 %r9, [%q10]; red.global.add.u32 [%c], %r9; {GUARD}; {store}"
            ),
            prime(31),
        ),
        rest(
            "total_in_a_value",
            format!("{X}; {total}; {GUARD}; {ADDRESSES}; st.global.u32 [%q11], %r6"),
            prime(31),
        ),
        rest(
            "total_as_a_stride",
            format!(
                "{X}; {total}; mul.wide.s32 %q12, %i, 4; add.s64 %q13, %a, %q12; mov.f32 %f9, 0f00000000; \
            {GUARD}; $L:; {ADDRESSES}; ld.global.f32 %f1, [%q10]; add.f32 %f9, %f9, %f1; add.s32 %i, %i, %r6; \
            setp.lt.s32 %p2, %i, 400; @%p2 bra $L; st.global.f32 [%q13], %f9"
            ),
            prime(31),
        ),
        rest(
            "atomics_of_all",
            format!("{X}; red.global.add.u32 [%c], 1; {GUARD}; {ADDRESSES}; {store}"),
            prime(31),
        ),
    ]
}

/// Rows or axes that collide.
fn planes_that_collide() -> Vec<Case> {
    let pitch = "cvt.s64.s32 %q3, %j; mul.lo.s64 %q5, %q3, %m; cvt.s64.s32 %q6, %i; add.s64 %q7, %q5, %q6; shl.b64 %t, %q7, 2; \
                 add.s64 %q11, %a, %t; mad.lo.s32 %r10, %j, 1000, %i; st.global.u32 [%q11], %r10";
    let guard = "setp.ge.s32 %p1, %i, %w; setp.ge.s32 %p2, %j, %hh; or.pred %p3, %p1, %p2; @%p3 bra $X";
    let short = |m: u64| planes().into_iter().map(|shot| Shot { m, ..shot }).collect::<Vec<_>>();
    let row = "mul.wide.s32 %t, %i, 4; add.s64 %q11, %a, %t";
    vec![
        depends("rows_overlap", format!("{XY}; {guard}; {pitch}"), short(20)),
        depends("rows_coincide", format!("{XY}; {guard}; {pitch}"), short(0)),
        depends("rows_overlap_unguarded", format!("{XY}; {pitch}"), short(31)),
        depends("rows_backwards", format!("{XY}; {guard}; {pitch}"), short(u64::MAX)),
        depends("y_unused", format!("{XY}; {guard}; {row}; st.global.u32 [%q11], %j"), planes()),
        depends(
            "x_and_y_added",
            format!("{XY}; {guard}; add.s32 %i, %i, %j; {row}; st.global.u32 [%q11], %j"),
            planes(),
        ),
        depends(
            "width_of_the_wrong_axis",
            format!("{XY}; {guard}; mad.lo.s32 %i, %j, %hh, %i; {row}; st.global.u32 [%q11], %j"),
            vec![Shot::plane((3, 3, 1), (16, 8, 1), 37, 21)],
        ),
    ]
}
