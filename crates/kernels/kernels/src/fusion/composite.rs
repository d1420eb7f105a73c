//! Operations that are made of others. Each counts as one: without fusion it is one kernel, as in
//! PyTorch.

use std::f64::consts::PI;

use super::graph::{Binary, Graph, Reduction, Unary, Value, wrong};
use crate::Result;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($operand:ident),*) = $method:ident $function:expr;)*) => {
        impl Graph { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`Error::Shape`](crate::Error::Shape): shapes do not fit.
            pub fn $name(&mut self, $($operand: Value),*) -> Result<Value> {
                self.$method($function, $($operand),*)
            }
        )* }
    };
}

functions! {
    /// `x + y`
    add(x, y) = binary Binary::Add;
    /// `x - y`
    sub(x, y) = binary Binary::Sub;
    /// `x · y`
    mul(x, y) = binary Binary::Mul;
    /// `x / y`
    div(x, y) = binary Binary::Div;
    /// The larger one; NaN if one is.
    max(x, y) = binary Binary::Max;
    /// The smaller one; NaN if one is.
    min(x, y) = binary Binary::Min;
    /// 1 where `x < y`, else 0.
    less(x, y) = binary Binary::Less;
    /// 1 where `x ≤ y`, else 0.
    less_equal(x, y) = binary Binary::LessEqual;
    /// 1 where `x = y`, else 0.
    equal(x, y) = binary Binary::Equal;
    /// `-x`
    neg(x) = unary Unary::Neg;
    /// `|x|`
    abs(x) = unary Unary::Abs;
    /// `eˣ`
    exp(x) = unary Unary::Exp;
    /// Natural logarithm.
    ln(x) = unary Unary::Ln;
    /// Square root.
    sqrt(x) = unary Unary::Sqrt;
    /// `1/√x`
    rsqrt(x) = unary Unary::Rsqrt;
    /// `1/x`
    recip(x) = unary Unary::Recip;
    /// Hyperbolic tangent.
    tanh(x) = unary Unary::Tanh;
    /// Sum of each row.
    row_sum(x) = reduce Reduction::Sum;
    /// Largest element of each row; NaN if one is.
    row_max(x) = reduce Reduction::Max;
    /// Smallest element of each row; NaN if one is.
    row_min(x) = reduce Reduction::Min;
}

/// Each is a function of shapes that its parts check.
///
/// # Errors
/// All of them: [`Error::Shape`](crate::Error::Shape), shapes do not fit.
impl Graph {
    /// `max(x, 0)`
    pub fn relu(&mut self, x: Value) -> Result<Value> {
        let zero = self.constant(0.0);
        self.operation("relu", |graph| graph.max(x, zero))
    }

    /// `x²`
    pub fn square(&mut self, x: Value) -> Result<Value> {
        self.operation("square", |graph| graph.mul(x, x))
    }

    /// `1 / (1 + e⁻ˣ)`
    pub fn sigmoid(&mut self, x: Value) -> Result<Value> {
        self.operation("sigmoid", |graph| {
            let (one, minus) = (graph.constant(1.0), graph.neg(x)?);
            let power = graph.exp(minus)?;
            let below = graph.add(power, one)?;
            graph.recip(below)
        })
    }

    /// `x · sigmoid(x)`
    pub fn silu(&mut self, x: Value) -> Result<Value> {
        self.operation("silu", |graph| {
            let gate = graph.sigmoid(x)?;
            graph.mul(x, gate)
        })
    }

    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, PyTorch's `gelu(approximate="tanh")`. It is
    /// computed as `x · sigmoid(2 √(2/π) · (x + 0.044715 x³))`, which is the same.
    pub fn gelu(&mut self, x: Value) -> Result<Value> {
        self.operation("gelu", |graph| {
            let scale = 2.0 * (2.0 / PI).sqrt();
            let (first, third) = (graph.constant(scale), graph.constant(scale * 0.044715));
            let square = graph.square(x)?;
            let cubic = graph.mul(square, third)?;
            let factor = graph.add(cubic, first)?;
            let inner = graph.mul(x, factor)?;
            let gate = graph.sigmoid(inner)?;
            graph.mul(x, gate)
        })
    }

    /// Mean of each row.
    pub fn row_mean(&mut self, x: Value) -> Result<Value> {
        let length = self.node(x)?.shape.last().copied();
        let length = length.ok_or_else(|| wrong("row-mean: a number has no rows".to_owned()))?;
        self.operation("row-mean", |graph| {
            let (sum, length) = (graph.row_sum(x)?, graph.constant(length as f64));
            graph.div(sum, length)
        })
    }

    /// Softmax of each row. The row's largest element is subtracted before, so that no exponential
    /// overflows. A row of −∞ alone is NaN, as in PyTorch.
    pub fn softmax(&mut self, x: Value) -> Result<Value> {
        self.operation("softmax", |graph| {
            let most = graph.row_max(x)?;
            let below = graph.sub(x, most)?;
            let power = graph.exp(below)?;
            let sum = graph.row_sum(power)?;
            let share = graph.recip(sum)?;
            graph.mul(power, share)
        })
    }

    /// `(x - mean) / √(variance + epsilon) · weight + bias`, by rows.
    pub fn layer_norm(&mut self, x: Value, weight: Value, bias: Value, epsilon: f64) -> Result<Value> {
        self.operation("layer-norm", |graph| {
            let mean = graph.row_mean(x)?;
            let off = graph.sub(x, mean)?;
            let square = graph.square(off)?;
            let (variance, epsilon) = (graph.row_mean(square)?, graph.constant(epsilon));
            let sum = graph.add(variance, epsilon)?;
            let scale = graph.rsqrt(sum)?;
            let normal = graph.mul(off, scale)?;
            let scaled = graph.mul(normal, weight)?;
            graph.add(scaled, bias)
        })
    }

    /// The second half of each row with the other sign, then the first: what rotary embeddings
    /// multiply with sines.
    pub fn rotate_half(&mut self, x: Value) -> Result<Value> {
        let length = self.node(x)?.shape.last().copied().unwrap_or(0);
        if !length.is_multiple_of(2) || length == 0 {
            return Err(wrong(format!("rotate-half: rows of {length} elements have no halves")));
        }
        self.operation("rotate-half", |graph| {
            let (place, half) = (graph.index(0, length)?, graph.constant((length / 2) as f64));
            let (rolled, is_first) = (graph.roll(x, length / 2)?, graph.less(place, half)?);
            let minus = graph.neg(rolled)?;
            graph.select(is_first, minus, rolled)
        })
    }
}
