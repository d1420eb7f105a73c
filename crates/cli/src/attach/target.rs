//! The process to watch: its description, and the reason if it cannot be watched.

use anyhow::bail;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Maximum number of processes that are checked for CUDA.
const MOST_PROCESSES: usize = 64;
/// Maximum length of a command line that is kept, bytes.
const MOST_COMMAND: usize = 1 << 16;

/// A running process.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its identifier.
    pub pid: u32,
    /// Its program and arguments; its name in brackets if its command line is empty.
    pub command: Vec<String>,
    /// Its working directory; empty if unknown.
    pub folder: String,
    /// Its start time, which distinguishes it from a later process with the same identifier.
    start: u64,
}

impl Target {
    /// The process with this identifier.
    ///
    /// # Errors
    /// Says why it cannot be watched, and what to do.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let Some(status) = Status::of(pid) else {
            bail!("there is no process {pid}: `ps -e` lists those that run");
        };
        if pid == std::process::id() {
            bail!("process {pid} is apex itself");
        }
        if status.group != pid {
            bail!("{pid} is a thread of process {}: attach to that", status.group);
        }
        let Some(start) = start(pid) else { bail!("process {pid} has ended") };
        if is_of_kernel(pid) {
            bail!("process {pid} ({}) is a thread of the kernel: it has no memory to read", status.name);
        }
        if let Some(why) = apex_host_stacks::refusal(pid) {
            // SAFETY: takes nothing, and cannot fail.
            let own = unsafe { libc::geteuid() };
            bail!("process {pid} cannot be read: {why}; {}", remedy(status.user, own, yama()));
        }
        let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        Ok(Self {
            pid,
            command: command(pid, &status.name),
            folder: folder.to_string_lossy().into_owned(),
            start,
        })
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        start(self.pid) == Some(self.start)
    }

    /// Its name in sentences.
    pub fn in_words(&self) -> String {
        let program = self.command.first().map_or("", String::as_str);
        let program = PathBuf::from(program).file_name().unwrap_or_default().to_owned();
        format!("process {} ({})", self.pid, apex_untrusted::shown(program))
    }

    /// Whether it or a process that it started has loaded the driver.
    pub fn uses_cuda(&self) -> bool {
        let (mut open, mut seen) = (vec![self.pid], BTreeSet::new());
        while let Some(pid) = open.pop() {
            if seen.len() >= MOST_PROCESSES || !seen.insert(pid) {
                continue;
            }
            let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
            if String::from_utf8_lossy(&maps).contains("/libcuda.so") {
                return true;
            }
            open.extend(children(pid));
        }
        false
    }
}

/// What `/proc/PID/status` says.
struct Status {
    name: String,
    /// The process, where the identifier is a thread's.
    group: u32,
    /// Its user.
    user: u32,
}

impl Status {
    fn of(pid: u32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/status")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let user = field("Uid:")?.split_whitespace().next()?;
        Some(Self {
            name: apex_untrusted::printable(field("Name:")?).into_owned(),
            group: field("Tgid:")?.parse().ok()?,
            user: user.parse().ok()?,
        })
    }
}

/// The start time of a process, in clock ticks since boot; `None` if it has ended, also if it is a
/// zombie.
fn start(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name, in parentheses, may contain anything.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    // The start is field 22 of the line, and the state field 3.
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(start)
}

/// Whether a process is a kernel thread: these have no executable and an empty command line.
fn is_of_kernel(pid: u32) -> bool {
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    executable.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
}

fn command(pid: u32, name: &str) -> Vec<String> {
    let mut line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.truncate(MOST_COMMAND);
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    match line.is_empty() {
        true => vec![format!("[{name}]")],
        false => {
            line.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The setting of Yama, if the kernel has it.
fn yama() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// What to do where a process of `user` may not be read by the user `own`.
fn remedy(user: u32, own: u32, yama: Option<u32>) -> String {
    match yama {
        _ if user != own && own != 0 => {
            format!("it belongs to user {user}, and you are user {own}: run apex as that user, or with sudo")
        }
        Some(1) if own != 0 => "kernel.yama.ptrace_scope is 1, which lets a process read only its descendants: set it to 0 \
            (sudo sysctl kernel.yama.ptrace_scope=0), or run apex with sudo"
            .to_owned(),
        Some(2) if own != 0 => "kernel.yama.ptrace_scope is 2, which asks for CAP_SYS_PTRACE: run apex with sudo".to_owned(),
        Some(3) => "kernel.yama.ptrace_scope is 3, which lets nobody read another process until the machine is started \
            again with a lower one"
            .to_owned(),
        _ => "apex lacks CAP_SYS_PTRACE, or a sandbox forbids it: run apex with sudo; in a container, allow it \
            (docker run --cap-add SYS_PTRACE)"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_setting_and_what_to_do() {
        for (user, own, yama, part) in [
            (1000, 1001, Some(0), "it belongs to user 1000, and you are user 1001"),
            (1000, 1000, Some(1), "sysctl kernel.yama.ptrace_scope=0"),
            (1000, 1000, Some(2), "ptrace_scope is 2"),
            (0, 0, Some(3), "ptrace_scope is 3"),
            (0, 0, Some(1), "--cap-add SYS_PTRACE"),
            (1000, 1000, None, "--cap-add SYS_PTRACE"),
        ] {
            let told = remedy(user, own, yama);
            assert!(told.contains(part), "{user} {own} {yama:?}: {told}");
        }
    }

    #[test]
    fn this_process_is_known_by_its_start_and_refused_as_apex_itself() {
        let own = std::process::id();
        assert!(start(own).is_some() && !is_of_kernel(own));
        assert!(!command(own, "test").is_empty());
        let refused = |pid| Target::of(pid).unwrap_err().to_string();
        assert_eq!(refused(own), format!("process {own} is apex itself"));
        // Beyond the largest that Linux gives.
        assert!(refused(u32::MAX).starts_with("there is no process 4294967295"));
    }
}
