//! The nest of one kernel: the nodes of a group over one iteration space.
//!
//! The space is `outer` × one row of `length` elements. Each value of the group has a [`Place`] in
//! it, and a *pass* over the row after which it is known: a reduction of a value of pass p is known
//! in pass p + 1. [`Nest::of`] says whether a set of nodes has such a space, which is what makes it
//! legal to fuse them; its error is the reason why not.
//!
//! Invariants of a nest:
//!
//! 1. Every main value has `length` elements in a row; every short one has as many as a top-k of
//!    the group chooses.
//! 2. What is written and what is reduced varies along all of `outer`: nothing is written twice.
//! 3. What is rolled is read from memory.
//! 4. No node of the group uses what is complete only when all rows are done: histograms and
//!    column sums.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{ElementType, Graph, Op, Value, broadcast};

/// The location of the elements of a value while a row is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One number for the row, in all threads.
    Row,
    /// The elements of the row, spread over its threads.
    Main,
    /// The choices of a top-k, one in each lane.
    Short,
    /// Counts over all rows.
    Whole,
    /// Sums over all rows, spread over the threads as a row is.
    Columns,
}

/// A tensor in memory that a kernel reads or writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    pub value: Value,
    pub memory: Memory,
    pub element: ElementType,
    pub place: Place,
    /// The distance from one index to the next along each dimension of the space; the last is the
    /// row's.
    pub strides: Vec<usize>,
    pub elements: usize,
}

impl Access {
    pub fn bytes(&self) -> usize {
        self.elements * self.element.size()
    }

    /// Whether all rows read the same.
    pub fn is_invariant(&self) -> bool {
        self.strides[..self.strides.len() - 1].iter().all(|&stride| stride == 0)
    }
}

/// The location of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// By place among the graph's inputs.
    Input(usize),
    /// By place among the graph's outputs.
    Output(usize),
    /// An intermediate tensor of the plan.
    Between(Value),
    /// The partial column sums of a kernel's blocks, a row each, for the kernel that adds them.
    Partials(Value),
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Nest {
    pub nodes: Vec<Value>,
    pub outer: Vec<usize>,
    pub length: usize,
    /// Choices of a top-k.
    pub short: usize,
    pub places: BTreeMap<Value, Place>,
    pub passes: BTreeMap<Value, usize>,
    pub reads: Vec<Access>,
    pub writes: Vec<Access>,
    /// The destinations of column sums, after the partial sums, which are among the writes, have
    /// been added.
    pub totals: Vec<Access>,
    /// Indices along a dimension of the space: strides as if each were a tensor `0, 1, 2, …`.
    pub indices: BTreeMap<Value, Vec<usize>>,
}

/// The locations of values that leave their kernels.
pub struct Residence<'g> {
    graph: &'g Graph,
    inputs: BTreeMap<Value, usize>,
    outputs: BTreeMap<Value, Vec<usize>>,
    users: BTreeMap<Value, Vec<Value>>,
}

