//! `apex alerts`: watches sessions during recording, and sends alerts.

mod baseline;
pub mod receivers;

use crate::interrupt::stop_on_signals;
use crate::run::real_ns;
use crate::{output, session, units};
use apex_alerts::{Alerts, Limits, Moment, Notice, Reference, View};
use apex_live::{Follower, Snapshot, recorded_now};
use apex_trace::meta::Meta;
use receivers::{Destinations, Everybody};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Looks whose seconds are judged at a time.
const WINDOW: u32 = 2;
/// The time between two looks at whether to stop.
const TICK: Duration = Duration::from_millis(100);

/// Watches running programs and notifies: slower than the last good run, idle devices, waiting
/// ranks, lost records, reached power limits.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex alerts                                   all sessions that are being recorded, and new ones
  apex alerts --baseline good training          compares the steps of `training` with those of `good`
  apex alerts --rule slower=20% --rule idle=off
  apex alerts --alertmanager http://127.0.0.1:9093
  apex alerts --exec 'jq \"{text}\" | curl -sf --json @- https://hooks.slack.com/services/…'

Rules and their default thresholds:
  slower=10%       a step takes this much longer than in the baseline (significantly)
  occupancy=25%    theoretical occupancy has fallen by this much
  straggler=10%    ranks wait for another rank for this share of their time
  idle=50%         a device is idle for this share of the time
  lost-records     records are lost because there is no space
  power-capped=50% a device lowers its clocks because of its power limit for this share of the time

An alert fires when its condition held at three evaluations, and ends when the condition failed at three. `apex alerts` \
only reads the sessions: it does not affect the programs. It contacts only the addresses that you name.")]
pub struct Args {
    /// Session folders; `apex alerts` exits when all have ended [default: all sessions that are
    /// being recorded on this machine]
    sessions: Vec<PathBuf>,
    /// Baseline session [default: the newest earlier session in the same folder whose program ran
    /// the same command and succeeded]
    #[arg(long, value_name = "SESSION")]
    baseline: Option<PathBuf>,
    /// Threshold of a rule, or `off`; may be repeated
    #[arg(long = "rule", value_name = "NAME=PERCENT", value_delimiter = ',')]
    rules: Vec<String>,
    /// Time between two evaluations; each judges the last two intervals
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::parse_duration)]
    interval: Duration,
    /// Time after which an alert that still holds is repeated
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::parse_duration)]
    repeat: Duration,
    #[command(flatten)]
    destinations: Destinations,
}

/// The sessions that are watched.
struct Watch<'a> {
    args: &'a Args,
    alerts: Alerts,
    watched: BTreeMap<PathBuf, Watched>,
    begun: Instant,
}

/// A session that is watched.
struct Watched {
    follower: Follower,
    /// The good run, once it has been looked for.
    reference: Option<Option<Reference>>,
    over: bool,
}

/// Runs `apex alerts`.
///
/// # Errors
/// If a session or an address that was named is none.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    args.sessions.iter().chain(&args.baseline).try_for_each(|path| session::must_exist(path))?;
    let mut limits = Limits::default();
    for rule in &args.rules {
        limits.set(rule).map_err(anyhow::Error::msg)?;
    }
    let mut everybody = Everybody::new(&args.destinations, args.interval)?;
    let alerts = Alerts::new(limits, args.repeat);
    let mut watch = Watch { args, alerts, watched: BTreeMap::new(), begun: Instant::now() };
    let stop = stop_on_signals();
    if args.sessions.is_empty() && recorded_now().is_empty() {
        output::remark("no session is being recorded: waiting for `apex run`; Ctrl-C exits");
    }
    while !stop.load(Ordering::Relaxed) {
        let looked = Instant::now();
        let notices = watch.look();
        everybody.tell(&notices, watch.alerts.firing(), watch.now().real_ns);
        if !args.sessions.is_empty() && watch.watched.values().all(|watched| watched.over) {
            output::remark("all watched sessions have ended");
            break;
        }
        while looked.elapsed() < args.interval && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK.min(args.interval));
        }
    }
    everybody.close();
    Ok(ExitCode::SUCCESS)
}

impl Watch<'_> {
    fn now(&self) -> Moment {
        let monotonic_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Moment { monotonic_ns, real_ns: real_ns() }
    }

    /// Looks at all sessions that have not ended.
    fn look(&mut self) -> Vec<Notice> {
        let finds = self.args.sessions.is_empty();
        let wanted = if finds { recorded_now() } else { self.args.sessions.clone() };
        for path in &wanted {
            let new = || Watched {
                follower: Follower::new(path, self.args.interval * WINDOW),
                reference: None,
                over: false,
            };
            self.watched.entry(path.clone()).or_insert_with(new);
        }
        let mut notices = Vec::new();
        for (path, mut watched) in std::mem::take(&mut self.watched) {
            if !watched.over {
                let last = finds && !wanted.contains(&path);
                notices.extend(self.look_at(&path, &mut watched, last));
            }
            // A process of a session that has ended may go on without it.
            if !watched.over || wanted.contains(&path) {
                self.watched.insert(path, watched);
            }
        }
        notices
    }

    /// Looks at a session, for the last time perhaps.
    fn look_at(&mut self, path: &Path, watched: &mut Watched, last: bool) -> Vec<Notice> {
        let name = path.to_string_lossy();
        let at = self.now();
        let snapshot = match watched.follower.look() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                watched.over = last || !path.exists();
                if watched.over {
                    output::remark(format!("{} is no longer watched: {error}", session::shown(path)));
                    return self.alerts.end(&name, at);
                }
                return Vec::new();
            }
        };
        watched.over = last || has_ended(&snapshot);
        if watched.over {
            return self.alerts.end(&name, at);
        }
        let meta = snapshot.session.meta.as_ref();
        let reference = watched.reference.get_or_insert_with(|| self.args.reference(path, meta));
        self.alerts.look(&name, meta, &View::from(&snapshot), reference.as_ref(), at)
    }
}

impl Args {
    fn reference(&self, session: &Path, meta: Option<&Meta>) -> Option<Reference> {
        baseline::find(session, meta, self.baseline.as_deref())
    }
}

/// Whether nothing more will be recorded.
fn has_ended(snapshot: &Snapshot) -> bool {
    let exited = snapshot.session.meta.as_ref().is_some_and(apex_trace::meta::Meta::is_over);
    snapshot.running.is_empty() && (exited || !snapshot.session.processes.is_empty())
}
