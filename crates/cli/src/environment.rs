//! The environment variables that APEX reads.
//!
//! Each option has a variable, named after it: [`with_variables`] adds them to the command line's
//! definition. All other variables are in `apex-conventions`; a test generates docs/environment.md
//! from them, and finds variables which are named elsewhere.

use clap::{Arg, Command};

/// Options that mean something else to each command: their variables name the command too.
const OF_ONE_COMMAND: [(&str, &str); 27] = [
    ("alerts", "interval"),
    ("attach", "host-stacks"),
    ("attach", "seconds"),
    ("check", "format"),
    ("collect", "device"),
    ("collect", "output"),
    ("collect", "seed"),
    ("export", "output"),
    ("fuse", "output"),
    ("fuse", "tuned"),
    ("history", "format"),
    ("history", "html"),
    ("list", "tag"),
    ("metrics", "top"),
    ("note", "name"),
    ("note", "tag"),
    ("pack", "output"),
    ("predict", "device"),
    ("predict", "kernel"),
    ("report", "format"),
    ("requests", "kernel"),
    ("train", "output"),
    ("train", "seed"),
    ("tune", "budget"),
    ("tune", "fast"),
    ("tune", "output"),
    ("tune", "seed"),
];

/// Options without a variable: they select what a command does, and are no settings.
const WITHOUT: [&str; 16] = [
    "after", "ask", "bare", "before", "dry-run", "force", "gpu", "list", "measure", "replay", "segments",
    "socket", "space", "untag", "user", "verify",
];

/// Adds a variable to each option: `APEX_OPTION`, or `APEX_COMMAND_OPTION`.
pub fn with_variables(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|option| match variable(&name, &option) {
        Some(variable) => option.env(variable),
        None => option,
    });
    command.mut_subcommands(with_variables)
}

fn variable(command: &str, option: &Arg) -> Option<String> {
    let name = option.get_long().filter(|name| !option.is_hide_set() && !WITHOUT.contains(name))?;
    let own = if OF_ONE_COMMAND.contains(&(command, name)) { format!("{command}_") } else { String::new() };
    Some(format!("APEX_{own}{name}").replace('-', "_").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_conventions::variables::{INTERNAL, TESTS, USERS, Variable};
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};

    fn page() -> String {
        let mut page = String::from(
            "# Environment variables\n\n\
             <!-- Generated from crates/cuda/conventions/src/variables.rs: BLESS=1 cargo test -p apex-cli environment -->\n\n\
             ## Options\n\n\
             Each option of `apex` can also be set by the environment variable `APEX_OPTION`: `--max-size 512M` by\n\
             `APEX_MAX_SIZE=512M`. The command line takes precedence. A flag is on for any value except `0`, `false`, `no`\n\
             and `off`. If an option differs between commands, its variable also contains the name of the command:\n\n\
             | option | variable |\n| --- | --- |\n",
        );
        for (command, option) in OF_ONE_COMMAND {
            let variable = format!("APEX_{command}_{option}").replace('-', "_").to_uppercase();
            let _ = writeln!(page, "| `apex {command} --{option}` | `{variable}` |");
        }
        let tables = [
            ("Other variables", &USERS[..]),
            ("Internal variables", &INTERNAL[..]),
            ("Variables of tests and scripts", &TESTS[..]),
        ];
        for (title, variables) in tables {
            let _ = write!(page, "\n## {title}\n\n| variable | reader | meaning |\n| --- | --- | --- |\n");
            for Variable { name, reader, meaning } in variables {
                let _ = writeln!(page, "| `{name}` | {reader} | {meaning} |");
            }
        }
        page
    }

    #[test]
    fn the_page_about_the_environment_is_fresh() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/environment.md");
        test_golden::assert_file(path, &page());
    }

    /// Variables in string literals of a folder's Rust files.
    fn named_in(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path())
        {
            if entry.is_dir() {
                named_in(&entry, names);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(entry).expect("Rust");
                let literals = text.split('"').filter(|literal| literal.starts_with("APEX_"));
                let is_name = |name: &&str| name.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
                names.extend(literals.filter(is_name).map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_variable_is_an_option_or_stated_once() {
        let mut names = BTreeSet::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let inside = |folder: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.expect("an entry").path()).collect()
        };
        let wings = inside(&crates);
        for krate in wings.iter().flat_map(|wing| inside(wing)).chain(wings.iter().cloned()) {
            let sources = krate.join("src");
            if sources.is_dir() && !krate.ends_with("conventions") {
                named_in(&sources, &mut names);
            }
        }
        let command = crate::command();
        let options = command.get_subcommands().flat_map(Command::get_opts).filter_map(Arg::get_env);
        let options: BTreeSet<String> = options.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| !options.contains(name));
        assert_eq!(names, BTreeSet::from(["APEX_".to_owned()]));
    }

    #[test]
    fn options_have_variables() {
        let command = with_variables(Command::new("collect").arg(Arg::new("seed").long("seed")));
        let seed = command.get_arguments().next().expect("one");
        assert_eq!(seed.get_env().expect("a variable"), "APEX_COLLECT_SEED");
        assert_eq!(variable("run", &Arg::new("s").long("max-size")).as_deref(), Some("APEX_MAX_SIZE"));
        assert_eq!(variable("diff", &Arg::new("before").long("before")), None);
    }
}
