//! `apex power helper`: the root service that sets clocks for users.

use crate::output;
use crate::run::governed;
use anyhow::{Context, bail};
use apex_power::{Claim, Helper, LIBRARY, SOCKET, may_set_clocks};
use std::ffi::CString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Sets GPU clocks for `apex power run` of users who may not: a root service.
#[derive(clap::Args, Debug)]
#[command(
    long_about = "Sets GPU clocks for `apex power run` of users who may not: a root service. It listens on a Unix socket; \
the kernel tells it which user connects, and it serves only the users that --user names. It only lowers and releases the \
highest clock of a GPU that no other run governs, and it releases the clock when the connection ends. If it is killed, the \
clocks are released too.",
    after_long_help = "Examples:
  sudo apex power helper --user alice --user 1001

It runs until a signal ends it. Exits with status 125 if it cannot listen or lacks the permission."
)]
pub struct Args {
    /// User to serve, by name or number. May be repeated
    #[arg(long, required = true, value_name = "USER", value_parser = parse_user)]
    user: Vec<u32>,
    /// Socket to listen on
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

/// The identifier of a user, from a name or a number.
fn parse_user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let name = CString::new(text).map_err(|error| error.to_string())?;
    // SAFETY: the name ends with a zero byte; while the command line is read there is no other
    // thread that would overwrite the entry.
    let number = unsafe { libc::getpwnam(name.as_ptr()).as_ref().map(|entry| entry.pw_uid) };
    number.ok_or_else(|| "there is no such user".to_owned())
}

/// Serves until a signal ends it.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    if !may_set_clocks() {
        bail!("the helper needs root (in a container: with SYS_ADMIN)");
    }
    let shown = apex_untrusted::shown(&args.socket);
    let listener = listen(&args.socket).with_context(|| format!("cannot listen on {shown}"))?;
    output::remark(format!("sets GPU clocks for {} on {shown}; Ctrl-C ends it", listed(&args.user)));
    let helper = Helper {
        library: LIBRARY.into(),
        claims: Claim::FOLDER.into(),
        users: args.user.clone(),
        watchdog: governed::watchdog,
        log: |line| output::remark(line),
    };
    helper.serve(&listener)
}

fn listed(users: &[u32]) -> String {
    let users: Vec<String> = users.iter().map(|user| format!("user {user}")).collect();
    users.join(", ")
}

/// Listens on a socket to which all users may connect; replaces the socket of a helper that has
/// ended.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::other("another helper runs"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!(parse_user("root"), Ok(0));
        assert_eq!(parse_user("1001"), Ok(1001));
        assert!(parse_user("no such user").is_err());
    }

    #[test]
    fn the_socket_of_a_helper_that_is_gone_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = listen(&path).unwrap();
        assert!(listen(&path).is_err());
        drop(first);
        assert!(listen(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file of somebody's").unwrap();
        assert!(listen(&path).is_err());
    }
}
