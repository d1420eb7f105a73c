//! The interface: docs/api.md describes it, `openapi.json` for programs.

use crate::comparisons::{Comparisons, Sides};
use crate::parameters::ViewParameters;
use crate::problem::{JSON, Problem};
use crate::sessions::{Known, Sessions, State};
use crate::timeline;
use crate::views::{Looked, Views};
use crate::what_if;
use apex_conventions::documents::{self, Envelope};
use apex_deflated::{deflated, inflate};
use apex_http::{Event, Next, Request, Response, StatusCode};
use apex_timeline::Timelines;
use apex_trace::META_FILE;
use apex_trace::meta::Meta;
use apex_untrusted::read;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The time between two looks at whether a page has to be read again.
const EACH: Duration = Duration::from_millis(100);

/// Characters of a command in the list.
const LONGEST_COMMAND: usize = 500;

/// The interface, as OpenAPI describes it.
static OPENAPI: LazyLock<Arc<str>> = LazyLock::new(|| inflate(deflated!("openapi.json")).into());

/// Sessions over HTTP.
pub struct Dashboard {
    sessions: Sessions,
    views: Arc<Views>,
    comparisons: Comparisons,
    timelines: Timelines,
    page: String,
    policy: String,
}

/// The list of sessions.
#[derive(Debug, Serialize)]
struct List {
    sessions: Vec<Listed>,
}

/// A session in the list.
#[derive(Debug, Serialize)]
struct Listed {
    id: String,
    name: String,
    folder: String,
    command: Option<String>,
    /// Nanoseconds since 1970.
    started_ns: Option<u64>,
    /// Nanoseconds since 1970; `null` while the program runs.
    ended_ns: Option<u64>,
}

/// The state of a session, as an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Condition {
    state: Option<State>,
    running: Vec<u32>,
    /// The problem.
    message: Option<String>,
}

impl Dashboard {
    /// Shows the sessions that `find` finds, which is asked again and again.
    pub fn new(find: impl Fn() -> Vec<PathBuf> + Send + Sync + 'static) -> Self {
        let (page, policy) = apex_page::served();
        Self {
            sessions: Sessions::new(find),
            views: Arc::default(),
            comparisons: Comparisons::default(),
            timelines: Timelines::new(apex_view::predict),
            page,
            policy,
        }
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request) -> Response {
        self.answered(request).unwrap_or_else(|problem| problem.response())
    }

    fn answered(&self, request: &Request) -> Result<Response, Problem> {
        Ok(match request.segments()[..] {
            [""] => Response::new(StatusCode::OK, "text/html; charset=utf-8", self.page.clone())
                .with_policy(&self.policy),
            // Browsers ask for it by themselves.
            ["favicon.ico"] => Response::new(StatusCode::NO_CONTENT, "image/x-icon", ""),
            ["api", "v1", "openapi.json"] => Response::shared(StatusCode::OK, JSON, OPENAPI.clone()),
            ["api", "v1", "sessions"] => self.list(),
            ["api", "v1", "compare"] => {
                let sides = Sides::of(request, &self.sessions)?;
                Response::shared(StatusCode::OK, JSON, self.comparisons.of(&sides)?)
            }
            ["api", "v1", "sessions", id, "document"] => {
                let (known, wanted) = (self.sessions.of(id)?, ViewParameters::of(request)?);
                Response::shared(StatusCode::OK, JSON, self.views.look(&known, &wanted)?.document)
            }
            ["api", "v1", "sessions", id, "events"] => {
                self.events(self.sessions.of(id)?, ViewParameters::of(request)?)
            }
            ["api", "v1", "sessions", id, "kernels", kernel, "what-if"] => {
                what_if::answer(&self.views, request, &self.sessions.of(id)?, kernel)?
            }
            ["api", "v1", "sessions", id, "kernels", kernel, "lines"] => {
                what_if::lines(&self.views, request, &self.sessions.of(id)?, kernel)?
            }
            ["api", "v1", "sessions", id, "timeline", ref what @ ..] => {
                let known = self.sessions.of(id)?;
                timeline::answer(&self.timelines, request, &known, what)?.ok_or_else(nothing)?
            }
            _ => return Err(nothing()),
        })
    }

