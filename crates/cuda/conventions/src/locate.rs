//! The places of the real driver.
//!
//! The program would have found `libcuda.so.1` through the dynamic linker. Because this library has
//! that name, the linker cannot be asked. Its search is therefore repeated: `LD_LIBRARY_PATH`, the
//! cache of ldconfig, and then the places where distributions, containers, WSL and Nix install the
//! driver without ldconfig. Candidates are absolute paths in order of preference; the caller skips
//! this library's own file ([`FileId`]).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name under which every CUDA program asks for the driver.
pub const DRIVER_NAME: &str = "libcuda.so.1";

const CACHE: &str = "/etc/ld.so.cache";

/// Folders that ldconfig may not know. The compatibility folder comes last: whoever wants the
/// forward-compatibility driver instead of the installed one says so through `LD_LIBRARY_PATH` or
/// ldconfig.
const KNOWN_FOLDERS: &[&str] = &[
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/usr/local/cuda/compat",
];

/// A file's identity, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The identity of the file at `path` (links followed), or `None` if there is none.
    pub fn of(path: &Path) -> Option<FileId> {
        let metadata = std::fs::metadata(path).ok()?;
        metadata.is_file().then(|| FileId { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Existing files that may be the real driver, best first, each file once, without the files in
/// `ours`.
pub fn candidates(ours: &[FileId]) -> Vec<PathBuf> {
    let from_environment =
        std::env::var_os("LD_LIBRARY_PATH").map(|list| library_path(&list)).unwrap_or_default();
    let from_cache = std::fs::read(CACHE).map(|cache| cached(&cache, DRIVER_NAME)).unwrap_or_default();
    let from_folders = KNOWN_FOLDERS.iter().map(|folder| Path::new(folder).join(DRIVER_NAME));
    distinct(from_environment.into_iter().chain(from_cache).chain(from_folders), ours)
}

fn distinct(paths: impl Iterator<Item = PathBuf>, ours: &[FileId]) -> Vec<PathBuf> {
    let mut seen = ours.to_vec();
    let mut found = Vec::new();
    for path in paths {
        if let Some(id) = FileId::of(&path)
            && !seen.contains(&id)
        {
            seen.push(id);
            found.push(path);
        }
    }
    found
}

/// The driver in each folder of `LD_LIBRARY_PATH`. A relative or empty folder means the current one
/// to the dynamic linker, and so it does here.
fn library_path(list: &OsStr) -> Vec<PathBuf> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    list.as_bytes()
        .split(|&byte| byte == b':' || byte == b';')
        .map(|folder| here.join(OsStr::from_bytes(folder)).join(DRIVER_NAME))
        .collect()
}

/// Paths that ldconfig's cache gives for `name` on this architecture. Anything malformed ends the
/// list early.
///
/// The cache is a header of 48 bytes, entries of 24 bytes and strings whose offsets count from that
/// header; in the oldest layout still in use the header follows a list in an older format.
fn cached(cache: &[u8], name: &str) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    #[cfg(target_arch = "x86_64")]
    const ELF_OF_THIS_MACHINE: u32 = 0x0303;
    #[cfg(target_arch = "aarch64")]
    const ELF_OF_THIS_MACHINE: u32 = 0x0a03;

    let Some(start) = cache.windows(MAGIC.len()).position(|window| window == MAGIC) else {
        return Vec::new();
    };
    let cache = &cache[start..];
    let word = |at: usize| Some(u32::from_le_bytes(cache.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let text = |at: u32| cache.get(at as usize..)?.split(|&byte| byte == 0).next();

    let count = word(MAGIC.len()).unwrap_or(0) as usize;
    let entry = |index: usize| {
        let at = HEADER + index * ENTRY;
        Some((word(at)?, text(word(at + 4)?)?, text(word(at + 8)?)?))
    };
    (0..count)
        .map_while(entry)
        .filter(|(flags, key, _)| *flags == ELF_OF_THIS_MACHINE && *key == name.as_bytes())
        .map(|(_, _, path)| PathBuf::from(OsStr::from_bytes(path)))
        .filter(|path| path.is_absolute())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache as ldconfig writes it, with entries `(flags, name, path)`.
    fn cache_of(entries: &[(u32, &str, &str)], prefix: &[u8]) -> Vec<u8> {
        let strings_at = 48 + 24 * entries.len();
        let mut head = b"glibc-ld.so.cache1.1".to_vec();
        head.extend((entries.len() as u32).to_le_bytes());
        head.resize(48, 0);
        let mut strings = Vec::new();
        for (flags, name, path) in entries {
            let mut place = |text: &str| {
                let at = (strings_at + strings.len()) as u32;
                strings.extend(text.as_bytes());
                strings.push(0);
                at
            };
            let (key, value) = (place(name), place(path));
            head.extend([*flags, key, value, 0, 0, 0].map(u32::to_le_bytes).concat());
        }
        [prefix, &head, &strings].concat()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_cache_gives_the_paths_of_this_architecture_in_order() {
        let entries = [
            (0x0303, "libc.so.6", "/lib/libc.so.6"),
            (0x0003, "libcuda.so.1", "/lib32/libcuda.so.1"),
            (0x0303, "libcuda.so.1", "/b/libcuda.so.1"),
            (0x0303, "libcuda.so.1", "/a/libcuda.so.1"),
        ];
        let expected = [PathBuf::from("/b/libcuda.so.1"), PathBuf::from("/a/libcuda.so.1")];
        for prefix in [&b""[..], b"ld.so-1.7.0\0old entries  "] {
            assert_eq!(cached(&cache_of(&entries, prefix), "libcuda.so.1"), expected);
        }
    }

    #[test]
    fn a_damaged_cache_never_panics() {
        let whole = cache_of(&[(0x0303, "libcuda.so.1", "/a/libcuda.so.1")], b"");
        for length in 0..whole.len() {
            let _ = cached(&whole[..length], "libcuda.so.1");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            let _ = cached(&damaged, "libcuda.so.1");
        }
    }

    #[test]
    fn this_machines_cache_gives_its_libc() {
        let Ok(cache) = std::fs::read(CACHE) else { return };
        let found = cached(&cache, "libc.so.6");
        assert!(found.iter().any(|path| path.exists()), "no libc.so.6 among {found:?}");
    }

    #[test]
    fn our_own_file_is_left_out_whatever_path_leads_to_it() {
        let folder = std::env::temp_dir().join(format!("locate-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (ours, theirs, link) = (folder.join("ours"), folder.join("theirs"), folder.join("link"));
        std::fs::write(&ours, "a").unwrap();
        std::fs::write(&theirs, "b").unwrap();
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        let id = FileId::of(&ours).unwrap();
        let all = [&link, &folder, &ours, &theirs, &theirs].map(PathBuf::clone);
        assert_eq!(distinct(all.into_iter(), &[id]), [theirs]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
