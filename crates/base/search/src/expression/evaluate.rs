//! The values of expressions, as Python computes them.

use super::parser::{Comparison, Tree};
use super::{Fault, MOST_ELEMENTS};
use crate::Value;
use std::cmp::Ordering;

/// Steps of an evaluation at most.
const MOST_STEPS: usize = 1 << 20;

/// The outcome of a step.
#[derive(Clone)]
enum Found {
    One(Value),
    List(Vec<Value>),
}

type Evaluated<T> = Result<T, Fault>;

fn fault<T>(what: impl Into<String>) -> Evaluated<T> {
    Err(Fault { what: what.into(), column: 0 })
}

/// Whether an expression is true.
pub fn truth(tree: &Tree, of: &dyn Fn(usize) -> Value) -> Evaluated<bool> {
    Evaluation::new(of).truth(tree)
}

/// The value of an expression.
pub fn value(tree: &Tree, of: &dyn Fn(usize) -> Value) -> Evaluated<Value> {
    Evaluation::new(of).value(tree)
}

/// The values of an expression that is a list.
pub fn list(tree: &Tree) -> Evaluated<Vec<Value>> {
    Evaluation::new(&|_| Value::Int(0)).list(tree)
}

struct Evaluation<'o> {
    of: &'o dyn Fn(usize) -> Value,
    loops: Vec<Value>,
    steps: usize,
}

impl<'o> Evaluation<'o> {
    fn new(of: &'o dyn Fn(usize) -> Value) -> Self {
        Self { of, loops: Vec::new(), steps: 0 }
    }

    fn evaluate(&mut self, tree: &Tree) -> Evaluated<Found> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return fault(format!("more than {MOST_STEPS} steps"));
        }
        let one = match tree {
            Tree::Value(value) => value.clone(),
            Tree::Parameter(parameter) => (self.of)(*parameter),
            Tree::Loop(depth) => self.loops[*depth].clone(),
            Tree::Not(inner) => Value::Bool(!self.truth(inner)?),
            Tree::Negated(inner) => negated(&self.value(inner)?)?,
            Tree::Inverted(inner) => Value::Int(!self.int(inner)?),
            Tree::Positive(inner) => positive(self.value(inner)?)?,
            Tree::And(all) => return self.until(all, false),
            Tree::Or(all) => return self.until(all, true),
            Tree::Arithmetic(sign, both) => return self.arithmetic(sign, &both.0, &both.1),
            Tree::Compared(first, rest) => Value::Bool(self.compared(first, rest)?),
            Tree::Either(all) => {
                return if self.truth(&all.0)? { self.evaluate(&all.1) } else { self.evaluate(&all.2) };
            }
            Tree::Call(function, arguments) => self.call(function, arguments)?,
            Tree::Range(arguments) => return self.range(arguments),
            Tree::List(elements) => {
                let all = elements.iter().map(|element| self.value(element));
                return Ok(Found::List(all.collect::<Evaluated<_>>()?));
            }
            Tree::Each(each) => return self.each(&each.0, &each.1, each.2.as_ref()),
        };
        Ok(Found::One(one))
    }

    fn value(&mut self, tree: &Tree) -> Evaluated<Value> {
        match self.evaluate(tree)? {
            Found::One(value) => Ok(value),
            Found::List(_) => fault("a list stands where a value should"),
        }
    }

    fn list(&mut self, tree: &Tree) -> Evaluated<Vec<Value>> {
        match self.evaluate(tree)? {
            Found::List(list) => Ok(list),
            Found::One(value) => fault(format!("`{value}` stands where a list should")),
        }
    }

    fn int(&mut self, tree: &Tree) -> Evaluated<i64> {
        let value = self.value(tree)?;
        value.int().map_or_else(|| fault(format!("`{value}` stands where an integer should")), Ok)
    }

    fn truth(&mut self, tree: &Tree) -> Evaluated<bool> {
        Ok(is_true(&self.evaluate(tree)?))
    }

    /// The first result whose truth is `wanted`, otherwise the last.
    fn until(&mut self, all: &[Tree], wanted: bool) -> Evaluated<Found> {
        let (last, others) = all.split_last().expect("an operator has operands");
        for tree in others {
            let found = self.evaluate(tree)?;
            if is_true(&found) == wanted {
                return Ok(found);
            }
        }
        self.evaluate(last)
    }

    fn compared(&mut self, first: &Tree, rest: &[(Comparison, Tree)]) -> Evaluated<bool> {
        let mut left = self.evaluate(first)?;
        for (comparison, tree) in rest {
            let right = self.evaluate(tree)?;
            if !compare(&left, *comparison, &right)? {
                return Ok(false);
            }
            left = right;
        }
        Ok(true)
    }

    fn arithmetic(&mut self, sign: &str, left: &Tree, right: &Tree) -> Evaluated<Found> {
        match (self.evaluate(left)?, self.evaluate(right)?) {
            (Found::One(left), Found::One(right)) => Ok(Found::One(arithmetic(sign, &left, &right)?)),
            (Found::List(mut left), Found::List(right)) if sign == "+" => {
                left.extend(right);
                few(left)
            }
            _ => fault(format!("`{sign}` does not take these lists")),
        }
    }

    fn range(&mut self, arguments: &[Tree]) -> Evaluated<Found> {
        let bounds = arguments.iter().map(|argument| self.int(argument)).collect::<Evaluated<Vec<_>>>()?;
        let (from, to, step) = match bounds[..] {
            [to] => (0, to, 1),
            [from, to] => (from, to, 1),
            [from, to, step] if step != 0 => (from, to, step),
            _ => return fault("`range` takes one to three integers, the third of which is not 0"),
        };
        let mut all = Vec::new();
        let mut next = Some(from);
        while let Some(value) = next.filter(|&value| if step > 0 { value < to } else { value > to }) {
            all.push(Value::Int(value));
            if all.len() > MOST_ELEMENTS {
                break;
            }
            next = value.checked_add(step);
        }
        few(all)
    }

    fn each(&mut self, element: &Tree, list: &Tree, condition: Option<&Tree>) -> Evaluated<Found> {
        let mut all = Vec::new();
        for value in self.list(list)? {
            self.loops.push(value);
            if condition.map_or(Ok(true), |condition| self.truth(condition))? {
                all.push(self.value(element)?);
            }
            self.loops.pop();
        }
        few(all)
    }

    fn call(&mut self, function: &str, arguments: &[Tree]) -> Evaluated<Value> {
        if function == "len" && arguments.len() == 1 {
            return Ok(Value::Int(match self.evaluate(&arguments[0])? {
                Found::List(list) => list.len() as i64,
                Found::One(Value::Text(text)) => text.chars().count() as i64,
                Found::One(value) => return fault(format!("`{value}` has no length")),
            }));
        }
        let values = match arguments {
            [only] if matches!(function, "min" | "max") => self.list(only)?,
            all => all.iter().map(|argument| self.value(argument)).collect::<Evaluated<Vec<_>>>()?,
        };
        call(function, values)
    }
}

