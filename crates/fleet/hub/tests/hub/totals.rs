//! Totals are exact, and the model notices a receiver that is wrong.

use crate::common::{Running, message, now_ns};
use apex_aggregate::{Aggregate, Energy, PARTS, Times};
use apex_random::Random;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// What a database says: times of all jobs, of all days, launches of kernels, counts.
pub fn totals(database: &Path) -> Totals {
    let connection = Connection::open(database).unwrap();
    let sums: Vec<String> = PARTS.iter().map(|(name, _)| format!("coalesce(sum(us_{name}), 0)")).collect();
    let times = |table: &str| {
        let mut parts = [0; PARTS.len()];
        let sql = format!("SELECT {} FROM {table}", sums.join(", "));
        connection
            .query_row(&sql, [], |row| {
                for (at, part) in parts.iter_mut().enumerate() {
                    *part = row.get::<_, i64>(at)? as u64;
                }
                Ok(())
            })
            .unwrap();
        Times::of_parts(parts)
    };
    // Sums of longer times are those of their days.
    for (days, owner) in [(1, "''"), (8, "owner"), (64, "owner")] {
        for [one, other] in [["days", "spans"], ["spans", "days"]] {
            let of = |table: &str| {
                match table {
                "days" => format!(
                    "SELECT day - day % {days}, {owner}, sum(recordings), {0}, sum(us_shared), sum(us_unused), sum(mj_energy)
                     FROM days GROUP BY tenant, 1, 2",
                    sums.join(", ")
                ),
                _ => format!(
                    "SELECT start, owner, recordings, {}, us_shared, us_unused, mj_energy FROM spans WHERE days = {days}",
                    PARTS.map(|(name, _)| format!("us_{name}")).join(", ")
                ),
            }
            };
            let differ = format!("SELECT count(*) FROM ({} EXCEPT {})", of(one), of(other));
            let differ: i64 = connection.query_row(&differ, [], |row| row.get(0)).unwrap();
            assert_eq!(differ, 0, "{one} of {days} days");
        }
    }
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
    let kernels = connection
        .prepare("SELECT name, sum(launches) FROM kernels GROUP BY name HAVING sum(launches) != 0")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    Totals {
        jobs: times("jobs"),
        days: times("days"),
        kernels,
        recordings: one("SELECT coalesce(sum(recordings), 0) FROM jobs"),
        running: one("SELECT coalesce(sum(running), 0) FROM jobs"),
        failed: one("SELECT coalesce(sum(failed), 0) FROM jobs"),
        lost: one("SELECT coalesce(sum(lost_records), 0) FROM jobs"),
        energy: ["jobs", "days"].map(|table| Energy {
            mj: one(&format!("SELECT coalesce(sum(mj_energy), 0) FROM {table}")),
            metered_us: one(&format!("SELECT coalesce(sum(us_metered), 0) FROM {table}")),
            idle_mj: one(&format!("SELECT coalesce(sum(mj_idle), 0) FROM {table}")),
        }),
    }
}

/// Sums over all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    jobs: Times,
    days: Times,
    kernels: BTreeMap<String, u64>,
    recordings: u64,
    running: u64,
    failed: u64,
    lost: u64,
    /// Of jobs and of days.
    energy: [Energy; 2],
}

/// The sums of the newest message of each recording.
pub fn expected<'a>(newest: impl Iterator<Item = &'a Aggregate>) -> Totals {
    let mut totals = Totals::default();
    for of in newest {
        totals.jobs.add(&of.times());
        totals.days.add(&of.times());
        for kernel in of.kernels.listed.iter().chain([&of.kernels.others]) {
            let name = if kernel.name.is_empty() { "(other)".to_owned() } else { kernel.name.clone() };
            *totals.kernels.entry(name).or_default() += kernel.launches;
        }
        totals.recordings += 1;
        totals.running += u64::from(of.ended.is_none());
        totals.failed += u64::from(of.ended.is_some_and(|end| !end.is_success()));
        totals.lost += of.lost_records;
        totals.energy.iter_mut().for_each(|sum| sum.add(&of.energy()));
    }
    totals
}

