//! Walks whose counts are known.

use super::{Argument, BUDGET, Estimator, Work};
use cuda_launch::LaunchConfig;
use ptx::instruction::Class;

/// The beginning of the tests' kernels: `i` is the thread's number in the grid, `p` a pointer, `n`
/// and `m` integers.
const BEGIN: &str = "
    mov.u32 %c, %ctaid.x;
    mov.u32 %d, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.s32 %i, %c, %d, %t;
    ld.param.u64 %p, [p];
    ld.param.u32 %n, [n];
    ld.param.u32 %m, [m];
";
/// Instructions of it.
const BEGINNING: f64 = 7.0;

fn estimator(body: &str) -> Estimator {
    let source = format!(
        ".version 8.0 .target sm_80 .address_size 64
         .func (.param .b32 result) twice(.param .b32 value) {{
             .reg .b32 %v, %w; ld.param.u32 %v, [value]; add.s32 %w, %v, %v; st.param.b32 [result], %w; ret;
         }}
         .visible .entry f(.param .u64 p, .param .u32 n, .param .u32 m) {{
             .shared .align 4 .b8 tile[32768];
             .reg .pred %q<9>; .reg .b32 %c, %d, %t, %i, %n, %m, %k, %j, %s, %x, %y; .reg .b64 %p, %a, %o; .reg .f32 %f, %g, %r<40>;
             {BEGIN} {body} ret;
         }}"
    );
    let module = ptx::parse(&source).unwrap_or_else(|error| panic!("{}", error.render("f", &source)));
    Estimator::new(&module, module.functions().last().expect("the entry"))
}

fn launch(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig::new(blocks, threads)
}

fn walk(body: &str, launch: &LaunchConfig, n: u64, m: u64) -> Work {
    let arguments = [Argument::Pointer, Argument::Bits(n), Argument::Bits(m)];
    estimator(body).estimate(launch, &arguments, BUDGET)
}

/// The same where it is known that there are allocations, though nothing of their sizes.
fn walk_recorded(body: &str, launch: &LaunchConfig, n: u64, m: u64) -> Work {
    let arguments = [Argument::Pointer, Argument::Bits(n), Argument::Bits(m)];
    estimator(body).estimate_in(&[0], launch, &arguments, BUDGET)
}

/// One element for each thread that has one.
const SAXPY: &str = "
    setp.ge.u32 %q0, %i, %n;
    @%q0 bra END;
    mul.wide.u32 %o, %i, 4;
    add.s64 %a, %p, %o;
    ld.global.f32 %f, [%a];
    fma.rn.f32 %g, %f, %f, %f;
    st.global.f32 [%a], %g;
    END:
";

#[test]
fn a_guard_ends_what_lies_beyond_it() {
    // 4 blocks of 64 threads; the last has 8 elements: one warp of eight lanes, and one with none.
    let work = walk(SAXPY, &launch(4, 64), 200, 0);
    let (begun, whole) = (BEGINNING + 3.0, 5.0);
    assert_eq!(work.total(), 8.0 * begun + 7.0 * whole);
    assert_eq!(work.thread_instructions, 256.0 * begun + 200.0 * whole);
    assert_eq!(
        (work.global_load_requests, work.global_load_sectors, work.global_load_bytes),
        (7.0, 25.0, 800.0)
    );
    assert_eq!((work.global_store_requests, work.global_store_sectors), (7.0, 25.0));
    assert_eq!(work.count(Class::Single), 7.0);
    assert_eq!((work.warps, work.longest_warp), (8.0, begun + whole));
    assert!(!work.assumed && !work.extrapolated, "{work:?}");
}

/// Each thread goes through the elements in steps of the grid's size.
const STRIDING: &str = "
    mov.u32 %k, %nctaid.x;
    mul.lo.s32 %k, %k, %d;
    setp.ge.u32 %q0, %i, %n;
    @%q0 bra END;
    TOP:
    mul.wide.u32 %o, %i, 4;
    add.s64 %a, %p, %o;
    ld.global.f32 %f, [%a];
    add.s32 %i, %i, %k;
    setp.lt.u32 %q1, %i, %n;
    @%q1 bra TOP;
    END:
";

