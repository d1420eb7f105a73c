//! Places in the program that launch kernels and make other calls: call stacks, and the one line of
//! each that the user can change.
//!
//! Stacks are samples. How a kernel's launches divide among places is known as well as its sampled
//! launches tell; a stack that was read where a thread first launched the kernel proves that the
//! place launches it, and says nothing of how often.

use super::Profile;
use super::interned::Interned;
use super::native::Symbolizer;
use apex_trace::Process;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The frames of a thread when it launched something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CallStack {
    /// Frames of the Python interpreter, innermost first.
    pub frames: Vec<Frame>,
    /// Frames of the user's compiled code, innermost first; of a thread with frames of the
    /// interpreter, those that the innermost of these called.
    pub native: Vec<Frame>,
    /// The thread's name.
    pub thread: String,
    /// Whether there are outer frames that were not recorded.
    pub is_cut: bool,
}

/// A frame of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Frame {
    /// Path of the source file, or a name such as `<string>`.
    pub file: String,
    /// Line; `None` if unknown. Compiled code without debug information has the path of its
    /// executable file or library, and no line.
    pub line: Option<u32>,
    /// Name of the function, with those that it is defined in where the interpreter or the linker
    /// tells.
    pub function: String,
}

/// The number of sampled launches of a kernel or graph with one call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StackCount {
    /// Index into [`Profile::call_stacks`].
    pub stack: usize,
    /// Threads that launched it with this stack first.
    pub first_seen: u64,
    /// Sampled launches.
    pub sampled: u64,
}

/// The place in the program that stands for a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site<'p> {
    /// The innermost line that is not a library's, or the innermost of all.
    Line(&'p Frame),
    /// A line of Python, and the user's compiled code that it calls.
    Through {
        /// The line of Python.
        python: &'p Frame,
        /// The innermost function of the compiled code.
        native: &'p Frame,
    },
    /// A worker of PyTorch's autograd: a backward pass.
    Autograd,
    /// A thread none of whose frames has a known function.
    Thread(&'p str),
}

/// The beginning of PyTorch's names for threads that run backward passes.
const AUTOGRAD_THREADS: &str = "pt_autograd_";

/// Parts of paths of what is installed and not the user's: packages, the standard library, the
/// interpreter's own.
const LIBRARY_FOLDERS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3."];
const FROZEN: &str = "<frozen ";

impl Frame {
    /// Whether the code belongs to an installed package or to the standard library, or was generated
    /// by one.
    pub fn is_of_library(&self) -> bool {
        self.file.starts_with(FROZEN)
            || LIBRARY_FOLDERS.iter().any(|folder| self.file.contains(folder))
            || self.is_generated()
    }

    /// Whether `torch.compile` has generated the code: its files are named after `c` and a hash.
    fn is_generated(&self) -> bool {
        let name = self.file.rsplit('/').next().and_then(|name| name.strip_suffix(".py")).unwrap_or_default();
        let is_digit = |c: u8| c.is_ascii_lowercase() || (b'2'..=b'7').contains(&c);
        name.len() == 52 && name.starts_with('c') && name.bytes().all(is_digit)
    }
}

impl CallStack {
    /// The place that stands for it.
    pub fn site(&self) -> Site<'_> {
        let of_user = self.frames.iter().find(|frame| !frame.is_of_library());
        match (of_user.or(self.frames.first()), self.native.first()) {
            (Some(python), Some(native)) => Site::Through { python, native },
            (Some(frame), None) | (None, Some(frame)) => Site::Line(frame),
            (None, None) if self.thread.starts_with(AUTOGRAD_THREADS) => Site::Autograd,
            (None, None) => Site::Thread(&self.thread),
        }
    }
}

impl fmt::Display for Frame {
    /// `train.py:48 train_step`
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { file, line, function } = self;
        let name = file.rsplit('/').next().unwrap_or(file);
        match line {
            Some(line) => write!(to, "{name}:{line} {function}"),
            None => write!(to, "{name} {function}"),
        }
    }
}

impl fmt::Display for Site<'_> {
    /// `train.py:48 train_step`, `train.py:48 train_step via scale.cpp:12 scale`
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Line(frame) => frame.fmt(to),
            Site::Through { python, native } => write!(to, "{python} via {native}"),
            Site::Autograd => to.write_str("autograd (backward pass)"),
            Site::Thread(name) => write!(to, "unknown: no symbols (thread {name})"),
        }
    }
}