/// Messages of some recordings, each with a last one, in any order, some of them several times.
fn deliveries(seed: u64) -> Vec<Aggregate> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    for recording in 0..12 {
        for sequence in 1..=1 + random.below(6) {
            let copies = 1 + random.below(2);
            (0..copies).for_each(|_| all.push(message(recording, sequence)));
        }
    }
    random.shuffle(&mut all);
    all
}

/// The newest message of each recording among these.
pub fn newest(all: &[Aggregate]) -> BTreeMap<String, Aggregate> {
    let mut newest: BTreeMap<String, Aggregate> = BTreeMap::new();
    for of in all {
        let known = newest.entry(of.recording.clone()).or_insert_with(|| of.clone());
        if of.sequence > known.sequence {
            *known = of.clone();
        }
    }
    newest
}

#[test]
fn what_comes_twice_late_or_in_another_order_counts_once() {
    for seed in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("hub.db");
        let hub = Running::start(&database);
        let all = deliveries(seed);
        let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
        for of in &all {
            let answer = hub.post(&of.to_bytes());
            assert_eq!(answer.status, 200, "{}", answer.body);
            let known = highest.entry(&of.recording).or_default();
            *known = of.sequence.max(*known);
            assert_eq!(answer.confirmed(), Some(*known));
        }
        assert_eq!(totals(&database), expected(newest(&all).values()), "seed {seed}");
        assert_eq!(hub.count("added"), 12);
        let counted: u64 = ["added", "replaced", "repeated", "older"].iter().map(|of| hub.count(of)).sum();
        assert_eq!(counted, all.len() as u64);
    }
}

#[test]
fn messages_at_once_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let hub = Running::start(&database);
    let all = deliveries(77);
    std::thread::scope(|scope| {
        for part in 0..8 {
            let (hub, all) = (&hub, &all);
            scope.spawn(move || {
                // Each thread delivers all, from another beginning on.
                for at in 0..all.len() {
                    let of = &all[(at + part * 7) % all.len()];
                    assert_eq!(hub.post(&of.to_bytes()).status, 200);
                }
            });
        }
    });
    assert_eq!(totals(&database), expected(newest(&all).values()));
}

#[test]
fn names_beyond_the_bound_share_a_sum_which_stays_exact() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let hub = Running::start(&database);
    let of_owner = |recording: u64, sequence: u64| {
        let mut of = message(recording, sequence);
        of.owner = format!("owner {recording}");
        of.kernels.listed.truncate(1);
        of.kernels.listed[0].name = format!("kernel {recording}");
        of
    };
    hub.post(&of_owner(1, 1).to_bytes());
    // The bound is reached otherwise than by 5000 messages.
    let mut connection = Connection::open(&database).unwrap();
    let connection = connection.transaction().unwrap();
    for kind in ["owner", "kernel"] {
        for number in 0..apex_hub::MOST_NAMES - 1 {
            connection
                .execute("INSERT INTO names SELECT id, ?1, ?2 FROM tenants", (kind, format!("n{number}")))
                .unwrap();
        }
    }
    connection.commit().unwrap();
    let all: Vec<_> = [(2, 1), (1, 2), (3, 1), (2, 5)].map(|(of, sequence)| of_owner(of, sequence)).into();
    all.iter().for_each(|of| assert_eq!(hub.post(&of.to_bytes()).status, 200));
    let mut model = expected(newest(&all).values());
    let (mut other, mut first) = (0, 0);
    for (name, launches) in &model.kernels {
        *(if name == "kernel 1" { &mut first } else { &mut other }) += launches;
    }
    model.kernels = [("kernel 1".to_owned(), first), ("(other)".to_owned(), other)].into();
    assert_eq!(totals(&database), model);
    let owners = hub.json("/api/v1/owners");
    let names: Vec<_> =
        owners["owners"].as_array().unwrap().iter().map(|of| of["owner"].as_str().unwrap()).collect();
    assert!(names.contains(&"owner 1") && names.contains(&"(other)") && names.len() == 2, "{names:?}");
}

