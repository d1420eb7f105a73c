//! Times of parts against sums done by hand, with rates that make these easy.

use super::*;
use crate::case::Case;
use cuda_launch::{FunctionAttributes, LaunchConfig};

fn assert_close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{what}: {found}, not {expected}");
}

/// Rates for sums by hand: no two parts have the same.
fn rates() -> Rates {
    let rates = [
        (Rate::Start, 2.0),
        (Rate::Overlap, 2.0),
        (Rate::OverlapWithin, 3.0),
        (Rate::Block, 6.0),
        (Rate::Warp, 3.0),
        (Rate::L1Latency, 40.0),
        (Rate::L2Latency, 240.0),
        (Rate::MemoryLatency, 640.0),
        (Rate::Waiting, 2.0),
        (Rate::Path, 1.5),
        (Rate::Barrier, 20.0),
        (Rate::L2Bytes, 64.0),
        (Rate::StoreBytes, 3.0),
        (Rate::Memory, 1.25),
        (Rate::L2Share, 0.5),
        (Rate::L2Edge, 3f64.ln()),
        (Rate::Partial, 2.0),
        (Rate::Request, 1.75),
        (Rate::Line, 2.5),
        (Rate::Sector, 0.5),
        (Rate::Shared, 1.25),
        (Rate::SharedAtomic, 3.0),
        (Rate::Local, 1.5),
        (Rate::Spill, 0.75),
        (Rate::Constant, 2.5),
        (Rate::Atomic, 500.0),
        (Rate::SliceSectors, 16.0),
        (Rate::Slices, 8.0),
        (Rate::Integer, 0.5),
        (Rate::Double, 4.0),
        (Rate::Special, 2.0),
        (Rate::Tensor, 8.0),
        (Rate::Busy, 0.25),
    ];
    assert_eq!(rates.len(), Rate::COUNT);
    rates.into_iter().fold(Rates::PRIOR, |all, (rate, value)| all.with(rate, value))
}

/// Sectors of a block's loads, and of the launch's: a load of one of the 64 warps waits for them with
/// a probability of 1/2 and of 3/4, where 5 loads wait for each other and [`Rate::Waiting`] is 2.
fn sectors() -> (f64, f64) {
    (160.0 * 2f64.ln(), 160.0 * 4f64.ln())
}

fn work() -> Work {
    let (block_sectors, launch_sectors) = sectors();
    let mut work = Work {
        global_load_requests: 100_000.0,
        global_load_sectors: 500_000.0,
        global_lines: 128_000.0,
        block_sectors,
        launch_sectors,
        span_sectors: 5000.0,
        global_store_requests: 60_000.0,
        global_store_sectors: 220_000.0,
        // Three quarters of the sectors written.
        global_store_bytes: 14_400.0,
        written_sectors: 600.0,
        shared_wavefronts: 200_000.0,
        shared_atomic_turns: 50_000.0,
        local_sectors: 80_000.0,
        constant_wavefronts: 64_000.0,
        atomic_turns: 30_000.0,
        atomic_sectors: 64.0,
        latency_cycles: 5.0 * ptx_estimate::GLOBAL_LOAD_CYCLES + 100.0,
        serial_loads: 5.0,
        machine_instructions: 160_000.0,
        issue_cycles: 5000.0,
        barriers_per_warp: 3.0,
        warps: 64.0,
        longest_warp: 16_015.625,
        ..Work::default()
    };
    for (class, count) in [
        (Class::Integer, 100_000.0),
        (Class::Compare, 140_000.0),
        (Class::Double, 40_000.0),
        (Class::Special, 60_000.0),
        (Class::Convert, 40_000.0),
        (Class::Tensor, 30_000.0),
    ] {
        work.instructions[class as usize] = count;
    }
    work
}

