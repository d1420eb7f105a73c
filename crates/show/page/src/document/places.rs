//! Places in the program that the work comes from: call stacks as a tree, and the program's ranges.
//!
//! A kernel's launches and GPU time are divided among its call stacks as its sampled launches are,
//! as [`Profile::by_site`] divides them among places.

use super::Limits;
use super::figure::{Figure, text};
use apex_ordered::{Gather, Order};
use apex_profile::{
    Account, CallStack, Frame, HostFrame, HostProfile, HostStack, Profile, SiteTotals, StackCount, total,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Frames of a path; the outermost are left out of a longer one.
const FRAMES: usize = 100;
/// Bytes of a frame or of a file.
const FRAME: usize = 160;

/// Launches by the place in the program.
#[derive(Debug, Serialize)]
pub struct Places {
    /// Frame that all call stacks have in common: the program.
    root: Node,
    /// Call stacks that were read on sampled launches.
    samples: u64,
    /// The innermost lines that are not a library's, the most expensive first.
    list: Vec<Site>,
    left_out: usize,
    /// Where the host was while devices were idle; absent where it was not sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<Idle>,
}

/// Where the host was while devices were idle.
#[derive(Debug, Serialize)]
struct Idle {
    /// All idle time; below it accounts, and below these the frames of the thread that launches
    /// next.
    root: IdleNode,
    /// Samples that were read.
    samples: u64,
    /// Whether it is what all threads did, in a session of `apex attach`, which knows no device:
    /// then times are those of threads, and what they did stands in place of accounts.
    is_of_host: bool,
}

/// A frame with the idle time that the host spent in it and in the frames inside of it.
#[derive(Debug, Serialize)]
struct IdleNode {
    name: String,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    idle_ns: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<IdleNode>,
}

/// Launches from a place.
#[derive(Debug, Serialize)]
struct Site {
    place: String,
    file: Option<String>,
    launches: f64,
    gpu_time_ns: f64,
    samples: u64,
    kernels: usize,
}

/// A frame with what it launches, that of the frames inside of it included.
#[derive(Debug, Default, Serialize)]
struct Node {
    name: String,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    gpu_time_ns: f64,
    launches: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// The whole program, or what is no frame: a thread, a place that is not known.
    #[default]
    Other,
    /// A frame of the user's code.
    Own,
    /// A frame of an installed package or of the standard library.
    Library,
    /// A kernel or a graph.
    Kernel,
    /// Nodes that are too small to be shown.
    Smaller,
}

/// A node while the tree is made.
#[derive(Default)]
struct Branch {
    gpu_time_ns: f64,
    launches: f64,
    children: BTreeMap<(Kind, String, Option<String>), Branch>,
}

/// The ranges that the program names (NVTX).
#[derive(Debug, Serialize)]
pub struct Ranges {
    list: Vec<Range>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct Range {
    name: String,
    domain: String,
    depth: usize,
    is_process_wide: bool,
    count: u64,
    host_ns: f64,
    launches: u64,
    copies: u64,
    gpu_time_ns: Option<Figure>,
    idle_ns: Option<Figure>,
}

impl Places {
    pub fn of(profile: &Profile, limits: &Limits) -> Self {
        let mut root = Branch::default();
        if !profile.call_stacks.is_empty() {
            for kernel in &profile.kernels {
                let work = (kernel.launches.calls as f64, kernel.gpu_total_ns().unwrap_or(0.0));
                root.add_work(profile, &kernel.stacks, work, &kernel.short_name);
            }
            for graph in &profile.graphs {
                let work = (graph.launches as f64, graph.gpu.as_ref().map_or(0.0, |gpu| gpu.total_ns.value));
                root.add_work(profile, &graph.stacks, work, &format!("graph of {} kernels", nodes(graph)));
            }
        }
        let kernels = profile.kernels.iter().flat_map(|kernel| &kernel.stacks);
        let counts = kernels.chain(profile.graphs.iter().flat_map(|graph| &graph.stacks));
        let samples = counts.map(|count| count.sampled).sum();
        let sites = profile.by_site();
        let site = |site: &SiteTotals| Site {
            place: text(&site.place, FRAME),
            file: site.frame.as_ref().map(|frame| text(&frame.file, FRAME)),
            launches: site.launches,
            gpu_time_ns: site.gpu_time_ns,
            samples: site.samples,
            kernels: site.kernels.len(),
        };
        Self {
            root: root.finish_within(limits.nodes),
            samples,
            list: sites.iter().take(limits.places).map(site).collect(),
            left_out: sites.len().saturating_sub(limits.places),
            idle: Idle::of(profile, limits.nodes),
        }
    }
}

impl Idle {
    fn of(profile: &Profile, nodes: usize) -> Option<Self> {
        if profile.host_stacks.is_empty() {
            return None;
        }
        if let Some(host) = &profile.host {
            return Some(Self::of_host(profile, host, nodes));
        }
        let (mut root, mut samples) = (Branch::default(), 0_u64);
        for group in profile.activities.iter().flat_map(|activity| &activity.host_samples) {
            samples = samples.saturating_add(group.read);
            let account = (Kind::Other, Account::Idle(group.cause).name().to_owned(), None);
            let all: f64 = group.stacks.iter().map(|one| one.samples as f64).sum();
            let known = if all > 0.0 { group.sampled_ns } else { 0.0 };
            for one in &group.stacks {
                let path = host_path(&profile.host_stacks[one.stack]);
                let time = known * (one.samples as f64 / all);
                root.add([account.clone()].into_iter().chain(path), (0.0, time), 1.0);
            }
            if group.idle_ns > known {
                let unknown = (Kind::Other, "not sampled".to_owned(), None);
                root.add([account, unknown].into_iter(), (0.0, group.idle_ns - known), 1.0);
            }
        }
        Some(Self { root: IdleNode::of(root.finish_within(nodes)), samples, is_of_host: false })
    }

    fn of_host(profile: &Profile, host: &HostProfile, nodes: usize) -> Self {
        let (mut root, mut samples) = (Branch::default(), 0_u64);
        let processes: BTreeSet<u32> = host.threads.iter().map(|thread| thread.pid).gathered();
        let other = |name: String| (Kind::Other, name, None);
        for one in &host.stacks {
            samples = samples.saturating_add(one.samples);
            let thread = &host.threads[one.thread];
            let process = other(format!("{} ({})", thread.process, thread.pid));
            let heads = [other(one.state.in_words().to_owned()), process];
            let heads = heads.into_iter().take(if processes.len() > 1 { 2 } else { 1 });
            root.add(heads.chain(host_path(&profile.host_stacks[one.stack])), (0.0, one.time_ns), 1.0);
        }
        Self { root: IdleNode::of(root.finish_within(nodes)), samples, is_of_host: true }
    }
}

impl IdleNode {
    /// A tree whose times are idle time.
    fn of(node: Node) -> Self {
        let Node { name, kind, file, gpu_time_ns, children, .. } = node;
        Self {
            name,
            kind,
            file,
            idle_ns: gpu_time_ns,
            children: children.into_iter().map(Self::of).collect(),
        }
    }
}

/// The frames of a sampled stack from the outermost to the innermost.
fn host_path(stack: &HostStack) -> Vec<(Kind, String, Option<String>)> {
    let frames = &stack.frames[..stack.frames.len().min(FRAMES)];
    let cut = (frames.len() < stack.frames.len()).then(|| (Kind::Other, "… outer frames".to_owned(), None));
    let step = |frame: &HostFrame| {
        let kind = if frame.is_of_library() { Kind::Library } else { Kind::Own };
        (kind, frame.frame.to_string(), Some(frame.frame.file.clone()))
    };
    let path: Vec<_> = cut.into_iter().chain(frames.iter().rev().map(step)).collect();
    match path.is_empty() {
        true => vec![(Kind::Other, format!("thread {} without known frames", stack.thread), None)],
        false => path,
    }
}

fn nodes(graph: &apex_profile::Graph) -> u64 {
    graph.kernels.iter().map(|&(_, count)| u64::from(count)).sum()
}

impl Branch {
    /// Divides the work of a kernel or a graph among its call stacks.
    fn add_work(&mut self, profile: &Profile, counts: &[StackCount], work: (f64, f64), leaf: &str) {
        if work.0 <= 0.0 {
            return;
        }
        let known = || counts.iter().filter_map(|count| Some((profile.call_stacks.get(count.stack)?, count)));
        let all: u64 = known().map(|(_, count)| count.sampled).sum();
        let mut add = |path: Vec<(Kind, String, Option<String>)>, share: f64| {
            self.add(path.into_iter().chain([(Kind::Kernel, leaf.to_owned(), None)]), work, share);
        };
        let unknown = |why: &str| vec![(Kind::Other, why.to_owned(), None)];
        let mut stacks = known();
        match (stacks.next(), stacks.next()) {
            (None, _) => add(unknown("unknown: no call stack was read"), 1.0),
            (Some((stack, _)), None) => add(path(stack), 1.0),
            _ if all == 0 => add(unknown("several places, not sampled"), 1.0),
            _ => known()
                .filter(|(_, count)| count.sampled > 0)
                .for_each(|(stack, count)| add(path(stack), count.sampled as f64 / all as f64)),
        }
    }

    fn add(
        &mut self,
        path: impl Iterator<Item = (Kind, String, Option<String>)>,
        (launches, gpu_time_ns): (f64, f64),
        share: f64,
    ) {
        let mut at = self;
        at.launches += launches * share;
        at.gpu_time_ns += gpu_time_ns * share;
        for step in path {
            at = at.children.entry(step).or_default();
            at.launches += launches * share;
            at.gpu_time_ns += gpu_time_ns * share;
        }
    }

    fn count(&self, least: f64, whole: &Branch) -> usize {
        let children = self.children.values().filter(|child| child.weight(whole) >= least);
        1 + children.map(|child| child.count(least, whole)).sum::<usize>()
    }

    /// The larger of its shares of time and launches.
    fn weight(&self, whole: &Branch) -> f64 {
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        share(self.gpu_time_ns, whole.gpu_time_ns).max(share(self.launches, whole.launches))
    }

    /// The tree with at most `most` nodes, but for those that stand for smaller ones.
    fn finish_within(self, most: usize) -> Node {
        let mut least = 0.0;
        // Above one nothing but the root is left.
        while self.count(least, &self) > most && least <= 1.0 {
            least = if least == 0.0 { 1e-6 } else { least * 2.0 };
        }
        self.finish(&self, (Kind::Other, "program", None), least)
    }

    fn finish(&self, whole: &Branch, (kind, name, file): (Kind, &str, Option<&str>), least: f64) -> Node {
        let (shown, smaller): (Vec<_>, Vec<_>) =
            self.children.iter().partition(|(_, child)| child.weight(whole) >= least);
        let mut children: Vec<Node> = shown
            .into_iter()
            .map(|((kind, name, file), child)| child.finish(whole, (*kind, name, file.as_deref()), least))
            .collect();
        if !smaller.is_empty() {
            children.push(Node {
                name: format!("{} smaller", smaller.len()),
                kind: Kind::Smaller,
                gpu_time_ns: total(smaller.iter().map(|(_, child)| child.gpu_time_ns)),
                launches: total(smaller.iter().map(|(_, child)| child.launches)),
                ..Node::default()
            });
        }
        children
            .order_by(|a, b| b.gpu_time_ns.total_cmp(&a.gpu_time_ns).then(b.launches.total_cmp(&a.launches)));
        Node {
            name: text(name, FRAME),
            kind,
            file: file.map(|file| text(file, FRAME)),
            gpu_time_ns: self.gpu_time_ns,
            launches: self.launches,
            children,
        }
    }
}

/// The frames of a call stack from the outermost to the innermost.
fn path(stack: &CallStack) -> Vec<(Kind, String, Option<String>)> {
    let step = |frame: &Frame| {
        let kind = if frame.is_of_library() { Kind::Library } else { Kind::Own };
        (kind, frame.to_string(), Some(frame.file.clone()))
    };
    let frames: Vec<&Frame> = stack.frames.iter().rev().chain(stack.native.iter().rev()).collect();
    let innermost = &frames[frames.len().saturating_sub(FRAMES)..];
    let is_cut = stack.is_cut || innermost.len() < frames.len();
    let cut = is_cut.then(|| (Kind::Other, "… outer frames".to_owned(), None));
    let frames = innermost.iter().copied().map(step);
    let path: Vec<_> = cut.into_iter().chain(frames).collect();
    if path.is_empty() { vec![(Kind::Other, stack.site().to_string(), None)] } else { path }
}

impl Ranges {
    pub fn of(profile: &Profile, most: usize) -> Self {
        let mut depths: Vec<usize> = Vec::new();
        for range in &profile.ranges {
            let depth = range.parent.and_then(|parent| depths.get(parent)).map_or(0, |depth| depth + 1);
            depths.push(depth);
        }
        let list = profile.ranges.iter().zip(depths).take(most).map(|(range, depth)| Range {
            name: text(&range.name, FRAME),
            domain: text(&range.domain, FRAME),
            depth,
            is_process_wide: range.is_process_wide,
            count: range.count,
            host_ns: range.host_ns,
            launches: range.launches,
            copies: range.copies,
            gpu_time_ns: range.gpu_time_ns.map(Figure::of),
            idle_ns: range.idle_ns.map(Figure::of),
        });
        Self { list: list.collect(), left_out: profile.ranges.len().saturating_sub(most) }
    }
}
