//! The shipped models: that they are whole, and that what they say follows from what is known.

use apex_predict::features::Set;
use apex_predict::{Basis, Case, Device, Impossible, LoadError, Models};
use apex_random::Random;
use cuda_launch::{FunctionAttributes, LaunchConfig};
use std::collections::BTreeSet;
use std::fs;

fn launch(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig::new(blocks, threads)
}

/// `out[i] = a * x[i] + y[i]`, one thread for each element.
const SAXPY: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>; .reg .f32 %f<5>; .reg .b32 %r<6>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f1, [a]; ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra done;
    cvta.to.global.u64 %rd3, %rd1; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd3, %rd4;
    cvta.to.global.u64 %rd6, %rd2; add.s64 %rd7, %rd6, %rd4;
    ld.global.f32 %f2, [%rd5]; ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd7], %f4;
done:
    ret;
}";

/// Everything is known of a launch of [`SAXPY`].
fn saxpy(blocks: u32, threads: u32, n: u64) -> Case {
    use ptx_estimate::{Argument, BUDGET, Estimator};
    let module = ptx::parse(SAXPY).unwrap();
    let function = module.functions().next().unwrap();
    let shape = launch(blocks, threads);
    let arguments = [Argument::Pointer, Argument::Pointer, Argument::Bits(0x3f80_0000), Argument::Bits(n)];
    let work = Estimator::new(&module, function).estimate(&shape, &arguments, BUDGET);
    let kernel =
        FunctionAttributes { registers: 16, max_threads_per_block: 1024, ..FunctionAttributes::default() };
    let mix = Some(ptx::Mix::of(function));
    Case { launch: launch(blocks, threads), kernel: Some(kernel), mix, work: Some(work) }
}

#[test]
fn the_more_is_known_the_higher_the_basis() {
    let (models, device) = (Models::shipped(), Device::h200());
    let mut case = saxpy(4096, 256, 1 << 20);
    let mut bases = Vec::new();
    for known in [Basis::Work, Basis::Code, Basis::Kernel, Basis::Launch] {
        let prediction = models.predict(&device, &case).unwrap();
        bases.push(prediction.basis);
        for estimate in [prediction.achieved_occupancy, prediction.sm_utilisation, prediction.warp_efficiency]
        {
            assert!(0.0 <= estimate.low && estimate.high <= 1.0, "{estimate:?}");
        }
        for estimate in [prediction.achieved_occupancy, prediction.duration_us] {
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{estimate:?}");
        }
        match known {
            Basis::Work => case.work = None,
            Basis::Code => case.mix = None,
            _ => case.kernel = None,
        }
    }
    assert_eq!(bases, [Basis::Work, Basis::Code, Basis::Kernel, Basis::Launch]);
}

/// 2^26 elements of the suite's `axpy_f32` take 257 us on an H200, by its measured 131 to 138 us
/// for 34 to 35 million (`data/h200/launches`). This is another kernel, so half as much again is
/// allowed either way.
#[test]
fn a_launch_that_streams_takes_as_long_as_memory_needs() {
    let prediction = Models::shipped().predict(&Device::h200(), &saxpy(1 << 18, 256, 1 << 26)).unwrap();
    let us = prediction.duration_us.value;
    assert!((257.0 / 1.5..257.0 * 1.5).contains(&us), "{us}");
    assert!(prediction.achieved_occupancy.value > 0.6, "{:?}", prediction.achieved_occupancy);
}

#[test]
fn what_cannot_run_is_refused_with_the_reason() {
    let (models, device) = (Models::shipped(), Device::h200());
    let refused = |case: &Case| models.predict(&device, case).unwrap_err();
    assert_eq!(refused(&Case::of_launch(launch(0, 32))), Impossible::Empty("grid"));
    assert_eq!(refused(&Case::of_launch(launch(1, 0))), Impossible::Empty("block"));
    let kernel = FunctionAttributes { registers: 255, ..FunctionAttributes::default() };
    let heavy = Case { kernel: Some(kernel), ..Case::of_launch(launch(1, 1024)) };
    assert_eq!(refused(&heavy), Impossible::DoesNotFit("registers"));
    let bound =
        FunctionAttributes { registers: 32, max_threads_per_block: 256, ..FunctionAttributes::default() };
    let wide = Case { kernel: Some(bound), ..Case::of_launch(launch(1, 512)) };
    assert_eq!(refused(&wide), Impossible::Threads { threads: 512, most: 256 });
}

