//! `apex hub alerts`: reports jobs that waste GPUs to the addresses that the user names.

use super::{Database, parse_url, tenant};
use crate::alerts::receivers::{Destinations, Everybody};
use crate::interrupt::stop_on_signals;
use crate::run::real_ns;
use crate::{exit, output, units};
use apex_alerts::{Change, LOOKS, Moment, Tracker, Verdict};
use apex_hub::Store;
use apex_hub::alerts::{Alert, Conditions, News, alertmanager};
use apex_ordered::Gather;
use clap::builder::FalseyValueParser;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The time between two looks at whether to stop.
const TICK: Duration = Duration::from_millis(100);

/// Watches a hub's database and notifies: running jobs that lose GPU time or do not use GPUs that
/// they were given, silent jobs, jobs that became slower.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex hub alerts --database hub.db --alertmanager http://127.0.0.1:9093
  apex hub alerts --condition lost=80% --condition silent=off --url https://hub.example
  apex hub alerts --once                 what holds now; exits with status 1 if anything does

Conditions and their usual limits:
  lost=50%     a running job lost more than this share of at least 10 minutes of GPU time
  unused=10%   this share of a running job's GPU time is of GPUs that it was given and never used
  silent       a job has not ended, and sent nothing for three minutes
  slower       runs of a job take longer than before (the page Changes)

An alert fires when its condition held at three evaluations, and ends when it failed at three. The hub may run meanwhile; it \
is not asked. Only the addresses that you name are contacted.")]
pub struct Args {
    #[command(flatten)]
    database: Database,
    /// Tenant whose jobs are watched [default: the only one]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Limit of a condition, or `off`; may be repeated
    #[arg(long = "condition", value_name = "NAME=PERCENT", value_delimiter = ',')]
    conditions: Vec<String>,
    /// Address of the hub, for links in messages
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    url: Option<String>,
    /// Time between two evaluations
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::parse_duration)]
    interval: Duration,
    /// Time after which an alert that still holds is repeated
    #[arg(long, value_name = "TIME", default_value = "6h", value_parser = units::parse_duration)]
    repeat: Duration,
    /// Print what holds now, and exit
    #[arg(long, value_parser = FalseyValueParser::new())]
    once: bool,
    #[command(flatten)]
    destinations: Destinations,
}

/// Conditions that are watched.
struct Watch<'a> {
    args: &'a Args,
    store: Store,
    tenant: String,
    wanted: Conditions,
    tracker: Tracker<String>,
    /// What fires, by its key, with when it began.
    firing: BTreeMap<String, (Alert, u64)>,
    begun: Instant,
}

/// Runs `apex hub alerts`.
///
/// # Errors
/// If the database cannot be used, there is no such tenant, or an address that was named is none.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing()?;
    let tenant = tenant(args.tenant.as_deref(), &store)?;
    let mut wanted = Conditions::default();
    for condition in &args.conditions {
        wanted.set(condition).map_err(anyhow::Error::msg)?;
    }
    if args.once {
        return once(args, &store, &tenant, &wanted);
    }
    let mut everybody = Everybody::new(&args.destinations, args.interval)?;
    let repeat_ns = u64::try_from(args.repeat.as_nanos()).unwrap_or(u64::MAX);
    let tracker = Tracker::new(repeat_ns);
    let begun = Instant::now();
    let mut watch = Watch { args, store, tenant, wanted, tracker, firing: BTreeMap::new(), begun };
    let stop = stop_on_signals();
    while !stop.load(Ordering::Relaxed) {
        let looked = Instant::now();
        if let Err(error) = watch.look(&mut everybody) {
            output::remark(format!("{error}; the next evaluation tries again"));
        }
        while looked.elapsed() < args.interval && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK.min(args.interval));
        }
    }
    everybody.close();
    Ok(ExitCode::SUCCESS)
}

/// Prints what holds now.
fn once(args: &Args, store: &Store, tenant: &str, wanted: &Conditions) -> anyhow::Result<ExitCode> {
    let mut alerts = store.alerts(tenant, wanted, real_ns())?;
    alerts.retain(|alert| alert.holds);
    output::page(|out| {
        let hub = args.url.as_deref();
        alerts
            .iter()
            .try_for_each(|alert| writeln!(out, "{}\n  next: {}", alert.line(News::New), alert.next(hub)))
    })?;
    Ok(if alerts.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

impl Watch<'_> {
    fn now(&self) -> Moment {
        let monotonic_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Moment { monotonic_ns, real_ns: real_ns() }
    }

    /// Judges once, and tells what changed.
    fn look(&mut self, everybody: &mut Everybody) -> anyhow::Result<()> {
        let at = self.now();
        let found = self.store.alerts(&self.tenant, &self.wanted, at.real_ns)?;
        let found: BTreeMap<String, Alert> =
            found.into_iter().map(|alert| (alert.key.clone(), alert)).gathered();
        let mut keys = self.tracker.keys(|key| !found.contains_key(key));
        keys.extend(found.keys().cloned());
        let mut over = Vec::new();
        let mut has_news = false;
        for key in keys {
            let alert = found.get(&key);
            let verdict = match alert {
                Some(alert) if alert.holds => Verdict::Holds,
                Some(_) => Verdict::Unclear,
                None => Verdict::Over,
            };
            let Some(change) = self.tracker.look(at, &key, verdict, LOOKS) else { continue };
            has_news = true;
            over.extend(self.changed(&key, alert, change, at.real_ns, everybody));
        }
        let hub = self.args.url.as_deref();
        everybody.manage(has_news, |holds| {
            let until = at.real_ns.saturating_add(u64::try_from(holds.as_nanos()).unwrap_or(u64::MAX));
            let firing = self.firing.values().map(|(alert, since)| (alert, *since, until));
            let over = over.iter().map(|(alert, since)| (alert, *since, at.real_ns));
            alertmanager(firing.chain(over), hub)
        });
        Ok(())
    }

    /// Tells of a change. Returns what is over.
    fn changed(
        &mut self,
        key: &str,
        alert: Option<&Alert>,
        change: Change,
        now_ns: u64,
        everybody: &Everybody,
    ) -> Option<(Alert, u64)> {
        let (news, since) = match change {
            Change::Fired(since) => (News::New, since.real_ns),
            Change::Repeated(since) => (News::Repeated, since.real_ns),
            Change::Resolved(since) => (News::Resolved, since.real_ns),
        };
        let before = self.firing.remove(key);
        let alert = alert.cloned().or_else(|| before.map(|(alert, _)| alert))?;
        let hub = self.args.url.as_deref();
        let next = (news != News::Resolved).then(|| alert.next(hub));
        everybody.notify(&alert.line(news), next.as_deref(), &alert.document(news, since, now_ns, hub));
        if news == News::Resolved {
            return Some((alert, since));
        }
        self.firing.insert(key.to_owned(), (alert, since));
        None
    }
}
