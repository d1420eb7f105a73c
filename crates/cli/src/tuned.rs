//! The file of a profile of `apex tune`: whose it may be, and how it is read.

use anyhow::{Context, bail};
use apex_tune::{Tuning, document};
use apex_untrusted::read;
use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Largest profile that is read, bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Whether somebody else may change a file: everybody, or a group that is not the user's own.
fn others_may_write(file: &Metadata) -> bool {
    // SAFETY: takes no arguments, and cannot fail.
    let group = unsafe { libc::getegid() };
    file.mode() & 0o002 != 0 || file.mode() & 0o020 != 0 && file.gid() != group
}

/// Reads a profile, which belongs to the user that runs this.
///
/// # Errors
/// If it cannot be read, is another user's, may be written by others, or is not as `apex tune`
/// wrote it.
pub fn load(path: &Path) -> anyhow::Result<Tuning> {
    let shown = apex_untrusted::shown(path);
    let file = read::open(path, MOST_BYTES).with_context(|| format!("cannot read {shown}"))?;
    let found = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    let owner = found.uid();
    // SAFETY: takes no arguments, and cannot fail.
    let user = unsafe { libc::geteuid() };
    if owner != user {
        bail!("{shown} belongs to user {owner}, not to you (user {user}): copy it if you trust it");
    }
    if others_may_write(&found) {
        let mode = found.mode() & 0o7777;
        bail!(
            "{shown} may be written by other users (mode {mode:04o}): `chmod go-w {shown}` if you trust it"
        );
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    document::read(&text).with_context(|| shown)
}
