//! The files of a session beside its process files: `control` and `session.json`.

mod common;

use apex_trace::MappedControl;
use apex_trace::control::{CONTROL_FILE, Settings, TimingMode, complain_in};
use std::fs;
use std::sync::atomic::Ordering;

#[test]
fn the_control_page_is_shared() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        recording: false,
        timing: TimingMode::All,
        budget_ppm: 1234,
        max_bytes: 1 << 40,
        code_max_bytes: 1 << 30,
        ptx_only: true,
    };
    let ours = MappedControl::create(dir.path(), settings).unwrap();
    let theirs = MappedControl::open(dir.path()).unwrap();
    assert_eq!((theirs.is_recording(), theirs.timing_mode()), (false, TimingMode::All));
    assert_eq!(theirs.budget_ppm.load(Ordering::Relaxed), 1234);
    assert_eq!(theirs.max_bytes.load(Ordering::Relaxed), 1 << 40);
    assert_eq!((theirs.keeps_ptx(), theirs.keeps_only_ptx(), theirs.keeps_code()), (true, true, false));
    ours.set_recording(true);
    ours.set_timing(TimingMode::Off);
    assert_eq!((theirs.is_recording(), theirs.timing_mode()), (true, TimingMode::Off));
    assert_eq!(theirs.generation.load(Ordering::Relaxed), 2);
}

#[test]
fn the_first_complaint_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let ours = MappedControl::create(dir.path(), Settings::default()).unwrap();
    let theirs = MappedControl::open(dir.path()).unwrap();
    assert_eq!(ours.complaint(), None);
    let long = "ä".repeat(400);
    theirs.complain(&long);
    theirs.complain("another");
    let kept = ours.complaint().unwrap();
    assert!(kept.len() == 512 && long.starts_with(&kept), "{kept}");

    // Whatever stands there, the answer is text.
    let mut page = fs::read(dir.path().join(CONTROL_FILE)).unwrap();
    page[48..].fill(0xff);
    page[48..52].copy_from_slice(&2u32.to_le_bytes());
    fs::write(dir.path().join(CONTROL_FILE), page).unwrap();
    assert!(MappedControl::open(dir.path()).unwrap().complaint().unwrap().starts_with('\u{fffd}'));
}

#[test]
fn without_a_limit_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let control = MappedControl::create(dir.path(), Settings::default()).unwrap();
    // More was given back than taken, or the page was damaged.
    control.used_bytes.store(u64::MAX, Ordering::Relaxed);
    assert!(apex_trace::ProcessFile::create(dir.path(), Some(control.leak())).is_ok());
}

#[test]
fn a_foreign_control_page_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(CONTROL_FILE);
    let refusal = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        let error = MappedControl::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        error
    };
    assert!(refusal(b"short").contains("cut off"));
    assert!(refusal(&[b'x'; 4096]).contains("not the control page"));
    let mut newer = vec![0; 4096];
    newer[..9].copy_from_slice(b"APEXCTL\0\x02");
    assert!(refusal(&newer).contains("its version is 2, this APEX knows 1"));
    let exists = MappedControl::create(dir.path(), Settings::default()).unwrap_err();
    assert_eq!(exists.kind(), std::io::ErrorKind::AlreadyExists);
}

#[cfg(feature = "meta")]
mod meta {
    use super::*;
    use apex_trace::meta::{Exit, Host, Meta};
    use apex_trace::{Error, META_FILE, Session};
    use apex_untrusted::Folder;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    fn any_meta() -> impl Strategy<Value = Meta> {
        let text = || "\\PC{0,40}";
        let exit = prop::option::of(
            any::<(bool, i32)>()
                .prop_map(|(killed, code)| if killed { Exit::Signal(code) } else { Exit::Code(code) }),
        );
        let command = prop::collection::vec(text(), 0..8);
        (text(), command, any::<u64>(), prop::option::of(any::<u64>()), exit).prop_map(
            |(text, command, started_real_ns, ended_real_ns, exit)| Meta {
                schema: 1,
                apex_version: "0.1.0".to_owned(),
                command,
                cwd: text,
                pid: Some(started_real_ns as u32),
                started_real_ns,
                ended_real_ns,
                exit,
                device: "cpu".to_owned(),
                timing: "sampled".to_owned(),
                rank: None,
                host: Host::here(),
                ranks: std::collections::BTreeMap::new(),
                universal: Vec::new(),
                capability: Vec::new(),
                imported: Vec::new(),
                checked: false,
                attached: false,
                watched_by: None,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn session_json_comes_back(first in any_meta(), second in any_meta()) {
            let dir = tempfile::tempdir().unwrap();
            let folder = Folder::open(dir.path()).unwrap();
            for meta in [first, second] {
                meta.store(&folder).unwrap();
                let session = Session::open(dir.path()).unwrap();
                prop_assert_eq!(session.meta, Some(meta));
                prop_assert_eq!(session.problems, []);
                prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
            }
        }
    }

    #[test]
    fn the_machine_is_described() {
        let host = Host::here();
        assert!(host.cpus > 0 && host.memory_bytes > 1 << 20, "{host:?}");
        assert!(!host.name.is_empty() && !host.kernel.is_empty());
    }

    #[test]
    fn a_damaged_session_json_is_a_problem_and_a_newer_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(META_FILE);
        for damaged in ["", "{", "[]", "{\"schema\": 1}", "{\"schema\": \"one\"}", "\u{fffd}"] {
            fs::write(&path, damaged).unwrap();
            let session = Session::open(dir.path()).unwrap();
            assert_eq!(session.meta, None);
            assert_eq!(session.problems.len(), 1);
            assert_eq!(session.problems[0].path, path);
            assert!(session.problems[0].what.starts_with("is damaged"), "{}", session.problems[0]);
        }
        fs::write(&path, r#"{"schema": 7, "command": "of a shape not known today"}"#).unwrap();
        let error = Session::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Newer { version: 7, supported: 1, .. }), "{error}");
    }

    #[test]
    fn an_unwritable_session_json_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let meta = any_meta().new_tree(&mut runner).unwrap().current();
        let folder = Folder::make(&missing).unwrap();
        fs::remove_dir(&missing).unwrap();
        let error = meta.store(&folder).unwrap_err().to_string();
        assert!(error.contains("missing/session.json"), "{error}");
    }
}

/// A process without room for a mapping leaves its word through the file.
#[test]
fn a_complaint_needs_no_mapping() {
    let dir = tempfile::tempdir().unwrap();
    assert!(complain_in(dir.path(), "no session").is_err());
    let ours = MappedControl::create(dir.path(), Settings::default()).unwrap();
    let in_child = |text: &str| {
        // SAFETY: the child makes system calls, and allocates what this thread's allocator holds.
        match unsafe { libc::fork() } {
            0 => {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
                // SAFETY: a limit of this process alone; then it ends.
                unsafe {
                    libc::setrlimit(libc::RLIMIT_AS, &raw const none);
                    let is_mapped = MappedControl::open(dir.path()).is_ok();
                    let is_done = complain_in(dir.path(), text).is_ok();
                    libc::_exit(i32::from(is_mapped) + 2 * i32::from(!is_done));
                }
            }
            child => {
                let mut status = -1;
                // SAFETY: `status` is valid for writing.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(status, 0);
            }
        }
    };
    in_child(&format!("cannot open the driver{}", "!".repeat(1000)));
    in_child("another");
    let kept = ours.complaint().unwrap();
    assert!(kept.starts_with("cannot open the driver!!!") && kept.len() == 512, "{kept}");
    ours.complain("a third");
    assert_eq!(ours.complaint().unwrap(), kept);
}
