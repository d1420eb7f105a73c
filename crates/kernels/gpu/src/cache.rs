//! Compiled code, kept in a folder between runs.
//!
//! One file for each outcome. Its name is a digest of what the outcome depends on, and it holds
//! that in full, so two sources never meet. A file is written under another name and renamed when
//! it is whole: a reader sees all of it or nothing, whichever process wrote it. An entry that
//! cannot be read back counts as absent and is written anew.
//!
//! Layout, all integers 64 bits, little endian: [`MAGIC`], digest of all that follows, then four
//! fields with their lengths before them: fingerprint, symbol names (lines `expression`, tab,
//! `symbol`), image, PTX.

use apex_conventions::variables::CACHE_DIR;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::source::CacheFolder;

const MAGIC: &[u8; 8] = b"APEXkrn2";

/// Bytes that a folder holds at most; beyond them, files that were not used longest go.
const MOST_BYTES: u64 = 512 << 20;

/// The output of a compiler for a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// CUBIN or PTX.
    pub(crate) image: Vec<u8>,
    /// The PTX that a CUBIN was made of, for its types; empty otherwise.
    pub(crate) ptx: Vec<u8>,
    /// Symbols of the instances, by their expressions.
    pub(crate) symbols: BTreeMap<String, String>,
}

/// The use of the cache for compiled code, see [`Module::cached`](crate::Module::cached).
///
/// ```
/// # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
/// # let device = apex_gpu::Device::open(0)?;
/// let module = device.compile(&apex_gpu::Source::new("extern \"C\" __global__ void k() {}"))?;
/// match module.cached() {
///     apex_gpu::Cached::Hit => println!("compiled by an earlier run"),
///     apex_gpu::Cached::NotStored(why) => println!("each run compiles it anew: {why}"),
///     other => println!("compiled now: {other:?}"),
/// }
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cached {
    /// It came from the cache: nothing was compiled.
    Hit,
    /// It was compiled, and the next run finds it.
    Stored,
    /// It was compiled, and the cache is off.
    Off,
    /// It was compiled, and could not be stored: what the system says.
    NotStored(String),
}

/// The folder to use, if any.
pub(crate) fn folder(choice: &CacheFolder) -> Option<PathBuf> {
    let default = || {
        let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
        match env::var_os(CACHE_DIR.name) {
            Some(off) if off == "off" => None,
            Some(folder) => Some(PathBuf::from(folder)),
            None => {
                Some(env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?.join("apex/kernels"))
            }
        }
    };
    match choice {
        CacheFolder::Default => default(),
        CacheFolder::In(folder) => Some(folder.clone()),
        CacheFolder::Off => None,
    }
}

/// Returns the compiled code that the folder holds for `fingerprint`.
pub(crate) fn load(folder: &Path, fingerprint: &[u8]) -> Option<Compiled> {
    let path = place(folder, fingerprint);
    let found = decode(&apex_untrusted::read::read(&path, MOST_BYTES).ok()?, fingerprint)?;
    // Its time of change is its time of use: that decides what goes first when there is too much.
    let _ = fs::File::options()
        .append(true)
        .open(&path)
        .and_then(|file| file.set_modified(std::time::SystemTime::now()));
    Some(found)
}

/// Keeps `compiled`.
///
/// # Errors
/// The system's error; then the folder is as before.
pub(crate) fn store(folder: &Path, fingerprint: &[u8], compiled: &Compiled) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    apex_untrusted::replace::bytes(&place(folder, fingerprint), &encode(fingerprint, compiled))?;
    // Whether it works or not, what was to be stored is.
    let _ = make_room(folder, MOST_BYTES);
    Ok(())
}

/// Removes the files that were not used longest, until at most `most` bytes are left.
fn make_room(folder: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Another process may be removing it.
        if let Ok(metadata) = entry.metadata()
            && metadata.is_file()
        {
            files.push((metadata.modified().ok(), metadata.len(), entry.path()));
        }
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in files {
        if total <= most {
            break;
        }
        let _ = fs::remove_file(path);
        total -= bytes;
    }
    Ok(())
}