/// A list, if it is not too long.
fn few(list: Vec<Value>) -> Evaluated<Found> {
    match list.len() > MOST_ELEMENTS {
        true => fault(format!("a list has more than {MOST_ELEMENTS} elements")),
        false => Ok(Found::List(list)),
    }
}

fn is_true(result: &Found) -> bool {
    match result {
        Found::One(value) => value.is_true(),
        Found::List(list) => !list.is_empty(),
    }
}

fn compare(left: &Found, comparison: Comparison, right: &Found) -> Evaluated<bool> {
    let (left, right) = match (left, right) {
        (Found::One(left), Found::List(list)) if comparison == Comparison::In => {
            return Ok(list.contains(left));
        }
        (Found::One(left), Found::List(list)) if comparison == Comparison::NotIn => {
            return Ok(!list.contains(left));
        }
        (Found::One(left), Found::One(right)) => (left, right),
        _ => return fault("lists are compared by `in` and `not in` alone"),
    };
    let order = left.order(right);
    Ok(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::Different => order != Some(Ordering::Equal),
        Comparison::In | Comparison::NotIn => return fault(format!("`in` takes a list, not `{right}`")),
        ordered => {
            let Some(order) = order else { return fault(format!("`{left}` and `{right}` have no order")) };
            match ordered {
                Comparison::Less => order.is_lt(),
                Comparison::AtMost => order.is_le(),
                Comparison::More => order.is_gt(),
                _ => order.is_ge(),
            }
        }
    })
}

/// An integer, if it has 63 bits.
fn int(value: Option<i64>) -> Evaluated<Value> {
    value.map_or_else(|| fault("an integer goes beyond 63 bits"), |value| Ok(Value::Int(value)))
}

/// A finite number.
fn float(value: f64) -> Evaluated<Value> {
    match value.is_finite() {
        true => Ok(Value::Float(value)),
        false => fault("a number is beyond what a float can hold, or undefined"),
    }
}

fn number(value: &Value) -> Evaluated<f64> {
    value.number().map_or_else(|| fault(format!("`{value}` stands where a number should")), Ok)
}

fn negated(value: &Value) -> Evaluated<Value> {
    match value.int() {
        Some(value) => int(value.checked_neg()),
        None => float(-number(value)?),
    }
}

fn positive(value: Value) -> Evaluated<Value> {
    match value.int() {
        Some(value) => Ok(Value::Int(value)),
        None => float(number(&value)?),
    }
}

