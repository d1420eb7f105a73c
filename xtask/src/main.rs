//! Chores of this repository: `cargo xtask COMMAND`. Each command is a module of its name.

mod abi_gen;
mod c;
mod render;
mod toolkit;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
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
    /// Generate the ABI table of crates/cuda-abi from a toolkit's headers
    #[command(
        after_help = "Example:\n  pip download --no-deps nvidia-cuda-runtime && unzip -d hdr nvidia_cuda_runtime-*.whl\n  cargo xtask abi-gen hdr/nvidia/cu13/include"
    )]
    AbiGen {
        /// The folder that holds cuda.h
        headers: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::AbiGen { headers } => abi_gen::run(&headers).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
