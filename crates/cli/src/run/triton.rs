//! Stores the PTX of Triton's kernels. Triton loads machine code, and its cache contains the PTX
//! beside it. After the program has ended, each cubin of the session is looked up in the cache by
//! its bytes, and its PTX is copied into the session, because caches are emptied. Without `--code`
//! the PTX replaces the cubin. Of cubins without PTX, the smallest stay, up to
//! [`MOST_CUBINS_BYTES`] in all: their instructions tell what limits a kernel. The others are
//! removed.
//!
//! A cache has a folder for each kernel, with `<name>.cubin` and `<name>.ptx`. These files are
//! untrusted like any other: only regular files within stated sizes are read, a limited number of
//! folders is searched, and the PTX is text that a parser reads.

use apex_ordered::Order;
use apex_trace::control::Control;
use apex_trace::image;
use apex_untrusted::{Folder, read};
use fatbin::{Image, kept};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Most folders of kernels that are looked into, of all caches.
const MOST_FOLDERS: usize = 1 << 15;
/// Most files of such a folder.
const MOST_FILES: usize = 64;
/// Largest cubin that is looked for: those of Triton's kernels take some ten thousand bytes.
const MOST_CUBIN_BYTES: u64 = 16 << 20;
/// Most bytes of all cubins without PTX that stay without `--code`.
const MOST_CUBINS_BYTES: u64 = 4 << 20;
/// Largest PTX that is kept.
const MOST_PTX_BYTES: u64 = 16 << 20;

/// Cubins of a session without PTX: the image by length and digest of the bytes.
type Wanted = HashMap<(u64, u64), u128>;

/// Keeps the PTX of those of a session's cubins that lie in one of Triton's caches. Without a
/// cache, or where something cannot be read, the session does not change.
pub fn keep(session: &Folder, control: &Control) {
    keep_from(session, control, caches);
    if control.keeps_only_ptx() {
        remove(session, control, beyond(session, MOST_CUBINS_BYTES).into_iter());
    }
}

/// Cubins without PTX that have no room, the smallest of which go first.
fn beyond(session: &Folder, most: u64) -> Vec<u128> {
    let mut all: Vec<((u64, u64), u128)> = wanted(session).into_iter().collect();
    all.order_by(Ord::cmp);
    let mut taken = 0u64;
    let mut has_no_room = |bytes: u64| {
        taken = taken.saturating_add(bytes);
        taken > most
    };
    all.retain(|&((bytes, _), _)| has_no_room(bytes));
    all.into_iter().map(|(_, hash)| hash).collect()
}

/// Removes images, and gives back the space that they took.
fn remove(session: &Folder, control: &Control, images: impl Iterator<Item = u128>) {
    for hash in images {
        let name = image::file_name(hash);
        let bytes = session.path().join(&name).symlink_metadata().map(|file| file.len());
        if let Some(bytes) = bytes.ok().filter(|_| session.remove(&name).is_ok()) {
            control.code.give_back(bytes);
            control.used_bytes.fetch_sub(bytes, Relaxed);
        }
    }
}

/// Triton's caches, as the environment names them: its own, and those of TorchInductor, which has
/// one for each device.
fn caches() -> Vec<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = folder("TRITON_HOME").or_else(|| folder("HOME"));
    let own = folder("TRITON_CACHE_DIR").or_else(|| Some(home?.join(".triton/cache")));
    let inductors: Vec<_> = match folder("TORCHINDUCTOR_CACHE_DIR") {
        Some(named) => vec![named],
        None => within(&std::env::temp_dir(), MOST_FOLDERS).filter(|path| is_inductors(path)).collect(),
    };
    let of_devices = inductors.iter().flat_map(|inductor| within(&inductor.join("triton"), MOST_FILES));
    own.into_iter().chain(of_devices).collect()
}

/// Whether this is the folder that TorchInductor makes for a user.
fn is_inductors(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"torchinductor_"))
}

/// Returns the entries of a folder, at most `most`; nothing if it cannot be read.
fn within(folder: &Path, most: usize) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.take(most).filter_map(|entry| Some(entry.ok()?.path()))
}