/// 50 multiprocessors of 1 GHz, the busiest of which has a quarter more than the mean: 40,000 cycles
/// of the launch are a microsecond. Half of what the launch touches is not in L2.
fn demand() -> Demand {
    Demand {
        work: work(),
        blocks: 8000.0,
        sms: 50.0,
        rounding: 1.25,
        turns: 3.0,
        cycles_per_us: 1000.0,
        memory_bytes_per_us: 1000.0,
        l2_bytes: 2.0 * (32.0 * (sectors().1 + 600.0) + 1.0),
        spilled: 200_000.0,
    }
}

#[test]
fn each_part_takes_what_its_rate_says() {
    let (block, launch) = sectors();
    let expected: Parts = [
        1.0, // 160,000 instructions, 4 in a cycle
        2.0, // 64 warps of 5000 cycles, a quarter of them
        3.0, // 240,000 of half a cycle
        4.0,
        5.0, // 100,000 of 2 cycles
        6.0,
        7.0, // 160,000 requests
        8.0,
        9.0,  // 720,000 sectors
        10.0, // 250,000 cycles and 150,000
        // Stores count three times; 32 bytes are half a cycle.
        (block + 3.0 * 220_000.0) / 2.0 / 40_000.0,
        // Half of the sectors: a quarter of those written is partial and costs two more.
        1.25 * 16.0 * (launch + 600.0 + 0.25 * 2.0 * 600.0) / 1000.0,
        // 150 cycles of the path, 5 loads of 40 + 200 / 2 + 400 · 3/4 · 1/2 · 1/2 cycles, 60 cycles
        // at barriers: 1.285 µs, for three waves ...
        3.855,
        // ... and for a warp with 2.5 times the mean of 410,000 / 64 instructions.
        3.2125,
        10.75, // 120,000 cycles, 150,000 and 160,000
        15.0,  // 30,000 turns of 4 slices, 500 in a microsecond
        // 8000 blocks and 64 warps.
        48_192.0 / 40_000.0,
    ];
    let found = demand().parts(&rates());
    for (part, (found, expected)) in found.into_iter().zip(expected).enumerate() {
        assert_close(found, expected, &format!("part {part}"));
    }
}

#[test]
fn what_does_not_fit_into_l2_is_missed() {
    let missed = |factor: f64| {
        let mut demand = demand();
        demand.l2_bytes *= factor;
        demand.missed(&rates())
    };
    // Odds of 3 to the power of the logarithm.
    for (factor, expected) in [(1.0, 0.5), (0.5, 0.75), (2.0, 0.25), (0.25, 0.9)] {
        assert_close(missed(factor), expected, &format!("{factor}"));
    }
    // A launch touches no more than lies between its lowest and its highest sector.
    let mut demand = demand();
    demand.work.span_sectors = 100.0;
    demand.l2_bytes = 2.0 * 3201.0;
    assert_close(demand.missed(&rates()), 0.5, "span");
}

#[test]
fn a_warp_waits_for_its_loads_one_after_the_other() {
    let us = |change: fn(&mut Work)| {
        let mut demand = demand();
        change(&mut demand.work);
        demand.warp_us(&rates(), 0.5)
    };
    assert_close(us(|_| ()), 1.285, "as above");
    // Nothing but loads: at least 4 cycles of the path.
    assert_close(us(|work| work.latency_cycles = 0.0), 1.285 - 0.144, "short path");
    assert_close(us(|work| work.barriers_per_warp = 0.0), 1.225, "no barriers");
    // Loads that L1 has: 40 cycles each.
    let in_l1 = us(|work| work.block_sectors = 0.0);
    assert_close(in_l1, 0.15 + 5.0 * 0.04 + 0.06, "in L1");
    // Where none waits for another, a warp waits for one load, or for the share of the warps that
    // load.
    let alone = |requests: f64| {
        let mut demand = demand();
        let path = 5.0 * ptx_estimate::GLOBAL_LOAD_CYCLES;
        demand.work.latency_cycles -= path;
        (demand.work.serial_loads, demand.work.block_sectors) = (0.0, 0.0);
        demand.work.global_load_requests = requests;
        demand.warp_us(&rates(), 0.5)
    };
    for (requests, load_cycles) in [(0.0, 0.0), (32.0, 20.0), (64.0, 40.0), (6400.0, 40.0)] {
        assert_close(alone(requests), 0.15 + load_cycles / 1000.0 + 0.06, &format!("{requests} requests"));
    }
}

