//! What counts as GPU time: each device once, no CPU device, and what nobody used by itself; and
//! that a job is what the newest messages of its recordings say.

use crate::common::{Running, message, now_ns};
use crate::totals::{newest, totals};
use apex_aggregate::{Aggregate, Allocation, Device, Kind, Metered, Step, Times};
use apex_random::Random;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

const SECOND: u64 = 1_000_000_000;

/// An hour ago, by a clock that is read once: messages of one test are of one time.
static HOUR_AGO_NS: LazyLock<u64> = LazyLock::new(|| (now_ns() - 3600 * SECOND) / SECOND * SECOND);

/// A recording that held a device from a second to another one, an hour ago.
fn held(recording: u64, sequence: u64, device: &str, from: u64, until: u64) -> Aggregate {
    let begin = *HOUR_AGO_NS;
    let mut of = message(recording, sequence);
    (of.started_ns, of.as_of_ns) = (begin + from * SECOND, begin + until * SECOND);
    of.ended = None;
    let uuid = if device.starts_with("GPU-") { device.to_owned() } else { String::new() };
    of.devices = vec![Device { name: "H200".to_owned(), uuid, ..Device::default() }];
    let us = (until - from) * 1_000_000;
    of.uses[0].times = Times { kernels_us: us / 4, outside_us: us - us / 4, ..Times::default() };
    of
}

fn times(hub: &Running, path: &str, at: &str) -> (u64, u64, u64) {
    let found = hub.json(path).pointer(at).unwrap_or(&Value::Null).clone();
    let of = |name: &str| found[name].as_u64().unwrap_or_else(|| panic!("{path} {at} {name}: {found}"));
    (of("held_us"), of("busy_us"), of("shared_us"))
}

/// Seconds that are in at least one of these.
fn union(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let mut reached = 0;
    let mut sum = 0;
    for (from, until) in intervals {
        sum += until.saturating_sub(from.max(reached));
        reached = until.max(reached);
    }
    sum
}

#[test]
fn a_device_that_processes_share_is_held_once() {
    for seed in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let hub = Running::start(&folder.path().join("hub.db"));
        let mut random = Random::new(seed);
        // Recordings of two jobs on three devices, each told of twice, in any order.
        let mut all = Vec::new();
        let mut intervals: BTreeMap<String, (u64, &str, u64, u64)> = BTreeMap::new();
        for recording in 0..8 {
            let device = ["GPU-1", "GPU-2", "GPU-3"][random.below(3) as usize];
            let from = random.below(300);
            let (first, last) = (from + random.below(200), from + 200 + random.below(300));
            all.push(held(recording, 1, device, from, first));
            all.push(held(recording, 2, device, from, last));
            intervals.insert(format!("{recording:032x}"), (recording / 4, device, from, last));
        }
        random.shuffle(&mut all);
        for of in &all {
            assert_eq!(hub.post(&of.to_bytes()).status, 200);
        }
        let expected = |wanted: &dyn Fn(u64) -> bool| -> u64 {
            let mut by_device: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
            let of_jobs = intervals.values().filter(|of| wanted(of.0));
            of_jobs.for_each(|of| by_device.entry(of.1).or_default().push((of.2, of.3)));
            by_device.into_values().map(union).sum::<u64>() * 1_000_000
        };
        for job in hub.json("/api/v1/jobs")["jobs"].as_array().unwrap() {
            let number: u64 = job["job"].as_str().unwrap().trim_start_matches("job ").parse().unwrap();
            assert_eq!(job["times"]["held_us"], expected(&|of| of == number), "seed {seed}: {job}");
        }
        let (held, busy, shared) = times(&hub, "/api/v1/report", "/times");
        let parts: u64 = newest(&all).values().map(|of| of.times().held_us()).sum();
        assert_eq!((held, held + shared), (expected(&|_| true), parts), "seed {seed}");
        assert!(busy.abs_diff(held / 4) <= 8 && shared > 0, "seed {seed}: {busy} of {held}");
    }
}

