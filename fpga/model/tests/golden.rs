//! The golden model against exact attention, and its edges; and, where Icarus Verilog is installed,
//! the RTL of small tiles against the model. `fpga/check` does the rest.

use fpga_model::attention::{Block, Job, Scale};
use fpga_model::error::{errors, random_head};
use fpga_model::exp2::Table;
use fpga_model::quantize::scale;
use fpga_model::{Tile, cases, cycles, product, vectors};
use proptest::prelude::*;
use std::path::Path;
use test_process::Command;

const TILE: Tile = Tile { size: 8, dimension: 32 };

/// A job of `blocks` blocks whose numbers come from `seed`.
fn job(blocks: usize, seed: u64) -> Job {
    let mut state = seed;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as i8
    };
    let mut rows =
        || (0..TILE.size).map(|_| (0..TILE.dimension).map(|_| number()).collect()).collect::<Vec<Vec<i8>>>();
    let queries = rows();
    let block = |_| Block { keys: rows(), values: rows(), present: vec![true; TILE.size] };
    Job {
        queries,
        blocks: (0..blocks).map(block).collect(),
        causal: false,
        position: 0,
        scale: Scale { mult: 40_000, right: 19 },
    }
}

/// Exact attention of a job's whole numbers, in the units of the result.
fn exact(job: &Job, row: usize) -> Vec<f64> {
    let factor = f64::from(job.scale.mult) / f64::from(job.scale.right).exp2() / 1024.0;
    let mut keys = Vec::new();
    for (number, block) in job.blocks.iter().enumerate() {
        for column in 0..TILE.size {
            let position = (number * TILE.size + column) as i32;
            if block.present[column] && (!job.causal || position <= job.position + row as i32) {
                keys.push((&block.keys[column], &block.values[column]));
            }
        }
    }
    let dot = |a: &[i8], b: &[i8]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let logarithms: Vec<f64> = keys.iter().map(|(key, _)| dot(&job.queries[row], key) * factor).collect();
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logarithms.iter().map(|t| (t - largest).exp2()).collect();
    let total: f64 = weights.iter().sum();
    let element =
        |d: usize| weights.iter().zip(&keys).map(|(w, (_, value))| w * f64::from(value[d])).sum::<f64>();
    (0..TILE.dimension).map(|d| if keys.is_empty() { 0.0 } else { 256.0 * element(d) / total }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn results_are_near_exact_attention(
        seed: u64, blocks in 1usize..5, causal: bool, position in -10i32..40, mask: u32,
    ) {
        let mut job = job(blocks, seed);
        (job.causal, job.position) = (causal, position);
        for (number, block) in job.blocks.iter_mut().enumerate() {
            for (column, present) in block.present.iter_mut().enumerate() {
                *present = mask >> ((number * TILE.size + column) % 32) & 1 == 1;
            }
        }
        for (row, result) in job.result(TILE, &Table::default()).iter().enumerate() {
            for (result, exact) in result.iter().zip(exact(&job, row)) {
                // A unit is 1/256 of a value's unit; weights and logarithms are off by some 2^-11.
                prop_assert!((f64::from(*result) - exact).abs() < 40.0, "row {row}: {result} for {exact}");
            }
        }
    }

    #[test]
    fn a_scale_is_within_2_to_the_minus_16(exponent in -15.0f64..15.9) {
        let factor = exponent.exp2();
        let scale = scale(factor);
        let made = f64::from(scale.mult) / f64::from(scale.right).exp2();
        prop_assert!((made / factor - 1.0).abs() <= 2f64.powi(-16), "{made} for {factor}");
    }

    #[test]
    fn products_are_those_of_wide_numbers(seed: u64) {
        let job = job(1, seed);
        let sums = product::tile(TILE.size, &job.blocks[0].keys, &job.blocks[0].values);
        let wide = |i: usize, j: usize| -> i64 {
            let terms = job.blocks[0].keys.iter().zip(&job.blocks[0].values);
            terms.map(|(a, b)| i64::from(a[i]) * i64::from(b[j])).sum()
        };
        for i in 0..TILE.size {
            for j in 0..TILE.size {
                prop_assert_eq!(i64::from(sums[i * TILE.size + j]), wide(i, j));
            }
        }
    }
}

#[test]
fn the_tile_adds_little_to_the_error_of_quantization() {
    for causal in [false, true] {
        let errors = errors(TILE, &random_head(96, TILE.dimension, causal, 7), &Table::default());
        let ratio = errors.tile.relative / errors.quantization.relative;
        assert!(ratio < 1.1, "{ratio} times the error of quantization");
        assert!(errors.arithmetic.relative < 0.002, "fixed point alone: {:?}", errors.arithmetic);
    }
}

#[test]
fn a_key_far_below_the_maximum_counts_for_nothing() {
    let mut with = job(2, 3);
    with.queries = vec![vec![100; TILE.dimension]; TILE.size];
    with.blocks[0].keys = vec![vec![100; TILE.dimension]; TILE.size];
    with.blocks[1].keys = vec![vec![-100; TILE.dimension]; TILE.size];
    let mut without = with.clone();
    without.blocks.pop();
    let table = Table::default();
    assert_eq!(with.result(TILE, &table), without.result(TILE, &table));
}

#[test]
fn long_jobs_are_busy_and_short_ones_are_not() {
    let tile = Tile { size: 8, dimension: 64 };
    let share = |blocks| {
        let job = cycles::attention(tile, blocks);
        job.busy as f64 / job.period as f64
    };
    assert!(share(128) > 0.98 && share(8) > 0.85 && share(1) < 0.5);
    assert_eq!(cycles::products(8, &[8, 8, 100, 2, 9]), 8 + 8 + 100 + 8 + 9 + 8 + 4);
}

#[test]
fn vectors_have_a_word_for_each_beat() {
    let cases = cases::attention(TILE, 1, 5);
    let written = vectors::attention(TILE, &cases);
    let beats: usize = cases.iter().map(|case| TILE.dimension * (1 + 2 * case.job.blocks.len())).sum();
    assert_eq!(written.beats.lines().count(), beats);
    assert_eq!(written.expected.lines().count(), TILE.dimension * cases.len());
    // 1 + 40 + 1 + 8 + 64 bits.
    assert!(
        written.beats.lines().all(|line| line.len() == 29 && line.bytes().all(|b| b.is_ascii_hexdigit()))
    );
}

#[test]
fn small_tiles_equal_the_model_on_icarus() {
    if !Command::new("iverilog").arg("-V").output().is_ok_and(|output| output.status.success()) {
        test_skip::impossible_here("iverilog is not installed, so the RTL was not simulated: docs/fpga.md");
        return;
    }
    let work = tempfile::tempdir().expect("a folder");
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../check");
    let output = Command::new("python3")
        .arg("-B")
        .arg(check)
        .args(["--short", "--size", "4", "--dimension", "32", "--model", env!("CARGO_BIN_EXE_fpga-model")])
        .arg("--work")
        .arg(work.path())
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