impl<'g> Residence<'g> {
    pub fn of(graph: &'g Graph) -> Residence<'g> {
        let inputs = graph.inputs.iter().enumerate().map(|(place, input)| (input.value, place)).collect();
        let mut outputs = BTreeMap::<Value, Vec<usize>>::new();
        for (place, output) in graph.outputs.iter().enumerate() {
            outputs.entry(output.value).or_default().push(place);
        }
        let mut users = BTreeMap::<Value, Vec<Value>>::new();
        for (place, node) in graph.nodes.iter().enumerate() {
            node.op.operands().for_each(|operand| users.entry(operand).or_default().push(Value(place)));
        }
        Residence { graph, inputs, outputs, users }
    }

    /// Nodes that use this one.
    pub fn users(&self, value: Value) -> &[Value] {
        self.users.get(&value).map_or(&[], Vec::as_slice)
    }

    /// Its location and its type in memory.
    fn read(&self, value: Value) -> (Memory, ElementType) {
        if let Some(&place) = self.inputs.get(&value) {
            return (Memory::Input(place), self.graph.inputs[place].element);
        }
        if let Some(&place) = self.outputs.get(&value).and_then(|places| places.first()) {
            return (Memory::Output(place), self.graph.outputs[place].element);
        }
        (Memory::Between(value), self.graph.nodes[value.0].element.unwrap_or(ElementType::F32))
    }

    /// The location to which its kernel, with the nodes `group`, writes it.
    fn written(&self, value: Value, group: &BTreeSet<Value>) -> Vec<(Memory, ElementType)> {
        if let Some(places) = self.outputs.get(&value) {
            let of = |&place: &usize| (Memory::Output(place), self.graph.outputs[place].element);
            return places.iter().map(of).collect();
        }
        let leaves = self.users(value).iter().any(|user| !group.contains(user));
        if leaves { vec![self.read(value)] } else { vec![] }
    }
}

impl Nest {
    /// The nest of the nodes, or why there is none.
    pub fn of(residence: &Residence<'_>, group: &BTreeSet<Value>) -> Result<Nest, String> {
        let graph = residence.graph;
        let places = places(graph, group)?;
        let length = length(graph, group, &places)?;
        let outer = outer(graph, group)?;
        let short = group.iter().filter_map(|&value| match graph.nodes[value.0].op {
            Op::TopValues(_, k) | Op::TopIndices(_, k) => Some(k),
            _ => None,
        });
        let short = short.clone().max().unwrap_or(0);
        let mut nest = Nest {
            nodes: group.iter().copied().collect(),
            outer,
            length,
            short,
            passes: passes(graph, group),
            places,
            reads: vec![],
            writes: vec![],
            totals: vec![],
            indices: BTreeMap::new(),
        };
        nest.check(graph, group)?;
        nest.find_reads(residence, group)?;
        for &value in group {
            let (place, strides) = (nest.places[&value], nest.strides(graph.shape(value)));
            let elements = graph.shape(value).iter().product();
            let of = |(memory, element)| Access {
                value,
                memory,
                element,
                place,
                strides: strides.clone(),
                elements,
            };
            let written = residence.written(value, group).into_iter().map(of);
            if place == Place::Columns {
                nest.totals.extend(written);
                nest.writes.push(of((Memory::Partials(value), ElementType::F32)));
            } else {
                nest.writes.extend(written);
            }
        }
        Ok(nest)
    }

    /// Column sums, and what they sum.
    pub fn column_sums(&self, graph: &Graph) -> Vec<(Value, Value)> {
        let of = |&value: &Value| match graph.nodes[value.0].op {
            Op::ColumnSum(x) => Some((value, x)),
            _ => None,
        };
        self.nodes.iter().filter_map(of).collect()
    }

    /// Says how many rows of partial sums the kernel leaves.
    pub fn leave_partials(&mut self, rows: usize) {
        for write in self.writes.iter_mut().filter(|write| write.place == Place::Columns) {
            write.elements = rows * self.length;
        }
    }

    /// Rows of the space.
    pub fn rows(&self) -> usize {
        self.outer.iter().product()
    }

    /// Bytes that the kernel has to move: each tensor once.
    pub fn bytes(&self) -> usize {
        self.reads.iter().chain(&self.writes).map(Access::bytes).sum()
    }

    /// Passes over a row.
    pub fn pass_count(&self) -> usize {
        1 + self.passes.values().max().copied().unwrap_or(0)
    }

    /// Whether each element can be computed for itself.
    pub fn is_flat(&self, graph: &Graph) -> bool {
        self.nodes.iter().all(|value| {
            matches!(graph.nodes[value.0].op, Op::Unary(..) | Op::Binary(..) | Op::Select(..) | Op::Roll(..))
        })
    }

    /// Joins dimensions that every tensor goes through as if they were one. In a flat nest without
    /// rolls the row joins too.
    pub fn collapsed(mut self, graph: &Graph) -> Nest {
        let is_rolled = self.nodes.iter().any(|value| matches!(graph.nodes[value.0].op, Op::Roll(..)));
        let row_joins = self.is_flat(graph) && !is_rolled;
        let mut sizes = self.outer.clone();
        sizes.push(self.length);
        let mut axis = sizes.len() - 1;
        while axis > 0 {
            axis -= 1;
            let is_row = axis + 2 == sizes.len();
            let size = sizes[axis + 1];
            // A dimension of 1 has any stride.
            let joins = |strides: &Vec<usize>| {
                sizes[axis] == 1 || size == 1 || strides[axis] == strides[axis + 1] * size
            };
            let of_row_fit = !is_row
                || row_joins && self.accesses().all(|access| access.place == Place::Main || size == 1);
            let all_join =
                self.accesses().map(|access| &access.strides).chain(self.indices.values()).all(joins);
            if !(of_row_fit && all_join) {
                continue;
            }
            let outer_size = sizes.remove(axis);
            sizes[axis] *= outer_size;
            let join = |strides: &mut Vec<usize>| {
                let outer = strides.remove(axis);
                if size == 1 && outer_size != 1 {
                    strides[axis] = outer;
                }
            };
            self.reads.iter_mut().chain(&mut self.writes).map(|access| &mut access.strides).for_each(join);
            self.indices.values_mut().for_each(join);
            if is_row && size == 1 {
                // What was one number of a row is now an element of it.
                self.places.values_mut().for_each(|place| *place = Place::Main);
                let accesses = self.reads.iter_mut().chain(&mut self.writes);
                accesses.for_each(|access| {
                    access.place = if access.strides[axis] == 0 { Place::Row } else { Place::Main }
                });
            }
        }
        self.length = sizes.pop().unwrap_or(1);
        self.outer = sizes;
        self
    }

    fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.reads.iter().chain(&self.writes)
    }

    /// Strides of a tensor of this shape along the dimensions of the space.
    fn strides(&self, shape: &[usize]) -> Vec<usize> {
        let rank = self.outer.len() + 1;
        let mut strides = vec![0; rank];
        let mut stride = 1;
        for (axis, &size) in shape.iter().rev().enumerate() {
            strides[rank - 1 - axis] = if size == 1 { 0 } else { stride };
            stride *= size;
        }
        strides
    }

    fn find_reads(&mut self, residence: &Residence<'_>, group: &BTreeSet<Value>) -> Result<(), String> {
        let graph = residence.graph;
        for &user in group {
            for value in graph.nodes[user.0].op.operands() {
                let node = &graph.nodes[value.0];
                if group.contains(&value) || matches!(node.op, Op::Constant(_)) {
                    continue;
                }
                let strides = self.strides(&node.shape);
                if let Op::Index { .. } = node.op {
                    self.indices.insert(value, strides);
                    continue;
                }
                let place = self.operand_place(graph, user, value);
                match self.reads.iter().find(|read| read.value == value) {
                    Some(read) if read.place == place => {}
                    Some(_) => return Err("a tensor would be read both by rows and by choices".to_owned()),
                    None => {
                        let (memory, element) = residence.read(value);
                        let elements = node.shape.iter().product();
                        self.reads.push(Access { value, memory, element, place, strides, elements });
                    }
                }
            }
        }
        Ok(())
    }

    /// The location from which a node of the group reads an operand that is in memory.
    fn operand_place(&self, graph: &Graph, user: Value, operand: Value) -> Place {
        let is_one = graph.shape(operand).last().is_none_or(|&size| size == 1);
        match self.places[&user] {
            _ if is_one && self.length != 1 => Place::Row,
            _ if is_one && matches!(self.places[&user], Place::Row) => Place::Row,
            Place::Short if !matches!(graph.nodes[user.0].op, Op::TopValues(..) | Op::TopIndices(..)) => {
                Place::Short
            }
            _ if is_one => Place::Row,
            _ => Place::Main,
        }
    }

    /// Invariant 2 and 3, and that top-k has one size.
    fn check(&self, graph: &Graph, group: &BTreeSet<Value>) -> Result<(), String> {
        for &value in group {
            let node = &graph.nodes[value.0];
            match node.op {
                Op::TopValues(x, k) | Op::TopIndices(x, k)
                    if k != self.short || graph.shape(x).last() != Some(&self.length) =>
                {
                    return Err("two top-k of different sizes".to_owned());
                }
                Op::ColumnSum(x) if self.length != 1 && graph.shape(x).last() == Some(&1) => {
                    return Err("a column sum of one number for each row".to_owned());
                }
                Op::Roll(x, _) if group.contains(&x) => {
                    return Err("roll reads elements that other threads compute".to_owned());
                }
                _ => {}
            }
            let varying = match node.op {
                Op::Reduce(_, x) | Op::Histogram(x, _) | Op::ColumnSum(x) => x,
                Op::TopValues(x, _) | Op::TopIndices(x, _) => x,
                _ => continue,
            };
            self.varies(graph.shape(varying))?;
        }
        Ok(())
    }

    /// Checks that a tensor of this shape has elements of its own for each row.
    pub fn varies(&self, shape: &[usize]) -> Result<(), String> {
        let outer = &shape[..shape.len().saturating_sub(1)];
        let missing = self.outer.len() - outer.len();
        let padded = std::iter::repeat_n(&1, missing).chain(outer);
        if padded.eq(self.outer.iter()) {
            return Ok(());
        }
        Err(format!("rows of shape {shape:?} would be computed again for each of {:?}", self.outer))
    }
}

