//! Every page of the repository leads where it says, and the book has them all.

use super::anchors::anchors;
use super::markdown::links;
use super::*;

/// Folders that hold no pages of ours.
const SKIPPED: [&str; 2] = ["target", "node_modules"];

/// The Markdown pages below a folder, from the repository's root.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if entry.file_type().unwrap().is_dir() {
            if !hidden && !SKIPPED.iter().any(|skipped| name == *skipped) {
                found.extend(pages(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn page(file: &Path) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

/// Describes the fault of a link of a page, if there is one.
fn broken(file: &Path, target: &str) -> Option<String> {
    let (to, anchor) = local(file, target)?;
    if !root().join(&to).exists() {
        return Some(format!("{}: {target}: there is no {}", file.display(), to.display()));
    }
    let anchor = anchor.strip_prefix('#')?;
    let known = to.extension().is_some_and(|extension| extension == "md")
        && anchors(&page(&to)).iter().any(|known| known == anchor);
    (!known).then(|| format!("{}: {target}: {} has no such heading", file.display(), to.display()))
}

#[test]
fn links_and_anchors_of_all_pages_resolve() {
    let mut wrong = Vec::new();
    let pages = pages(Path::new(""));
    assert!(pages.contains(&PathBuf::from("README.md")) && pages.len() > 20, "{pages:?}");
    for file in pages {
        let text = page(&file);
        wrong.extend(links(&text).into_iter().filter_map(|link| broken(&file, &text[link.target])));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_link_that_leads_nowhere_is_named() {
    let readme = Path::new("README.md");
    assert!(broken(readme, "docs/install.md").is_none());
    assert!(broken(readme, "https://example.com/nothing").is_none());
    assert!(broken(readme, "docs/nothing.md").unwrap().contains("there is no docs/nothing.md"));
    assert!(broken(readme, "docs/install.md#nothing").unwrap().contains("no such heading"));
}

#[test]
fn the_book_has_every_page_of_docs_once() {
    let mut chapters = chapters(&page(Path::new("docs/SUMMARY.md")));
    chapters.sort();
    let mut once = chapters.clone();
    once.dedup();
    assert_eq!(chapters, once, "a chapter is listed twice");
    let missing: Vec<PathBuf> =
        pages(Path::new("docs")).into_iter().filter(|page| !chapters.contains(page)).collect();
    assert_eq!(missing, [PathBuf::from("docs/SUMMARY.md")], "docs/SUMMARY.md has to list them");
}

#[test]
fn links_are_turned_to_chapters_files_and_the_repository() {
    let page = "[a](b.md#x) [c](../README.md) ![p](pictures/report.svg) [d](../data) [e](https://e.org)";
    let chapters = ["docs/b.md", "README.md"].map(PathBuf::from);
    let mut source = Source { pages: BTreeMap::new(), files: BTreeMap::new() };
    let mut turned = |file: &str, repository| source.turned(page, Path::new(file), &chapters, repository);
    assert_eq!(
        turned("docs/a.md", Some("https://host/apex")),
        "[a](b.md#x) [c](index.md) ![p](pictures/report.svg) [d](https://host/apex/blob/HEAD/data) \
         [e](https://e.org)"
    );
    assert!(turned("docs/a.md", None).contains(" d [e]"));
    let deeper = page.replace("](", "](../");
    let deeper = source.turned(&deeper, Path::new("docs/results/a.md"), &chapters, None);
    assert!(deeper.contains("[a](../b.md#x) [c](../index.md)"), "{deeper}");
    assert_eq!(source.files.keys().collect::<Vec<_>>(), [Path::new("pictures/report.svg")]);
}

#[test]
fn commands_join_the_summary() {
    let summary = format!("- [Commands](commands.md)\n{COMMANDS}\n- [End](end.md)\n");
    let mut source = Source { pages: BTreeMap::new(), files: BTreeMap::new() };
    source.pages.insert(PathBuf::from("SUMMARY.md"), summary);
    source.add_commands(vec![("run".to_owned(), "# apex run\n".to_owned())]).unwrap();
    let summary = &source.pages[Path::new("SUMMARY.md")];
    assert_eq!(summary, "- [Commands](commands.md)\n  - [apex run](commands/run.md)\n- [End](end.md)\n");
    assert_eq!(source.pages[Path::new("commands/run.md")], "# apex run\n");
}
