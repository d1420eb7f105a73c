//! Graphs that transformers use often, built from the operations of this module. The rules for any
//! graph fuse each of them into one kernel; nothing here is specific to fusion.

use super::graph::{ElementType, Graph, Value};
use crate::Result;

/// `gelu(x + bias)` for `x` of shape `[rows, length]`.
///
/// # Errors
/// All functions here: [`Error::Shape`](crate::Error::Shape), the shape is too large.
pub fn bias_gelu(element: ElementType, rows: usize, length: usize) -> Result<Graph> {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &[rows, length])?;
    let bias = graph.input("bias", element, &[length])?;
    let sum = graph.add(x, bias)?;
    let y = graph.gelu(sum)?;
    graph.output("y", y, element)?;
    Ok(graph)
}

/// `layer_norm(relu(x + residual))` with weight and bias.
pub fn residual_relu_layer_norm(
    element: ElementType,
    rows: usize,
    length: usize,
    epsilon: f64,
) -> Result<Graph> {
    let mut graph = Graph::new();
    let [_, positive, weight] = residual_relu(&mut graph, element, rows, length)?;
    let bias = graph.input("bias", element, &[length])?;
    let y = graph.layer_norm(positive, weight, bias, epsilon)?;
    graph.output("y", y, element)?;
    Ok(graph)
}

/// The gradients of [`residual_relu_layer_norm`]: of `x`, which is that of `residual` too, of the
/// weight and of the bias.
pub fn residual_relu_layer_norm_gradient(
    element: ElementType,
    rows: usize,
    length: usize,
    epsilon: f64,
) -> Result<Graph> {
    let mut graph = Graph::new();
    let [sum, positive, weight] = residual_relu(&mut graph, element, rows, length)?;
    let y_gradient = graph.input("y_gradient", element, &[rows, length])?;
    let mean = graph.row_mean(positive)?;
    let centred = graph.sub(positive, mean)?;
    let (normal, scale) = normalised(&mut graph, centred, epsilon)?;
    let weight_terms = graph.mul(y_gradient, normal)?;
    let weight_gradient = graph.column_sum(weight_terms)?;
    let bias_gradient = graph.column_sum(y_gradient)?;
    let of_normal = graph.mul(y_gradient, weight)?;
    let shift = graph.row_mean(of_normal)?; // a shift of a row is normalised away
    let shifted = graph.sub(of_normal, shift)?;
    let through = through_norm(&mut graph, shifted, normal, scale)?;
    let zero = graph.constant(0.0);
    let is_positive = graph.less(zero, sum)?;
    let x_gradient = graph.select(is_positive, through, zero)?;
    graph.output("x_gradient", x_gradient, element)?;
    graph.output("weight_gradient", weight_gradient, element)?;
    graph.output("bias_gradient", bias_gradient, element)?;
    Ok(graph)
}

/// The inputs `x`, `residual` and `weight`, and what begins [`residual_relu_layer_norm`]: the sum
/// of the first two, its positive part, and the weight.
fn residual_relu(graph: &mut Graph, element: ElementType, rows: usize, length: usize) -> Result<[Value; 3]> {
    let x = graph.input("x", element, &[rows, length])?;
    let residual = graph.input("residual", element, &[rows, length])?;
    let weight = graph.input("weight", element, &[length])?;
    let sum = graph.add(x, residual)?;
    Ok([sum, graph.relu(sum)?, weight])
}

/// `x / √(mean(x²) + ε) · weight`, in the operations in which models write it.
pub fn rms_norm(element: ElementType, rows: usize, length: usize, epsilon: f64) -> Result<Graph> {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &[rows, length])?;
    let weight = graph.input("weight", element, &[length])?;
    let (normal, _) = normalised(&mut graph, x, epsilon)?;
    let y = graph.mul(normal, weight)?;
    graph.output("y", y, element)?;
    Ok(graph)
}

/// [`rms_norm`] of the sum of `x` and `residual`, and the sum, which goes on past the norm.
pub fn residual_rms_norm(element: ElementType, rows: usize, length: usize, epsilon: f64) -> Result<Graph> {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &[rows, length])?;
    let residual = graph.input("residual", element, &[rows, length])?;
    let weight = graph.input("weight", element, &[length])?;
    let sum = graph.add(x, residual)?;
    let (normal, _) = normalised(&mut graph, sum, epsilon)?;
    let y = graph.mul(normal, weight)?;
    graph.output("sum", sum, element)?;
    graph.output("y", y, element)?;
    Ok(graph)
}

/// The gradients of [`rms_norm`]: of `x` and of the weight. `y_gradient` is that of the output.
pub fn rms_norm_gradient(element: ElementType, rows: usize, length: usize, epsilon: f64) -> Result<Graph> {
    gradient_of_rms_norm(element, [rows, length], epsilon, false)
}