fn place(folder: &Path, fingerprint: &[u8]) -> PathBuf {
    folder.join(format!("{:016x}.kernel", digest(fingerprint)))
}

/// Not secret, and the same in each run of a build: collisions are told apart by the fingerprint.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn encode(fingerprint: &[u8], compiled: &Compiled) -> Vec<u8> {
    let symbols: String =
        compiled.symbols.iter().map(|(expression, symbol)| format!("{expression}\t{symbol}\n")).collect();
    let mut body = Vec::new();
    for field in [fingerprint, symbols.as_bytes(), &compiled.image, &compiled.ptx] {
        body.extend((field.len() as u64).to_le_bytes());
        body.extend(field);
    }
    [&MAGIC[..], &digest(&body).to_le_bytes(), &body].concat()
}

/// `None` if anything is not as [`encode`] writes it.
fn decode(bytes: &[u8], fingerprint: &[u8]) -> Option<Compiled> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (expected, mut body) = rest.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*expected) != digest(body) {
        return None;
    }
    let mut field = || {
        let (length, rest) = body.split_first_chunk::<8>()?;
        let (field, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        body = rest;
        Some(field)
    };
    let (kept, symbols, image, ptx) = (field()?, field()?, field()?, field()?);
    if kept != fingerprint {
        return None;
    }
    let symbols = std::str::from_utf8(symbols).ok()?.lines();
    let symbols = symbols.map(|line| line.split_once('\t').map(|(e, s)| (e.to_owned(), s.to_owned())));
    let symbols = symbols.collect::<Option<_>>()?;
    Some(Compiled { image: image.to_vec(), ptx: ptx.to_vec(), symbols })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(image: &[u8]) -> Compiled {
        let symbols = [("sum<float>".to_owned(), "_Z3sumIfE".to_owned())].into();
        Compiled { image: image.to_vec(), ptx: b".version 8.0".to_vec(), symbols }
    }

    #[test]
    fn what_was_stored_is_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let nested = folder.path().join("made/on/demand");
        assert_eq!(load(&nested, b"a"), None);
        store(&nested, b"a", &compiled(b"image of a")).unwrap();
        assert_eq!(load(&nested, b"a"), Some(compiled(b"image of a")));
        assert_eq!(load(&nested, b"b"), None);
        store(&nested, b"a", &compiled(b"a newer one")).unwrap();
        assert_eq!(load(&nested, b"a"), Some(compiled(b"a newer one")));
        assert_eq!(fs::read_dir(&nested).unwrap().count(), 1, "no unfinished files are left");
    }

    #[test]
    fn any_damage_counts_as_absent() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), b"key", &compiled(b"0123456789")).unwrap();
        let path = place(folder.path(), b"key");
        let whole = fs::read(&path).unwrap();
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(load(folder.path(), b"key"), None, "torn after {end} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(load(folder.path(), b"key"), None, "byte {at} damaged");
        }
        fs::write(&path, &whole).unwrap();
        assert!(load(folder.path(), b"key").is_some());
    }

    #[test]
    fn files_of_colliding_digests_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), b"one", &compiled(b"image")).unwrap();
        fs::rename(place(folder.path(), b"one"), place(folder.path(), b"two")).unwrap();
        assert_eq!(load(folder.path(), b"two"), None);
    }

    #[test]
    fn the_files_used_longest_ago_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        for key in [b"a", b"b", b"c"] {
            store(folder.path(), key, &compiled(&[7; 1000])).unwrap();
            fs::File::options()
                .append(true)
                .open(place(folder.path(), key))
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
        assert!(load(folder.path(), b"b").is_some(), "use makes it young");
        make_room(folder.path(), 1500).unwrap();
        assert!(load(folder.path(), b"a").is_none() && load(folder.path(), b"c").is_none());
        assert!(load(folder.path(), b"b").is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_nothing_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "in the way").unwrap();
        assert!(store(&file, b"key", &compiled(b"image")).is_err());
        assert_eq!(load(&file, b"key"), None);
    }
}
