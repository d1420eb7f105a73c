//! Alerts of a hub: jobs that waste GPUs now, and jobs that became slower.
//!
//! [`Store::alerts`] judges the newest figures; it keeps nothing, and reads no clock. Whoever calls
//! it again and again decides when a condition has held for long enough. An alert is written as a
//! line, as a document, and as Prometheus' Alertmanager takes it.

use crate::document::json;
use crate::html;
use crate::pages::changes::{Changed, Changes};
use crate::pages::{DAY_NS, SILENT_NS, losses};
use crate::store::{Error, JobRow, Store};
use apex_untrusted::printable;
use serde::Serialize;
use std::collections::BTreeMap;

/// GPU time below which nothing is said of what a job lost, or did not use: ten minutes.
const LEAST_US: u64 = 600_000_000;
/// A silent job is told of for so long.
const FORGOTTEN_NS: u64 = 7 * DAY_NS;
/// Runs of these days are compared …
const COMPARED_DAYS: u64 = 30;
/// … and a change is told of if it is one of these.
const CHANGED_NS: u64 = 7 * DAY_NS;
/// Below this part of its limit, a share is over.
const MARGIN: f64 = 0.8;
/// Running jobs that are judged, the newest.
const MOST_JOBS: usize = 1000;

/// What is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A running job loses this share of its GPU time.
    Lost,
    /// A running job was given GPUs that it does not use: this share of its GPU time.
    Unused,
    /// A job has not ended, and nothing is heard of it.
    Silent,
    /// Runs of a job take longer than before.
    Slower,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lost, Self::Unused, Self::Silent, Self::Slower];

    /// Its name, as options and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Unused => "unused",
            Self::Silent => "silent",
            Self::Slower => "slower",
        }
    }

    /// Its name as alerts of Prometheus are named.
    fn alert_name(self) -> &'static str {
        match self {
            Self::Lost => "ApexGpuTimeLost",
            Self::Unused => "ApexGpusUnused",
            Self::Silent => "ApexJobSilent",
            Self::Slower => "ApexJobSlower",
        }
    }

    /// Its usual limit, a share from 0 to 1; `None` if it has none.
    pub fn usual_limit(self) -> Option<f64> {
        match self {
            Self::Lost => Some(0.5),
            Self::Unused => Some(0.1),
            Self::Silent | Self::Slower => None,
        }
    }
}

/// Limits of the rules that are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions(BTreeMap<Rule, f64>);

impl Default for Conditions {
    /// All rules, with their usual limits.
    fn default() -> Self {
        Self(Rule::ALL.map(|rule| (rule, rule.usual_limit().unwrap_or(0.0))).into())
    }
}

impl Conditions {
    /// Sets what a text says: `lost=80%`, `silent=off`.
    ///
    /// # Errors
    /// Says how to write it.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let names = || Rule::ALL.map(Rule::name).join(", ");
        let explain =
            || format!("{}: write NAME=PERCENT or NAME=off; names are {}", printable(text), names());
        let (name, value) = text.split_once('=').ok_or_else(explain)?;
        let rule = Rule::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(explain)?;
        if value == "off" {
            self.0.remove(&rule);
            return Ok(());
        }
        let percent = value.trim_end_matches('%').parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
        match (percent, rule.usual_limit()) {
            (Some(percent), Some(_)) => {
                self.0.insert(rule, percent / 100.0);
                Ok(())
            }
            (_, None) => Err(format!("`{name}` has no limit: write {name}=off")),
            (None, _) => Err(explain()),
        }
    }

    fn limit(&self, rule: Rule) -> Option<f64> {
        self.0.get(&rule).copied()
    }
}

/// A condition of a job that holds, or lies between holding and being over.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// What is judged.
    pub rule: Rule,
    /// Identity, as long as it lasts.
    pub key: String,
    /// Whether it holds; otherwise a firing one goes on.
    pub holds: bool,
    job: i64,
    name: String,
    owner: String,
    command: String,
    what: String,
}

/// Change of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It fires.
    New,
    /// It still does.
    Repeated,
    /// It is over.
    Resolved,
}

/// An alert as a document.
#[derive(Serialize)]
struct Document<'a> {
    text: String,
    state: &'static str,
    reason: &'static str,
    alert: &'static str,
    job: &'a str,
    /// The job's number in the hub.
    id: i64,
    owner: &'a str,
    command: &'a str,
    since: String,
    at: String,
    what: &'a str,
    next: String,
}

impl Alert {
    fn of(rule: Rule, job: &JobRow, holds: bool, what: String) -> Self {
        Self {
            rule,
            key: format!("{} {}", rule.name(), job.id),
            holds,
            job: job.id,
            name: job.job.clone(),
            owner: job.owner.clone(),
            command: job.command.clone(),
            what,
        }
    }

    /// In one line, printable.
    pub fn line(&self, news: News) -> String {
        let word = match news {
            News::New => "alert",
            News::Repeated => "still",
            News::Resolved => "over",
        };
        let text = format!("{word} {}: {} of {}: {}", self.rule.name(), self.name, self.owner, self.what);
        printable(&text).into_owned()
    }

    /// Where to go on: the page of its job, at the address of the hub if that is known.
    pub fn next(&self, hub: Option<&str>) -> String {
        format!("{}/jobs/{}", hub.unwrap_or_default().trim_end_matches('/'), self.job)
    }

