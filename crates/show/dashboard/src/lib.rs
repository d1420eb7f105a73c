//! Sessions over HTTP: the page that shows them, and the interface that the page uses.
//!
//! [`Dashboard::answer`] answers the requests of docs/api.md: the list of sessions, the document of
//! one, its changes as server-sent events, its kernels in other configurations, its timeline, and
//! what differs between several. A document is the page's ([`apex_page`]), of the part of a session
//! that the filters of `apex report` leave ([`apex_view`]).
//!
//! Invariants:
//!
//! 1. A request names a session by its identifier, which only the sessions of the list have: no
//!    request holds a path.
//! 2. A session is read once, however many look at it: views of the same part of the same session
//!    share what was read ([`views`]). Those that event streams show are kept, and at most
//!    [`MOST_VIEWS`] others, each of at most [`apex_page::MOST_BYTES`] beside what its reader
//!    keeps.
//! 3. A session that runs is read about once a second, its last seconds twice, and reading takes at
//!    most a tenth of one core's time, or a quarter where only last seconds are wanted, however
//!    many parts of sessions are open. A session that has ended is read once for each part.
//! 4. Timelines are read from their index ([`apex_timeline`]), which is made in the background.
//! 5. A session that cannot be read, or is gone, gives a message, and may come back.

mod api;
mod comparisons;
mod parameters;
mod problem;
mod reading;
mod sessions;
mod timeline;
mod turns;
mod views;
mod what_if;

pub use api::Dashboard;
pub use comparisons::{MOST_RUNS, Sides};
pub use parameters::{LONGEST_LAST, ViewParameters};
pub use problem::Problem;
pub use sessions::{MOST_SESSIONS, State};
pub use timeline::PARAMETERS as TIMELINE_PARAMETERS;
pub use views::MOST_VIEWS;
pub use what_if::PARAMETERS as WHAT_IF_PARAMETERS;
