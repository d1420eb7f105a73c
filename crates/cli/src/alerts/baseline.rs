//! The good run that a session is compared with: the one that the user named, or the newest earlier
//! one of the same command beside it.

use crate::output;
use apex_alerts::Reference;
use apex_profile::{Profile, Selection};
use apex_trace::meta::{Exit, Meta};
use apex_trace::{META_FILE, Session, is_session};
use apex_untrusted::read;
use std::path::{Path, PathBuf};

/// Folders beside a session that are looked into.
const MOST_SIBLINGS: usize = 10_000;

/// Reads the good run for a session, and says which one it is, or that there is none.
pub fn find(session: &Path, meta: Option<&Meta>, named: Option<&Path>) -> Option<Reference> {
    let shown = crate::session::shown(session);
    let found = named.map(Path::to_owned).or_else(|| newest_good(session, meta?));
    let Some(path) = found else {
        output::remark(format!(
            "watching {shown}; no earlier run of this command in its folder succeeded, so `slower` has no \
                baseline: name one with --baseline"
        ));
        return None;
    };
    let baseline = crate::session::shown(&path);
    let profile = match Session::open(&path) {
        Ok(session) => Profile::of_selection_without_images(&session, &Selection::default()),
        Err(error) => {
            output::remark(format!("watching {shown}, but cannot compare it with {baseline}: {error}"));
            return None;
        }
    };
    let reference = Reference::of(path.to_string_lossy().into_owned(), &profile);
    let steps =
        if reference.has_steps() { "" } else { ", which has no repeated launches: `slower` is not judged" };
    output::remark(format!("watching {shown}, compared with {baseline}{steps}"));
    Some(reference)
}

/// The newest session in the same folder that ran the same command on the same kind of device
/// before, and ended well.
fn newest_good(session: &Path, meta: &Meta) -> Option<PathBuf> {
    let folder = session.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let siblings = std::fs::read_dir(folder).ok()?.flatten().take(MOST_SIBLINGS).map(|entry| entry.path());
    let runs = siblings.filter(|path| is_session(path)).filter_map(|path| {
        let other = meta_of(&path)?;
        let alike = other.command == meta.command && other.cwd == meta.cwd && other.device == meta.device;
        let earlier = other.started_real_ns < meta.started_real_ns;
        (alike && earlier && other.exit == Some(Exit::Code(0))).then_some((other.started_real_ns, path))
    });
    let (_, path) = runs.max()?;
    Some(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path))
}

fn meta_of(session: &Path) -> Option<Meta> {
    serde_json::from_slice(&read::read(&session.join(META_FILE), read::SESSION_JSON).ok()?).ok()
}
