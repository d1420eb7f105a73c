//! The interface: docs/fleet.md describes it, `openapi.json` for programs.

use crate::document::json;
use crate::health::{Health, Outcome};
use crate::html::{self, STYLE};
use crate::pages::{changes, job, jobs, kernels, owners, state};
use crate::parameters::{Problem, before, number, only, text};
use crate::store::{Error, LOCAL, Store, Wanted};
use crate::writer::{Writer, now_ns};
use crate::{exposition, report};
use apex_aggregate::{Aggregate, MOST_BYTES};
use apex_deflated::{deflated, inflate};
use apex_http::{Bearers, Limits, Options, Posts, Refused, Request, Response, StatusCode};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
/// Content that the pages may load: their style, and no script.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'";
/// The interface, as OpenAPI describes it.
static OPENAPI: LazyLock<Arc<str>> = LazyLock::new(|| inflate(deflated!("openapi.json")).into());
/// Jobs of a page, usually and at most.
const JOBS: (u64, u64) = (50, 500);

/// Options of a hub's operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Price of an hour of a device, in the operator's currency.
    pub price_per_gpu_hour: Option<f64>,
    /// Days for which messages are kept after the last one of their recording. Sums are kept for
    /// good.
    pub kept_days: u64,
}

impl Default for Settings {
    /// No price, and 90 days.
    fn default() -> Self {
        Self { price_per_gpu_hour: None, kept_days: 90 }
    }
}

/// A hub.
#[derive(Debug)]
pub struct Hub {
    store: Store,
    writer: Writer,
    health: Arc<Health>,
    settings: Settings,
    /// Whether requests need a token.
    has_tokens: bool,
    started_ns: u64,
}

/// The answer to a message.
#[derive(Serialize)]
struct Taken {
    outcome: &'static str,
    /// The sequence that is stored.
    sequence: u64,
}

/// Answer to a request: a page, and the same as a document.
enum View {
    Page { title: String, here: &'static str, body: String },
    Document(String),
}

impl Hub {
    /// Opens the database in a file. Requests need a token if there is any at this moment.
    ///
    /// # Errors
    /// If the database cannot be opened.
    pub fn open(path: &Path, settings: Settings) -> Result<Arc<Self>, Error> {
        let store = Store::open(path)?;
        let (writer, has_tokens) = (Writer::start(&store, settings.kept_days)?, store.has_tokens()?);
        let health = Arc::default();
        Ok(Arc::new(Self { store, writer, health, settings, has_tokens, started_ns: now_ns() }))
    }

    /// The options of a server for it, encrypted if there is a certificate.
    pub fn options(self: &Arc<Self>, address: SocketAddr, tls: Option<apex_tls::Server>) -> Options {
        let hub = Arc::clone(self);
        let bearer = move |token: &str| {
            let found = hub.store.bearer(token);
            found.inspect_err(|error| eprintln!("apex hub: {error}")).ok().flatten().map(Arc::from)
        };
        let health = Arc::clone(&self.health);
        Options {
            address,
            tls,
            bearers: self.has_tokens.then(|| Bearers::new(bearer)),
            posts: Some(Posts { path: "/api/v1/aggregates", most_bytes: MOST_BYTES }),
            refused: Some(Refused::new(move |status| health.count_refused(status))),
            limits: Limits { answers: 64, heavy_answers: 4, ..Limits::default() },
            // Pages never take the places of messages.
            is_heavy: |request| request.posted().is_none(),
            ..Options::default()
        }
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request) -> Response {
        match request.posted() {
            Some(body) => self.take(request, body),
            None => self.shown(request).unwrap_or_else(|problem| problem.response()),
        }
    }

