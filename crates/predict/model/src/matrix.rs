//! Rows of numbers, all of one length: examples, features, targets, predictions.

use crate::Error;

/// A matrix in row-major order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    /// No rows yet, of `columns` numbers each.
    pub fn empty(columns: usize) -> Matrix {
        Matrix { columns, values: Vec::new() }
    }

    /// `rows` rows of zeros.
    pub fn zeros(rows: usize, columns: usize) -> Matrix {
        Matrix { columns, values: vec![0.0; rows * columns] }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Length`] when `row` has not as many numbers as the matrix has columns.
    pub fn push(&mut self, row: &[f32]) -> Result<(), Error> {
        Error::check_length("a row", self.columns, row.len())?;
        self.values.extend_from_slice(row);
        Ok(())
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Returns the number of values in each row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// One row.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// One row, to be changed.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.columns..][..self.columns]
    }

    /// All rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.columns.max(1))
    }

    /// One column, from the first row to the last.
    pub fn column(&self, column: usize) -> impl Iterator<Item = f32> {
        self.iter().map(move |row| row[column])
    }

    /// The rows with these numbers, in this order.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, rows: &[usize]) -> Matrix {
        let values = rows.iter().flat_map(|&row| self.row(row)).copied().collect();
        Matrix { columns: self.columns, values }
    }
}