#[test]
fn long_loops_are_counted_to_the_end_without_walking_them() {
    for n in [64, 640, 64_000, 64_000_000] {
        let work = walk(STRIDING, &launch(1, 64), n, 0);
        let rounds = n as f64 / 64.0;
        assert_eq!(work.total(), 2.0 * (BEGINNING + 5.0 + 6.0 * rounds), "{n}");
        assert_eq!(work.global_load_sectors, n as f64 / 8.0);
        assert!(!work.assumed && !work.extrapolated, "{work:?}");
    }
    // The last round is of the first 7 lanes only.
    let work = walk(STRIDING, &launch(1, 64), 64_007, 0);
    assert_eq!(work.global_load_bytes, 4.0 * 64_007.0);
    assert_eq!(work.global_load_requests, 2001.0);
}

#[test]
fn loops_in_loops_multiply() {
    let nested = "
        mov.u32 %k, 0; mov.u32 %s, 0;
        OUTER: mov.u32 %j, 0;
        INNER: add.s32 %s, %s, %k; add.s32 %j, %j, 1; setp.lt.u32 %q0, %j, %m; @%q0 bra INNER;
        add.s32 %k, %k, 1; setp.lt.u32 %q1, %k, %n; @%q1 bra OUTER;
    ";
    for (n, m) in [(1, 1), (3, 5), (1000, 1000), (100_000, 7)] {
        let work = walk(nested, &launch(1, 32), n, m);
        let (n, m) = (n as f64, m as f64);
        assert_eq!(work.total(), BEGINNING + 3.0 + n * (4.0 + 4.0 * m), "{n} {m}");
        assert!(!work.extrapolated);
    }
}

#[test]
fn a_triangle_is_half_a_square() {
    let triangle = "
        mov.u32 %k, 1;
        OUTER: mov.u32 %j, 0;
        INNER: add.s32 %j, %j, 1; setp.lt.u32 %q0, %j, %k; @%q0 bra INNER;
        add.s32 %k, %k, 1; setp.le.u32 %q1, %k, %n; @%q1 bra OUTER;
    ";
    let work = walk(triangle, &launch(1, 32), 100, 0);
    assert_eq!(work.total(), BEGINNING + 2.0 + 100.0 * 4.0 + 3.0 * 5050.0);
}

#[test]
fn lanes_that_part_come_together_again() {
    let parting = "
        and.b32 %k, %t, 3;
        setp.eq.s32 %q0, %k, 0;
        @%q0 bra ELSE;
        add.f32 %f, %g, %g;
        add.f32 %f, %g, %g;
        bra.uni BOTH;
        ELSE: mul.f32 %f, %g, %g;
        BOTH: sub.f32 %f, %g, %g;
    ";
    let work = walk(parting, &launch(1, 32), 0, 0);
    assert_eq!(work.total(), BEGINNING + 3.0 + 3.0 + 1.0 + 2.0);
    assert_eq!(work.thread_instructions, 32.0 * (BEGINNING + 5.0) + 24.0 * 3.0 + 8.0);
}

#[test]
fn lanes_leave_a_loop_one_after_the_other() {
    let leaving = "mov.u32 %k, 0; TOP: add.s32 %k, %k, 1; setp.le.u32 %q0, %k, %t; @%q0 bra TOP;";
    let work = walk(leaving, &launch(1, 32), 0, 0);
    assert_eq!(work.total(), BEGINNING + 2.0 + 3.0 * 32.0);
    assert_eq!(work.thread_instructions, 32.0 * (BEGINNING + 2.0) + 3.0 * (32.0 * 33.0 / 2.0));
}

#[test]
fn sectors_follow_the_stride() {
    for (bytes, sectors) in [(0, 1.0), (1, 2.0), (4, 4.0), (8, 8.0), (32, 32.0), (128, 32.0)] {
        let body = format!("mul.wide.u32 %o, %t, {bytes}; add.s64 %a, %p, %o; ld.global.u32 %x, [%a];");
        let work = walk(&body, &launch(1, 32), 0, 0);
        assert_eq!(work.global_load_sectors, sectors, "{bytes}");
        assert!(!work.assumed);
    }
    let vectors = "mul.wide.u32 %o, %t, 16; add.s64 %a, %p, %o; st.global.v4.u32 [%a+16], {%x, %x, %x, %x};";
    let work = walk(vectors, &launch(1, 32), 0, 0);
    assert_eq!((work.global_store_sectors, work.global_store_bytes), (17.0 - 1.0 + 1.0, 512.0));
}

