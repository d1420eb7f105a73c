//! The session of a recorded process: its file, the identifiers of its objects, and its records.
//!
//! A process has one [`Recorder`], made at the first driver call. [`crate::hooks`] describe the
//! calls to record. Each thread writes through its own [`thread`]. The other modules define what is
//! recorded: [`launch`] launches, [`call`] other calls, [`timed`] GPU durations, [`stacks`] call
//! stacks, [`ranges`] NVTX ranges, [`images`] code, [`arguments`] arguments.
//!
//! Invariants:
//!
//! 1. The locks of [`identifiers`] are never held during a call into the driver: the driver may
//!    call back, or hold locks of its own.
//! 2. An identifier gets into a table only after its definition is in the file.
//! 3. A handle is forgotten, or its epoch ended, *before* the real call that destroys its object:
//!    afterwards the driver may give the same handle to another object.

pub mod arguments;
pub mod call;
mod identifiers;
pub mod images;
pub mod launch;
mod linker;
pub mod ranges;
pub mod stacks;
pub mod thread;
pub mod timed;

use crate::message::say_once;
use crate::objects::Objects;
use crate::per_process::{OfProcess, PerProcess};
use crate::switch;
use crate::tables::{ConfigTable, HandleMap};
use crate::timing::{Progress, Timing};
use crate::{environment, limits, native, signals};
use apex_conventions::variables;
use apex_trace::ProcessFile;
use apex_trace::control::{Control, MappedControl};
use apex_trace::definition::{Definition, Variable};
use arguments::GivenArguments;
use cuda_abi::types::CUresult;
use cuda_abi::{COUNT, ENTRY_POINTS};
use identifiers::Identifiers;
use images::SeenImages;
use linker::HeldLinks;
use ranges::DefinedRanges;
use stacks::Stacks;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Bytes that a recorded process takes at most, whatever it does and however many threads it has.
pub const FIXED_BYTES: usize = ConfigTable::bytes(limits::CONFIG_PLACES)
    + (limits::CONFIGS + limits::GRAPHS) * size_of::<Progress>()
    + HandleMap::bytes(limits::FUNCTION_HANDLES)
    + HandleMap::bytes(limits::STREAM_HANDLES)
    + HandleMap::bytes(limits::GRAPH_HANDLES)
    + HandleMap::bytes(limits::CONTEXT_HANDLES)
    + HandleMap::bytes(limits::RANGES)
    + limits::MAP_BYTES
    + native::BYTES
    + limits::CONTEXT_HANDLES * limits::EVENT_PAIRS * 2 * size_of::<usize>();

/// Bytes that each recorded thread takes beside its mapped chunk.
pub const THREAD_BYTES: usize = thread::BYTES;

const _: () = assert!(FIXED_BYTES < 60 << 20 && THREAD_BYTES < 70 << 10);

static RECORDER: PerProcess<Recorder> = PerProcess::new();

/// Tells by their indices which entry points have records. Known before the first recorder is made.
static RECORDED: OnceLock<fn(usize) -> bool> = OnceLock::new();

/// See the [module](self).
#[repr(C, align(64))]
pub struct Recorder {
    /// The driver objects of this process.
    pub objects: &'static Objects,
    /// The session's control page.
    pub control: &'static Control,
    /// GPU durations.
    pub timing: Timing,
    /// The session file of this process.
    pub file: ProcessFile,
    identifiers: Identifiers,
    stacks: Stacks,
    ranges: DefinedRanges,
    images: SeenImages,
    links: HeldLinks,
    given_arguments: GivenArguments,
}

/// The outcome of a call of the real driver.
#[derive(Clone, Copy)]
pub struct Done {
    /// The time at which it was forwarded, in ticks.
    pub start: u64,
    /// The time at which it returned, in ticks.
    pub end: u64,
    /// Its result.
    pub result: CUresult,
}

impl OfProcess for Recorder {
    fn is_ours(&self) -> bool {
        self.file.is_ours()
    }
}

/// Begins to record this process, if there is a session whose files can be used. `recorded` tells
/// by their indices which entry points have hooks.
pub fn start(recorded: fn(usize) -> bool) -> Option<&'static Recorder> {
    RECORDED.get_or_init(|| recorded);
    Recorder::start()
}

impl Recorder {
    /// The recorder of this process, made if need be. `None` if there is no session or its files
    /// cannot be used.
    fn start() -> Option<&'static Recorder> {
        let session = variables::SESSION.path()?;
        RECORDER.get_or_make(|| Recorder::make(&session), Recorder::publish)
    }

    /// The recorder of this process, if it has been made and recording has not ended for good.
    #[inline]
    pub fn existing() -> Option<&'static Recorder> {
        Recorder::made().filter(|_| !switch::has_stopped())
    }

    /// The recorder of this process, if it has been made.
    #[inline]
    pub fn made() -> Option<&'static Recorder> {
        RECORDER.get()
    }

    fn make(session: &Path) -> Option<Box<Recorder>> {
        signals::watch_for_losses();
        let made = Recorder::with_tables(session).inspect_err(|error| {
            let session = session.display();
            say_once(&format!("this process is not recorded: {error} (session: {session})"));
            switch::turn_off();
        });
        made.ok()
    }

    /// Reserves the tables and makes the session file.
    fn with_tables(session: &Path) -> io::Result<Box<Recorder>> {
        limits::leave_room()?;
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let objects = Objects::start().ok_or_else(no_memory)?;
        let identifiers = Identifiers::new().ok_or_else(no_memory)?;
        let control = MappedControl::open(session)?.leak();
        let timing = Timing::new(objects, control).ok_or_else(no_memory)?;
        let file = ProcessFile::create(session, Some(control))?;
        let (stacks, ranges) = (Stacks::new(), DefinedRanges::default());
        let (images, given_arguments) = (SeenImages::default(), GivenArguments::default());
        Ok(Box::new(Recorder {
            objects,
            control,
            timing,
            file,
            identifiers,
            stacks,
            ranges,
            images,
            links: HeldLinks::default(),
            given_arguments,
        }))
    }

    /// Defines what every session names, and begins to record.
    fn publish(&'static self) {
        let is_recorded = RECORDED.get();
        for index in (0..COUNT).filter(|&index| is_recorded.is_some_and(|is_recorded| is_recorded(index))) {
            let text = ENTRY_POINTS[index].symbol.to_owned();
            self.file.define(&Definition::Name { id: api(index), text });
        }
        for (id, variable) in (1..).zip(environment::recorded()) {
            self.file.define(&Definition::Variable(Variable { id, ..variable }));
        }
        switch::announce(&self.file);
        if switch::has_stopped() {
            // Before there was a file to note it in.
            self.file.note_loss(libc::ENOMEM);
            say_once("out of memory: this process is not recorded (its limit: `ulimit -v`)");
        } else {
            switch::follow(self.control);
        }
    }
}

/// The identifier of an entry point's name.
#[inline(always)]
const fn api(index: usize) -> u32 {
    index as u32 + 1
}
