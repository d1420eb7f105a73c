//! Conditions over made-up looks: what fires, what it says, when it is over.

use apex_alerts::{Alerts, Limits, Moment, Notice, Reference, State, Subject, View, message};
use apex_live::Follower;
use apex_machine::{DeviceRecord, Quantity, Readings, Record};
use apex_profile::{Accounts, Activity, Device, Figure, IdleCause, Iterations, Process, Profile};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const GPU: &str = "GPU-30313233-3435-3637-3839-616263646566";

/// Looks at a session every ten seconds, at the last twenty.
struct Looks {
    alerts: Alerts,
    looks: u64,
    /// Processes that have used the device.
    used: BTreeSet<u32>,
}

impl Looks {
    fn new(rules: &[&str]) -> Self {
        let mut limits = Limits::default();
        rules.iter().for_each(|rule| limits.set(rule).unwrap());
        Self { alerts: Alerts::new(limits, Duration::from_secs(3600)), looks: 0, used: BTreeSet::new() }
    }

    fn at(&self) -> Moment {
        Moment { monotonic_ns: self.looks * 10 * SECOND, real_ns: (1_795_454_551 + self.looks * 10) * SECOND }
    }

    /// The window of the next look.
    fn window(&self) -> Range<u64> {
        let end = (100 + 10 * self.looks) * SECOND;
        end - 20 * SECOND..end
    }

    fn view<'a>(&self, profile: &'a Profile) -> View<'a> {
        let used = [(GPU.to_owned(), self.used.clone())];
        let used = used.into_iter().filter(|(_, processes)| !processes.is_empty()).collect();
        View { profile, window: self.window(), used, readings: BTreeMap::new(), dropped: 0 }
    }

    fn look(&mut self, profile: &Profile, reference: Option<&Reference>, dropped: u64) -> Vec<Notice> {
        if profile.devices.len() == 1 {
            self.used.extend(profile.processes.iter().map(|process| process.pid));
        }
        let view = View { dropped, ..self.view(profile) };
        let notices = self.alerts.look("my runs/s", None, &view, reference, self.at());
        self.looks += 1;
        notices
    }

    /// Looks `count` times at the same profile; only the last look gives a notice.
    fn until_last(&mut self, count: u32, profile: &Profile, reference: Option<&Reference>) -> Notice {
        for _ in 1..count {
            assert_eq!(told(&self.look(profile, reference, 0)), Vec::<String>::new());
        }
        let mut notices = self.look(profile, reference, 0);
        assert_eq!(notices.len(), 1, "{notices:?}");
        notices.remove(0)
    }
}

fn told(notices: &[Notice]) -> Vec<String> {
    notices.iter().map(message::line).collect()
}

/// Returns a profile with steps of `mean_ms` milliseconds on average.
fn stepping(count: u64, mean_ms: f64) -> Profile {
    let mean_ns = 1e6 * mean_ms;
    let step_ns = Figure::predicted(mean_ns, (0.996 * mean_ns, 1.004 * mean_ns)).of_samples(count);
    let iterations = Iterations { count, step_ns, launches: 40.0, ..Iterations::default() };
    let activity = Activity { iterations: Some(iterations), ..Activity::default() };
    Profile { activities: vec![activity], processes: processes(1), ..Profile::default() }
}

fn processes(count: u32) -> Vec<Process> {
    let process = |at: u32| Process { pid: 100 + at, rank: Some(at as usize), ..Process::default() };
    (0..count).map(process).collect()
}

#[test]
fn a_session_that_is_slower_than_a_good_run_says_so_once_until_it_is_not() {
    let good = Reference::of("good".into(), &stepping(800, 24.4));
    let mut looks = Looks::new(&[]);
    assert_eq!(told(&looks.look(&stepping(40, 24.6), Some(&good), 0)), Vec::<String>::new());
    let fired = looks.until_last(3, &stepping(40, 36.6), Some(&good));
    assert_eq!(
        message::line(&fired),
        "alert slower: my runs/s: a step takes 36.6 ms instead of 24.4 ms in good (50.0% longer; means of 40 \
         and 800 steps); for 20.0 s"
    );
    assert_eq!(fired.alert.next, "apex diff good 'my runs/s'");
    // What lies between 5% and 10%, windows without steps, and too few of them leave it as it is.
    for unclear in [stepping(40, 26.2), Profile::default(), stepping(4, 24.4)] {
        for _ in 0..5 {
            assert_eq!(told(&looks.look(&unclear, Some(&good), 0)), Vec::<String>::new());
        }
    }
    let over = looks.until_last(3, &stepping(40, 24.5), Some(&good));
    assert_eq!(over.state, State::Resolved);
    assert_eq!(looks.alerts.firing().count(), 0);
    let line = message::line(&over);
    assert!(line.starts_with("over slower: my runs/s, after 200 s; it was: a step takes 36.6 ms"), "{line}");
}

