//! Another compute capability for chosen libraries (`apex run --capability`).
//!
//! Code on the host that picks kernels by compute capability is told the one that the user wants.
//! Who asks is known by the return address of the call: the file whose code it lies in.
//!
//! # Contract
//! 1. *Only the answer changes*, and only that about the compute capability: the driver is asked as
//!    before, and what it refuses stays refused.
//! 2. *Nothing is silent.* Each library and call whose answer changed is told to `apex run`, once.
//! 3. *No launch passes here.*

use super::ask::connect;
use crate::message::say_once;
use apex_conventions::capability::{Question, SOCKET, Told, Wanted};
use std::ffi::{CStr, c_void};
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Longest wait for `apex run` to take a message.
const PATIENCE: Duration = Duration::from_secs(2);
/// Libraries and calls that are told at most.
const MOST_TOLD: usize = 256;

/// The capability that the user wants to be told, if any.
fn wanted() -> Option<&'static Wanted> {
    static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();
    WANTED.get_or_init(Wanted::of_environment).as_ref()
}

/// Whether the user wants one to be told.
pub fn is_wanted() -> bool {
    wanted().is_some()
}

/// The capability to tell the code at `caller`, in place of the driver's answer; `None` if that
/// stays.
pub fn instead(question: Question, real: (u32, u32), caller: *const c_void) -> Option<(u32, u32)> {
    let wanted = wanted()?;
    let library = library_of(caller)?;
    let changes = match question {
        Question::Major => real.0 != wanted.capability.0,
        Question::Minor => real.1 != wanted.capability.1,
        Question::Both => real != wanted.capability,
    };
    if !changes || !wanted.concerns(&library) {
        return None;
    }
    tell(Told { question, real, library });
    Some(wanted.capability)
}

/// The path of the file whose code lies at an address.
fn library_of(address: *const c_void) -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the out-parameter is valid; the call takes any address.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zeros are a valid value, which the call has replaced if it found something.
    let name = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || name.is_null() {
        return None;
    }
    // SAFETY: the name is a text of the dynamic linker's, which lives as long as the library: its
    // code is being executed.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Tells `apex run`, the first time.
fn tell(told: Told) {
    static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
    let mut known = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if known.contains(&told) || known.len() >= MOST_TOLD {
        return;
    }
    let sent = connect(SOCKET, PATIENCE).is_some_and(|mut stream| stream.write_all(&told.to_bytes()).is_ok());
    if !sent {
        say_once("answers about the compute capability were changed, and the session does not say which");
    }
    known.push(told);
}