#[test]
fn processes_of_one_recording_share_a_device_and_hosts_without_uuids_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    let mut of = held(0, 1, "GPU-1", 0, 100);
    of.uses.push(of.uses[0]);
    assert_eq!(hub.post(&of.to_bytes()).status, 200);
    assert_eq!(times(&hub, "/api/v1/jobs/1", "/job/times"), (100_000_000, 25_000_000, 100_000_000));
    assert!(hub.get("/jobs/1").body.contains("Processes shared devices"));
    // The first device of another host is another device.
    for recording in [5, 6, 7] {
        assert_eq!(hub.post(&held(recording, 1, "", 0, 10).to_bytes()).status, 200);
    }
    // (Recordings 5 and 7 are of one host, 6 of another one.)
    let (held_us, _, shared) = times(&hub, "/api/v1/jobs/2", "/job/times");
    assert_eq!((held_us, shared), (20_000_000, 10_000_000));
}

#[test]
fn the_cpu_device_takes_no_gpu_time_and_no_money() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let hub = Running::start(&database);
    for (recording, device) in [
        (0, Device { name: "any".to_owned(), kind: Kind::Cpu, ..Device::default() }),
        // A message of before there were kinds.
        (4, Device { name: "APEX CPU device (sm_80)".to_owned(), ..Device::default() }),
    ] {
        let mut of = message(recording, 1);
        of.devices = vec![device];
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
        let told = hub.json(&format!("/api/v1/jobs/{}", recording / 4 + 1));
        assert_eq!(told["job"]["times"]["held_us"], 0);
        let cpu_us = of.cpu_device_times().held_us();
        assert_eq!(
            (&told["job"]["cpu_device_us"], &told["cpu_device"]["held_us"]),
            (&cpu_us.into(), &cpu_us.into())
        );
        assert!(cpu_us > 0 && of.holds().is_empty() && of.times() == Times::default());
    }
    for (path, at) in
        [("/api/v1/report", "/times"), ("/api/v1/owners", "/owners/0/times"), ("/api/v1/jobs", "/times")]
    {
        assert_eq!(times(&hub, path, at), (0, 0, 0), "{path}");
    }
    assert_eq!(hub.json("/api/v1/kernels")["kernels"], json!([]));
    let page = hub.get("/").body;
    assert!(page.contains("CPU device") && page.contains("<dt>cost</dt><dd>0.00</dd>"), "{page}");
    assert!(hub.get("/jobs/1").body.contains("This is no GPU time"));
    // A later message that names a GPU is GPU time.
    let later = message(0, 2);
    assert_eq!(hub.post(&later.to_bytes()).status, 200);
    assert_eq!(times(&hub, "/api/v1/report", "/times").0, later.times().held_us());
    assert_eq!(hub.json("/api/v1/jobs/1")["job"]["cpu_device_us"], 0);
}