fn keep_from(session: &Folder, control: &Control, caches: impl FnOnce() -> Vec<PathBuf>) {
    let mut wanted = wanted(session);
    if wanted.is_empty() {
        return;
    }
    let caches = caches();
    let kernels = caches.iter().flat_map(|cache| within(cache, MOST_FOLDERS)).take(MOST_FOLDERS);
    for path in kernels.flat_map(|kernel| within(&kernel, MOST_FILES)) {
        if wanted.is_empty() {
            return;
        }
        if path.extension() != Some(OsStr::new("cubin")) {
            continue;
        }
        let is_wanted = |bytes: u64| wanted.keys().any(|&(length, _)| length == bytes);
        let Some(cubin) = path.metadata().ok().filter(|found| is_wanted(found.len())) else { continue };
        let Ok(cubin) = read::read(&path, cubin.len()) else { continue };
        // Without room for the PTX, or PTX: the next one of these bytes may have it.
        if let Some(&hash) = wanted.get(&key(&cubin))
            && add(session, control, hash, &cubin, &path.with_extension("ptx")).is_ok()
        {
            wanted.remove(&key(&cubin));
        }
    }
}

/// The session's images that are a cubin and nothing else.
fn wanted(session: &Folder) -> Wanted {
    let cubin = |path: PathBuf| {
        let is_image = path.extension() == Some(OsStr::new(image::EXTENSION));
        let hash = u128::from_str_radix(path.file_stem().filter(|_| is_image)?.to_str()?, 16).ok()?;
        let parts = kept::unpack(&image::read(session.path(), hash).ok()?).ok()?;
        let [only] = &parts[..] else { return None };
        let is_cubin = matches!(fatbin::read(only, 0), Ok(Image::MachineCodeOnly(_)));
        (is_cubin && only.len() as u64 <= MOST_CUBIN_BYTES).then(|| (key(only), hash))
    };
    within(session.path(), usize::MAX).filter_map(cubin).collect()
}

fn key(bytes: &[u8]) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    (bytes.len() as u64, hasher.finish())
}

/// Puts the PTX of a cubin into its image.
fn add(session: &Folder, control: &Control, hash: u128, cubin: &[u8], ptx: &Path) -> io::Result<()> {
    let ptx = read::read_to_string(ptx, MOST_PTX_BYTES)?;
    if !matches!(fatbin::read(ptx.as_bytes(), 0), Ok(Image::Ptx(_))) {
        return Err(io::Error::other("it is no PTX"));
    }
    let parts = [Cow::Borrowed(cubin), Cow::Borrowed(ptx.as_bytes())];
    let packed = kept::pack(if control.keeps_only_ptx() { &parts[1..] } else { &parts });
    let packed = packed.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let before = image::read(session.path(), hash)?.len();
    let more = packed.len().saturating_sub(before) as u64;
    let less = before.saturating_sub(packed.len()) as u64;
    if !take(&control.code.used_bytes, control.code.max_bytes.load(Relaxed), more) {
        control.code.leave_out(more);
        return Err(io::Error::other("the limit of --code is reached"));
    }
    let most = match control.max_bytes.load(Relaxed) {
        0 => u64::MAX,
        most => most,
    };
    let taken = take(&control.used_bytes, most, more);
    let written = if taken {
        session.replace(image::file_name(hash), 0o600, &packed)
    } else {
        Err(io::Error::other("the session's size limit is reached"))
    };
    written.inspect_err(|_| {
        control.code.used_bytes.fetch_sub(more, Relaxed);
        control.used_bytes.fetch_sub(if taken { more } else { 0 }, Relaxed);
        control.code.leave_out(more);
    })?;
    control.code.used_bytes.fetch_sub(less, Relaxed);
    control.used_bytes.fetch_sub(less, Relaxed);
    Ok(())
}

