//! `apex demo`: records the bundled CUDA programs on the GPU or the CPU device, and prints the
//! report.

use crate::exit;
use crate::loaded;
use crate::output::{self, Color};
use crate::report;
use crate::run::{self, NotRecorded, Recording};
use crate::text::{Ink, Style, wrap};
use anyhow::Context;
use apex_demo::{PROGRAMS, Program};
use apex_driver::Device;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const EXPLANATION: &str = "\
This is the report of a real run: APEX recorded the launches of bundled CUDA programs. `apex run -- YOUR_COMMAND` \
records any CUDA program. The bundled program `bad` contains typical performance faults on purpose.";

/// Records the bundled CUDA programs on the GPU or on APEX's CPU device, and shows the report.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex demo                      all programs
  apex demo matmul reduce        two of them
  apex demo --list
  apex demo --bare matmul        run it without recording

`apex run -- apex demo --bare; apex report` does the same in two steps.")]
pub struct Args {
    /// Programs to run [default: all]
    #[arg(value_name = "PROGRAM", value_parser = known_program)]
    programs: Vec<String>,
    /// List the programs
    #[arg(long)]
    list: bool,
    /// Run the programs in this process with the installed driver, without recording
    #[arg(long)]
    bare: bool,
    /// Session folder to create [default: apex-demo-DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    recording: Recording,
}

fn known_program(name: &str) -> Result<String, String> {
    let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
    if names.contains(&name) {
        Ok(name.into())
    } else {
        Err(format!("the programs are {}", names.join(", ")))
    }
}

/// Runs `apex demo`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    if args.list {
        return output::page(|out| {
            PROGRAMS.iter().try_for_each(|p| writeln!(out, "{:12} {}", p.name, p.summary))
        });
    }
    if args.bare { run_bare(&args.programs) } else { run_recorded(args, color) }
}

/// Runs the programs one after the other, and prints what each computed. Ends with 1 where one
/// fails: here it is the programs that fail, not APEX.
fn run_bare(names: &[String]) -> anyhow::Result<ExitCode> {
    let fail = |error| {
        output::remark(error);
        Ok(ExitCode::FAILURE)
    };
    let device = match Device::open(None) {
        Ok(device) => device,
        Err(error) => return fail(error.to_string()),
    };
    let wanted = |program: &&Program| names.is_empty() || names.iter().any(|name| name == program.name);
    for program in PROGRAMS.iter().filter(wanted) {
        match (program.run)(&device) {
            Ok(outcome) => output::page(|out| writeln!(out, "{:12} {outcome}", program.name))?,
            Err(error) => return fail(format!("{}: {error}", program.name)),
        };
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs itself with `--bare` under APEX, then reports.
fn run_recorded(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let apex = std::env::current_exe().context("cannot find the path of the apex executable")?;
    let mut command: Vec<OsString> = vec![apex.into(), "demo".into(), "--bare".into()];
    command.extend(args.programs.iter().map(OsString::from));
    let recorded =
        match run::record(&command, args.output.as_deref(), "demo".as_ref(), &args.recording, false) {
            Ok(recorded) => recorded,
            Err(NotRecorded::NotStarted(code)) => return Ok(ExitCode::from(code)),
            Err(NotRecorded::Failed(error)) => return Err(error),
        };
    if !recorded.status.success() {
        run::end_like(recorded.status);
    }
    let loaded = loaded::just_recorded(&recorded.session)?;
    if loaded.profile.recorder.records == 0 {
        output::remark("the programs ran, but nothing was recorded: run `apex doctor`");
        return Ok(ExitCode::from(exit::NOTHING_CAPTURED));
    }
    let style = Style { color: color.on_stdout() };
    output::page(|out| {
        writeln!(out)?;
        report::write(out, &loaded, style, output::width())?;
        writeln!(out)?;
        let lines = wrap(EXPLANATION, output::width(), "");
        lines.into_iter().try_for_each(|line| writeln!(out, "{}", style.paint(Ink::Dim, line)))
    })
}
