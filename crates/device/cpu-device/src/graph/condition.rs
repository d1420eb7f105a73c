//! Conditions of graphs: values that device code sets and that conditional nodes read.
//!
//! A program creates a condition for a graph, passes its handle to a kernel, which calls
//! `cudaGraphSetConditional`, and adds a conditional node. CUDA creates the bodies of the node,
//! which are graphs, and the program fills them. A launch begins with the default values of
//! conditions that have one. Each execution of a body begins with the default values of the body's
//! own conditions.

use crate::arguments::opaque;
use crate::context::Context;
use crate::device;
use crate::error::{Error, Result, ensure};
use crate::graph::{Graph, GraphExec};
use crate::handle::{Kind, Table};
use crate::stream::operation::Operation;
use cuda_abi::types::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

static CONDITIONS: Table<Condition> = Table::new(Kind::Condition);

/// A value that decides which body of a conditional node is executed.
pub struct Condition {
    /// As the program knows it.
    pub handle: u64,
    value: AtomicU32,
    /// The value at the start of each launch, if one is defined.
    default: Option<u32>,
}

impl Condition {
    /// A condition of `graph`, which keeps it.
    pub fn create(graph: &Graph, default: u32, flags: u32) -> Result<Arc<Condition>> {
        ensure(flags & !CU_GRAPH_COND_ASSIGN_DEFAULT == 0, CUDA_ERROR_INVALID_VALUE)?;
        let condition = Arc::new(Condition {
            handle: CONDITIONS.reserve(),
            value: AtomicU32::new(default),
            default: (flags & CU_GRAPH_COND_ASSIGN_DEFAULT != 0).then_some(default),
        });
        CONDITIONS.insert(condition.handle, condition.clone());
        graph.add_condition(condition.clone());
        Ok(condition)
    }

    /// Returns the condition of a handle.
    pub fn find(handle: u64) -> Option<Arc<Condition>> {
        CONDITIONS.get(handle)
    }

    /// Sets the value.
    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }

    fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Sets the value that launches start with.
    pub fn assign_default(&self) {
        if let Some(default) = self.default {
            self.set(default);
        }
    }
}

/// The rule by which a conditional node selects bodies to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The first body where the value is not 0, the second, if there is one, where it is.
    If,
    /// The body for as long as the value is not 0.
    While,
    /// The body whose index the value is, if there is one.
    Switch,
}

/// A conditional node; `B` is what its bodies are.
#[derive(Clone)]
pub struct Conditional<B> {
    condition: Arc<Condition>,
    choice: Choice,
    bodies: Arc<[B]>,
    /// The handles of bodies that are graphs of the program's.
    handles: Arc<Handles>,
}

/// Handles of graphs that belong to a node. The program has a pointer to them, so they stay where
/// they are; it does not destroy the graphs.
#[derive(Default)]
struct Handles(Box<[CUgraph]>);

// SAFETY: handles are numbers; nobody dereferences them.
unsafe impl Send for Handles {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handles {}

impl Drop for Handles {
    fn drop(&mut self) {
        // The program may have destroyed them against the rules.
        self.0.iter().for_each(|graph| _ = Graph::destroy(*graph));
    }
}

impl Conditional<Arc<Graph>> {
    /// A node with empty bodies.
    pub fn new(params: &CUDA_CONDITIONAL_NODE_PARAMS) -> Result<Conditional<Arc<Graph>>> {
        device::get()?;
        let condition = Condition::find(params.handle).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        let (choice, most) = match params.r#type {
            CU_GRAPH_COND_TYPE_IF => (Choice::If, 2),
            CU_GRAPH_COND_TYPE_WHILE => (Choice::While, 1),
            CU_GRAPH_COND_TYPE_SWITCH => (Choice::Switch, u32::MAX),
            _ => return Err(Error(CUDA_ERROR_INVALID_VALUE)),
        };
        ensure((1..=most).contains(&params.size), CUDA_ERROR_INVALID_VALUE)?;
        Ok(Conditional::of_graphs(condition, choice, (0..params.size).map(|_| Graph::create()).collect()))
    }

    fn of_graphs(
        condition: Arc<Condition>,
        choice: Choice,
        bodies: Arc<[Arc<Graph>]>,
    ) -> Conditional<Arc<Graph>> {
        let handles = Arc::new(Handles(bodies.iter().map(|body| opaque(body.handle)).collect()));
        Conditional { condition, choice, bodies, handles }
    }

    /// The handles of the bodies, which live as long as the node.
    pub fn handles(&self) -> *mut CUgraph {
        self.handles.0.as_ptr().cast_mut()
    }

    /// The node with copies of its bodies.
    pub fn duplicate(&self) -> Conditional<Arc<Graph>> {
        let bodies = self.bodies.iter().map(|body| body.duplicate()).collect();
        Conditional::of_graphs(self.condition.clone(), self.choice, bodies)
    }

    /// The node as a launch needs it.
    pub fn instantiate(&self) -> Result<Conditional<Arc<GraphExec>>> {
        let bodies = self.bodies.iter().map(|body| {
            let allowed = body.nodes().iter().all(|node| may_repeat(&node.operation));
            ensure(allowed, CUDA_ERROR_INVALID_VALUE)?;
            GraphExec::instantiate_unnamed(body)
        });
        Ok(self.with_bodies(bodies.collect::<Result<_>>()?))
    }
}

impl<B> Conditional<B> {
    fn with_bodies<C>(&self, bodies: Arc<[C]>) -> Conditional<C> {
        let handles = Arc::default();
        Conditional { condition: self.condition.clone(), choice: self.choice, bodies, handles }
    }
}

/// Whether an operation may stand in a body: what allocates, frees or belongs to an event happens
/// once in a launch.
fn may_repeat(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::Allocate(_) | Operation::Free(_) | Operation::Record(_) | Operation::Wait(_)
    )
}

impl Conditional<Arc<GraphExec>> {
    /// The node in a launch, each body as `operations` says.
    pub fn launched(
        &self,
        operations: impl FnMut(&Arc<GraphExec>) -> Arc<[Operation]>,
    ) -> Conditional<Arc<[Operation]>> {
        self.with_bodies(self.bodies.iter().map(operations).collect())
    }
}

impl Conditional<Arc<[Operation]>> {
    /// Executes the bodies that the condition asks for.
    pub fn execute(&self, context: &Context) -> Result {
        let run = |body: Option<&Arc<[Operation]>>| match body {
            Some(body) => Operation::Sequence(body.clone()).execute(context),
            None => Ok(()),
        };
        let value = self.condition.get();
        match self.choice {
            Choice::If => run(self.bodies.get(usize::from(value == 0))),
            Choice::Switch => run(self.bodies.get(value as usize)),
            Choice::While => {
                while self.condition.get() != 0 && !context.cancel.load(Ordering::Relaxed) {
                    run(self.bodies.first())?;
                }
                Ok(())
            }
        }
    }
}