#[test]
fn without_a_good_run_and_where_it_is_off_nothing_is_slower() {
    let good = Reference::of("good".into(), &stepping(800, 24.4));
    let (mut off, mut alone) = (Looks::new(&["slower=off"]), Looks::new(&[]));
    for _ in 0..10 {
        assert_eq!(told(&off.look(&stepping(40, 90.0), Some(&good), 0)), Vec::<String>::new());
        assert_eq!(told(&alone.look(&stepping(40, 90.0), None, 0)), Vec::<String>::new());
    }
}

/// Returns a device's activity with `kernels_ns` of work and `idle_ns` of idleness in this process.
fn used(process: usize, kernels_ns: f64, idle_ns: f64, waiting_ns: f64) -> Activity {
    let predicted = |ns: f64| Figure::predicted(ns, (0.9 * ns, 1.1 * ns));
    let accounts = Accounts {
        span_ns: kernels_ns + idle_ns + waiting_ns,
        kernels: predicted(kernels_ns),
        waiting: predicted(waiting_ns),
        collectives: predicted(if waiting_ns > 0.0 { 1e8 } else { 0.0 }),
        idle: [(IdleCause::HostCode, predicted(idle_ns))].into(),
        ..Accounts::default()
    };
    Activity { process, device: Some(0), span_ns: accounts.span_ns, accounts, ..Activity::default() }
}

fn on_gpu(activities: Vec<Activity>) -> Profile {
    let device = Device { uuid: GPU.into(), name: "NVIDIA H100".into(), ..Device::default() };
    let count = activities.iter().map(|activity| activity.process as u32 + 1).max().unwrap_or(1);
    Profile { devices: vec![device], processes: processes(count), activities, ..Profile::default() }
}

#[test]
fn an_idle_device_is_told_and_what_is_not_known_is_no_idleness() {
    let mut looks = Looks::new(&[]);
    let idle = on_gpu(vec![used(0, 4e9, 16e9, 0.0)]);
    let fired = looks.until_last(3, &idle, None);
    assert_eq!(fired.alert.subject, Subject::Device(GPU.into()));
    let line = message::line(&fired);
    assert!(line.contains(&format!("{GPU} was idle for 80.0% of the last 20.0 s (predicted")), "{line}");
    // It began at the first look, 100 s after the session's start.
    assert_eq!(fired.alert.next, "apex advise --window 100s.. 'my runs/s'");
    assert_eq!(looks.until_last(3, &on_gpu(vec![used(0, 19e9, 1e9, 0.0)]), None).state, State::Resolved);
    // The work of a few seconds tells nothing of the rest.
    let mut looks = Looks::new(&[]);
    for _ in 0..10 {
        assert_eq!(told(&looks.look(&on_gpu(vec![used(0, 1e9, 2e9, 0.0)]), None, 0)), Vec::<String>::new());
    }
    // Two processes that take turns leave it busy.
    let shared = on_gpu(vec![used(0, 10e9, 10e9, 0.0), used(1, 9e9, 11e9, 0.0)]);
    for _ in 0..10 {
        assert_eq!(told(&looks.look(&shared, None, 0)), Vec::<String>::new());
    }
}

#[test]
fn a_device_on_which_nothing_is_launched_any_more_is_told_as_long_as_its_process_runs() {
    let mut looks = Looks::new(&[]);
    let nothing = Profile::default();
    for _ in 0..5 {
        assert_eq!(told(&looks.look(&nothing, None, 0)), Vec::<String>::new(), "it has not begun");
    }
    assert_eq!(told(&looks.look(&on_gpu(vec![used(0, 19e9, 1e9, 0.0)]), None, 0)), Vec::<String>::new());
    let line = message::line(&looks.until_last(3, &nothing, None));
    assert!(
        line.contains(&format!("nothing was launched on {GPU} in the last 20.0 s, and 1 process")),
        "{line}"
    );
    // Its process ends.
    looks.used.clear();
    let mut notices = Vec::new();
    for _ in 0..3 {
        let view = looks.view(&nothing);
        notices.extend(looks.alerts.look("my runs/s", None, &view, None, looks.at()));
        looks.looks += 1;
    }
    assert_eq!(notices.iter().map(|notice| notice.state).collect::<Vec<_>>(), [State::Resolved]);
}

