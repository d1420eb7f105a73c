//! Values of parameters, which compare as Python's do: `True` equals `1`, which equals `1.0`.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A value of a parameter.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A finite number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(Arc<str>),
}

impl Value {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// The number that it is, if it is one; truth values are 0 and 1.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::Int(int) => Some(int as f64),
            Self::Float(float) => Some(float),
            Self::Bool(is) => Some(f64::from(u8::from(is))),
            Self::Text(_) => None,
        }
    }

    /// Whether it counts as true: numbers but 0, and texts that are not empty.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            number => number.number() != Some(0.0),
        }
    }

    /// The integer that it is, if it is one; truth values are 0 and 1.
    pub(crate) fn int(&self) -> Option<i64> {
        match *self {
            Self::Int(int) => Some(int),
            Self::Bool(is) => Some(i64::from(is)),
            _ => None,
        }
    }

    /// The order of two numbers or of two texts.
    pub(crate) fn order(&self, other: &Self) -> Option<Ordering> {
        if let (Some(left), Some(right)) = (self.int(), other.int()) {
            return Some(left.cmp(&right));
        }
        match (self, other) {
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Some(Ordering::Equal)
    }
}

/// As programs take it: truth values are `1` and `0`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(int) => write!(f, "{int}"),
            Self::Float(float) => write!(f, "{float:?}"),
            Self::Bool(is) => write!(f, "{}", u8::from(*is)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

macro_rules! value_of {
    ($($from:ty => $as:expr),*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                $as(value)
            }
        }
    )*};
}

value_of!(
    i64 => Value::Int,
    i32 => |value| Value::Int(i64::from(value)),
    u32 => |value| Value::Int(i64::from(value)),
    f64 => Value::Float,
    bool => Value::Bool,
    &str => Value::text
);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(int) => to.serialize_i64(*int),
            Self::Float(float) => to.serialize_f64(*float),
            Self::Bool(is) => to.serialize_bool(*is),
            Self::Text(text) => to.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OfJson)
    }
}

struct OfJson;

impl Visitor<'_> for OfJson {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, true or false")
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Value, E> {
        Ok(Value::Bool(is))
    }

    fn visit_i64<E: Error>(self, int: i64) -> Result<Value, E> {
        Ok(Value::Int(int))
    }

    fn visit_u64<E: Error>(self, int: u64) -> Result<Value, E> {
        let int = i64::try_from(int).map_err(|_| E::custom("an integer is beyond 63 bits"))?;
        Ok(Value::Int(int))
    }

    fn visit_f64<E: Error>(self, float: f64) -> Result<Value, E> {
        Ok(Value::Float(float))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::text(text))
    }
}
