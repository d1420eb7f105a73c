//! Kernels put together at random: a way to compute the index, a guard, and work. All of them
//! qualify unless an odd part is put in.

use crate::case::{Case, Layout, Shot, Truth};
use apex_random::Random;

/// The index of a thread in a register.
#[derive(Clone, Copy)]
struct Index {
    code: &'static str,
    /// Whether it is in the 64-bit `%l`, else in `%i`.
    is_wide: bool,
    signed: bool,
}

/// The ways in which compilers compute `blockIdx.x * blockDim.x + threadIdx.x`.
const INDICES: [Index; 8] = [
    // nvcc, NVRTC.
    Index {
        code: "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, %r2, %r3",
        is_wide: false,
        signed: true,
    },
    Index {
        code: "mov.u32 %r1, %ntid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r2, %r1, %r3",
        is_wide: false,
        signed: false,
    },
    Index {
        code: "mov.u32 %r3, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %ctaid.x; mul.lo.s32 %r4, %r1, %r2; \
               add.s32 %i, %r4, %r3",
        is_wide: false,
        signed: true,
    },
    Index {
        code: "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mul.lo.u32 %r4, %r1, %r2; \
               add.u32 %i, %r3, %r4",
        is_wide: false,
        signed: false,
    },
    // An index of 64 bits: CuPy's loops, numba, `size_t i`.
    Index {
        code: "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3; \
               cvt.u64.u32 %l, %r4",
        is_wide: true,
        signed: false,
    },
    Index {
        code: "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mul.wide.u32 %q3, %r3, %r2; \
               cvt.u64.u32 %q4, %r1; add.s64 %l, %q3, %q4",
        is_wide: true,
        signed: true,
    },
    Index {
        code: "mov.u32 %r1, %tid.x; cvt.s64.s32 %q4, %r1; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x; \
               cvt.u64.u32 %q5, %r2; cvt.u64.u32 %q6, %r3; mul.lo.s64 %q7, %q6, %q5; add.s64 %l, %q7, %q4",
        is_wide: true,
        signed: true,
    },
    Index {
        code: "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mul.lo.s32 %r3, %r1, %r2; cvt.u64.u32 %q3, %r3; \
               mov.u32 %r4, %tid.x; cvt.u64.u32 %q4, %r4; add.s64 %l, %q3, %q4",
        is_wide: true,
        signed: false,
    },
];

impl Index {
    /// The address of an element in a buffer.
    fn at(self, to: &str, base: &str, size: u32) -> String {
        self.shifted(to, base, size, 0)
    }

    /// The address of the element this many bytes away from the thread's.
    fn shifted(self, to: &str, base: &str, size: u32, _away: i32) -> String {
        match (self.is_wide, self.signed) {
            (true, _) => format!("mul.lo.s64 %t, %l, {size}; add.s64 {to}, {base}, %t"),
            (false, true) => format!("mul.wide.s32 %t, %i, {size}; add.s64 {to}, {base}, %t"),
            (false, false) => format!("mul.wide.u32 %t, %i, {size}; add.s64 {to}, {base}, %t"),
        }
    }

