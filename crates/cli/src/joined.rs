//! Sessions that are joined of others ([`apex_trace::JOINED_FILE`]): how they are made, by ranks
//! that record into one folder at the same time and by `apex merge`.
//!
//! The folder has a control page and a `session.json` like every session, so that all commands find
//! it. Each of its files is made by whoever comes first, and each member's folder by one process,
//! because only one of several can make a folder: several hosts may share the folder.

use anyhow::{Context, bail};
use apex_catalogue::Notes;
use apex_trace::control::{MappedControl, Settings};
use apex_trace::meta::{Exit, Meta, RecordedRank};
use apex_trace::{JOINED_FILE, META_FILE, MOST_MEMBERS, member_dir, numbered};
use apex_untrusted::{Folder, read};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Takes part in the joined session in `dir`, which is made if there is none: makes the folder of a
/// new member. `meta` describes the whole as the first member knows it.
///
/// # Errors
/// If the folder holds something else, others could change it, or the rank was recorded in it.
pub fn take_part(dir: &Path, meta: &Meta) -> anyhow::Result<PathBuf> {
    let shown = apex_untrusted::shown(dir);
    let folder = open(dir).with_context(|| format!("cannot create the session folder {shown}"))?;
    if let Some(why) = folder.refusal().with_context(|| format!("cannot read {shown}"))? {
        bail!("{shown} cannot hold a session: {why}; name a folder that only you can write to with -o");
    }
    if !may_be_joined(folder.path())? {
        bail!("{shown} is not empty, and no session that ranks record together: name another folder with -o");
    }
    begin(&folder, meta).with_context(|| format!("cannot write into {shown}"))?;
    let member = new_member(&folder)?;
    match meta.rank.as_ref().and_then(|rank| recorded(folder.path(), rank)) {
        Some(other) => {
            // Nobody else uses it.
            let _ = std::fs::remove_dir(&member);
            bail!(
                "rank {} has already been recorded in {}: give each run of a job a folder of its own, such as \
                 -o {shown}-$SLURM_JOB_ID",
                meta.rank.as_ref().map_or(0, |rank| rank.rank),
                apex_untrusted::shown(&other)
            )
        }
        None => Ok(member),
    }
}

/// The folder, made if there is none.
fn open(dir: &Path) -> io::Result<Folder> {
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    let mut folder = match Folder::make(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Folder::open(dir)?,
        made => made?,
    };
    folder.resolve()?;
    Ok(folder)
}

/// Whether a folder has nothing but what a joined session has from its beginning.
fn may_be_joined(dir: &Path) -> io::Result<bool> {
    let firsts = [apex_trace::control::CONTROL_FILE, META_FILE, JOINED_FILE];
    if apex_trace::is_joined(dir) {
        return Ok(true);
    }
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if !firsts.iter().any(|&first| name == first) {
            return Ok(false);
        }
    }
    // A session that is not joined has the others.
    Ok(!dir.join(META_FILE).exists())
}

/// Makes the first files, unless another member has. What tells that the session is joined comes
/// first, because an unfinished folder must not look like another session.
pub fn begin(folder: &Folder, meta: &Meta) -> anyhow::Result<()> {
    let once = |made: io::Result<()>| match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let write = |name, bytes: &[u8]| folder.create_new(name).and_then(|mut file| file.write_all(bytes));
    once(write(JOINED_FILE, b"{\"schema\":1}\n"))?;
    once(write(META_FILE, &serde_json::to_vec_pretty(meta)?))?;
    if !folder.path().join(apex_trace::control::CONTROL_FILE).exists() {
        once(MappedControl::create_in(folder, Settings::default()).map(drop))?;
    }
    Ok(())
}

/// Adds what is said about a member to the notes of the whole.
pub fn note(dir: &Path, of_member: Notes) -> anyhow::Result<()> {
    if of_member == Notes::default() {
        return Ok(());
    }
    let mut notes = Notes::read(dir)?;
    notes.join(of_member);
    Ok(notes.store(&Folder::open(dir)?)?)
}

/// Makes the folder of the next member.
pub fn new_member(folder: &Folder) -> anyhow::Result<PathBuf> {
    for number in 0..MOST_MEMBERS {
        let dir = member_dir(folder.path(), number);
        match Folder::make(&dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => bail!("cannot create {}: {error}", apex_untrusted::shown(dir)),
            Ok(_) => return Ok(dir),
        }
    }
    let shown = apex_untrusted::shown(folder.path());
    bail!("{shown} has {MOST_MEMBERS} recordings, and a session joins no more: record a part of the ranks")
}

/// The member that has recorded a rank.
fn recorded(dir: &Path, rank: &RecordedRank) -> Option<PathBuf> {
    let mut members = numbered(dir).into_iter().map(|(_, dir)| dir);
    members.find(|member| meta_of(member).and_then(|meta| meta.rank).as_ref() == Some(rank))
}

fn meta_of(dir: &Path) -> Option<Meta> {
    serde_json::from_slice(&read::read(&dir.join(META_FILE), read::SESSION_JSON).ok()?).ok()
}

