//! Functions of numbers, in f32.
//!
//! Where results stay in f32, exponentials are computed as CUDA's `expf` does it, from the nearest
//! power of two and a remainder; where they are rounded to 16 bits, by one instruction.

use std::f64::consts::{LN_2, LOG2_E};
use std::fmt::Write;

use super::super::graph::{Binary, Unary};
use super::{Class, Emitter, line};

/// `tanh(x) = x + x³ · P(x²)` up to this, from the lowest power: P interpolates at Chebyshev
/// nodes, with an error below that of f32.
const TANH_SMALL: f64 = 0.55;
const TANH: [f64; 4] =
    [-3.333294663641083e-1, 1.332072505223051e-1, -5.267181327760551e-2, 1.643758066599993e-2];

impl Emitter<'_> {
    fn op(&mut self, instruction: &str, operands: &[&str]) -> String {
        let register = self.register(Class::Float);
        line!(self, "{instruction} {register}, {};", operands.join(", "));
        register
    }

    pub(super) fn unary(&mut self, function: Unary, x: &str) -> String {
        match function {
            Unary::Copy => x.to_owned(),
            Unary::Neg => self.op("neg.f32", &[x]),
            Unary::Abs => self.op("abs.f32", &[x]),
            Unary::Exp => self.exp(x),
            Unary::Ln => {
                let log = self.op("lg2.approx.f32", &[x]);
                let scale = self.constant(LN_2);
                self.op("mul.f32", &[&log, &scale])
            }
            Unary::Sqrt => self.op("sqrt.rn.f32", &[x]),
            Unary::Rsqrt => self.op("rsqrt.approx.f32", &[x]),
            Unary::Recip => self.op("rcp.approx.f32", &[x]),
            Unary::Tanh => self.tanh(x),
        }
    }

    fn exp(&mut self, x: &str) -> String {
        let scale = self.constant(LOG2_E);
        if !self.is_precise() {
            let power = self.op("mul.f32", &[x, &scale]);
            return self.op("ex2.approx.f32", &[&power]);
        }
        // Beyond these the result is 0 or infinite, and the remainder would be NaN. The bounds keep
        // NaN, and both powers of two below are finite.
        let (low, high) = (self.constant(-104.0), self.constant(89.0));
        let x = self.op("max.NaN.f32", &[x, &low]);
        let x = self.op("min.NaN.f32", &[&x, &high]);
        let power = self.op("mul.f32", &[&x, &scale]);
        let whole = self.op("cvt.rni.f32.f32", &[&power]);
        // ln 2 in two parts, of which the first has few bits.
        let (first, second) = (self.constant(-0.693145751953125), self.constant(0.693145751953125 - LN_2));
        let rest = self.op("fma.rn.f32", &[&whole, &first, &x]);
        let rest = self.op("fma.rn.f32", &[&whole, &second, &rest]);
        let rest = self.op("mul.f32", &[&rest, &scale]);
        let rest = self.op("ex2.approx.f32", &[&rest]);
        // Half of the power twice: the whole may be too large for a number that the product is not.
        let half = self.constant(0.5);
        let halved = self.op("mul.f32", &[&whole, &half]);
        let near = self.op("cvt.rzi.f32.f32", &[&halved]);
        let other = self.op("sub.f32", &[&whole, &near]);
        let (near, other) = (self.op("ex2.approx.f32", &[&near]), self.op("ex2.approx.f32", &[&other]));
        let product = self.op("mul.f32", &[&rest, &near]);
        self.op("mul.f32", &[&product, &other])
    }

    /// `1 - 2 / (e^2x + 1)`, and a polynomial where that would cancel.
    fn tanh(&mut self, x: &str) -> String {
        let (one, two) = (self.constant(1.0), self.constant(2.0));
        let double = self.op("mul.f32", &[x, &two]);
        let power = self.exp(&double);
        let sum = self.op("add.f32", &[&power, &one]);
        let inverse = self.op("rcp.approx.f32", &[&sum]);
        let minus = self.constant(-2.0);
        let large = self.op("fma.rn.f32", &[&inverse, &minus, &one]);

        let square = self.op("mul.f32", &[x, x]);
        let mut small = self.constant(TANH[3]);
        for coefficient in [TANH[2], TANH[1], TANH[0]] {
            let coefficient = self.constant(coefficient);
            small = self.op("fma.rn.f32", &[&small, &square, &coefficient]);
        }
        let cube = self.op("mul.f32", &[&square, x]);
        let small = self.op("fma.rn.f32", &[&small, &cube, x]);

        let (size, bound) = (self.op("abs.f32", &[x]), self.constant(TANH_SMALL));
        let is_small = self.register(Class::Predicate);
        line!(self, "setp.lt.f32 {is_small}, {size}, {bound};");
        self.op("selp.f32", &[&small, &large, &is_small])
    }

    pub(super) fn binary(&mut self, function: Binary, x: &str, y: &str) -> String {
        let instruction = match function {
            Binary::Add => "add.f32",
            Binary::Sub => "sub.f32",
            Binary::Mul => "mul.f32",
            Binary::Div => "div.full.f32",
            Binary::Max => "max.NaN.f32",
            Binary::Min => "min.NaN.f32",
            Binary::Less => "set.lt.f32.f32",
            Binary::LessEqual => "set.le.f32.f32",
            Binary::Equal => "set.eq.f32.f32",
        };
        self.op(instruction, &[x, y])
    }

    pub(super) fn select(&mut self, condition: &str, yes: &str, no: &str) -> String {
        let zero = self.constant(0.0);
        let holds = self.register(Class::Predicate);
        line!(self, "setp.neu.f32 {holds}, {condition}, {zero};");
        self.op("selp.f32", &[yes, no, &holds])
    }

    /// Whether results keep all digits of f32.
    fn is_precise(&self) -> bool {
        use super::ElementType::F32;
        self.nest.writes.iter().any(|write| write.element == F32)
    }
}
