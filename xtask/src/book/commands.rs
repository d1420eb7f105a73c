//! A page for each command of `apex`, out of its help.

use crate::{output, root};
use std::process::Command;

/// Name and page of each command, in the order in which `apex --help` lists them.
///
/// # Errors
/// A command that cannot be built or fails.
pub fn pages() -> anyhow::Result<Vec<(String, String)>> {
    let names = names(&help(&[])?);
    anyhow::ensure!(!names.is_empty(), "`apex --help` lists no commands");
    let pages = names.into_iter().map(|name| {
        let page = page(&name, &help(&[&name])?);
        Ok((name, page))
    });
    pages.collect()
}

/// Columns of text that fit the book's pages.
const COLUMNS: &str = "84";

/// The help of `apex` or of one of its commands.
fn help(words: &[&str]) -> anyhow::Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--locked", "--package", "apex-cli", "--"]).args(words);
    output(cargo.arg("--help").env("COLUMNS", COLUMNS).current_dir(root()))
}

/// The commands that a help lists.
fn names(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| line.starts_with("  ")).filter_map(|line| {
        // A description that was wrapped stands further to the right.
        line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?.split_whitespace().next()
    });
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The help of a command as a page: what it does, then each part under its heading.
fn page(name: &str, help: &str) -> String {
    let mut page = format!("# apex {name}\n\n");
    let mut block = String::new();
    let mut lines = help.lines().skip_while(|line| line.is_empty());
    let about = lines.by_ref().take_while(|line| !line.is_empty());
    page += &format!("{}\n", text(&about.collect::<Vec<_>>().join("\n")));
    for line in lines {
        match heading(line) {
            Some((heading, rest)) => {
                page += &close(&mut block);
                page += &format!("\n## {heading}\n");
                block += rest;
            }
            None => block += line,
        }
        block.push('\n');
    }
    page + &close(&mut block)
}

/// The heading that a line of help is, and what follows it on its line.
fn heading(line: &str) -> Option<(&str, &str)> {
    if let Some(usage) = line.strip_prefix("Usage: ") {
        return Some(("Usage", usage));
    }
    let heading = line.strip_suffix(':')?;
    (!heading.starts_with(' ')).then_some((heading, ""))
}

/// Returns the collected lines as a block without the empty lines around it.
fn close(block: &mut String) -> String {
    let lines: Vec<&str> = block.lines().collect();
    let filled = |line: &&str| !line.trim().is_empty();
    let page = match (lines.iter().position(filled), lines.iter().rposition(filled)) {
        (Some(first), Some(last)) => format!("\n```text\n{}\n```\n", lines[first..=last].join("\n")),
        _ => String::new(),
    };
    block.clear();
    page
}

/// A text in which Markdown finds no marks.
fn text(plain: &str) -> String {
    let marked = |c: char| matches!(c, '*' | '_' | '<' | '[' | '`' | '\\' | '#');
    plain.chars().flat_map(|c| marked(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_help_becomes_a_page() {
        let help = "Records a program.\n\nMore of it.\n\nUsage: apex run [OPTIONS] <COMMAND>\n\nOptions:\n  \
                    -o <DIR>  Where\n\n      --all  Everything\n\nExamples:\n  apex run -- ls\n";
        let expected = "# apex run\n\nRecords a program.\n\n```text\nMore of it.\n```\n\n## Usage\n\n```text\n\
                        apex run [OPTIONS] <COMMAND>\n```\n\n## Options\n\n```text\n  -o <DIR>  Where\n\n      \
                        --all  Everything\n```\n\n## Examples\n\n```text\n  apex run -- ls\n```\n";
        assert_eq!(page("run", help), expected);
    }

    #[test]
    fn commands_are_those_of_the_help() {
        let help = "About\n\nCommands:\n  run   Records\n          a program\n  diff  Compares\n  help  Prints\n\nOptions:\n  -h\n";
        assert_eq!(names(help), ["run", "diff"]);
    }
}
