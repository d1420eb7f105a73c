//! Connections to `apex run`, which answers questions about PTX.

use apex_conventions::variables::SESSION;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Connects to a socket of the session; reads and writes time out after `patience`. The path of a
/// socket is limited to about 100 bytes, so it is reached through the session's open folder.
pub fn connect(socket: &str, patience: Duration) -> Option<UnixStream> {
    let session = File::open(SESSION.path()?).ok()?;
    let stream = UnixStream::connect(format!("/proc/self/fd/{}/{socket}", session.as_raw_fd())).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.set_write_timeout(Some(patience)).ok()?;
    Some(stream)
}
