//! The files of an installation, relative to its prefix: `bin/apex` finds `lib/apex` from there.

use super::build::Built;
use super::root;
use anyhow::Context;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A file of an installation.
pub struct Entry {
    pub bytes: Vec<u8>,
    /// Permissions.
    pub mode: u32,
}

/// Files by their path below the prefix, in the order of their paths.
pub struct Tree {
    pub files: BTreeMap<String, Entry>,
}

/// The folder in which each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/apex"),
    ("zsh", "share/zsh/site-functions/_apex"),
    ("fish", "share/fish/vendor_completions.d/apex.fish"),
];

/// Files of the repository that go with a release.
const DOCUMENTS: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"];

/// Folders of pages that go with it: messages and help texts name some of them.
const PAGES: [&str; 2] = ["docs", "docs/guides"];

impl Tree {
    /// The files, with what the built command says of itself.
    pub fn new(built: &Built) -> anyhow::Result<Tree> {
        let mut tree = Tree { files: BTreeMap::new() };
        tree.add("bin/apex", read(&built.command)?, 0o755);
        for library in &built.libraries {
            let name = library.file_name().context("a library has a name")?.to_string_lossy();
            tree.add(&format!("lib/apex/{name}"), read(library)?, 0o755);
        }
        for (shell, path) in COMPLETIONS {
            let script = super::output(Command::new(&built.command).args(["completions", shell]))?;
            tree.add(path, script.into_bytes(), 0o644);
        }
        let manual = tempfile::tempdir()?;
        super::output(Command::new(&built.command).arg("man").arg(manual.path()))?;
        for page in std::fs::read_dir(manual.path())? {
            let page = page?;
            tree.add(
                &format!("share/man/man1/{}", page.file_name().to_string_lossy()),
                read(&page.path())?,
                0o644,
            );
        }
        for document in DOCUMENTS {
            tree.add(&format!("share/doc/apex/{document}"), read(&root().join(document))?, 0o644);
        }
        for page in pages()? {
            tree.add(&format!("share/doc/apex/{page}"), read(&root().join(&page))?, 0o644);
        }
        Ok(tree)
    }

    fn add(&mut self, path: &str, bytes: Vec<u8>, mode: u32) {
        self.files.insert(path.to_owned(), Entry { bytes, mode });
    }

    /// The tree as a compressed tar file, below this folder.
    pub fn tar_gz(&self, prefix: &str, time: u64) -> std::io::Result<Vec<u8>> {
        let mut tar =
            tar::Builder::new(flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best()));
        let mut folders = std::collections::BTreeSet::new();
        for (path, entry) in &self.files {
            let path = format!("{prefix}{path}");
            for (end, _) in path.match_indices('/').skip_while(|(end, _)| path[..*end] == *".") {
                if folders.insert(path[..=end].to_owned()) {
                    append(&mut tar, &path[..=end], tar::EntryType::Directory, 0o755, time, &[])?;
                }
            }
            append(&mut tar, &path, tar::EntryType::Regular, entry.mode, time, &entry.bytes)?;
        }
        tar.into_inner()?.finish()
    }
}

/// The pages of [`PAGES`], by their path in the repository.
fn pages() -> anyhow::Result<Vec<String>> {
    let mut pages = Vec::new();
    for folder in PAGES {
        for page in std::fs::read_dir(root().join(folder))? {
            let name = page?.file_name().to_string_lossy().into_owned();
            pages.extend(name.ends_with(".md").then(|| format!("{folder}/{name}")));
        }
    }
    Ok(pages)
}

/// Appends one entry, of root and of this time.
fn append<W: std::io::Write>(
    tar: &mut tar::Builder<W>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    time: u64,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(bytes.len() as u64);
    for set in [tar::Header::set_username, tar::Header::set_groupname] {
        set(&mut header, "root")?;
    }
    tar.append_data(&mut header, path, bytes)
}

/// The content of a file.
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn pages_that_messages_name_are_packed() {
        let pages = super::pages().unwrap();
        for named in ["docs/import.md", "docs/tune.md", "docs/guides/pytorch.md"] {
            assert!(pages.iter().any(|page| page == named), "{named}");
        }
    }
}
