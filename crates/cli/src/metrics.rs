//! `apex metrics`: sessions as metrics for Prometheus and OpenTelemetry.

use crate::interrupt::stop_on_signals;
use crate::run::real_ns;
use crate::{output, session};
use anyhow::Context;
use apex_http::{Options, Response, Server, StatusCode, Token};
use apex_live::{Follower, recorded_now};
use apex_metrics::otlp::{self, Origin};
use apex_metrics::{Exporter, Spans};
use apex_push::{Event, Outbox, Policy, Target};
use apex_trace::meta::Host;
use apex_trace::{Session, is_session};
use apex_untrusted::{replace, shown};
use clap::builder::FalseyValueParser;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Media type of Prometheus' text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Interval between two checks for a signal.
const TICK: Duration = Duration::from_millis(100);
/// Maximum time of a push, and the time that the last push gets.
const LONGEST_PUSH: Duration = Duration::from_secs(10);

/// Exports sessions as metrics for Prometheus and OpenTelemetry
///
/// Serves http://ADDRESS/metrics for Prometheus, or pushes the metrics with --otlp. Launches,
/// copies, allocations and lost records are counted from the start of each session. Busy and idle
/// times of devices are summed while this command follows the session. contrib/metrics has a
/// dashboard for Grafana and alert rules. --spans also pushes each run as a trace.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex metrics                          serves all sessions that are being recorded
  apex metrics --once training          prints the metrics of a session
  apex metrics --textfile apex.prom     writes them every 15 seconds
  apex metrics --otlp http://127.0.0.1:4318
                                        pushes them to an OpenTelemetry collector every 15 seconds
  apex metrics --once --spans --otlp http://127.0.0.1:4318 training
                                        pushes the metrics and the trace of a session once")]
pub struct Args {
    /// Session folders [default: all sessions that are being recorded on this machine]
    #[arg(value_name = "SESSION")]
    sessions: Vec<PathBuf>,
    /// Address and port to listen on; an address beyond loopback requires a token
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9401",
        conflicts_with_all = ["once", "textfile", "otlp"]
    )]
    listen: SocketAddr,
    /// Secret that clients must send; at least 16 characters
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print the metrics once, or push them once, without listening
    #[arg(long, value_parser = FalseyValueParser::new(), conflicts_with = "textfile")]
    once: bool,
    /// Write the metrics periodically into a file (NAME.prom) for node-exporter's textfile
    /// collector, without listening
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Push the metrics periodically to an OpenTelemetry collector (OTLP over HTTP, or HTTPS in
    /// builds with TLS), without listening
    #[arg(long, value_name = "URL", hide_env_values = true, conflicts_with = "textfile")]
    otlp: Option<String>,
    /// Also push the spans of each session when it has ended: processes, phases, steps, NVTX
    /// ranges, longest idle gaps and longest kernels
    #[arg(long, value_parser = FalseyValueParser::new(), requires = "otlp")]
    spans: bool,
    /// Seconds between two writes of the file, or between two pushes
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 15,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
    )]
    interval: u64,
    /// Number of kernels per session with their own series; the others share one
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(0..=10_000),
    )]
    top: u32,
}

/// The exported sessions and their sums.
struct Exported {
    named: Vec<PathBuf>,
    followers: BTreeMap<PathBuf, Follower>,
    exporter: Exporter,
    /// Sessions that were seen to have ended.
    ended: BTreeSet<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If a named session cannot be read at the start, the address cannot be used, or the file cannot
/// be written.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    for path in &args.sessions {
        session::must_exist(path)?;
        if !is_session(path) {
            // Says what is wrong with it, or that it is a session without its control page.
            Session::open(path)?;
        }
    }
    let mut exported = Exported {
        named: args.sessions.clone(),
        followers: BTreeMap::new(),
        exporter: Exporter::new(args.top as usize),
        ended: BTreeSet::new(),
    };
    if args.once && args.otlp.is_none() {
        let text = exported.whole_text();
        return output::page(|out| out.write_all(text.as_bytes()));
    }
    let interval = Duration::from_secs(args.interval);
    match (&args.textfile, &args.otlp) {
        (Some(file), _) => write_until_stopped(&mut exported, file, interval)?,
        (None, Some(url)) => Pusher::new(url, args)?.push_until_stopped(&mut exported, interval)?,
        (None, None) => serve(exported, args)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Exported {
    /// Looks at all sessions. One that has ended is looked at once more, and keeps what it had; so
    /// does one that cannot be read any more.
    fn look(&mut self) {
        let wanted = if self.named.is_empty() { recorded_now() } else { self.named.clone() };
        for path in &wanted {
            let new = || Follower::new(path, Duration::ZERO);
            self.followers.entry(path.clone()).or_insert_with(new);
        }
        self.followers.retain(|path, follower| {
            let looked = self.exporter.look(&path.to_string_lossy(), follower);
            match looked {
                Ok(true) => self.ended.insert(path.clone()),
                _ => self.ended.remove(path),
            };
            looked.is_ok() && wanted.contains(path)
        });
    }

    /// The metrics at this moment, for Prometheus.
    fn text(&mut self) -> String {
        self.look();
        self.exporter.text(env!("CARGO_PKG_VERSION"))
    }

    /// The metrics when all is read that was recorded.
    fn whole_text(&mut self) -> String {
        self.look_at_all();
        self.exporter.text(env!("CARGO_PKG_VERSION"))
    }

    /// Looks until all is read that was recorded.
    fn look_at_all(&mut self) {
        self.look();
        while self.exporter.unread_bytes() > 0 {
            self.look();
        }
    }
}

/// Waits, until it is time for the next look. Whether there is to be one: a signal may come.
fn wait(begun: Instant, interval: Duration, stop: &AtomicBool) -> bool {
    while begun.elapsed() < interval && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
    }
    !stop.load(Ordering::Relaxed)
}

