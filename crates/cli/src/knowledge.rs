//! The user's own known causes: files in a folder of the user's configuration, and `--knowledge`.

use apex_ordered::Order;
use std::path::{Path, PathBuf};

use anyhow::Context;
use apex_knowledge::Knowledge;

/// The folder below the configuration folder.
const FOLDER: &str = "apex/knowledge";
/// Longest file that is read, in bytes.
const LIMIT: u64 = 1 << 20;

/// Makes the table of known causes of this process: the shipped ones, those of the user's folder,
/// and those of these files.
pub fn install(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut paths = folder().map(|folder| in_folder(&folder)).unwrap_or_default();
    paths.extend_from_slice(files);
    if paths.is_empty() {
        return Ok(());
    }
    let read = |path: &PathBuf| {
        apex_untrusted::read::read_to_string(path, LIMIT)
            .with_context(|| format!("cannot read the known causes in {}", path.display()))
    };
    let texts = paths.iter().map(read).collect::<anyhow::Result<Vec<String>>>()?;
    let files = paths.iter().map(PathBuf::as_path).zip(texts.iter().map(String::as_str));
    // A process has one table; commands install it once.
    Knowledge::with_files(files)?.install();
    Ok(())
}

/// Returns the folder of the user's files of known causes, as the XDG base directory specification
/// defines it.
fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join(FOLDER))
}

/// The files of a folder, by name; none if there is no such folder.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_toml).collect();
    paths.order_by(Ord::cmp);
    paths
}
