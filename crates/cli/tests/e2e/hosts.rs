//! Two hosts with clocks an hour apart and a bad network: name spaces of network, host name and
//! time, a calendar clock that is moved (`clock.c`), and a link that breaks connections.
//!
//! Each host has only its own loopback. What listens there carries bytes through a socket in the
//! file system to this process, which is the network: it passes each connection on to the hub, and
//! breaks most of them, before, in, or after the request. The kernel's own way (`netem`) needs a
//! module that few test machines have.

use crate::common::{APEX, Running, Sandbox, output, program, text};
use crate::hub::{document, hub, job_where};
use apex_random::Random;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use test_process::Command;

/// Port of the hub on each host.
const PORT: u16 = 8765;
/// The socket to the network, in the test's folder.
const SOCKET: &str = "network";

/// What broke, and what came through.
#[derive(Default)]
struct Link {
    refused: AtomicU64,
    cut: AtomicU64,
    unanswered: AtomicU64,
    passed: AtomicU64,
}

impl Link {
    /// Carries connections from the hosts to the hub, for as long as this process lives.
    fn carry(&'static self, socket: &Path, hub: String, seed: u64) {
        let listener = UnixListener::bind(socket).unwrap();
        let chance = Mutex::new((Random::new(seed), Vec::new()));
        let accept = move || {
            for near in listener.incoming().map_while(Result::ok) {
                let (fate, bytes) = {
                    let (random, fates) = &mut *chance.lock().unwrap();
                    // Of four connections in turn, each has another fate.
                    if fates.is_empty() {
                        *fates = vec![0, 1, 2, 3];
                    }
                    let at = random.below(fates.len() as u64) as usize;
                    (fates.swap_remove(at), 1 + random.below(2000))
                };
                let hub = hub.clone();
                std::thread::spawn(move || self.one(near, &hub, fate, bytes));
            }
        };
        std::thread::spawn(accept);
    }

    /// One connection and its fate. (What a broken connection says is of no interest.)
    fn one(&self, near: UnixStream, hub: &str, fate: u64, bytes: u64) {
        let count = |of: &AtomicU64| of.fetch_add(1, Ordering::Relaxed);
        if fate == 0 {
            count(&self.refused);
            return;
        }
        let Ok(far) = TcpStream::connect(hub) else { return };
        if fate == 1 {
            count(&self.cut);
            let _ = std::io::copy(&mut (&near).take(bytes), &mut &far);
            let _ = far.shutdown(Shutdown::Both);
            return;
        }
        let (from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut &from, &mut to));
        let mut answer = Vec::new();
        let _ = (&far).read_to_end(&mut answer);
        if fate == 2 {
            // The hub has taken it, and nobody learns that.
            count(&self.unanswered);
        } else {
            count(&self.passed);
            let _ = (&near).write_all(&answer);
        }
        let _ = near.shutdown(Shutdown::Both);
    }
}