    /// Whether a session may have to be read for the answer, which takes long: the page, the list
    /// of sessions and timelines, whose indexes are made in the background, do not wait for that.
    pub fn is_heavy(request: &Request) -> bool {
        matches!(
            request.segments()[..],
            ["api", "v1", "compare"] | ["api", "v1", "sessions", _, "document" | "kernels", ..]
        )
    }

    fn list(&self) -> Response {
        let sessions = self.sessions.list().iter().map(Listed::of).collect();
        let list = Envelope::of(documents::SESSIONS, List { sessions });
        Response::new(StatusCode::OK, JSON, serde_json::to_string(&list).expect("plain data"))
    }

    /// Tells how the session is, and its document, whenever they change.
    fn events(&self, known: Known, wanted: ViewParameters) -> Response {
        let views = Arc::clone(&self.views);
        let view = views.of(&known, &wanted);
        let mut told_condition: Option<Condition> = None;
        let mut told_document: Option<Arc<str>> = None;
        Response::events(EACH, move || {
            let Some(looked) = views.look_if_free(&view) else { return Next::Events(Vec::new()) };
            let mut events = Vec::new();
            let condition = Condition::of(&looked);
            if told_condition.as_ref() != Some(&condition) {
                let data = serde_json::to_string(&condition).expect("plain data");
                events.push(Event { name: "condition", data: data.into() });
                told_condition = Some(condition);
            }
            let document = looked.ok().map(|looked| looked.document);
            // (What was not read again is not compared: a document may have megabytes.)
            let is_told = |document: &Arc<str>| {
                told_document.as_ref().is_some_and(|told| Arc::ptr_eq(told, document) || told == document)
            };
            if let Some(document) = document.filter(|document| !is_told(document)) {
                events.push(Event { name: "document", data: Arc::clone(&document) });
                told_document = Some(document);
            }
            if events.is_empty() { Next::Later(views.pause(&view)) } else { Next::Events(events) }
        })
    }
}

fn nothing() -> Problem {
    Problem::Empty("there is nothing here: /api/v1/openapi.json says what there is".to_owned())
}

impl Listed {
    fn of(known: &Known) -> Self {
        let meta = meta(&known.dir);
        let command = |meta: &Meta| {
            let command: String = meta.command.join(" ").chars().take(LONGEST_COMMAND).collect();
            apex_untrusted::printable(&command).into_owned()
        };
        Self {
            id: known.id.clone(),
            name: known.name(),
            folder: apex_untrusted::shown(&known.dir),
            command: meta.as_ref().map(command),
            started_ns: meta.as_ref().map(|meta| meta.started_real_ns),
            ended_ns: meta.and_then(|meta| meta.ended_real_ns),
        }
    }
}

/// Reads the facts about a run. Problems of a session are reported when it is looked at.
fn meta(dir: &Path) -> Option<Meta> {
    let json = read::read(&dir.join(META_FILE), read::SESSION_JSON).ok()?;
    serde_json::from_slice(&json).ok()
}

impl Condition {
    fn of(looked: &Result<Looked, Problem>) -> Self {
        match looked {
            Ok(looked) => Self { state: Some(looked.state), running: looked.running.clone(), message: None },
            Err(problem) => {
                let state = match problem {
                    Problem::Unreadable(_) => Some(State::Unreadable),
                    Problem::Deleted(_) => Some(State::Deleted),
                    Problem::Empty(_) | Problem::Nonsense(_) => None,
                };
                Self { state, running: Vec::new(), message: Some(problem.message().to_owned()) }
            }
        }
    }
}
