//! Agent and hub as processes that are killed at any moment.
//!
//! `PROPTEST_CASES=N` runs more rounds than CI does, `PROPTEST_RNG_SEED=N` begins with another
//! seed.

use crate::common::{Running, message, pem};
use crate::totals::{expected, totals};
use apex_aggregate::Aggregate;
use apex_delivery::{PATH, Route, deliver};
use apex_push::Target;
use apex_random::Random;
use apex_spool::{Entry, Limits, Spool};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use test_process::{Child, Command};

/// Recordings of a round.
const RECORDINGS: u64 = 6;
/// Messages of a recording.
const MESSAGES: u64 = 5;

/// Set for a hub that speaks TLS, and for what is sent to it.
const TLS: &str = "APEX_TEST_TLS";

/// One of the tests below that are not run by themselves, as a process.
fn part(name: &str, folder: &Path, port: u16) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("chaos::{name}"), "--exact", "--ignored", "--nocapture"]);
    command.env("APEX_TEST_FOLDER", folder).env("APEX_TEST_PORT", port.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn of_variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A message as a spool keeps it, for any hub: each process has another port.
fn entry(of: &Aggregate) -> Entry {
    Entry { key: of.recording.clone(), sequence: of.sequence, label: String::new(), body: of.to_bytes() }
}

fn hub_at(address: impl std::fmt::Display) -> Route {
    Target::new(&format!("http://{address}"), PATH).unwrap().into()
}

/// The hub at a port of this machine.
fn hub_of(port: u16, has_tls: bool) -> Route {
    let target = Target::new(&format!("https://127.0.0.1:{port}"), PATH).unwrap();
    match has_tls {
        true => target.with_trusted(&pem("authority.crt")).unwrap().into(),
        false => hub_at(format!("127.0.0.1:{port}")),
    }
}

fn folder() -> std::path::PathBuf {
    std::env::var_os("APEX_TEST_FOLDER").expect("the folder").into()
}

#[test]
#[ignore = "run by totals_are_exact_though_agent_and_hub_are_killed_at_any_moment"]
fn serves_until_it_is_killed() {
    let certificate = std::env::var_os(TLS).map(|_| "hub");
    let hub = Running::start_with(&folder().join("hub.db"), certificate);
    println!("listens {}", hub.address.port());
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "run by totals_are_exact_though_agent_and_hub_are_killed_at_any_moment"]
fn sends_until_all_is_confirmed() {
    let spool = Spool::open(&folder().join("spool"), Limits::default()).unwrap();
    let port = of_variable("APEX_TEST_PORT").unwrap() as u16;
    let target = hub_of(port, std::env::var_os(TLS).is_some());
    for sequence in 1..=MESSAGES {
        for recording in 0..RECORDINGS {
            let of = message(recording, sequence);
            spool.put(&entry(&of)).unwrap();
            println!("put {recording} {sequence}");
        }
        // What is not delivered now is delivered later.
        let _ = deliver(&spool, &target, Duration::from_secs(10)).unwrap();
    }
    println!("done");
}

/// The next line of a process that begins so; `None` when it has ended.
fn next(lines: &mut impl Iterator<Item = String>, beginning: &str) -> Option<String> {
    lines.find_map(|line| Some(line.split_once(beginning)?.1.to_owned()))
}

fn started(folder: &Path, has_tls: bool) -> (Child, u16) {
    let mut hub = part("serves_until_it_is_killed", folder, 0);
    if has_tls {
        hub.env(TLS, "1");
    }
    started_as(hub)
}

fn started_as(mut hub: Command) -> (Child, u16) {
    let mut hub = hub.spawn().unwrap();
    let mut lines = BufReader::new(hub.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = next(&mut lines, "listens ").unwrap().parse().unwrap();
    (hub, port)
}

/// What an agent put last of each recording, which reached the disk before it said so.
fn killed_agent(folder: &Path, port: u16, has_tls: bool, after: u64) -> BTreeMap<u64, u64> {
    let mut agent = part("sends_until_all_is_confirmed", folder, port);
    if has_tls {
        agent.env(TLS, "1");
    }
    let mut agent = agent.spawn().unwrap();
    let mut lines = BufReader::new(agent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut put = BTreeMap::new();
    let mut left = after;
    while let Some(line) = next(&mut lines, "put ") {
        let (recording, sequence) = line.split_once(' ').unwrap();
        let (recording, sequence) = (recording.parse().unwrap(), sequence.parse().unwrap());
        put.insert(recording, sequence);
        left = left.saturating_sub(1);
        if left == 0 {
            // What it prints until it is dead counts as well.
            agent.kill().unwrap();
        }
    }
    agent.wait().unwrap();
    put
}

#[test]
fn totals_are_exact_though_agent_and_hub_are_killed_at_any_moment() {
    let rounds = of_variable("PROPTEST_CASES").unwrap_or(3);
    let first = of_variable("PROPTEST_RNG_SEED").unwrap_or(1);
    for seed in first..first + rounds {
        println!("seed {seed}");
        let folder = tempfile::tempdir().unwrap();
        round(folder.path(), seed, seed.is_multiple_of(2));
    }
}

/// A round; half of them speak TLS.
fn round(folder: &Path, seed: u64, has_tls: bool) {
    let mut random = Random::new(seed);
    for _ in 0..3 {
        let (mut hub, port) = started(folder, has_tls);
        let path = folder.to_owned();
        let after = 1 + random.below(RECORDINGS * MESSAGES);
        let pause = Duration::from_micros(random.below(150_000));
        std::thread::scope(|scope| {
            scope.spawn(|| killed_agent(&path, port, has_tls, after));
            // The moment of the kill is random; nothing is expected to have happened until then.
            std::thread::sleep(pause);
            hub.kill().unwrap();
        });
        hub.wait().unwrap();
    }
    // Afterwards nobody dies, and the newest of all is put and delivered.
    let (mut hub, port) = started(folder, has_tls);
    let spool = Spool::open(&folder.join("spool"), Limits::default()).unwrap();
    let target = hub_of(port, has_tls);
    let newest: Vec<Aggregate> = stored_or_waiting(&spool, &folder.join("hub.db"));
    let delivered = deliver(&spool, &target, Duration::from_secs(60)).unwrap();
    assert_eq!((delivered.waiting, delivered.refused), (0, 0), "seed {seed}: {delivered:?}");
    assert_eq!(totals(&folder.join("hub.db")), expected(newest.iter()), "seed {seed}");
    assert_eq!(spool.counts().unwrap(), apex_spool::Counts::default(), "seed {seed}");
    let rest = killed_agent(folder, port, has_tls, u64::MAX);
    assert_eq!(rest.len() as u64, RECORDINGS);
    let last: Vec<Aggregate> = stored_or_waiting(&spool, &folder.join("hub.db"));
    assert!(last.iter().all(|of| of.sequence == MESSAGES), "seed {seed}");
    assert_eq!(totals(&folder.join("hub.db")), expected(last.iter()), "seed {seed}");
    hub.kill().unwrap();
    hub.wait().unwrap();
}

/// A spool with a message of each recording, and the address of a hub.
fn filled(folder: &Path, port: u16, sequence: u64) -> (Spool, Route) {
    let spool = Spool::open(&folder.join("spool"), Limits::default()).unwrap();
    for recording in 0..40 {
        let of = message(recording, sequence);
        spool.put(&entry(&of)).unwrap();
    }
    (spool, hub_at(format!("127.0.0.1:{port}")))
}

#[test]
fn a_hub_whose_disk_is_full_confirms_nothing_that_it_has_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    // The tables are made without a limit.
    drop(Running::start(&folder.path().join("hub.db")));
    let mut limited = part("serves_until_it_is_killed", folder.path(), 0);
    // SAFETY: between fork and exec; async-signal-safe calls.
    unsafe {
        limited.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let most = libc::rlimit { rlim_cur: 200_000, rlim_max: 200_000 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const most) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    let (mut hub, port) = started_as(limited);
    let (spool, target) = filled(folder.path(), port, 1);
    let delivered = deliver(&spool, &target, Duration::from_secs(60)).unwrap();
    assert!(delivered.confirmed > 0 && delivered.waiting > 0, "{delivered:?}");
    assert_eq!(delivered.failure, Some(apex_push::Failure::Refused(503)));
    hub.kill().unwrap();
    hub.wait().unwrap();
    // What was confirmed is there, and the rest comes when there is room again.
    let stored = rusqlite::Connection::open(folder.path().join("hub.db")).unwrap();
    let stored: u64 =
        stored.query_row("SELECT count(*) FROM recordings", [], |row| row.get::<_, i64>(0)).unwrap() as u64;
    assert!(stored >= delivered.confirmed, "{stored} {delivered:?}");
    let hub = Running::start(&folder.path().join("hub.db"));
    let target = hub_at(hub.address);
    assert_eq!(deliver(&spool, &target, Duration::from_secs(60)).unwrap().waiting, 0);
    let all: Vec<Aggregate> = stored_or_waiting(&spool, &folder.path().join("hub.db"));
    assert_eq!(all.len(), 40);
    assert_eq!(totals(&folder.path().join("hub.db")), expected(all.iter()));
}

#[test]
fn a_hub_that_is_paused_is_not_waited_for_and_counts_once_what_came_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (mut hub, port) = started(folder.path(), false);
    let signal = |signal: i32| {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(hub.id().cast_signed(), signal) }, 0);
    };
    let (spool, target) = filled(folder.path(), port, 1);
    signal(libc::SIGSTOP);
    // The system takes the connection and the message for it.
    let delivered = deliver(&spool, &target, Duration::from_millis(200)).unwrap();
    assert_eq!((delivered.confirmed, delivered.waiting), (0, 40), "{delivered:?}");
    signal(libc::SIGCONT);
    // A later message comes before it is known whether the earlier one was taken.
    let (spool, target) = filled(folder.path(), port, 2);
    assert_eq!(deliver(&spool, &target, Duration::from_secs(60)).unwrap().confirmed, 40);
    let all: Vec<Aggregate> = stored_or_waiting(&spool, &folder.path().join("hub.db"));
    assert!(all.len() == 40 && all.iter().all(|of| of.sequence == 2));
    assert_eq!(totals(&folder.path().join("hub.db")), expected(all.iter()));
    hub.kill().unwrap();
    hub.wait().unwrap();
}

/// The newest message of each recording: in the database, or later in the spool.
fn stored_or_waiting(spool: &Spool, database: &Path) -> Vec<Aggregate> {
    let connection = rusqlite::Connection::open(database).unwrap();
    let mut stored = connection.prepare("SELECT message FROM recordings").unwrap();
    let stored = stored.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let stored = stored.map(|packed| apex_hub::unpacked(&packed.unwrap()).unwrap());
    let waiting = spool.waiting().unwrap();
    let waiting = waiting.iter().filter_map(|of| spool.read(&of.key).unwrap()).map(|entry| entry.body);
    let all: Vec<Aggregate> = stored.chain(waiting).map(|body| Aggregate::parse(&body).unwrap()).collect();
    crate::totals::newest(&all).into_values().collect()
}
