//! `apex run --dashboard`: the dashboard of the session that is recorded, served by this process.
//!
//! The address is printed before the program starts. The server ends with the program, except where
//! a person sits at a terminal and has not interrupted it: then it stays until a signal comes, so
//! that the finished session can be looked at.

use super::child::Signals;
use crate::dashboard;
use crate::output;
use apex_dashboard::Dashboard;
use apex_http::{Server, Stop};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

/// A dashboard that listens but does not answer yet.
pub struct Listening(Server);

/// A dashboard that answers requests.
pub struct Showing {
    url: String,
}

impl Listening {
    /// Listens, with the token that `APEX_TOKEN` holds, if any.
    ///
    /// # Errors
    /// If the address cannot be had, or lies beyond loopback and there is no token.
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let token = std::env::var("APEX_TOKEN").ok().filter(|token| !token.is_empty());
        Ok(Self(dashboard::listen(address, token.as_deref())?))
    }

    /// Answers from now on, in threads of this process, about this session alone; prints the
    /// address and opens the browser where there is a display.
    pub fn show(self, session: PathBuf, signals: &Signals) -> Showing {
        let Self(server) = self;
        let url = server.url();
        output::remark(format!("dashboard: {url}"));
        dashboard::open(&url, |command| signals.spawn(command));
        let shown = Dashboard::new(move || vec![session.clone()]);
        // Signals are blocked: its threads leave them to the one that waits for the program.
        thread::spawn(move || {
            if let Err(error) = server.run_until(&Stop::default(), move |request| shown.answer(request)) {
                output::remark(format!("the dashboard has stopped: {error}"));
            }
        });
        Showing { url }
    }
}

impl Showing {
    /// The program has ended. Returns when the dashboard may end too.
    pub fn stay(&self, signals: &Signals) {
        let is_watched = io::stdin().is_terminal() && io::stderr().is_terminal();
        if !is_watched || signals.interrupted() {
            return;
        }
        output::remark(format!("the program has ended; the dashboard stays at {} until Ctrl-C", self.url));
        signals.wait_for_interrupt();
    }
}