/// Pushes metrics, and spans where they are asked for.
struct Pusher {
    /// The outbox of metrics. It keeps the newest push alone: that has all that the others have.
    metrics: Outbox<Vec<u8>>,
    spans: Option<Outbox<Vec<u8>>>,
    /// Sessions whose spans were pushed.
    pushed: BTreeSet<PathBuf>,
    /// Messages that were lost before another one was taken.
    lost: Arc<AtomicU64>,
    shown: String,
    once: bool,
}

impl Pusher {
    fn new(url: &str, args: &Args) -> anyhow::Result<Self> {
        let [metrics, spans] = [otlp::METRICS_PATH, otlp::SPANS_PATH].map(|path| Target::new(url, path));
        // What is no address is not quoted: it may hold a token.
        let wrong = |why| anyhow::anyhow!("the value of --otlp {why}");
        let (metrics, spans) = (metrics.map_err(wrong)?, spans.map_err(wrong)?);
        let shown = apex_untrusted::printable(&metrics.shown()).into_owned();
        let lost = Arc::default();
        // All that is pushed once is put in at once.
        let waiting = if args.once { usize::MAX } else { 64 };
        let spans = args.spans.then(|| outbox("spans", waiting, spans, &shown, &lost));
        let metrics = outbox("metrics", 1, metrics, &shown, &lost);
        Ok(Self { metrics, spans, pushed: BTreeSet::new(), lost, shown, once: args.once })
    }

    /// Pushes at each interval, and once more when a signal arrives.
    fn push_until_stopped(mut self, exported: &mut Exported, interval: Duration) -> anyhow::Result<()> {
        let host = Host::here().name;
        let began_ns = real_ns();
        let stop = stop_on_signals();
        let what = if self.spans.is_some() { "metrics and spans" } else { "metrics" };
        match self.once {
            true => output::remark(format!("pushes {what} to {}", self.shown)),
            false => output::remark(format!(
                "pushes {what} to {} every {} s; Ctrl-C ends it",
                self.shown,
                interval.as_secs()
            )),
        }
        let mut goes_on = true;
        while goes_on {
            let begun = Instant::now();
            if self.once {
                goes_on = false;
                exported.look_at_all();
            } else {
                goes_on = wait(begun, interval, stop);
                exported.look();
            }
            let origin =
                Origin { version: env!("CARGO_PKG_VERSION"), host: &host, began_ns, now_ns: real_ns() };
            self.metrics.put(exported.exporter.otlp(&origin));
            self.push_spans(exported);
        }
        let last = self.metrics.close(LONGEST_PUSH) + self.spans.map_or(0, |spans| spans.close(LONGEST_PUSH));
        let lost = last + self.lost.load(Ordering::Relaxed);
        anyhow::ensure!(!self.once || lost == 0, "{} did not take what was pushed", self.shown);
        if last > 0 {
            output::remark(format!("{} did not take the last push", self.shown));
        }
        Ok(())
    }

    /// Pushes the spans of sessions that have ended since.
    fn push_spans(&mut self, exported: &Exported) {
        let Some(outbox) = &self.spans else { return };
        for path in exported.ended.difference(&self.pushed) {
            match Session::open(path) {
                Ok(session) => outbox.put(Spans::of(&session).otlp(env!("CARGO_PKG_VERSION"))),
                Err(error) => output::remark(format!("no spans of {}: {error}", shown(path))),
            }
        }
        self.pushed.extend(exported.ended.iter().cloned());
    }
}

/// Creates the outbox that pushes requests of a sort; at most `waiting` of them wait.
fn outbox(
    what: &'static str,
    waiting: usize,
    target: Target,
    shown: &str,
    lost: &Arc<AtomicU64>,
) -> Outbox<Vec<u8>> {
    let (shown, lost) = (shown.to_owned(), Arc::clone(lost));
    let send = move |body: &Vec<u8>| target.post(otlp::MEDIA_TYPE, body.clone(), LONGEST_PUSH);
    let policy = Policy { attempts: 3, waiting, ..Policy::default() };
    Outbox::start(policy, send, move |event| match event {
        Event::Fails(failure) => output::remark(format!("{shown}: {failure}; {what} do not arrive there")),
        Event::Recovered(messages) => {
            lost.fetch_add(messages, Ordering::Relaxed);
            output::remark(format!("{shown}: {what} arrive again"));
        }
    })
}

/// Replaces the file at each interval until a signal arrives.
fn write_until_stopped(exported: &mut Exported, file: &Path, interval: Duration) -> anyhow::Result<()> {
    let stop = stop_on_signals();
    loop {
        let text = exported.text();
        let written = replace::file(file, |mut out| out.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {}", shown(file)))?;
        if !wait(Instant::now(), interval, stop) {
            return Ok(());
        }
    }
}

/// Answers until a signal comes.
fn serve(exported: Exported, args: &Args) -> anyhow::Result<()> {
    let token = args.token.as_deref().map(Token::new).transpose()?;
    let server = Server::bind(Options { address: args.listen, token, ..Options::default() })?;
    output::remark(format!("metrics are at http://{}/metrics", server.address()));
    let exported = Mutex::new(exported);
    server.run(move |request| match request.segments()[..] {
        ["metrics"] => {
            // What a panic left is sound: sums are taken one after the other.
            let text = exported.lock().unwrap_or_else(PoisonError::into_inner).text();
            Response::new(StatusCode::OK, MEDIA_TYPE, text)
        }
        [""] => Response::text(StatusCode::OK, "the metrics are at /metrics"),
        _ => Response::text(StatusCode::NOT_FOUND, "there is nothing here: the metrics are at /metrics"),
    })?;
    Ok(())
}
