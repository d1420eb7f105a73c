//! Graphs: operations and their dependencies, created once and launched many times.
//!
//! The program builds or captures a [`Graph`]; a [`GraphExec`] is a topologically sorted copy,
//! whose node parameters can be changed but not its edges. Nodes have their own handles, which are
//! valid for the graph that created them.
//!
//! A launch is one task, which executes the nodes one after the other in topological order. CUDA
//! allows any such order, and tests have each launch draw one ([`order`]); a single kernel node
//! uses all cores.

pub mod condition;
mod order;
pub mod user_object;

use crate::device;
use crate::error::{Error, Result, ensure, fail};
use crate::graph::condition::Condition;
use crate::graph::user_object::HeldObject;
use crate::handle::{Kind, Table};
use crate::stream::event::PlannedRecord;
use crate::stream::operation::Operation;
use cuda_abi::types::*;
use cuda_launch::{Dim3, LaunchConfig};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

static GRAPHS: Table<Graph> = Table::new(Kind::Graph);
static EXECS: Table<GraphExec> = Table::new(Kind::GraphExec);
/// For each node, the graph that it is a node of.
static NODES: Table<Weak<Graph>> = Table::new(Kind::GraphNode);

/// A graph as the program builds it.
pub struct Graph {
    /// As the program knows it.
    pub handle: u64,
    /// In the order in which they were added, which is that of their handles.
    nodes: Mutex<Vec<Node>>,
    /// For a copy, what each node was copied from.
    origins: HashMap<u64, u64>,
    /// The user objects that the graph keeps alive for the program.
    user_objects: Mutex<Vec<Arc<HeldObject>>>,
    /// Conditions that were made for it.
    conditions: Mutex<Vec<Arc<Condition>>>,
}

/// One node.
#[derive(Clone)]
pub struct Node {
    /// As the program knows it.
    pub handle: u64,
    /// The operation that the node executes.
    pub operation: Operation,
    /// The nodes that come before it.
    pub after: Vec<u64>,
}

impl Graph {
    /// An empty graph with a name.
    pub fn create() -> Arc<Graph> {
        let graph = Arc::new(Graph {
            handle: GRAPHS.reserve(),
            nodes: Mutex::default(),
            origins: HashMap::new(),
            user_objects: Mutex::default(),
            conditions: Mutex::default(),
        });
        GRAPHS.insert(graph.handle, graph.clone());
        graph
    }

