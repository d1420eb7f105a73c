//! The committed data sets can be read and hold what they should, and the tables of their cards are
//! computed from them.
//!
//! The tables of a card stand between two marks and are generated: `BLESS=1` writes them anew.

use apex_dataset::{DataSet, DeviceKind, KernelRow, LaunchRow, Timing};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Between these lines of a card are its tables.
const MARKS: [&str; 2] =
    ["<!-- generated: BLESS=1 cargo test -p apex-dataset --test cards -->\n", "<!-- end -->\n"];
/// Bounds of the table of times, in microseconds.
const DECADES: [f64; 7] = [0.0, 1.0, 10.0, 100.0, 1e3, 1e4, f64::INFINITY];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../data").join(name)
}

fn read(name: &str) -> DataSet {
    DataSet::read(&folder(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// The tables of a data set's card.
struct Card(String);

impl Card {
    fn of(data_set: &DataSet) -> Card {
        let mut card = Card(String::new());
        let kernels: BTreeMap<&str, &KernelRow> =
            data_set.kernels.iter().map(|kernel| (&*kernel.kernel, kernel)).collect();
        card.ranges(data_set, &kernels);
        card.shapes(data_set);
        card.noise(data_set);
        card.devices(data_set);
        card.families(data_set, &kernels);
        card
    }

    fn table(&mut self, title: &str, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let header: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
        let rule: Vec<String> =
            (0..columns.len()).map(|at| if at == 0 { "---" } else { "---:" }.to_owned()).collect();
        let rows: String = rows.into_iter().map(|row| line(&row)).collect();
        self.0 += &format!("\n### {title}\n\n{}{}{rows}", line(&header), line(&rule));
    }

    fn ranges(&mut self, data_set: &DataSet, kernels: &BTreeMap<&str, &KernelRow>) {
        type Quantity<'a> = (&'a str, Box<dyn Fn(&LaunchRow) -> Option<f64> + 'a>);
        let of_kernel = |row: &LaunchRow| kernels[&*row.kernel];
        let quantities: Vec<Quantity<'_>> = vec![
            ("blocks of the grid", Box::new(|row| Some(row.config().blocks() as f64))),
            ("threads of a block", Box::new(|row| Some(row.config().threads_per_block() as f64))),
            (
                "dynamic shared memory of a block, bytes",
                Box::new(|row| Some(row.dynamic_shared_bytes.into())),
            ),
            (
                "static shared memory of a block, bytes",
                Box::new(move |row| Some(of_kernel(row).static_shared_bytes.into())),
            ),
            ("registers of a thread", Box::new(move |row| Some(of_kernel(row).registers.into()))),
            ("`algorithm_bytes`", Box::new(|row| row.algorithm_bytes.map(|bytes| bytes as f64))),
            ("`theoretical_occupancy_percent`", Box::new(|row| row.theoretical_occupancy_percent)),
            ("`time_us`", Box::new(|row| row.timing.time_us)),
            ("`profiled_time_us`", Box::new(|row| row.counters.profiled_time_us)),
            ("`achieved_occupancy_percent`", Box::new(|row| row.counters.achieved_occupancy_percent)),
            ("`sm_issue_percent`", Box::new(|row| row.counters.sm_issue_percent)),
            ("`sm_throughput_percent`", Box::new(|row| row.counters.sm_throughput_percent)),
            ("`memory_throughput_percent`", Box::new(|row| row.counters.memory_throughput_percent)),
            ("`threads_per_instruction`", Box::new(|row| row.counters.threads_per_instruction)),
            ("`dram_read_bytes`", Box::new(|row| row.counters.dram_read_bytes)),
            ("`dram_write_bytes`", Box::new(|row| row.counters.dram_write_bytes)),
        ];
        let row = |(name, of): &Quantity<'_>| {
            let mut values: Vec<f64> = data_set.launches.iter().filter_map(of).collect();
            if values.is_empty() {
                return None;
            }
            let shares = [0.0, 0.1, 0.5, 0.9, 1.0];
            let numbers = shares.map(|share| quantile(&mut values, share).map_or_else(String::new, short));
            Some([vec![(*name).to_owned(), values.len().to_string()], numbers.to_vec()].concat())
        };
        let columns = ["", "launches", "least", "10%", "median", "90%", "most"];
        self.table("Ranges", &columns, quantities.iter().filter_map(row));
    }

    fn shapes(&mut self, data_set: &DataSet) {
        let dimensions = |sides: [u32; 3]| match sides {
            [_, 1, 1] => 1,
            [_, _, 1] => 2,
            _ => 3,
        };
        let count = |of: &dyn Fn(&LaunchRow) -> [u32; 3], wanted: usize| {
            data_set.launches.iter().filter(|row| dimensions(of(row)) == wanted).count().to_string()
        };
        let row = |wanted: usize| {
            vec![
                wanted.to_string(),
                count(&|row| row.grid.to_array(), wanted),
                count(&|row| row.block.to_array(), wanted),
            ]
        };
        self.table("Dimensions in use", &["dimensions", "grids", "blocks"], (1..=3).map(row));
    }

    fn noise(&mut self, data_set: &DataSet) {
        let timed = |row: &LaunchRow| {
            let Timing { time_us: Some(time), time_spread: Some(spread), .. } = row.timing else {
                return None;
            };
            let profiled = row.counters.profiled_time_us?;
            Some([time, 100.0 * spread, profiled - time, time / profiled])
        };
        let timed: Vec<[f64; 4]> = data_set.launches.iter().filter_map(timed).collect();
        let row = |bounds: &[f64]| {
            let inside: Vec<_> = timed.iter().filter(|of| (bounds[0]..bounds[1]).contains(&of[0])).collect();
            let name = match bounds[1].is_finite() {
                true => format!("{} to {}", bounds[0], bounds[1]),
                false => format!("from {}", bounds[0]),
            };
            let shares = [(1, 0.5), (1, 0.9), (2, 0.1), (2, 0.5), (2, 0.9), (3, 0.1), (3, 0.5), (3, 0.9)];
            let number = |(of, share): (usize, f64)| {
                let mut values: Vec<f64> = inside.iter().map(|row| row[of]).collect();
                quantile(&mut values, share).map_or_else(String::new, short)
            };
            [name, inside.len().to_string()].into_iter().chain(shares.map(number)).collect()
        };
        if !timed.is_empty() {
            let columns = [
                "`time_us`",
                "launches",
                "spread, median, %",
                "spread, 90%, %",
                "profiled above time, 10%, us",
                "median, us",
                "90%, us",
                "time over profiled, 10%",
                "median",
                "90%",
            ];
            self.table("Times by decade", &columns, DECADES.windows(2).map(row));
        }
    }

    /// Writes each GPU's result for launches below 100 us: they agree as far as these lines do.
    fn devices(&mut self, data_set: &DataSet) {
        let mut of_device: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for row in &data_set.launches {
            if let (Some(time), Some(profiled)) = (row.timing.time_us, row.counters.profiled_time_us)
                && time < 100.0
            {
                of_device.entry(row.device).or_default().push(profiled - time);
            }
        }
        let row = |(device, mut above): (u32, Vec<f64>)| {
            let numbers =
                [0.1, 0.5, 0.9].map(|share| quantile(&mut above, share).map_or_else(String::new, short));
            [vec![device.to_string(), above.len().to_string()], numbers.to_vec()].concat()
        };
        if !of_device.is_empty() {
            let columns =
                ["GPU", "launches below 100 us", "profiled above time, 10%, us", "median, us", "90%, us"];
            self.table("Times by GPU", &columns, of_device.into_iter().map(row));
        }
    }

    fn families(&mut self, data_set: &DataSet, kernels: &BTreeMap<&str, &KernelRow>) {
        let mut of_family: BTreeMap<&str, Vec<&LaunchRow>> = BTreeMap::new();
        for row in &data_set.launches {
            of_family.entry(&kernels[&*row.kernel].family).or_default().push(row);
        }
        let row = |(family, rows): (&str, Vec<&LaunchRow>)| {
            let kernels = data_set.kernels.iter().filter(|kernel| kernel.family == family).count();
            let throughput = rows.iter().filter(|row| row.counters.sm_throughput_percent.is_some()).count();
            let time = |row: &&LaunchRow| row.timing.time_us.or(row.counters.profiled_time_us);
            let mut times: Vec<f64> = rows.iter().filter_map(time).collect();
            let mut occupancies: Vec<f64> =
                rows.iter().filter_map(|row| row.counters.achieved_occupancy_percent).collect();
            let middle = |values: &mut Vec<f64>| quantile(values, 0.5).map_or_else(String::new, short);
            let medians = [middle(&mut times), middle(&mut occupancies)];
            let counts = [kernels, rows.len(), throughput].map(|count| count.to_string());
            [vec![family.to_owned()], counts.to_vec(), medians.to_vec()].concat()
        };
        let columns =
            ["family", "kernels", "launches", "with throughput", "median time, us", "median occupancy, %"];
        self.table("Families", &columns, of_family.into_iter().map(row));
    }
}

/// The value that this share lies below; sorts.
fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[(share * last as f64).round() as usize])
}

