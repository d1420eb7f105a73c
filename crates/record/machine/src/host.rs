//! Reads the state of the host and of a tree of processes from /proc.
//!
//! CPU time is counted since something began; a [`Host`] therefore keeps what it read last, and its
//! first reading has none.

use crate::quantity::Quantity;
use crate::record::Readings;
use apex_ordered::Gather;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A process, as /proc/PID/stat has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// CPU time of it and of its descendants that it has waited for, ticks.
    ticks: u64,
    resident_pages: u64,
}

/// Readings after which all processes are looked at again: an identifier may have been used again.
const FORGET_AFTER: u32 = 32;

/// Reads the host, again and again.
#[derive(Debug)]
pub struct Host {
    root: u32,
    /// Processes that are not the program's: a machine has many, and they stay what they are.
    strangers: BTreeSet<u32>,
    readings: u32,
    ticks_per_s: f64,
    page_bytes: f64,
    last: Option<Counters>,
}

/// Counts since something began, in ticks.
#[derive(Clone, Copy, Debug)]
struct Counters {
    at_ns: u64,
    busy: Option<u64>,
    program: u64,
}

impl Host {
    /// Will read the host, and the process `root` with all that descends from it.
    pub fn new(root: u32) -> Self {
        // SAFETY: takes a number, returns a number.
        let number = |name| unsafe { libc::sysconf(name) }.max(1) as f64;
        Self {
            root,
            strangers: BTreeSet::new(),
            readings: 0,
            ticks_per_s: number(libc::_SC_CLK_TCK),
            page_bytes: number(libc::_SC_PAGESIZE),
            last: None,
        }
    }

    /// Reads, at this moment of the monotonic clock.
    pub fn read(&mut self, now_ns: u64) -> Readings {
        let mut readings = Readings::default();
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        if let Some(used) = memory_used(&text("/proc/meminfo")) {
            readings.set(Quantity::MachineMemory, used);
        }
        let load = text("/proc/loadavg");
        if let Some(load) = load.split_whitespace().next().and_then(|first| first.parse().ok()) {
            readings.set(Quantity::Load, load);
        }
        let tree = self.tree();
        let program = tree.iter().fold(0, |sum: u64, process| sum.saturating_add(process.ticks));
        if !tree.is_empty() {
            let pages = tree.iter().fold(0, |sum: u64, process| sum.saturating_add(process.resident_pages));
            readings.set(Quantity::ProgramMemory, pages as f64 * self.page_bytes);
            readings.set(Quantity::Processes, tree.len() as f64);
        }
        let counters = Counters { at_ns: now_ns, busy: busy_ticks(&text("/proc/stat")), program };
        if let Some(last) = self.last.replace(counters) {
            let seconds = now_ns.saturating_sub(last.at_ns) as f64 / 1e9;
            let mut cpus = |quantity, before: u64, after: u64| {
                if seconds > 0.0 {
                    readings.set(quantity, after.saturating_sub(before) as f64 / self.ticks_per_s / seconds);
                }
            };
            if let (Some(before), Some(after)) = (last.busy, counters.busy) {
                cpus(Quantity::MachineCpus, before, after);
            }
            if !tree.is_empty() {
                cpus(Quantity::ProgramCpus, last.program, program);
            }
        }
        readings
    }

    /// The program's processes.
    fn tree(&mut self) -> Vec<Process> {
        if self.readings.is_multiple_of(FORGET_AFTER) {
            self.strangers.clear();
        }
        self.readings = self.readings.wrapping_add(1);
        let all = processes(&self.strangers);
        let own: BTreeMap<u32, Process> = below(self.root, &all).map(|pid| (pid, all[&pid])).gathered();
        self.strangers.extend(all.keys().filter(|pid| !own.contains_key(pid)));
        own.into_values().collect()
    }
}

