//! The open connections: which one is closed if there are too many, and which ones have exceeded
//! their time.

use crate::options::Limits;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::task::AbortHandle;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It waits for a request, or for the rest of one's head.
    Idle,
    /// Its request is answered.
    Answering,
    /// It is sent events.
    Streaming,
}

#[derive(Debug)]
struct Open {
    doing: Doing,
    since: Instant,
    /// Ends the task that serves it; `None` until that has begun.
    task: Option<AbortHandle>,
}

/// The open connections.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Open>,
    opened: u64,
}

/// A connection's entry, as long as it is open.
#[derive(Debug)]
pub struct Entry {
    connections: Connections,
    number: u64,
}

/// That a connection answers; it is idle again when this is dropped.
#[derive(Debug)]
pub struct Work(Arc<Entry>);

impl Connections {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection: a free one, else that of the one that is idle longest, which
    /// is closed. `None` if all of them work.
    pub fn admit(&self, most: usize) -> Option<Arc<Entry>> {
        let mut table = self.table();
        if table.open.len() >= most {
            let idle = table.open.iter().filter(|(_, open)| open.doing == Doing::Idle);
            let (&longest, _) = idle.min_by_key(|(_, open)| open.since)?;
            table.close(longest);
        }
        table.opened += 1;
        let number = table.opened;
        table.open.insert(number, Open { doing: Doing::Idle, since: Instant::now(), task: None });
        Some(Arc::new(Entry { connections: self.clone(), number }))
    }

    /// Closes those that have taken too long.
    pub fn close_overdue(&self, limits: &Limits) {
        let mut table = self.table();
        let overdue = |open: &Open| {
            let time = match open.doing {
                Doing::Idle => limits.head_time,
                Doing::Answering => limits.request_time + limits.send_time,
                Doing::Streaming => limits.stall_time,
            };
            open.since.elapsed() > time
        };
        let overdue: Vec<u64> =
            table.open.iter().filter(|(_, open)| overdue(open)).map(|(&number, _)| number).collect();
        for number in overdue {
            table.close(number);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.table().open.is_empty()
    }
}

impl Table {
    fn close(&mut self, number: u64) {
        if let Some(task) = self.open.remove(&number).and_then(|open| open.task) {
            task.abort();
        }
    }
}

impl Entry {
    /// Sets the task to end when the connection has to be closed.
    pub fn served_by(&self, task: AbortHandle) {
        if let Some(open) = self.connections.table().open.get_mut(&self.number) {
            open.task = Some(task);
        }
    }

    fn is(&self, doing: Doing) {
        if let Some(open) = self.connections.table().open.get_mut(&self.number) {
            (open.doing, open.since) = (doing, Instant::now());
        }
    }

    /// Begins to answer.
    pub fn work(self: &Arc<Self>) -> Work {
        self.is(Doing::Answering);
        Work(Arc::clone(self))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.number);
    }
}

impl Work {
    /// The client takes more of its event stream.
    pub fn streams(&self) {
        self.0.is(Doing::Streaming);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.is(Doing::Idle);
    }
}