#[test]
fn the_rank_that_the_others_wait_for_is_named() {
    let mut looks = Looks::new(&[]);
    let ranks = |waits: [f64; 4]| {
        let of_rank = |(rank, waits): (usize, f64)| used(rank, 19e9 - waits, 1e9, waits);
        on_gpu(waits.into_iter().enumerate().map(of_rank).collect())
    };
    let fired = looks.until_last(3, &ranks([6e9, 5e9, 0.2e9, 7e9]), None);
    assert_eq!(
        (fired.alert.subject, fired.alert.next.as_str()),
        (Subject::Rank(2), "apex report --rank 2 'my runs/s'")
    );
    assert_eq!(
        fired.alert.what,
        "the other ranks wait 30.0% of their time for rank 2 (process 102), which waits 1.0% (predicted from timed \
         launches)"
    );
    let over = looks.until_last(3, &ranks([0.2e9, 0.1e9, 0.2e9, 0.1e9]), None);
    assert_eq!(over.state, State::Resolved);
    // All wait alike, as where each collective is waited for by another one.
    for _ in 0..10 {
        assert_eq!(told(&looks.look(&ranks([4e9, 5e9, 4e9, 5e9]), None, 0)), Vec::<String>::new());
    }
}

#[test]
fn lost_records_are_told_at_once() {
    let mut looks = Looks::new(&[]);
    let profile = Profile::default();
    assert_eq!(told(&looks.look(&profile, None, 0)), Vec::<String>::new());
    let notices = looks.look(&profile, None, 1024);
    let line = &told(&notices)[0];
    assert!(line.contains("1,024 records were lost for want of space"), "{line}");
    assert!(line.ends_with("(1,024 since its start, measured)"), "it has not lasted yet: {line}");
    for dropped in [2000, 2000, 2000] {
        assert_eq!(told(&looks.look(&profile, None, dropped)), Vec::<String>::new());
    }
    assert_eq!(looks.look(&profile, None, 2000)[0].state, State::Resolved);
}

#[test]
fn a_device_that_its_power_limit_slows_is_told() {
    let mut looks = Looks::new(&[]);
    let busy = on_gpu(vec![used(0, 19e9, 1e9, 0.0)]);
    let mut look = |capped: Option<f64>| {
        looks.used = [100].into();
        let mut readings = Readings::default();
        if let Some(capped) = capped {
            readings.set(Quantity::PowerCapped, capped);
            readings.set(Quantity::Power, 698.4);
            readings.set(Quantity::PowerLimit, 700.0);
        }
        let view = View { readings: [(GPU.to_owned(), readings)].into(), ..looks.view(&busy) };
        let notices = looks.alerts.look("s", None, &view, None, looks.at());
        looks.looks += 1;
        told(&notices)
    };
    let mut lines = Vec::new();
    let capped = [Some(0.9), Some(0.9), None, Some(0.4), Some(0.8), Some(0.8), Some(0.8), None, None, None];
    capped.into_iter().for_each(|capped| lines.extend(look(capped)));
    let expected = format!(
        "alert power-capped: s: {GPU} lowered its clocks for its power limit 80.0% of the time (measured; 698 W of \
         700 W); for 20.0 s"
    );
    assert_eq!(lines, [expected]);
    let over: Vec<_> = (0..3).flat_map(|_| look(Some(0.1))).collect();
    assert!(over.len() == 1 && over[0].starts_with("over power-capped: s"), "{over:?}");
}