    /// The graph that a handle names.
    pub fn resolve(handle: CUgraph) -> Result<Arc<Graph>> {
        device::get()?;
        GRAPHS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// Takes away a graph's name, and those of its nodes.
    pub fn destroy(handle: CUgraph) -> Result {
        GRAPHS.remove(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        Ok(())
    }

    /// The graph that a node belongs to.
    pub fn of_node(node: CUgraphNode) -> Result<Arc<Graph>> {
        device::get()?;
        let home = NODES.get(node as u64).and_then(|graph| graph.upgrade());
        home.ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// Adds a node behind the nodes of `after`.
    pub fn add(self: &Arc<Graph>, operation: Operation, after: &[u64]) -> Result<u64> {
        let mut nodes = self.lock();
        ensure(after.iter().all(|handle| place(&nodes, *handle).is_ok()), CUDA_ERROR_INVALID_VALUE)?;
        let mut after = after.to_vec();
        after.dedup();
        let handle = NODES.add(Arc::new(Arc::downgrade(self)));
        nodes.push(Node { handle, operation, after });
        Ok(handle)
    }

    /// Takes a node away, and the edges that touch it.
    pub fn remove(&self, handle: u64) -> Result {
        let mut nodes = self.lock();
        let at = place(&nodes, handle)?;
        nodes.remove(at);
        nodes.iter_mut().for_each(|node| node.after.retain(|before| *before != handle));
        NODES.remove(handle);
        Ok(())
    }

    /// A node, as it is now.
    pub fn node(&self, handle: u64) -> Result<Node> {
        let nodes = self.lock();
        Ok(nodes[place(&nodes, handle)?].clone())
    }

    /// All nodes, in the order in which they were added.
    pub fn nodes(&self) -> Vec<Node> {
        self.lock().clone()
    }

    /// The nodes that come right behind a node.
    pub fn dependents(&self, handle: u64) -> Vec<u64> {
        self.lock().iter().filter(|node| node.after.contains(&handle)).map(|node| node.handle).collect()
    }

    /// Changes a node's operation to another of the same type.
    pub fn set_operation(&self, handle: u64, operation: Operation) -> Result {
        let mut nodes = self.lock();
        let at = place(&nodes, handle)?;
        replace(&mut nodes[at].operation, operation)
    }

    /// Adds an edge.
    pub fn connect(&self, from: u64, to: u64) -> Result {
        let mut nodes = self.lock();
        ensure(from != to, CUDA_ERROR_INVALID_VALUE)?;
        place(&nodes, from)?;
        let at = place(&nodes, to)?;
        let node = &mut nodes[at];
        ensure(!node.after.contains(&from), CUDA_ERROR_INVALID_VALUE)?;
        node.after.push(from);
        Ok(())
    }

    /// Takes an edge away.
    pub fn disconnect(&self, from: u64, to: u64) -> Result {
        let mut nodes = self.lock();
        let node = place(&nodes, to)?;
        let node = &mut nodes[node];
        let at =
            node.after.iter().position(|before| *before == from).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        node.after.remove(at);
        Ok(())
    }

    /// A copy with a name and nodes of its own.
    pub fn duplicate(&self) -> Arc<Graph> {
        let nodes = self.nodes();
        let renamed: HashMap<u64, u64> = nodes.iter().map(|node| (node.handle, NODES.reserve())).collect();
        let copies = nodes.iter().map(|node| Node {
            handle: renamed[&node.handle],
            operation: duplicated(&node.operation),
            after: node.after.iter().map(|before| renamed[before]).collect(),
        });
        let graph = Arc::new(Graph {
            handle: GRAPHS.reserve(),
            nodes: Mutex::new(copies.collect()),
            origins: renamed.iter().map(|(original, copy)| (*copy, *original)).collect(),
            user_objects: Mutex::new(self.user_objects().clone()),
            conditions: Mutex::new(self.conditions().clone()),
        });
        renamed.values().for_each(|copy| NODES.insert(*copy, Arc::new(Arc::downgrade(&graph))));
        GRAPHS.insert(graph.handle, graph.clone());
        graph
    }

    /// In a copy, the node that was made from `original`.
    pub fn copy_of(&self, original: u64) -> Result<u64> {
        let found = self.origins.iter().find(|(_, from)| **from == original);
        found.map(|(copy, _)| *copy).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// The nodes in an order that respects the edges; fails if they run in a circle.
    fn sorted(&self) -> Result<Vec<Node>> {
        let mut waiting = self.nodes();
        let mut sorted: Vec<Node> = Vec::with_capacity(waiting.len());
        let mut placed = std::collections::HashSet::new();
        while !waiting.is_empty() {
            let before = waiting.len();
            // Keeps the order in which nodes were added where the edges allow it.
            waiting.retain(|node| {
                let ready = node.after.iter().all(|handle| placed.contains(handle));
                if ready {
                    placed.insert(node.handle);
                    sorted.push(node.clone());
                }
                !ready
            });
            ensure(waiting.len() < before, CUDA_ERROR_INVALID_VALUE)?;
        }
        Ok(sorted)
    }

    /// Keeps references to a user object for as long as the graph, its copies and what is
    /// instantiated from them live.
    pub fn hold(&self, held: HeldObject) {
        self.user_objects().push(Arc::new(held));
    }

    /// Gives references back that the graph holds.
    pub fn release(&self, object: u64, mut count: u32) -> Result {
        let mut objects = self.user_objects();
        let of_object = objects.iter().filter(|held| held.object() == object);
        ensure(
            of_object.map(|held| u64::from(held.count())).sum::<u64>() >= count.into(),
            CUDA_ERROR_INVALID_VALUE,
        )?;
        let mut released = Vec::new();
        objects.retain(|held| {
            if held.object() != object || count == 0 {
                return true;
            }
            let taken = held.count().min(count);
            count -= taken;
            released.push((held.clone(), taken));
            held.count() > taken
        });
        drop(objects);
        // Without the lock: the last reference calls a function of the program's.
        released.iter().for_each(|(held, taken)| held.give_back(*taken));
        Ok(())
    }

    /// Keeps a condition that was made for the graph.
    pub fn add_condition(&self, condition: Arc<Condition>) {
        self.conditions().push(condition);
    }

    fn conditions(&self) -> MutexGuard<'_, Vec<Arc<Condition>>> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn user_objects(&self) -> MutexGuard<'_, Vec<Arc<HeldObject>>> {
        self.user_objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The graph in the language of Graphviz.
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph graph_of_cuda {\n");
        for node in self.nodes() {
            let what = match &node.operation {
                Operation::Kernel(launch) => {
                    let LaunchConfig { grid, block, .. } = launch.configuration.launch;
                    let [grid, block] = [grid, block].map(|Dim3 { x, y, z }| format!("({x},{y},{z})"));
                    let name = launch.function.name.to_string_lossy();
                    format!("{name}\\n{grid} x {block}")
                }
                Operation::Copy(copy) => {
                    let extent = copy.extent;
                    format!("memcpy\\n{} x {} x {} bytes", extent.width, extent.height, extent.depth)
                }
                Operation::Fill(fill) => {
                    format!("memset\\n{} x {} bytes", fill.extent.width, fill.extent.height)
                }
                other => type_name(node_type(other)).to_owned(),
            };
            let _ = writeln!(text, "    node_{:x} [label=\"{what}\", shape=box];", node.handle);
            for before in &node.after {
                let _ = writeln!(text, "    node_{before:x} -> node_{:x};", node.handle);
            }
        }
        text + "}\n"
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.lock().iter().for_each(|node| drop(NODES.remove(node.handle)));
    }
}

/// Returns the index of the node with this handle, or `CUDA_ERROR_INVALID_VALUE`.
fn place(nodes: &[Node], handle: u64) -> Result<usize> {
    nodes.binary_search_by_key(&handle, |node| node.handle).map_err(|_| Error(CUDA_ERROR_INVALID_VALUE))
}

/// The type of node that an operation makes.
pub fn node_type(operation: &Operation) -> CUgraphNodeType {
    match operation {
        Operation::Empty
        | Operation::Mark(_)
        | Operation::Callback(_)
        | Operation::Reach(_)
        | Operation::Join(_)
        | Operation::AssignDefaults(_)
        | Operation::ReachShared(..)
        | Operation::Sequence(_) => CU_GRAPH_NODE_TYPE_EMPTY,
        Operation::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
        Operation::Copy(_) => CU_GRAPH_NODE_TYPE_MEMCPY,
        Operation::Fill(_) => CU_GRAPH_NODE_TYPE_MEMSET,
        Operation::Host(_) => CU_GRAPH_NODE_TYPE_HOST,
        Operation::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        Operation::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        Operation::Allocate(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        Operation::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
        Operation::WriteValue(_) | Operation::WaitValue(_) => CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        Operation::Child(_) | Operation::Graph(_) => CU_GRAPH_NODE_TYPE_GRAPH,
        Operation::Conditional(_) | Operation::Branch(_) | Operation::Choose(_) => {
            CU_GRAPH_NODE_TYPE_CONDITIONAL
        }
    }
}

fn type_name(kind: CUgraphNodeType) -> &'static str {
    match kind {
        CU_GRAPH_NODE_TYPE_HOST => "host function",
        CU_GRAPH_NODE_TYPE_GRAPH => "child graph",
        CU_GRAPH_NODE_TYPE_WAIT_EVENT => "event wait",
        CU_GRAPH_NODE_TYPE_EVENT_RECORD => "event record",
        CU_GRAPH_NODE_TYPE_MEM_ALLOC => "memory allocation",
        CU_GRAPH_NODE_TYPE_MEM_FREE => "memory free",
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => "memory operation",
        CU_GRAPH_NODE_TYPE_CONDITIONAL => "conditional",
        _ => "empty",
    }
}

fn replace(current: &mut Operation, operation: Operation) -> Result {
    ensure(node_type(current) == node_type(&operation), CUDA_ERROR_INVALID_VALUE)?;
    // Conditional nodes have nothing that could be changed.
    ensure(node_type(current) != CU_GRAPH_NODE_TYPE_CONDITIONAL, CUDA_ERROR_INVALID_VALUE)?;
    *current = operation;
    Ok(())
}

/// A graph that can be launched.
pub struct GraphExec {
    /// As the program knows it.
    pub handle: u64,
    /// Unique over the life of the process.
    pub id: u64,
    /// The flags of the instantiation.
    pub flags: u64,
    /// In an order that respects the edges.
    nodes: Mutex<Vec<ExecNode>>,
    /// Conditions that were made for the graph.
    conditions: Arc<[Arc<Condition>]>,
    /// The user objects that the graph kept alive for the program.
    _user_objects: Vec<Arc<HeldObject>>,
}

#[derive(Clone)]
struct ExecNode {
    node: Node,
    enabled: bool,
}

/// The reason why an executable graph cannot be updated from a graph.
pub struct Mismatch {
    /// The node of the new graph that has no counterpart, where one is to blame.
    pub node: u64,
    /// The kind of difference.
    pub result: CUgraphExecUpdateResult,
}

impl GraphExec {
    /// Instantiates a graph and names what comes of it.
    pub fn instantiate(graph: &Graph, flags: u64) -> Result<Arc<GraphExec>> {
        let exec = Arc::new(GraphExec::build(graph, flags)?);
        EXECS.insert(exec.handle, exec.clone());
        Ok(exec)
    }

    /// Instantiates a graph for use inside of another.
    pub fn instantiate_unnamed(graph: &Graph) -> Result<Arc<GraphExec>> {
        GraphExec::build(graph, 0).map(Arc::new)
    }

    fn build(graph: &Graph, flags: u64) -> Result<GraphExec> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Ok(GraphExec {
            handle: EXECS.reserve(),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            flags,
            nodes: Mutex::new(executable(graph)?),
            conditions: graph.conditions().iter().cloned().collect(),
            _user_objects: graph.user_objects().clone(),
        })
    }

    /// Returns the executable graph of a handle.
    pub fn resolve(handle: CUgraphExec) -> Result<Arc<GraphExec>> {
        device::get()?;
        EXECS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// Takes away the name. Launches under way go on.
    pub fn destroy(handle: CUgraphExec) -> Result {
        EXECS.remove(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        Ok(())
    }

    /// The operations of a launch, as they are now: changes made later are for later launches.
    /// Events that its nodes wait for are those that have been recorded by now; those that its
    /// nodes record are added to `records`, and have to be [reached](PlannedRecord::reach) whatever
    /// becomes of the launch.
    pub fn operations(&self, records: &mut Vec<Arc<PlannedRecord>>) -> Arc<[Operation]> {
        let mut nodes: Vec<ExecNode> = self.lock().clone();
        order::draw(&mut nodes, |node| (node.node.handle, &node.node.after));
        nodes.retain(|node| node.enabled);
        let launched = nodes.into_iter().map(|node| match node.node.operation {
            Operation::Graph(graph) => Operation::Sequence(graph.operations(records)),
            Operation::Branch(conditional) => {
                Operation::Choose(conditional.launched(|body| body.operations(records)))
            }
            Operation::Wait(event) => event.pending().map_or(Operation::Empty, Operation::Join),
            Operation::Record(event) => {
                let record = event.plan_record();
                records.push(record.clone());
                Operation::Reach(record)
            }
            other => other,
        });
        let defaults =
            (!self.conditions.is_empty()).then(|| Operation::AssignDefaults(self.conditions.clone()));
        defaults.into_iter().chain(launched).collect()
    }

    /// Changes a node's operation to another of the same type.
    pub fn set_operation(&self, node: u64, operation: Operation) -> Result {
        let operation = instantiated(operation)?;
        self.with_node(node, |node| replace(&mut node.node.operation, operation))
    }

    /// Whether launches do a node's work.
    pub fn is_enabled(&self, node: u64) -> Result<bool> {
        self.with_node(node, |node| Ok(node.enabled))
    }

    /// Has launches do a node's work or leave it out. Only kernels, copies and fills can be left
    /// out.
    pub fn set_enabled(&self, node: u64, enabled: bool) -> Result {
        self.with_node(node, |node| {
            let optional =
                matches!(node.node.operation, Operation::Kernel(_) | Operation::Copy(_) | Operation::Fill(_));
            ensure(optional, CUDA_ERROR_INVALID_VALUE)?;
            node.enabled = enabled;
            Ok(())
        })
    }

    /// Takes over the operations of a graph of the same shape.
    pub fn update(&self, graph: &Graph) -> Result<std::result::Result<(), Mismatch>> {
        let fresh = executable(graph)?;
        let mut nodes = self.lock();
        if let Some(mismatch) = mismatch(&nodes, &fresh) {
            return Ok(Err(mismatch));
        }
        for (old, new) in nodes.iter_mut().zip(fresh) {
            old.node.operation = new.node.operation;
        }
        Ok(Ok(()))
    }

    fn with_node<T>(&self, node: u64, action: impl FnOnce(&mut ExecNode) -> Result<T>) -> Result<T> {
        match self.lock().iter_mut().find(|known| known.node.handle == node) {
            Some(node) => action(node),
            None => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExecNode>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn executable(graph: &Graph) -> Result<Vec<ExecNode>> {
    let ready = |node: Node| {
        Ok(ExecNode { node: Node { operation: instantiated(node.operation)?, ..node }, enabled: true })
    };
    graph.sorted()?.into_iter().map(ready).collect()
}

/// A node's operation in a copy of its graph: conditional nodes have bodies of their own.
fn duplicated(operation: &Operation) -> Operation {
    match operation {
        Operation::Conditional(conditional) => Operation::Conditional(conditional.duplicate()),
        other => other.clone(),
    }
}

/// Graphs inside of nodes are instantiated with the graph; everything else is launched as it is.
fn instantiated(operation: Operation) -> Result<Operation> {
    match operation {
        Operation::Child(graph) => GraphExec::instantiate_unnamed(&graph).map(Operation::Graph),
        Operation::Conditional(conditional) => conditional.instantiate().map(Operation::Branch),
        other => Ok(other),
    }
}

/// The first difference in shape between what is instantiated and what should take its place.
fn mismatch(old: &[ExecNode], new: &[ExecNode]) -> Option<Mismatch> {
    if old.len() != new.len() {
        return Some(Mismatch { node: 0, result: CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED });
    }
    let places = |nodes: &[ExecNode]| -> HashMap<u64, usize> {
        nodes.iter().enumerate().map(|(place, node)| (node.node.handle, place)).collect()
    };
    let (old_places, new_places) = (places(old), places(new));
    let predecessors = |node: &ExecNode, places: &HashMap<u64, usize>| {
        let mut before: Vec<usize> = node.node.after.iter().map(|handle| places[handle]).collect();
        before.sort_unstable();
        before
    };
    old.iter().zip(new).find_map(|(old, new)| {
        let result = if predecessors(old, &old_places) != predecessors(new, &new_places) {
            CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
        } else if node_type(&old.node.operation) != node_type(&new.node.operation) {
            CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
        } else {
            return None;
        };
        Some(Mismatch { node: new.node.handle, result })
    })
}