/// Takes `bytes` out of a limit; returns false, and takes nothing, if fewer are left.
fn take(used: &AtomicU64, most: u64, bytes: u64) -> bool {
    let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= most);
    used.fetch_update(Relaxed, Relaxed, within).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_trace::MappedControl;
    use apex_trace::control::Settings;
    use std::fs;

    const CUBIN: &[u8] = include_bytes!("../../../cuda/fatbin/tests/data/four_kernels_sm_90.cubin");
    const OTHER: &[u8] = include_bytes!("../../../cuda/fatbin/tests/data/four_kernels_sm_80.cubin");
    const PTX: &str = ".version 8.1\n.target sm_90\n.address_size 64\n";
    const HASH: u128 = 7;

    struct Session {
        dir: tempfile::TempDir,
        folder: Folder,
        control: MappedControl,
    }

    impl Session {
        /// A session that keeps this image, with room for so much more, and an empty cache.
        fn with(parts: &[&[u8]], room: u64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("session");
            let folder = Folder::make(&at).unwrap();
            let parts: Vec<_> = parts.iter().map(|part| Cow::Borrowed(*part)).collect();
            let packed = kept::pack(&parts).unwrap();
            let settings = Settings { code_max_bytes: packed.len() as u64 + room, ..Settings::default() };
            let control = MappedControl::create_in(&folder, settings).unwrap();
            image::keep(&at, &control, HASH, &packed).unwrap();
            Self { dir, folder, control }
        }

        /// A kernel in the cache.
        fn cached(&self, folder: &str, cubin: &[u8], ptx: Option<&str>) {
            let folder = self.dir.path().join("cache").join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("add_kernel.cubin"), cubin).unwrap();
            fs::write(folder.join("add_kernel.json"), "{}").unwrap();
            if let Some(ptx) = ptx {
                fs::write(folder.join("add_kernel.ptx"), ptx).unwrap();
            }
        }

        /// The image of a session without `--code`, after the cache was looked at, with room for
        /// cubins of so many bytes; `None` if it was removed.
        fn kept_as_ptx(&self, most: u64) -> Option<Vec<Vec<u8>>> {
            self.control.code.ptx_only.store(1, Relaxed);
            let cache = self.dir.path().join("cache");
            keep_from(&self.folder, &self.control, || vec![cache]);
            remove(&self.folder, &self.control, beyond(&self.folder, most).into_iter());
            image::read(self.folder.path(), HASH).ok().map(|packed| kept::unpack(&packed).unwrap())
        }

        /// Returns the parts of the image after the cache was searched.
        fn kept(&self) -> Vec<Vec<u8>> {
            keep_from(&self.folder, &self.control, || vec![self.dir.path().join("cache")]);
            kept::unpack(&image::read(self.folder.path(), HASH).unwrap()).unwrap()
        }
    }

    #[test]
    fn the_ptx_beside_the_same_machine_code_is_kept() {
        let session = Session::with(&[CUBIN], 1000);
        let mut almost = CUBIN.to_vec();
        *almost.last_mut().unwrap() ^= 1;
        session.cached("a", &almost, Some(".version 7.0"));
        session.cached("b", OTHER, Some(".version 7.1"));
        session.cached("c", CUBIN, None);
        session.cached("d", CUBIN, Some(PTX));
        assert_eq!(session.kept(), [CUBIN, PTX.as_bytes()]);
        let used = session.control.code.used_bytes.load(Relaxed);
        assert_eq!(used, image::read(session.folder.path(), HASH).unwrap().len() as u64);
        assert_eq!(session.kept().len(), 2, "not a second time");
    }

    #[test]
    fn without_a_cache_or_a_match_the_image_stays() {
        let session = Session::with(&[CUBIN], 1000);
        assert_eq!(session.kept(), [CUBIN]);
        session.cached("b", OTHER, Some(PTX));
        assert_eq!(session.kept(), [CUBIN]);
    }

    #[test]
    fn what_is_no_text_or_no_regular_file_is_not_kept() {
        let session = Session::with(&[CUBIN], 1000);
        session.cached("a", CUBIN, Some("\u{1}"));
        session.cached("b", CUBIN, None);
        std::os::unix::fs::symlink("/dev/zero", session.dir.path().join("cache/b/add_kernel.ptx")).unwrap();
        assert_eq!(session.kept(), [CUBIN]);
    }

    #[test]
    fn the_limit_of_code_holds() {
        let session = Session::with(&[CUBIN], 10);
        session.cached("a", CUBIN, Some(PTX));
        assert_eq!(session.kept(), [CUBIN]);
        assert_eq!(session.control.code.left_out.load(Relaxed), 1);
    }

    #[test]
    fn an_image_that_has_ptx_needs_none() {
        let session = Session::with(&[CUBIN, PTX.as_bytes()], 1000);
        session.cached("a", CUBIN, Some(".version 7.0"));
        assert_eq!(session.kept(), [CUBIN, PTX.as_bytes()]);
    }

    #[test]
    fn the_ptx_replaces_machine_code_which_stays_where_it_has_room() {
        let session = Session::with(&[CUBIN], 1000);
        session.cached("d", CUBIN, Some(PTX));
        assert_eq!(session.kept_as_ptx(0), Some(vec![PTX.as_bytes().to_vec()]));
        let used = session.control.code.used_bytes.load(Relaxed);
        assert_eq!(used, image::read(session.folder.path(), HASH).unwrap().len() as u64);
        let other = Session::with(&[CUBIN], 1000);
        assert_eq!(other.kept_as_ptx(CUBIN.len() as u64), Some(vec![CUBIN.to_vec()]));
        assert_eq!(other.kept_as_ptx(CUBIN.len() as u64 - 1), None);
        assert_eq!(other.control.code.used_bytes.load(Relaxed), 0);
        assert_eq!(other.control.code.kept.load(Relaxed), 0);
        let text = Session::with(&[PTX.as_bytes()], 1000);
        assert_eq!(text.kept_as_ptx(0), Some(vec![PTX.as_bytes().to_vec()]));
    }
}