#[test]
fn a_snapshot_tells_which_devices_are_used_and_what_the_machine_read_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = test_session::Recording::new(dir.path());
    let function = recording.function("f");
    let config = recording.config(function, 1, 32);
    recording.launch(config, test_session::LEGACY);
    let mut snapshot = Follower::new(dir.path(), Duration::from_secs(1)).look().unwrap();
    let reading = |device, share| {
        let mut readings = Readings::default();
        readings.set(Quantity::PowerCapped, share);
        DeviceRecord { device, readings, ..DeviceRecord::default() }
    };
    let of_machine = |uuid: &str| apex_machine::Device { uuid: uuid.into(), ..Default::default() };
    let record =
        Record { to_ns: SECOND, devices: vec![reading(0, 1.0), reading(1, 0.25)], ..Record::default() };
    snapshot.machine.devices = vec![of_machine("GPU-other"), of_machine(GPU)];
    snapshot.machine.records = vec![record];
    let view = View::from(&snapshot);
    assert_eq!(view.used, BTreeMap::from([(GPU.to_owned(), BTreeSet::from([std::process::id()]))]));
    let shares =
        view.readings.iter().map(|(uuid, of)| (uuid.as_str(), of.get(Quantity::PowerCapped).unwrap().mean));
    assert_eq!(shares.collect::<Vec<_>>(), [(GPU, 0.25)]);
    recording.exit();
    let snapshot = Follower::new(dir.path(), Duration::from_secs(1)).look().unwrap();
    assert!(View::from(&snapshot).used.is_empty(), "nothing runs any more");
}

#[test]
fn what_ends_with_its_session_says_so() {
    let mut looks = Looks::new(&[]);
    let good = Reference::of("good".into(), &stepping(800, 24.4));
    looks.until_last(3, &stepping(40, 36.6), Some(&good));
    let ended = looks.alerts.end("my runs/s", looks.at());
    assert_eq!(ended.len(), 1);
    let line = message::line(&ended[0]);
    assert!(line.starts_with("over slower: my runs/s has ended, 30.0 s after it began"), "{line}");
    assert!(looks.alerts.end("my runs/s", looks.at()).is_empty());
    // It can be watched anew.
    looks.until_last(3, &stepping(40, 36.6), Some(&good));
}

#[test]
fn webhooks_and_alertmanager_get_what_the_line_says() {
    let mut looks = Looks::new(&[]);
    let fired = looks.until_last(3, &on_gpu(vec![used(0, 4e9, 16e9, 0.0)]), None);
    let document: Value = serde_json::from_slice(&message::document(&fired)).unwrap();
    let text = |member: &str| document[member].as_str().unwrap().to_owned();
    assert_eq!(
        (text("schema"), text("state"), text("reason")),
        ("apex.alert/1".into(), "firing".into(), "new".into())
    );
    assert_eq!((text("alert"), text("device_uuid")), ("idle".into(), GPU.into()));
    assert_eq!((text("since"), text("at")), ("2026-11-23T17:22:31Z".into(), "2026-11-23T17:22:51Z".into()));
    assert_eq!(document["value"]["provenance"], "predicted");
    assert!(text("text").contains(&message::line(&fired)) && text("text").ends_with(&fired.alert.next));

    let firing = || looks.alerts.firing();
    let now = looks.at().real_ns;
    let body = message::alertmanager(firing(), &[fired], now, Duration::from_secs(240)).unwrap();
    let posted: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(posted.as_array().unwrap().len(), 1);
    let labels = serde_json::json!({
        "alertname": "ApexGpuIdle", "severity": "warning", "session": "my runs/s", "UUID": GPU
    });
    assert_eq!(posted[0]["labels"], labels);
    assert_eq!(posted[0]["startsAt"], "2026-11-23T17:22:31Z");
    assert_eq!(posted[0]["endsAt"], "2026-11-23T17:27:01Z", "240 s after the next look");

    let ended = looks.alerts.end("my runs/s", looks.at());
    let body = message::alertmanager(looks.alerts.firing(), &ended, now, Duration::from_secs(240)).unwrap();
    let posted: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&posted[0]["labels"], &posted[0]["endsAt"]), (&labels, &"2026-11-23T17:23:01Z".into()));
    assert_eq!(message::alertmanager(looks.alerts.firing(), &[], now, Duration::ZERO), None);
}

#[test]
fn foreign_text_is_escaped_where_it_is_read() {
    let mut alerts = Alerts::new(Limits::default(), Duration::from_secs(1));
    let good = Reference::of("good\x1b[2J".into(), &stepping(800, 24.4));
    let slow = stepping(40, 36.6);
    let window = 0..20 * SECOND;
    let view = View { profile: &slow, window, used: BTreeMap::new(), readings: BTreeMap::new(), dropped: 1 };
    let mut notices = Vec::new();
    for monotonic_ns in 0..3 {
        let at = Moment { monotonic_ns, real_ns: 0 };
        notices.extend(alerts.look("s\n\u{202e}", None, &view, Some(&good), at));
    }
    assert_eq!(notices.len(), 2);
    for line in told(&notices) {
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
    }
}
