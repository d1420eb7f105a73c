//! The thread, and the end.

use crate::identity::Identity;
use crate::making::aggregate;
use apex_advice::Advice;
use apex_aggregate::Aggregate;
use apex_delivery::{Delivered, Route, deliver, label};
use apex_spool::{Entry, Spool};
use apex_view::{Filters, Loaded};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A session is read again after so many times the time that reading it took: half a percent of a
/// core.
pub const REST: u32 = 200;
/// What a delivery takes at most while the program runs …
const LONGEST: Duration = Duration::from_secs(20);
/// … and at the end, when somebody waits.
const LAST_CHANCE: Duration = Duration::from_secs(5);

/// Destination of aggregates.
#[derive(Debug)]
pub struct Destination {
    /// The hub's address, with [`apex_delivery::PATH`] behind it; without a hub, the spool holds.
    pub hub: Option<Route>,
    /// The spool.
    pub spool: Spool,
}

/// Tells a hub of a session.
#[derive(Debug)]
pub struct Agent {
    telling: Arc<Telling>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Telling {
    session: PathBuf,
    to: Arc<Destination>,
    identity: Identity,
    /// Between two messages.
    every: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The last aggregate.
    last: Option<Aggregate>,
    ended: bool,
}

impl Agent {
    /// Starts the thread, which tells of the session at these intervals.
    pub fn start(session: PathBuf, to: Arc<Destination>, identity: Identity, every: Duration) -> Self {
        let telling = Arc::new(Telling {
            session,
            to,
            identity,
            every,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let thread = std::thread::Builder::new().name("apex-agent".to_owned());
        let of_thread = Arc::clone(&telling);
        // Without a thread, the hub hears of the session at its end.
        let thread = thread.spawn(move || of_thread.run()).ok();
        Self { telling, thread }
    }

    /// Tells of the session when the program has ended. Returns what became of the spool's
    /// messages, after some seconds at most.
    ///
    /// # Errors
    /// Those of the system about the spool: then the hub will not hear of the session's end.
    pub fn finish(mut self, loaded: &Loaded, advice: &Advice) -> io::Result<Delivered> {
        self.telling.end();
        // One that is reading the session or sending is not waited for: its message is an earlier
        // one.
        self.thread = None;
        self.telling.tell(loaded, advice)?;
        self.telling.deliver(LAST_CHANCE)
    }

    /// Ends without a further message.
    pub fn abandon(self) {
        self.telling.end();
    }

    /// Its destination.
    pub fn destination(&self) -> Arc<Destination> {
        Arc::clone(&self.telling.to)
    }
}

impl Telling {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until it is time. Returns whether the program still runs.
    fn wait(&self) -> bool {
        let begun = Instant::now();
        let mut state = self.lock();
        while !state.ended && begun.elapsed() < self.every {
            let left = self.every.saturating_sub(begun.elapsed());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.ended
    }

    fn run(&self) {
        let mut due = Instant::now();
        while self.wait() {
            // What fails now is tried again, and the end tells of what fails then.
            let told = match Instant::now() >= due {
                true => self.look(&mut due),
                false => self.repeat(),
            };
            let _ = told.and_then(|()| self.deliver(LONGEST));
        }
    }

    /// Reads the session and tells of it.
    fn look(&self, due: &mut Instant) -> io::Result<()> {
        let begun = Instant::now();
        let filters = Filters::default();
        let loaded = Loaded::read(&self.session, &filters).map_err(io::Error::other)?;
        let advice = filters.shown(&loaded).map_err(io::Error::other)?.advise(&[]);
        *due = Instant::now() + begun.elapsed() * REST;
        self.tell(&loaded, &advice)
    }

    /// Tells the last figures again: the program still runs.
    fn repeat(&self) -> io::Result<()> {
        let mut state = self.lock();
        let State { last: Some(last), ended: false } = &mut *state else { return Ok(()) };
        last.sequence += 1;
        self.keep(last)
    }

    /// Puts the session's aggregate into the spool. The numbers of messages follow the order in
    /// which they are put there.
    fn tell(&self, loaded: &Loaded, advice: &Advice) -> io::Result<()> {
        let mut state = self.lock();
        let is_end = loaded.session.meta.as_ref().is_some_and(|meta| meta.exit.is_some());
        // The thread may have read the session before it ended, and be late.
        if state.last.as_ref().is_some_and(|last| last.ended.is_some() && !is_end) {
            return Ok(());
        }
        let sequence = state.last.as_ref().map_or(0, |last| last.sequence) + 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let made = aggregate(loaded, advice, &self.identity, sequence, now);
        self.keep(&made)?;
        state.last = Some(made);
        Ok(())
    }

    fn keep(&self, aggregate: &Aggregate) -> io::Result<()> {
        let Aggregate { recording, sequence, .. } = aggregate;
        let label = self.to.hub.as_ref().map_or_else(String::new, |route| label(&route.hub));
        let body = aggregate.to_bytes();
        self.to.spool.put(&Entry { key: recording.clone(), sequence: *sequence, label, body })
    }

    fn deliver(&self, longest: Duration) -> io::Result<Delivered> {
        match &self.to.hub {
            Some(hub) => deliver(&self.to.spool, hub, longest),
            None => Ok(Delivered { waiting: self.to.spool.waiting()?.len() as u64, ..Delivered::default() }),
        }
    }
}