/// Writes down how the whole has ended, once all members have.
pub fn conclude(dir: &Path) -> anyhow::Result<()> {
    let members: Vec<Meta> = numbered(dir).iter().filter_map(|(_, dir)| meta_of(dir)).collect();
    let ended: Option<Vec<u64>> = members
        .iter()
        .map(|meta| meta.ended_real_ns.filter(|_| meta.exit.is_some() || meta.attached))
        .collect();
    let (Some(ended), Some(whole)) = (ended, meta_of(dir)) else { return Ok(()) };
    // How a program ended that was only watched, nobody knows.
    let mut exits = members.iter().filter_map(|meta| meta.exit);
    let exit = exits.clone().find(|&exit| exit != Exit::Code(0)).or_else(|| exits.next());
    let started = members.iter().map(|meta| meta.started_real_ns).min();
    let whole = Meta {
        started_real_ns: started.unwrap_or(whole.started_real_ns),
        ended_real_ns: ended.into_iter().max(),
        exit,
        ..whole
    };
    whole.store(&Folder::open(dir)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_trace::Session;
    use apex_trace::meta::Host;

    fn meta(rank: u32) -> Meta {
        Meta {
            schema: apex_trace::meta::SCHEMA,
            apex_version: env!("CARGO_PKG_VERSION").into(),
            command: vec!["train".into()],
            cwd: "/".into(),
            pid: None,
            started_real_ns: 5,
            ended_real_ns: None,
            exit: None,
            device: "gpu".into(),
            timing: "sampled".into(),
            host: Host::default(),
            rank: Some(RecordedRank { rank, world_size: Some(2), restarts: 0, job: None }),
            ranks: std::collections::BTreeMap::new(),
            universal: Vec::new(),
            capability: Vec::new(),
            imported: Vec::new(),
            checked: false,
            attached: false,
            watched_by: None,
        }
    }

    #[test]
    fn ranks_take_part_in_one_session_and_each_of_them_once() {
        let sandbox = tempfile::tempdir().unwrap();
        let dir = sandbox.path().join("job");
        let members = [0, 1].map(|rank| take_part(&dir, &meta(rank)).unwrap());
        assert!(members[0].ends_with("job/0000") && members[1].ends_with("job/0001"));
        for (rank, member) in members.iter().enumerate() {
            meta(rank as u32).store(&Folder::open(member).unwrap()).unwrap();
        }
        let error = take_part(&dir, &meta(1)).unwrap_err().to_string();
        assert!(error.contains("rank 1 has already been recorded in") && error.contains("-o "), "{error}");
        assert_eq!(numbered(&dir).len(), 2, "nothing is left of it");
        let session = Session::open(&dir).unwrap();
        assert_eq!((session.members.len(), session.meta.unwrap().command), (2, vec!["train".to_owned()]));
    }

    #[test]
    fn the_whole_has_ended_when_all_members_have() {
        let sandbox = tempfile::tempdir().unwrap();
        let dir = sandbox.path().join("job");
        let exit = |rank, exit| {
            let member = member_dir(&dir, rank as usize);
            let ended = Meta { ended_real_ns: Some(9), exit, ..meta(rank) };
            ended.store(&Folder::open(&member).unwrap()).unwrap();
            conclude(&dir).unwrap();
            meta_of(&dir).unwrap().exit
        };
        for rank in [0, 1] {
            take_part(&dir, &meta(rank)).unwrap();
        }
        meta(1).store(&Folder::open(&member_dir(&dir, 1)).unwrap()).unwrap();
        assert_eq!(exit(0, Some(Exit::Code(0))), None);
        assert_eq!(exit(1, Some(Exit::Signal(9))), Some(Exit::Signal(9)));
        assert_eq!(exit(1, Some(Exit::Code(0))), Some(Exit::Code(0)));
    }

    #[test]
    fn a_member_that_was_watched_has_ended_without_an_exit_status() {
        let sandbox = tempfile::tempdir().unwrap();
        let dir = sandbox.path().join("job");
        let ended = |rank| Meta { ended_real_ns: Some(9), ..meta(rank) };
        let members = [Meta { attached: true, ..ended(0) }, Meta { exit: Some(Exit::Code(0)), ..ended(1) }];
        for member in members {
            member.store(&Folder::open(&take_part(&dir, &member).unwrap()).unwrap()).unwrap();
        }
        conclude(&dir).unwrap();
        let whole = meta_of(&dir).unwrap();
        assert_eq!((whole.ended_real_ns, whole.exit), (Some(9), Some(Exit::Code(0))));
    }

    #[test]
    fn a_folder_with_something_else_is_not_joined() {
        let sandbox = tempfile::tempdir().unwrap();
        std::fs::write(sandbox.path().join("notes.txt"), "").unwrap();
        let error = take_part(sandbox.path(), &meta(0)).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        std::fs::remove_file(sandbox.path().join("notes.txt")).unwrap();
        meta(0).store(&Folder::open(sandbox.path()).unwrap()).unwrap();
        assert!(take_part(sandbox.path(), &meta(0)).is_err(), "a session that is not joined");
    }
}
