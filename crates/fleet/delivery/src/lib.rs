//! From a spool to a hub.
//!
//! [`deliver`] posts each message that waits to the hub and removes it once the hub has confirmed
//! that it has *committed* this sequence, or a later one, of this key: by a header of its answer
//! ([`CONFIRMATION`]), because any server may answer with status 200. A message whose confirmation
//! was lost is delivered again; the hub knows that it has it.
//!
//! A message that a hub refuses for good (it is malformed, or of another version) leaves the spool
//! and is counted there. After a failure that may pass, [`deliver`] tries no further message: a hub
//! that does not answer would take the time limit for each.

use apex_push::{Failure, Target};
use apex_spool::Spool;
use std::io;
use std::time::{Duration, Instant};

/// Name of the header by which a hub confirms: `KEY SEQUENCE`.
pub const CONFIRMATION: &str = "apex-committed";
/// Where messages are posted, behind the address of a hub.
pub const PATH: &str = "/api/v1/aggregates";
/// Media type of messages.
const JSON: &str = "application/json";
/// Statuses by which a hub says that it will never take this message.
const FOR_GOOD: [u16; 4] = [400, 409, 413, 422];

/// What became of the messages of a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Messages that the hub has confirmed.
    pub confirmed: u64,
    /// Messages that it refused for good, with the status of the last one.
    pub refused: u64,
    /// See [`Self::refused`].
    pub status: Option<u16>,
    /// Messages that still wait.
    pub waiting: u64,
    /// The reason why they wait.
    pub failure: Option<Failure>,
}

/// Delivers what waits, for at most this time.
///
/// # Errors
/// Those of the system about the spool.
pub fn deliver(spool: &Spool, hub: &Target, longest: Duration) -> io::Result<Delivered> {
    let begun = Instant::now();
    let mut done = Delivered::default();
    let keys = spool.waiting()?;
    for (at, key) in keys.iter().enumerate() {
        let left = longest.saturating_sub(begun.elapsed());
        if left.is_zero() {
            done.failure.get_or_insert(Failure::TimedOut(longest));
        }
        if done.failure.is_some() {
            // The one that failed is counted already.
            done.waiting += (keys.len() - at) as u64;
            break;
        }
        one(spool, hub, key, left, &mut done)?;
    }
    Ok(done)
}

/// Delivers the message of a key.
fn one(spool: &Spool, hub: &Target, key: &str, longest: Duration, done: &mut Delivered) -> io::Result<()> {
    // Another process may have delivered it.
    let Some(entry) = spool.read(key)? else { return Ok(()) };
    match hub.post_for(JSON, entry.body, longest, CONFIRMATION) {
        Ok(answer) => match answer.as_deref().and_then(|answer| confirmed(answer, key)) {
            Some(sequence) if sequence >= entry.sequence => {
                spool.confirm(key, sequence)?;
                done.confirmed += 1;
            }
            _ => keep(done, Failure::Failed("answered, but is no hub: it confirmed nothing".to_owned())),
        },
        Err(Failure::Refused(status)) if FOR_GOOD.contains(&status) => {
            spool.refuse(key, entry.sequence)?;
            done.refused += 1;
            done.status = Some(status);
        }
        Err(failure) => keep(done, failure),
    }
    Ok(())
}

fn keep(done: &mut Delivered, failure: Failure) {
    done.waiting += 1;
    done.failure = Some(failure);
}

/// The sequence that an answer confirms for a key.
fn confirmed(answer: &str, key: &str) -> Option<u64> {
    answer.strip_prefix(key)?.strip_prefix(' ')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::confirmed;

    #[test]
    fn a_confirmation_is_of_one_key() {
        assert_eq!(confirmed("key 12", "key"), Some(12));
        for answer in ["", "key", "key ", "key x", "keys 12", "12", "key 12 ", "other 12"] {
            assert_eq!(confirmed(answer, "key"), None, "{answer}");
        }
    }
}
