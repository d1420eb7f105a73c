//! The hub's own state: what became of messages.

use crate::health::{Health, Outcome};
use crate::html;
use crate::store::{Error, Store};
use serde::Serialize;

/// The hub's own state.
#[derive(Debug, Serialize)]
pub struct State {
    started_ns: u64,
    /// Jobs that are stored.
    jobs: u64,
    /// Recordings that ever came.
    recordings: u64,
    /// Bytes of the database.
    database_bytes: u64,
    /// Messages and requests since the hub started.
    messages: Vec<Counted>,
}

/// An outcome.
#[derive(Debug, Serialize)]
struct Counted {
    outcome: &'static str,
    count: u64,
    meaning: &'static str,
}

impl State {
    /// The state now.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find(store: &Store, health: &Health, started_ns: u64) -> Result<Self, Error> {
        let (jobs, recordings, database_bytes) = store.size()?;
        let counted =
            |(of, count): (Outcome, u64)| Counted { outcome: of.name(), count, meaning: of.meaning() };
        let messages = health.counts().into_iter().map(counted).collect();
        Ok(Self { started_ns, jobs, recordings, database_bytes, messages })
    }

    /// The page.
    pub fn body(&self) -> String {
        let row = |of: &Counted| {
            let is_bad = of.count > 0 && (of.outcome.starts_with("refused") || of.outcome == "failed");
            let count = html::count(of.count);
            let count = if is_bad { format!("<span class=\"bad\">{count}</span>") } else { count };
            vec![format!("<code>{}</code>", of.outcome), count, of.meaning.to_owned()]
        };
        let rows: Vec<_> = self.messages.iter().map(row).collect();
        let figures = [
            ("started (UTC)", html::moment(self.started_ns)),
            ("jobs", html::count(self.jobs)),
            ("recordings", html::count(self.recordings)),
            ("database", format!("{:.1} MB", self.database_bytes as f64 / 1e6)),
        ];
        format!(
            "<h1>The hub</h1>\n{}<h2>Messages and requests since the hub started</h2>\n{}",
            html::figures(&figures),
            html::table(&["outcome", "count#", "meaning"], &rows)
        )
    }
}
