//! Chores of this repository: `cargo xtask COMMAND`. Each command is a module of its name.

mod abi_diff;
mod abi_gen;
mod book;
mod c;
mod dist;
mod regress;
mod render;
mod toolkit;

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Chores of the APEX repository
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate the ABI table of crates/cuda/cuda-abi from a toolkit's headers
    #[command(after_help = ABI_GEN_EXAMPLES)]
    AbiGen {
        /// The folder that holds cuda.h
        headers: PathBuf,
    },
    /// Compare the ABI table with a toolkit's headers: what is new, gone or changed
    #[command(after_help = ABI_DIFF_EXAMPLES)]
    AbiDiff {
        /// The folder that holds cuda.h
        headers: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Build a release and pack it: archive, Debian package, wheel, checksums
    #[command(after_help = DIST_EXAMPLES)]
    Dist {
        /// The folder for the packages
        #[arg(short, long, default_value = "target/dist")]
        output: PathBuf,
        /// Build for this version of glibc and newer ones [default: this machine's]
        #[arg(long, value_name = "VERSION")]
        glibc: Option<String>,
    },
    /// Build the documentation site: the chapters of docs/SUMMARY.md and a page for each command
    #[command(after_help = BOOK_EXAMPLES)]
    Book {
        /// The folder for the site; what it holds is replaced
        #[arg(short, long, default_value = "target/book")]
        output: PathBuf,
        /// The repository's address, for links to files that are no chapter [default: no links]
        #[arg(long, value_name = "URL")]
        repository: Option<String>,
    },
    /// Measure APEX's own benchmarks, compare with the committed history, draw charts
    #[command(after_help = REGRESS_EXAMPLES)]
    Regress {
        /// The command that is measured
        #[arg(long, value_name = "FILE", default_value = "target/release/apex")]
        apex: PathBuf,
        /// Times that each benchmark runs; the least processor time counts
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
        rounds: u32,
        /// The commit that the command was built from [default: the one that is checked out]
        #[arg(long, value_name = "NAME")]
        commit: Option<String>,
        /// Add the figures to the committed history
        #[arg(long)]
        record: bool,
        /// The page with the charts
        #[arg(long, value_name = "FILE", default_value = "target/regress.html")]
        html: PathBuf,
    },
}

const ABI_GEN_EXAMPLES: &str = "\
Example, with the headers of the newest wheel:
  pip download --no-deps nvidia-cuda-runtime
  unzip -d headers nvidia_cuda_runtime-*.whl
  cargo xtask abi-gen headers/nvidia/cu13/include

Needs a C preprocessor: cc, or what CC names. Symbols that the driver exports and no header declares come from
crates/cuda/cuda-abi/undeclared.txt.";

const ABI_DIFF_EXAMPLES: &str = "\
Exit code: 0 if the table says what the headers say, 1 if they differ, 2 if they cannot be compared.

Examples:
  cargo xtask abi-diff headers/nvidia/cu13/include
  cargo xtask abi-diff --json /usr/local/cuda/include | jq '.entry_points.new[].name'";

const DIST_EXAMPLES: &str = "\
Needs objdump (binutils); for --glibc also cargo-zigbuild and zig: `pip install cargo-zigbuild ziglang`.
The same commit gives the same bytes; SOURCE_DATE_EPOCH overrides the time that the files bear.

Examples:
  cargo xtask dist                      for this machine and newer ones
  cargo xtask dist --glibc 2.28         also for older ones, as releases are built";

const BOOK_EXAMPLES: &str = "\
Needs mdBook: `cargo install --locked mdbook`.

Example:
  cargo xtask book && xdg-open target/book/html/index.html";

const REGRESS_EXAMPLES: &str = "\
Exit code: 0, or 1 if a benchmark takes 1.25 times the median of the committed runs of this machine, or more.

Examples:
  cargo build --release && cargo xtask regress
  cargo xtask regress --record && git add docs/results/regress.jsonl";

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::AbiGen { headers } => abi_gen::run(&headers).map(|()| ExitCode::SUCCESS),
        Command::AbiDiff { headers, json } => abi_diff::run(&headers, json),
        Command::Dist { output, glibc } => dist::run(&output, glibc.as_deref()),
        Command::Regress { apex, rounds, commit, record, html } => {
            regress::run(&regress::Options { apex, rounds, commit, record, html })
        }
        Command::Book { output, repository } => book::run(&output, repository.as_deref()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Returns the output of a command.
fn output(command: &mut std::process::Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{name} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}