    /// The index in 32 bits, in `%j`.
    fn narrow(self) -> &'static str {
        if self.is_wide { "cvt.u32.u64 %j, %l" } else { "mov.u32 %j, %i" }
    }

    /// A guard that leaves the kernel unless the index is below n.
    fn guard(self, random: &mut Random) -> String {
        let ty = if self.signed { "s" } else { "u" };
        if self.is_wide {
            let widened = format!("cvt.{ty}64.{ty}32 %q9, %n; setp.ge.{ty}64 %p1, %l, %q9; @%p1 bra $X");
            let direct = format!("setp.lt.{ty}64 %p1, %l, %m; @%p1 bra $GO; bra.uni $X; $GO:");
            let left = format!("setp.le.{ty}64 %p1, %m, %l; @%p1 ret");
            return random.choose(&[&widened, &direct, &left]).clone();
        }
        let forms = [
            format!("setp.ge.{ty}32 %p1, %i, %n; @%p1 bra $X"),
            format!("setp.lt.{ty}32 %p1, %i, %n; @!%p1 bra $X"),
            format!("setp.gt.{ty}32 %p1, %n, %i; @!%p1 ret"),
            format!("setp.le.{ty}32 %p1, %n, %i; @%p1 bra.uni $X"),
            format!("add.{ty}32 %r9, %n, -1; setp.gt.{ty}32 %p1, %i, %r9; @%p1 bra $X"),
            format!(
                "setp.ge.{ty}32 %p1, %i, %n; setp.eq.s32 %p2, %w, 12345; or.pred %p3, %p1, %p2; @%p3 bra $X"
            ),
            format!("setp.lt.{ty}32 %p1, %i, %n; not.pred %p2, %p1; @%p2 bra $X"),
        ];
        random.choose(&forms.each_ref()).clone()
    }
}

/// Work of one thread along x, given its index.
const WORK: usize = 24;