#[test]
fn gpus_that_were_given_and_never_used_are_told_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let hub = Running::start(&database);
    let given = |mut of: Aggregate, devices: &[&str]| {
        let devices = devices.iter().map(|&device| device.to_owned()).collect();
        of.allocation = Some(Allocation { source: "SLURM_JOB_GPUS".to_owned(), devices });
        of
    };
    let unused = |path: &str, at: &str| hub.json(path).pointer(at).unwrap()["unused_us"].as_u64().unwrap();
    // Four devices on host0, of which ranks 0 and 2 use two; three on host1, of which rank 1 sees
    // one and rank 3 two, and they use one together.
    for of in [
        given(held(0, 1, "GPU-1", 0, 100), &["0", "1", "2", "3"]),
        given(held(2, 1, "GPU-2", 50, 200), &["0", "1", "2", "3"]),
        given(held(1, 1, "GPU-3", 0, 60), &["0"]),
        given(held(3, 1, "GPU-3", 0, 30), &["1", "2"]),
    ] {
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
    }
    let expected = (2 * 200 + 2 * 60) * 1_000_000;
    assert_eq!(unused("/api/v1/jobs/1", "/job/times"), expected);
    assert_eq!(unused("/api/v1/report", "/times"), expected);
    assert!(hub.get("/").body.contains("allocated, never used"));
    assert!(hub.get("/owners").body.contains("allocated, never used"));
    // A message that comes again, or from a rank that found work, changes it.
    let mut found = given(held(0, 2, "GPU-1", 0, 100), &["0", "1", "2", "3"]);
    found.devices.push(Device { uuid: "GPU-9".to_owned(), ..found.devices[0].clone() });
    let mut of_second = found.uses[0];
    of_second.device = Some(1);
    found.uses.push(of_second);
    assert_eq!(hub.post(&found.to_bytes()).status, 200);
    assert_eq!(unused("/api/v1/report", "/times"), (200 + 2 * 60) * 1_000_000);
    // Where nobody says what was given, nothing is said.
    assert_eq!(hub.post(&held(8, 1, "GPU-1", 0, 5).to_bytes()).status, 200);
    assert_eq!(unused("/api/v1/jobs/2", "/job/times"), 0);
}

#[test]
fn energy_is_told_of_what_is_known_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    let metered = |mut of: Aggregate, mj: u64, idle_mw: Option<u64>| {
        of.devices[0].energy = Some(Metered { mj, us: 100_000_000, idle_mw });
        of
    };
    let told = |path: &str, at: &str| {
        let found = hub.json(path).pointer(at).unwrap().clone();
        [&found["energy_j"], &found["energy_known"], &found["idle_energy_j"]].map(Clone::clone)
    };
    let unknown = [Value::Null, json!(0.0), Value::Null];
    assert_eq!(hub.post(&held(0, 1, "GPU-1", 0, 100).to_bytes()).status, 200);
    assert_eq!(told("/api/v1/jobs/1", "/job/times"), unknown);
    assert!(hub.get("/jobs/1").body.contains("<dt>energy (measured)</dt><dd>unknown</dd>"));
    // 100 s of a GPU that a quarter was busy, and 100 s of one whose energy nobody knows.
    assert_eq!(
        hub.post(&metered(held(0, 2, "GPU-1", 0, 100), 30_000_000, Some(80_000)).to_bytes()).status,
        200
    );
    assert_eq!(told("/api/v1/jobs/1", "/job/times"), [json!(30_000.0), json!(1.0), json!(6_000.0)]);
    assert_eq!(hub.post(&held(1, 1, "GPU-2", 0, 100).to_bytes()).status, 200);
    let half = [json!(30_000.0), json!(0.5), json!(6_000.0)];
    for (path, at) in [("/api/v1/jobs/1", "/job/times"), ("/api/v1/report", "/times")] {
        assert_eq!(told(path, at), half, "{path}");
    }
    let by_cause = "/job/times/idle_energy_by_cause_j/outside";
    assert_eq!(hub.json("/api/v1/jobs/1").pointer(by_cause), Some(&json!(6_000.0)));
    let page = hub.get("/jobs/1").body;
    assert!(page.contains("8.33 Wh, of 50.0% of the time") && page.contains("energy at least"), "{page}");
    // Processes of another job on the same device: its energy counts once.
    assert_eq!(hub.post(&metered(held(8, 1, "GPU-1", 0, 100), 30_000_000, None).to_bytes()).status, 200);
    let [energy, known, _] = told("/api/v1/report", "/times");
    assert_eq!((energy, known), (json!(40_000.0), json!(2.0 / 3.0)), "in proportion: 200 s of 300 s of uses");
    // More than a device can take is refused, and a later message takes back what one before said.
    let impossible = metered(held(1, 2, "GPU-2", 0, 100), 1_000_000_001, None);
    assert_eq!(hub.post(&impossible.to_bytes()).status, 422);
    assert_eq!(hub.post(&held(0, 3, "GPU-1", 0, 100).to_bytes()).status, 200);
    assert_eq!(told("/api/v1/jobs/1", "/job/times"), unknown);
}