#[test]
fn shares_and_slices_have_bounds() {
    let part = |part: usize, change: fn(&mut Work)| {
        let mut demand = demand();
        change(&mut demand.work);
        demand.parts(&rates())[part]
    };
    // Atomic operations on one sector have one slice; there are 8.
    assert_close(part(15, |work| work.atomic_sectors = 1.0), 60.0, "one slice");
    assert_close(part(15, |work| work.atomic_sectors = 1e6), 7.5, "all slices");
    // No warp is longer than the mean where all are equal.
    assert_close(part(13, |work| work.longest_warp = 1.0), 1.285, "equal warps");
    // More bytes than sectors: the same ones were stored to again; none is partial.
    let memory = |partial: f64| 1.25 * 16.0 * (sectors().1 + 600.0 * (1.0 + 2.0 * partial)) / 1000.0;
    assert_close(part(11, |work| work.global_store_bytes = 1e9), memory(0.0), "whole");
    assert_close(part(11, |work| work.global_store_bytes = 0.0), memory(1.0), "partial");
}

#[test]
fn parts_of_a_kind_and_kinds_are_joined() {
    assert_close(join(2.0, &[3.0, 4.0]), 5.0, "two");
    assert_close(join(3.0, &[3.0, 4.0, 5.0]), 6.0, "three");
    assert_close(join(7.0, &[3.0]), 3.0, "one");
    assert_close(join(1.0, &[0.0, 3.0]), 3.000_001, "none");
    let (demand, rates) = (demand(), rates());
    let parts = demand.parts(&rates);
    let kinds: [&[usize]; 7] =
        [&[0, 1, 2, 3, 4, 5], &[6, 7, 8, 9], &[10, 11], &[12, 13], &[14], &[15], &[16]];
    let cubes = kinds.map(|kind| kind.iter().map(|&part| parts[part].powi(3)).sum::<f64>());
    let squares: f64 = cubes.iter().map(|cube| cube.cbrt().powi(2)).sum();
    let computed = demand.computed(&rates);
    assert_close(computed.us, 2.0 + squares.sqrt(), "the launch");
    // The longest: that of memory, some 22 µs.
    assert_eq!(KIND_NAMES[computed.kind], "L2 and memory");
    let mut atomic = demand;
    atomic.work.atomic_turns *= 10.0;
    assert_eq!(KIND_NAMES[atomic.computed(&rates).kind], "atomic operations");
}

/// Returns the demand of a launch of these blocks of 64 threads on an H200.
fn demand_of(blocks: u64, kernel: FunctionAttributes, work: Work) -> Option<Demand> {
    let launch = LaunchConfig::new(blocks as u32, 64);
    let case = Case {
        kernel: Some(kernel),
        mix: Some(ptx::Mix::default()),
        work: Some(work),
        ..Case::of_launch(launch)
    };
    Demand::of(&Placed::new(&Device::h200(), &case).unwrap())
}

#[test]
fn a_demand_is_of_a_device_and_a_grid() {
    let kernel = FunctionAttributes { registers: 30, ..FunctionAttributes::default() };
    let of = |blocks| demand_of(blocks, kernel, work()).unwrap();
    // The busiest of the 132 multiprocessors has 2 blocks of 200 / 132.
    let demand = of(200);
    assert_eq!((demand.blocks, demand.sms, demand.turns), (200.0, 132.0, 1.0));
    assert_close(demand.rounding, 1.32, "2 of 200 / 132");
    assert_close(demand.cycles_per_us, 1980.0, "1.98 GHz");
    // Two transfers of 752 bytes a clock of 3201 MHz.
    assert_close(demand.memory_bytes_per_us, 4_814_304.0, "memory");
    assert_eq!(demand.l2_bytes, 62_914_560.0);
    let few = of(100);
    assert_eq!((few.sms, few.rounding), (100.0, 1.0));
    // 32 blocks on each multiprocessor are a wave.
    assert_eq!([of(4224).turns, of(4225).turns, of(12_673).turns], [1.0, 2.0, 4.0]);
}

