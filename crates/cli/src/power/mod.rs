//! `apex power`: runs a program while the GPU's clock follows its work.

mod helper;
mod watchdog;

use crate::output::Color;
use crate::run::{self, governed::Wanted};
use crate::units;
use clap::builder::FalseyValueParser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Saves energy by GPU clocks that follow the work (tested on a simulated GPU only).
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex power run --dry-run -- python generate.py
                                   measures, and says which clock it would have set first
  sudo apex power helper --user alice
                                   sets clocks for this user's programs
  apex power run --max-slowdown 2% -- python train.py
                                   sets clocks, where root or a helper allows that

docs/power.md says what was measured, what was simulated, and what is unknown.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Run(Box<RunArgs>),
    Helper(helper::Args),
    #[command(hide = true)]
    Watchdog(watchdog::Args),
}

/// Records a program as `apex run` does, and lowers the GPU's highest clock as far as the program
/// takes less energy and is not slowed down.
#[derive(clap::Args, Debug)]
#[command(
    about = "Records a program as `apex run` does, and lowers the GPU's clock while that saves energy",
    long_about = "Records a program as `apex run` does, and lowers the GPU's clock while that saves energy.

A lower clock is kept if a launch then takes less energy, and no more time than --max-slowdown allows, as measured while \
the program runs. The clock is an upper limit, and it is released when the program ends; a watchdog process releases \
it if `apex` is killed. If both are killed, the next `apex power run` releases the clock, and so does \
`nvidia-smi -i N -rgc`.

Setting clocks needs root, in a container the capability SYS_ADMIN too. For other users, an administrator may run \
`apex power helper`. Without root and a helper, and with --dry-run, nothing is set: the run ends with the clock that it would have set first. \
With sudo, the program runs as root too.

Nothing is set if another `apex power run` governs the GPU, if NVML says that a setting holds its clock, or if the GPU \
never ran at its highest clock. The clock is that of the whole GPU: other programs on it are slowed down too.

Setting clocks has been tested on a simulated GPU only, never on a real one.",
    after_long_help = "Examples:
  apex power run --dry-run -- python generate.py
  apex power run -- ./solver
  apex power run --gpu 1 --max-slowdown 2% -o session -- python train.py

Exits as `apex run` does: with the program's exit status, or with 125 if nothing could be started."
)]
struct RunArgs {
    /// Highest slowdown of a launch, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_slowdown)]
    max_slowdown: f64,
    /// Index of the GPU, as `nvidia-smi` numbers it [default: the only one]
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// Set nothing, and say which clock would have been set first. The default without permission
    /// to set clocks
    #[arg(long, value_parser = FalseyValueParser::new())]
    dry_run: bool,
    /// Duration of a measurement window; a clock is judged after three windows. The energy counter
    /// is read ten times in each, and its readings are up to 0.14 s late
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_measure)]
    measure: Duration,
    /// Socket of the helper that sets clocks for users without the permission
    #[arg(long, value_name = "PATH", default_value = apex_power::SOCKET)]
    socket: PathBuf,
    #[command(flatten)]
    run: run::Args,
}

/// A share, from a percentage with or without the sign.
fn parse_slowdown(text: &str) -> Result<f64, String> {
    let percent = units::parse_percent(text.strip_suffix('%').unwrap_or(text))?;
    if percent > 0.0 { Ok(percent / 100.0) } else { Err("write a number above 0, such as 1".to_owned()) }
}

/// A window that is long enough for the energy counter.
fn parse_measure(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text)? {
        window if window >= Duration::from_secs(2) => Ok(window),
        _ => Err("the energy counter resolves windows of at least 2s".to_owned()),
    }
}

/// Runs `apex power`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(args) => {
            let RunArgs { max_slowdown, gpu, dry_run, measure, .. } = **args;
            let socket = args.socket.clone();
            let wanted =
                Wanted { most_slowdown: max_slowdown, gpu, is_dry: dry_run, window: measure, socket };
            run::execute_governed(&args.run, wanted, color)
        }
        Command::Helper(args) => helper::execute(args),
        Command::Watchdog(args) => watchdog::execute(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_is_percent_with_or_without_the_sign() {
        assert_eq!(parse_slowdown("1%"), Ok(0.01));
        assert_eq!(parse_slowdown("2.5"), Ok(0.025));
        assert!(
            parse_slowdown("0").is_err() && parse_slowdown("x").is_err() && parse_slowdown("101").is_err()
        );
    }

    #[test]
    fn a_window_is_one_that_the_counter_resolves() {
        assert_eq!(parse_measure("10s"), Ok(Duration::from_secs(10)));
        assert!(parse_measure("500ms").is_err());
    }
}
