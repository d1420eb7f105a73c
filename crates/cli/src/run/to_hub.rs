//! `apex run --hub`: the thread that tells a hub of the session, and its end.

use crate::destination::remarks;
use crate::output;
use apex_agent::{Agent, Destination, Identity};
use apex_view::{Filters, Loaded};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the user wants to be told, and where.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub to: Arc<Destination>,
    pub job: Option<String>,
    /// Between two messages.
    pub every: Duration,
}

/// Starts telling. What fails is a remark: the program's run counts more.
pub fn start(wanted: Option<&Wanted>, session: PathBuf) -> Option<Agent> {
    let wanted = wanted?;
    if let Err(error) = crate::knowledge::install(&[]) {
        output::remark(format!("{error:#}"));
    }
    let here = std::env::current_dir().unwrap_or_default();
    let identity = Identity::of_this(wanted.job.as_deref().filter(|job| !job.is_empty()), &here);
    let tell = |error| output::remark(format!("the hub will not hear of this run: {error}"));
    let identity = identity.map_err(tell).ok()?;
    Some(Agent::start(session, Arc::clone(&wanted.to), identity, wanted.every))
}

/// Tells the end.
pub fn finish(agent: Agent, loaded: &Loaded) {
    let filters = Filters::default();
    let Ok(shown) = filters.shown(loaded) else { return agent.abandon() };
    let to = agent.destination();
    match agent.finish(loaded, &shown.advise(&[])) {
        Ok(done) => remarks(&done, &to.spool).into_iter().for_each(output::remark),
        Err(error) => {
            let spool = apex_untrusted::shown(to.spool.path());
            output::remark(format!("the hub will not hear of the end of this run: {spool}: {error}"));
        }
    }
}