/// The share of a kernel's launches that comes from a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteShare<'p> {
    /// The place.
    pub site: Site<'p>,
    /// Sampled launches from it.
    pub samples: u64,
    /// Its share of the sampled launches; `None` where there are none.
    pub share: Option<f64>,
}

/// The sums over launches from a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteTotals {
    /// The place as text.
    pub place: String,
    /// Its frame; `None` where the thread has no frame that is known, or no stack was read.
    pub frame: Option<Frame>,
    /// The compiled code that a line of Python calls; `None` where it calls none of the user's.
    pub native: Option<Frame>,
    /// Launches of kernels and graphs: each one's launches are divided among places as its samples
    /// are.
    pub launches: f64,
    /// GPU time of these, divided likewise; 0 where nothing was timed.
    pub gpu_time_ns: f64,
    /// Sampled launches.
    pub samples: u64,
    /// Kernels that it launches: indices into [`Profile::kernels`].
    pub kernels: Vec<usize>,
}

/// The place of launches whose division among places is not known.
const NOT_SAMPLED: &str = "several places, not sampled";
/// The place of launches of which no stack was read.
pub(super) const NO_STACK: &str = "unknown: no call stack was read";

impl Profile {
    /// The places that launch what `counts` are of, the most frequent first.
    pub fn sites(&self, counts: &[StackCount]) -> Vec<SiteShare<'_>> {
        let mut samples = BTreeMap::<Site<'_>, u64>::new();
        for count in counts {
            if let Some(stack) = self.call_stacks.get(count.stack) {
                *samples.entry(stack.site()).or_default() += count.sampled;
            }
        }
        let all: u64 = samples.values().sum();
        let share = |samples: u64| (all > 0).then(|| samples as f64 / all as f64);
        let mut sites: Vec<_> = samples
            .into_iter()
            .map(|(site, samples)| SiteShare { site, samples, share: share(samples) })
            .collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.samples));
        sites
    }

    /// The place that most of what `counts` are of comes from, and how many others there are:
    /// `train.py:48 train_step and 2 more`; `None` where no call stack was read, or where the most
    /// frequent one has no known function.
    pub fn main_place(&self, counts: &[StackCount]) -> Option<String> {
        let sites = self.sites(counts);
        let first = sites.first().filter(|first| !matches!(first.site, Site::Thread(_)))?;
        let more = match sites.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!("{}{more}", first.site))
    }

    /// Returns the sums over launches from each place, by GPU time, then by launches; empty if no
    /// call stack was read.
    pub fn by_site(&self) -> Vec<SiteTotals> {
        if self.call_stacks.is_empty() {
            return Vec::new();
        }
        let mut totals = HashMap::<(String, Option<Site<'_>>), SiteTotals>::new();
        for (index, kernel) in self.kernels.iter().enumerate() {
            let work = (kernel.launches.calls as f64, kernel.gpu_total_ns().unwrap_or(0.0));
            self.divide(&kernel.stacks, work, Some(index), &mut totals);
        }
        for graph in &self.graphs {
            let work = (graph.launches as f64, graph.gpu.as_ref().map_or(0.0, |gpu| gpu.total_ns.value));
            self.divide(&graph.stacks, work, None, &mut totals);
        }
        let mut totals: Vec<_> = totals.into_values().collect();
        totals.sort_by(|a, b| {
            let cost = |totals: &SiteTotals| (totals.gpu_time_ns, totals.launches);
            cost(b).partial_cmp(&cost(a)).unwrap_or(std::cmp::Ordering::Equal).then(a.place.cmp(&b.place))
        });
        totals
    }

    /// Divides launches and GPU time of one kernel or graph among its places.
    fn divide<'p>(
        &'p self,
        counts: &[StackCount],
        (launches, gpu_time_ns): (f64, f64),
        kernel: Option<usize>,
        totals: &mut HashMap<(String, Option<Site<'p>>), SiteTotals>,
    ) {
        let sites = self.sites(counts);
        let mut add = |place: String, site: Option<Site<'p>>, share: f64, samples: u64| {
            let entry = totals.entry((place.clone(), site)).or_insert_with(|| SiteTotals {
                place,
                frame: site.and_then(Site::frame).cloned(),
                native: site.and_then(Site::native).cloned(),
                ..SiteTotals::default()
            });
            entry.launches += launches * share;
            entry.gpu_time_ns += gpu_time_ns * share;
            entry.samples += samples;
            entry.kernels.extend(kernel);
        };
        match sites[..] {
            [] if launches > 0.0 => add(NO_STACK.to_owned(), None, 1.0, 0),
            [SiteShare { site, samples, .. }] => add(site.to_string(), Some(site), 1.0, samples),
            [SiteShare { share: None, .. }, ..] => add(NOT_SAMPLED.to_owned(), None, 1.0, 0),
            _ => {
                for SiteShare { site, samples, share } in sites {
                    add(site.to_string(), Some(site), share.unwrap_or(0.0), samples);
                }
            }
        }
    }
}

