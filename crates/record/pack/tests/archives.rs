//! Archives of sessions: what was packed is unpacked, and what is hostile or damaged is refused with
//! the place.

use apex_pack::{Error, Limits, Unpacked, is_archive, pack, unpack};
use apex_trace::control::{CONTROL_FILE, Settings};
use apex_trace::{JOINED_FILE, MappedControl, member_dir};
use apex_untrusted::Folder;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

fn is_part(name: &OsStr) -> bool {
    apex_trace::is_part_of_session(name)
}

/// A session's folder with these process files, beside which something else lies.
fn session(dir: &Path, files: &[(&str, &[u8])]) {
    fs::create_dir_all(dir).unwrap();
    MappedControl::create(dir, Settings::default()).unwrap();
    fs::write(dir.join("session.json"), "{}").unwrap();
    fs::write(dir.join("mine.txt"), "not of the session").unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
}

fn packed(session: &Path, to: &Path) {
    pack(session, File::create(to).unwrap(), is_part).unwrap();
}

/// Unpacks into a new folder beside the archive.
fn unpacked(archive: &Path, limits: Limits) -> (Result<Unpacked, Error>, PathBuf) {
    let dir = archive.with_extension("folder");
    let _ = fs::remove_dir_all(&dir);
    let folder = Folder::make(&dir).unwrap();
    (unpack(archive, &folder, limits, is_part), dir)
}

fn refusal(archive: &Path) -> String {
    unpacked(archive, Limits::default()).0.unwrap_err().to_string()
}

/// An archive of these entries: kind, path as it is, target of a link, content.
fn archive(at: &Path, entries: &[(EntryType, &str, &str, &[u8])]) {
    let mut tar = Builder::new(GzEncoder::new(File::create(at).unwrap(), Compression::fast()));
    for (kind, path, link, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        // As hostile archives are: the crate refuses to write such paths itself.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap();
}

const FILE: EntryType = EntryType::Regular;

#[test]
fn what_was_packed_is_unpacked_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let (s, at) = (dir.path().join("s"), dir.path().join("s.tar.gz"));
    let mut sparse = vec![0u8; 3 << 20];
    sparse[..4].copy_from_slice(b"head");
    session(&s, &[("7-1.rec", &sparse), ("8-2.counts", b"counts")]);
    packed(&s, &at);
    assert!(is_archive(&at) && fs::metadata(&at).unwrap().len() < 40_000);
    let (done, to) = unpacked(&at, Limits::default());
    assert_eq!(done.unwrap().files, 4);
    for name in [CONTROL_FILE, "session.json", "7-1.rec", "8-2.counts"] {
        assert_eq!(fs::read(to.join(name)).unwrap(), fs::read(s.join(name)).unwrap(), "{name}");
    }
    assert!(!to.join("mine.txt").exists());
    let file = fs::metadata(to.join("7-1.rec")).unwrap();
    assert!(file.blocks() * 512 < 1 << 20, "zeros are holes");
    assert_eq!(file.mode() & 0o777, 0o600);
}

#[test]
fn members_of_a_joined_session_stay_apart() {
    let dir = TempDir::new().unwrap();
    let (job, at) = (dir.path().join("job"), dir.path().join("job.tar.gz"));
    session(&job, &[(JOINED_FILE, b"{\"schema\":1}\n")]);
    session(&member_dir(&job, 0), &[("7-1.rec", b"zero")]);
    session(&member_dir(&job, 12), &[("7-1.rec", b"twelve")]);
    packed(&job, &at);
    let (done, to) = unpacked(&at, Limits::default());
    assert_eq!(done.unwrap().files, 9);
    assert_eq!(fs::read(to.join("0012/7-1.rec")).unwrap(), b"twelve");
    assert!(apex_trace::is_joined(&to));
}

#[test]
fn links_devices_and_paths_that_leave_the_folder_are_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("a.tar.gz");
    for (entry, why) in [
        ((EntryType::Symlink, "s/7-1.rec", "/etc/passwd", &b""[..]), "a link or a device"),
        ((EntryType::Link, "7-1.rec", "../control", b""), "a link or a device"),
        ((EntryType::Char, "7-1.rec", "", b""), "a link or a device"),
        ((FILE, "../7-1.rec", "", b"x"), "leaves the archive"),
        ((FILE, "s/../../7-1.rec", "", b"x"), "leaves the archive"),
        ((FILE, "/tmp/7-1.rec", "", b"x"), "is absolute"),
    ] {
        archive(&at, &[entry]);
        let said = refusal(&at);
        let (path, size) = (entry.1, fs::metadata(&at).unwrap().len());
        assert!(said.contains(why) && said.contains(path), "{said}");
        let place = said.rsplit("near byte ").next().and_then(|place| place.parse::<u64>().ok());
        assert!(said.contains("a.tar.gz") && place.is_some_and(|place| (1..size).contains(&place)), "{said}");
    }
    assert!(!dir.path().join("7-1.rec").exists());
    archive(&at, &[(FILE, "7-1.rec", "", b"x"), (FILE, "./7-1.rec", "", b"y")]);
    assert!(refusal(&at).contains("twice"));
    archive(&at, &[(FILE, "a/7-1.rec", "", b"x"), (FILE, "b/7-1.rec", "", b"y")]);
    assert!(refusal(&at).contains("several sessions"));
    archive(&at, &[(FILE, "readme.txt", "", b"x")]);
    assert!(refusal(&at).contains("holds no session"));
}

