//! Graphs of operations on tensors: the computation, without its execution.
//!
//! A graph is a list of nodes; each uses nodes before it, so the list is in topological order and
//! has no cycles. A [`Value`] names a node of its own graph. Shapes are checked as nodes are made;
//! everything behind the builder may rely on these invariants:
//!
//! 1. Operands of an elementwise node broadcast to its shape: dimensions, aligned at the last, are
//!    equal or 1.
//! 2. Reductions, top-k and roll act along the last dimension, column sums along all others. A
//!    reduced dimension stays, as 1.
//! 3. No tensor has more than 2³¹ − 1 elements, no dimension that is indexed more than 2²⁴, so
//!    that indices are exact in f32.
//!
//! Values are computed in f32, whatever their elements are in memory.

use crate::{Error, Result};

/// As errors name it.
pub const TECHNIQUE: &str = "fusion";
/// Integers below are exact in f32.
const MOST_INDEXED: usize = 1 << 24;
/// Rows that a warp can choose from, and choices that it can hold.
const MOST_CANDIDATES: usize = 1024;
const MOST_CHOICES: usize = 32;
/// Bins that fit into the shared memory that every block may have.
const MOST_BINS: usize = 8192;

/// The type of a tensor's elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementType {
    /// 32-bit unsigned integers: indices and counts, below 2²⁴.
    U32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl ElementType {
    /// Size in bytes.
    pub fn size(self) -> usize {
        match self {
            ElementType::U32 | ElementType::F32 => 4,
            ElementType::Bf16 | ElementType::F16 => 2,
        }
    }

    /// The type of a result of operands of these types: f32 unless both are the same.
    fn with(self, other: ElementType) -> ElementType {
        if self == other { self } else { ElementType::F32 }
    }
}

/// A tensor of a [`Graph`]: an input, a constant, or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(super) usize);

/// Functions of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// The number itself.
    Copy,
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// `eˣ`
    Exp,
    /// Natural logarithm.
    Ln,
    /// Square root.
    Sqrt,
    /// `1/√x`
    Rsqrt,
    /// `1/x`
    Recip,
    /// Hyperbolic tangent.
    Tanh,
}

/// Functions of two numbers. `Max` and `Min` are NaN if an operand is; comparisons give 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Less,
    LessEqual,
    Equal,
}

/// Reductions of a row to one number. `Max` and `Min` are NaN if an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names say it")]
pub enum Reduction {
    Sum,
    Max,
    Min,
}

/// The operation of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Input,
    Constant(f64),
    /// The index along a dimension, counted from the last.
    Index {
        axis: usize,
    },
    Unary(Unary, Value),
    Binary(Binary, Value, Value),
    /// The second where the first is not 0, else the third.
    Select(Value, Value, Value),
    Reduce(Reduction, Value),
    /// Over all dimensions but the last.
    ColumnSum(Value),
    /// Element `(j + by) mod n` of a row at place j.
    Roll(Value, usize),
    TopValues(Value, usize),
    TopIndices(Value, usize),
    Histogram(Value, usize),
}

impl Op {
    /// The nodes that it uses.
    pub fn operands(&self) -> impl Iterator<Item = Value> {
        let operands = match *self {
            Op::Input | Op::Constant(_) | Op::Index { .. } => [None; 3],
            Op::Unary(_, x)
            | Op::Reduce(_, x)
            | Op::ColumnSum(x)
            | Op::Roll(x, _)
            | Op::TopValues(x, _)
            | Op::TopIndices(x, _)
            | Op::Histogram(x, _) => [Some(x), None, None],
            Op::Binary(_, x, y) => [Some(x), Some(y), None],
            Op::Select(x, y, z) => [Some(x), Some(y), Some(z)],
        };
        operands.into_iter().flatten()
    }

