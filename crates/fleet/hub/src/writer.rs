//! The one thread that writes.
//!
//! Messages that come while a transaction reaches the disk share the next one. Each message has a
//! savepoint of its own, so that a refused one leaves nothing behind, and is answered after the
//! commit.

use crate::health::Outcome;
use crate::store::{Error, Store, ingest, remove_old};
use apex_aggregate::Aggregate;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most messages of a transaction.
const BATCH: usize = 256;
/// Most recordings that are removed at once: messages wait for it.
const REMOVED: u32 = 2000;
/// Between two looks for old recordings.
const QUIET: Duration = Duration::from_secs(60);

/// Outcome of a message, and the sequence of its recording that is stored.
type Written = (Outcome, u64);

/// A message that waits for its turn.
struct Posted {
    tenant: String,
    aggregate: Aggregate,
    bytes: Vec<u8>,
    answer: SyncSender<Written>,
}

/// Hands messages to the thread.
#[derive(Debug)]
pub struct Writer(Mutex<Sender<Posted>>);

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl Writer {
    /// Starts the thread, which ends when this is dropped.
    ///
    /// # Errors
    /// If the database cannot be opened.
    pub fn start(store: &Store, kept_days: u64) -> Result<Self, Error> {
        let mut connection = store.connect()?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || run(&mut connection, &receiver, kept_days));
        Ok(Self(Mutex::new(sender)))
    }

    /// Stores a message. When this returns, what is stored is on the disk.
    pub fn write(&self, tenant: &str, aggregate: Aggregate, bytes: &[u8]) -> Written {
        let (answer, answered) = sync_channel(1);
        let failed = (Outcome::Failed, aggregate.sequence);
        let posted = Posted { tenant: tenant.to_owned(), aggregate, bytes: bytes.to_vec(), answer };
        let sent = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(posted);
        sent.ok().and_then(|()| answered.recv().ok()).unwrap_or(failed)
    }
}

fn run(connection: &mut Connection, receiver: &Receiver<Posted>, kept_days: u64) {
    let mut removed = Instant::now();
    loop {
        match receiver.recv_timeout(QUIET) {
            Ok(first) => {
                let mut batch = vec![first];
                batch.extend(receiver.try_iter().take(BATCH - 1));
                write_and_answer(connection, &batch);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if removed.elapsed() >= QUIET {
            // What is not removed now is removed later.
            let _ = remove_old(connection, kept_days, now_ns(), REMOVED);
            removed = Instant::now();
        }
    }
}

fn write_and_answer(connection: &mut Connection, batch: &[Posted]) {
    let written = transact(connection, batch).unwrap_or_else(|error| {
        eprintln!("apex hub: the database could not store {} messages: {error}", batch.len());
        batch.iter().map(|posted| (Outcome::Failed, posted.aggregate.sequence)).collect()
    });
    for (posted, written) in batch.iter().zip(written) {
        // Who asked may be gone.
        let _ = posted.answer.send(written);
    }
}

/// Stores the messages in one transaction. Nothing is stored if this fails.
fn transact(connection: &mut Connection, batch: &[Posted]) -> rusqlite::Result<Vec<Written>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut written = Vec::with_capacity(batch.len());
    for posted in batch {
        let savepoint = transaction.savepoint()?;
        let stored = ingest(&savepoint, &posted.tenant, &posted.aggregate, &posted.bytes, now_ns());
        match stored {
            Ok(done) if done.0.is_stored() => {
                savepoint.commit()?;
                written.push(done);
            }
            Ok(refused) => written.push(refused),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                written.push((Outcome::Sums, posted.aggregate.sequence));
            }
            Err(error) => return Err(error),
        }
    }
    transaction.commit()?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_aggregate::{Kernel, Kernels};

    const DAY_NS: u64 = 86_400_000_000_000;
    const KEPT: u64 = 90;

    #[test]
    fn what_is_removed_stays_in_the_sums_and_is_never_added_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("hub.db")).unwrap();
        let mut connection = store.connect().unwrap();
        let now = 1000 * DAY_NS;
        let kernel = Kernel { name: "k".to_owned(), launches: 5, gpu_us: 7 };
        let of = Aggregate {
            recording: "a".repeat(32),
            sequence: 1,
            started_ns: now,
            // By a clock that is nearly a day ahead.
            as_of_ns: now + DAY_NS - 1,
            kernels: Kernels { listed: vec![kernel], ..Kernels::default() },
            ..Aggregate::default()
        };
        for (later, kept, removed, again) in [
            (0, KEPT, 0, Outcome::Added),
            (KEPT * DAY_NS, KEPT, 0, Outcome::Repeated),
            ((KEPT + 1) * DAY_NS, KEPT, 0, Outcome::Repeated),
            ((KEPT + 1) * DAY_NS + 1, KEPT, 1, Outcome::Past),
            // Who keeps more from now on gets nothing back that is counted.
            ((KEPT + 1) * DAY_NS + 2, 10 * KEPT, 0, Outcome::Past),
        ] {
            assert_eq!(remove_old(&mut connection, kept, now + later, 9).unwrap(), removed);
            assert_eq!(ingest(&connection, "t", &of, b"{}", now + later).unwrap().0, again, "{later}");
        }
        let sums = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(
            (sums("SELECT sum(launches) FROM kernels"), sums("SELECT sum(recordings) FROM jobs")),
            (5, 1)
        );
    }

    #[test]
    fn a_damaged_message_is_an_error_and_no_sum_changes() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("hub.db")).unwrap();
        let writer = Writer::start(&store, KEPT).unwrap();
        let now = now_ns();
        let of = |sequence| Aggregate {
            recording: "a".repeat(32),
            sequence,
            started_ns: now,
            as_of_ns: now,
            ..Aggregate::default()
        };
        assert_eq!(writer.write("t", of(1), b"no message").0, Outcome::Added);
        assert_eq!(writer.write("t", of(2), b"no message").0, Outcome::Failed);
        let recordings = store.read(|connection| {
            connection.query_row("SELECT sum(recordings), sum(running) FROM jobs", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
        });
        assert_eq!(recordings.unwrap(), (1, 1));
    }
}