#[test]
fn local_memory_that_the_code_does_not_use_holds_spilled_registers() {
    let kernel = |local_bytes| FunctionAttributes { registers: 30, local_bytes, ..Default::default() };
    let spilled = |local_bytes, local_sectors| {
        let work = Work { local_sectors, ..work() };
        demand_of(200, kernel(local_bytes), work).unwrap().spilled
    };
    // 10 of 40 places of operands, 4 sectors for each of 410,000 instructions.
    assert_close(spilled(40, 0.0), 410_000.0, "10 words");
    assert_eq!(spilled(0, 0.0), 0.0);
    assert_eq!(spilled(40, 1.0), 0.0);
}

#[test]
fn without_work_there_is_no_demand() {
    let kernel = FunctionAttributes { registers: 30, ..FunctionAttributes::default() };
    assert!(demand_of(1, kernel, Work { unknown_calls: 1.0, ..work() }).is_none());
    let case = Case { work: Some(work()), ..Case::of_launch(LaunchConfig::new(1, 64)) };
    assert!(Demand::of(&Placed::new(&Device::h200(), &case).unwrap()).is_none());
}

#[test]
fn errors_have_classes_by_size_and_change() {
    let of = |us, kind| Computed { us, kind };
    let sizes = [3.99, 4.0, 5.99, 6.0, 600.0].map(|us| of(us, 0).size());
    assert_eq!(sizes, [0, 1, 1, 2, 2]);
    assert_eq!([of(1.0, 2).change(&of(9.0, 2)), of(1.0, 2).change(&of(1.0, 3))], [0, 1]);
    // Twice as long as computed: 2^0.9 and 2^0.4.
    assert_close(of(6.0, 1).after(&of(10.0, 1), 20.0), 11.196_395_898_441_69, "one kind");
    assert_close(of(6.0, 1).after(&of(10.0, 2), 20.0), 7.917_047_464_637_365, "another kind");
}

fn timing() -> Timing {
    let margins = |duration: f64, change: f64| Margins {
        durations: [[-duration, duration]; SIZES],
        changes: [[-change, change]; CHANGES],
        utilisations: [[-0.02, 0.03]; LEVELS],
    };
    let starts = vec![("NVIDIA H200".to_owned(), 2.25), ("another one".to_owned(), 3.0)];
    let rates = DeviceRates { elsewhere: Rates::PRIOR, starts };
    Timing { rates, loads: Loads::PRIOR, home: margins(0.75, 0.1), away: margins(1.5, 0.4) }
}

#[test]
fn a_timing_is_read_as_it_was_written() {
    let timing = timing();
    let notes = |from: &str, to: &str| -> Vec<(String, String)> {
        let notes = timing.notes().into_iter();
        notes.map(|(name, text)| (name.to_owned(), text.replacen(from, to, 1))).collect()
    };
    assert_eq!(Timing::of_notes(&notes("", "")), Ok(timing.clone()));
    for (from, to) in [
        ("0.03", "NaN"),
        ("-0.75", "-64"),
        ("1.5", "64"),
        (" ", ""),
        ("130", "0"),
        ("2.25", "-1"),
        ("2.25", "inf"),
        ("3 ", "x "),
    ] {
        assert!(Timing::of_notes(&notes(from, to)).is_err(), "{from} {to}");
    }
    assert!(Timing::of_notes(&notes("-0.75", "-63.5")).is_ok());
    assert!(Timing::of_notes(&notes("", "")[1..]).is_err());
    let mut more = notes("", "");
    more[0].1.push_str(" 1");
    assert!(Timing::of_notes(&more).is_err(), "one number too many");
    let start = |name: &str| {
        let device = Device { name: name.to_owned(), ..Device::h200() };
        timing.rates.on(&device).get(Rate::Start)
    };
    assert_eq!([start("another one"), start("NVIDIA H200"), start("")], [3.0, 2.25, 2.0]);
}
