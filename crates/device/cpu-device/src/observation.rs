//! Decides which launches are observed, and writes what was observed.
//!
//! Under `apex run` (`APEX_SESSION` names the session) a bounded share of launches is counted: the
//! first of each configuration, and later the second, fourth, eighth, … as long as counted launches
//! have taken less than a twentieth of the time of all. `APEX_CPU_COUNTS` says `all` or `off`
//! instead. With `APEX_CPU_CHECK=1` every launch is checked for defects. Each is printed to
//! standard error once; a line at the end sums up.
//!
//! Both go into a file of the session, and so do faults. A session that keeps code (`apex run
//! --code`) gets the text of the source files, too, whose lines are counted. A file that cannot be
//! written is said once; the program goes on.

use apex_conventions::variables;
use apex_counts::{Defect, Place};
use apex_trace::counts::{CountsFile, LaunchCounts};
use cuda_launch::LaunchConfig;
use ptx_exec::{Fault, Group, LatentDefect, LaunchStats, Observation, Shadow, WatchOptions};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The configuration of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// Grid, block, cluster and dynamic shared memory.
    pub launch: LaunchConfig,
    /// Whether all blocks must be resident at once, so that they can wait for each other.
    pub cooperative: bool,
}

/// Configurations whose launches are counted at most.
const MAX_CONFIGURATIONS: usize = 4096;

/// Counted launches beyond the first of a configuration take at most this part of the time of all.
const BUDGET: u32 = 20;

/// Warp instructions up to which a launch is counted completely, which takes a fifth of a second.
/// Longer launches are sampled.
const WHOLE: u64 = 1 << 20;

/// Total time of counting after which [`START`] replaces [`WHOLE`] if counting has also exceeded
/// its share of the time of all launches.
const GRACE: Duration = Duration::from_secs(1);
const START: u64 = 1 << 14;

/// Nanoseconds that it takes to count an instruction of a warp, roughly.
const COUNT_NS: u64 = 200;

/// Source files whose text is kept at most.
const MAX_SOURCES: usize = 256;

/// Different defects that are kept at most.
const MAX_DEFECTS: usize = 1000;

/// Defects that the host has to read that are kept at most.
const MAX_LATENT: usize = 256;

/// The launches that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    Off,
    Sampled,
    All,
}

struct Watcher {
    check: bool,
    counting: Counting,
    session: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<CountsFile>,
    /// Whether the file could not be written.
    failed: bool,
    launches: HashMap<(String, Configuration), u64>,
    /// Source files that lines were counted of.
    sources: HashSet<Arc<str>>,
    /// Kernels that were executed as machine code.
    machine_code: HashSet<String>,
    counted: Duration,
    all: Duration,
    defects: Vec<ReportedDefect>,
    /// Copies of what nobody had written: defects once the host reads them.
    latent: Vec<LatentDefect>,
}

/// A defect, all its places, and the count that was last written down.
struct ReportedDefect {
    group: Group,
    written: u64,
}

fn watcher() -> &'static Watcher {
    static WATCHER: OnceLock<Watcher> = OnceLock::new();
    WATCHER.get_or_init(|| {
        let check = variables::CPU_CHECK.is_on();
        let session = variables::SESSION.path().filter(|session| session.is_dir());
        let counting = match variables::CPU_COUNTS.value() {
            _ if session.is_none() => Counting::Off,
            Some(value) if value == "off" => Counting::Off,
            Some(value) if value == "all" => Counting::All,
            _ => Counting::Sampled,
        };
        if check {
            // SAFETY: the function touches nothing but this module's state, which lives as long as
            // the library.
            unsafe { libc::atexit(conclude) };
        }
        Watcher { check, counting, session, state: Mutex::default() }
    })
}

/// Whether launches are checked for defects.
pub fn checks() -> bool {
    watcher().check
}

/// Has `execute` run a launch of `kernel`, watched as it is its turn, and keeps what was seen.
/// Clusters of several blocks are not watched.
pub fn around(
    kernel: &str,
    configuration: Configuration,
    execute: impl FnOnce(WatchOptions) -> (Result<LaunchStats, Fault>, Observation),
) -> Result<(), Box<Fault>> {
    let watcher = watcher();
    let is_cluster = configuration.launch.blocks_per_cluster() > 1;
    if is_cluster || !watcher.check && watcher.counting == Counting::Off {
        return execute(WatchOptions::default()).0.map(drop).map_err(Box::new);
    }
    let count = watcher.wants_counts(kernel, configuration);
    let started = Instant::now();
    let sample = watcher.sample();
    let (outcome, seen) = execute(WatchOptions { count, sample, check: watcher.check });
    watcher.keep(kernel, configuration, seen, count, started.elapsed());
    outcome.map(drop).map_err(Box::new)
}

