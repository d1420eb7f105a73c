//! A clock that is set is released, whatever ends the processes: on a stand-in for NVML, whose
//! clock is a file. No real device is touched: each process opens the stand-in by its path.

use apex_power::{Claim, Helped, Helper, Nvml, Sets, Setter, watch};
use apex_random::Random;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use test_process::{Child, Command};

/// Kills in a usual test; `POWER_KILLS` is another number.
const KILLS: u64 = 40;
/// Where the watchdog says that it is ready: standard output belongs to the test harness.
const READY: i32 = 7;
/// Has a shell pass standard output on under that number, and become a program.
const PASS_ON: &str = "exec 7>&1 1>/dev/null; exec \"$@\"";
/// As a watchdog that does nothing but begin and end as one does.
const ASLEEP: &str = "printf y; exec cat >/dev/null";

/// A folder with the stand-in, its clock, and the claims.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(test_build::library("fake-nvml"), folder.path().join("nvml.so")).unwrap();
        Self(folder)
    }

    /// A process of this test's program that does what one of the functions below does.
    fn process(&self, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--ignored", "--nocapture"]);
        command.env("POWER_PLACE", self.0.path()).env("FAKE_NVML_LOCK", self.0.path().join("lock"));
        command.stdout(Stdio::piped());
        command
    }

    /// The clock that is set.
    fn clock(&self) -> u32 {
        let bytes = std::fs::read(self.0.path().join("lock")).unwrap_or_default();
        bytes.try_into().map_or(0, u32::from_le_bytes)
    }

    /// Waits until no process has the claim; returns whether it notes a clock.
    fn noted(&self) -> bool {
        let claims = std::fs::read_dir(self.0.path().join("claims"));
        let mut files = claims.into_iter().flatten().map(|file| File::open(file.unwrap().path()).unwrap());
        files.any(|file| {
            file.lock().unwrap();
            file.metadata().unwrap().len() > 0
        })
    }
}

fn place() -> PathBuf {
    PathBuf::from(std::env::var_os("POWER_PLACE").expect("the other tests start this"))
}

/// The words that start a watchdog, in the environment of this process.
fn watchdog() -> Vec<OsString> {
    if std::env::var_os("POWER_ASLEEP").is_some() {
        return ["sh", "-c", ASLEEP].map(OsString::from).into();
    }
    let test = std::env::current_exe().unwrap().into_os_string();
    let shell = ["sh", "-c", PASS_ON, "sh"].map(OsString::from).into_iter();
    let role = ["--exact", "as_watchdog", "--ignored"].map(OsString::from);
    shell.chain([test]).chain(role).collect()
}

fn started() -> (Setter, bool) {
    let place = place();
    let gpu = Nvml::open(&place.join("nvml.so")).expect("the stand-in").gpus().remove(0);
    let claim = Claim::take(&place.join("claims"), &gpu.uuid).unwrap().expect("nobody else has it");
    Setter::start(gpu, claim, &watchdog()).unwrap()
}

