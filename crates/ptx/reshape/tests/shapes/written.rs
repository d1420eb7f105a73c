//! Kernels written by hand, as compilers write them: guards inside of predicates, structures as
//! parameters, shapes along z.

use crate::case::{Case, Layout, Shot, Truth};
use cuda_launch::LaunchConfig;

const X: &str =
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, %r2, %r3";

fn lines() -> Vec<Shot> {
    vec![Shot::line(9, 64, 555), Shot::line(9, 64, 555).with_layout(Layout::Pool), Shot::line(4, 100, 400)]
}

fn qualifies(name: &str, body: &str, shots: Vec<Shot>) -> Case {
    Case::new(name, &format!("{X}; {body}"), shots, Truth::Qualifies)
}

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        qualifies("nothing", "", lines()),
        qualifies(
            "predicated_accesses",
            "setp.lt.s32 %p1, %i, %n; mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; \
             mov.f32 %f1, 0f00000000; @%p1 ld.global.f32 %f1, [%q10]; @%p1 st.global.f32 [%q11], %f1",
            lines(),
        ),
        qualifies(
            "interior",
            "setp.lt.s32 %p1, %i, 1; add.s32 %r9, %n, -1; setp.ge.s32 %p2, %i, %r9; or.pred %p3, %p1, %p2; @%p3 bra $X; \
             mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; ld.global.f32 %f1, [%q10+-4]; \
             ld.global.f32 %f2, [%q10+4]; add.f32 %f3, %f1, %f2; st.global.f32 [%q11], %f3",
            lines(),
        ),
        qualifies(
            "generic_addresses",
            "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; add.s64 %q10, %q1, %t; add.s64 %q11, %q0, %t; \
             ld.f32 %f1, [%q10]; abs.f32 %f2, %f1; st.f32 [%q11], %f2",
            lines(),
        ),
        qualifies(
            "reversed",
            "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; ld.global.f32 %f1, [%q10]; \
             not.b32 %r9, %i; add.s32 %r10, %r9, %n; mul.wide.s32 %q12, %r10, 4; add.s64 %q11, %a, %q12; \
             sub.s32 %r11, %n, %i; add.s32 %r12, %r11, -1; mul.wide.s32 %q13, %r12, 4; add.s64 %q14, %a, %q13; \
             st.global.f32 [%q14], %f1",
            lines(),
        ),
        qualifies(
            "in_place_through_two_pointers",
            "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; \
             ld.global.f32 %f1, [%q10]; abs.f32 %f2, %f1; st.global.f32 [%q11], %f2",
            vec![Shot::line(9, 64, 555).with_layout(Layout::InPlace)],
        ),
        qualifies(
            "constant_bound",
            "setp.gt.s32 %p1, %i, 499; @%p1 bra $X; mul.wide.s32 %t, %i, 4; add.s64 %q11, %a, %t; st.global.u32 [%q11], %i",
            vec![Shot::line(8, 64, 0), Shot::line(5, 100, 0)],
        ),
        qualifies(
            "minimal_block",
            "setp.eq.s32 %p1, %i, 0; @!%p1 bra $X; ld.global.f32 %f1, [%b]; st.global.f32 [%a], %f1",
            vec![Shot::line(1, 1, 1), Shot::line(4, 32, 1)],
        ),
        qualifies(
            "row_of_each_thread",
            "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %q20, %i, 12; add.s64 %q21, %a, %q20; mov.u32 %k, 0; $L:; \
             ld.global.f32 %f1, [%q21]; add.f32 %f1, %f1, %f1; st.global.f32 [%q21], %f1; add.s64 %q21, %q21, 4; \
             add.s32 %k, %k, 1; setp.lt.s32 %p7, %k, 3; @%p7 bra $L",
            lines(),
        ),
        qualifies(
            "bound_in_memory",
            "ld.global.u32 %r20, [%c]; shr.u32 %r21, %r20, 24; setp.ge.u32 %p1, %i, %r21; @%p1 bra $X; \
             mul.wide.u32 %t, %i, 4; add.s64 %q11, %a, %t; st.global.u32 [%q11], %r21",
            lines(),
        ),
        qualifies(
            "select_of_two_buffers",
            "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mov.b64 %q12, %b; setp.eq.s32 %p2, %w, 3; @%p2 bra $B; mov.b64 %q12, %c; \
             $B:; mul.wide.s32 %t, %i, 4; add.s64 %q10, %q12, %t; add.s64 %q11, %a, %t; ld.global.f32 %f1, [%q10]; \
             st.global.f32 [%q11], %f1",
            lines(),
        ),
    ];
    cases.push(cycle_with_two_entries());
    cases.push(calling());
    cases.extend(partly_linear());
    cases.extend(volumes());
    cases.push(bounded());
    cases
}

/// A cycle that is entered at two places with different numbers: values in values without end.
/// A function that the compiler did not put in place.
fn calling() -> Case {
    let case = qualifies(
        "pure_call",
        "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; \
         ld.global.u32 %r9, [%q10]; { .param .b32 p; .param .b32 q; st.param.b32 [p], %r9; call.uni (q), f, (p); \
         ld.param.b32 %r10, [q]; }; st.global.u32 [%q11], %r10",
        lines(),
    );
    let function = ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<4>; ld.param.b32 %r1, [a]; \
                    mul.lo.u32 %r1, %r1, 2654435761; st.param.b32 [r], %r1; ret; }";
    Case {
        source: case.source.replacen(".address_size 64", &format!(".address_size 64\n{function}"), 1),
        ..case
    }
}

