//! `fpga-model`: what `fpga/check` asks the golden model.

use anyhow::Context;
use clap::{Parser, Subcommand};
use fpga_model::error::{errors, random_head, recorded_head};
use fpga_model::exp2::Table;
use fpga_model::reference::{Distance, Head};
use fpga_model::{Tile, cases, cpu, cycles, vectors};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The golden model of the FPGA study (docs/fpga.md)
#[derive(Parser)]
#[command(name = "fpga-model", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Every command prints JSON. Exit code: 0 if it did what it says, 2 if it could not.

Examples:
  fpga-model vectors target/fpga/vectors --size 16    files for the testbenches, and the expected cycles
  fpga-model cycles 1024 --causal                     cycles of attention of a shape
  fpga-model error --recorded data/fpga/model/qkv.bin the error against 64-bit floating point
  fpga-model cpu                                      the same shapes on one core of this CPU";

#[derive(Subcommand)]
enum Command {
    /// Write beats and expected results for the testbenches, and the table of the exponential
    Vectors {
        /// The folder for the files
        folder: PathBuf,
        #[command(flatten)]
        tile: TileArguments,
        /// Random cases beside the extreme ones
        #[arg(long, default_value_t = 20)]
        random: usize,
        /// Seed of the random cases
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Leave out jobs of more blocks
        #[arg(long, value_name = "BLOCKS", default_value_t = usize::MAX, hide_default_value = true)]
        most_blocks: usize,
    },
    /// Print the cycles of attention of one head, and how busy the multipliers are
    Cycles {
        /// Rows of queries, and keys
        length: usize,
        #[command(flatten)]
        tile: TileArguments,
        /// Query i sees only the keys up to i
        #[arg(long)]
        causal: bool,
    },
    /// Print the error of attention against 64-bit floating point
    Error {
        #[command(flatten)]
        tile: TileArguments,
        /// Q, K and V of a trained model, beside random ones
        #[arg(long, value_name = "FILE")]
        recorded: Option<PathBuf>,
    },
    /// Measure the same shapes on one core of this CPU
    Cpu {
        /// Samples of each shape
        #[arg(long, default_value_t = 5)]
        samples: usize,
    },
}

#[derive(clap::Args)]
struct TileArguments {
    /// Rows of queries and keys of a block
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(4..=16))]
    size: u64,
    /// Elements of a row
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(16..=256))]
    dimension: u64,
}