    /// The bearer of the request's token.
    fn tenant<'a>(&self, request: &'a Request) -> &'a str {
        if self.has_tokens { request.bearer() } else { LOCAL }
    }

    /// Takes a message. What is confirmed is committed.
    fn take(&self, request: &Request, body: &[u8]) -> Response {
        let aggregate = match Aggregate::parse(body) {
            Ok(aggregate) => aggregate,
            Err(refusal) => {
                let outcome = Outcome::from(&refusal);
                self.health.count(outcome);
                return Response::text(outcome.status(), refusal.to_string());
            }
        };
        let key = aggregate.recording.clone();
        let (outcome, sequence) = self.writer.write(self.tenant(request), aggregate, body);
        self.health.count(outcome);
        if !outcome.is_stored() {
            return Response::text(
                outcome.status(),
                format!("the message was not taken: {}", outcome.meaning()),
            );
        }
        document(&Taken { outcome: outcome.name(), sequence })
            .with_note("apex-committed", &format!("{key} {sequence}"))
    }

    fn shown(&self, request: &Request) -> Result<Response, Problem> {
        Ok(match request.segments()[..] {
            ["style.css"] => Response::new(StatusCode::OK, "text/css; charset=utf-8", STYLE),
            // Browsers ask for it by themselves.
            ["favicon.ico"] => Response::new(StatusCode::NO_CONTENT, "image/x-icon", ""),
            ["metrics"] => {
                let own = exposition::text(&self.store, &self.health, self.started_ns)?;
                let text = own + &exposition::devices(&self.store, self.tenant(request), now_ns())?;
                Response::new(StatusCode::OK, exposition::MEDIA_TYPE, text)
            }
            ["api", "v1", "openapi.json"] => Response::shared(StatusCode::OK, JSON, OPENAPI.clone()),
            ["api", "v1", ref what @ ..] => self.view(request, what, true)?.response(),
            ref what => self.view(request, what, false)?.response(),
        })
    }

    /// The page or the document of an address.
    fn view(&self, request: &Request, what: &[&str], as_document: bool) -> Result<View, Problem> {
        let (tenant, now) = (self.tenant(request), now_ns());
        let price = self.settings.price_per_gpu_hour;
        match *what {
            ["" | "jobs"] => {
                only(request, &["owner", "before", "limit"])?;
                let most = number(request, "limit", JOBS.0, 1..=JOBS.1)? as usize;
                let wanted = Wanted { owner: text(request, "owner"), before: before(request)?, most };
                let found = jobs::Jobs::find(&self.store, tenant, &wanted, now)?;
                Ok(View::of(as_document, "Jobs", "/", &found, || found.body(price, now)))
            }
            ["jobs", id] => {
                only(request, &[])?;
                let id = id.parse().map_err(|_| Problem::Nothing)?;
                let found = job::Job::find(&self.store, tenant, id)?.ok_or(Problem::Nothing)?;
                Ok(View::of(as_document, &found.job.job, "", &found, || found.body(price, now)))
            }
            ["owners"] => {
                only(request, &["days"])?;
                let days = number(request, "days", 30, 1..=3660)?;
                let found = owners::Owners::find(&self.store, tenant, days, now)?;
                Ok(View::of(as_document, "Owners", "/owners", &found, || found.body(price)))
            }
            ["kernels"] => {
                only(request, &["weeks"])?;
                let weeks = number(request, "weeks", 4, 1..=520)?;
                let found = kernels::Kernels::find(&self.store, tenant, weeks, now)?;
                Ok(View::of(as_document, "Kernels", "/kernels", &found, || found.body()))
            }
            ["changes"] => {
                only(request, &["days"])?;
                let days = number(request, "days", 30, 1..=365)?;
                let found = changes::Changes::find(&self.store, tenant, days, now)?;
                Ok(View::of(as_document, "Changes", "/changes", &found, || found.body()))
            }
            ["report"] => {
                only(request, &["days"])?;
                let days = number(request, "days", 7, 1..=365)?;
                let found = report::Report::find(&self.store, tenant, days, now)?;
                Ok(View::of(as_document, "Report", "/report", &found, || found.body(price)))
            }
            ["health"] => {
                only(request, &[])?;
                let found = state::State::find(&self.store, &self.health, self.started_ns)?;
                Ok(View::of(as_document, "The hub", "/health", &found, || found.body()))
            }
            _ => Err(Problem::Nothing),
        }
    }
}

impl View {
    fn of<D: Serialize>(
        as_document: bool,
        title: &str,
        here: &'static str,
        document: &D,
        body: impl FnOnce() -> String,
    ) -> Self {
        match as_document {
            true => Self::Document(json(document)),
            false => Self::Page { title: title.to_owned(), here, body: body() },
        }
    }

    fn response(self) -> Response {
        match self {
            Self::Page { title, here, body } => {
                Response::new(StatusCode::OK, HTML, html::page(&title, here, &body)).with_policy(POLICY)
            }
            Self::Document(document) => Response::new(StatusCode::OK, JSON, document),
        }
    }
}

fn document<D: Serialize>(content: &D) -> Response {
    Response::new(StatusCode::OK, JSON, json(content))
}
