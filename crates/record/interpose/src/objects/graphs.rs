//! Executable graphs: the work of one launch of each.
//!
//! The host makes one call for a graph of a thousand kernels. The graph's nodes are therefore read
//! when it is instantiated or updated, and a single node when its parameters are set. Each launch
//! is then one record, which names a definition with the kernels' configurations and their counts.
//! A changed graph gets a new definition when it is next launched: programs set the parameters of
//! many nodes between two launches, usually to the same configurations as before, which have the
//! same definition.
//!
//! Kernels are numbers here, which the caller assigns: [`Identify`]. Nodes whose work the host
//! cannot know are counted as opaque: the bodies of conditional nodes, and nodes changed in ways
//! that cannot be followed.

use super::lock;
use crate::driver::{self, Kernel, Node};
use crate::limits;
use crate::tables::{HandleMap, push, put};
use cuda_abi::types::*;
use std::collections::HashMap;
use std::sync::Mutex;

/// Graphs within graphs that are followed.
const DEEPEST: u32 = 16;

/// The caller's number for what a kernel node launches.
pub type Identify<'a> = &'a dyn Fn(&Kernel, CUgraphNode) -> u32;

/// The executable graphs of a process.
pub struct Graphs {
    /// The caller's numbers for those that have not changed since.
    numbers: HandleMap,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    graphs: HashMap<u64, Executable>,
    /// Nodes in all of them.
    nodes: usize,
}

/// An executable graph.
#[derive(Default)]
struct Executable {
    /// By handle in the graph that it was made from. Empty where there was no room.
    nodes: HashMap<u64, Entry>,
    /// The work outside of `nodes`.
    rest: Content,
}

/// A node of an executable graph.
#[derive(Clone, Copy)]
struct Entry {
    work: Work,
    is_enabled: bool,
    /// The node of the topmost graph that holds this one's graph; 0 for nodes of the topmost graph
    /// itself.
    within: u64,
}

/// The work of a node.
#[derive(Clone, Copy)]
enum Work {
    /// Its number.
    Kernel(u32),
    Copy,
    Set,
    Other,
    Opaque,
}

/// The sum of a launch's work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    /// Kernels' numbers in ascending order, each with its nodes.
    pub kernels: Vec<(u32, u32)>,
    /// Copy nodes.
    pub copies: u32,
    /// Set nodes.
    pub sets: u32,
    /// Nodes of other kinds that the host knows.
    pub others: u32,
    /// Nodes of which the host cannot know what they do.
    pub opaque: u32,
}

impl Content {
    /// Without memory for another kernel, the node counts as opaque.
    fn add(&mut self, work: Work) {
        match work {
            Work::Kernel(config) => match self.kernels.binary_search_by_key(&config, |&(known, _)| known) {
                Ok(at) => self.kernels[at].1 += 1,
                Err(at) if self.kernels.try_reserve(1).is_ok() => self.kernels.insert(at, (config, 1)),
                Err(_) => self.opaque += 1,
            },
            Work::Copy => self.copies += 1,
            Work::Set => self.sets += 1,
            Work::Other => self.others += 1,
            Work::Opaque => self.opaque += 1,
        }
    }
}

impl Executable {
    fn content(&self) -> Content {
        let Content { copies, sets, others, opaque, .. } = self.rest;
        let mut content = Content { kernels: Vec::new(), copies, sets, others, opaque };
        if content.kernels.try_reserve(self.rest.kernels.len()).is_ok() {
            content.kernels.extend_from_slice(&self.rest.kernels);
        }
        self.nodes.values().filter(|entry| entry.is_enabled).for_each(|entry| content.add(entry.work));
        content
    }
}

impl Graphs {
    /// `None` if there is no memory for them.
    pub fn new() -> Option<Graphs> {
        Some(Graphs { numbers: HandleMap::new(limits::GRAPH_HANDLES)?, book: Mutex::default() })
    }

    /// The number of what a launch of `graph` does, if the graph has not changed since it was
    /// given.
    #[inline]
    pub fn known(&self, graph: CUgraphExec) -> Option<u32> {
        self.numbers.get(graph as u64, 0)
    }

    /// As [`Graphs::known`], with a number from `give` where there is none; 0, which `give` may
    /// also return, for a graph that was not seen being made. The graph does not change meanwhile.
    #[cold]
    pub fn number(&self, graph: CUgraphExec, give: impl FnOnce(Content) -> u32) -> u32 {
        let book = lock(&self.book);
        let Some(content) = book.graphs.get(&(graph as u64)).map(Executable::content) else { return 0 };
        let number = give(content);
        if number != 0 {
            self.numbers.insert(graph as u64, 0, number);
        }
        number
    }

