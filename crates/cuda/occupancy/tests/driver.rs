//! The calculator against those who decide.
//!
//! * Every row of `data/h200/device/occupancy.csv.zst` is what
//!   `cuOccupancyMaxActiveBlocksPerMultiprocessor` answered on an H200 for a random kernel and
//!   configuration.
//! * Every row of `tests/data/reference.csv` is what NVIDIA's own calculator (`cuda_occupancy.h`)
//!   answers, for every compute capability; `tests/data/reference.c` made it.

use std::collections::HashMap;

use cuda_launch::{Carveout, DeviceAttributes, FunctionAttributes};
use occupancy::{DeviceLimits, theoretical};

const ANSWERS: &str = "data/h200/device/occupancy.csv.zst";
const REFERENCE: &str = "crates/cuda/occupancy/tests/data/reference.csv";
const DEVICE: &str = "data/h200/device/attributes.csv";

/// Rows of a CSV file of the repository as maps from column to value; `#` starts a comment.
fn rows(path: &str) -> Vec<HashMap<String, String>> {
    let text = String::from_utf8(test_manifest::content(path)).expect("a table is text");
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    lines
        .map(|line| columns.iter().map(|c| c.to_string()).zip(line.split(',').map(str::to_owned)).collect())
        .collect()
}

fn h200() -> DeviceLimits {
    let attributes: Vec<(u32, i32)> = rows(DEVICE)
        .iter()
        .filter_map(|row| Some((row.get("attribute")?.parse().ok()?, row.get("value")?.parse().ok()?)))
        .collect();
    DeviceLimits::from_pairs(&attributes).expect("an H200 is of compute capability 9.0")
}

#[test]
fn the_named_h200_is_what_its_driver_says() {
    assert_eq!(occupancy::products::H200, h200().attributes);
}

/// Asserts that the calculator gives the column `blocks` of every row.
fn assert_equal(path: &str, least_rows: usize, limits: impl Fn(&dyn Fn(&str) -> u32) -> DeviceLimits) {
    let answers = rows(path);
    assert!(answers.len() >= least_rows, "{path} has only {} rows", answers.len());
    let mut wrong = Vec::new();
    for row in &answers {
        let signed =
            |column: &str| row[column].parse::<i32>().unwrap_or_else(|_| panic!("{column} in {row:?}"));
        let value = |column: &str| signed(column) as u32;
        let kernel = FunctionAttributes {
            registers: value("registers"),
            static_shared_bytes: value("static_shared"),
            max_dynamic_shared_bytes: Some(value("max_dynamic_shared")),
            carveout: Carveout::from_attribute(signed("carveout")),
            barriers: row.get("barriers").map_or(0, |_| value("barriers")),
            ..FunctionAttributes::default()
        };
        let threads = value("block_threads");
        let ours = theoretical(&limits(&value), &kernel, threads, value("dynamic_shared"));
        if ours.blocks_per_sm != value("blocks") {
            wrong.push(format!("{row:?}: {ours:?}"));
        }
    }
    let some = &wrong[..wrong.len().min(10)];
    assert!(
        wrong.is_empty(),
        "{} of {} rows differ, such as\n{}",
        wrong.len(),
        answers.len(),
        some.join("\n")
    );
}

#[test]
fn equals_the_driver_of_an_h200() {
    let limits = h200();
    assert_equal(ANSWERS, 2000, |_| limits.clone());
}

#[test]
fn equals_the_reference_on_every_compute_capability() {
    assert_equal(REFERENCE, DeviceLimits::known().count() * 250, |value| {
        DeviceLimits::of_compute_capability(value("major"), value("minor")).expect("known")
    });
}

#[test]
fn the_table_agrees_with_the_device() {
    let table = DeviceLimits::of_compute_capability(9, 0).expect("known");
    let device = h200();
    // Products of one compute capability differ in these.
    let attributes = DeviceAttributes {
        multiprocessors: 0,
        clock_khz: 0,
        memory_clock_khz: 0,
        memory_bus_bits: 0,
        l2_cache_bytes: 0,
        ..device.attributes
    };
    assert_eq!(DeviceLimits { attributes, ..device }, table);
}
