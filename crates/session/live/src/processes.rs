//! Finds the processes of a session that run, and the sessions that processes record.

use apex_trace::meta::Host;
use apex_trace::{Ended, Session, is_session, own_pid};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The variable that names the session's folder to the programs that are recorded.
const SESSION: &[u8] = b"APEX_SESSION=";

/// The folders of the sessions that processes record at this moment, in the order of their names;
/// those of other users are not seen. A process that has made no CUDA call yet counts.
pub fn recorded_now() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let environments = processes.filter_map(|process| std::fs::read(process.path().join("environ")).ok());
    let folders = environments.filter_map(|environment| session_of(&environment));
    let folders: BTreeSet<PathBuf> = folders.filter(|folder| is_session(folder)).collect();
    folders.into_iter().collect()
}

/// The session that an environment names.
fn session_of(environment: &[u8]) -> Option<PathBuf> {
    let mut variables = environment.split(|&byte| byte == 0);
    let folder = variables.find_map(|variable| variable.strip_prefix(SESSION))?;
    (!folder.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(folder)))
}

/// Processes of a session that run: the program, as long as it has not ended, and whoever records.
pub fn running(session: &Session) -> Vec<u32> {
    let here = Host::here().name;
    let is_joined = session.members.iter().any(|member| member.dir != session.dir);
    // Of the processes that other hosts' members have, nothing is known.
    let is_here = |pid| !is_joined || session.host_of(pid).is_none_or(|host| host == here);
    let recording =
        session.processes.iter().filter(|process| process.ended == Ended::Unmarked && is_here(process.pid));
    let mut pids: Vec<_> = recording.map(|process| (process.pid, process.start_real_ns)).collect();
    if let Some(meta) = session.meta.as_ref().filter(|meta| !meta.is_over() && !is_joined) {
        // The program was started right after its session was made, `apex attach` before it.
        let started = meta.started_real_ns.saturating_add(START_TOLERANCE_NS);
        pids.extend(meta.recorded_by().map(|pid| (pid, started)));
    }
    let mut running: Vec<_> = pids
        .into_iter()
        .filter(|&(pid, before)| runs_since_before(own_pid(pid), before))
        .map(|(pid, _)| pid)
        .collect();
    running.sort_unstable();
    running.dedup();
    running
}

/// The tolerance for the time between making a session and starting the program, which is
/// milliseconds.
const START_TOLERANCE_NS: u64 = 10_000_000_000;

/// Whether a process with this identifier runs that was started before the moment; one that was
/// started later has taken the identifier over.
fn runs_since_before(pid: u32, before_real_ns: u64) -> bool {
    // Boot time is known to the second, start times to the tick.
    const SLACK_NS: u64 = 2_000_000_000;
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let fields: Vec<_> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let (Some(state), Some(start)) =
        (fields.first(), fields.get(19).and_then(|ticks| ticks.parse::<u64>().ok()))
    else {
        return false;
    };
    // SAFETY: takes a number, returns a number.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
    let start_ns = boot_real_ns().saturating_add(start.saturating_mul(1_000_000_000 / ticks_per_second));
    *state != "Z" && start_ns <= before_real_ns.saturating_add(SLACK_NS)
}

/// Returns the time at which the machine started, in nanoseconds since 1970; 0 if the system does
/// not say.
fn boot_real_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok());
    seconds.unwrap_or(0).saturating_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_process_names_its_session() {
        let folder = session_of(b"HOME=/root\0APEX_SESSION=/tmp/a b\0X=1\0");
        assert_eq!(folder, Some(PathBuf::from("/tmp/a b")));
        assert_eq!(session_of(b"XAPEX_SESSION=/tmp\0APEX_SESSION=\0"), None);
    }

    #[test]
    fn a_process_runs_until_it_ends_and_is_not_mistaken_for_a_later_one() {
        let since_epoch = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let now = u64::try_from(since_epoch.as_nanos()).unwrap();
        let me = std::process::id();
        assert!(runs_since_before(me, now));
        assert!(!runs_since_before(me, now - 3600 * 1_000_000_000), "this process was not there an hour ago");
        let mut child = test_process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(!runs_since_before(child.id(), now));
    }
}
