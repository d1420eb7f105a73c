//! Which jobs somebody is told of, and until when.

use crate::common::{Running, message, now_ns};
use apex_aggregate::{Aggregate, Allocation, Device, Step, Times};
use apex_hub::alerts::{Alert, Conditions, News, alertmanager};
use apex_hub::{LOCAL, Store};
use serde_json::Value;

const MINUTE_US: u64 = 60_000_000;

/// A running job whose device is held for an hour and busy for some minutes of it.
fn running(recording: u64, busy_minutes: u64) -> Aggregate {
    let mut of = message(recording, 1);
    of.job.id = format!("job of {recording}");
    of.uses[0].times = Times {
        kernels_us: busy_minutes * MINUTE_US,
        idle_us: [0, 0, 0, 0, 0, 0, 0, (60 - busy_minutes) * MINUTE_US],
        ..Times::default()
    };
    of.as_of_ns = of.started_ns + 3_600_000_000_000;
    of
}

fn alerts(store: &Store, set: &[&str], later_ns: u64) -> Vec<Alert> {
    let mut wanted = Conditions::default();
    set.iter().for_each(|condition| wanted.set(condition).unwrap());
    store.alerts(LOCAL, &wanted, now_ns() + later_ns).unwrap()
}

fn keys(found: &[Alert]) -> Vec<(&str, bool)> {
    found.iter().map(|alert| (alert.key.as_str(), alert.holds)).collect()
}

#[test]
fn running_jobs_that_waste_gpus_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    let store = Store::open(&folder.path().join("hub.db")).unwrap();
    let mut small = running(3, 0);
    small.uses[0].times = Times { outside_us: 9 * MINUTE_US, ..Times::default() };
    let mut given = running(4, 60);
    let devices = ["0", "1"].map(str::to_owned).to_vec();
    given.allocation = Some(Allocation { source: "SLURM_JOB_GPUS".to_owned(), devices });
    let mut of_cpu = running(5, 0);
    of_cpu.devices = vec![Device { name: "APEX CPU device (sm_80)".to_owned(), ..Device::default() }];
    let mut ended = running(6, 0);
    ended.ended = Some(apex_aggregate::End { at_ns: now_ns(), status: Some(0), signal: None });
    for of in [running(0, 6), running(1, 33), running(2, 45), small, given, of_cpu, ended] {
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
    }
    // Job 1 lost 90%, job 2 45% (which only keeps an alert alive), job 5 uses one of two GPUs.
    let found = alerts(&store, &[], 0);
    assert_eq!(keys(&found), [("unused 5", true), ("lost 2", false), ("lost 1", true)]);
    let line = found[2].line(News::New);
    let said = "alert lost: job of 0 of owner0: 90.0% of 1.00 h of GPU time is lost, to: idle: the program's own code";
    assert!(line.starts_with(said), "{line}");
    assert!(
        found[0].line(News::Repeated).contains("50.0% of 2.00 h of GPU time is of GPUs that it was given")
    );
    assert_eq!(keys(&alerts(&store, &["lost=40%", "unused=off"], 0)), [("lost 2", true), ("lost 1", true)]);
    // All that have not ended are silent later, and are forgotten in the end.
    let silent = alerts(&store, &[], 4 * 60_000_000_000);
    assert_eq!(silent.len(), 6);
    assert!(silent.iter().all(|alert| alert.key.starts_with("silent ") && alert.holds), "{silent:?}");
    assert!(silent[0].line(News::Resolved).contains("nothing is heard of it for 4.0 min"));
    assert_eq!(alerts(&store, &["silent=off"], 4 * 60_000_000_000), []);
    assert_eq!(alerts(&store, &[], 8 * 86_400_000_000_000), []);
    // Another tenant has none.
    assert_eq!(store.alerts("another", &Conditions::default(), now_ns()).unwrap(), []);
}

#[test]
fn a_slower_job_is_told_of_once_however_many_runs_follow() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    let store = Store::open(&folder.path().join("hub.db")).unwrap();
    let post = |run: u64| {
        let mut of = message(1000 + 4 * run, 4);
        of.owner = "somebody".to_owned();
        of.started_ns += run * 60_000_000_000;
        let ns = if run >= 9 { 1.3e6 } else { 1e6 } * (1.0 + 0.002 * (run % 5) as f64);
        of.step = Some(Step { ns, low_ns: ns, high_ns: ns, count: 50 });
        of.ended = Some(apex_aggregate::End { at_ns: now_ns(), status: Some(0), signal: None });
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
    };
    (0..14).for_each(post);
    let first = alerts(&store, &[], 0);
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].line(News::New).contains("a step takes +30"), "{first:?}");
    (14..18).for_each(post);
    assert_eq!(alerts(&store, &[], 0)[0].key, first[0].key);
    assert_eq!(alerts(&store, &["slower=off"], 0), []);
    // It is told of for a week.
    assert_eq!(alerts(&store, &[], 8 * 86_400_000_000_000), []);
}

#[test]
fn alerts_are_documents_and_labels() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    let store = Store::open(&folder.path().join("hub.db")).unwrap();
    let mut of = running(0, 6);
    of.owner = "a\u{1b}[31m".to_owned();
    assert_eq!(hub.post(&of.to_bytes()).status, 200);
    let found = alerts(&store, &[], 0);
    let at = 951_782_399_000_000_000;
    let document: Value =
        serde_json::from_slice(&found[0].document(News::New, at, at, Some("http://hub/"))).unwrap();
    assert_eq!(document["schema"], "apex.hub/1");
    assert_eq!(
        (&document["state"], &document["alert"], &document["id"]),
        (&"firing".into(), &"lost".into(), &1.into())
    );
    assert_eq!(
        (&document["next"], &document["since"]),
        (&"http://hub/jobs/1".into(), &"2000-02-28T23:59:59Z".into())
    );
    assert!(!document["text"].as_str().unwrap().contains('\u{1b}'));
    assert_eq!(found[0].next(None), "/jobs/1");
    let body = alertmanager(found.iter().map(|alert| (alert, at, at + 1_000_000_000)), None).unwrap();
    let posted: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(posted[0]["labels"]["alertname"], "ApexGpuTimeLost");
    assert_eq!(posted[0]["endsAt"], "2000-02-29T00:00:00Z");
    assert_eq!(alertmanager(std::iter::empty(), None), None);
}