#[test]
fn an_archive_takes_no_more_than_it_may() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("a.tar.gz");
    let zeros = vec![0; 1 << 20];
    archive(&at, &[(FILE, "7-1.rec", "", &zeros), (FILE, "8-1.rec", "", &zeros)]);
    let most = |bytes, entries| unpacked(&at, Limits { bytes, entries }).0.unwrap_err().to_string();
    assert!(most(2 << 20, 2).contains("holds no session"), "both fit");
    assert!(most((2 << 20) - 1, 2).contains("exceed 2097151 bytes"));
    assert!(most(2 << 20, 1).contains("more than 1 entries"));
    // A size that is claimed, without the content.
    let mut header = Header::new_gnu();
    header.set_size(1 << 60);
    header.set_path("7-1.rec").unwrap();
    header.set_cksum();
    let plain = dir.path().join("claims.tar");
    fs::write(&plain, header.as_bytes()).unwrap();
    assert!(refusal(&plain).contains("exceed"), "{}", refusal(&plain));
}

#[test]
fn damage_is_told_with_its_place() {
    let dir = TempDir::new().unwrap();
    let (s, at) = (dir.path().join("s"), dir.path().join("s.tar.gz"));
    let noise: Vec<u8> =
        (0..300_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
    session(&s, &[("7-1.rec", &noise)]);
    packed(&s, &at);
    let whole = fs::read(&at).unwrap();
    fs::write(&at, &whole[..whole.len() / 2]).unwrap();
    let said = refusal(&at);
    assert!(said.ends_with(&format!("it is cut off, near byte {}", whole.len() / 2)), "{said}");
    for place in [whole.len() - 6, whole.len() / 2] {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        fs::write(&at, damaged).unwrap();
        assert!(refusal(&at).contains("it is damaged"), "{}", refusal(&at));
    }
    assert!(is_archive(&at));
    fs::write(&at, "no archive").unwrap();
    assert!(is_archive(&at), "its name says so");
    assert!(refusal(&at).contains("s.tar.gz"), "{}", refusal(&at));
}

#[test]
fn other_files_are_no_archives() {
    let dir = TempDir::new().unwrap();
    for name in ["t.json", "t.json.gz", "t.sqlite"] {
        let mut file = GzEncoder::new(File::create(dir.path().join(name)).unwrap(), Compression::fast());
        file.write_all(&[b'{'; 2000]).unwrap();
        file.finish().unwrap();
        assert!(!is_archive(&dir.path().join(name)), "{name}");
    }
    assert!(!is_archive(dir.path()) && !is_archive(&dir.path().join("none.tar")));
    let at = dir.path().join("any-name");
    archive(&at, &[(FILE, "7-1.rec", "", &[1; 600])]);
    assert!(is_archive(&at), "its content says so");
}

/// The archives of recorded sessions are in xz, with process files column by column.
#[test]
fn sessions_of_the_corpus_are_read() {
    let dir = TempDir::new().unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../data/h200/corpus");
    let at = dir.path().join("one_block.tar.xz");
    fs::copy(corpus.join("cuda-one_block.tar.xz"), &at).unwrap();
    assert!(is_archive(&at));
    let (done, to) = unpacked(&at, Limits::default());
    assert!(done.unwrap().files >= 3);
    let session = apex_trace::Session::open(&to).unwrap();
    assert!(session.problems.is_empty() && session.processes[0].record_count > 0, "{:?}", session.problems);
    let bytes = fs::read(&at).unwrap();
    fs::write(&at, &bytes[..bytes.len() - 1000]).unwrap();
    assert!(refusal(&at).contains("near byte"), "{}", refusal(&at));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever becomes of an archive's bytes, before or behind its compression.
    #[test]
    fn any_bytes_give_a_session_or_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_plain in any::<bool>(),
    ) {
        let dir = TempDir::new().unwrap();
        let (at, columns) = (dir.path().join("a.tar"), vec![0u8; 200]);
        let mut tar = Builder::new(Vec::new());
        for (name, content) in [("s/control", &b"x"[..]), ("s/7-1.columns", &columns), ("s/0001/8-1.rec", b"y")] {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, name, content).unwrap();
        }
        let mut bytes = tar.into_inner().unwrap();
        if !is_plain {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&bytes).unwrap();
            bytes = packed.finish().unwrap();
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        fs::write(&at, &bytes).unwrap();
        let (done, to) = unpacked(&at, Limits { bytes: 1 << 20, entries: 100 });
        if let Err(error) = done {
            prop_assert!(error.to_string().contains("a.tar"), "{error}");
        }
        let beside: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        prop_assert!(beside.len() == 2 && beside.contains(&to), "{beside:?}");
    }

    /// Columns of any content.
    #[test]
    fn any_columns_are_decoded_or_refused(
        columns in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 7),
        unit in 0u64..3,
        length in 0u64..100_000,
        is_framed in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        for (number, column) in columns.iter().enumerate() {
            let mut column = column.clone();
            match number {
                0 => column = [unit, length].map(u64::to_le_bytes).concat(),
                1 if is_framed => column.splice(0..0, [0; 4096]).for_each(drop),
                _ => {}
            }
            bytes.extend((column.len() as u64).to_le_bytes());
            bytes.extend(column);
        }
        if let Ok(file) = apex_pack::columns::decode(&bytes) {
            prop_assert_eq!(file.to_bytes().len() as u64, file.length);
        }
    }
}
