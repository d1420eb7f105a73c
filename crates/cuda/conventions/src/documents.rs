//! The JSON documents and files that APEX writes: their names, versions and meanings, and the
//! members with which each of them begins ([`Envelope`]).
//!
//! A document is stated once: writers, readers and help texts take its name from here, and tests
//! compare the documentation with [`ALL`]. A version changes when a member is removed, renamed, or
//! means something else.

#![expect(missing_docs, reason = "each document states its meaning as data")]

use std::fmt;

/// A kind of document. Its text is its schema, such as `apex.report/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    name: &'static str,
    version: u32,
    /// The description of the document, in Markdown.
    pub meaning: &'static str,
    /// Whether each document names the version of APEX that wrote it.
    names_writer: bool,
}

const fn document(name: &'static str, version: u32, meaning: &'static str) -> Document {
    Document { name, version, meaning, names_writer: true }
}

impl Document {
    /// The same without the version of the writer.
    const fn without_writer(self) -> Self {
        Self { names_writer: false, ..self }
    }

    /// Refuses another schema than this one.
    ///
    /// # Errors
    /// Names both schemas.
    pub fn check(&self, schema: &str) -> Result<(), String> {
        match schema == self.to_string() {
            true => Ok(()),
            false => Err(format!("its format is {schema}, and this APEX reads {self}")),
        }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "apex.{}/{}", self.name, self.version)
    }
}

pub const REPORT: Document = document("report", 4, "`apex report --json`");
pub const PAGE: Document =
    document("page", 1, "the data of `apex report --html` and of the dashboard's page");
pub const ADVISE: Document = document("advise", 3, "`apex advise --json`");
pub const EXPORT: Document = document("export", 1, "`apex export --format json`");
pub const PREDICT: Document = document("predict", 1, "`apex predict --json`");
pub const PREDICTION: Document =
    document("prediction", 1, "a line of `apex predict --json -`").without_writer();
pub const PTX_CHECK: Document = document("ptx-check", 1, "`apex ptx check --json`");
pub const PTX_ACCESS: Document = document("ptx-access", 1, "`apex ptx access --json`");
pub const PTX_REQUESTS: Document = document("ptx-requests", 1, "`apex ptx requests --json`");
pub const DIFF: Document = document("diff", 2, "`apex diff --json`");
pub const CHECK: Document = document("check", 1, "`apex check --json`");
pub const FIGURES: Document = document("figures", 1, "`apex check --figures`");
pub const HISTORY: Document = document("history", 1, "`apex history --json`");
pub const HISTORY_RUN: Document =
    document("history.run", 1, "[a line of the file of `apex history`](history.md#the-file)")
        .without_writer();
pub const BUDGETS: Document =
    document("budgets", 1, "[the file of `apex check`](check.md#the-file)").without_writer();
pub const TOP: Document = document("top", 1, "`apex top --json`");
pub const CTL: Document = document("ctl", 1, "`apex ctl status --json`").without_writer();
pub const DOCTOR: Document = document("doctor", 1, "`apex doctor --json`");
pub const EXPLAIN: Document = document("explain", 1, "`apex explain --json`");
pub const COLLECT: Document = document("collect", 1, "`apex collect --json`").without_writer();
pub const SUITE: Document = document("suite", 1, "`apex collect --list --json`").without_writer();
pub const TRAIN: Document =
    document("train", 2, "`apex train --json`, and the models' `card.json`").without_writer();
pub const ALERT: Document = document("alert", 1, "[what `apex alerts` posts](alerts.md#the-document)");
pub const SESSIONS: Document = document("sessions", 1, "[the dashboard's sessions](api.md)");
pub const LINES: Document = document("lines", 1, "[the lines of a kernel](api.md#lines-of-a-kernel)");
pub const WHAT_IF: Document = document("what-if", 1, "[a kernel in another configuration](api.md#what-if)");
pub const TIMELINE: Document = document("timeline", 1, "[a session over time](api.md#timeline)");
pub const TIMELINE_SPAN: Document =
    document("timeline.span", 1, "[a part of it](api.md#what-lies-between-two-moments)");
pub const TIMELINE_LAUNCH: Document = document("timeline.launch", 1, "[one event of it](api.md#one-launch)");
pub const MACHINE: Document = document("machine", 1, "`machine.jsonl` of a session").without_writer();
pub const HOST_STACKS: Document =
    document("host-stacks", 1, "`host-stacks.jsonl` of a session").without_writer();
pub const MERGE: Document = document("merge", 1, "`apex merge --json`");
pub const LIST: Document = document("list", 1, "`apex list --json`");
pub const NOTES: Document =
    document("notes", 1, "`apex note --json`, and `notes.json` of a session").without_writer();
pub const PACK: Document = document("pack", 1, "`apex pack --json` and `apex unpack --json`");
pub const AGGREGATE: Document =
    document("aggregate", 1, "[what `apex run --to` sends to a hub](fleet.md#the-message)");
pub const HUB: Document = document("hub", 1, "[what `apex hub` answers](fleet.md#the-interface)");
pub const IMPORT: Document = document("import", 1, "`apex import --json`");
pub const TUNED: Document = document("tuned", 1, "`apex tune --json`, and the profile that it writes");
pub const FUSED: Document = document("fused", 1, "`apex fuse --json`");
pub const VERIFIED: Document = document("verified", 1, "`apex tune --verify --json`");
pub const SEARCHED: Document = document(
    "searched",
    1,
    "`apex tune --space --json`, and the last line of [`--ask`](tune.md#from-any-program)",
);

/// Every document.
pub const ALL: [Document; 42] = [
    REPORT,
    PAGE,
    ADVISE,
    EXPORT,
    PREDICT,
    PREDICTION,
    PTX_CHECK,
    PTX_ACCESS,
    PTX_REQUESTS,
    DIFF,
    CHECK,
    FIGURES,
    HISTORY,
    HISTORY_RUN,
    BUDGETS,
    TOP,
    CTL,
    DOCTOR,
    EXPLAIN,
    COLLECT,
    SUITE,
    TRAIN,
    ALERT,
    SESSIONS,
    LINES,
    WHAT_IF,
    TIMELINE,
    TIMELINE_SPAN,
    TIMELINE_LAUNCH,
    MACHINE,
    HOST_STACKS,
    MERGE,
    LIST,
    NOTES,
    PACK,
    AGGREGATE,
    HUB,
    TUNED,
    FUSED,
    VERIFIED,
    SEARCHED,
    IMPORT,
];

#[cfg(feature = "serde")]
mod envelope {
    use super::Document;
    use serde::{Serialize, Serializer};

    /// A document as it is written: its schema, in most documents the version of APEX, and then
    /// the members of its content.
    #[derive(Debug, Serialize)]
    pub struct Envelope<T> {
        schema: Document,
        #[serde(skip_serializing_if = "Option::is_none")]
        apex_version: Option<&'static str>,
        #[serde(flatten)]
        content: T,
    }

    impl<T: Serialize> Envelope<T> {
        /// A document of this kind.
        pub fn of(schema: Document, content: T) -> Self {
            let apex_version = schema.names_writer.then_some(env!("CARGO_PKG_VERSION"));
            Self { schema, apex_version, content }
        }
    }

    impl Serialize for Document {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_str(self)
        }
    }
}

#[cfg(feature = "serde")]
pub use envelope::Envelope;