fn work(which: usize, index: Index, random: &mut Random) -> (&'static str, String) {
    let at = |to, base, size| index.at(to, base, size);
    let both = format!("{}; {}", at("%q10", "%b", 4), at("%q11", "%a", 4));
    let sum = "ld.global.f32 %f1, [%q10]; ld.global.f32 %f2, [%q12]; fma.rn.f32 %f3, %f1, 0f40200000, %f2; \
               st.global.f32 [%q11], %f3";
    match which {
        0 => (
            "map",
            format!("{both}; ld.global.f32 %f1, [%q10]; mul.f32 %f2, %f1, %f1; st.global.f32 [%q11], %f2"),
        ),
        1 => ("add", format!("{both}; {}; {sum}", at("%q12", "%c", 4))),
        2 => (
            "update",
            format!(
                "{both}; ld.global.f32 %f1, [%q11]; ld.global.nc.f32 %f2, [%q10]; add.f32 %f3, %f1, %f2; \
                     st.global.f32 [%q11], %f3"
            ),
        ),
        3 => (
            "double",
            format!(
                "{}; {}; ld.global.f64 %fd1, [%q10]; sqrt.rn.f64 %fd2, %fd1; st.global.f64 [%q11], %fd2",
                at("%q10", "%b", 8),
                at("%q11", "%a", 8)
            ),
        ),
        4 => (
            "bytes",
            format!(
                "{}; {}; ld.global.u8 %h1, [%q10]; add.s16 %h2, %h1, 3; st.global.u8 [%q11], %h2",
                at("%q10", "%b", 1),
                at("%q11", "%a", 1)
            ),
        ),
        5 => (
            "halves",
            format!(
                "{}; {}; ld.global.u16 %h1, [%q10]; not.b16 %h2, %h1; st.global.u16 [%q11], %h2",
                at("%q10", "%b", 2),
                at("%q11", "%a", 2)
            ),
        ),
        6 => (
            "vector",
            format!(
                "{}; {}; ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%q10]; add.f32 %f5, %f1, %f4; \
                     st.global.v4.f32 [%q11], {{%f5, %f2, %f3, %f1}}",
                at("%q10", "%b", 16),
                at("%q11", "%a", 16)
            ),
        ),
        7 => (
            "pairs",
            format!(
                "{}; {}; ld.global.v2.f32 {{%f1, %f2}}, [%q10]; st.global.f32 [%q11], %f2; \
                     st.global.f32 [%q11+4], %f1",
                at("%q10", "%b", 8),
                at("%q11", "%a", 8)
            ),
        ),
        8 => (
            "branches",
            format!(
                "{both}; ld.global.f32 %f1, [%q10]; setp.gt.f32 %p5, %f1, 0f00000000; @%p5 bra $P; \
                     neg.f32 %f2, %f1; st.global.f32 [%q11], %f2; bra.uni $X; $P:; st.global.f32 [%q11], %f1"
            ),
        ),
        9 => (
            "sometimes",
            format!(
                "{both}; ld.global.f32 %f1, [%q10]; setp.gt.f32 %p5, %f1, 0f00000000; @%p5 st.global.f32 [%q11], %f1"
            ),
        ),
        10 => (
            "two_outputs",
            format!(
                "{both}; {}; ld.global.f32 %f1, [%q10]; sin.approx.f32 %f2, %f1; cos.approx.f32 %f3, %f1; \
                     st.global.f32 [%q11], %f2; st.global.f32 [%q12], %f3",
                at("%q12", "%c", 4)
            ),
        ),
        11 => (
            "rows",
            format!(
                "{}; {}; mul.lo.s32 %r20, %j, %w; mul.wide.s32 %q20, %r20, 4; add.s64 %q21, %b, %q20; \
                     mov.f32 %f9, 0f00000000; mov.u32 %k, 0; setp.lt.s32 %p6, %w, 1; @%p6 bra $D; $L:; \
                     ld.global.f32 %f1, [%q21]; add.f32 %f9, %f9, %f1; add.s64 %q21, %q21, 4; add.s32 %k, %k, 1; \
                     setp.lt.s32 %p7, %k, %w; @%p7 bra $L; $D:; st.global.f32 [%q11], %f9",
                index.narrow(),
                at("%q11", "%a", 4)
            ),
        ),
        12 => (
            "columns",
            format!(
                "{both}; mul.wide.s32 %q22, %n, 4; mov.u32 %k, 0; $L:; ld.global.f32 %f1, [%q10]; \
                     add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%q11], %f2; add.s64 %q10, %q10, %q22; \
                     add.s64 %q11, %q11, %q22; add.s32 %k, %k, 1; setp.lt.s32 %p7, %k, 3; @%p7 bra $L"
            ),
        ),
        13 => (
            "gather",
            format!(
                "{both}; ld.global.u32 %r30, [%q10]; and.b32 %r31, %r30, 63; mul.wide.u32 %q30, %r31, 4; \
                     add.s64 %q31, %c, %q30; ld.global.f32 %f1, [%q31]; st.global.f32 [%q11], %f1"
            ),
        ),
        14 => (
            "histogram",
            format!(
                "{both}; ld.global.u32 %r30, [%q10]; and.b32 %r31, %r30, 31; mul.wide.u32 %q30, %r31, 4; \
                     add.s64 %q31, %c, %q30; red.global.add.u32 [%q31], 1"
            ),
        ),
        15 => ("count", format!("{both}; ld.global.u32 %r30, [%q10]; atom.global.add.u32 %r40, [%c], %r30")),
        16 => (
            "extremes",
            format!(
                "{both}; ld.global.s32 %r30, [%q10]; red.global.max.s32 [%c], %r30; red.global.min.s32 [%c+4], %r30"
            ),
        ),
        17 => (
            "neighbours",
            format!(
                "{both}; ld.global.f32 %f1, [%q10]; ld.global.f32 %f2, [%q10+4]; sub.f32 %f3, %f2, %f1; \
                     st.global.f32 [%q11], %f3"
            ),
        ),
        18 => (
            "local",
            format!(
                "{both}; ld.global.f32 %f1, [%q10]; mov.u64 %q33, store; st.local.f32 [%q33+8], %f1; \
                     and.b32 %r30, %n, 4; cvt.u64.u32 %q34, %r30; add.s64 %q35, %q33, %q34; \
                     st.local.f32 [%q33+4], 0f40000000; st.local.f32 [%q33], 0f40400000; \
                     ld.local.f32 %f2, [%q35]; add.f32 %f3, %f1, %f2; st.global.f32 [%q11], %f3"
            ),
        ),
        19 => (
            "index_value",
            format!(
                "{}; {both}; cvt.rn.f32.s32 %f1, %j; ld.global.f32 %f2, [%q10]; fma.rn.f32 %f3, %f1, %f2, %f1; \
                     st.global.f32 [%q11], %f3",
                index.narrow()
            ),
        ),
        20 => (
            "hash",
            format!(
                "{}; {}; mul.lo.s32 %r30, %j, -1640531527; shr.u32 %r31, %r30, 15; xor.b32 %r32, %r30, %r31; \
                     rem.u32 %r33, %r32, 1000; st.global.u32 [%q11], %r33",
                index.narrow(),
                at("%q11", "%a", 4)
            ),
        ),
        21 => (
            "strided",
            format!(
                "{}; {}; ld.global.f32 %f1, [%q10]; st.global.f32 [%q11+8], %f1",
                at("%q10", "%b", 4),
                at("%q11", "%a", 12)
            ),
        ),
        22 => (
            "flag",
            format!(
                "{both}; {}; ld.global.f32 %f1, [%q10]; st.global.f32 [%q11], %f1; setp.ne.s32 %p5, %j, 0; \
                     @%p5 bra $X; st.global.f32 [%c], 0f42280000",
                index.narrow()
            ),
        ),
        _ => {
            let rounds = 2 + random.below(4);
            (
                "iterate",
                format!(
                    "{both}; ld.global.f32 %f1, [%q10]; mov.u32 %k, {rounds}; $L:; \
                     fma.rn.f32 %f1, %f1, 0f3F000000, 0f3E800000; add.s32 %k, %k, -1; setp.ne.s32 %p7, %k, 0; \
                     @%p7 bra $L; st.global.f32 [%q11], %f1"
                ),
            )
        }
    }
}

