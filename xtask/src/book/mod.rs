//! `cargo xtask book`: the documentation site, out of `docs/` and the pages beside it.
//!
//! `docs/SUMMARY.md` lists the chapters. They are copied, with their links turned: to another
//! chapter where there is one, to the file's page in the repository elsewhere. A page for each
//! command is made from its help. mdBook renders them.

#[cfg(test)]
mod anchors;
mod commands;
mod markdown;
#[cfg(test)]
mod tests;

use crate::root;
use anyhow::{Context, bail};
use markdown::Link;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};

/// The mark at which the pages of commands stand in the summary.
const COMMANDS: &str = "<!-- a page for each command -->";

/// Writes the book's source into a folder and renders it to `html` there. Files that are no chapter
/// are linked in the repository at this address; without one they are named and not linked.
///
/// # Errors
/// A chapter that is missing, a command that cannot be built, mdBook that is missing or fails.
pub fn run(out: &Path, repository: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut source = Source::new(&root().join("docs/SUMMARY.md"), repository)?;
    source.add_commands(commands::pages()?)?;
    if out.exists() {
        std::fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
    }
    source.write(&out.join("src"))?;
    copy(&root().join("docs/book.toml"), &out.join("book.toml"))?;
    let mut mdbook = Command::new("mdbook");
    if let Some(repository) = repository {
        mdbook.env("MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL", repository);
    }
    let status = mdbook.arg("build").arg(out).status();
    let status = status.context("starting mdbook; `cargo install --locked mdbook` installs it")?;
    if !status.success() {
        bail!("mdbook failed: see its message above");
    }
    println!("{}", out.join("html/index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// The pages of the book before they are rendered.
struct Source {
    /// Text by place in the book, the summary among them.
    pages: BTreeMap<PathBuf, String>,
    /// The files that the pages show or link and mdBook copies: place in the book, file of the
    /// repository.
    files: BTreeMap<PathBuf, PathBuf>,
}

impl Source {
    fn new(summary: &Path, repository: Option<&str>) -> anyhow::Result<Source> {
        let text = read(summary)?;
        let mut source = Source { pages: BTreeMap::new(), files: BTreeMap::new() };
        for chapter in chapters(&text) {
            let page = read(&root().join(&chapter))?;
            let page = source.turned(&page, &chapter, &chapters(&text), repository);
            source.pages.insert(place(&chapter), page);
        }
        let summary = source.turned(&text, Path::new("docs/SUMMARY.md"), &chapters(&text), None);
        source.pages.insert(PathBuf::from("SUMMARY.md"), summary);
        Ok(source)
    }

    /// The page of a file of the repository with its links turned.
    fn turned(&mut self, page: &str, file: &Path, chapters: &[PathBuf], repository: Option<&str>) -> String {
        let mut turned = page.to_owned();
        // From behind: what stands before a link stays where it is. A picture in a link goes first.
        for link in markdown::links(page).iter().rev() {
            let target = &page[link.target.clone()];
            let Some((to, anchor)) = local(file, target) else { continue };
            let replaced = if chapters.contains(&to) {
                link.with_target(page, &format!("{}{anchor}", relative(&place(file), &place(&to))))
            } else if to.starts_with("docs") && root().join(&to).is_file() {
                self.files.insert(place(&to), to.clone());
                link.with_target(page, &relative(&place(file), &place(&to)))
            } else if let Some(repository) = repository {
                link.with_target(page, &format!("{repository}/blob/HEAD/{}{anchor}", to.display()))
            } else {
                page[link.text.clone()].to_owned()
            };
            turned.replace_range(link.whole.clone(), &replaced);
        }
        turned
    }

    /// Adds a page for each command: its name and text.
    fn add_commands(&mut self, commands: Vec<(String, String)>) -> anyhow::Result<()> {
        let summary = self.pages.get_mut(Path::new("SUMMARY.md")).context("the book has a summary")?;
        let entry = |(name, _): &(String, String)| format!("  - [apex {name}](commands/{name}.md)\n");
        let entries: String = commands.iter().map(entry).collect();
        anyhow::ensure!(summary.contains(COMMANDS), "docs/SUMMARY.md lacks {COMMANDS}");
        *summary = summary.replace(COMMANDS, entries.trim_end());
        let pages =
            commands.into_iter().map(|(name, page)| (PathBuf::from(format!("commands/{name}.md")), page));
        self.pages.extend(pages);
        Ok(())
    }

    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        for (place, page) in &self.pages {
            let path = folder.join(place);
            std::fs::create_dir_all(path.parent().context("a page lies in a folder")?)?;
            std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        }
        self.files.iter().try_for_each(|(place, file)| copy(&root().join(file), &folder.join(place)))
    }
}

impl Link {
    /// The link to another target.
    fn with_target(&self, page: &str, target: &str) -> String {
        format!("{}{target})", &page[self.whole.start..self.target.start])
    }
}

/// The files of the chapters that a summary lists, below the repository's root.
fn chapters(summary: &str) -> Vec<PathBuf> {
    let links = markdown::links(summary).into_iter();
    links.filter_map(|link| Some(local(Path::new("docs/SUMMARY.md"), &summary[link.target])?.0)).collect()
}

/// Returns the target of a page's link in the repository, and its anchor with `#`; nothing for
/// addresses.
fn local<'t>(page: &Path, target: &'t str) -> Option<(PathBuf, &'t str)> {
    if !Link::is_local(target) {
        return None;
    }
    let (file, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
    let to = if file.is_empty() { page.to_owned() } else { joined(page.parent()?, Path::new(file)) };
    Some((to, anchor))
}

/// A path without `.` and `..`.
fn joined(folder: &Path, file: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for component in folder.join(file).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    path
}

/// Returns the place of a file of the repository in the book: `docs` is its root, and a folder's
/// README its index.
fn place(file: &Path) -> PathBuf {
    let place = file.strip_prefix("docs").unwrap_or(file);
    if place.ends_with("README.md") { place.with_file_name("index.md") } else { place.to_owned() }
}

/// The link from one page of the book to another.
fn relative(from: &Path, to: &Path) -> String {
    let depth = from.components().count() - 1;
    format!("{}{}", "../".repeat(depth), to.display())
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}