impl<'p> Site<'p> {
    fn frame(self) -> Option<&'p Frame> {
        match self {
            Site::Line(frame) | Site::Through { python: frame, .. } => Some(frame),
            Site::Autograd | Site::Thread(_) => None,
        }
    }

    fn native(self) -> Option<&'p Frame> {
        match self {
            Site::Through { native, .. } => Some(native),
            Site::Line(_) | Site::Autograd | Site::Thread(_) => None,
        }
    }
}

/// The call stacks of a profile that grows, each once.
#[derive(Default)]
pub(super) struct Stacks {
    all: Interned<CallStack>,
    symbolizer: Symbolizer,
}

impl Stacks {
    /// The place of the stack that a process defines as `id`, of a launch of `kernel` if it is one;
    /// `None` if the process does not define it.
    pub fn of_process(&mut self, process: &Process, id: u32, kernel: Option<&str>) -> Option<usize> {
        let stack = process.definitions.call_stack(id)?;
        let frame = |frame: &apex_trace::definition::PythonFrame| {
            let code = process.definitions.python_code(frame.code)?;
            let (file, function) = (code.file.clone(), code.function.clone());
            Some(Frame { file, line: code.line(frame.offset), function })
        };
        let native = stack.native.iter().filter_map(|&frame| {
            let module = process.definitions.module(frame.module)?;
            Some(self.symbolizer.frames(module, frame, kernel))
        });
        let native = native.flatten().collect();
        Some(self.all.place(CallStack {
            frames: stack.python.iter().filter_map(frame).collect(),
            native,
            thread: stack.thread.clone(),
            is_cut: stack.is_cut,
        }))
    }

    /// Returns the site of the stack with an index.
    pub fn site(&self, place: usize) -> Site<'_> {
        self.all.get(place).site()
    }

    /// Adds the stacks of others; their places here.
    pub fn merge(&mut self, others: Stacks) -> Vec<usize> {
        self.all.merge(others.all)
    }

    /// See [`Interned::finish`].
    pub fn finish(self) -> (Vec<CallStack>, Vec<usize>) {
        self.all.finish()
    }
}

/// The number of stacks that were read for one kernel or graph, by index in a list of stacks.
#[derive(Clone, Debug, Default)]
pub(super) struct StackCounts(BTreeMap<usize, StackCount>);

impl StackCounts {
    /// Counts a stack that was read.
    pub fn add(&mut self, stack: usize, is_first_seen: bool) {
        let count = self.0.entry(stack).or_insert(StackCount { stack, ..StackCount::default() });
        count.first_seen += u64::from(is_first_seen);
        count.sampled += u64::from(!is_first_seen);
    }

    /// Adds the counts of others, whose stacks have these places here.
    pub fn merge(&mut self, others: &StackCounts, place: &[usize]) {
        for other in others.0.values() {
            let stack = place[other.stack];
            let count = self.0.entry(stack).or_insert(StackCount { stack, ..StackCount::default() });
            count.first_seen += other.first_seen;
            count.sampled += other.sampled;
        }
    }

    /// As a list.
    pub fn counts(&self) -> Vec<StackCount> {
        self.0.values().copied().collect()
    }

    /// The most frequent first, with stacks in their final places.
    pub fn finish(&self, place: &[usize]) -> Vec<StackCount> {
        let mut counts = self.counts();
        renumber_stacks(&mut counts, place);
        counts
    }
}