/// Each limit of the device, at it and one beyond it: what is beyond is refused by its name.
#[test]
fn what_is_beyond_a_limit_is_refused_by_its_name() {
    let (models, device) = (Models::shipped(), Device::h200());
    let plain = FunctionAttributes { registers: 16, ..FunctionAttributes::default() };
    let small = launch(1, 1);
    let grid = |axis: usize, side| {
        let mut grid = [1; 3];
        grid[axis] = side;
        (LaunchConfig { grid: grid.into(), ..small }, plain)
    };
    let block = |axis: usize, side| {
        let mut block = [1; 3];
        block[axis] = side;
        (LaunchConfig { block: block.into(), ..small }, plain)
    };
    type Asks<'a> = &'a dyn Fn(u32) -> (LaunchConfig, FunctionAttributes);
    let limits: [(&str, u32, Asks<'_>); 11] = [
        ("x of the grid", i32::MAX as u32, &|side| grid(0, side)),
        ("y of the grid", 65_535, &|side| grid(1, side)),
        ("z of the grid", 65_535, &|side| grid(2, side)),
        ("threads of a block", 1024, &|side| block(0, side)),
        ("threads of a block", 1024, &|side| block(1, side)),
        ("z of the block", 64, &|side| block(2, side)),
        ("registers of a thread", 255, &|registers| (small, FunctionAttributes { registers, ..plain })),
        ("local memory of a thread, bytes", 512 << 10, &|local_bytes| {
            (small, FunctionAttributes { local_bytes, ..plain })
        }),
        ("static shared memory of a block, bytes", 48 << 10, &|static_shared_bytes| {
            (small, FunctionAttributes { static_shared_bytes, ..plain })
        }),
        ("shared memory of a block, bytes", 227 << 10, &|dynamic_shared_bytes| {
            (LaunchConfig { dynamic_shared_bytes, ..small }, plain)
        }),
        ("shared memory of a block, bytes", 227 << 10, &|bytes| {
            let kernel = FunctionAttributes { static_shared_bytes: 1 << 10, ..plain };
            (LaunchConfig { dynamic_shared_bytes: bytes - (1 << 10), ..small }, kernel)
        }),
    ];
    for (name, most, asks) in limits {
        let said = |value| {
            let (launch, kernel) = asks(value);
            models.predict(&device, &Case { kernel: Some(kernel), ..Case::of_launch(launch) })
        };
        assert!(said(most).is_ok(), "{name} {most}: {:?}", said(most));
        let most = u64::from(most);
        assert_eq!(
            said(most as u32 + 1).unwrap_err(),
            Impossible::TooLarge { what: name.to_owned(), value: most + 1, most }
        );
    }
    let all = LaunchConfig::new([u32::MAX; 3], [u32::MAX; 3]).with_dynamic_shared_bytes(u32::MAX);
    let refused = models.predict(&device, &Case::of_launch(all)).unwrap_err().to_string();
    assert_eq!(refused, "x of the grid: 4294967295 is above the device's limit of 2147483647");
}

/// 132 multiprocessors issue four warps' instructions a cycle at 1.98 GHz, and take a block in a
/// cycle each.
#[test]
fn no_duration_is_below_what_issuing_takes() {
    let (models, device) = (Models::shipped(), Device::h200());
    let most = i32::MAX as u32;
    for (blocks, threads, least_us) in [
        (most, 1024, 65_733.0),
        (most, 1, 8_216.0),
        (most, 32, 8_216.0),
        (1 << 24, 1024, 513.0),
        (1 << 20, 256, 8.0),
    ] {
        let mut cases = vec![Case::of_launch(launch(blocks, threads)), saxpy(blocks, threads, 1 << 10)];
        cases.push(Case { work: None, ..cases[1].clone() });
        cases.push(Case { mix: None, ..cases[2].clone() });
        for case in &cases {
            let said = models.predict(&device, case).unwrap();
            let from = Case { launch: launch(1024, threads), ..case.clone() };
            let changed = models.what_if(&device, &from, 5.0, case).unwrap();
            for time in [said.duration_us, changed] {
                assert!(time.low >= least_us * 0.999, "{:?}, {blocks} x {threads}: {time:?}", said.basis);
                assert!(time.low <= time.value && time.value <= time.high, "{time:?}");
            }
            // The interval does not shrink to the floor.
            assert!(said.duration_us.high > 1.05 * said.duration_us.low, "{:?}", said.duration_us);
        }
    }
    let huge = LaunchConfig::new([most, 65_535, 65_535], 1024);
    let said = models.predict(&device, &Case::of_launch(huge)).unwrap().duration_us;
    assert!(said.low >= 65_733.0 * 65_535f64.powi(2) * 0.999 && said.high.is_finite(), "{said:?}");
}

#[test]
fn what_if_starts_from_what_was_measured() {
    let (models, device) = (Models::shipped(), Device::h200());
    let (from, to) = (saxpy(1 << 12, 256, 1 << 24), saxpy(1 << 12, 128, 1 << 24));
    let one = models.what_if(&device, &from, 100.0, &to).unwrap();
    let other = models.what_if(&device, &from, 200.0, &to).unwrap();
    assert!(one.low <= one.value && one.value <= one.high, "{one:?}");
    // Twice the time before is about twice the time after.
    assert!((1.5..3.0).contains(&(other.value / one.value)), "{one:?} {other:?}");
}

/// Whatever is asked, what is said is finite, and repeated questions get the same answer.
#[test]
fn any_launch_gets_an_answer() {
    let (models, device) = (Models::shipped(), Device::h200());
    let mut random = Random::new(5);
    let mut answered = 0;
    for _ in 0..2000 {
        let mut side = |bits: usize| 1 + (random.bits() >> (64 - random.index(bits) as u32 - 1)) as u32 / 2;
        let launch = LaunchConfig::new([side(31), side(16), side(16)], [side(11), side(5), side(3)])
            .with_dynamic_shared_bytes(side(18));
        let kernel = FunctionAttributes {
            registers: side(9),
            static_shared_bytes: side(16),
            local_bytes: side(16),
            ..FunctionAttributes::default()
        };
        let case = Case { kernel: Some(kernel), ..Case::of_launch(launch) };
        let Ok(prediction) = models.predict(&device, &case) else { continue };
        assert!(
            prediction.duration_us.high.is_finite() && prediction.duration_us.low > 0.0,
            "{case:?}: {prediction:?}"
        );
        assert_eq!(models.predict(&device, &case).unwrap(), prediction);
        answered += 1;
    }
    assert!(answered > 200, "{answered}");
}

#[test]
fn names_of_features_are_unique() {
    for set in Set::ALL {
        let names = set.names();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{set:?}");
    }
    assert_eq!(Set::Small.names().len(), 8);
}

#[test]
fn a_folder_with_a_wrong_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = |file: &str| test_manifest::content(&format!("crates/predict/predict/models/{file}.zst"));
    for file in Models::FILES {
        fs::write(folder.path().join(file), shipped(file)).unwrap();
    }
    Models::load(folder.path()).unwrap();
    // Another model's file.
    fs::write(folder.path().join("large.apexmodel"), shipped("small.apexmodel")).unwrap();
    let error = Models::load(folder.path()).unwrap_err();
    assert!(matches!(error, LoadError::Other { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("large.apexmodel") && said.contains("apex train"), "{said}");
    // A part of one.
    let whole = shipped("large.apexmodel");
    fs::write(folder.path().join("large.apexmodel"), &whole[..whole.len() / 2]).unwrap();
    let said = Models::load(folder.path()).unwrap_err().to_string();
    assert!(said.contains("large.apexmodel") && said.contains("cut off"), "{said}");
    fs::remove_file(folder.path().join("large.apexmodel")).unwrap();
    assert!(Models::load(folder.path()).unwrap_err().to_string().contains("large.apexmodel"));
}
