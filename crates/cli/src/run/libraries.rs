//! Finds the libraries that `apex run` loads into programs: beside the executable, in an
//! installation, or embedded in the executable.

use super::embedded;
use anyhow::{Context, bail};
use apex_conventions::variables;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The injected library.
pub const RECORDER: &str = "libapex.so";
/// Its second name, for programs that open `libcuda.so` without a version.
pub const ALIAS: &str = "libapex_alias.so";
/// The driver that executes PTX on the CPU.
pub const CPU_DEVICE: &str = "libapex_cpu_device.so";
/// Has NVRTC compile what the CPU device can execute.
pub const NVRTC: &str = "libapex_nvrtc.so";

/// The number of `..` behind `$ORIGIN`: more than there are folders above any program. Above the
/// root it stays at the root.
const PARENTS: usize = 64;

/// An absolute path as it stands in `LD_PRELOAD`, so that glibc loads the file and musl ignores it.
///
/// musl's dynamic linker cannot load a library that needs glibc, and ends the program for it. It
/// opens the entries of `LD_PRELOAD` literally and skips those that do not exist. glibc replaces
/// `$ORIGIN` by the program's folder, from which `..` leads to the root. A program anywhere in the
/// tree therefore starts, whichever of the two it is linked to, and so do its children.
fn for_glibc(path: &Path) -> OsString {
    let mut entry = OsString::from("$ORIGIN");
    entry.push("/..".repeat(PARENTS));
    entry.push(path);
    entry
}

/// A folder that holds [`RECORDER`].
pub struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// Looks in `APEX_LIB_DIR`, or if that is not set: beside the executable, in `deps` beside it
    /// (where cargo builds them for tests), and in `../lib/apex` (an installation). Found in none of
    /// these, they come out of the executable, if it has them.
    ///
    /// # Errors
    /// Names every folder that was looked into.
    pub fn find() -> anyhow::Result<Self> {
        let named = std::env::var_os(variables::LIB_DIR.name);
        let folders = match &named {
            Some(folder) => vec![PathBuf::from(folder)],
            None => {
                let executable =
                    std::env::current_exe().context("cannot find the path of the apex executable")?;
                let beside = executable.parent().unwrap_or(Path::new("/"));
                vec![beside.to_path_buf(), beside.join("deps"), beside.join("../lib/apex")]
            }
        };
        if let Some(folder) = folders.iter().find(|folder| folder.join(RECORDER).is_file()) {
            return Ok(Self { folder: std::path::absolute(folder)? });
        }
        if named.is_none()
            && let Some(folder) = embedded::folder()?
        {
            return Ok(Self { folder });
        }
        bail!(
            "{RECORDER} was not found in: {}. Build it with `cargo build --release`, install it with `cargo \
                install --features embedded`, or set APEX_LIB_DIR to its folder.",
            folders.iter().map(apex_untrusted::shown).collect::<Vec<_>>().join(", ")
        )
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The CPU device.
    ///
    /// # Errors
    /// If it does not lie beside the recorder.
    pub fn cpu_device(&self) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(CPU_DEVICE);
        if !path.is_file() {
            bail!(
                "{CPU_DEVICE} was not found in {}, next to {RECORDER}",
                apex_untrusted::shown(&self.folder)
            );
        }
        Ok(path)
    }

    /// Returns `LD_PRELOAD` for the CPU device: the program's own value, with the library that
    /// stands before NVRTC.
    pub fn with_nvrtc(&self, existing: Option<OsString>) -> Option<OsString> {
        let nvrtc = self.folder.join(NVRTC);
        if !nvrtc.is_file() {
            return existing;
        }
        let entries = existing.into_iter().chain([for_glibc(&nvrtc)]);
        Some(entries.collect::<Vec<_>>().join(OsStr::new(":")))
    }

    /// `LD_PRELOAD` for the program: what `existing` asks for, then ours. Without APEX a preloaded
    /// library stands between the program and the driver, which comes behind all of them; so it
    /// does with APEX, whose library is the driver to it.
    ///
    /// # Errors
    /// If the folder's name cannot stand in that variable, which separates by blanks and colons.
    pub fn preload(&self, existing: Option<&OsStr>) -> anyhow::Result<OsString> {
        let name = self.folder.as_os_str();
        if name.as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
            bail!(
                "{} cannot be preloaded: LD_PRELOAD knows no names with blanks or colons. Make a link without them \
                 to that folder and set APEX_LIB_DIR to the link.",
                apex_untrusted::shown(&self.folder)
            );
        }
        let ours = [RECORDER, ALIAS].map(|name| self.folder.join(name));
        let ours: Vec<OsString> =
            ours.into_iter().filter(|path| path.is_file()).map(|path| for_glibc(&path)).collect();
        let mut list: Vec<OsString> = Vec::new();
        for entry in existing.unwrap_or_default().as_bytes().split(|byte| b": \t\n".contains(byte)) {
            let entry = OsStr::from_bytes(entry).to_os_string();
            if !entry.is_empty() && !ours.contains(&entry) && !list.contains(&entry) {
                list.push(entry);
            }
        }
        list.extend(ours);
        Ok(list.join(OsStr::new(":")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries(folder: &Path) -> Libraries {
        for name in [RECORDER, ALIAS] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        Libraries { folder: folder.to_path_buf() }
    }

    #[test]
    fn ours_come_once_and_behind_the_users() {
        let folder = tempfile::tempdir().unwrap();
        let libraries = libraries(folder.path());
        let entry = |name| for_glibc(&folder.path().join(name)).into_string().unwrap();
        let ours = [RECORDER, ALIAS].map(entry).join(":");
        assert_eq!(libraries.preload(None).unwrap(), *ours);
        let existing = format!("/opt/liba.so {ours}:/opt/libb.so");
        let expected = format!("/opt/liba.so:/opt/libb.so:{ours}");
        assert_eq!(libraries.preload(Some(OsStr::new(&existing))).unwrap(), *expected);
    }

    /// glibc's linker puts the program's folder in place of `$ORIGIN`; musl's opens what is written.
    #[test]
    fn an_entry_leads_from_each_program_to_the_library_and_from_none_without_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join(RECORDER);
        std::fs::write(&library, "").unwrap();
        let entry = for_glibc(&library).into_string().unwrap();
        let deep = folder.path().join("a/b/c/d/e/f/g/h");
        std::fs::create_dir_all(&deep).unwrap();
        for origin in [Path::new("/"), Path::new("/usr/bin"), &deep] {
            let found = entry.replace("$ORIGIN", origin.to_str().unwrap());
            assert_eq!(std::fs::canonicalize(found).unwrap(), std::fs::canonicalize(&library).unwrap());
        }
        assert!(!Path::new(&entry).exists());
    }

    #[test]
    fn a_folder_that_cannot_be_named_is_an_error_that_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let blank = folder.path().join("my programs");
        std::fs::create_dir(&blank).unwrap();
        let error = libraries(&blank).preload(None).unwrap_err().to_string();
        assert!(error.contains(variables::LIB_DIR.name), "{error}");
    }
}
