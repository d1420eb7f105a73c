//! The libraries inside the command, as `cargo install --features embedded` builds it: unpacked
//! into the user's cache, where the dynamic linker can load them.
//!
//! Each run compares what lies there with what the command holds, byte by byte, and replaces
//! different files by a rename: programs that run keep what they have loaded. A folder that another
//! user could write to is refused, because what lies there is executed.

use anyhow::{Context, bail};
use apex_untrusted::{Folder, read, shown};
use std::io;
use std::path::{Path, PathBuf};

/// Libraries, by name, and a name for exactly these bytes.
struct Embedded {
    identity: &'static str,
    files: &'static [(&'static str, &'static [u8])],
}

// `EMBEDDED`, without files unless the feature is on.
include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The folder with the command's own libraries; `None` if it has none.
///
/// # Errors
/// There is no cache folder, it cannot be written to, or others can write to it.
pub fn folder() -> anyhow::Result<Option<PathBuf>> {
    if EMBEDDED.files.is_empty() {
        return Ok(None);
    }
    unpacked(&EMBEDDED, &cache()?).map(Some).context(
        "cannot unpack the libraries that apex loads into programs: set XDG_CACHE_HOME to a writable folder",
    )
}

/// The user's cache folder, as the XDG base directory specification says.
pub fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (absolute("XDG_CACHE_HOME"), absolute("HOME")) {
        (Some(cache), _) => Ok(cache),
        (None, Some(home)) => Ok(home.join(".cache")),
        (None, None) => bail!(
            "there is no folder for the libraries that apex loads into programs: set XDG_CACHE_HOME or HOME"
        ),
    }
}

fn unpacked(embedded: &Embedded, cache: &Path) -> anyhow::Result<PathBuf> {
    let above = cache.join("apex");
    std::fs::create_dir_all(&above).with_context(|| shown(&above))?;
    let path = above.join(format!("{}-{}", env!("CARGO_PKG_VERSION"), embedded.identity));
    let folder = match Folder::make(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Folder::open(&path),
        made => made,
    }
    .with_context(|| shown(&path))?;
    if let Some(why) = folder.refusal().with_context(|| shown(&path))? {
        bail!("{}: {why}", shown(&path));
    }
    for (name, bytes) in embedded.files {
        if !holds(&path.join(name), bytes) {
            folder.replace(name, 0o700, bytes).with_context(|| shown(path.join(name)))?;
        }
    }
    Ok(path)
}

/// Whether a file holds these bytes.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    read::read(path, bytes.len() as u64).is_ok_and(|found| found == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const LIBRARIES: Embedded =
        Embedded { identity: "0", files: &[("liba.so", b"first"), ("libb.so", b"second")] };

    #[test]
    fn libraries_are_unpacked_once_and_mended() {
        let cache = tempfile::tempdir().unwrap();
        let folder = unpacked(&LIBRARIES, cache.path()).unwrap();
        let file = folder.join("libb.so");
        assert_eq!(std::fs::read(&file).unwrap(), b"second");
        let modified = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        let before = modified(&file);
        assert_eq!(unpacked(&LIBRARIES, cache.path()).unwrap(), folder);
        assert_eq!(modified(&file), before, "what is right is not written again");
        for wrong in [&b"seconD"[..], b"", b"second, and more"] {
            std::fs::write(&file, wrong).unwrap();
            unpacked(&LIBRARIES, cache.path()).unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), b"second");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_library_is_replaced_and_not_followed() {
        let cache = tempfile::tempdir().unwrap();
        let folder = unpacked(&LIBRARIES, cache.path()).unwrap();
        let victim = cache.path().join("victim");
        std::fs::write(&victim, "mine").unwrap();
        std::fs::remove_file(folder.join("liba.so")).unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("liba.so")).unwrap();
        unpacked(&LIBRARIES, cache.path()).unwrap();
        assert_eq!(std::fs::read(folder.join("liba.so")).unwrap(), b"first");
        assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let cache = tempfile::tempdir().unwrap();
        let folder = unpacked(&LIBRARIES, cache.path()).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        let error = format!("{:#}", unpacked(&LIBRARIES, cache.path()).unwrap_err());
        assert!(error.contains(&*folder.to_string_lossy()), "{error}");
    }

    #[test]
    fn runs_that_begin_together_unpack_whole_libraries() {
        let cache = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let folder = unpacked(&LIBRARIES, cache.path()).unwrap();
                    assert_eq!(std::fs::read(folder.join("liba.so")).unwrap(), b"first");
                });
            }
        });
    }
}