#[test]
fn a_database_survives_a_restart_and_an_older_one_is_brought_up() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let first = Running::start(&database);
    assert_eq!(first.post(&message(1, 1).to_bytes()).status, 200);
    drop(first);
    let again = Running::start(&database);
    assert_eq!(again.post(&message(1, 1).to_bytes()).status, 200);
    assert_eq!(again.count("repeated"), 1);
    drop(again);
    let connection = Connection::open(&database).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let refused = apex_hub::Store::open(&database).unwrap_err().to_string();
    assert!(refused.contains("version 99") && refused.contains("upgrade"), "{refused}");
}

#[test]
fn a_file_of_another_program_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let [other, text] = ["other.db", "text.db"].map(|name| folder.path().join(name));
    for version in [0, 3] {
        drop(std::fs::remove_file(&other));
        let connection = Connection::open(&other).unwrap();
        connection.execute_batch("CREATE TABLE bookmarks (address TEXT)").unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        drop(connection);
        assert_refused(&other);
    }
    std::fs::write(&text, "no database, but long enough for the first page of one".repeat(40)).unwrap();
    assert_refused(&text);
}

/// The file is refused by its name, and no byte of it changes.
fn assert_refused(path: &Path) {
    let before = std::fs::read(path).unwrap();
    let refused = apex_hub::Store::open(path).unwrap_err().to_string();
    let expected = format!("{} is no database of a hub", path.display());
    assert!(refused.starts_with(&expected), "{refused}");
    assert_eq!(std::fs::read(path).unwrap(), before);
}

/// A receiver of messages, for the test of the tests: what it has confirmed has to be in its sums.
trait Receiver {
    /// Takes a message, and returns whether it confirms it.
    fn take(&mut self, of: &Aggregate) -> bool;
    /// Is killed, and starts again.
    fn restart(&mut self);
    /// Its sum of held time.
    fn held_us(&self) -> u64;
}

/// The hub's own store, in this process.
struct Real {
    database: std::path::PathBuf,
    hub: Option<Running>,
}

impl Receiver for Real {
    fn take(&mut self, of: &Aggregate) -> bool {
        self.hub.as_ref().unwrap().post(&of.to_bytes()).confirmed() >= Some(of.sequence)
    }

    fn restart(&mut self) {
        self.hub = None;
        self.hub = Some(Running::start(&self.database));
    }

    fn held_us(&self) -> u64 {
        totals(&self.database).jobs.held_us()
    }
}

/// A receiver that confirms before it commits: a restart loses what it had not committed.
#[derive(Default)]
struct ConfirmsFirst {
    committed: BTreeMap<String, Aggregate>,
    pending: Vec<Aggregate>,
}

impl Receiver for ConfirmsFirst {
    fn take(&mut self, of: &Aggregate) -> bool {
        self.pending.push(of.clone());
        if self.pending.len() == 16 {
            let all: Vec<Aggregate> =
                self.committed.values().cloned().chain(self.pending.drain(..)).collect();
            self.committed = newest(&all);
        }
        true
    }

    fn restart(&mut self) {
        self.pending.clear();
    }

    fn held_us(&self) -> u64 {
        let all: Vec<Aggregate> = self.committed.values().chain(&self.pending).cloned().collect();
        newest(&all).values().map(|of| of.times().held_us()).sum()
    }
}

/// A receiver that remembers only its last messages, and adds what it does not remember.
#[derive(Default)]
struct Windowed {
    recent: std::collections::VecDeque<(String, u64)>,
    held: BTreeMap<(String, u64), (u64, u64)>,
}

impl Receiver for Windowed {
    fn take(&mut self, of: &Aggregate) -> bool {
        let id = (of.recording.clone(), of.sequence);
        if !self.recent.contains(&id) {
            let added = self.held.entry(id.clone()).or_insert((of.times().held_us(), 0));
            added.1 += 1;
            self.recent.push_back(id);
            if self.recent.len() > 8 {
                self.recent.pop_front();
            }
        }
        true
    }

    fn restart(&mut self) {}

    fn held_us(&self) -> u64 {
        let last =
            |recording: &str| self.held.keys().filter(|(of, _)| of == recording).map(|(_, s)| *s).max();
        let newest = self.held.iter().filter(|((of, sequence), _)| last(of) == Some(*sequence));
        newest.map(|(_, (held, times))| held * times).sum()
    }
}