/// Writes a line past the harness.
fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    writeln!(out, "said {line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// The next line that a process says.
fn heard(out: &mut impl BufRead) -> Option<String> {
    out.lines().map_while(Result::ok).find_map(|line| Some(line.split_once("said ")?.1.to_owned()))
}

#[test]
#[ignore = "a process of the other tests"]
fn as_watchdog() {
    let number = std::env::args().next_back().and_then(|number| number.parse().ok()).expect("a number");
    // SAFETY: the parent handed this file on for this function alone.
    let claim = unsafe { Claim::inherited(number) };
    let nvml = place().join("nvml.so");
    let uuid = Nvml::open(&nvml).unwrap().gpus().remove(0).uuid;
    // SAFETY: the shell passed it on for this function alone.
    let ready = unsafe { File::from_raw_fd(READY) };
    watch(&nvml, &uuid, &claim, ready).unwrap();
}

#[test]
#[ignore = "a process of the other tests"]
fn as_setter() {
    let (mut setter, _) = started();
    say(setter.watchdog().unwrap());
    // Where the watchdog is asleep, a kill at any moment has to leave a clock.
    let releases = std::env::var_os("POWER_ASLEEP").is_none();
    for call in 0_u32.. {
        let clock = (call % 3 != 2 || !releases).then_some(1200 + 15 * (call % 20));
        if !setter.is_watched() || setter.set(clock).is_err() {
            break;
        }
        say(call);
    }
    drop(setter);
    say("ended");
}

/// A helper, for this user or for another one.
#[test]
#[ignore = "a process of the other tests"]
fn as_helper() {
    let place = place();
    let listener = UnixListener::bind(place.join("socket")).unwrap();
    // SAFETY: takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    let users = if std::env::var_os("POWER_OTHER_USER").is_some() { vec![own + 1] } else { vec![own] };
    let (library, claims) = (place.join("nvml.so"), place.join("claims"));
    let watchdog = |_: &Path, _: &str| watchdog();
    say("ready");
    Helper { library, claims, users, watchdog, log: |_| {} }.serve(&listener)
}

/// A client of the helper, which sets clocks until the helper is gone.
#[test]
#[ignore = "a process of the other tests"]
fn as_client() {
    let place = place();
    let uuid = Nvml::open(&place.join("nvml.so")).unwrap().gpus().remove(0).uuid;
    let claimed = Helped::claim(&place.join("socket"), &uuid);
    let Ok((mut helped, was_left)) = claimed else { return say(claimed.err().unwrap()) };
    say(was_left);
    for call in 0_u32.. {
        let clock = (call % 3 != 2).then_some(1200 + 15 * (call % 20));
        if !helped.is_watched() || helped.set(clock).is_err() {
            break;
        }
        say(call);
    }
    say("ended");
}

#[test]
#[ignore = "a process of the other tests"]
fn as_next_run() {
    let (setter, was_left) = started();
    drop(setter);
    say(was_left);
}

/// A setter that has made so many calls.
fn running(
    place: &Place,
    calls: u64,
    variables: &[(&str, &str)],
) -> (Child, i32, BufReader<std::process::ChildStdout>) {
    let mut child = place.process("as_setter").envs(variables.iter().copied()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let watchdog = heard(&mut out).unwrap().parse().unwrap();
    for _ in 0..calls {
        heard(&mut out).unwrap();
    }
    (child, watchdog, out)
}

fn kill(process: i32) {
    // SAFETY: plain system call; the process was started by this test and has not been waited for.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

/// Passes a part of a call, which takes some 50 µs.
fn pass(random: &mut Random) {
    let rounds = (random.uniform() * 2e4) as u64;
    std::hint::black_box((0..rounds).fold(0_u64, |sum, round| std::hint::black_box(sum ^ round)));
}

#[test]
fn kills_at_random_moments_leave_no_clock_set() {
    let kills = std::env::var("POWER_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let place = Place::new();
    let mut random = Random::named(7, "kills");
    let mut left = 0;
    for at in 0..kills {
        let calls = (random.uniform() * 30.0) as u64;
        let (mut child, watchdog, mut out) = running(&place, calls, &[]);
        let setter = child.id().cast_signed();
        pass(&mut random);
        match at % 4 {
            // The watchdog: the setter releases the clock by itself.
            0 => {
                kill(watchdog);
                let last = std::iter::from_fn(|| heard(&mut out)).last();
                assert_eq!(last.as_deref(), Some("ended"), "kill {at}");
            }
            // Both: the next run releases the clock.
            1 => {
                kill(setter);
                kill(watchdog);
            }
            // The setter: the watchdog releases the clock.
            _ => kill(setter),
        }
        child.wait().unwrap();
        let is_noted = place.noted();
        assert!(place.clock() == 0 || is_noted && at % 4 == 1, "kill {at}: {} MHz", place.clock());
        if is_noted {
            left += 1;
            let mut next = place.process("as_next_run").spawn().unwrap();
            let mut out = BufReader::new(next.stdout.take().unwrap());
            assert_eq!(heard(&mut out).as_deref(), Some("true"), "kill {at}");
            assert!(next.wait().unwrap().success());
            assert!(!place.noted() && place.clock() == 0, "kill {at}");
        }
    }
    println!("{kills} kills; {left} of them left a note, and the next run released the clock");
}

/// A process that says something once it has begun.
fn begun(mut command: Command) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let said = heard(&mut out).unwrap();
    (child, out, said)
}

#[test]
fn a_helper_sets_the_clock_for_its_clients_until_one_of_both_is_gone() {
    let place = Place::new();
    let (mut helper, _helper_out, _) = begun(place.process("as_helper"));
    let (mut client, mut out, was_left) = begun(place.process("as_client"));
    assert_eq!(was_left, "false");
    let (mut second, _out, said) = begun(place.process("as_client"));
    assert_eq!(said, "another run governs it");
    second.wait().unwrap();
    heard(&mut out).unwrap();
    kill(client.id().cast_signed());
    client.wait().unwrap();
    // The claim is free as soon as the helper has released the clock.
    assert!(!place.noted() && place.clock() == 0);

    let (mut client, mut out, _) = begun(place.process("as_client"));
    heard(&mut out).unwrap();
    kill(helper.id().cast_signed());
    helper.wait().unwrap();
    let last = std::iter::from_fn(|| heard(&mut out)).last();
    assert_eq!(last.as_deref(), Some("ended"));
    client.wait().unwrap();
    assert!(!place.noted() && place.clock() == 0);
}

#[test]
fn a_helper_serves_nobody_but_the_users_that_are_named() {
    let place = Place::new();
    let mut command = place.process("as_helper");
    command.env("POWER_OTHER_USER", "1");
    let (_helper, _helper_out, _) = begun(command);
    let (mut client, _out, said) = begun(place.process("as_client"));
    assert!(said.starts_with("the helper does not serve user "), "{said}");
    client.wait().unwrap();
    assert_eq!(place.clock(), 0);
}

/// Says something to a helper and returns what it answers; `None` if it hangs up.
fn answered(place: &Place, said: &[u8]) -> Option<String> {
    let mut stream = UnixStream::connect(place.0.path().join("socket")).unwrap();
    stream.write_all(said).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).ok().filter(|bytes| *bytes > 0)?;
    Some(answer.trim_end().to_owned())
}

#[test]
fn a_helper_survives_what_is_no_request() {
    let place = Place::new();
    let (_helper, _out, _) = begun(place.process("as_helper"));
    for (said, answer) in [
        (&b"set 1200\n"[..], Some("no: claim a device first")),
        (b"claim GPU-of-nobody\n", Some("no: there is no such device")),
        (b"\n", Some("no: claim a device first")),
        (&[b'x'; 4096], None),
        (b"claim \xff\xfe\n", None),
    ] {
        assert_eq!(answered(&place, said).as_deref(), answer);
    }
    let uuid = "GPU-01010101-0101-0101-0101-010101010101";
    let mut stream = UnixStream::connect(place.0.path().join("socket")).unwrap();
    stream
        .write_all(format!("claim {uuid}\nset 1201\nset 99999999999\nreset\nset 1200\nend\n").as_bytes())
        .unwrap();
    let lines: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
    let illegal = "no: this is no legal clock";
    assert_eq!(lines, ["ok", illegal, illegal, "no: this is no request", "ok", "ok"]);
    assert_eq!(place.clock(), 0);
}

#[test]
fn a_watchdog_that_does_nothing_is_found() {
    let place = Place::new();
    let (mut child, ..) = running(&place, 2, &[("POWER_ASLEEP", "1")]);
    kill(child.id().cast_signed());
    child.wait().unwrap();
    assert!(place.noted() && place.clock() > 0, "the check of the kills sees a clock that is left");
}

#[test]
fn a_signal_that_ends_programs_does_not_end_the_watchdog() {
    let place = Place::new();
    let (mut child, watchdog, _out) = running(&place, 2, &[]);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: plain system call; the process was started by this test.
        unsafe { libc::kill(watchdog, signal) };
    }
    kill(child.id().cast_signed());
    child.wait().unwrap();
    assert!(!place.noted() && place.clock() == 0);
}

#[test]
fn one_run_at_a_time_has_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let first = Claim::take(folder.path(), "GPU-1").unwrap().expect("the first");
    assert!(Claim::take(folder.path(), "GPU-1").unwrap().is_none());
    assert!(Claim::take(folder.path(), "GPU-2").unwrap().is_some());
    first.note(true).unwrap();
    drop(first);
    let next = Claim::take(folder.path(), "GPU-1").unwrap().expect("the first is gone");
    assert!(next.is_noted().unwrap());
    next.note(false).unwrap();
    assert!(!next.is_noted().unwrap());
    assert!(Claim::take(folder.path(), "../GPU").is_err());
}

#[test]
fn without_the_right_no_clock_is_set_and_none_is_noted() {
    let place = Place::new();
    let mut command = place.process("as_setter");
    let mut child = command.env_remove("FAKE_NVML_LOCK").spawn().unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("said ended") && !said.contains("said 0\n"), "{said}");
    // The release is refused, too: the note stays, because nobody can tell.
    assert!(place.clock() == 0);
}
