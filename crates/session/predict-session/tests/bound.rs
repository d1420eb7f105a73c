//! The limit of a kernel, where the answer is known from its work: on an H200, whose memory moves
//! 4.8 TB/s and whose multiprocessors start two double-precision instructions of a warp in a cycle.

use apex_predict::code::{Code, Typed};
use apex_predict::{Case, Device, Models};
use apex_predict_session::recorded;
use apex_profile::{Bound, BoundBy, Figure, Provenance};
use cuda_launch::{FunctionAttributes, LaunchConfig};

/// `y[i] = x[i]`, four bytes a thread.
const COPY: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 x, .param .u64 y)
{
    .reg .f32 %f<2>; .reg .b32 %r<5>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r2;
    cvta.to.global.u64 %rd3, %rd1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd3, %rd4;
    cvta.to.global.u64 %rd6, %rd2; add.s64 %rd7, %rd6, %rd4;
    ld.global.f32 %f1, [%rd5];
    st.global.f32 [%rd7], %f1;
    ret;
}";

/// `n` times four double-precision products that do not depend on each other.
const PRODUCTS: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry products(.param .u64 y, .param .u32 n)
{
    .reg .pred %p<2>; .reg .f64 %f<5>; .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [y]; ld.param.u32 %r1, [n];
    mov.u32 %r2, 0;
    mov.f64 %f1, 0d3FF0000000000000; mov.f64 %f2, %f1; mov.f64 %f3, %f1; mov.f64 %f4, %f1;
again:
    fma.rn.f64 %f1, %f1, %f1, %f1; fma.rn.f64 %f2, %f2, %f2, %f2;
    fma.rn.f64 %f3, %f3, %f3, %f3; fma.rn.f64 %f4, %f4, %f4, %f4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    cvta.to.global.u64 %rd2, %rd1;
    add.f64 %f1, %f1, %f2; add.f64 %f3, %f3, %f4; add.f64 %f1, %f1, %f3;
    st.global.f64 [%rd2], %f1;
    ret;
}";

const THREADS: u32 = 256;
/// Blocks of [`THREADS`] that an H200 holds at a time, of kernels of few registers.
const WAVE: u32 = 132 * 2048 / THREADS;

fn case(source: &str, arguments: &[Typed], blocks: u32) -> Case {
    let code = Code::parse(source, "it", None, arguments).unwrap();
    let kernel = FunctionAttributes { registers: 16, ..FunctionAttributes::default() };
    code.case(code.kernel(kernel), LaunchConfig::new(blocks, THREADS))
}

fn copy(blocks: u32) -> Case {
    case(COPY, &[Typed::Pointer, Typed::Pointer], blocks)
}

/// Returns the limit of a launch that took this time, or the predicted one.
fn bound(case: &Case, measured_us: Option<f64>) -> Option<Bound> {
    let measured = measured_us.map(|us| Figure::sampled(us * 1e3, 1, None));
    recorded::prediction(&Models::shipped(), &Device::h200(), case, measured).unwrap().bound
}

/// Microseconds in which memory moves what [`copy`] does.
fn copied_us(blocks: u32) -> f64 {
    f64::from(blocks * THREADS) * 8.0 / Device::h200().memory_bytes_per_us()
}

#[test]
fn a_copy_near_the_speed_of_memory_is_bound_by_memory() {
    let blocks = 100 * WAVE;
    let least = copied_us(blocks);
    let found = bound(&copy(blocks), Some(least / 0.9)).unwrap();
    assert_eq!((found.by, &*found.part, found.duration), (BoundBy::Memory, "memory", Provenance::Measured));
    assert!((found.share - 0.9).abs() < 0.01 && !found.assumed, "{found:?}");
    assert!((found.part_ns.value / (least * 1e3) - 1.0).abs() < 0.01, "{found:?}");
}

#[test]
fn products_near_the_rate_of_their_pipe_are_bound_by_compute() {
    let (blocks, n) = (10 * WAVE, 10_000);
    let case = case(PRODUCTS, &[Typed::Pointer, Typed::Integer(n)], blocks);
    let warps = f64::from(blocks * THREADS / 32);
    let least = warps * (4 * n) as f64 / 2.0 / 132.0 / Device::h200().cycles_per_us();
    let found = bound(&case, Some(least / 0.8)).unwrap();
    assert_eq!((found.by, &*found.part), (BoundBy::Compute, "double"));
    assert!((found.share - 0.8).abs() < 0.01, "{found:?}");
}

#[test]
fn where_no_part_is_busy_it_is_latency_or_the_tail() {
    // Whole waves leave no place empty.
    let blocks = 100 * WAVE;
    let found = bound(&copy(blocks), Some(copied_us(blocks) * 3.0)).unwrap();
    assert_eq!((found.by, &*found.part), (BoundBy::Latency, "memory"));
    assert!((found.share - 1.0 / 3.0).abs() < 0.01, "{found:?}");
    // A second wave of few blocks: nearly half of the places of both.
    let case = case(PRODUCTS, &[Typed::Pointer, Typed::Integer(10_000)], WAVE + 10);
    let alone = bound(&case, Some(1.0)).unwrap().part_ns.value / 1e3;
    assert_eq!(bound(&case, Some(alone * 2.0)).unwrap().by, BoundBy::Tail);
    assert_eq!(bound(&case, Some(alone * 1.2)).unwrap().by, BoundBy::Compute, "a busy part comes first");
}

#[test]
fn the_threshold_is_three_fifths_of_the_duration() {
    let blocks = 100 * WAVE;
    let by = |share: f64| bound(&copy(blocks), Some(copied_us(blocks) / share)).unwrap().by;
    assert_eq!((by(0.62), by(0.58)), (BoundBy::Memory, BoundBy::Latency));
}

#[test]
fn work_of_less_than_an_empty_kernel_is_bound_by_its_launch() {
    for measured in [None, Some(2.5), Some(100.0)] {
        assert_eq!(bound(&copy(1), measured).unwrap().by, BoundBy::Launch, "{measured:?}");
    }
}

#[test]
fn a_share_is_never_more_than_the_whole_and_a_prediction_says_so() {
    let blocks = 100 * WAVE;
    assert_eq!(bound(&copy(blocks), Some(copied_us(blocks) / 2.0)).unwrap().share, 1.0);
    assert_eq!(bound(&copy(blocks), None).unwrap().duration, Provenance::Predicted);
}

#[test]
fn without_work_nothing_is_said() {
    assert_eq!(bound(&Case { work: None, ..copy(100 * WAVE) }, Some(50.0)), None);
    assert_eq!(bound(&Case::of_launch(LaunchConfig::new(1, 32)), None), None);
}
