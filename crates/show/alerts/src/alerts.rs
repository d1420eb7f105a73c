//! All watched sessions, and the notices about them.

use crate::Moment;
use crate::conditions::{Finding, Memory, Next, Observed, Reference, View, observe};
use crate::rule::{Limits, Rule};
use crate::subject::Subject;
use crate::tracker::{Change, LOOKS, Tracker, Verdict};
use apex_profile::Figure;
use apex_trace::meta::Meta;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sessions that are watched at a time; others are not, until some of these have ended.
pub const MOST_SESSIONS: usize = 64;

/// Identity of an alert.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    session: String,
    rule: Rule,
    subject: Subject,
}

/// Something that is wrong with a session.
#[derive(Clone, Debug)]
pub struct Alert {
    /// The rule that was broken.
    pub rule: Rule,
    /// The session, as commands take it.
    pub session: String,
    /// The machine on which it is recorded; empty where that is not known.
    pub host: String,
    /// The recorded command; empty if it is unknown.
    pub command: String,
    /// The subject.
    pub subject: Subject,
    /// The first look at which it was so.
    pub since: Moment,
    /// A clause that says what is wrong, with its evidence, as of the last notice.
    pub what: String,
    /// The value that was judged.
    pub value: Figure,
    /// The figure that the value was compared with.
    pub reference: Option<Figure>,
    /// The command that goes on from here.
    pub next: String,
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is new.
    Fired,
    /// It still holds.
    Repeated,
    /// It is over.
    Resolved,
    /// The session has ended.
    Ended,
}

/// A notice about an alert.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The alert's new state.
    pub state: State,
    /// The time of the change.
    pub at: Moment,
    /// The alert.
    pub alert: Alert,
}

/// Watches sessions.
#[derive(Debug)]
pub struct Alerts {
    limits: Limits,
    tracker: Tracker<Key>,
    sessions: BTreeMap<String, Memory>,
    firing: BTreeMap<Key, Alert>,
}

impl Alerts {
    /// Judges by these limits, and repeats what still holds after this time.
    pub fn new(limits: Limits, repeat: Duration) -> Self {
        let repeat_ns = u64::try_from(repeat.as_nanos()).unwrap_or(u64::MAX);
        Self { limits, tracker: Tracker::new(repeat_ns), sessions: BTreeMap::new(), firing: BTreeMap::new() }
    }

    /// Takes a look at a session, known by this name, beside a good run.
    pub fn look(
        &mut self,
        session: &str,
        meta: Option<&Meta>,
        view: &View<'_>,
        reference: Option<&Reference>,
        at: Moment,
    ) -> Vec<Notice> {
        if !self.sessions.contains_key(session) && self.sessions.len() >= MOST_SESSIONS {
            return Vec::new();
        }
        let memory = self.sessions.entry(session.to_owned()).or_default();
        let observed = observe(view, reference, &self.limits, memory);
        let key_of = |observed: &Observed| Key {
            session: session.to_owned(),
            rule: observed.rule,
            subject: observed.subject.clone(),
        };
        let keys: Vec<Key> = observed.iter().map(key_of).collect();
        let missing = self.tracker.keys(|key| key.session == session && !keys.contains(key));
        let mut notices = Vec::new();
        for (key, observed) in keys.into_iter().zip(observed) {
            let looks = if observed.rule == Rule::LostRecords { 1 } else { LOOKS };
            let change = self.tracker.look(at, &key, observed.verdict, looks);
            if let (Some(Change::Fired(since) | Change::Repeated(since)), Some(finding)) =
                (change, observed.finding)
            {
                let began_ns = view.window.end.saturating_sub(at.since(since));
                self.firing.insert(key.clone(), alert(&key, meta, finding, since, began_ns));
            }
            notices.extend(self.notice(&key, change, at));
        }
        for key in missing {
            let change = self.tracker.look(at, &key, Verdict::Over, LOOKS);
            notices.extend(self.notice(&key, change, at));
        }
        notices
    }

    /// Takes that a session has ended, or cannot be read any more: what fires ends with it.
    pub fn end(&mut self, session: &str, at: Moment) -> Vec<Notice> {
        self.sessions.remove(session);
        let keys = self.tracker.keys(|key| key.session == session);
        let mut ended = Vec::new();
        for key in keys {
            self.tracker.remove(&key);
            ended.extend(self.firing.remove(&key).map(|alert| Notice { state: State::Ended, at, alert }));
        }
        ended
    }

    /// Everything that is wrong now.
    pub fn firing(&self) -> impl Iterator<Item = &Alert> {
        self.firing.values()
    }

    fn notice(&mut self, key: &Key, change: Option<Change>, at: Moment) -> Option<Notice> {
        let (state, alert) = match change? {
            Change::Fired(_) => (State::Fired, self.firing.get(key)?.clone()),
            Change::Repeated(_) => (State::Repeated, self.firing.get(key)?.clone()),
            Change::Resolved(_) => (State::Resolved, self.firing.remove(key)?),
        };
        Some(Notice { state, at, alert })
    }
}

/// Builds an alert that began at `since`, `began_ns` nanoseconds after the session's start.
fn alert(key: &Key, meta: Option<&Meta>, finding: Finding, since: Moment, began_ns: u64) -> Alert {
    let Finding { what, value, reference, next } = finding;
    Alert {
        rule: key.rule,
        host: meta.map_or_else(String::new, |meta| meta.host.name.clone()),
        command: meta.map_or_else(String::new, |meta| meta.command.join(" ")),
        subject: key.subject.clone(),
        since,
        what,
        value,
        reference,
        next: next.command(&key.session, began_ns),
        session: key.session.clone(),
    }
}

impl Next {
    /// As a shell takes it.
    fn command(&self, session: &str, began_ns: u64) -> String {
        let session = quoted(session);
        match self {
            Self::Diff(before) => format!("apex diff {} {session}", quoted(before)),
            Self::Advise => format!("apex advise --window {}s.. {session}", began_ns / 1_000_000_000),
            Self::Report => format!("apex report {session}"),
            Self::Rank(rank) => format!("apex report --rank {rank} {session}"),
            Self::LimitSize => {
                "free space there; record the next run with apex run --max-size 512M".to_owned()
            }
        }
    }
}

/// A word of a command line, quoted where a shell would change it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./+:=@%,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
