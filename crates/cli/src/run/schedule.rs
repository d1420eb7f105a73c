//! `apex run --fast=schedule`: tells the injected library, which cannot read PTX, which memory
//! kernels access (`apex_conventions::access`).
//!
//! Without an answer in time, the library assumes that a kernel may access any memory.

use super::Fast;
use super::answering::{self, Answering};
use apex_conventions::access::{ANALYSIS, HEAD, MOST_BYTES, PATIENCE, SOCKET};
use apex_untrusted::Folder;
use launch_condition::access_to_bytes;
use ptx_access::schedulable;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Starts to listen in a session, if the user wants it.
///
/// # Errors
/// Those of the system: the socket cannot be made.
pub fn start(session: &Folder, fast: &[Fast]) -> io::Result<Option<Answering>> {
    let is_wanted = fast.contains(&Fast::Schedule);
    is_wanted.then(|| answering::start(session, SOCKET, answer)).transpose()
}

fn answer(mut stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut head, mut length) = ([0; HEAD.len()], [0; 8]);
    stream.read_exact(&mut head)?;
    stream.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if head != HEAD || length > MOST_BYTES as u64 {
        return Ok(());
    }
    let mut source = Vec::new();
    (&mut stream).take(length).read_to_end(&mut source)?;
    let sets = access_sets(&source);
    stream.write_all(&(sets.len() as u64).to_le_bytes())?;
    stream.write_all(&sets)
}

/// The access sets of a module's kernels, serialised; an empty list if `source` is not PTX.
fn access_sets(source: &[u8]) -> Vec<u8> {
    let begun = Instant::now();
    let kernels = ptx::parse(&String::from_utf8_lossy(source))
        .map_or_else(|_| Vec::new(), |module| schedulable(&module, || begun.elapsed() < ANALYSIS));
    access_to_bytes(&kernels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use launch_condition::access_from_bytes;

    const SOURCE: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry set(.param .u64 to) {\n\
        .reg .b64 %q<2>; ld.param.u64 %q1, [to]; st.global.u64 [%q1], 1; ret; }\n";

    #[test]
    fn access_sets_are_sent_and_strangers_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let session = Folder::open(folder.path()).unwrap();
        assert!(start(&session, &[Fast::Batch]).unwrap().is_none());
        let server = start(&session, &[Fast::Schedule]).unwrap().unwrap();
        let ask = |source: &str, head: [u8; 4]| {
            let mut stream = UnixStream::connect(server.socket()).unwrap();
            stream.write_all(&head).unwrap();
            stream.write_all(&(source.len() as u64).to_le_bytes()).unwrap();
            stream.write_all(source.as_bytes()).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            answer
        };
        let answer = ask(SOURCE, HEAD);
        let kernels = access_from_bytes(&answer[8..]).unwrap();
        assert_eq!((kernels[0].name.as_str(), kernels[0].memory.as_ref().unwrap().len()), ("set", 1));
        assert_eq!(access_from_bytes(&ask("no PTX", HEAD)[8..]).unwrap(), []);
        assert_eq!(ask("", *b"APA0"), b"");
        server.finish();
        assert!(!folder.path().join(SOCKET).exists());
    }
}
