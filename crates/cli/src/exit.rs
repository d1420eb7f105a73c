//! All exit codes, which scripts may rely on.
//!
//! `apex run` is transparent: it exits as the program did. APEX's own codes are in the range that
//! `env`, `timeout` and shells use, so that they rarely equal a code of the program.

use std::process::ExitCode;

/// A check, a comparison or a request was answered with no.
pub const NO: u8 = 1;
/// The command line was wrong (of every command but `run`, `demo` and `power run`, whose usage
/// errors are [`FAILED`]).
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

/// The text of `apex help exit-codes`.
pub const HELP: &str = "\
apex run, apex power run and apex demo

  apex exits with the program's exit status. If a signal ended the program,
  apex ends by the same signal, which shells show as 128+n.
  APEX's own codes:

  123  --check: the program succeeded, but its kernels have defects
  124  --require-capture: the program succeeded, but nothing was captured
  125  APEX failed before it started the program: wrong command line,
       missing library, or a folder that it cannot write to
  126  the command exists but cannot be executed
  127  the command does not exist

Every other command

    0  success
    1  negative result: a check of `doctor` failed; `ctl` found no running
       program; a difference exceeded `diff --fail-above`; a limit of
       `check` was not kept; `collect` was stopped early; `predict` could
       not predict some launches; `explain` knows no such rule, `schema` no
       such document; the program that `tune` runs failed or launched no
       kernel; `tune --verify` found a difference or nothing to compare; no
       configuration of `tune --space` succeeded, or it was interrupted;
       some GPU cannot run some kernel of `ptx check`; messages still wait
       after `hub deliver`; the tenant of `hub token revoke` has no token;
       `hub alerts --once` found something
    2  wrong command line
  125  APEX failed: no session, or a file cannot be read or written";

/// Prints the exit codes (`apex exit-codes`).
pub fn print() -> anyhow::Result<ExitCode> {
    crate::output::page(|out| writeln!(out, "{HELP}"))
}