/// Launches along x whose threads cover n, and one that covers part of it.
fn lines(random: &mut Random, exact_too: bool) -> Vec<Shot> {
    let threads = random.choose(&[32u32, 48, 64, 96, 100, 128, 256]);
    let n = 300 + random.below(500) as u32;
    let mut shots = vec![Shot::line(n.div_ceil(threads), threads, n)];
    shots.push(Shot::line(n.div_ceil(threads) + 1, threads, n).with_layout(Layout::Pool));
    if exact_too {
        // The threads do not suffice: additional ones would work.
        shots.push(Shot::line(6, 64, 900));
    }
    shots
}

/// Kernels along x.
fn along_x(random: &mut Random, cases: &mut Vec<Case>) {
    for which in 0..WORK {
        for round in 0..7 {
            let index = INDICES[(which + 3 * round) % INDICES.len()];
            let (name, work) = work(which, index, random);
            let guard = if round == 6 { String::new() } else { index.guard(random) };
            let local = if name == "local" { ".local .align 4 .b8 store[16]" } else { "" };
            let mut shots = lines(random, round % 3 == 0 && which != 12);
            if round == 6 {
                // Without a guard, the threads are n.
                shots = vec![Shot::line(8, 48, 384), Shot::line(3, 128, 384)];
            }
            let body = format!("{local}; {}; {guard}; {work}", index.code);
            cases.push(Case::new(format!("{name}_{round}"), &body, shots, Truth::Qualifies));
        }
    }
}

