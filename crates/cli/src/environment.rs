//! The environment variables that APEX reads.
//!
//! Each option has a variable, named after it: [`with_variables`] adds them to the command line's
//! definition. The tables of all other variables are with the test that generates
//! docs/environment.md from them, and that finds variables which no table has.

use clap::{Arg, Command};

/// Options that mean something else to each command: their variables name the command too.
const OF_ONE_COMMAND: [(&str, &str); 10] = [
    ("alerts", "interval"),
    ("collect", "device"),
    ("collect", "output"),
    ("collect", "seed"),
    ("export", "output"),
    ("metrics", "top"),
    ("predict", "device"),
    ("predict", "kernel"),
    ("train", "output"),
    ("train", "seed"),
];

/// Options without a variable: they select what a command does, and are no settings.
const WITHOUT: [&str; 4] = ["after", "bare", "before", "list"];

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
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::Path;

    /// The other variables: name, who reads it, meaning.
    const OTHERS: [(&str, &str, &str); 10] = [
        (
            "APEX_DISABLE",
            "`libapex.so`",
            "`1`: every driver entry point is a bare jump, and nothing is recorded.",
        ),
        (
            "APEX_DRIVER",
            "`apex run`, `libapex.so`",
            "Path of the driver to forward to, instead of the installed one.",
        ),
        (
            "APEX_LIB_DIR",
            "`apex`, `apex_cuda`",
            "Folder of APEX's libraries ([search path](install.md#search-path-of-the-libraries)).",
        ),
        ("APEX_CPU_COUNTS", "CPU device", "Launches to count: `sampled` (default), `all` or `off`."),
        ("APEX_CPU_TIMEOUT", "CPU device", "Maximum seconds of a kernel; unset or 0: no limit."),
        (
            "APEX_CPU_TRACE",
            "CPU device",
            "`1`: prints each unsupported entry point that the program calls; `calls`: prints every call.",
        ),
        ("APEX_CACHE_DIR", "crate `apex-gpu`", "Folder of compiled kernels; `off`: no cache."),
        ("APEX_CPU_DEVICE", "crate `apex-gpu`", "Path of `libapex_cpu_device.so`."),
        ("NO_COLOR", "`apex`", "Any value: no colours, unless `--color` is given."),
        (
            "NVTX_INJECTION64_PATH",
            "NVTX",
            "Library that receives NVTX ranges; `apex run` sets it if it is unset.",
        ),
    ];

    /// Variables that APEX sets for its own libraries: the same columns.
    const INTERNAL: [(&str, &str, &str); 3] = [
        ("APEX_SESSION", "`libapex.so`, CPU device", "Folder of the session; `apex run` sets it."),
        ("APEX_CPU_CHECK", "CPU device", "`1`: detects defects; `apex run --check` sets it."),
        (
            "APEX_PYTHON",
            "`apex run`",
            "Python interpreter for commands that end in `.py`; `python -m apex_cuda` sets it.",
        ),
    ];

    /// Variables of tests and scripts: the same columns.
    const OF_TESTS: [(&str, &str, &str); 7] = [
        (
            "APEX_TESTS_REQUIRE_DEPENDENCIES",
            "tests",
            "`1`: a skipped test fails, unless `testing/skip/allowed.txt` lists it.",
        ),
        ("APEX_SKIPPED_TESTS", "tests", "File that receives the list of skipped tests."),
        ("APEX_TEST_PYTHONS", "tests", "Python interpreters to test with, separated by colons."),
        ("APEX_TEST_CUDA_INCLUDE", "tests", "Folder with the headers of another CUDA toolkit."),
        ("APEX_FAST_ALWAYS", "`libapex.so`", "`1`: `--fast` stays on even if it gains nothing."),
        ("APEX_PAGE_OUT", "Vite", "Folder of the built page."),
        ("APEX_BIN", "`scripts/gpu`", "Folder of `apex` and its libraries."),
    ];

    fn page() -> String {
        let mut page = String::from(
            "# Environment variables\n\n\
             <!-- Generated from crates/cli/src/environment.rs: BLESS=1 cargo test -p apex-cli environment -->\n\n\
             ## Options\n\n\
             Each option of `apex` can also be set by the environment variable `APEX_OPTION`: `--max-size 512M` by\n\
             `APEX_MAX_SIZE=512M`. The command line takes precedence. A flag is on for any value except `0`, `false`, `no`\n\
             and `off`. If an option differs between commands, its variable also contains the name of the command:\n\n\
             | option | variable |\n| --- | --- |\n",
        );
        for (command, option) in OF_ONE_COMMAND {
            let variable = format!("APEX_{command}_{option}").to_uppercase();
            let _ = writeln!(page, "| `apex {command} --{option}` | `{variable}` |");
        }
        let tables = [
            ("Other variables", &OTHERS[..]),
            ("Internal variables", &INTERNAL[..]),
            ("Variables of tests and scripts", &OF_TESTS[..]),
        ];
        for (title, variables) in tables {
            let _ = write!(page, "\n## {title}\n\n| variable | reader | meaning |\n| --- | --- | --- |\n");
            for (name, reader, meaning) in variables {
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
    fn every_variable_is_an_option_or_in_a_table() {
        let mut names = BTreeSet::new();
        for krate in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("the crates")
        {
            let sources = krate.expect("a crate").path().join("src");
            if sources.is_dir() {
                named_in(&sources, &mut names);
            }
        }
        let tables = [&OTHERS[..], &INTERNAL[..], &OF_TESTS[..]].concat();
        let command = crate::command();
        let options = command.get_subcommands().flat_map(Command::get_opts).filter_map(Arg::get_env);
        let options: BTreeSet<String> = options.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| tables.iter().all(|(known, ..)| known != name) && !options.contains(name));
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
