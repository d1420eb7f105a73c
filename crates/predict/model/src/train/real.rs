//! Numbers that training computes with: single precision to train, double to check gradients
//! against differences.

use crate::math;
use matrixmultiply::{dgemm, sgemm};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// A floating-point number.
pub(super) trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The nearest number to `value`.
    fn of(value: f64) -> Self;

    /// The same number, or the nearest one.
    fn to_f64(self) -> f64;

    /// `1 / (1 + e^-self)`.
    fn logistic(self) -> Self;

    /// `c = a b + beta c`.
    ///
    /// # Panics
    /// When the shapes do not fit each other.
    fn product(a: View<'_, Self>, b: View<'_, Self>, beta: Self, c: &mut [Self]);
}

/// A matrix in a slice, by rows, or by columns where it is `transposed`.
#[derive(Clone, Copy)]
pub(super) struct View<'a, T> {
    pub(super) values: &'a [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    row_step: isize,
    column_step: isize,
}

impl<'a, T> View<'a, T> {
    /// The first `rows` rows of a matrix of `columns` columns.
    pub(super) fn new(values: &'a [T], rows: usize, columns: usize) -> View<'a, T> {
        assert!(values.len() >= rows * columns, "the slice holds the matrix");
        View { values, rows, columns, row_step: columns as isize, column_step: 1 }
    }

    /// The same matrix with rows and columns exchanged.
    pub(super) fn transposed(self) -> View<'a, T> {
        View {
            values: self.values,
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
        }
    }
}

macro_rules! real {
    ($type:ty, $product:ident, $logistic:expr) => {
        impl Real for $type {
            fn of(value: f64) -> Self {
                value as $type
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            fn logistic(self) -> Self {
                $logistic(self)
            }

            fn product(a: View<'_, Self>, b: View<'_, Self>, beta: Self, c: &mut [Self]) {
                assert_eq!(a.columns, b.rows, "the factors fit each other");
                assert!(c.len() >= a.rows * b.columns, "the product fits its place");
                // SAFETY: a view's steps stay inside of its slice (`View::new`), as the product's
                // do (above); the product's place is borrowed for this call alone.
                unsafe {
                    $product(
                        a.rows,
                        a.columns,
                        b.columns,
                        1.0,
                        a.values.as_ptr(),
                        a.row_step,
                        a.column_step,
                        b.values.as_ptr(),
                        b.row_step,
                        b.column_step,
                        beta,
                        c.as_mut_ptr(),
                        b.columns as isize,
                        1,
                    );
                }
            }
        }
    };
}

real!(f32, sgemm, math::logistic);
real!(f64, dgemm, |x: f64| 1.0 / (1.0 + (-x).exp()));
