//! `apex`: record, report and explain the launches of any CUDA program.
//!
//! Each subcommand has a module with its arguments, their help, and its execution. `profile`
//! computes the figures of a session, `advice` judges them, and `export` writes formats; this crate
//! handles processes and text.

mod advise;
mod alerts;
mod attach;
mod check;
mod collect;
mod ctl;
mod dashboard;
mod demo;
mod destination;
mod diff;
mod doctor;
mod environment;
mod exit;
mod explain;
mod export;
mod filters;
mod history;
mod hub;
mod import;
mod interrupt;
mod joined;
mod knowledge;
mod list;
mod loaded;
mod manual;
mod merge;
mod metrics;
mod note;
mod output;
mod pack;
#[cfg(test)]
mod pages;
mod power;
mod predict;
mod progress;
mod ptx;
mod report;
mod run;
mod schema;
mod session;
mod similar;
mod top;
mod train;
mod tune;
mod tuned;

use apex_profile::units;
use apex_untrusted::printable;
use apex_untrusted::text::printable_but;
use apex_view::text;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::Color;
use std::io::{self, Write};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "apex",
    version,
    about = "Profiles any CUDA program, explains why it is slow, and tells what to change."
)]
#[command(after_help = "Start with:
  apex run -- COMMAND    record a program, unmodified
  apex report            show where its time goes, what to change, and what that saves

Every option can also be set by the environment variable APEX_<OPTION>, or APEX_<COMMAND>_<OPTION> if the option \
differs between commands; `--help` of a command names the variables.")]
struct Arguments {
    /// When to use colours: auto (on a terminal, unless NO_COLOR is set), always, never
    #[arg(
        long,
        value_enum,
        default_value_t,
        global = true,
        hide_possible_values = true,
        value_name = "WHEN"
    )]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Attach(attach::Args),
    Import(import::Args),
    Tune(tune::Args),
    Power(power::Args),
    Report(report::Args),
    Advise(advise::Args),
    Explain(explain::Args),
    Predict(predict::Args),
    Ptx(ptx::Args),
    Export(export::Args),
    Diff(diff::Args),
    Check(check::Args),
    History(history::Args),
    List(list::Args),
    Note(note::Args),
    Pack(pack::PackArgs),
    Unpack(pack::UnpackArgs),
    Merge(merge::Args),
    Top(top::Args),
    Metrics(metrics::Args),
    Alerts(alerts::Args),
    Dashboard(dashboard::Args),
    Hub(hub::Args),
    Ctl(ctl::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Collect(collect::Args),
    Train(train::Args),
    Schema(schema::Args),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
    /// Explains exit codes
    #[command(long_about = exit::HELP)]
    ExitCodes,
}

fn main() -> ExitCode {
    run::ignore_file_size_signal();
    let arguments = match on_enough_stack(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let color = arguments.color;
    let done = match arguments.command {
        Command::Run(args) => run::execute(&args, color),
        Command::Attach(args) => attach::execute(&args, color),
        Command::Import(args) => import::execute(&args),
        Command::Tune(args) => tune::execute(&args, color),
        Command::Power(args) => power::execute(&args, color),
        Command::Report(args) => report::execute(&args, color),
        Command::Advise(args) => advise::execute(&args, color),
        Command::Explain(args) => explain::execute(&args, color),
        Command::Predict(args) => predict::execute(&args, color),
        Command::Ptx(args) => ptx::execute(&args, color),
        Command::Export(args) => export::execute(&args),
        Command::Diff(args) => diff::execute(&args, color),
        Command::Check(args) => check::execute(&args, color),
        Command::History(args) => history::execute(&args, color),
        Command::List(args) => list::execute(&args, color),
        Command::Note(args) => note::execute(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Unpack(args) => pack::unpack(&args),
        Command::Merge(args) => merge::execute(&args),
        Command::Top(args) => top::execute(&args, color),
        Command::Metrics(args) => metrics::execute(&args),
        Command::Alerts(args) => alerts::execute(&args),
        Command::Dashboard(args) => dashboard::execute(&args),
        Command::Hub(args) => hub::execute(&args),
        Command::Ctl(args) => ctl::execute(&args),
        Command::Doctor(args) => doctor::execute(&args, color),
        Command::Demo(args) => demo::execute(&args, color),
        Command::Collect(args) => collect::execute(&args),
        Command::Train(args) => train::execute(&args),
        Command::Schema(args) => schema::execute(&args),
        Command::Completions(args) => manual::completions(&args, command()),
        Command::Man(args) => manual::man(&args, command()),
        Command::ExitCodes => exit::print(),
    };
    interrupt::await_end();
    import::remove_temporary();
    done.unwrap_or_else(|error| {
        output::failure(&error);
        ExitCode::from(exit::FAILED)
    })
}

/// The command with a variable for each option.
fn command() -> clap::Command {
    let command = environment::with_variables(Arguments::command());
    match output::width() {
        width if width < WIDEST_USAGE => with_narrow_usage(command, width),
        _ => command,
    }
}

/// Columns into which every usage fits.
const WIDEST_USAGE: usize = 60;

/// Wraps the usage of each command, which clap leaves as it is.
fn with_narrow_usage(command: clap::Command, width: usize) -> clap::Command {
    command.mut_subcommands(|command| {
        let named = command.clone().bin_name(format!("apex {}", command.get_name()));
        let lines = text::wrap(&named.clone().render_usage().to_string(), width, USAGE_INDENT);
        let usage = lines.join("\n");
        command.override_usage(usage.trim_start_matches("Usage: ").to_owned())
    })
}

/// As wide as the word before a usage.
const USAGE_INDENT: &str = "       ";

/// Does `work` in a thread with enough stack: clap's tables, and a session's reader, take more than
/// the main thread has under a small limit (`ulimit -s 64`). Where the system refuses a thread,
/// this one has to do.
fn on_enough_stack<R: Send>(work: impl Fn() -> R + Sync) -> R {
    const BYTES: usize = 1 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(BYTES).spawn_scoped(scope, &work);
        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(&work)
    })
}

