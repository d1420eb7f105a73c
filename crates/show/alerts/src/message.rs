//! Notices as others read them: a person at a terminal, a webhook, Prometheus' Alertmanager.

use crate::alerts::{Alert, Notice, State};
use crate::moment::rfc3339;
use crate::subject::Subject;
use apex_conventions::documents::{self, Envelope};
use apex_profile::Figure;
use apex_profile::units;
use apex_untrusted::printable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Media type of what is made here but lines.
pub const MEDIA_TYPE: &str = "application/json";

/// The path of Alertmanager's interface.
pub const ALERTMANAGER_PATH: &str = "/api/v2/alerts";

/// A notice in one line, printable: what, of which session, since when.
pub fn line(notice: &Notice) -> String {
    let Notice { state, at, alert } = notice;
    let since = at.since(alert.since);
    let lasted = units::time(since as f64);
    // A condition that needs no time to be reported may have just begun.
    let lasting = if since == 0 { String::new() } else { format!("; for {lasted}") };
    let (name, what) = (alert.rule.name(), &alert.what);
    let text = match state {
        State::Fired => format!("alert {name}: {}: {what}{lasting}", alert.session),
        State::Repeated => format!("still {name}: {}: {what}{lasting}", alert.session),
        State::Resolved => format!("over {name}: {}, after {lasted}; it was: {what}", alert.session),
        State::Ended => {
            format!("over {name}: {} has ended, {lasted} after it began; it was: {what}", alert.session)
        }
    };
    printable(&text).into_owned()
}

/// A notice as JSON.
#[derive(Serialize)]
struct Document<'a> {
    /// Text for a chat: the line, and the command.
    text: String,
    state: &'static str,
    /// The reason for the message: `new`, `repeated`, `resolved`, `session_ended`.
    reason: &'static str,
    alert: &'static str,
    session: &'a str,
    host: &'a str,
    command: &'a str,
    device_uuid: Option<&'a str>,
    rank: Option<usize>,
    since: String,
    at: String,
    what: &'a str,
    value: Figure,
    reference: Option<Figure>,
    next: &'a str,
}

impl Alert {
    fn device_uuid(&self) -> Option<&str> {
        match &self.subject {
            Subject::Device(uuid) => Some(uuid),
            Subject::Session | Subject::Rank(_) => None,
        }
    }

    fn rank(&self) -> Option<usize> {
        match self.subject {
            Subject::Rank(rank) => Some(rank),
            Subject::Session | Subject::Device(_) => None,
        }
    }
}

/// A notice as a document.
pub fn document(notice: &Notice) -> Vec<u8> {
    let Notice { state, at, alert } = notice;
    let (firing, reason) = match state {
        State::Fired => ("firing", "new"),
        State::Repeated => ("firing", "repeated"),
        State::Resolved => ("resolved", "resolved"),
        State::Ended => ("resolved", "session_ended"),
    };
    let document = Document {
        text: format!("APEX {}; next: {}", line(notice), printable(&alert.next)),
        state: firing,
        reason,
        alert: alert.rule.name(),
        session: &alert.session,
        host: &alert.host,
        command: &alert.command,
        device_uuid: alert.device_uuid(),
        rank: alert.rank(),
        since: rfc3339(alert.since.real_ns),
        at: rfc3339(at.real_ns),
        what: &alert.what,
        value: alert.value,
        reference: alert.reference,
        next: &alert.next,
    };
    serde_json::to_vec(&Envelope::of(documents::ALERT, document)).expect("strings and numbers are JSON")
}

/// An alert of Alertmanager's second interface.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Posted<'a> {
    labels: BTreeMap<&'static str, String>,
    annotations: BTreeMap<&'static str, &'a str>,
    starts_at: String,
    ends_at: String,
}

impl<'a> Posted<'a> {
    fn new(alert: &'a Alert, ends_ns: u64) -> Self {
        let mut labels = BTreeMap::from([
            ("alertname", alert.rule.alert_name().to_owned()),
            ("severity", "warning".to_owned()),
            ("session", alert.session.clone()),
        ]);
        // Alertmanager takes an empty label for none.
        labels.extend((!alert.host.is_empty()).then(|| ("instance", alert.host.clone())));
        labels.extend(alert.device_uuid().map(|uuid| ("UUID", uuid.to_owned())));
        labels.extend(alert.rank().map(|rank| ("rank", rank.to_string())));
        Self {
            labels,
            annotations: BTreeMap::from([
                ("summary", alert.what.as_str()),
                ("description", alert.next.as_str()),
                ("command", alert.command.as_str()),
            ]),
            starts_at: rfc3339(alert.since.real_ns),
            ends_at: rfc3339(ends_ns),
        }
    }
}

/// Returns the body of a request to Alertmanager: the firing alerts, which it resolves after
/// `holds` unless they are sent again, and the alerts that the notices resolve. `None` if there are
/// neither.
pub fn alertmanager<'a>(
    firing: impl Iterator<Item = &'a Alert>,
    notices: &'a [Notice],
    now_ns: u64,
    holds: Duration,
) -> Option<Vec<u8>> {
    let until = now_ns.saturating_add(u64::try_from(holds.as_nanos()).unwrap_or(u64::MAX));
    let over = notices.iter().filter(|notice| matches!(notice.state, State::Resolved | State::Ended));
    let over = over.map(|notice| Posted::new(&notice.alert, notice.at.real_ns));
    let posted: Vec<_> = firing.map(|alert| Posted::new(alert, until)).chain(over).collect();
    (!posted.is_empty()).then(|| serde_json::to_vec(&posted).expect("strings are JSON"))
}