/// Loops over all elements by as many threads as there are.
fn grid_strides(random: &mut Random, cases: &mut Vec<Case>) {
    let start = INDICES[0].code;
    let total = "mov.u32 %r5, %nctaid.x; mul.lo.s32 %r6, %r5, %r2";
    let wide_total = "mov.u32 %r5, %nctaid.x; mul.wide.u32 %q6, %r5, %r2";
    let once = "mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; ld.global.f32 %f1, [%q10]; \
                mul.f32 %f2, %f1, 0f40400000; st.global.f32 [%q11], %f2";
    let once_wide = "shl.b64 %t, %l, 2; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t; ld.global.f32 %f1, [%q10]; \
                     mul.f32 %f2, %f1, 0f40400000; st.global.f32 [%q11], %f2";
    let sum =
        "mul.wide.s32 %t, %i, 4; add.s64 %q10, %b, %t; ld.global.f32 %f1, [%q10]; add.f32 %f9, %f9, %f1";
    let bodies = [
        (
            "stride_rotated",
            format!(
                "{start}; {total}; setp.ge.s32 %p1, %i, %n; @%p1 bra $X; $L:; {once}; \
            add.s32 %i, %i, %r6; setp.lt.s32 %p2, %i, %n; @%p2 bra $L"
            ),
        ),
        (
            "stride_while",
            format!(
                "{start}; {total}; $L:; setp.ge.s32 %p1, %i, %n; @%p1 bra $X; {once}; \
            add.s32 %i, %i, %r6; bra.uni $L"
            ),
        ),
        (
            "stride_wide",
            format!(
                "{start}; cvt.u64.u32 %l, %i; {wide_total}; setp.ge.u64 %p1, %l, %m; @%p1 bra $X; $L:; \
            {once_wide}; add.s64 %l, %l, %q6; setp.lt.u64 %p2, %l, %m; @%p2 bra $L"
            ),
        ),
        (
            "stride_cupy",
            format!(
                "{start}; cvt.u64.u32 %l, %i; {total}; cvt.u64.u32 %q6, %r6; $L:; \
            setp.ge.u64 %p1, %l, %m; @%p1 bra $X; {once_wide}; add.s64 %l, %l, %q6; bra.uni $L"
            ),
        ),
        (
            "partial_sums",
            format!(
                "{start}; {total}; mov.f32 %f9, 0f00000000; mul.wide.s32 %t, %i, 4; add.s64 %q12, %a, %t; \
            setp.ge.s32 %p1, %i, %n; @%p1 bra $D; $L:; {sum}; add.s32 %i, %i, %r6; setp.lt.s32 %p2, %i, %n; \
            @%p2 bra $L; $D:; st.global.f32 [%q12], %f9"
            ),
        ),
        (
            "unrolled",
            format!(
                "{start}; {total}; shl.b32 %r7, %r6, 1; mul.wide.s32 %q22, %r6, 4; \
            setp.ge.s32 %p1, %i, %n; @%p1 bra $X; $L:; {once}; add.s64 %q23, %q11, %q22; st.global.f32 [%q23], %f1; \
            add.s32 %i, %i, %r7; setp.lt.s32 %p2, %i, %n; @%p2 bra $L"
            ),
        ),
        (
            "pointer_stride",
            format!(
                "{start}; {total}; setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; \
            add.s64 %q11, %a, %t; mul.wide.s32 %q22, %r6, 4; $L:; ld.global.f32 %f1, [%q11]; add.f32 %f1, %f1, %f1; \
            st.global.f32 [%q11], %f1; add.s64 %q11, %q11, %q22; add.s32 %i, %i, %r6; setp.lt.s32 %p2, %i, %n; \
            @%p2 bra $L"
            ),
        ),
        (
            "total_value",
            format!(
                "{start}; {total}; setp.ge.s32 %p1, %i, %n; @%p1 bra $X; mul.wide.s32 %t, %i, 4; \
            add.s64 %q11, %a, %t; st.global.u32 [%q11], %r6"
            ),
        ),
    ];
    let four = "add.s64 %q20, %q11, %q22; ld.global.f32 %f4, [%q20]; add.f32 %f5, %f4, %f4; st.global.f32 [%q20], %f5; \
                add.s64 %q21, %q20, %q22; ld.global.f32 %f6, [%q21]; st.global.f32 [%q21+0], %f5";
    let unrolled = format!(
        "{start}; {total}; setp.ge.s32 %p1, %i, %n; @%p1 bra $X; add.s32 %r7, %r6, %n; add.s32 %r8, %i, %r6; \
         not.b32 %r9, %r8; add.s32 %r10, %r7, %r9; div.u32 %r11, %r10, %r6; add.s32 %r12, %r11, 1; rem.u32 %r20, %r12, 3; \
         and.b32 %r13, %r12, 3; setp.eq.s32 %p2, %r13, 0; @%p2 bra $M; mul.wide.s32 %t, %i, 4; add.s64 %q24, %a, %t; \
         mul.wide.s32 %q25, %r6, 4; $P:; ld.global.f32 %f1, [%q24]; add.f32 %f2, %f1, %f1; st.global.f32 [%q24], %f2; \
         add.s32 %i, %i, %r6; add.s64 %q24, %q24, %q25; add.s32 %r13, %r13, -1; setp.ne.s32 %p3, %r13, 0; @%p3 bra $P; \
         $M:; setp.lt.u32 %p4, %r11, 3; @%p4 bra $X; mul.wide.s32 %q22, %r6, 4; $L:; mul.wide.s32 %t, %i, 4; \
         add.s64 %q11, %a, %t; ld.global.f32 %f3, [%q11]; add.f32 %f7, %f3, %f3; st.global.f32 [%q11], %f7; {four}; \
         add.s64 %q26, %q21, %q22; st.global.f32 [%q26], %f6; add.s32 %r14, %i, %r6; add.s32 %r15, %r14, %r6; \
         add.s32 %r16, %r15, %r6; add.s32 %i, %r16, %r6; setp.lt.s32 %p5, %i, %n; @%p5 bra $L"
    );
    // The rounds that nvcc splits off, and a kernel that splits off others than it counts.
    let wrong =
        unrolled.replace("%r16, %r15, %r6; add.s32 %i, %r16, %r6", "%r16, %r15, %r2; add.s32 %i, %r16, %r6");
    let shots = vec![Shot::line(3, 64, 1500), Shot::line(2, 96, 2000)];
    cases.push(Case::new("stride_nvcc", &unrolled, shots.clone(), Truth::Qualifies));
    cases.push(Case::new("stride_nvcc_wrong", &wrong, shots, Truth::Depends));
    for (name, body) in bodies {
        for round in 0..4 {
            let threads = random.choose(&[32u32, 48, 64, 128]);
            let blocks = 1 + random.below(5) as u32;
            let n = blocks * threads + random.below(900) as u32;
            let shots = vec![
                Shot::line(blocks, threads, n),
                Shot::line(2 * blocks, threads, n).with_layout(Layout::Pool),
            ];
            cases.push(Case::new(format!("{name}_{round}"), &body, shots, Truth::Qualifies));
        }
    }
}