#[test]
fn banks_conflict_by_words() {
    for (stride, passes) in [(0, 1.0), (4, 1.0), (8, 2.0), (12, 1.0), (64, 16.0), (128, 32.0), (132, 1.0)] {
        let body = format!("mov.u32 %s, tile; mad.lo.s32 %s, %t, {stride}, %s; ld.shared.u32 %x, [%s];");
        let work = walk(&body, &launch(1, 32), 0, 0);
        assert_eq!((work.shared_requests, work.shared_wavefronts), (1.0, passes), "{stride}");
    }
    let wide = "mov.u32 %s, tile; mad.lo.s32 %s, %t, 16, %s; ld.shared.v4.u32 {%x, %y, %k, %j}, [%s];";
    assert_eq!(walk(wide, &launch(1, 32), 0, 0).shared_wavefronts, 4.0);
}

#[test]
fn atomics_pass_once_for_each_lane_of_an_address() {
    let atomic =
        "and.b32 %k, %t, 3; mul.wide.u32 %o, %k, 4; add.s64 %a, %p, %o; atom.global.add.u32 %x, [%a], 1;";
    let work = walk(atomic, &launch(2, 48), 0, 0);
    // In each block a warp of 32 lanes and one of 16.
    assert_eq!(
        (work.atomic_requests, work.atomic_lanes, work.atomic_wavefronts),
        (4.0, 96.0, 2.0 * (8.0 + 4.0))
    );
}

#[test]
fn a_warp_adds_integers_up_before_it_goes_to_memory() {
    let of = |atomic: &str| {
        let work = walk_recorded(atomic, &launch(2, 48), 0, 0);
        (work.atomic_requests, work.atomic_lanes, work.atomic_turns + work.shared_atomic_turns)
    };
    let (once, by_lane) = ((4.0, 4.0, 4.0), (4.0, 96.0, 96.0));
    assert_eq!(of("red.global.add.u32 [%p], %t;"), once);
    assert_eq!(of("red.global.max.s32 [%p], %t;"), once);
    assert_eq!(of("mov.u32 %s, tile; red.shared.add.u32 [%s], 1;"), once);
    // What each lane gets back follows from its place among the lanes, if all add the same.
    let kept = |atomic: &str| of(&format!("{atomic} st.global.u32 [%p+4], %x;"));
    assert_eq!(kept("atom.global.add.u32 %x, [%p], 1;"), once);
    assert_eq!(kept("atom.global.add.u32 %x, [%p], %t;"), by_lane);
    assert_eq!(kept("atom.global.max.s32 %x, [%p], %t;"), by_lane);
    assert_eq!(of("atom.global.max.s32 %x, [%p], %t;"), once);
    // Two words are not added in one instruction, but the same number 32 times is a product.
    assert_eq!(of("cvt.u64.u32 %o, %n; red.global.add.u64 [%p], %o;"), once);
    assert_eq!(of("cvt.u64.u32 %o, %t; red.global.add.u64 [%p], %o;"), by_lane);
    assert_eq!(of("red.global.add.f32 [%p], %f;"), by_lane);
    assert_eq!(of("red.global.inc.u32 [%p], 7;"), by_lane);
}

#[test]
fn a_compare_and_swap_succeeds_but_for_lanes_with_one_address() {
    let sum = |address: &str| {
        let body = format!(
            "{address} ld.global.u32 %x, [%a];
             TOP: add.s32 %y, %x, %n; atom.global.cas.b32 %k, [%a], %x, %y;
             setp.ne.s32 %q0, %k, %x; mov.u32 %x, %k; @%q0 bra TOP;"
        );
        let work = walk_recorded(&body, &launch(1, 32), 3, 0);
        (work.atomic_requests, work.atomic_lanes, work.unknown_branches)
    };
    assert_eq!(sum("mul.wide.u32 %o, %t, 4; add.s64 %a, %p, %o;"), (1.0, 32.0, 0.0));
    // One lane of four leaves in each round.
    let (requests, lanes, _) = sum("shr.u32 %j, %t, 2; mul.wide.u32 %o, %j, 4; add.s64 %a, %p, %o;");
    assert_eq!((requests, lanes), (4.0, 32.0 + 24.0 + 16.0 + 8.0));

    // Keys go to the next slot where a lane before has put another one.
    let insertion = "
        shr.u32 %k, %t, 1;
        TOP: mul.wide.u32 %o, %k, 4; add.s64 %a, %p, %o; atom.global.cas.b32 %x, [%a], -1, %t;
        add.s32 %k, %k, 1; setp.ne.s32 %q0, %x, -1; @%q0 bra TOP;
    ";
    let work = walk_recorded(insertion, &launch(1, 32), 0, 0);
    assert_eq!((work.atomic_requests, work.atomic_lanes), (2.0, 32.0 + 16.0));
    assert!(!work.assumed);
}