#[test]
fn a_job_is_what_the_newest_messages_say() {
    let folder = tempfile::tempdir().unwrap();
    let hub = Running::start(&folder.path().join("hub.db"));
    let step = |of: &mut Aggregate, ns: f64| of.step = Some(Step { ns, low_ns: ns, high_ns: ns, count: 9 });
    let (mut first, mut second) = (message(0, 1), message(1, 1));
    step(&mut first, 5e6);
    step(&mut second, 7e6);
    for of in [&first, &second] {
        assert_eq!(hub.post(&of.to_bytes()).status, 200);
    }
    let job = || hub.json("/api/v1/jobs/1")["job"].clone();
    assert_eq!(job()["step_ns"], 7e6, "the slowest rank's");
    (second.sequence, second.step) = (2, None);
    assert_eq!(hub.post(&second.to_bytes()).status, 200);
    assert_eq!(job()["step_ns"], 5e6);
    (first.sequence, first.step, first.job.ranks) = (2, None, 0);
    first.devices[0].name = "A100".to_owned();
    assert_eq!(hub.post(&first.to_bytes()).status, 200);
    assert_eq!((&job()["step_ns"], &job()["ranks_started"]), (&Value::Null, &4.into()));
    (second.sequence, second.job.ranks) = (3, 0);
    second.devices[0].name = "A100".to_owned();
    assert_eq!(hub.post(&second.to_bytes()).status, 200);
    assert_eq!((&job()["devices"], &job()["ranks_started"]), (&"A100".into(), &0.into()));
}

#[test]
fn a_database_of_the_first_version_is_brought_up() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let hub = Running::start(&database);
    for recording in 0..4 {
        assert_eq!(hub.post(&held(recording, 1, "GPU-1", 0, 100).to_bytes()).status, 200);
    }
    drop(hub);
    let connection = Connection::open(&database).unwrap();
    let columns = "DROP TRIGGER days_come; DROP TRIGGER days_change; DROP TABLE spans; DROP INDEX jobs_by_loss; DROP INDEX jobs_ended;
        CREATE INDEX jobs_by_series ON jobs (tenant, series, started_ns);
        ALTER TABLE jobs DROP COLUMN elapsed_us;
        ALTER TABLE jobs DROP COLUMN lost_us; ALTER TABLE jobs DROP COLUMN day;
        ALTER TABLE jobs DROP COLUMN mj_energy; ALTER TABLE jobs DROP COLUMN us_metered;
        ALTER TABLE jobs DROP COLUMN mj_idle; ALTER TABLE days DROP COLUMN mj_energy;
        ALTER TABLE days DROP COLUMN us_metered; ALTER TABLE days DROP COLUMN mj_idle;
        ALTER TABLE jobs DROP COLUMN us_shared; ALTER TABLE jobs DROP COLUMN us_unused;
        ALTER TABLE jobs DROP COLUMN us_cpu_device; ALTER TABLE days DROP COLUMN us_shared;
        ALTER TABLE days DROP COLUMN us_unused; DROP TABLE facts; DROP TABLE holds; DROP INDEX jobs_running; PRAGMA user_version = 1;";
    connection.execute_batch(columns).unwrap();
    drop(connection);
    let hub = Running::start(&database);
    // What was counted stays counted, and a later message finds what the others held.
    assert_eq!(times(&hub, "/api/v1/report", "/times").0, 400_000_000);
    for recording in 0..4 {
        assert_eq!(hub.post(&held(recording, 2, "GPU-1", 0, 200).to_bytes()).status, 200);
    }
    assert_eq!(hub.json("/api/v1/jobs/1")["job"]["step_ns"], 1e6);
    let all = totals(&database);
    drop(hub);
    assert_eq!(totals(&database), all);
}
