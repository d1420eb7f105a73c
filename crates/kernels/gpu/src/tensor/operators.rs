//! `+`, `-`, `*`, `/` and `-x` of tensors, with tensors and with numbers.
//!
//! They return a [`Result`], as candle's do. Every operation of a tensor can fail, if not for a
//! shape then because the device is out of memory or a kernel has gone wrong before, and a program
//! can act on that; ndarray's panic would be the only one of this crate that depends on data. So
//! an expression has a `?` for each operator: `((&a + &b)? * 2.0)?`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use half::{bf16, f16};

use super::{Number, Tensor};
use crate::error::Result;

/// An operator of two tensors, in all combinations of tensors and references to them, and of a
/// tensor and a number.
macro_rules! operators {
    ($($operator:ident::$method:ident, |$tensor:ident, $number:ident| $with_number:expr;)*) => { $(
        impl<T: Number> $operator<&Tensor<T>> for &Tensor<T> {
            type Output = Result<Tensor<T>>;
            fn $method(self, other: &Tensor<T>) -> Result<Tensor<T>> {
                Tensor::$method(self, other)
            }
        }
        impl<T: Number> $operator<Tensor<T>> for &Tensor<T> {
            type Output = Result<Tensor<T>>;
            fn $method(self, other: Tensor<T>) -> Result<Tensor<T>> {
                Tensor::$method(self, &other)
            }
        }
        impl<T: Number> $operator<&Tensor<T>> for Tensor<T> {
            type Output = Result<Tensor<T>>;
            fn $method(self, other: &Tensor<T>) -> Result<Tensor<T>> {
                Tensor::$method(&self, other)
            }
        }
        impl<T: Number> $operator<Tensor<T>> for Tensor<T> {
            type Output = Result<Tensor<T>>;
            fn $method(self, other: Tensor<T>) -> Result<Tensor<T>> {
                Tensor::$method(&self, &other)
            }
        }
        impl<T: Number> $operator<T> for &Tensor<T> {
            type Output = Result<Tensor<T>>;
            fn $method(self, number: T) -> Result<Tensor<T>> {
                let ($tensor, $number) = (self, number);
                $with_number
            }
        }
        impl<T: Number> $operator<T> for Tensor<T> {
            type Output = Result<Tensor<T>>;
            fn $method(self, number: T) -> Result<Tensor<T>> {
                $operator::$method(&self, number)
            }
        }
    )* };
}

operators! {
    Add::add, |tensor, number| tensor.affine(1.0, number.into());
    Sub::sub, |tensor, number| tensor.affine(1.0, -number.into());
    // Adding -0 changes nothing, not even the sign of zeros.
    Mul::mul, |tensor, number| tensor.affine(number.into(), -0.0);
    // A product with the reciprocal would be rounded twice.
    Div::div, |tensor, number| Tensor::div(tensor, &Tensor::full(tensor.device(), number, ())?);
}

/// An operator of a number and a tensor.
macro_rules! numbers_first {
    ($($type:ty),*) => { $(
        numbers_first! { $type:
            Add::add, |number, tensor| tensor.affine(1.0, number.into());
            Sub::sub, |number, tensor| tensor.affine(-1.0, number.into());
            Mul::mul, |number, tensor| tensor.affine(number.into(), -0.0);
            Div::div, |number, tensor| Tensor::full(tensor.device(), number, ())?.div(tensor);
        }
    )* };
    ($type:ty: $($operator:ident::$method:ident, |$number:ident, $tensor:ident| $value:expr;)*) => { $(
        impl $operator<&Tensor<$type>> for $type {
            type Output = Result<Tensor<$type>>;
            fn $method(self, tensor: &Tensor<$type>) -> Result<Tensor<$type>> {
                let ($number, $tensor) = (self, tensor);
                $value
            }
        }
        impl $operator<Tensor<$type>> for $type {
            type Output = Result<Tensor<$type>>;
            fn $method(self, tensor: Tensor<$type>) -> Result<Tensor<$type>> {
                $operator::$method(self, &tensor)
            }
        }
    )* };
}

numbers_first! { f32, f16, bf16, i32 }

impl<T: Number> Neg for &Tensor<T> {
    type Output = Result<Tensor<T>>;
    fn neg(self) -> Result<Tensor<T>> {
        Tensor::neg(self)
    }
}

impl<T: Number> Neg for Tensor<T> {
    type Output = Result<Tensor<T>>;
    fn neg(self) -> Result<Tensor<T>> {
        Tensor::neg(&self)
    }
}