/// A kernel has been executed as machine code, if `is_so`: the session keeps its name.
pub fn machine_code(kernel: &str, is_so: impl FnOnce() -> bool) {
    let watcher = watcher();
    if watcher.session.is_none() {
        return;
    }
    let mut state = watcher.lock();
    let known = &mut state.machine_code;
    if known.len() < MAX_CONFIGURATIONS && !known.contains(kernel) && is_so() {
        known.insert(kernel.to_owned());
        state.write(watcher, |file| file.machine_code(kernel));
    }
}

/// The host reads device memory: copies of what nobody had written in it are defects.
pub fn host_reads(address: u64, bytes: u64) {
    let watcher = watcher();
    let mut state = watcher.lock();
    let is_read = |latent: &mut LatentDefect| latent.is_in(address, bytes);
    let read: Vec<_> = state.latent.extract_if(.., is_read).collect();
    if !read.is_empty() {
        read.into_iter().for_each(|latent| state.tell_if_new(latent.group));
        state.write_defects(watcher);
    }
}

/// Bytes are copied from one place of device memory to another, which has the shadow `shadow`.
pub fn follow_copy(shadow: &Arc<Shadow>, address: u64, source: u64, bytes: u64) {
    let mut state = watcher().lock();
    state.latent.iter_mut().for_each(|latent| latent.follow(shadow, address, source, bytes));
}

/// Writes a fault into the session, under the name of its code.
pub fn fault(fault: &Fault, code: &str) {
    let (file, line) = fault.source.clone().unwrap_or_default();
    let place = Place { instruction: fault.instruction.clone(), ptx_line: fault.line, file, line };
    keep_fault(&fault.kernel, &fault.to_string(), code, place);
}

/// Writes the fault of a copy or its like into the session, under the name of its code.
pub fn fault_of_call(call: &str, text: &str, code: &str) {
    keep_fault(call, text, code, Place::default());
}

fn keep_fault(kernel: &str, text: &str, code: &str, place: Place) {
    let watcher = watcher();
    let places = vec![(place.clone(), None)];
    let defect = Defect {
        kind: code.to_owned(),
        kernel: kernel.to_owned(),
        text: text.to_owned(),
        place,
        other: None,
        count: 1,
        places: 1,
    };
    let mut state = watcher.lock();
    state.found(Group { defect, places });
    state.write_defects(watcher);
}

impl Watcher {
    fn wants_counts(&self, kernel: &str, configuration: Configuration) -> bool {
        let mut state = self.lock();
        match self.counting {
            Counting::Off => false,
            Counting::All => true,
            Counting::Sampled => {
                let key = (kernel.to_owned(), configuration);
                if !state.launches.contains_key(&key) && state.launches.len() >= MAX_CONFIGURATIONS {
                    return false;
                }
                let launches = state.launches.entry(key).or_insert(0);
                *launches += 1;
                let launches = *launches;
                launches == 1 || (launches.is_power_of_two() && state.counted * BUDGET < state.all)
            }
        }
    }

    /// Returns the number of warp instructions after which a launch's sample is complete; `None` if
    /// all are counted.
    fn sample(&self) -> Option<u64> {
        if self.counting != Counting::Sampled {
            return None;
        }
        let state = self.lock();
        let generous = state.counted < GRACE || state.counted * BUDGET < state.all;
        Some(if generous { WHOLE } else { START })
    }

