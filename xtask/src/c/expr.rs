//! Integer constant expressions: values of enumerators, array bounds, macros.

use super::lex::Kind;
use super::parse::Parser;
use super::{Result, Type};

/// A constant and the type that a cast gave it, or that of an enumeration it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its value, by the rules of C for `int` or wider.
    pub value: i128,
    /// `None` for a plain number.
    pub ty: Option<Type>,
    /// Whether it is `unsigned int`: only then does `~` give a positive number.
    pub unsigned: bool,
}

impl Constant {
    fn plain(value: i128, unsigned: bool) -> Constant {
        Constant { value, ty: None, unsigned }
    }
}

/// Binary operators, loosest first; those of one row bind equally.
const PRECEDENCE: [&[&str]; 8] = [
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Parser<'_> {
    /// Parses and evaluates a constant expression.
    pub fn constant(&mut self) -> Result<Constant> {
        self.nested(|parser| parser.binary(0))
    }

    fn binary(&mut self, level: usize) -> Result<Constant> {
        let Some(operators) = PRECEDENCE.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.eat(operator)) {
            let right = self.binary(level + 1)?;
            let unsigned = left.unsigned || right.unsigned;
            let value = apply(operator, left.value, right.value)
                .ok_or_else(|| self.error(format!("`{operator}` overflows or divides by zero")))?;
            left = Constant::plain(value, unsigned);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Constant> {
        for operator in ["-", "+", "~", "!"] {
            if self.eat(operator) {
                let operand = self.nested(Parser::unary)?;
                return Ok(negate(operator, operand));
            }
        }
        if self.eat_word("sizeof") {
            self.expect("(")?;
            let ty = self.type_name()?;
            self.expect(")")?;
            return match self.unit().layout_of(&ty) {
                Some(layout) => Ok(Constant::plain(i128::from(layout.size), true)),
                None => Err(self.error("sizeof an incomplete type")),
            };
        }
        if self.eat("(") {
            return self.nested(Parser::parenthesised);
        }
        self.primary()
    }

    /// After `(`: a cast or a parenthesised expression.
    fn parenthesised(&mut self) -> Result<Constant> {
        if self.at_type() {
            let ty = self.type_name()?;
            self.expect(")")?;
            let operand = self.unary()?;
            return Ok(Constant { ty: Some(ty), ..operand });
        }
        let inner = self.binary(0)?;
        self.expect(")")?;
        Ok(inner)
    }

    fn primary(&mut self) -> Result<Constant> {
        let expected = self.expected("a constant");
        match self.take().map(|token| token.kind) {
            Some(Kind::Int { value, unsigned }) => Ok(Constant::plain(i128::from(value), unsigned)),
            Some(Kind::Word(name)) => self.named_constant(&name),
            _ => Err(expected),
        }
    }

    fn named_constant(&mut self, name: &str) -> Result<Constant> {
        if let Some((value, tag)) = self.unit().enumerators.get(name) {
            return Ok(Constant { value: *value, ty: Some(Type::Enum(tag.clone())), unsigned: false });
        }
        let body = self.unit().macros.iter().find(|m| m.name == name).map(|m| m.body.clone());
        let Some(body) = body else { return Err(self.error(format!("`{name}` is no constant"))) };
        self.nested(|parser| parser.constant_of(&body))
    }
}

fn apply(operator: &str, a: i128, b: i128) -> Option<i128> {
    let shift = |b: i128| u32::try_from(b).ok().filter(|&bits| bits < 64);
    Some(match operator {
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => i128::from(a == b),
        "!=" => i128::from(a != b),
        "<" => i128::from(a < b),
        ">" => i128::from(a > b),
        "<=" => i128::from(a <= b),
        ">=" => i128::from(a >= b),
        "<<" => a.checked_mul(1 << shift(b)?)?,
        ">>" => a >> shift(b)?,
        "+" => a.checked_add(b)?,
        "-" => a.checked_sub(b)?,
        "*" => a.checked_mul(b)?,
        "/" => a.checked_div(b)?,
        "%" => a.checked_rem(b)?,
        _ => return None,
    })
}

fn negate(operator: &str, operand: Constant) -> Constant {
    let value = match operator {
        "-" => operand.value.wrapping_neg(),
        "~" if operand.unsigned && operand.value <= i128::from(u32::MAX) => {
            !operand.value & i128::from(u32::MAX)
        }
        "~" if operand.unsigned => !operand.value & i128::from(u64::MAX),
        "~" => !operand.value,
        "!" => i128::from(operand.value == 0),
        _ => operand.value,
    };
    Constant { value, ty: None, unsigned: operand.unsigned }
}
