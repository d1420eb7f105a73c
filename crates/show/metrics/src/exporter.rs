//! All sessions that are exported.

use crate::format::Series;
use crate::metric::{BUILD_INFO, METRICS};
use crate::otlp::Origin;
use crate::session::SessionSums;
use apex_live::{Follower, Snapshot};
use std::collections::BTreeMap;
use std::time::Duration;

/// Sessions that have series. Of more, those that have ended lose theirs first.
pub const MOST_SESSIONS: usize = 64;

/// While a session runs, accounts end so long before the present: a call is recorded when it
/// returns.
const SETTLES: Duration = Duration::from_secs(2);

/// Adds up what snapshots say.
#[derive(Debug)]
pub struct Exporter {
    top: usize,
    sessions: BTreeMap<String, Exported>,
}

#[derive(Debug, Default)]
struct Exported {
    sums: SessionSums,
    /// The end of the accounts that were taken, in nanoseconds since the session's start.
    accounted: u64,
}

impl Exporter {
    /// Gives at most `top` kernels of each session a series of their own.
    pub fn new(top: usize) -> Self {
        Self { top, sessions: BTreeMap::new() }
    }

    /// Looks at a session, known by this name, and takes what is new; says whether it has ended.
    /// What was recorded before the first look is part of the accounts only where a single look
    /// could read all of it.
    ///
    /// # Errors
    /// Those of the follower. What was taken before stays.
    pub fn look(&mut self, name: &str, follower: &mut Follower) -> Result<bool, apex_trace::Error> {
        let accounted = self.sessions.get(name).map_or(0, |session| session.accounted);
        let snapshot = follower.look_since(accounted, SETTLES)?;
        self.take(name, &snapshot);
        Ok(snapshot.running.is_empty())
    }

    fn take(&mut self, name: &str, snapshot: &Snapshot) {
        let session = self.sessions.entry(name.to_owned()).or_default();
        session.sums.count(snapshot, self.top);
        if snapshot.since_start.unread_bytes == 0 || session.accounted > 0 {
            session.sums.account(snapshot);
        }
        session.accounted = snapshot.window.end;
        while self.sessions.len() > MOST_SESSIONS {
            let ended = self.sessions.iter().find(|(_, session)| session.sums.running == 0);
            let Some(gone) = ended.or(self.sessions.iter().next()).map(|(name, _)| name.clone()) else {
                return;
            };
            self.sessions.remove(&gone);
        }
    }

    /// Bytes of records that are not counted yet: further looks go on with them.
    pub fn unread_bytes(&self) -> u64 {
        self.sessions.values().map(|session| session.sums.unread_bytes).sum()
    }

    /// All metrics, in Prometheus' text format.
    pub fn text(&self, version: &str) -> String {
        self.series(version).text(METRICS)
    }

    /// All metrics, as a request of OpenTelemetry's protocol.
    pub fn otlp(&self, origin: &Origin<'_>) -> Vec<u8> {
        self.series(origin.version).otlp(origin)
    }

    fn series(&self, version: &str) -> Series {
        let mut series = Series::default();
        series.add(&BUILD_INFO, &[("version", version)], 1.0);
        for (name, session) in &self.sessions {
            series.of_session(session.sums.began_ns);
            session.sums.write(name, &mut series);
        }
        series
    }
}
