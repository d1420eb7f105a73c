//! Exit codes, in one place: what scripts may rely on.
//!
//! `apex run` is transparent: it ends the way the program ended. APEX's own codes lie where `env`,
//! `timeout` and shells have theirs, so that they collide with a program's as rarely as those do.

use std::process::ExitCode;

/// A check, a comparison or a request was answered with no.
pub const NO: u8 = 1;
/// The command line was wrong (of every command but `run`, whose usage errors are [`FAILED`]).
pub const USAGE: u8 = 2;
/// `run --check`: the program succeeded, and defects were found.
pub const DEFECTS: u8 = 123;
/// `run --require-capture`: the program succeeded, and nothing was captured.
pub const NOTHING_CAPTURED: u8 = 124;
/// APEX itself failed.
pub const FAILED: u8 = 125;
/// `run`: the command exists and could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// `run`: the command does not exist.
pub const NOT_FOUND: u8 = 127;

/// What `apex help exit-codes` says.
pub const HELP: &str = "\
apex run and apex demo

  The program's own exit status is returned exactly. If a signal ended the
  program, apex ends by the same signal, which shells show as 128+n.
  APEX's own codes:

  123  --check, the program succeeded, and defects were found in its kernels
  124  --require-capture, the program succeeded, and nothing was captured
  125  APEX itself failed before the program was started: a wrong command
       line, no library, no folder to write to
  126  the command was found and could not be executed
  127  the command was not found

Every other command

    0  done
    1  the answer is no: a check of `doctor` failed; `ctl` found no running
       program; `diff --fail-above` was exceeded; `collect` was stopped
       early; `predict` could not answer about some launches
    2  wrong command line
  125  APEX failed: no session, a file that cannot be read or written";

/// Prints the exit codes (`apex exit-codes`).
pub fn print() -> anyhow::Result<ExitCode> {
    crate::output::page(|out| writeln!(out, "{HELP}"))
}