/// Ticks in which processors were busy, of /proc/stat: all but idle and waiting for a device.
fn busy_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = all.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // What guests take is part of `user`; what the hypervisor takes, the eighth field, is not ours.
    let [user, nice, system, _idle, _waiting, interrupts, soft] = *ticks.first_chunk()?;
    Some([user, nice, system, interrupts, soft].iter().fold(0, |sum: u64, part| sum.saturating_add(*part)))
}

/// Bytes in use, of /proc/meminfo.
fn memory_used(meminfo: &str) -> Option<f64> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<f64>().ok()
    };
    let (all, available) = (field("MemTotal")?, field("MemAvailable")?);
    (all >= available).then_some((all - available) * 1024.0)
}

/// All processes that can be seen, but for some.
fn processes(without: &BTreeSet<u32>) -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pids = pids.filter(|pid| !without.contains(pid));
    pids.filter_map(|pid| Some((pid, process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .gathered()
}

/// The fields of /proc/PID/stat, counted from behind the name, which may contain anything.
fn process(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = [11, 12, 13, 14].map(|at| number(at).unwrap_or(0));
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        ticks: ticks.iter().fold(0, |sum: u64, part| sum.saturating_add(*part)),
        resident_pages: number(21).unwrap_or(0),
    })
}

/// `root` and everything below it, by identifier.
pub fn descendants(root: u32) -> Vec<u32> {
    let all = processes(&BTreeSet::new());
    below(root, &all).collect()
}

fn below(root: u32, all: &BTreeMap<u32, Process>) -> impl Iterator<Item = u32> {
    let is_below = move |&pid: &u32| {
        let chain = std::iter::successors(Some(pid), |pid| all.get(pid).map(|process| process.parent));
        // Processes that began while others were read may make a circle.
        chain.take(all.len() + 1).any(|ancestor| ancestor == root)
    };
    all.keys().copied().filter(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_behind_a_name_that_holds_anything() {
        let stat = "12 (a) R 1 2) S 7 12 12 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 4096 55 18446744073709551615";
        assert_eq!(process(stat), Some(Process { parent: 7, ticks: 100, resident_pages: 55 }));
        for damaged in ["", "12", "12 (a", "12 (a) S", "12 (a) S x", ")"] {
            assert_eq!(process(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn busy_is_what_is_neither_idle_nor_waiting() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 1000 8 16 32 64 128\ncpu0 9 9"), Some(31));
        assert_eq!(busy_ticks("cpu  1 2 4"), None);
        assert_eq!(busy_ticks(""), None);
    }

    #[test]
    fn memory_in_use_is_what_is_not_available() {
        let meminfo = "MemTotal:       100 kB\nMemFree:   1 kB\nMemAvailable:    60 kB\n";
        assert_eq!(memory_used(meminfo), Some(40.0 * 1024.0));
        assert_eq!(memory_used("MemTotal: 100 kB"), None);
    }

    #[test]
    fn a_tree_has_the_root_and_what_descends_from_it() {
        let process = |parent| Process { parent, ticks: 1, resident_pages: 1 };
        let all = [(1, process(0)), (5, process(1)), (6, process(5)), (7, process(6)), (8, process(1))];
        // A circle, as of identifiers that were used again meanwhile.
        let all: BTreeMap<u32, Process> =
            all.into_iter().chain([(20, process(21)), (21, process(20))]).collect();
        assert_eq!(below(5, &all).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(below(99, &all).count(), 0);
    }

    #[test]
    fn this_process_is_read() {
        let mut host = Host::new(std::process::id());
        let first = host.read(1_000_000_000);
        assert!(first.get(Quantity::ProgramMemory).unwrap().mean > 0.0);
        assert!(first.get(Quantity::Processes).unwrap().mean >= 1.0);
        assert_eq!(first.get(Quantity::ProgramCpus), None, "there is nothing to compare with yet");
        let second = host.read(2_000_000_000);
        assert!(second.get(Quantity::ProgramCpus).is_some() && second.get(Quantity::MachineCpus).is_some());
        assert!(descendants(std::process::id()).contains(&std::process::id()));
    }
}
