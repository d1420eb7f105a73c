//! `apex run --capability`: another compute capability for chosen libraries of the program.
//!
//! The injected library changes the answers (`apex_conventions::capability`) and says so on a
//! socket in the session; its messages are written into session.json at the end.

use super::answering::{self, Answering};
use apex_conventions::capability::{Question, SOCKET, Told, parse};
use apex_conventions::variables;
use apex_ordered::Order;
use apex_trace::meta::ToldCapability;
use apex_untrusted::Folder;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Answers that a session keeps at most.
const MOST: usize = 1000;
/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(2);

/// A compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(u32, u32);

impl std::str::FromStr for Capability {
    type Err = String;

    fn from_str(text: &str) -> Result<Capability, String> {
        let (major, minor) = parse(text).ok_or("a compute capability is two numbers, such as 12.0")?;
        Ok(Capability(major, minor))
    }
}

/// The options of `apex run`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Options {
    /// Tell the program that the GPU has this compute capability, such as 12.0, where it asks the
    /// driver. The session lists the libraries and calls that were answered differently
    #[arg(long, value_name = "CAPABILITY")]
    pub capability: Option<Capability>,
    /// Tell it only the library whose file name begins so, such as libchooser.so, or the file at
    /// this path. May be repeated [default: all libraries and the program]
    #[arg(long, value_name = "LIBRARY", requires = "capability", value_delimiter = ':')]
    pub capability_for: Vec<String>,
}

impl Options {
    /// Sets the variables that the injected library reads.
    pub fn set(&self, program: &mut Command) {
        let Some(Capability(major, minor)) = self.capability else { return };
        program.env(variables::CAPABILITY.name, format!("{major}.{minor}"));
        program.env(variables::CAPABILITY_FOR.name, self.capability_for.join(":"));
    }

    /// Starts to listen in a session, if the user wants it.
    ///
    /// # Errors
    /// Those of the system: the socket cannot be made.
    pub fn start(&self, session: &Folder) -> io::Result<Option<Server>> {
        let Some(capability) = self.capability else { return Ok(None) };
        let told: Arc<Mutex<Vec<ToldCapability>>> = Arc::default();
        let log = Arc::clone(&told);
        let answering = answering::start(session, SOCKET, move |stream| heard(stream, capability, &log))?;
        Ok(Some(Server { answering, told }))
    }
}

/// The listener in a session, and what it has heard.
pub struct Server {
    answering: Answering,
    told: Arc<Mutex<Vec<ToldCapability>>>,
}

impl Server {
    /// Ends it and gives what was told to whom.
    pub fn finish(self) -> Vec<ToldCapability> {
        self.answering.finish();
        let mut told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        told.order_by(Ord::cmp);
        told.dedup();
        told
    }
}

fn heard(stream: UnixStream, capability: Capability, log: &Mutex<Vec<ToldCapability>>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = Vec::new();
    stream.take(Told::MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let Some(told) = Told::from_bytes(&bytes) else { return Ok(()) };
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() < MOST {
        log.push(noted(told, capability));
    }
    Ok(())
}

fn noted(told: Told, Capability(major, minor): Capability) -> ToldCapability {
    let both = |major: u32, minor: u32| format!("{major}.{minor}");
    let (real, said) = match told.question {
        Question::Major => (told.real.0.to_string(), major.to_string()),
        Question::Minor => (told.real.1.to_string(), minor.to_string()),
        Question::Both => (both(told.real.0, told.real.1), both(major, minor)),
    };
    ToldCapability { library: told.library, call: told.question.call().to_owned(), real, told: said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_noted_once_and_strangers_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let session = Folder::open(folder.path()).unwrap();
        let options = Options { capability: Some("12.0".parse().unwrap()), ..Options::default() };
        let server = options.start(&session).unwrap().unwrap();
        let send = |bytes: &[u8]| {
            let mut stream = UnixStream::connect(server.answering.socket()).unwrap();
            io::Write::write_all(&mut stream, bytes).unwrap();
        };
        let told = Told { question: Question::Both, real: (9, 0), library: "/x/liba.so".into() };
        send(&told.to_bytes());
        send(&told.to_bytes());
        send(b"nonsense");
        let noted = server.finish();
        assert_eq!(noted.len(), 1);
        assert_eq!((noted[0].real.as_str(), noted[0].told.as_str()), ("9.0", "12.0"));
        assert!(!folder.path().join(SOCKET).exists());
    }

    #[test]
    fn other_text_is_no_capability() {
        assert!("sm_120".parse::<Capability>().unwrap_err().contains("such as 12.0"));
    }
}
