//! A session as a page to look at.
//!
//! * [`Document`] is what the page shows, as data: the content of the JSON document
//!   [`PAGE`](documents::PAGE), which docs/json.md describes. Its size is bounded, however long the
//!   session is ([`Limits`]): long lists are cut, and what was cut is counted. Its types are
//!   written as TypeScript by a test (`tests/typescript.rs`).
//! * [`html`] is the document in the file that shows it: one page that needs nothing else.
//! * [`what_if`] and [`KernelLines`] are what the page asks its server about a kernel.
//! * [`served`] is the same page without a document: it asks its server for [`json`].
//!
//! The page is written in TypeScript, in `web/`. What Vite makes of it is checked in
//! (`built/page.html`), so that a build needs no Node; a test makes it again and compares.
//!
//! Invariants:
//!
//! 1. Nothing here judges: figures are the profile's, findings are the advice's.
//! 2. No text of the session is markup. It is JSON in the file, without `<`, and text nodes on the
//!    page; what a reader could not see is escaped ([`apex_untrusted::printable`]).
//! 3. The page asks no host for anything, or only the server that it came from: its content
//!    security policy says so.

mod document;

use apex_conventions::documents;
use apex_deflated::{deflated, inflate};
use apex_predict_session::explore::Explored;
pub use document::{Document, KernelLines, Limits, Source};
use std::sync::LazyLock;

/// Bytes that a page has at most.
pub const MOST_BYTES: usize = 3_000_000;

/// The page, as Vite has built it, with a place for the document.
static PAGE: LazyLock<String> = LazyLock::new(|| inflate(deflated!("page.html")));

/// Where the document goes.
const PLACE: &str = "<script id=\"apex-document\" type=\"application/json\"></script>";

/// The page of a session: its document in the file that shows it, of at most [`MOST_BYTES`].
pub fn html(source: &Source<'_>) -> String {
    bounded(source, Limits::default(), |json| {
        // `<` stands in strings alone, where JSON has an escape for it: nothing can end the
        // element.
        let json = json.replace('<', "\\u003c");
        let (before, after) = PAGE.split_once(PLACE).expect("the built page has a place for the document");
        let (open, close) = PLACE.split_at(PLACE.len() - "</script>".len());
        [before, open, &json, close, after].concat()
    })
}

/// The document of a session as JSON, of at most [`MOST_BYTES`], for a reader who can ask a server
/// for more.
pub fn json(source: &Source<'_>) -> String {
    bounded(source, Limits::served(), |json| json)
}

/// Returns the answer about the kernel of an identifier in another configuration, as JSON.
pub fn what_if(kernel: &str, explored: &Explored) -> String {
    document::json(documents::WHAT_IF, &document::Answer::of(kernel, explored))
}

/// The page without a document, and its content security policy: it requests documents
/// (docs/api.md) only from its own server.
pub fn served() -> (String, String) {
    const MARK: &str = "http-equiv=\"Content-Security-Policy\" content=\"";
    let (before, rest) = PAGE.split_once(MARK).expect("the built page has a policy");
    let (policy, after) = rest.split_once('"').expect("an attribute ends");
    let policy = format!("{policy}; connect-src 'self'");
    ([before, MARK, &policy, "\"", after].concat(), policy)
}

/// What is written of a document; lists are shortened until it has at most [`MOST_BYTES`].
fn bounded(source: &Source<'_>, mut limits: Limits, written: impl Fn(String) -> String) -> String {
    loop {
        let json = document::json(documents::PAGE, &Document::of(source, &limits));
        let written = written(json);
        if written.len() <= MOST_BYTES || limits.is_least() {
            return written;
        }
        limits = limits.halved();
    }
}