/// The index along y in `%j`, along x in `%i`.
const PLANE: [&str; 3] = [
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %i, %r1, %r2, %r3; \
     mov.u32 %r4, %ctaid.y; mov.u32 %r5, %ntid.y; mov.u32 %r6, %tid.y; mad.lo.s32 %j, %r4, %r5, %r6",
    "mov.u32 %r6, %tid.y; mov.u32 %r5, %ntid.y; mov.u32 %r4, %ctaid.y; mul.lo.u32 %r7, %r5, %r4; \
     add.u32 %j, %r7, %r6; mov.u32 %r3, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r1, %ctaid.x; \
     mad.lo.u32 %i, %r2, %r1, %r3",
    "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.s32 %j, %r2, %r1, %r3; \
     mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.s32 %i, %r4, %r5, %r6",
];

/// Kernels along x and y.
fn planes(random: &mut Random, cases: &mut Vec<Case>) {
    let guards = [
        "setp.ge.s32 %p1, %i, %w; setp.ge.s32 %p2, %j, %hh; or.pred %p3, %p1, %p2; @%p3 bra $X",
        "setp.lt.s32 %p1, %i, %w; setp.lt.s32 %p2, %j, %hh; and.pred %p3, %p1, %p2; @!%p3 bra $X",
        "setp.ge.s32 %p1, %j, %hh; @%p1 bra $X; setp.ge.s32 %p2, %i, %w; @%p2 bra $X",
        "setp.le.s32 %p1, %w, %i; @%p1 ret; setp.gt.s32 %p2, %hh, %j; @!%p2 ret",
    ];
    let row =
        "mad.lo.s32 %r10, %j, %w, %i; mul.wide.s32 %t, %r10, 4; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t";
    let pitched = "cvt.s64.s32 %q3, %j; cvt.s64.s32 %q4, %w; mul.lo.s64 %q5, %q3, %q4; cvt.s64.s32 %q6, %i; \
                   add.s64 %q7, %q5, %q6; shl.b64 %t, %q7, 2; add.s64 %q10, %b, %t; add.s64 %q11, %a, %t";
    let copy = "ld.global.f32 %f1, [%q10]; add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%q11], %f2";
    let works = [
        ("picture", format!("{row}; {copy}")),
        ("pitched", format!("{pitched}; {copy}")),
        (
            "transposed",
            format!(
                "{row}; mad.lo.s32 %r11, %i, %hh, %j; mul.wide.s32 %q12, %r11, 4; add.s64 %q11, %a, %q12; \
            {copy}"
            ),
        ),
        (
            "picture_update",
            format!(
                "{row}; ld.global.f32 %f1, [%q11]; fma.rn.f32 %f2, %f1, %f1, %f1; st.global.f32 [%q11], %f2"
            ),
        ),
        (
            "matrix",
            format!(
                "mul.lo.s32 %r20, %j, %w; mul.wide.s32 %q20, %r20, 4; add.s64 %q21, %b, %q20; \
            mul.wide.s32 %q22, %i, 4; add.s64 %q23, %c, %q22; mul.wide.s32 %q24, %w, 4; mov.f32 %f9, 0f00000000; \
            mov.u32 %k, 0; $L:; ld.global.f32 %f1, [%q21]; ld.global.f32 %f2, [%q23]; fma.rn.f32 %f9, %f1, %f2, %f9; \
            add.s64 %q21, %q21, 4; add.s64 %q23, %q23, %q24; add.s32 %k, %k, 1; setp.lt.s32 %p7, %k, 5; @%p7 bra $L; \
            {row}; st.global.f32 [%q11], %f9"
            ),
        ),
        (
            "blurred",
            format!(
                "{row}; ld.global.f32 %f1, [%q10]; ld.global.f32 %f2, [%q10+4]; add.f32 %f3, %f1, %f2; \
            mul.wide.s32 %q12, %w, 4; add.s64 %q13, %q10, %q12; ld.global.f32 %f4, [%q13]; add.f32 %f5, %f3, %f4; \
            st.global.f32 [%q11], %f5"
            ),
        ),
        ("corner_sum", format!("{row}; ld.global.u32 %r30, [%q10]; red.global.xor.b32 [%c], %r30")),
    ];
    for (name, work) in &works {
        for round in 0..6 {
            let index = PLANE[round % PLANE.len()];
            let guard = if round == 5 { "" } else { guards[round % guards.len()] };
            let (w, h) = (20 + random.below(40) as u32, 10 + random.below(20) as u32);
            let block = random.choose(&[(16u32, 16u32, 1u32), (32, 8, 1), (8, 8, 1), (64, 2, 1)]);
            let mut shots = vec![Shot::plane((w.div_ceil(block.0), h.div_ceil(block.1), 1), block, w, h)];
            if round == 5 {
                shots = vec![Shot::plane((3, 2, 1), (16, 8, 1), 48, 16)];
            }
            shots.push(shots[0].clone().with_layout(Layout::Pool));
            let body = format!("{index}; {guard}; {work}");
            cases.push(Case::new(format!("{name}_{round}"), &body, shots, Truth::Qualifies));
        }
    }
}