#[test]
fn a_lock_is_free() {
    let locked = |take: &str| {
        let body = format!(
            "setp.ne.s32 %q0, %t, 0; @%q0 bra END;
             TOP: {take} setp.ne.s32 %q1, %x, 0; @%q1 bra TOP;
             st.global.u32 [%p+4], %t; atom.global.exch.b32 %y, [%p], 0; END:"
        );
        walk_recorded(&body, &launch(4, 64), 0, 0).atomic_requests
    };
    assert_eq!(locked("atom.global.cas.b32 %x, [%p], 0, 1;"), 2.0 * 4.0);
    assert_eq!(locked("atom.global.exch.b32 %x, [%p], 1;"), 2.0 * 4.0);
}

#[test]
fn calls_of_what_is_not_there_are_counted() {
    let source = ".version 8.0 .target sm_80 .address_size 64
        .extern .func elsewhere; .extern .func vprintf;
        .visible .entry f() { .reg .pred %q; .reg .b32 %t;
            mov.u32 %t, %tid.x; setp.gt.u32 %q, %t, 95; @%q call elsewhere; call vprintf; ret; }";
    let module = ptx::parse(source).unwrap();
    let of = |threads: u32| {
        let entry = module.functions().last().unwrap();
        Estimator::new(&module, entry).estimate(&launch(3, threads), &[], BUDGET)
    };
    assert_eq!((of(96).unknown_calls, of(96).assumed), (0.0, false));
    assert_eq!((of(128).unknown_calls, of(128).assumed), (3.0, true));
}

#[test]
fn guessed_addresses_lie_in_their_allocation() {
    let gather = "ld.global.u32 %x, [%p]; xor.b32 %x, %x, %i; mul.wide.s32 %o, %x, 4; add.s64 %a, %p, %o;
                  ld.global.u32 %y, [%a]; setp.gt.u32 %q0, %y, 9; @%q0 bra END; st.global.u32 [%a], %x; END:";
    let span = |allocations: &[u64]| {
        let arguments = [Argument::Pointer, Argument::Bits(0), Argument::Bits(0)];
        let work = estimator(gather).estimate_in(allocations, &launch(1024, 256), &arguments, BUDGET);
        (work.span_sectors, work.launch_sectors)
    };
    assert_eq!(span(&[32 * 100]).0, 100.0);
    assert!(span(&[]).0 > 1e4);
    // An allocation of which nothing is known, or too small for a word, bounds nothing.
    assert_eq!(span(&[0]), span(&[]));
    assert_eq!(span(&[3]), span(&[]));
}

#[test]
fn functions_are_walked_where_they_are_called() {
    let calling = "
        { .param .b32 value0; st.param.b32 [value0], %m; .param .b32 result0;
          call.uni (result0), twice, (value0); ld.param.b32 %k, [result0]; }
        TOP: sub.s32 %k, %k, 1; setp.ne.s32 %q0, %k, 0; @%q0 bra TOP;
    ";
    let work = walk(calling, &launch(1, 32), 0, 21);
    assert_eq!(work.total(), BEGINNING + 3.0 + 4.0 + 3.0 * 42.0 + 1.0);
    assert!(!work.assumed);
}

#[test]
fn barriers_are_counted_for_each_warp() {
    let rounds = "mov.u32 %k, 0; TOP: bar.sync 0; add.s32 %k, %k, 1; setp.lt.u32 %q0, %k, %n; @%q0 bra TOP;";
    assert_eq!(walk(rounds, &launch(7, 96), 12, 0).barriers_per_warp, 12.0);
}