fn cycle_with_two_entries() -> Case {
    let body = "mov.u32 %r5, %nctaid.x; mul.lo.s32 %r6, %r5, %r2; setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mov.u32 %k, %i; \
                mov.u32 %r20, 0; setp.eq.s32 %p5, %w, 4; @%p5 bra $Q; bra.uni $A; $Q:; add.s32 %k, %i, %r6; bra.uni $B; \
                $A:; add.s32 %r20, %r20, 1; setp.gt.s32 %p6, %r20, 3; @%p6 bra $D; $B:; add.s32 %r20, %r20, 1; \
                setp.lt.s32 %p7, %r20, 5; @%p7 bra $A; $D:; mul.wide.s32 %t, %k, 4; add.s64 %q11, %a, %t; \
                st.global.u32 [%q11], %r20";
    qualifies("cycle_with_two_entries", body, lines())
}

/// A kernel that allows no more than 128 threads in a block.
fn bounded() -> Case {
    let body = "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; add.s64 %q11, %a, %t; st.global.u32 [%q11], %i";
    let mut case = qualifies("maxntid", body, lines());
    case.source = case.source.replace("\n)\n{", "\n)\n.maxntid 128, 1, 1\n{");
    case
}

/// Kernels along three axes.
fn volumes() -> Vec<Case> {
    let index = "mov.u32 %r4, %ctaid.y; mov.u32 %r5, %ntid.y; mov.u32 %r6, %tid.y; mad.lo.s32 %j, %r4, %r5, %r6; \
                 mov.u32 %r7, %ctaid.z; mov.u32 %r8, %ntid.z; mov.u32 %r9, %tid.z; mad.lo.s32 %k, %r7, %r8, %r9";
    let guard = "setp.ge.s32 %p1, %i, %w; setp.ge.s32 %p2, %j, %hh; or.pred %p3, %p1, %p2; setp.ge.s32 %p4, %k, 4; \
                 or.pred %p5, %p3, %p4; @%p5 bra $X";
    let work = "mad.lo.s32 %r10, %k, %hh, %j; mad.lo.s32 %r11, %r10, %w, %i; mul.wide.s32 %t, %r11, 4; \
                add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; ld.global.f32 %f1, [%q10]; neg.f32 %f2, %f1; \
                st.global.f32 [%q11], %f2";
    let shot = |grid: (u32, u32, u32), block: (u32, u32, u32)| Shot {
        config: LaunchConfig::new(grid, block),
        n: 0,
        w: 20,
        h: 12,
        m: 0,
        layout: Layout::Separate,
    };
    let shots = || vec![shot((3, 3, 2), (8, 4, 2)), shot((2, 2, 4), (16, 8, 1)), shot((5, 6, 1), (4, 2, 4))];
    vec![
        qualifies("volume", &format!("{index}; {guard}; {work}"), shots()),
        qualifies("volume_of_slices", &format!("{index}; {guard}; {work}"), vec![shot((3, 3, 4), (8, 4, 1))]),
    ]
}

/// Loads and atomic operations whose addresses are not linear, but known to lie within a buffer,
/// also where all buffers lie in one allocation.
fn partly_linear() -> Vec<Case> {
    let guard = "setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t";
    let all = [
        (
            "inner_points",
            "setp.lt.s32 %p5, %i, 1; @%p5 bra $X; add.s32 %r9, %i, -1; mul.wide.u32 %q20, %r9, 4; add.s64 %q21, %b, %q20; \
             ld.global.f32 %f1, [%q21]; ld.global.f32 %f2, [%q10]; add.f32 %f3, %f1, %f2; st.global.f32 [%q11], %f3",
        ),
        (
            "clamped_neighbours",
            "add.s32 %r9, %i, -1; max.s32 %r10, %r9, 0; mul.wide.s32 %q20, %r10, 4; add.s64 %q21, %b, %q20; \
             add.s32 %r11, %i, 1; add.s32 %r12, %n, -1; min.s32 %r13, %r11, %r12; mul.wide.s32 %q22, %r13, 4; \
             add.s64 %q23, %b, %q22; ld.global.f32 %f1, [%q21]; ld.global.f32 %f2, [%q23]; add.f32 %f3, %f1, %f2; \
             st.global.f32 [%q11], %f3",
        ),
        (
            "histogram_of_bytes",
            "cvt.s64.s32 %q20, %i; add.s64 %q21, %b, %q20; ld.global.u8 %h1, [%q21]; mul.wide.u16 %r9, %h1, 4; \
             cvt.u64.u32 %q22, %r9; add.s64 %q23, %c, %q22; red.global.add.u32 [%q23], 1",
        ),
        (
            "table_by_low_bits",
            "ld.global.u32 %r9, [%q10]; and.b32 %r10, %r9, 127; mul.wide.u32 %q20, %r10, 4; add.s64 %q21, %c, %q20; \
             ld.global.u32 %r11, [%q21]; shr.u32 %r12, %r9, 24; mul.wide.u32 %q22, %r12, 4; add.s64 %q23, %c, %q22; \
             ld.global.u32 %r13, [%q23]; rem.u32 %r14, %r9, 100; mul.wide.u32 %q24, %r14, 4; add.s64 %q25, %c, %q24; \
             ld.global.u32 %r15, [%q25]; add.s32 %r16, %r11, %r13; add.s32 %r17, %r16, %r15; st.global.u32 [%q11], %r17",
        ),
        (
            "byte_as_index",
            "ld.global.u8 %r9, [%q10]; add.s32 %r10, %r9, 7; mul.wide.s32 %q20, %r10, 4; add.s64 %q21, %c, %q20; \
             ld.global.u32 %r11, [%q21]; st.global.u32 [%q11], %r11",
        ),
    ];
    let shots = || lines().into_iter().map(|shot| shot.with_layout(Layout::Pool)).collect();
    all.into_iter().map(|(name, work)| qualifies(name, &format!("{guard}; {work}"), shots())).collect()
}