    /// Whether it is made where it is used, rather than by a kernel of its own.
    pub fn is_free(&self) -> bool {
        matches!(self, Op::Input | Op::Constant(_) | Op::Index { .. })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub op: Op,
    pub shape: Vec<usize>,
    /// Its type in memory, if it goes there between kernels. Constants and indices have none: they
    /// take that of what they meet.
    pub element: Option<ElementType>,
    /// The [operation](Graph::operation) that it belongs to; free nodes belong to none.
    pub operation: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Input {
    pub name: String,
    pub value: Value,
    pub element: ElementType,
}

#[derive(Clone, Debug)]
pub(super) struct Output {
    pub name: String,
    pub value: Value,
    pub element: ElementType,
}

/// Operations on tensors, with the inputs they begin with and the outputs that are wanted. See the
/// [module](super) for an example.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    /// Names of the operations, as the caller called them.
    pub(super) operations: Vec<&'static str>,
    /// Whether nodes belong to the last operation.
    is_inside: bool,
}

impl Graph {
    /// A graph of nothing.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// A tensor that the caller provides, row-major without gaps.
    ///
    /// # Errors
    /// [`Error::Shape`]: the name is taken, or the shape too large.
    pub fn input(&mut self, name: &str, element: ElementType, shape: &[usize]) -> Result<Value> {
        if self.inputs.iter().any(|input| input.name == name) {
            return Err(wrong(format!("there are two inputs `{name}`")));
        }
        let value = self.push(Op::Input, shape.to_vec(), Some(element))?;
        self.inputs.push(Input { name: name.to_owned(), value, element });
        Ok(value)
    }

    /// A number, which broadcasts to any shape.
    pub fn constant(&mut self, number: f64) -> Value {
        self.nodes.push(Node { op: Op::Constant(number), shape: vec![], element: None, operation: None });
        Value(self.nodes.len() - 1)
    }

    /// The indices 0 to `len - 1` along a dimension, counted from the last: `index(0, n)` numbers
    /// columns, with shape `[n]`; `index(1, m)` numbers rows, with shape `[m, 1]`.
    ///
    /// # Errors
    /// [`Error::Shape`]: more than 2²⁴.
    pub fn index(&mut self, axis: usize, len: usize) -> Result<Value> {
        if len > MOST_INDEXED {
            return Err(wrong(format!("index of {len} elements: at most 2^24 are exact in f32")));
        }
        let mut shape = vec![1; axis + 1];
        shape[0] = len;
        self.push(Op::Index { axis }, shape, None)
    }

    /// Declares that `value` is wanted, in elements of this type.
    ///
    /// # Errors
    /// [`Error::Shape`]: the name is taken, or nothing computes the value.
    pub fn output(&mut self, name: &str, value: Value, element: ElementType) -> Result<()> {
        if self.outputs.iter().any(|output| output.name == name) {
            return Err(wrong(format!("there are two outputs `{name}`")));
        }
        let node = self.node(value)?;
        if node.op.is_free() {
            return Err(wrong(format!(
                "output `{name}` is an input, a constant or an index, which no operation computes"
            )));
        }
        let is_count = node.element == Some(ElementType::U32);
        if is_count != (element == ElementType::U32) {
            let (holds, wanted) =
                if is_count { ("indices or counts", "u32") } else { ("numbers", "bf16, f16 or f32") };
            return Err(wrong(format!(
                "output `{name}` holds {holds}, so its elements must be {wanted}, not {element:?}"
            )));
        }
        self.outputs.push(Output { name: name.to_owned(), value, element });
        Ok(())
    }

    /// Elements and shapes of the inputs, in the order of their declaration.
    pub fn inputs(&self) -> impl Iterator<Item = (ElementType, &[usize])> {
        self.inputs.iter().map(|input| (input.element, self.shape(input.value)))
    }

    /// The shape of a tensor.
    ///
    /// # Panics
    /// If the value is of another, larger graph.
    pub fn shape(&self, value: Value) -> &[usize] {
        &self.nodes[value.0].shape
    }

    /// A function of each element.
    ///
    /// # Errors
    /// [`Error::Shape`]: the value is of another graph.
    pub fn unary(&mut self, function: Unary, x: Value) -> Result<Value> {
        let Node { shape, element, .. } = self.node(x)?.clone();
        self.operation(unary_name(function), |graph| graph.push(Op::Unary(function, x), shape, element))
    }

    /// A function of each pair of elements of tensors that broadcast.
    ///
    /// # Errors
    /// [`Error::Shape`]: they do not broadcast.
    pub fn binary(&mut self, function: Binary, x: Value, y: Value) -> Result<Value> {
        let name = binary_name(function);
        let (shape, element) = self.together(name, &[x, y])?;
        self.operation(name, |graph| graph.push(Op::Binary(function, x, y), shape, element))
    }