/// The place of each node of the group.
fn places(graph: &Graph, group: &BTreeSet<Value>) -> Result<BTreeMap<Value, Place>, String> {
    let mut places = BTreeMap::<Value, Place>::new();
    for &value in group {
        let node = &graph.nodes[value.0];
        let of = |operand: &Value| places.get(operand).copied();
        let operands: Vec<Value> = node.op.operands().collect();
        for (place, what) in [(Place::Whole, "a histogram"), (Place::Columns, "a column sum")] {
            if operands.iter().any(|operand| of(operand) == Some(place)) {
                return Err(format!("{what} is complete only when all rows are done"));
            }
        }
        let place = match node.op {
            Op::Reduce(..) => Place::Row,
            Op::TopValues(x, _) | Op::TopIndices(x, _) => {
                if of(&x) == Some(Place::Short) {
                    return Err("top-k of the choices of another top-k".to_owned());
                }
                Place::Short
            }
            Op::Histogram(..) => Place::Whole,
            Op::ColumnSum(x) if of(&x) == Some(Place::Short) => {
                return Err("a column sum of the choices of a top-k".to_owned());
            }
            Op::ColumnSum(..) => Place::Columns,
            _ => {
                let has = |place| operands.iter().any(|operand| of(operand) == Some(place));
                let is_wide = |operand: &&Value| graph.shape(**operand).last().is_some_and(|&size| size != 1);
                match (has(Place::Short), has(Place::Main)) {
                    (true, true) => return Err("a row's elements meet the choices of a top-k".to_owned()),
                    (true, false) => Place::Short,
                    (false, true) => Place::Main,
                    (false, false) => {
                        if operands.iter().any(|operand| is_wide(&operand)) {
                            Place::Main
                        } else {
                            Place::Row
                        }
                    }
                }
            }
        };
        places.insert(value, place);
    }
    Ok(places)
}

/// The one length of all main values.
fn length(graph: &Graph, group: &BTreeSet<Value>, places: &BTreeMap<Value, Place>) -> Result<usize, String> {
    let mut length = None;
    for &value in group {
        let node = &graph.nodes[value.0];
        let spread = match node.op {
            Op::Reduce(_, x)
            | Op::ColumnSum(x)
            | Op::Histogram(x, _)
            | Op::TopValues(x, _)
            | Op::TopIndices(x, _)
                if places.get(&x) != Some(&Place::Short) =>
            {
                x
            }
            _ if places[&value] == Place::Main => value,
            _ => continue,
        };
        let found = graph.shape(spread).last().copied().unwrap_or(1);
        if found == 1 && !matches!(node.op, Op::TopValues(..) | Op::TopIndices(..) | Op::Histogram(..)) {
            continue;
        }
        match length {
            None => length = Some(found),
            Some(length) if length != found => {
                return Err(format!("rows of {length} and of {found} elements"));
            }
            Some(_) => {}
        }
    }
    Ok(length.unwrap_or(1))
}

/// The dimensions before the row.
fn outer(graph: &Graph, group: &BTreeSet<Value>) -> Result<Vec<usize>, String> {
    let mut outer = vec![];
    for &value in group {
        let node = &graph.nodes[value.0];
        // The space of a histogram is that of what it counts.
        let own = (!matches!(node.op, Op::Histogram(..))).then_some(value);
        for value in node.op.operands().chain(own) {
            let shape = graph.shape(value);
            let leading = &shape[..shape.len().saturating_sub(1)];
            outer = broadcast(&outer, leading)
                .ok_or_else(|| format!("dimensions {outer:?} and {leading:?} before the rows"))?;
        }
    }
    Ok(outer)
}

/// The pass in which each node is known.
fn passes(graph: &Graph, group: &BTreeSet<Value>) -> BTreeMap<Value, usize> {
    let mut passes = BTreeMap::<Value, usize>::new();
    for &value in group {
        let op = &graph.nodes[value.0].op;
        let of_operands = op.operands().filter_map(|operand| passes.get(&operand)).max().copied();
        let waits = matches!(op, Op::Reduce(..) | Op::TopValues(..) | Op::TopIndices(..));
        passes.insert(value, of_operands.unwrap_or(0) + usize::from(waits));
    }
    passes
}
