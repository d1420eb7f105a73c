//! `apex completions` and `apex man`, generated from the same definition as `--help`.

use crate::output;
use anyhow::Context;
use apex_untrusted::shown;
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints a shell's completion script.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex completions bash > ~/.local/share/bash-completion/completions/apex
  apex completions zsh > ~/.zfunc/_apex             with fpath+=~/.zfunc before compinit
  apex completions fish > ~/.config/fish/completions/apex.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Writes a manual page for each command.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Example:
  apex man ~/.local/share/man/man1 && man apex-run")]
pub struct ManArgs {
    /// Folder for the pages; it is created if it is missing
    folder: PathBuf,
}

/// `apex completions`.
pub fn completions(args: &CompletionsArgs, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "apex", &mut script);
    output::page(|out| out.write_all(&script))
}

/// `apex man`.
pub fn man(args: &ManArgs, command: clap::Command) -> anyhow::Result<ExitCode> {
    write_pages(&args.folder, command)
        .with_context(|| format!("cannot write manual pages to {}", shown(&args.folder)))?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(folder: &Path, command: clap::Command) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}

#[cfg(test)]
mod tests {
    use crate::Arguments;
    use clap::CommandFactory;

    #[test]
    fn each_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        super::write_pages(&folder.path().join("man1"), Arguments::command()).unwrap();
        for command in Arguments::command().get_subcommands() {
            let page = folder.path().join(format!("man1/apex-{}.1", command.get_name()));
            let page = std::fs::read_to_string(&page).expect("a page");
            assert!(page.contains(&format!("apex\\-{}", command.get_name().replace('-', "\\-"))), "{page}");
        }
    }

    #[test]
    fn completions_know_commands_and_options() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "apex", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("report") && script.contains("what-if"), "{shell}");
        }
    }
}