#[test]
fn what_data_decides_is_assumed_and_ends() {
    let waiting = "TOP: ld.global.u32 %x, [%p]; setp.ne.s32 %q0, %x, 0; @%q0 bra TOP;";
    let work = walk(waiting, &launch(1, 32), 0, 0);
    assert!(work.assumed && work.unknown_branches > 0.0);
    assert_eq!(work.total(), BEGINNING + 1.0 + 3.0 * 8.0);
    // Another thread ends it: it is seen to wait for one round.
    let work = walk_recorded(waiting, &launch(1, 32), 0, 0);
    assert!(work.assumed && work.unknown_branches > 0.0);
    assert_eq!(work.total(), BEGINNING + 1.0 + 3.0);
    // The loaded bound says two thousand million rounds, more or less.
    let bounded = "ld.global.u32 %x, [%p]; mov.u32 %k, 0; TOP: add.s32 %k, %k, 1; setp.lt.u32 %q0, %k, %x; @%q0 bra TOP;";
    let work = walk(bounded, &launch(1, 32), 0, 0);
    assert!(work.assumed);
    assert_eq!(work.total(), BEGINNING + 3.0 + 3.0 * 8.0);
}

#[test]
fn a_loop_that_a_guess_bounds_ends_with_its_array() {
    let summing = |more: &str| {
        format!(
            "ld.global.u32 %x, [%p]; mov.u32 %k, 0;
             TOP: mul.wide.u32 %o, %k, 8; add.s64 %a, %p, %o; ld.global.f32 %f, [%a+4]; {more}
             add.s32 %k, %k, 1; setp.lt.u32 %q0, %k, %x; @%q0 bra TOP;"
        )
    };
    let loads = |body: &str, allocations: &[u64]| {
        let arguments = [Argument::Pointer, Argument::Bits(0), Argument::Bits(0)];
        let work = estimator(body).estimate_in(allocations, &launch(1, 32), &arguments, BUDGET);
        assert!(work.assumed);
        work.global_load_requests - 1.0
    };
    assert_eq!(loads(&summing(""), &[8 * 5000]), 5000.0);
    assert_eq!(loads(&summing(""), &[]), 8.0);
    // Which way it goes in each round is guessed too.
    let branching = "setp.lt.f32 %q1, %f, 0f00000000; @%q1 bra NEXT; add.f32 %g, %g, %f; NEXT:";
    let counted = loads(&summing(branching), &[8 * 5000]);
    assert!((counted / 5000.0 - 1.0).abs() < 0.02, "{counted}");
}

#[test]
fn a_loaded_index_is_below_the_number_that_it_is_compared_with() {
    let gather = "mul.wide.u32 %o, %i, 4; add.s64 %a, %p, %o; ld.global.u32 %x, [%a];
                  setp.lt.s32 %q0, %x, 0; setp.ge.s32 %q1, %x, %n; or.pred %q0, %q0, %q1; @%q0 bra END;
                  mul.wide.s32 %o, %x, 4; add.s64 %a, %p, %o; ld.global.u32 %y, [%a]; END:";
    let work = walk_recorded(gather, &launch(64, 256), 1000, 0);
    assert_eq!(work.global_load_requests, 2.0 * 64.0 * 8.0);
    // 16,384 elements, one after the other, and no others than 1,000 of them.
    assert_eq!(work.span_sectors, 16_384.0 / 8.0);
}

#[test]
fn rows_are_as_long_as_their_elements_allow() {
    let rows = "setp.ge.u32 %q0, %i, %n; @%q0 bra END;
        mul.wide.u32 %o, %i, 4; add.s64 %a, %p, %o; ld.global.u32 %k, [%a]; ld.global.u32 %x, [%a+4];
        setp.ge.u32 %q1, %k, %x; @%q1 bra END;
        TOP: mul.wide.u32 %o, %k, 4; ld.param.u64 %a, [elements]; add.s64 %a, %a, %o; ld.global.u32 %y, [%a];
        add.s32 %k, %k, 1; setp.lt.u32 %q2, %k, %x; @%q2 bra TOP; END:";
    let source = format!(
        ".version 8.0 .target sm_80 .address_size 64
         .visible .entry f(.param .u64 p, .param .u32 n, .param .u32 m, .param .u64 elements) {{
             .reg .pred %q<9>; .reg .b32 %c, %d, %t, %i, %n, %m, %k, %x, %y; .reg .b64 %p, %a, %o;
             {BEGIN} {rows} ret;
         }}"
    );
    let module = ptx::parse(&source).unwrap();
    let (count, mean) = (4096, 24);
    let allocations = [4 * (count + 1), 4 * count * mean];
    let arguments = [
        Argument::Bits(super::allocation_address(0)),
        Argument::Bits(count),
        Argument::Bits(0),
        Argument::Bits(super::allocation_address(1)),
    ];
    let entry = module.functions().last().unwrap();
    let work = Estimator::new(&module, entry).estimate_in(&allocations, &launch(16, 256), &arguments, BUDGET);
    let elements = work.global_load_bytes / 4.0 - 2.0 * count as f64;
    let expected = (count * mean) as f64;
    assert!((elements / expected - 1.0).abs() < 0.15, "{elements} of {expected}");
}