    /// `yes` where `condition` is not 0, else `no`.
    ///
    /// # Errors
    /// [`Error::Shape`]: they do not broadcast.
    pub fn select(&mut self, condition: Value, yes: Value, no: Value) -> Result<Value> {
        let (shape, _) = self.together("select", &[condition, yes, no])?;
        let (_, element) = self.together("select", &[yes, no])?;
        self.operation("select", |graph| graph.push(Op::Select(condition, yes, no), shape, element))
    }

    /// Reduces each row, along the last dimension, which becomes 1. The sum of nothing is 0, its
    /// largest element −∞, its smallest ∞.
    ///
    /// # Errors
    /// [`Error::Shape`]: the value is a constant.
    pub fn reduce(&mut self, reduction: Reduction, x: Value) -> Result<Value> {
        let name = reduction_name(reduction);
        let mut shape = self.row_of(name, x)?.to_vec();
        let rank = shape.len();
        if shape[rank - 1] == 1 {
            return self.operation(name, |graph| graph.unary(Unary::Copy, x));
        }
        shape[rank - 1] = 1;
        self.operation(name, |graph| graph.push(Op::Reduce(reduction, x), shape, Some(ElementType::F32)))
    }

    /// Sums each column, over all dimensions but the last, which become 1: the sum of the rows. It
    /// is the same in each run on the same device. The sum of no rows is 0.
    ///
    /// # Errors
    /// [`Error::Shape`]: the value is a constant.
    pub fn column_sum(&mut self, x: Value) -> Result<Value> {
        let mut shape = self.row_of("column-sum", x)?.to_vec();
        let rank = shape.len();
        if shape[..rank - 1].iter().all(|&size| size == 1) {
            return self.operation("column-sum", |graph| graph.unary(Unary::Copy, x));
        }
        shape[..rank - 1].fill(1);
        self.operation("column-sum", |graph| graph.push(Op::ColumnSum(x), shape, Some(ElementType::F32)))
    }

    /// Moves elements of each row to the left by this number of places, around the end.
    ///
    /// # Errors
    /// [`Error::Shape`]: by more places than a row has.
    pub fn roll(&mut self, x: Value, by: usize) -> Result<Value> {
        let shape = self.row_of("roll", x)?.to_vec();
        let length = shape[shape.len() - 1];
        if by > length {
            return Err(wrong(format!("roll: {by} places, and rows of {shape:?} have {length}")));
        }
        let Node { op, element, .. } = self.node(x)?.clone();
        self.operation("roll", |graph| {
            if by == 0 || by == length {
                return graph.unary(Unary::Copy, x);
            }
            // It reads memory, where no index is.
            let x = if matches!(op, Op::Input) || !op.is_free() { x } else { graph.unary(Unary::Copy, x)? };
            graph.push(Op::Roll(x, by), shape, element)
        })
    }

    /// The `k` largest elements of each row, from the largest down, and their places. Among equals
    /// the one further left comes first; NaN counts as less than −∞; −0 counts as less than 0.
    ///
    /// # Errors
    /// [`Error::Shape`]: no more than 32 of at most 1024.
    pub fn top_k(&mut self, x: Value, k: usize) -> Result<(Value, Value)> {
        let mut shape = self.row_of("top-k", x)?.to_vec();
        let rank = shape.len();
        let length = shape[rank - 1];
        if length > MOST_CANDIDATES || !(1..=MOST_CHOICES.min(length)).contains(&k) {
            return Err(wrong(format!(
                "top-k: there are kernels for the 1 to {MOST_CHOICES} largest of at most {MOST_CANDIDATES} elements, \
                 not the {k} largest of {length}"
            )));
        }
        shape[rank - 1] = k;
        let element = self.node(x)?.element;
        self.operation("top-k", |graph| {
            let values = graph.push(Op::TopValues(x, k), shape.clone(), element)?;
            Ok((values, graph.push(Op::TopIndices(x, k), shape, Some(ElementType::U32))?))
        })
    }