/// Odd parts, each of which makes a kernel depend on the shape.
const ODD: [(&str, &str); 14] = [
    ("block_parity", "mov.u32 %r50, %ctaid.x; and.b32 %r51, %r50, 1; cvt.rn.f32.u32 %f20, %r51"),
    ("thread", "mov.u32 %r50, %tid.x; cvt.rn.f32.u32 %f20, %r50"),
    ("block_size", "mov.u32 %r50, %ntid.x; cvt.rn.f32.u32 %f20, %r50"),
    ("grid_size", "mov.u32 %r50, %nctaid.x; cvt.rn.f32.u32 %f20, %r50"),
    ("lane", "mov.u32 %r50, %laneid; cvt.rn.f32.u32 %f20, %r50"),
    ("warp", "mov.u32 %r50, %warpid; cvt.rn.f32.u32 %f20, %r50"),
    ("warp_by_shift", "mov.u32 %r50, %tid.x; shr.u32 %r51, %r50, 5; cvt.rn.f32.u32 %f20, %r51"),
    (
        "mixed_sum",
        "mov.u32 %r50, %tid.x; mov.u32 %r51, %ctaid.x; add.s32 %r52, %r50, %r51; cvt.rn.f32.u32 %f20, %r52",
    ),
    (
        "doubled_block",
        "mov.u32 %r50, %ctaid.x; mov.u32 %r51, %ntid.x; mul.lo.s32 %r52, %r50, %r51; shl.b32 %r53, %r52, 1; \
      mov.u32 %r54, %tid.x; add.s32 %r55, %r53, %r54; cvt.rn.f32.u32 %f20, %r55",
    ),
    (
        "shuffle",
        "cvt.rn.f32.s32 %f21, %w; mov.b32 %r50, %f21; mov.u32 %r52, %tid.x; \
      shfl.sync.bfly.b32 %r51, %r52, 1, 31, -1; cvt.rn.f32.u32 %f20, %r51",
    ),
    (
        "ballot",
        "mov.u32 %r50, %tid.x; setp.lt.u32 %p9, %r50, 40; vote.sync.ballot.b32 %r51, %p9, -1; cvt.rn.f32.u32 %f20, %r51",
    ),
    (
        "carried",
        "mov.u32 %r50, %ntid.x; add.cc.u32 %r51, %r50, -60; addc.u32 %r52, 0, 0; cvt.rn.f32.u32 %f20, %r52",
    ),
    (
        "by_branch",
        "mov.u32 %r50, %tid.x; mov.f32 %f20, 0f00000000; setp.lt.u32 %p9, %r50, 17; @%p9 bra $O; \
      mov.f32 %f20, 0f3F800000; $O:",
    ),
    (
        "by_select",
        "mov.u32 %r50, %ctaid.x; setp.lt.u32 %p9, %r50, 2; selp.f32 %f20, 0f3F800000, 0f00000000, %p9",
    ),
];

/// Kernels in which an odd part reaches the result.
fn odd(random: &mut Random, cases: &mut Vec<Case>) {
    for (name, part) in ODD {
        for round in 0..4 {
            let index = INDICES[random.index(INDICES.len())];
            let guard = index.guard(random);
            let (first, second) = (index.at("%q10", "%b", 4), index.at("%q11", "%a", 4));
            let body = format!(
                "{}; {part}; {guard}; {first}; {second}; ld.global.f32 %f1, [%q10]; add.f32 %f2, %f1, %f20; \
                 st.global.f32 [%q11], %f2",
                index.code
            );
            let shots = lines(random, false);
            cases.push(Case::new(format!("odd_{name}_{round}"), &body, shots, Truth::Depends));
        }
    }
}

/// All of them.
pub fn cases(seed: u64) -> Vec<Case> {
    let mut random = Random::new(seed);
    let mut cases = Vec::new();
    odd(&mut random, &mut cases);
    along_x(&mut random, &mut cases);
    grid_strides(&mut random, &mut cases);
    planes(&mut random, &mut cases);
    cases
}