    /// `graph` was made from `source`, or has become like it.
    pub fn read(&self, graph: CUgraphExec, source: CUgraph, identify: Identify<'_>) {
        let mut nodes = Vec::new();
        collect(identify, source, 0, 0, &mut nodes);
        self.replace(graph, nodes);
    }

    fn replace(&self, graph: CUgraphExec, nodes: Vec<(u64, Work, u64)>) {
        let mut book = lock(&self.book);
        let old = book.graphs.remove(&(graph as u64)).map_or(0, |old| old.nodes.len());
        book.nodes -= old;
        let mut made = Executable::default();
        let fits =
            book.nodes + nodes.len() <= limits::GRAPH_NODES && made.nodes.try_reserve(nodes.len()).is_ok();
        for (handle, work, within) in nodes {
            if fits {
                made.nodes.insert(handle, Entry { work, is_enabled: true, within });
            } else {
                made.rest.add(work);
            }
        }
        book.nodes += made.nodes.len();
        let count = made.nodes.len();
        if book.graphs.len() >= limits::GRAPH_HANDLES || !put(&mut book.graphs, graph as u64, made) {
            book.nodes -= count;
        }
        self.numbers.remove(graph as u64);
    }

    /// A kernel node was given other parameters, which have this number.
    pub fn set_kernel(&self, graph: CUgraphExec, node: CUgraphNode, number: u32) {
        self.change(graph, node, |entry| entry.work = Work::Kernel(number));
    }

    /// A node was switched on or off.
    pub fn set_enabled(&self, graph: CUgraphExec, node: CUgraphNode, is_enabled: bool) {
        self.change(graph, node, |entry| entry.is_enabled = is_enabled);
    }

    fn change(&self, graph: CUgraphExec, node: CUgraphNode, change: impl FnOnce(&mut Entry)) {
        let mut book = lock(&self.book);
        let Some(executable) = book.graphs.get_mut(&(graph as u64)) else { return };
        match executable.nodes.get_mut(&(node as u64)) {
            Some(entry) => change(entry),
            None => executable.rest.opaque = executable.rest.opaque.max(1),
        }
        self.numbers.remove(graph as u64);
    }

    /// The graph within a node was replaced by `child`.
    pub fn set_child(&self, graph: CUgraphExec, node: CUgraphNode, child: CUgraph, identify: Identify<'_>) {
        let mut nodes = Vec::new();
        collect(identify, child, 1, node as u64, &mut nodes);
        let mut book = lock(&self.book);
        let Some(mut executable) = book.graphs.remove(&(graph as u64)) else { return };
        book.nodes -= executable.nodes.len();
        let before = executable.nodes.len();
        executable.nodes.retain(|_, entry| entry.within != node as u64);
        if executable.nodes.len() == before || book.nodes + before + nodes.len() > limits::GRAPH_NODES {
            executable.rest.opaque = executable.rest.opaque.max(1);
        }
        if book.nodes + executable.nodes.len() + nodes.len() <= limits::GRAPH_NODES
            && executable.nodes.try_reserve(nodes.len()).is_ok()
        {
            let entry = |(handle, work, within)| (handle, Entry { work, is_enabled: true, within });
            executable.nodes.extend(nodes.into_iter().map(entry));
        }
        let count = executable.nodes.len();
        if put(&mut book.graphs, graph as u64, executable) {
            book.nodes += count;
        }
        self.numbers.remove(graph as u64);
    }

    /// The graph is about to be destroyed.
    pub fn forget(&self, graph: CUgraphExec) {
        let mut book = lock(&self.book);
        if let Some(old) = book.graphs.remove(&(graph as u64)) {
            book.nodes -= old.nodes.len();
        }
        self.numbers.remove(graph as u64);
    }
}

/// Reads the nodes of `graph` into `found`: handle, work, and the topmost node within which they
/// are.
fn collect(
    identify: Identify<'_>,
    graph: CUgraph,
    depth: u32,
    within: u64,
    found: &mut Vec<(u64, Work, u64)>,
) {
    for node in driver::graph_nodes(graph) {
        let work = match driver::describe_node(node) {
            Node::Kernel(kernel) => Work::Kernel(identify(&kernel, node)),
            Node::Graph(child) if depth < DEEPEST => {
                let within = if within == 0 { node as u64 } else { within };
                collect(identify, child, depth + 1, within, found);
                continue;
            }
            Node::Copy => Work::Copy,
            Node::Set => Work::Set,
            Node::Other => Work::Other,
            Node::Graph(_) | Node::Opaque => Work::Opaque,
        };
        push(found, (node as u64, work, within));
    }
}
