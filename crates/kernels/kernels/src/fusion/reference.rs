//! Graphs in f64 on the host, one node after the other: the definition, with which generated
//! kernels are compared.

use super::graph::{Binary, Graph, Op, Reduction, Unary, Value, wrong};
use crate::Result;

/// The outputs of a graph, in the order in which they were declared, not rounded to their elements.
/// Inputs are in the order of their declaration too.
///
/// ```
/// use apex_kernels::fusion::{ElementType, Graph, reference};
///
/// let mut graph = Graph::new();
/// let x = graph.input("x", ElementType::F32, &[2, 2])?;
/// let y = graph.softmax(x)?;
/// graph.output("y", y, ElementType::F32)?;
/// let found = reference::evaluate(&graph, &[vec![1000.0, 1000.0, 0.0, 3f64.ln()]])?;
/// assert!(found[0].iter().zip([0.5, 0.5, 0.25, 0.75]).all(|(a, b)| (a - b).abs() < 1e-12));
/// # apex_kernels::Result::Ok(())
/// ```
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape): an input has another number of elements.
pub fn evaluate(graph: &Graph, inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
    let counts = inputs.iter().map(Vec::len);
    graph.check_inputs(&counts.collect::<Vec<_>>())?;
    let mut values: Vec<Vec<f64>> = Vec::new();
    let mut given = inputs.iter();
    for node in &graph.nodes {
        let computed = match node.op {
            Op::Input => given.next().cloned().unwrap_or_default(),
            _ => compute(graph, &node.op, &node.shape, &values),
        };
        values.push(computed);
    }
    Ok(graph.outputs.iter().map(|output| values[output.value.0].clone()).collect())
}

impl Graph {
    /// Checks that there are as many inputs, of as many elements, as the graph declares.
    pub(super) fn check_inputs(&self, found: &[usize]) -> Result<()> {
        if found.len() != self.inputs.len() {
            return Err(wrong(format!("inputs of the graph: {}, not {}", self.inputs.len(), found.len())));
        }
        for (input, &found) in self.inputs.iter().zip(found) {
            let shape = self.shape(input.value);
            let needed = shape.iter().product::<usize>();
            if found != needed {
                let name = &input.name;
                return Err(wrong(format!(
                    "input `{name}` has {found} elements, and its shape {shape:?} needs {needed}"
                )));
            }
        }
        Ok(())
    }
}

fn compute(graph: &Graph, op: &Op, shape: &[usize], values: &[Vec<f64>]) -> Vec<f64> {
    let elements = shape.iter().product::<usize>();
    let at = |x: Value, place: usize| values[x.0][source(shape, graph.shape(x), place)];
    let rows = |x: Value| {
        let length = graph.shape(x).last().copied().unwrap_or(1);
        let count = values[x.0].len().checked_div(length).unwrap_or(elements);
        (0..count).map(move |row| &values[x.0][row * length..][..length])
    };
    match *op {
        Op::Input => unreachable!("inputs are given"),
        Op::Constant(number) => vec![number],
        Op::Index { .. } => (0..elements).map(|place| place as f64).collect(),
        Op::Unary(function, x) => values[x.0].iter().map(|&x| unary(function, x)).collect(),
        Op::Binary(function, x, y) => {
            (0..elements).map(|place| binary(function, at(x, place), at(y, place))).collect()
        }
        Op::Select(condition, yes, no) => (0..elements)
            .map(|place| if at(condition, place) != 0.0 { at(yes, place) } else { at(no, place) })
            .collect(),
        Op::Reduce(reduction, x) => rows(x).map(|row| reduce(reduction, row)).collect(),
        Op::ColumnSum(x) => {
            let mut sums = vec![0.0; elements];
            rows(x).for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x));
            sums
        }
        Op::Roll(x, by) => rows(x).flat_map(|row| [&row[by..], &row[..by]].concat()).collect(),
        Op::TopValues(x, k) => rows(x).flat_map(|row| order(row, k).map(|place| row[place])).collect(),
        Op::TopIndices(x, k) => rows(x).flat_map(|row| order(row, k).map(|place| place as f64)).collect(),
        Op::Histogram(x, bins) => {
            let mut counts = vec![0.0; bins];
            values[x.0].iter().for_each(|&index| {
                if let Some(count) = counts.get_mut(index as usize) {
                    *count += 1.0;
                }
            });
            counts
        }
    }
}

/// The index of the operand's element that belongs to a place of the result.
fn source(shape: &[usize], operand: &[usize], mut place: usize) -> usize {
    let (mut offset, mut stride) = (0, 1);
    for (axis, &size) in shape.iter().rev().enumerate() {
        let index = place % size;
        place /= size;
        if let Some(&own) = operand.iter().rev().nth(axis) {
            offset += if own == 1 { 0 } else { index * stride };
            stride *= own;
        }
    }
    offset
}

fn unary(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Copy => x,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Tanh => x.tanh(),
    }
}

fn binary(function: Binary, x: f64, y: f64) -> f64 {
    let truth = |is: bool| if is { 1.0 } else { 0.0 };
    match function {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Max => either(x, y, f64::max),
        Binary::Min => either(x, y, f64::min),
        Binary::Less => truth(x < y),
        Binary::LessEqual => truth(x <= y),
        Binary::Equal => truth(x == y),
    }
}

/// NaN if one is, which `max` and `min` of numbers are not.
fn either(x: f64, y: f64, choose: fn(f64, f64) -> f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { choose(x, y) }
}

fn reduce(reduction: Reduction, row: &[f64]) -> f64 {
    let over = |first, choose| row.iter().fold(first, |all, &x| either(all, x, choose));
    match reduction {
        Reduction::Sum => row.iter().sum(),
        Reduction::Max => over(f64::NEG_INFINITY, f64::max),
        Reduction::Min => over(f64::INFINITY, f64::min),
    }
}

/// Places of the `k` largest.
fn order(row: &[f64], k: usize) -> impl Iterator<Item = usize> + use<> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    let nan_last = |x: f64, y: f64| match (x.is_nan(), y.is_nan()) {
        (false, false) => y.total_cmp(&x),
        (x, y) => x.cmp(&y),
    };
    places.sort_by(|&a, &b| nan_last(row[a], row[b])); // stable: among equals, the left one
    places.into_iter().take(k)
}
