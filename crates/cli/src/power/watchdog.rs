//! `apex power watchdog`, which `apex power run` starts to release the clock when `apex` is gone.

use apex_power::{Claim, watch};
use std::path::PathBuf;
use std::process::ExitCode;

/// Releases the clock of a GPU when standard input ends (what `apex power run` starts)
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Path or name of NVML.
    library: PathBuf,
    /// UUID of the GPU.
    uuid: String,
    /// File descriptor of its claim.
    claim: i32,
}

/// Watches until its parent is gone.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.claim > libc::STDERR_FILENO, "`apex power run` starts this");
    // SAFETY: the parent handed this file on for this function alone.
    let claim = unsafe { Claim::inherited(args.claim) };
    watch(&args.library, &args.uuid, &claim, std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