#[test]
#[ignore = "run by two_hosts_with_clocks_an_hour_apart_and_a_bad_network_are_counted_exactly, on a host"]
fn forwards_until_it_is_killed() {
    let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
    std::fs::write("listens", "").unwrap();
    for near in listener.incoming().map_while(Result::ok) {
        let far = UnixStream::connect(std::env::var("APEX_TEST_SOCKET").unwrap()).unwrap();
        std::thread::spawn(move || {
            let (from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut &from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let _ = std::io::copy(&mut &far, &mut &near);
            let _ = near.shutdown(Shutdown::Both);
        });
    }
}

/// A host: its name, its folder, by how many seconds its calendar is ahead, and its monotonic
/// clock.
struct Host {
    name: &'static str,
    folder: PathBuf,
    ahead: u64,
    monotonic: u64,
    clock: PathBuf,
}

impl Host {
    /// A command on this host, in its folder.
    fn command(&self, sandbox: &Sandbox, script: &str) -> Command {
        let mut command = sandbox.command("unshare");
        // A user name space makes the others possible for those who are not root.
        command.args(["--map-root-user", "--net", "--uts", "--time", "--fork", "--kill-child"]);
        command.args(["--monotonic", "--boottime"].map(|clock| format!("{clock}={}", self.monotonic)));
        let start = format!("set -e; ip link set lo up; hostname {}; {script}", self.name);
        command
            .args(["sh", "-c", &start])
            .current_dir(&self.folder)
            .env("CLOCK_AHEAD", self.ahead.to_string());
        command.env("APEX_TEST_CLOCK", &self.clock);
        command
    }
}

/// The library that moves the calendar; `None` if nothing compiles it.
fn clock(sandbox: &Sandbox) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/clock.c");
    let library = sandbox.path("clock.so");
    let made = sandbox.command("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
    match made {
        Ok(made) if made.status.success() => Some(library),
        other => {
            test_skip::missing_dependency(format!("nothing compiles C ({other:?})"));
            None
        }
    }
}

#[test]
fn two_hosts_with_clocks_an_hour_apart_and_a_bad_network_are_counted_exactly() {
    let sandbox = Sandbox::new();
    let Some(clock) = clock(&sandbox) else { return };
    let hosts = [("node-a", 0, 0), ("node-b", 3600, 5000)].map(|(name, ahead, monotonic)| {
        let folder = sandbox.path(name);
        std::fs::create_dir(&folder).unwrap();
        Host { name, folder, ahead, monotonic, clock: clock.clone() }
    });
    let tried = hosts[1].command(&sandbox, "LD_PRELOAD=$APEX_TEST_CLOCK date +%s").output();
    let ahead = match &tried {
        Ok(tried) if tried.status.success() => text(&tried.stdout).trim().parse::<u64>().unwrap(),
        other => {
            return test_skip::impossible_here(format!("no hosts can be made of name spaces: {other:?}"));
        }
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!((3000..4200).contains(&(ahead - now)), "the clock is moved");
    let (_running, address) = hub(&sandbox, &[]);
    let link: &'static Link = Box::leak(Box::default());
    let socket = sandbox.path(SOCKET);
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    link.carry(&socket, address.clone(), seed);
    // A rank on each host, in one session in a folder that both have.
    let test = std::env::current_exe().unwrap();
    let start = |host: &Host, rank: &str| {
        let script = format!(
            "exec >log 2>&1
             '{}' --exact hosts::forwards_until_it_is_killed --ignored &
             trap \"kill $!\" EXIT
             while [ ! -e listens ]; do sleep 0.05; done
             export LD_PRELOAD=$APEX_TEST_CLOCK
             '{APEX}' run --device cpu -o ../job --hub http://127.0.0.1:{PORT} --hub-interval 100ms --spool spool -- \
                 sh -c '{} launch 40; while [ ! -e ../go ]; do sleep 0.1; done'
             until '{APEX}' hub deliver --spool spool --within 20s; do sleep 0.05; done",
            test.display(),
            program().display()
        );
        let mut command = host.command(&sandbox, &script);
        command.env("APEX_TEST_SOCKET", &socket);
        command.envs([("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "2")]);
        command.env("SLURM_PROCID", rank);
        Running::start(&mut command)
    };
    let mut ranks = [start(&hosts[0], "0"), start(&hosts[1], "1")];
    let job = job_where(&address, |job| job["running"] == 2 && job["launches"] == 80);
    assert_eq!((&job["hosts"], &job["ranks"]), (&2.into(), &2.into()));
    std::fs::write(sandbox.path("go"), "").unwrap();
    for (rank, host) in ranks.iter_mut().zip(&hosts) {
        let ended = rank.0.wait().unwrap();
        assert!(ended.success(), "{}", std::fs::read_to_string(host.folder.join("log")).unwrap());
    }
    // The hub has what the sessions have, to the microsecond: nothing twice, nothing lost.
    let job = job_where(&address, |job| job["running"] == 0);
    assert_eq!((&job["launches"], &job["recordings"], &job["failed"]), (&80.into(), &2.into(), &0.into()));
    let of_job = document(&address, "/api/v1/jobs/1");
    let sessions = ["job/0000", "job/0001"].map(|session| sandbox.json(&["report", "--json", session]));
    for part in ["kernels", "copies"] {
        let of_session = |report: &Value| -> u64 {
            let activities = report["profile"]["activities"].as_array().unwrap();
            activities
                .iter()
                .map(|of| (of["accounts"][part]["value"].as_f64().unwrap() / 1000.0).round() as u64)
                .sum()
        };
        assert_eq!(of_job["cpu_device"][format!("{part}_us")], sessions.iter().map(of_session).sum::<u64>());
    }
    // An hour between two clocks is nobody's time: what the job held is what each host's own clock
    // says.
    let own: u64 = sessions.iter().map(|of| wall_us(&of["run"])).sum();
    let held = of_job["cpu_device"]["held_us"].as_u64().unwrap();
    // (Each part is rounded by itself.)
    assert!(held.abs_diff(own) <= 2 * 14, "{held} {own}");
    let joined = sandbox.json(&["report", "--json", "job"]);
    assert!(wall_us(&joined["run"]) > 3_000_000_000, "the clocks are an hour apart");
    let said = text(&output(&mut sandbox.apex(&["report", "--ranks", "job"]), 0).stdout).to_owned();
    assert!(said.contains("several hosts, whose clocks were not compared"), "{said}");
    let counts =
        [&link.refused, &link.cut, &link.unanswered, &link.passed].map(|of| of.load(Ordering::Relaxed));
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

/// Duration of a run by the clock of its host.
fn wall_us(run: &Value) -> u64 {
    (run["ended_real_ns"].as_u64().unwrap() - run["started_real_ns"].as_u64().unwrap()) / 1000
}