/// Three digits, or all that stand before the point; whole numbers as they are.
fn short(value: f64) -> String {
    if value.fract() == 0.0 {
        return value.to_string();
    }
    let before_point = value.abs().log10().floor() as i32 + 1;
    format!("{value:.*}", (3 - before_point).clamp(0, 6) as usize)
}

/// Compares a card's tables with the data set's, or writes them.
fn check_card(name: &str) {
    let path = folder(name).join("README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).expect("the card has the first mark");
    let (_, after) = rest.split_once(MARKS[1]).expect("the card has the second mark");
    let fresh = Card::of(&read(name)).0 + "\n";
    test_golden::assert_file(path, &[before, MARKS[0], &fresh, MARKS[1], after].concat());
}

#[test]
fn the_measurements_of_the_suite_are_whole() {
    let data_set = read("h200/launches");
    let manifest = &data_set.manifest;
    assert_eq!((manifest.device_kind, &*manifest.device_name), (DeviceKind::Gpu, "NVIDIA H200"));
    assert_eq!(manifest.suite.name, "apex");
    let rows = |has: fn(&LaunchRow) -> bool| data_set.launches.iter().filter(|row| has(row)).count();
    assert!(rows(|row| row.timing.time_us.is_some_and(|time| time > 0.0)) >= 8000);
    assert!(rows(|row| row.counters.achieved_occupancy_percent.is_some()) >= 8000);
    let lacking = |row: &&LaunchRow| row.timing.time_us.is_none() && row.missing.is_empty();
    assert_eq!(data_set.launches.iter().find(lacking), None, "what is missing has a reason");
    check_card("h200/launches");
}

/// Row by row the launches of the H200, so that what differs is the device.
#[test]
fn an_h100_ran_the_same_launches() {
    let (h100, h200) = (read("h100/launches"), read("h200/launches"));
    assert_eq!(&*h100.manifest.device_name, "NVIDIA H100 80GB HBM3");
    assert_eq!(h100.launches.len(), 3000);
    for (one, other) in h100.launches.iter().zip(&h200.launches) {
        let launch = |row: &LaunchRow| (row.kernel.clone(), row.n, row.m, row.config());
        assert_eq!(launch(one), launch(other));
        assert!(one.timing.time_us.is_some() && one.counters.achieved_occupancy_percent.is_some());
    }
    check_card("h100/launches");
}

#[test]
fn the_kernels_of_pytorch_are_kept_apart() {
    let data_set = read("h200/launches-pytorch");
    assert!(data_set.manifest.suite.name.starts_with("pytorch "));
    assert!(data_set.manifest.counts.counted >= 500);
    assert!(data_set.launches.iter().all(|row| row.timing.time_us.is_none()));
    check_card("h200/launches-pytorch");
}

#[test]
fn manifests_say_nothing_of_one_machine() {
    for name in ["h100/launches", "h200/launches", "h200/launches-pytorch"] {
        let text = std::fs::read_to_string(folder(name).join("manifest.json")).unwrap();
        assert!(!text.contains("uuid"), "{name}");
        let command = read(name).manifest.command;
        assert!(!command.split([' ', '=']).any(|word| word.starts_with('/')), "{name}: {command}");
    }
}