    /// Counts each of the indices 0 to `bins - 1` in the whole tensor; others are not counted.
    ///
    /// # Errors
    /// [`Error::Shape`]: the tensor holds no indices, or there are too many bins.
    pub fn histogram(&mut self, indices: Value, bins: usize) -> Result<Value> {
        self.row_of("histogram", indices)?;
        if self.node(indices)?.element != Some(ElementType::U32) {
            return Err(wrong("histogram: it counts indices (u32), not other numbers".to_owned()));
        }
        if !(1..=MOST_BINS).contains(&bins) {
            return Err(wrong(format!("histogram: there are kernels for 1 to {MOST_BINS} bins, not {bins}")));
        }
        self.operation("histogram", |graph| {
            graph.push(Op::Histogram(indices, bins), vec![bins], Some(ElementType::U32))
        })
    }

    /// Makes the nodes that `build` adds one operation: without fusion it is one kernel.
    pub(super) fn operation<R>(
        &mut self,
        name: &'static str,
        build: impl FnOnce(&mut Graph) -> Result<R>,
    ) -> Result<R> {
        let was_inside = self.is_inside;
        if !was_inside {
            self.operations.push(name);
            self.is_inside = true;
        }
        let built = build(self);
        self.is_inside = was_inside;
        built
    }

    pub(super) fn node(&self, value: Value) -> Result<&Node> {
        self.nodes.get(value.0).ok_or_else(|| wrong("a value of another graph".to_owned()))
    }

    fn push(&mut self, op: Op, shape: Vec<usize>, element: Option<ElementType>) -> Result<Value> {
        let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        if elements.is_none_or(|elements| elements > i32::MAX as usize) {
            return Err(wrong(format!("a tensor of shape {shape:?} has more than 2^31 - 1 elements")));
        }
        let operation = (!op.is_free()).then(|| self.operations.len() - 1);
        self.nodes.push(Node { op, shape, element, operation });
        Ok(Value(self.nodes.len() - 1))
    }

    /// The shape of a tensor that has rows.
    fn row_of(&self, what: &str, x: Value) -> Result<&[usize]> {
        let shape = &self.node(x)?.shape;
        if shape.is_empty() {
            return Err(wrong(format!("{what}: it works along the last dimension, and a number has none")));
        }
        Ok(shape)
    }

    /// Shape and element of an elementwise result.
    fn together(&self, what: &str, operands: &[Value]) -> Result<(Vec<usize>, Option<ElementType>)> {
        let (mut shape, mut element): (Vec<usize>, Option<ElementType>) = (vec![], None);
        for &operand in operands {
            let node = self.node(operand)?;
            shape = broadcast(&shape, &node.shape).ok_or_else(|| {
                wrong(format!(
                    "{what}: shapes {shape:?} and {:?} do not broadcast; dimensions, aligned at the last, must be \
                     equal or 1",
                    node.shape
                ))
            })?;
            element = match (element, node.element) {
                (Some(one), Some(other)) => Some(one.with(other)),
                (one, other) => one.or(other),
            };
        }
        // Counts become numbers as soon as something is computed from them.
        Ok((
            shape,
            element.map(|element| if element == ElementType::U32 { ElementType::F32 } else { element }),
        ))
    }
}

/// The shape to which two broadcast.
pub(super) fn broadcast(one: &[usize], other: &[usize]) -> Option<Vec<usize>> {
    let rank = one.len().max(other.len());
    let size = |shape: &[usize], axis: usize| {
        let missing = rank - shape.len();
        if axis < missing { 1 } else { shape[axis - missing] }
    };
    (0..rank)
        .map(|axis| match (size(one, axis), size(other, axis)) {
            (1, other) => Some(other),
            (one, 1) => Some(one),
            (one, other) => (one == other).then_some(one),
        })
        .collect()
}

pub(super) fn wrong(why: String) -> Error {
    Error::Shape { technique: TECHNIQUE, why }
}

fn unary_name(function: Unary) -> &'static str {
    match function {
        Unary::Copy => "copy",
        Unary::Neg => "neg",
        Unary::Abs => "abs",
        Unary::Exp => "exp",
        Unary::Ln => "ln",
        Unary::Sqrt => "sqrt",
        Unary::Rsqrt => "rsqrt",
        Unary::Recip => "recip",
        Unary::Tanh => "tanh",
    }
}

fn binary_name(function: Binary) -> &'static str {
    match function {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::Max => "max",
        Binary::Min => "min",
        Binary::Less => "less",
        Binary::LessEqual => "less-equal",
        Binary::Equal => "equal",
    }
}

fn reduction_name(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "row-sum",
        Reduction::Max => "row-max",
        Reduction::Min => "row-min",
    }
}