#[test]
fn stores_of_one_sector_are_written_once() {
    // Five words of a structure of twenty bytes.
    let body =
        "mul.wide.u32 %o, %i, 20; add.s64 %a, %p, %o; st.global.u32 [%a], %t; st.global.u32 [%a+4], %t;
                st.global.u32 [%a+8], %t; st.global.u32 [%a+12], %t; st.global.u32 [%a+16], %t;";
    let work = walk_recorded(body, &launch(64, 256), 0, 0);
    assert!(work.global_store_sectors > 4.0 * work.written_sectors);
    let bytes = 20.0 * 64.0 * 256.0;
    assert!((32.0 * work.written_sectors / bytes - 1.0).abs() < 0.1, "{}", work.written_sectors);
}

#[test]
fn random_lanes_need_a_sector_each() {
    let gather = "mul.wide.u32 %o, %t, 4; add.s64 %a, %p, %o; ld.global.u32 %x, [%a];
                  mul.wide.u32 %o, %x, 4; add.s64 %a, %p, %o; ld.global.u32 %y, [%a];";
    let work = walk(gather, &launch(1, 32), 0, 0);
    assert_eq!(work.global_load_sectors, 4.0 + 32.0);
    assert!(work.assumed);
}

#[test]
fn unknown_parameters_are_assumed() {
    let work = estimator(STRIDING).estimate(&launch(8, 64), &[], BUDGET);
    assert!(work.assumed);
    // As many elements as threads.
    assert_eq!(work.global_load_requests, 16.0);
}

#[test]
fn a_small_budget_is_kept_to_and_said_so() {
    // Whether a round does more depends on the remainder of its number: that is not foreseen.
    let uneven = "
        mov.u32 %k, 0;
        TOP: rem.u32 %j, %k, 3; setp.ne.s32 %q0, %j, 0; @%q0 bra NEXT;
        add.f32 %f, %f, %f; add.f32 %f, %f, %f; add.f32 %f, %f, %f;
        NEXT: add.s32 %k, %k, 1; setp.lt.u32 %q1, %k, %n; @%q1 bra TOP;
    ";
    let rounds = 30_000_000.0;
    let work = walk(uneven, &launch(1, 32), 30_000_000, 0);
    assert!(work.extrapolated);
    let truth = rounds * 7.0;
    assert!((work.total() / truth - 1.0).abs() < 0.02, "{} of {truth}", work.total());
}

#[test]
fn the_idle_rest_of_a_grid_is_found() {
    for n in [1, 5_000, 37_300, 61_111, 90_000] {
        let work = walk(SAXPY, &launch(1000, 96), n, 0);
        let truth = 3000.0 * (BEGINNING + 3.0) + (n as f64 / 32.0).ceil() * 5.0;
        assert!((work.total() / truth - 1.0).abs() < 0.01, "{n}: {} of {truth}", work.total());
    }
}

#[test]
fn warps_that_differ_here_and_there_are_weighed_fairly() {
    // One warp in eight adds up 100 times as many numbers.
    let uneven = "
        shr.u32 %k, %i, 5; rem.u32 %k, %k, 8; setp.eq.s32 %q0, %k, 0; selp.b32 %m, 1000, 10, %q0; mov.u32 %k, 0;
        TOP: add.s32 %k, %k, 1; setp.lt.u32 %q1, %k, %m; @%q1 bra TOP;
    ";
    let work = walk(uneven, &launch(40_009, 32), 0, 0);
    let truth = 40_009.0 * (BEGINNING + 6.0 + 3.0 * (1000.0 / 8.0 + 10.0 * 7.0 / 8.0));
    assert!((work.total() / truth - 1.0).abs() < 0.3, "{} of {truth}", work.total());
}

#[test]
fn the_largest_numbers_are_computed_with() {
    // The upper half of the square of 2^64 - 1 is 2^64 - 2; a loop goes on from it for two rounds.
    let extreme = "
        mov.u64 %o, -1; mul.hi.u64 %a, %o, %o;
        TOP: add.s64 %a, %a, 1; setp.ne.s64 %q0, %a, 0; @%q0 bra TOP;
        set.eq.u32.s64 %k, %a, 0; setp.ne.s32 %q1, %k, -1; @%q1 bra TOP;
    ";
    assert_eq!(walk(extreme, &launch(1, 32), 0, 0).total(), BEGINNING + 3.0 + 2.0 * 3.0 + 3.0);
}

