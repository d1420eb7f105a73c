//! Constant expressions, evaluated as ptxas 13.5 does on 64-bit integers (and doubles): as C does,
//! except that
//!
//! 1. `%` and `~` give unsigned numbers, and `%` takes its operands for unsigned ones;
//! 2. shifts count modulo 64;
//! 3. the type of `c ? a : b` is that of the operand that it picks.
//!
//! `tests/constants.rs` compares random expressions with ptxas.
//!
//! Precedence climbing; only the operand of a unary operator, a parenthesis and a right-hand side
//! recurse, each one level deeper.

use super::{Parsed, Parser};
use crate::syntax::lexer::TokenKind;
use crate::syntax::tree::Constant;

/// The precedence of `*`.
const PRODUCT: u8 = 9;

/// A value with its type: integers are `.s64` or `.u64`.
#[derive(Clone, Copy)]
enum Value {
    Signed(i64),
    Unsigned(u64),
    Single(u32),
    Double(f64),
}

impl Value {
    fn bits(self) -> Option<u64> {
        match self {
            Value::Signed(value) => Some(value as u64),
            Value::Unsigned(value) => Some(value),
            Value::Single(_) | Value::Double(_) => None,
        }
    }

    fn constant(self) -> Constant {
        match self {
            Value::Signed(value) => Constant::Integer(value.into()),
            Value::Unsigned(value) => Constant::Integer(value.into()),
            Value::Single(bits) => Constant::Single(bits),
            Value::Double(value) => Constant::Double(value.to_bits()),
        }
    }

    fn truth(self) -> bool {
        match self {
            Value::Signed(value) => value != 0,
            Value::Unsigned(value) => value != 0,
            Value::Single(bits) => f32::from_bits(bits) != 0.0,
            Value::Double(value) => value != 0.0,
        }
    }
}

impl Parser<'_, '_> {
    /// A constant expression.
    pub(super) fn constant(&mut self) -> Parsed<Constant> {
        Ok(self.ternary()?.constant())
    }

    /// Parses the factors that may follow a `-`.
    pub(super) fn term(&mut self) -> Parsed<Constant> {
        Ok(self.binary(PRODUCT)?.constant())
    }

    /// Whether the token at the cursor can start a constant expression.
    pub(super) fn at_constant(&self) -> bool {
        match self.peek().kind {
            TokenKind::Number(..) => true,
            TokenKind::Symbol(symbol) => matches!(symbol, b'-' | b'+' | b'~' | b'(' | b'!'),
            TokenKind::Word => self.at_word("WARP_SZ"),
            _ => false,
        }
    }

    fn ternary(&mut self) -> Parsed<Value> {
        self.nested(|parser| {
            let condition = parser.binary(0)?;
            if !parser.eat(b'?') {
                return Ok(condition);
            }
            let yes = parser.ternary()?;
            parser.expect(b':')?;
            let no = parser.ternary()?;
            Ok(if condition.truth() { yes } else { no })
        })
    }

    /// Operators that bind at least as tightly as `level`.
    fn binary(&mut self, level: u8) -> Parsed<Value> {
        self.nested(|parser| {
            let mut left = parser.unary()?;
            while let Some((operator, binding)) = parser.operator().filter(|(_, binding)| *binding >= level) {
                let position = parser.advance();
                let right = parser.binary(binding + 1)?;
                left = apply(operator, left, right).ok_or_else(|| {
                    let message = "this operator cannot be applied to these constants";
                    crate::Diagnostic::new(position.position, message)
                })?;
            }
            Ok(left)
        })
    }

    /// The binary operator at the cursor and how tightly it binds.
    fn operator(&self) -> Option<([u8; 2], u8)> {
        let operator = match self.peek().kind {
            TokenKind::Symbol(symbol) => [symbol, 0],
            TokenKind::Double(pair) => pair,
            _ => return None,
        };
        let binding = match &operator {
            b"||" => 0,
            b"&&" => 1,
            b"|\0" => 2,
            b"^\0" => 3,
            b"&\0" => 4,
            b"==" | b"!=" => 5,
            b"<\0" | b">\0" | b"<=" | b">=" => 6,
            b"<<" | b">>" => 7,
            b"+\0" | b"-\0" => 8,
            b"*\0" | b"/\0" | b"%\0" => PRODUCT,
            _ => return None,
        };
        Some((operator, binding))
    }

    fn unary(&mut self) -> Parsed<Value> {
        let token = self.peek();
        match token.kind {
            TokenKind::Number(constant, unsigned) => {
                self.next += 1;
                Ok(match constant {
                    Constant::Integer(value) if unsigned => Value::Unsigned(value as u64),
                    Constant::Integer(value) => Value::Signed(value as i64),
                    Constant::Single(bits) => Value::Single(bits),
                    Constant::Double(bits) => Value::Double(f64::from_bits(bits)),
                })
            }
            TokenKind::Word if token.text == "WARP_SZ" => {
                self.next += 1;
                Ok(Value::Signed(32))
            }
            TokenKind::Symbol(b'(') => {
                self.next += 1;
                self.parenthesis()
            }
            TokenKind::Symbol(operator @ (b'-' | b'+' | b'~' | b'!')) => {
                self.next += 1;
                let operand = self.nested(Self::unary)?;
                self.negate(operator, operand)
            }
            _ => self.expected("a constant"),
        }
    }