/// As [`rms_norm_gradient`] for [`residual_rms_norm`], where `x` is the sum: the gradient
/// `residual`, which reaches the sum past the norm, is added to that of `x`.
pub fn residual_rms_norm_gradient(
    element: ElementType,
    rows: usize,
    length: usize,
    epsilon: f64,
) -> Result<Graph> {
    gradient_of_rms_norm(element, [rows, length], epsilon, true)
}

fn gradient_of_rms_norm(
    element: ElementType,
    shape: [usize; 2],
    epsilon: f64,
    with_residual: bool,
) -> Result<Graph> {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &shape)?;
    let weight = graph.input("weight", element, &shape[1..])?;
    let y_gradient = graph.input("y_gradient", element, &shape)?;
    let (normal, scale) = normalised(&mut graph, x, epsilon)?;
    let weight_terms = graph.mul(y_gradient, normal)?;
    let weight_gradient = graph.column_sum(weight_terms)?;
    let of_normal = graph.mul(y_gradient, weight)?;
    let mut x_gradient = through_norm(&mut graph, of_normal, normal, scale)?;
    if with_residual {
        let residual = graph.input("residual", element, &shape)?;
        x_gradient = graph.add(x_gradient, residual)?;
    }
    graph.output("x_gradient", x_gradient, element)?;
    graph.output("weight_gradient", weight_gradient, element)?;
    Ok(graph)
}

/// The gradient of what became `normal` when it was multiplied by `scale`, from that of `normal`.
fn through_norm(graph: &mut Graph, gradient: Value, normal: Value, scale: Value) -> Result<Value> {
    let along = graph.mul(gradient, normal)?;
    let mean = graph.row_mean(along)?; // the length of a row is normalised away
    let back = graph.mul(normal, mean)?;
    let across = graph.sub(gradient, back)?;
    graph.mul(across, scale)
}

/// Rows divided by the root of their mean square, and one over that root.
fn normalised(graph: &mut Graph, x: Value, epsilon: f64) -> Result<(Value, Value)> {
    let square = graph.square(x)?;
    let (mean, epsilon) = (graph.row_mean(square)?, graph.constant(epsilon));
    let sum = graph.add(mean, epsilon)?;
    let scale = graph.rsqrt(sum)?;
    Ok((graph.mul(x, scale)?, scale))
}

/// Cross-entropy of each row of `logits` of shape `[rows, classes]` with the class in `targets` of
/// shape `[rows, 1]`: `losses`, of shape `[rows, 1]`, and the `gradient` of the logits, that of
/// `scale` times the sum of the losses. Use a scale of one over the rows for the gradient of the
/// mean. A row whose target is no class has a loss and a gradient of zero.
///
/// ```
/// use apex_kernels::fusion::{ElementType::F32, forms, reference};
///
/// let graph = forms::cross_entropy(F32, 2, 2, 1.0)?;
/// let (logits, targets) = (vec![0.0, 3f64.ln(), 7.0, 7.0], vec![0.0, 2.0]);
/// let found = reference::evaluate(&graph, &[logits, targets])?;
/// assert!((found[0][0] - 4f64.ln()).abs() < 1e-12); // its share is a quarter
/// assert!((found[1][0] + 0.75).abs() < 1e-12);
/// assert_eq!((found[0][1], &found[1][2..]), (0.0, &[0.0, 0.0][..])); // there is no class 2
/// # apex_kernels::Result::Ok(())
/// ```
pub fn cross_entropy(element: ElementType, rows: usize, classes: usize, scale: f64) -> Result<Graph> {
    let mut graph = Graph::new();
    let logits = graph.input("logits", element, &[rows, classes])?;
    let targets = graph.input("targets", ElementType::U32, &[rows, 1])?;
    let most = graph.row_max(logits)?;
    let below = graph.sub(logits, most)?;
    let power = graph.exp(below)?;
    let all = graph.row_sum(power)?;
    let (class, count) = (graph.index(0, classes)?, graph.constant(classes as f64));
    let (is_target, is_class) = (graph.equal(class, targets)?, graph.less(targets, count)?);
    let zero = graph.constant(0.0);
    let own = graph.select(is_target, below, zero)?; // a product would be NaN beside a logit of −∞
    let (own, log) = (graph.row_sum(own)?, graph.ln(all)?);
    let loss = graph.sub(log, own)?;
    let losses = graph.select(is_class, loss, zero)?;
    let (share, scale) = (graph.div(power, all)?, graph.constant(scale));
    let off = graph.sub(share, is_target)?;
    let scaled = graph.mul(off, scale)?;
    let gradient = graph.select(is_class, scaled, zero)?;
    graph.output("losses", losses, ElementType::F32)?;
    graph.output("gradient", gradient, element)?;
    Ok(graph)
}