/// Cycles of a warp for each round of a loop with this body.
fn cycles_of_round(body: &str) -> f64 {
    let looped =
        format!("mov.u32 %k, 0; TOP: {body} add.s32 %k, %k, 1; setp.lt.u32 %q0, %k, %n; @%q0 bra TOP;");
    let cycles = |rounds: u64| walk(&looped, &launch(3, 64), rounds, 0).latency_cycles;
    (cycles(1500) - cycles(500)) / 1000.0
}

#[test]
fn loads_overlap_unless_one_has_the_address_of_the_next() {
    let cycles = |body: &str| walk(body, &launch(1, 32), 0, 0).latency_cycles;
    let chase =
        "ld.global.u64 %a, [%p]; ld.global.u64 %a, [%a]; ld.global.u64 %a, [%a]; ld.global.u64 %o, [%a];";
    let apart = "ld.global.f32 %f, [%p]; ld.global.f32 %g, [%p+64]; ld.global.u32 %x, [%p+128]; ld.global.u32 %y, [%p+256];";
    // The fourth load is issued when three have come; nobody waits for it.
    assert_eq!(cycles(chase), 3.0 * 330.0 + 4.0);
    // What is issued: the thread's number, four loads, and the end.
    assert_eq!(cycles(apart), 1.5 + 4.0 * 4.0 + 1.0);
    // The sum of two waits for both, and the store for the sum.
    assert_eq!(cycles(&format!("{apart} add.f32 %f, %f, %g; st.global.f32 [%p], %f;")), 330.0 + 4.0 + 4.0);
    // A load may not overtake a store.
    assert_eq!(
        cycles("ld.global.f32 %f, [%p]; st.global.f32 [%p], %f; ld.global.f32 %g, [%p];"),
        330.0 + 4.0 + 4.0
    );

    // 28 sectors more than lanes side by side need hold the warp back.
    let strided = |stride: u32| {
        cycles(&format!("mul.wide.u32 %o, %t, {stride}; add.s64 %a, %p, %o; ld.global.u32 %x, [%a];"))
    };
    assert_eq!(strided(32) - strided(4), 28.0 * 2.5);

    assert_eq!(cycles_of_round("ld.global.u64 %p, [%p];"), 330.0);
    // The number of the round, its comparison and the branch.
    assert_eq!(cycles_of_round("ld.global.u64 %a, [%p];"), 4.0 + 4.0 + 12.0);
    assert_eq!(cycles_of_round("ld.global.f32 %f, [%p]; add.f32 %g, %g, %f;"), 331.0);
}

#[test]
fn a_chain_of_sums_takes_longer_than_sums_side_by_side() {
    let chain = "fma.rn.f32 %f, %f, %f, %g;".repeat(8);
    assert_eq!(cycles_of_round(&chain), 8.0 * 4.0);
    let apart: String = (0..8).map(|i| format!("fma.rn.f32 %r{i}, %r{i}, %f, %g;")).collect();
    assert_eq!(cycles_of_round(&apart), 4.0 + 4.0 + 12.0);
    let wide: String = (0..40).map(|i| format!("fma.rn.f32 %r{i}, %r{i}, %f, %g;")).collect();
    // What is issued: these, a sum, a comparison, a branch.
    assert_eq!(cycles_of_round(&wide), 40.0 + 1.5 + 2.0 + 1.0);
}

#[test]
fn atomics_fall_on_few_places_or_on_many() {
    let of = |index: &str, m: u64| {
        let body = format!(
            "{index} rem.u32 %k, %x, %m; mul.wide.u32 %o, %k, 4; add.s64 %a, %p, %o; red.global.add.u32 [%a], 1;"
        );
        walk(&body, &launch(1024, 256), 0, m).atomic_sectors
    };
    let data = "mul.wide.u32 %o, %i, 4; add.s64 %a, %p, %o; ld.global.u32 %x, [%a];";
    for index in ["mov.u32 %x, %i;", data] {
        assert_eq!(of(index, 1), 1.0);
        assert_eq!(of(index, 64), 8.0);
        let many = of(index, 65_536);
        assert!((4096.0..=8192.0).contains(&many), "{many}");
    }
    // Each thread has its own: as many as there are.
    assert_eq!(of("mov.u32 %x, %i;", 1 << 30), 1024.0 * 256.0 / 8.0);
}

