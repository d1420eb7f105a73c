//! Connections to `apex run`, which answers what needs knowledge of PTX.

use apex_conventions::variables::SESSION;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection to a socket of the session; reads and writes give up after `patience`. The path of
/// a socket is limited to some hundred bytes, that of a session is not: the socket is reached from
/// the open folder.
pub fn connect(socket: &str, patience: Duration) -> Option<UnixStream> {
    let session = File::open(SESSION.path()?).ok()?;
    let stream = UnixStream::connect(format!("/proc/self/fd/{}/{socket}", session.as_raw_fd())).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.set_write_timeout(Some(patience)).ok()?;
    Some(stream)
}
