//! `apex ptx`: PTX in files.

mod access;
mod check;
mod requests;
mod show;

use crate::output::Color;
use std::process::ExitCode;

/// Examines PTX: which GPUs run it, which memory it reads and writes, what accesses ask of memory.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex ptx check kernel.ptx --for sm_80,sm_90
  apex ptx check ./program --for sm_75 --json
  apex ptx access kernel.ptx
  apex ptx requests kernel.ptx --grid 4,4 --block 16,16

docs/universal.md, docs/access.md and docs/requests.md have details.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Access(access::Args),
    Check(check::Args),
    Requests(requests::Args),
}

/// Runs `apex ptx`.
///
/// # Errors
/// A file that cannot be read or holds no PTX that can be judged.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Access(args) => access::execute(args, color),
        Action::Check(args) => check::execute(args, color),
        Action::Requests(args) => requests::execute(args, color),
    }
}