fn arithmetic(sign: &str, left: &Value, right: &Value) -> Evaluated<Value> {
    if matches!(sign, "&" | "|" | "^" | "<<" | ">>") {
        return bitwise(sign, left, right);
    }
    match (left.int(), right.int()) {
        (Some(left), Some(right)) if sign != "/" => of_ints(sign, left, right),
        _ => of_floats(sign, left, right),
    }
}

fn bitwise(sign: &str, left: &Value, right: &Value) -> Evaluated<Value> {
    let (Some(a), Some(b)) = (left.int(), right.int()) else {
        return fault(format!("`{sign}` takes integers"));
    };
    let are_bools = matches!((left, right), (Value::Bool(_), Value::Bool(_)));
    let truth_or = |value: i64| if are_bools { Value::Bool(value != 0) } else { Value::Int(value) };
    match sign {
        "&" => Ok(truth_or(a & b)),
        "|" => Ok(truth_or(a | b)),
        "^" => Ok(truth_or(a ^ b)),
        _ if b < 0 => fault("a shift by a negative number"),
        "<<" if a == 0 => Ok(Value::Int(0)),
        "<<" => int((b < 63).then(|| a.checked_mul(1 << b)).flatten()),
        _ => Ok(Value::Int(a >> b.min(63))),
    }
}

fn of_ints(sign: &str, left: i64, right: i64) -> Evaluated<Value> {
    match sign {
        "+" => int(left.checked_add(right)),
        "-" => int(left.checked_sub(right)),
        "*" => int(left.checked_mul(right)),
        "//" | "%" if right == 0 => fault("division by zero"),
        "//" => int(floor_divided(left, right)),
        "%" => int(left.checked_rem(right).map(|rest| match rest != 0 && (rest < 0) != (right < 0) {
            true => rest + right,
            false => rest,
        })),
        _ if right >= 0 => int(u32::try_from(right).ok().and_then(|right| left.checked_pow(right))),
        _ if left == 0 => fault("zero to a negative power"),
        _ => float((left as f64).powf(right as f64)),
    }
}

fn floor_divided(left: i64, right: i64) -> Option<i64> {
    let quotient = left.checked_div(right)?;
    let is_inexact = left % right != 0;
    Some(quotient - i64::from(is_inexact && (left < 0) != (right < 0)))
}

fn of_floats(sign: &str, left: &Value, right: &Value) -> Evaluated<Value> {
    if let (Value::Text(left), Value::Text(right), "+") = (left, right, sign) {
        return Ok(Value::text(&format!("{left}{right}")));
    }
    let (left, right) = (number(left)?, number(right)?);
    if matches!(sign, "/" | "//" | "%") && right == 0.0 {
        return fault("division by zero");
    }
    float(match sign {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        "//" => floor_and_rest(left, right).0,
        "%" => floor_and_rest(left, right).1,
        _ => left.powf(right),
    })
}

/// The quotient, rounded down, and the rest, which has the divisor's sign.
fn floor_and_rest(left: f64, right: f64) -> (f64, f64) {
    let mut rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest != 0.0 && (rest < 0.0) != (right < 0.0) {
        rest += right;
        quotient -= 1.0;
    }
    (quotient.round(), rest)
}

fn call(function: &str, values: Vec<Value>) -> Evaluated<Value> {
    match (function, &values[..]) {
        ("min", [_, ..]) => least(values, Ordering::Less),
        ("max", [_, ..]) => least(values, Ordering::Greater),
        ("abs", [value]) if value.number().is_some_and(|value| value < 0.0) => negated(value),
        ("abs", [value]) => positive(value.clone()),
        ("bool", [value]) => Ok(Value::Bool(value.is_true())),
        ("float", [value]) => float(number(value)?),
        ("int", [value]) => whole(value, f64::trunc),
        ("round", [value]) => whole(value, f64::round_ties_even),
        ("math.ceil", [value]) => whole(value, f64::ceil),
        ("math.floor", [value]) => whole(value, f64::floor),
        ("math.log2", [value]) => float(number(value)?.log2()),
        ("math.sqrt", [value]) => float(number(value)?.sqrt()),
        _ => fault(format!("`{function}` does not take {} values", values.len())),
    }
}

fn whole(value: &Value, round: fn(f64) -> f64) -> Evaluated<Value> {
    if let Some(value) = value.int() {
        return Ok(Value::Int(value));
    }
    let rounded = round(number(value)?);
    int((rounded.abs() < 9.0e18).then_some(rounded as i64))
}

/// The first of the values before which none lies in this order.
fn least(values: Vec<Value>, wanted: Ordering) -> Evaluated<Value> {
    let mut all = values.into_iter();
    let mut found = all.next().expect("there is a value");
    for value in all {
        match value.order(&found) {
            Some(order) if order == wanted => found = value,
            Some(_) => {}
            None => return fault(format!("`{value}` and `{found}` have no order")),
        }
    }
    Ok(found)
}
