//! A session as a page to look at.
//!
//! * [`Document`] is what the page shows, as data: one JSON document with a schema, [`SCHEMA`],
//!   which docs/json.md describes. Its size is bounded, however long the session is ([`Limits`]):
//!   long lists are cut, and what was cut is counted.
//! * [`html`] is the document in the file that shows it: one page that needs nothing else.
//!
//! The page is written in TypeScript, in `web/`. What Vite makes of it is checked in
//! (`built/page.html`), so that a build needs no Node; a test makes it again and compares.
//!
//! Invariants:
//!
//! 1. Nothing here judges: figures are the profile's, findings are the advice's.
//! 2. No text of the session is markup. It is JSON in the file, without `<`, and text nodes on the
//!    page; what a reader could not see is escaped ([`apex_untrusted::printable`]).
//! 3. The page asks no host for anything: its content security policy says so.

mod document;

pub use document::{Document, Limits, SCHEMA, Source};

/// Bytes that a page has at most.
pub const MOST_BYTES: usize = 3_000_000;

/// The page, as Vite has built it, with a place for the document.
const PAGE: &str = include_str!("../built/page.html");

/// Where the document goes.
const PLACE: &str = "<script id=\"apex-document\" type=\"application/json\"></script>";

/// The page of a session: its document in the file that shows it. Lists are shortened until it has
/// at most [`MOST_BYTES`].
pub fn html(source: &Source<'_>) -> String {
    let mut limits = Limits::default();
    loop {
        let page = with(&Document::of(source, &limits));
        if page.len() <= MOST_BYTES || limits.is_least() {
            return page;
        }
        limits = limits.halved();
    }
}

/// The page with this document in it.
fn with(document: &Document<'_>) -> String {
    // `<` stands in strings alone, where JSON has an escape for it: nothing can end the element.
    let json = serde_json::to_string(document).expect("a document is plain data").replace('<', "\\u003c");
    let (before, after) = PAGE.split_once(PLACE).expect("the built page has a place for the document");
    let (open, close) = PLACE.split_at(PLACE.len() - "</script>".len());
    [before, open, &json, close, after].concat()
}