impl TileArguments {
    fn tile(&self) -> anyhow::Result<Tile> {
        let tile = Tile { size: self.size as usize, dimension: self.dimension as usize };
        let are_powers = tile.size.is_power_of_two() && tile.dimension.is_power_of_two();
        anyhow::ensure!(are_powers, "--size and --dimension have to be powers of two");
        anyhow::ensure!(
            cycles::hides_passes(tile),
            "--dimension {} is too small for --size {}: passes would not be hidden",
            tile.dimension,
            tile.size
        );
        Ok(tile)
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(result) => {
            println!("{result:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> anyhow::Result<Value> {
    match command {
        Command::Vectors { folder, tile, random, seed, most_blocks } => {
            let tile = tile.tile()?;
            let mut jobs = cases::attention(tile, random, seed);
            jobs.retain(|case| case.job.blocks.len() <= most_blocks);
            anyhow::ensure!(!jobs.is_empty(), "no job has so few blocks");
            write_vectors(&folder, tile, &jobs, &cases::products(tile.size, random, seed))
        }
        Command::Cycles { length, tile, causal } => shape(length, tile.tile()?, causal),
        Command::Error { tile, recorded } => error(tile.tile()?, recorded.as_deref()),
        Command::Cpu { samples } => Ok(cpu_times(samples)),
    }
}

fn write_vectors(
    folder: &Path,
    tile: Tile,
    jobs: &[cases::Case],
    tiles: &[cases::Product],
) -> anyhow::Result<Value> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        anyhow::Ok(text.lines().count())
    };
    write("exp2.hex", &vectors::table())?;
    let attention = vectors::attention(tile, jobs);
    let products = vectors::products(tile.size, tiles);
    let terms: Vec<usize> = tiles.iter().map(|[a, _]| a.len()).collect();
    let timed: Vec<_> = jobs.iter().map(|case| cycles::attention(tile, case.job.blocks.len())).collect();
    let (last, before) = timed.split_last().expect("the caller has jobs");
    Ok(json!({
        "attention": {
            "beats": write("attention.beats.hex", &attention.beats)?,
            "expected": write("attention.expected.hex", &attention.expected)?,
            "cases": jobs.iter().map(|case| case.name).collect::<Vec<_>>(),
            "latencies": timed.iter().map(|job| job.latency).collect::<Vec<_>>(),
            "cycles": before.iter().map(|job| job.period).sum::<usize>() + last.latency,
        },
        "matmul": {
            "beats": write("matmul.beats.hex", &products.beats)?,
            "expected": write("matmul.expected.hex", &products.expected)?,
            "terms": terms,
            "cycles": cycles::products(tile.size, &terms),
        },
    }))
}

fn shape(length: usize, tile: Tile, causal: bool) -> anyhow::Result<Value> {
    anyhow::ensure!(length > 0, "the length is 0");
    let blocks = length.div_ceil(tile.size);
    let jobs: Vec<_> =
        (1..=blocks).map(|number| cycles::attention(tile, if causal { number } else { blocks })).collect();
    let (last, before) = jobs.split_last().expect("a length has a block");
    let cycles = before.iter().map(|job| job.period).sum::<usize>() + last.latency;
    let busy: usize = jobs.iter().map(|job| job.busy).sum();
    Ok(json!({
        "length": length, "causal": causal, "size": tile.size, "dimension": tile.dimension,
        "cycles": cycles, "busy": busy, "utilization": busy as f64 / cycles as f64,
        "one_job": jobs.last().map(|job| json!({ "latency": job.latency, "period": job.period })),
    }))
}

fn error(tile: Tile, recorded: Option<&Path>) -> anyhow::Result<Value> {
    let mut heads: Vec<(String, Head)> =
        [(64, false), (256, false), (1024, false), (256, true), (1024, true)]
            .into_iter()
            .map(|(length, causal)| {
                let mask = if causal { "causal" } else { "full" };
                (format!("random, length {length}, {mask}"), random_head(length, tile.dimension, causal, 1))
            })
            .collect();
    if let Some(path) = recorded {
        let head = recorded_head(path, tile.dimension)?;
        heads.push((format!("trained model, length {}, causal", head.queries.len()), head));
    }
    let table = Table::default();
    let distance = |d: Distance| json!({ "relative": d.relative, "largest": d.largest });
    let rows = heads.iter().map(|(name, head)| {
        let errors = errors(tile, head, &table);
        json!({
            "head": name,
            "tile": distance(errors.tile),
            "quantization": distance(errors.quantization),
            "arithmetic": distance(errors.arithmetic),
            "ratio": errors.tile.relative / errors.quantization.relative,
        })
    });
    Ok(json!({ "size": tile.size, "dimension": tile.dimension, "rows": rows.collect::<Vec<_>>() }))
}

fn cpu_times(samples: usize) -> Value {
    let attention = [64, 256, 1024, 4096].into_iter().flat_map(|length| {
        let mut head = cpu::Attention::new(length);
        [false, true].map(|causal| {
            let us = cpu::samples(samples, || head.run(causal));
            json!({ "kind": "attention", "dtype": "f32", "length": length, "causal": causal, "us": us })
        })
    });
    let mut rows: Vec<Value> = attention.collect();
    rows.extend([64, 256, 1024].map(|size| {
        let mut product = cpu::Product::new(size);
        let us = cpu::samples(samples, || product.run());
        json!({ "kind": "product", "dtype": "int8", "size": size, "us": us })
    }));
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "cpu": name.map_or("unknown", |(_, name)| name),
        "command": "RUSTFLAGS=-Ctarget-cpu=native cargo run --release --target-dir target/fpga/native -p fpga-model -- cpu",
        "dimension": cpu::DIMENSION,
        "rows": rows,
    })
}