/// The command line, and what the environment adds to it.
fn arguments() -> Result<Arguments, clap::Error> {
    let mut matches = command().try_get_matches()?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command()))
}

/// Shows help, or what is wrong with the command line. `run`, `demo` and `power run` stand for
/// a program, whose codes must not be mistaken for ours.
fn refuse(error: &clap::Error) -> ExitCode {
    // That the terminal is gone is no reason to fail. What is wrong quotes the arguments; help
    // quotes nothing.
    let _ = match error.use_stderr() {
        true => write!(io::stderr(), "{}", quoted_harmlessly(error.render().ansi().to_string())),
        false => error.print(),
    };
    let words: Vec<_> = std::env::args_os().skip(1).take(2).collect();
    let stands_for_program = match &words[..] {
        [command, ..] if command == "run" || command == "demo" => true,
        [power, command] => power == "power" && command == "run",
        _ => false,
    };
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if stands_for_program => ExitCode::from(exit::FAILED),
        _ => ExitCode::from(exit::USAGE),
    }
}

/// Returns the error in the command line as text, printable and without clap's colours. Line breaks
/// of the text itself stay; those in arguments and variables, which it quotes, do not.
fn quoted_harmlessly(mut text: String) -> String {
    let arguments = std::env::args_os();
    let variables = std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"APEX_"));
    for foreign in arguments.chain(variables.map(|(_, value)| value)) {
        let foreign = foreign.to_string_lossy();
        let value = foreign.split_once('=').map_or("", |(_, value)| value);
        for quoted in [&*foreign, value].into_iter().filter(|quoted| quoted.contains('\n')) {
            text = text.replace(quoted, &printable(quoted));
        }
    }
    printable_but(&without_colors(&text), &['\n']).into_owned()
}

/// The text without the sequences that colour it: `ESC [`, numbers, `m`.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').strip_prefix('m') {
            Some(rest) => plain.push_str(rest),
            None => plain.extend(["\x1b[", part]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_usage_of_each_command_fits_into_a_narrow_terminal() {
        let usage = |command: &mut clap::Command| {
            let named = command.clone().bin_name(format!("apex {}", command.get_name()));
            named.clone().render_usage().to_string()
        };
        for command in with_narrow_usage(command(), 40).get_subcommands_mut() {
            let usage = usage(command);
            assert!(usage.starts_with("Usage: apex "), "{usage}");
            assert!(usage.lines().all(|line| line.chars().count() <= 40), "{usage}");
        }
        for command in environment::with_variables(Arguments::command()).get_subcommands_mut() {
            let usage = usage(command);
            assert!(usage.lines().all(|line| line.chars().count() <= WIDEST_USAGE), "{usage}");
        }
    }

    /// A variable that is set for one command must not mean something else to another.
    #[test]
    fn a_variable_means_one_thing() {
        let mut meanings = std::collections::BTreeMap::new();
        for command in command().get_subcommands() {
            for argument in command.get_opts().filter(|argument| argument.get_action().takes_values()) {
                let variable = argument.get_env().unwrap_or_default().to_string_lossy().into_owned();
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let meaning = help.split(" [").next().unwrap_or_default().to_owned();
                if variable.is_empty() {
                    continue;
                }
                let first = meanings.entry(variable.clone()).or_insert(meaning.clone());
                assert_eq!(*first, meaning, "{variable} of apex {}", command.get_name());
            }
        }
    }

    #[test]
    fn every_command_has_examples() {
        for command in command().get_subcommands().filter(|command| command.get_name() != "exit-codes") {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("apex {}", command.get_name())), "apex {}", command.get_name());
        }
    }
}
