//! From a spool to a hub.
//!
//! [`deliver`] posts each message that waits to the hub and removes it once the hub has confirmed
//! that it has *committed* this sequence, or a later one, of this key: by a header of its answer
//! ([`CONFIRMATION`]), because any server may answer with status 200. A message whose confirmation
//! was lost is delivered again; the hub knows that it has it.
//!
//! A message is for one hub and one tenant: its label ([`label`]) has the address and the token
//! that its writer was given, as hashes. It never goes to another hub, nor to the same one with
//! another token. What was written without a token, or without any hub, goes to whoever is named
//! later.
//!
//! A message that a hub refuses for good (it is malformed, or of another version) leaves the spool
//! and is counted there. After a failure that may pass, [`deliver`] tries no further message: a hub
//! that does not answer would take the time limit for each.

use apex_push::{Failure, Target};
use apex_spool::Spool;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Name of the header by which a hub confirms: `KEY SEQUENCE`.
pub const CONFIRMATION: &str = "apex-committed";
/// Path to which messages are posted, behind the address of a hub.
pub const PATH: &str = "/api/v1/aggregates";
/// Stands in a label for a token that there is not.
const NO_TOKEN: &str = "-";
/// Media type of messages.
const JSON: &str = "application/json";
/// Statuses by which a hub says that it will never take this message.
const FOR_GOOD: [u16; 4] = [400, 409, 413, 422];

/// Outcome of delivering the messages of a spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Messages that the hub has confirmed.
    pub confirmed: u64,
    /// Messages that it refused for good, with the status of the last one.
    pub refused: u64,
    /// See [`Self::refused`].
    pub status: Option<u16>,
    /// Messages for this hub that still wait.
    pub waiting: u64,
    /// The reason why they wait.
    pub failure: Option<Failure>,
    /// Messages that wait for another hub, or for this one with another token.
    pub elsewhere: u64,
}

/// Destination of messages.
#[derive(Clone, Debug)]
pub struct Route {
    /// The hub to which they are posted.
    pub hub: Target,
    /// Other addresses whose messages it gets too, whatever their tokens.
    pub also_for: Vec<Target>,
}

impl From<Target> for Route {
    fn from(hub: Target) -> Self {
        Self { hub, also_for: Vec::new() }
    }
}

/// Messages that wait for the same hub and tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Addressee {
    /// The hub, `http://HOST:PORT`; `None` where none was named.
    pub hub: Option<String>,
    /// Part of the token's hash; `None` where there is no token.
    pub token: Option<String>,
}

/// The label of a message for a hub: its beginning for people, and both fingerprints.
pub fn label(hub: &Target) -> String {
    /// Characters of an address that people see.
    const SHOWN: usize = 200;
    let (address, token) = hub.fingerprints();
    let shown: String = hub.origin().chars().take(SHOWN).collect();
    format!("{shown} {address} {}", token.as_deref().unwrap_or(NO_TOKEN))
}

/// How many messages wait for whom. One that is damaged waits for nobody.
///
/// # Errors
/// Those of the system about the spool.
pub fn addressees(spool: &Spool) -> io::Result<BTreeMap<Addressee, u64>> {
    let mut found = BTreeMap::new();
    for label in spool.waiting()?.into_iter().filter_map(|waiting| waiting.label) {
        let of = match words(&label) {
            Some((shown, _, token)) => Addressee {
                hub: Some(shown.to_owned()),
                token: Some(token).filter(|token| *token != NO_TOKEN).map(str::to_owned),
            },
            None => Addressee { hub: None, token: None },
        };
        *found.entry(of).or_default() += 1;
    }
    Ok(found)
}

/// The parts of a label; `None` if it names no hub.
fn words(label: &str) -> Option<(&str, &str, &str)> {
    let mut words = label.split(' ');
    Some((words.next()?, words.next()?, words.next()?))
}

impl Route {
    /// Whether a message with this label goes this way.
    fn takes(&self, label: &str) -> bool {
        let Some((_, address, token)) = words(label) else { return true };
        let (own, own_token) = self.hub.fingerprints();
        let is_own = address == own && (token == NO_TOKEN || Some(token) == own_token.as_deref());
        is_own || self.also_for.iter().any(|other| other.fingerprints().0 == address)
    }
}

/// Delivers what waits for a hub, for at most this time.
///
/// # Errors
/// Those of the system about the spool.
pub fn deliver(spool: &Spool, route: &Route, longest: Duration) -> io::Result<Delivered> {
    let begun = Instant::now();
    let mut done = Delivered::default();
    // (A damaged one is read, so that it is set aside.)
    let is_here = |label: Option<&String>| label.is_none_or(|label| route.takes(label));
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        spool.waiting()?.into_iter().partition(|waiting| is_here(waiting.label.as_ref()));
    done.elsewhere = elsewhere.len() as u64;
    let keys: Vec<String> = here.into_iter().map(|waiting| waiting.key).collect();
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
        one(spool, &route.hub, key, left, &mut done)?;
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
    use super::{Route, Target, confirmed, label};

    fn hub(url: &str, token: &str) -> Target {
        let hub = Target::new(url, super::PATH).unwrap();
        if token.is_empty() { hub } else { hub.with_token(token).unwrap() }
    }

    #[test]
    fn a_message_is_for_one_hub_and_one_tenant() {
        let physics = label(&hub("http://hub:1", "physics"));
        assert!(physics.starts_with("http://hub:1 ") && !physics.contains("physics"), "{physics}");
        let takes = |url: &str, token: &str, label: &str| Route::from(hub(url, token)).takes(label);
        assert!(takes("http://hub:1", "physics", &physics));
        for (url, token) in [("http://hub:1", "chemistry"), ("http://hub:1", ""), ("http://hub:2", "physics")]
        {
            assert!(!takes(url, token, &physics), "{url} {token}");
        }
        // What has no tenant yet gets one, and what has no hub.
        let without = label(&hub("http://hub:1", ""));
        assert!(takes("http://hub:1", "physics", &without) && !takes("http://hub:2", "", &without));
        assert!(takes("http://hub:1", "", "") && takes("http://hub:2", "physics", ""));
        let moved = Route { hub: hub("http://new:1", "other"), also_for: vec![hub("http://hub:1", "")] };
        assert!(moved.takes(&physics) && moved.takes(&without));
        assert!(!moved.takes(&label(&hub("http://hub:2", ""))));
        let long = label(&hub(&format!("http://{}:1", "x".repeat(250)), "t"));
        assert!(long.len() <= apex_spool::MOST_LABEL, "{}", long.len());
    }

    #[test]
    fn a_confirmation_is_of_one_key() {
        assert_eq!(confirmed("key 12", "key"), Some(12));
        for answer in ["", "key", "key ", "key x", "keys 12", "12", "key 12 ", "other 12"] {
            assert_eq!(confirmed(answer, "key"), None, "{answer}");
        }
    }
}