/// Rotary embedding of heads: `x · cos + rotate_half(x) · sin` for `x` of shape `[batch, length,
/// heads, dim]`, with angles of shape `[length, 1, dim]`.
pub fn rotary(element: ElementType, [batch, length, heads, dim]: [usize; 4]) -> Result<Graph> {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &[batch, length, heads, dim])?;
    let cos = graph.input("cos", element, &[length, 1, dim])?;
    let sin = graph.input("sin", element, &[length, 1, dim])?;
    let rotated = graph.rotate_half(x)?;
    let (first, second) = (graph.mul(x, cos)?, graph.mul(rotated, sin)?);
    let y = graph.add(first, second)?;
    graph.output("y", y, element)?;
    Ok(graph)
}

/// Softmax of scaled scores under a causal mask: row `i` of `[heads, rows, length]` sees columns up
/// to `i + length - rows`.
pub fn scale_mask_softmax(
    element: ElementType,
    [heads, rows, length]: [usize; 3],
    scale: f64,
) -> Result<Graph> {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &[heads, rows, length])?;
    let scale = graph.constant(scale);
    let scaled = graph.mul(x, scale)?;
    let (row, column) = (graph.index(1, rows)?, graph.index(0, length)?);
    let masked = graph.operation("causal-mask", |graph| {
        let further = graph.constant(length as f64 - rows as f64);
        let last = graph.add(row, further)?;
        let (is_seen, hidden) = (graph.less_equal(column, last)?, graph.constant(f64::NEG_INFINITY));
        graph.select(is_seen, scaled, hidden)
    })?;
    let y = graph.softmax(masked)?;
    graph.output("y", y, element)?;
    Ok(graph)
}

/// Softmax of each row.
pub fn softmax(element: ElementType, rows: usize, length: usize) -> Result<Graph> {
    let mut graph = Graph::new();
    let x = graph.input("x", element, &[rows, length])?;
    let y = graph.softmax(x)?;
    graph.output("y", y, element)?;
    Ok(graph)
}

/// The gradient of [`softmax`], from its output `y` and the gradient of that.
pub fn softmax_gradient(element: ElementType, rows: usize, length: usize) -> Result<Graph> {
    let mut graph = Graph::new();
    let y = graph.input("y", element, &[rows, length])?;
    let y_gradient = graph.input("y_gradient", element, &[rows, length])?;
    let along = graph.mul(y_gradient, y)?;
    let sum = graph.row_sum(along)?; // a row's shares add up to 1
    let across = graph.sub(y_gradient, sum)?;
    let x_gradient = graph.mul(across, y)?;
    graph.output("x_gradient", x_gradient, element)?;
    Ok(graph)
}

/// Routing of a mixture of experts: the softmax of `logits` of shape `[tokens, experts]`, the `k`
/// largest shares divided by their sum (`weights`), their experts, and the tokens of each expert
/// (`loads`).
pub fn gate(element: ElementType, tokens: usize, experts: usize, k: usize) -> Result<Graph> {
    let mut graph = Graph::new();
    let logits = graph.input("logits", element, &[tokens, experts])?;
    let shares = graph.softmax(logits)?;
    let (chosen, indices) = graph.top_k(shares, k)?;
    let sum = graph.row_sum(chosen)?;
    let weights = graph.div(chosen, sum)?;
    let loads = graph.histogram(indices, experts)?;
    graph.output("weights", weights, ElementType::F32)?;
    graph.output("experts", indices, ElementType::U32)?;
    graph.output("loads", loads, ElementType::U32)?;
    Ok(graph)
}

/// The gradients of norms, by name, at `rows` × `length`; for tables.
pub fn gradients(element: ElementType, rows: usize, length: usize) -> Result<Vec<(&'static str, Graph)>> {
    Ok(vec![
        ("RMSNorm, gradients", rms_norm_gradient(element, rows, length, 1e-6)?),
        ("residual + RMSNorm, gradients", residual_rms_norm_gradient(element, rows, length, 1e-6)?),
        (
            "residual + ReLU + LayerNorm, gradients",
            residual_relu_layer_norm_gradient(element, rows, length, 1e-5)?,
        ),
    ])
}

/// A value of each kind of set form, by name, at `rows` × `length`; for tables.
pub fn all(element: ElementType, rows: usize, length: usize) -> Result<Vec<(&'static str, Graph)>> {
    let heads = rows.div_ceil(length).max(1);
    Ok(vec![
        ("bias + GELU", bias_gelu(element, rows, length)?),
        ("residual + ReLU + LayerNorm", residual_relu_layer_norm(element, rows, length, 1e-5)?),
        ("RMSNorm", rms_norm(element, rows, length, 1e-6)?),
        ("rotary embedding", rotary(element, [1, rows, length.div_ceil(128), 128])?),
        ("scale + mask + softmax", scale_mask_softmax(element, [heads, rows / heads, length], 0.125)?),
        ("softmax", softmax(element, rows, length)?),
        ("gate softmax + top-k + renormalise + histogram", gate(ElementType::F32, rows, 64, 4)?),
    ])
}
