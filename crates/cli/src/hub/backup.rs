//! `apex hub backup`: a copy of the database of a running hub.

use super::Database;
use anyhow::bail;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a whole copy of the hub's database into a new file, while the hub runs.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex hub backup --database /srv/apex/hub.db /backup/hub-$(date +%F).db

To restore, stop the hub, put the copy in the database's place, remove the files -wal and -shm beside it, and start the hub.")]
pub struct Args {
    #[command(flatten)]
    database: Database,
    /// The new file
    to: PathBuf,
}

/// Runs `apex hub backup`.
///
/// # Errors
/// If the database cannot be read, or the file is there already or cannot be written.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing()?;
    if args.to.symlink_metadata().is_ok_and(|found| !found.is_file() || found.len() > 0) {
        bail!(
            "{} is there already, and a backup replaces nothing: name a new file",
            apex_untrusted::shown(&args.to)
        );
    }
    store.back_up(&args.to)?;
    Ok(ExitCode::SUCCESS)
}
