//! The receivers of alerts: stderr and those that the user names. Each has its own thread, so that
//! a receiver that hangs does not delay the others.

use crate::output;
use apex_alerts::{Alert, Notice, State, message};
use apex_push::{Event, Failure, Outbox, Policy, Target};
use apex_untrusted::printable;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An attempt takes no longer.
const LONGEST: Duration = Duration::from_secs(10);
/// A command takes no longer.
const LONGEST_COMMAND: Duration = Duration::from_secs(60);
/// The time that waiting messages get at the end.
const LAST_CHANCE: Duration = Duration::from_secs(15);
/// Alertmanager hears so often of what fires …
const RENEWED: Duration = Duration::from_secs(60);
/// … and takes it for over if it does not hear of it for this many times as long.
const RENEWALS: u32 = 4;
/// The time between two looks at a command.
const TICK: Duration = Duration::from_millis(20);

/// The receivers that the user named.
#[derive(clap::Args, Debug)]
pub struct Destinations {
    /// URL to which each alert is posted as JSON (http only)
    #[arg(long, value_name = "URL", hide_env_values = true)]
    webhook: Vec<String>,
    /// URL of Prometheus' Alertmanager, such as http://127.0.0.1:9093
    #[arg(long, value_name = "URL", hide_env_values = true)]
    alertmanager: Vec<String>,
    /// Shell command to run for each alert, with the JSON on stdin; use it for mail
    #[arg(long, value_name = "COMMAND", hide_env_values = true)]
    exec: Vec<String>,
}

/// All receivers.
pub struct Everybody {
    /// Webhooks and commands: each notice.
    notified: Vec<(String, Outbox<Vec<u8>>)>,
    /// Alertmanagers: all that fires.
    managers: Vec<(String, Outbox<Vec<u8>>)>,
    /// The time at which Alertmanagers last heard of all that fires.
    renewed: Option<Instant>,
    renewal: Duration,
}

impl Everybody {
    /// Gets ready to tell whom the user named; a look is taken so often.
    ///
    /// # Errors
    /// If an address is none.
    pub fn new(named: &Destinations, interval: Duration) -> anyhow::Result<Self> {
        let mut notified = Vec::new();
        for webhook in &named.webhook {
            notified.push(to_address("--webhook", webhook, "")?);
        }
        for command in &named.exec {
            notified.push(to_command(command));
        }
        let managers = named.alertmanager.iter();
        let managers = managers.map(|url| to_address("--alertmanager", url, message::ALERTMANAGER_PATH));
        let managers = managers.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { notified, managers, renewed: None, renewal: RENEWED.max(interval) })
    }

    /// Tells of notices, and of what fires.
    pub fn tell<'a>(&mut self, notices: &'a [Notice], firing: impl Iterator<Item = &'a Alert>, now_ns: u64) {
        for notice in notices {
            let is_firing = matches!(notice.state, State::Fired | State::Repeated);
            let next = is_firing.then_some(notice.alert.next.as_str());
            self.notify(&message::line(notice), next, &message::document(notice));
        }
        let body = |holds| message::alertmanager(firing, notices, now_ns, holds);
        self.manage(!notices.is_empty(), body);
    }

    /// Says a line on stderr, with what to do next, and sends a document to all but Alertmanagers.
    pub fn notify(&self, line: &str, next: Option<&str>, document: &[u8]) {
        output::remark(line);
        if let Some(next) = next {
            output::remark(format!("  next: {next}"));
        }
        self.notified.iter().for_each(|(_, outbox)| outbox.put(document.to_vec()));
    }

    /// Sends Alertmanagers all that fires, if there is news or they have not heard of it for long.
    /// `body` is told for how long it holds.
    pub fn manage(&mut self, has_news: bool, body: impl FnOnce(Duration) -> Option<Vec<u8>>) {
        let due = self.renewed.is_none_or(|renewed| renewed.elapsed() >= self.renewal);
        if self.managers.is_empty() || (!has_news && !due) {
            return;
        }
        if let Some(body) = body(self.renewal * RENEWALS) {
            self.renewed = Some(Instant::now());
            self.managers.iter().for_each(|(_, outbox)| outbox.put(body.clone()));
        }
    }

    /// Waits a little for messages that have not been sent.
    pub fn close(self) {
        let begun = Instant::now();
        for (name, outbox) in self.notified.into_iter().chain(self.managers) {
            let lost = outbox.close(LAST_CHANCE.saturating_sub(begun.elapsed()));
            if lost > 0 {
                let messages = crate::units::counted(lost, "message", "messages");
                output::remark(format!("{name}: {messages} could not be delivered"));
            }
        }
    }
}

/// Posts to an address.
fn to_address(option: &str, url: &str, suffix: &str) -> anyhow::Result<(String, Outbox<Vec<u8>>)> {
    // What is no address is not quoted: it may hold a token.
    let target = Target::new(url, suffix).map_err(|why| anyhow::anyhow!("the value of {option} {why}"))?;
    let name = format!("{option} {}", printable(&target.shown()));
    let send = move |body: &Vec<u8>| target.post(message::MEDIA_TYPE, body.clone(), LONGEST);
    Ok((name.clone(), start(name, send)))
}

/// Runs a command.
fn to_command(command: &str) -> (String, Outbox<Vec<u8>>) {
    let command = command.to_owned();
    ("--exec".to_owned(), start("--exec".to_owned(), move |body: &Vec<u8>| run(&command, body)))
}

fn start(
    name: String,
    send: impl FnMut(&Vec<u8>) -> Result<(), Failure> + Send + 'static,
) -> Outbox<Vec<u8>> {
    Outbox::start(Policy::default(), send, move |event| match event {
        Event::Fails(failure) => output::remark(format!("{name}: {failure}; alerts do not arrive there")),
        Event::Recovered(lost) => {
            let messages = crate::units::counted(lost, "message was", "messages were");
            output::remark(format!("{name}: alerts arrive again; {messages} lost"));
        }
    })
}

/// Runs a command of the shell with a message on its stdin, and waits for it no longer than
/// [`LONGEST_COMMAND`]. A failure is never retried, because the command may have delivered the
/// alert.
fn run(command: &str, body: &[u8]) -> Result<(), Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::Failed(format!("the command {what}: {error}"));
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::piped());
    let mut child = shell.spawn().map_err(|error| failed("cannot be started", error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read it is as good; a message fits into a pipe.
        let _ = stdin.write_all(body);
    }
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(|error| failed("cannot be waited for", error))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(Failure::Failed(format!("the command ended with {status}"))),
            None if begun.elapsed() < LONGEST_COMMAND => std::thread::sleep(TICK),
            None => {
                // It is ended so that no more of them wait than one.
                let _ = child.kill().and_then(|()| child.wait());
                let longest = LONGEST_COMMAND.as_secs();
                return Err(Failure::Failed(format!("the command was ended after {longest} s")));
            }
        }
    }
}