/// Moves stacks to other places, and puts the most frequent first.
pub(super) fn renumber_stacks(counts: &mut [StackCount], place: &[usize]) {
    for count in counts.iter_mut() {
        count.stack = place[count.stack];
    }
    counts.sort_by_key(|count| (std::cmp::Reverse((count.sampled, count.first_seen)), count.stack));
}

#[cfg(test)]
mod tests {
    use super::super::{Kernel, Launches};
    use super::*;

    fn frame(file: &str, line: u32, function: &str) -> Frame {
        Frame { file: file.into(), line: Some(line), function: function.into() }
    }

    fn stack(frames: &[Frame], thread: &str) -> CallStack {
        CallStack { frames: frames.to_vec(), thread: thread.into(), ..CallStack::default() }
    }

    #[test]
    fn the_innermost_line_outside_of_libraries_stands_for_a_stack() {
        let torch =
            frame("/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 125, "Linear.forward");
        let standard = frame("/usr/lib/python3.11/functools.py", 3, "reduce");
        let (inner, outer) =
            (frame("/home/me/train.py", 48, "train_step"), frame("/home/me/train.py", 60, "main"));
        let all = stack(&[torch.clone(), standard, inner.clone(), outer.clone()], "python");
        assert_eq!(all.site(), Site::Line(&inner));
        assert_eq!(all.site().to_string(), "train.py:48 train_step");
        assert_eq!(stack(std::slice::from_ref(&torch), "python").site(), Site::Line(&torch));
        assert_eq!(stack(&[], "pt_autograd_0").site(), Site::Autograd);
        assert_eq!(stack(&[], "loader").site().to_string(), "unknown: no symbols (thread loader)");
        let native = frame("/home/me/scale.cpp", 12, "scale");
        let both = CallStack { native: vec![native.clone()], ..stack(&[torch, inner], "python") };
        assert_eq!(both.site().to_string(), "train.py:48 train_step via scale.cpp:12 scale");
        let compiled = CallStack { frames: Vec::new(), ..both };
        assert_eq!(compiled.site(), Site::Line(&native));
        assert!(frame("<frozen importlib._bootstrap>", 1, "f").is_of_library());
        let generated = "/tmp/x/fr/cfrf7ylqgykqkxiaihezz4vuopuubqsekf3rf5ca2xpn3xjbfc7x.py";
        assert!(frame(generated, 1, "Runner.call").is_of_library());
        assert!(!frame("/tmp/x/cfrf7.py", 1, "f").is_of_library());
        assert!(!frame("<string>", 1, "<module>").is_of_library());
    }

    #[test]
    fn launches_are_divided_among_places_as_samples_are() {
        let kernel = |calls, stacks| Kernel {
            launches: Launches { calls, ..Launches::default() },
            stacks,
            ..Kernel::default()
        };
        let count = |stack, first_seen, sampled| StackCount { stack, first_seen, sampled };
        let profile = Profile {
            call_stacks: vec![
                stack(&[frame("/a.py", 1, "f")], "t"),
                stack(&[frame("/b.py", 2, "g")], "t"),
                stack(&[frame("/a.py", 1, "f"), frame("/c.py", 9, "h")], "t"),
            ],
            kernels: vec![
                kernel(100, vec![count(0, 1, 1), count(1, 0, 3), count(2, 0, 0)]),
                kernel(10, vec![count(1, 1, 0)]),
                kernel(5, vec![count(0, 1, 0), count(1, 1, 0)]),
                kernel(7, vec![]),
            ],
            ..Profile::default()
        };
        let shares: Vec<_> =
            profile.sites(&profile.kernels[0].stacks).iter().map(|site| site.share).collect();
        assert_eq!(shares, [Some(0.75), Some(0.25)]);
        let by_site = profile.by_site();
        let found: Vec<_> =
            by_site.iter().map(|totals| (totals.place.as_str(), totals.launches, totals.samples)).collect();
        assert_eq!(
            found,
            [("b.py:2 g", 85.0, 3), ("a.py:1 f", 25.0, 1), (NO_STACK, 7.0, 0), (NOT_SAMPLED, 5.0, 0)]
        );
        assert_eq!(by_site[0].kernels, [0, 1]);
        assert_eq!(Profile { call_stacks: Vec::new(), ..profile }.by_site(), []);
    }
}