    fn keep(
        &self,
        kernel: &str,
        configuration: Configuration,
        seen: Observation,
        counted: bool,
        took: Duration,
    ) {
        let mut state = self.lock();
        state.all += took;
        if counted {
            let watched = seen.counts.as_ref().map_or(0, |counted| counted.watched);
            state.counted += took.min(Duration::from_nanos(watched.saturating_mul(COUNT_NS)));
        }
        if let Some(counted) = seen.counts {
            let launch = LaunchCounts { kernel: kernel.to_owned(), launch: configuration.launch, counted };
            state.write(self, |file| file.launch(&launch));
            for line in &launch.counted.lines {
                if state.names_a_new_file(&line.file) {
                    state.write(self, |file| file.source(&line.file));
                }
            }
        }
        seen.defects.into_iter().for_each(|group| state.tell_if_new(group));
        seen.latent.into_iter().for_each(|latent| state.remember(latent));
        state.write_defects(self);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether this is a source file whose text has not been kept yet. Lines of the PTX have none.
    fn names_a_new_file(&mut self, name: &Arc<str>) -> bool {
        !name.is_empty() && self.sources.len() < MAX_SOURCES && self.sources.insert(Arc::clone(name))
    }

    /// Counts a defect, and prints a new one.
    fn tell_if_new(&mut self, group: Group) {
        if self.found(group.clone()) {
            tell(&group.defect);
        }
    }

    /// Keeps a defect of which the host has to read something first.
    fn remember(&mut self, latent: LatentDefect) {
        if let Some(known) = self.latent.iter_mut().find(|known| is_same(&known.group, &latent.group)) {
            known.absorb(latent);
        } else if self.latent.len() < MAX_LATENT {
            self.latent.push(latent);
        }
    }

    /// Counts a defect; whether it is a new one that is kept.
    fn found(&mut self, group: Group) -> bool {
        let same = |known: &&mut ReportedDefect| is_same(&known.group, &group);
        if let Some(ReportedDefect { group: known, .. }) = self.defects.iter_mut().find(same) {
            known.defect.count = known.defect.count.saturating_add(group.defect.count);
            for place in group.places {
                if !known.places.contains(&place) {
                    known.places.push(place);
                }
            }
            known.defect.places = known.places.len() as u64;
            return false;
        }
        let kept = self.defects.len() < MAX_DEFECTS;
        if kept {
            self.defects.push(ReportedDefect { group, written: 0 });
        }
        kept
    }

    /// Writes down the defects whose count has doubled since that was done last.
    fn write_defects(&mut self, watcher: &Watcher) {
        let due = |found: &ReportedDefect| {
            found.group.defect.count >= found.written.max(1) * 2 || found.written == 0
        };
        self.write_defects_if(watcher, due);
    }

    fn write_defects_if(&mut self, watcher: &Watcher, due: impl Fn(&ReportedDefect) -> bool) {
        let mut defects = std::mem::take(&mut self.defects);
        for found in defects.iter_mut().filter(|found| due(found)) {
            found.written = found.group.defect.count;
            self.write(watcher, |file| file.defect(&found.group.defect));
        }
        self.defects = defects;
    }

    /// Writes to this process's file, which is made when it is first needed.
    fn write(&mut self, watcher: &Watcher, write: impl FnOnce(&mut CountsFile) -> std::io::Result<()>) {
        let Some(session) = &watcher.session else { return };
        if self.failed {
            return;
        }
        if self.file.as_ref().is_none_or(|file| !file.is_ours()) {
            match CountsFile::create(session) {
                Ok(file) => self.file = Some(file),
                Err(error) => return self.give_up(&error),
            }
        }
        if let Some(Err(error)) = self.file.as_mut().map(write) {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &std::io::Error) {
        self.failed = true;
        eprintln!("apex: cpu device: {error}: what is counted and found from here on is not recorded");
    }
}

/// Whether two defects are one: they share a place.
fn is_same(one: &Group, other: &Group) -> bool {
    (&one.defect.kind, &one.defect.kernel) == (&other.defect.kind, &other.defect.kernel)
        && other.places.iter().any(|place| one.places.contains(place))
}

/// Says on standard error what is wrong, and where.
fn tell(defect: &Defect) {
    let Defect { kind, kernel, text, place, other, places, .. } = defect;
    let joined = if kind == "uninitialized-read" { "loaded at" } else { "and" };
    let other = other.as_ref().map_or_else(String::new, |other| format!("\n    {joined} {other}"));
    let more = match places {
        0 | 1 => String::new(),
        _ => format!(" (the first of {places} places of one mistake)"),
    };
    let text =
        format!("apex: cpu device: {kind} in kernel {kernel}\n    {text}\n    at {place}{other}{more}");
    // Names of files and kernels are foreign.
    eprintln!("{}", apex_untrusted::text::printable_but(&text, &['\n']));
}

/// The end of the process: the last counts, and a line that sums up.
extern "C" fn conclude() {
    let watcher = watcher();
    // A thread that is being ended may hold the lock for ever.
    let Ok(mut state) = watcher.state.try_lock() else { return };
    state.write_defects_if(watcher, |found| found.written != found.group.defect.count);
    let (defects, times) = state
        .defects
        .iter()
        .fold((0, 0), |(defects, times), found| (defects + 1, times + found.group.defect.count));
    match defects {
        0 => eprintln!("apex: cpu device: check: no defects found"),
        _ => {
            let plural = |number: u64| if number == 1 { "" } else { "s" };
            let ends = (plural(defects), plural(times));
            eprintln!("apex: cpu device: check: {defects} defect{}, met {times} time{}", ends.0, ends.1)
        }
    }
}