    /// After `(`: a cast or an expression.
    fn parenthesis(&mut self) -> Parsed<Value> {
        let cast = self.peek().text;
        if matches!(cast, ".s64" | ".u64") {
            self.next += 1;
            self.expect(b')')?;
            let operand = self.nested(Self::unary)?;
            let Some(bits) = operand.bits() else {
                return self.error("only integers can be cast in constant expressions");
            };
            return Ok(if cast == ".s64" { Value::Signed(bits as i64) } else { Value::Unsigned(bits) });
        }
        let value = self.ternary()?;
        self.expect(b')')?;
        Ok(value)
    }

    fn negate(&self, operator: u8, operand: Value) -> Parsed<Value> {
        Ok(match (operator, operand) {
            (b'+', value) => value,
            (b'!', value) => Value::Signed(i64::from(!value.truth())),
            (b'-', Value::Signed(value)) => Value::Signed(value.wrapping_neg()),
            (b'-', Value::Unsigned(value)) => Value::Unsigned(value.wrapping_neg()),
            (b'-', Value::Single(bits)) => Value::Single(bits ^ 0x8000_0000),
            (b'-', Value::Double(value)) => Value::Double(-value),
            (_, Value::Signed(value)) => Value::Unsigned(!value as u64),
            (_, Value::Unsigned(value)) => Value::Unsigned(!value),
            _ => return self.error("this operator needs an integer"),
        })
    }
}

/// `left operator right`; `None` for a division by zero and for operands that the operator does not
/// take.
fn apply(operator: [u8; 2], left: Value, right: Value) -> Option<Value> {
    if let (Value::Double(a), Value::Double(b)) = (left, right) {
        return double(operator, a, b);
    }
    let (a, b) = (left.bits()?, right.bits()?);
    let truth = |value: bool| Some(Value::Signed(i64::from(value)));
    match &operator {
        b"&&" => return truth(a != 0 && b != 0),
        b"||" => return truth(a != 0 || b != 0),
        b"==" => return truth(a == b),
        b"!=" => return truth(a != b),
        // A shift takes its type from what is shifted.
        b"<<" | b">>" => return Some(shift(operator[0] == b'<', left, b)),
        b"%\0" => return a.checked_rem(b).map(Value::Unsigned),
        _ => {}
    }
    let order = match (left, right) {
        (Value::Signed(a), Value::Signed(b)) => a.cmp(&b),
        _ => a.cmp(&b),
    };
    match &operator {
        b"<\0" => return truth(order.is_lt()),
        b">\0" => return truth(order.is_gt()),
        b"<=" => return truth(order.is_le()),
        b">=" => return truth(order.is_ge()),
        _ => {}
    }
    Some(match (left, right) {
        (Value::Signed(a), Value::Signed(b)) => Value::Signed(match &operator {
            b"/\0" => a.checked_div(b)?,
            _ => modular(operator[0], a as u64, b as u64)? as i64,
        }),
        _ => Value::Unsigned(match &operator {
            b"/\0" => a.checked_div(b)?,
            _ => modular(operator[0], a, b)?,
        }),
    })
}

fn modular(operator: u8, a: u64, b: u64) -> Option<u64> {
    Some(match operator {
        b'+' => a.wrapping_add(b),
        b'-' => a.wrapping_sub(b),
        b'*' => a.wrapping_mul(b),
        b'&' => a & b,
        b'|' => a | b,
        b'^' => a ^ b,
        _ => return None,
    })
}

fn shift(left: bool, value: Value, count: u64) -> Value {
    let count = (count % 64) as u32;
    match (value, left) {
        (Value::Signed(value), false) => Value::Signed(value >> count),
        (Value::Signed(value), true) => Value::Signed(value << count),
        (Value::Unsigned(value), false) => Value::Unsigned(value >> count),
        (Value::Unsigned(value), true) => Value::Unsigned(value << count),
        (float, _) => float,
    }
}

fn double(operator: [u8; 2], a: f64, b: f64) -> Option<Value> {
    let truth = |value: bool| Some(Value::Signed(i64::from(value)));
    match &operator {
        b"+\0" => Some(Value::Double(a + b)),
        b"-\0" => Some(Value::Double(a - b)),
        b"*\0" => Some(Value::Double(a * b)),
        b"/\0" => Some(Value::Double(a / b)),
        b"==" => truth(a == b),
        b"!=" => truth(a != b),
        b"<\0" => truth(a < b),
        b">\0" => truth(a > b),
        b"<=" => truth(a <= b),
        b">=" => truth(a >= b),
        _ => None,
    }
}