/// Delivers to a receiver that is restarted now and then, again and again until it has confirmed
/// the newest of all, and returns whether its sum is right.
fn is_exact(receiver: &mut dyn Receiver, seed: u64) -> bool {
    let (all, mut random) = (deliveries(seed), Random::new(seed + 1000));
    let mut confirmed: BTreeMap<&str, u64> = BTreeMap::new();
    let newest = newest(&all);
    for of in &all {
        // A confirmation may be lost on its way.
        if receiver.take(of) && random.below(3) > 0 {
            let known = confirmed.entry(&of.recording).or_default();
            *known = of.sequence.max(*known);
        }
        if random.below(12) == 0 {
            receiver.restart();
        }
    }
    for of in newest.values() {
        while confirmed.get(of.recording.as_str()) < Some(&of.sequence) {
            if receiver.take(of) {
                confirmed.insert(&of.recording, of.sequence);
            }
        }
    }
    receiver.restart();
    receiver.held_us() == newest.values().map(|of| of.times().held_us()).sum::<u64>()
}

#[test]
fn the_hub_is_exact_and_planted_bugs_are_caught() {
    for seed in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("hub.db");
        let hub = Some(Running::start(&database));
        assert!(is_exact(&mut Real { database, hub }, seed), "seed {seed}");
    }
    let caught =
        |make: &dyn Fn() -> Box<dyn Receiver>| (0..20).filter(|&seed| !is_exact(&mut *make(), seed)).count();
    let confirms_first = caught(&|| Box::<ConfirmsFirst>::default());
    assert!(confirms_first >= 10, "{confirms_first} of 20");
    let windowed = caught(&|| Box::<Windowed>::default());
    assert!(windowed >= 10, "{windowed} of 20");
}

#[test]
fn a_message_of_the_future_or_of_long_ago_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    let hub = Running::start(&database);
    const DAY: u64 = 86_400_000_000_000;
    let mut of = message(1, 1);
    (of.started_ns, of.as_of_ns) = (now_ns() + 2 * DAY, now_ns() + 2 * DAY);
    assert_eq!(hub.post(&of.to_bytes()).status, 422);
    // Recordings of before that moment may have been removed.
    let connection = Connection::open(&database).unwrap();
    connection.execute("INSERT INTO horizon VALUES (1, ?1)", [(now_ns() - 90 * DAY) as i64]).unwrap();
    (of.started_ns, of.as_of_ns) = (now_ns() - 200 * DAY, now_ns() - 91 * DAY);
    assert_eq!(hub.post(&of.to_bytes()).status, 422);
    assert_eq!((hub.count("refused_future"), hub.count("refused_past")), (1, 1));
    // Neither is one whose clock begins in 1970, nor one that ends in ten years.
    (of.started_ns, of.as_of_ns) = (1, now_ns());
    assert_eq!(hub.post(&of.to_bytes()).status, 422);
    (of.started_ns, of.as_of_ns) = (now_ns() - DAY, 1);
    assert_eq!(hub.post(&of.to_bytes()).status, 422);
    (of.started_ns, of.as_of_ns) = (now_ns() - DAY, now_ns());
    of.ended = Some(apex_aggregate::End { at_ns: now_ns() + 3650 * DAY, status: Some(0), signal: None });
    assert_eq!(hub.post(&of.to_bytes()).status, 422);
    of.ended = None;
    assert_eq!((hub.count("refused_clock"), hub.count("refused_future")), (2, 2));
    let page = hub.get("/health").body;
    assert!(page.contains("refused_clock") && page.contains("two years before the hub's present"), "{page}");
    assert_eq!(totals(&database), Totals::default());
    // A clock that is an hour off does not matter, and neither does a run of 200 days.
    (of.started_ns, of.as_of_ns) = (now_ns() - 200 * DAY, now_ns() + DAY / 24);
    assert_eq!(hub.post(&of.to_bytes()).status, 200);
    // A recording stays in its job.
    of.sequence = 2;
    of.job.id = "another".to_owned();
    assert_eq!(hub.post(&of.to_bytes()).status, 409);
    assert_eq!(hub.count("refused_other_job"), 1);
    assert_eq!(totals(&database).recordings, 1);
    assert_eq!(hub.json("/api/v1/jobs")["jobs"].as_array().unwrap().len(), 1);
}