    /// As a document.
    pub fn document(&self, news: News, since_ns: u64, now_ns: u64, hub: Option<&str>) -> Vec<u8> {
        let next = self.next(hub);
        let (state, reason) = match news {
            News::New => ("firing", "new"),
            News::Repeated => ("firing", "repeated"),
            News::Resolved => ("resolved", "resolved"),
        };
        let document = Document {
            text: format!("APEX {}; next: {next}", self.line(news)),
            state,
            reason,
            alert: self.rule.name(),
            job: &self.name,
            id: self.job,
            owner: &self.owner,
            command: &self.command,
            since: rfc3339(since_ns),
            at: rfc3339(now_ns),
            what: &self.what,
            next,
        };
        json(&document).into_bytes()
    }
}

/// A moment as RFC 3339 has it, to the second.
fn rfc3339(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", html::date(seconds / 86_400))
}

/// An alert of Alertmanager's second interface.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Posted<'a> {
    labels: BTreeMap<&'static str, &'a str>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
}

/// A request to Alertmanager: alerts with their beginnings and ends; `None` without any.
pub fn alertmanager<'a>(
    alerts: impl Iterator<Item = (&'a Alert, u64, u64)>,
    hub: Option<&str>,
) -> Option<Vec<u8>> {
    let of = |(alert, since_ns, until_ns): (&'a Alert, u64, u64)| Posted {
        labels: BTreeMap::from([
            ("alertname", alert.rule.alert_name()),
            ("severity", "warning"),
            ("job", alert.name.as_str()),
            ("owner", alert.owner.as_str()),
        ]),
        annotations: BTreeMap::from([
            ("summary", alert.what.clone()),
            ("description", alert.next(hub)),
            ("command", alert.command.clone()),
        ]),
        starts_at: rfc3339(since_ns),
        ends_at: rfc3339(until_ns),
    };
    let posted: Vec<_> = alerts.map(of).collect();
    (!posted.is_empty()).then(|| serde_json::to_vec(&posted).expect("plain data"))
}

impl Store {
    /// The alerts of a tenant now.
    ///
    /// # Errors
    /// Those of the database.
    pub fn alerts(&self, tenant: &str, wanted: &Conditions, now_ns: u64) -> Result<Vec<Alert>, Error> {
        let running = self.running(tenant, now_ns.saturating_sub(FORGOTTEN_NS), MOST_JOBS)?;
        let of_job = |job| of_job(job, wanted, now_ns);
        let mut alerts: Vec<Alert> = running.iter().flat_map(of_job).collect();
        if wanted.limit(Rule::Slower).is_some() {
            let changes = Changes::find(self, tenant, COMPARED_DAYS, now_ns)?;
            let is_new = |change: &&Changed| change.after.started_ns >= now_ns.saturating_sub(CHANGED_NS);
            alerts.extend(changes.slower().filter(is_new).map(slower));
        }
        Ok(alerts)
    }
}

/// Alerts about a running job.
fn of_job(job: &JobRow, wanted: &Conditions, now_ns: u64) -> Vec<Alert> {
    let silent_ns = now_ns.saturating_sub(job.seen_ns);
    if silent_ns > SILENT_NS {
        let what =
            format!("nothing is heard of it for {}, and it has not ended", html::duration(silent_ns as f64));
        let silent = Alert::of(Rule::Silent, job, true, what);
        return wanted.limit(Rule::Silent).map(|_| silent).into_iter().collect();
    }
    let times = &job.times;
    let (held, unused) = (times.held_us(), times.unused_us);
    let given = held.saturating_add(unused);
    let judged = |rule: Rule, us: u64, whole: u64, what: &dyn Fn(String, String) -> String| {
        let (limit, share) = (wanted.limit(rule)?, us as f64 / whole.max(1) as f64);
        let said = || what(html::percent(share), html::hours(whole));
        (whole >= LEAST_US && share > MARGIN * limit).then(|| Alert::of(rule, job, share > limit, said()))
    };
    let lost = judged(Rule::Lost, times.lost_us(), held, &|share, whole| {
        let to = losses(&times.times);
        format!("{share} of {whole} of GPU time is lost{}{to}", if to.is_empty() { "" } else { ", to: " })
    });
    let never_used = judged(Rule::Unused, unused, given, &|share, whole| {
        format!("{share} of {whole} of GPU time is of GPUs that it was given and has never used")
    });
    lost.into_iter().chain(never_used).collect()
}

/// The alert about a job whose runs became slower.
fn slower(change: &Changed) -> Alert {
    let percent = |factor: f64| format!("{:+.1}%", 100.0 * (factor - 1.0));
    let what = format!(
        "a {} takes {} [{}, {}] since {} ({} runs before, {} after)",
        change.of,
        percent(change.factor),
        percent(change.low),
        percent(change.high),
        html::moment(change.after.started_ns),
        change.runs_before,
        change.runs_after,
    );
    // The first run after it may be another one when more runs are known.
    let key = format!("{} {}", Rule::Slower.name(), change.series);
    Alert { key, ..Alert::of(Rule::Slower, &change.after, true, what) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_set_by_name() {
        let mut wanted = Conditions::default();
        wanted.set("lost=80%").unwrap();
        wanted.set("silent=off").unwrap();
        assert_eq!((wanted.limit(Rule::Lost), wanted.limit(Rule::Silent)), (Some(0.8), None));
        assert_eq!(wanted.limit(Rule::Unused), Some(0.1));
        for wrong in ["", "lost", "lost=", "lost=101", "lost=-1", "lose=1", "slower=5%"] {
            assert!(wanted.set(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_those_of_rfc_3339() {
        assert_eq!(rfc3339(951_782_399_000_000_000), "2000-02-28T23:59:59Z");
    }
}