#[test]
fn local_memory_has_the_words_of_lanes_side_by_side() {
    let of = |index: &str, access: &str| {
        let body = format!(
            "{{ .local .align 16 .b8 array[256]; {index} mov.u64 %a, array; mul.wide.u32 %o, %k, 4;
               add.s64 %a, %a, %o; {access} }}"
        );
        let work = walk(&body, &launch(1, 32), 0, 0);
        assert_eq!(work.local_requests, 1.0);
        work.local_sectors
    };
    assert_eq!(of("mov.u32 %k, 5;", "st.local.u32 [%a], %x;"), 4.0);
    assert_eq!(of("mov.u32 %k, 4;", "st.local.v4.u32 [%a], {%x, %x, %x, %x};"), 16.0);
    assert_eq!(of("mov.u32 %k, %t;", "ld.local.u32 %x, [%a];"), 32.0);
    // Two words, each of all eights of lanes.
    assert_eq!(of("and.b32 %k, %t, 1;", "ld.local.u32 %x, [%a];"), 8.0);
    // Eight lanes have one of 64 words each, by chance.
    let random =
        of("ld.global.u32 %k, [%p]; xor.b32 %k, %k, %t; and.b32 %k, %k, 63;", "ld.local.u32 %x, [%a];");
    assert!((24.0..=32.0).contains(&random), "{random}");
}

#[test]
fn constants_are_read_one_address_at_a_time() {
    for (stride, passes) in [(0, 1.0), (4, 32.0)] {
        let body = format!("mul.wide.u32 %o, %t, {stride}; ld.const.u32 %x, [%o];");
        assert_eq!(walk(&body, &launch(1, 32), 0, 0).constant_wavefronts, passes);
    }
}

/// Instructions of the machine for a warp, without those that begin and end a kernel.
fn machine_of(body: &str) -> f64 {
    let machine = |body: &str| walk(body, &launch(1, 32), 16, 1).machine_instructions;
    machine(body) - machine("")
}

#[test]
fn the_assembler_fuses_what_uses_one_result() {
    // A product and a sum make an address, a comparison and a branch stay two.
    assert_eq!(machine_of(&format!("{SAXPY} END:")), 6.0);
    assert_eq!(machine_of("mul.f32 %r0, %f, %f; add.f32 %g, %r0, %f;"), 1.0);
    assert_eq!(machine_of("mul.rn.f32 %r0, %f, %f; add.rn.f32 %g, %r0, %f;"), 2.0);
    // Three operands at once, not four; and nothing is left out whose result two others use.
    assert_eq!(machine_of("xor.b32 %j, %i, %n; xor.b32 %s, %j, %m; xor.b32 %x, %s, %c;"), 2.0);
    assert_eq!(machine_of("xor.b32 %j, %i, %n; xor.b32 %s, %j, %m; xor.b32 %x, %j, %c;"), 3.0);
}

#[test]
fn one_reciprocal_serves_all_divisions_by_a_number() {
    let one = machine_of("rem.u32 %x, %i, %n;");
    let more = machine_of("rem.u32 %x, %i, %n; rem.u32 %y, %c, %n;") - one;
    let other = machine_of("rem.u32 %x, %i, %n; rem.u32 %y, %c, %m;") - one;
    assert_eq!(other, one);
    assert!(more < other, "{more}");
}

#[test]
fn counting_costs_less_in_a_short_loop_that_nothing_interrupts() {
    let rounds = |body: &str| {
        machine_of(&format!(
            "mov.u32 %k, 0; LOOP: {body} add.s32 %k, %k, 1; setp.lt.u32 %q0, %k, %n; @%q0 bra LOOP;"
        )) / 16.0
    };
    assert_eq!(rounds("fma.rn.f32 %f, %f, %f, %f;"), 1.0 + 3.0 / 4.0);
    assert_eq!(rounds("fma.rn.f32 %f, %f, %f, %f; bar.sync 0;"), 2.0 + 3.0);
    assert_eq!(rounds("@%q1 bra ON; fma.rn.f32 %f, %f, %f, %f; ON:"), 2.0 + 3.0);
    assert_eq!(rounds(&"fma.rn.f32 %f, %f, %f, %f; ".repeat(80)), 80.0 + 3.0);
}
