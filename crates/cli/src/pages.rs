//! Tests that every command in the pages and in the help is valid: each is parsed as the shell and
//! `apex` parse it.

use crate::Arguments;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::path::{Path, PathBuf};

/// The words of each simple command of a line of shell, without what redirects it.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let (mut quote, mut redirected) = (None, false);
    for c in line.chars().chain(['\n']) {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | '&' | ';' | '<' | '>' | '(' | ')' | '\n') => {
                let redirects = matches!(c, '<' | '>');
                // The word behind `>` is a file, a number before it a file descriptor.
                let ended = word.take().filter(|_| !std::mem::take(&mut redirected));
                words.extend(ended.filter(|word| !(redirects && word.parse::<u32>().is_ok())));
                redirected |= redirects;
                if !redirects && c != ' ' {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

/// The calls of `apex` in a line of shell, from its name on: settings before it are left out. What
/// an example does stands behind several blanks.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.trim_start().split("  ").next().unwrap_or_default();
    let is_setting = |word: &String| word.split_once('=').is_some_and(|(name, _)| name.starts_with("APEX_"));
    let commands = commands(line).into_iter();
    let commands = commands.map(|words| words.into_iter().skip_while(is_setting).collect::<Vec<_>>());
    commands.filter(|words| words.first().is_some_and(|word| word == "apex")).collect()
}

/// The lines of a page's shell blocks: indented ones, and fenced ones of a shell.
fn shell_lines(page: &str) -> Vec<&str> {
    let (mut lines, mut fence, mut indented) = (Vec::new(), None, true);
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language) };
        } else if let Some(language) = fence {
            lines.extend(matches!(language, "sh" | "bash" | "console").then_some(line));
        } else if line.is_empty() || (indented && line.starts_with("    ")) {
            indented = true;
            lines.push(line);
        } else {
            indented = false;
        }
    }
    lines
}

/// Returns the errors in the calls of `apex` in a line.
fn wrong(line: &str) -> Vec<String> {
    let refused = |words: Vec<String>| match Arguments::try_parse_from(&words) {
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(error) => Some(format!("{}: {}", words.join(" "), error.kind())),
        Ok(_) => None,
    };
    calls(line).into_iter().filter_map(refused).collect()
}

/// The pages that show commands.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/guides", "docs/results"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|file| file.extension().is_some_and(|extension| extension == "md")));
    }
    pages
}

#[test]
fn commands_of_the_pages_are_understood() {
    let (mut shown, mut refused) = (0, Vec::new());
    for file in pages() {
        let page = std::fs::read_to_string(&file).unwrap();
        for line in shell_lines(&page) {
            shown += calls(line).len();
            refused.extend(wrong(line).iter().map(|wrong| format!("{}: {wrong}", file.display())));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(shown > 50, "only {shown} commands were found");
}

#[test]
fn examples_of_the_help_are_understood() {
    let mut refused = Vec::new();
    for command in Arguments::command().get_subcommands() {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.lines().filter_map(|line| line.strip_prefix("  "));
        refused.extend(examples.flat_map(wrong));
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Packages have the pages in `docs`, and nothing else that a help text may name.
#[test]
fn pages_that_the_help_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    for command in Arguments::command().get_subcommands() {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        for word in help.split(|c: char| c.is_whitespace() || "()`,;".contains(c)) {
            let word = word.trim_end_matches('.');
            if word.starts_with("docs/") {
                named += 1;
                assert!(root.join(word).is_file(), "apex {}: {word}", command.get_name());
            }
        }
    }
    assert!(named > 0);
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let words = calls("APEX_TIMING=all apex run -- sh -c 'a | b' >out 2>&1 && apex report # the newest");
    assert_eq!(words, [vec!["apex", "run", "--", "sh", "-c", "a | b"], vec!["apex", "report"]]);
    assert!(calls("apex: 1 launch").is_empty());
    assert_eq!(calls("  apex report      the newest"), [["apex", "report"]]);
    assert_eq!(shell_lines("Text\n    wrapped\n\n    apex a\n```sh\napex b\n```\n```\nout\n```\n").len(), 3);
    assert!(wrong("apex report --by place s").is_empty());
    assert!(wrong("apex report --by nothing")[0].contains("--by nothing"));
    assert!(wrong("apex nothing")[0].contains("unrecognized subcommand"));
}
