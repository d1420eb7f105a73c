//! A case program: its PTX, its inputs, and the results that are compared.
//!
//! The kernel is `case(inputs, results, image0, …, map0, …, given)`: addresses of two buffers,
//! handles of texture and surface objects, tensor maps, 16 bytes. Columns lie in the buffers one
//! behind the other, each from a multiple of 16 bytes on.

use crate::image::Image;
use crate::random::Random;
use crate::tensor::Tensor;
use crate::values::Values;
use serde::{Deserialize, Serialize};

/// The name of every kernel.
pub const KERNEL: &str = "case";

/// Byte with which the result buffer is filled beforehand: a cell that nobody writes is seen.
pub const UNWRITTEN: u8 = 0xa5;

/// A program and its launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The form under test, and behind a slash the number of the program among those of the form.
    pub name: String,
    /// The module.
    pub ptx: String,
    /// Blocks of the grid, which has one dimension.
    pub grid: u32,
    /// Threads of a block, which has one dimension.
    pub block: u32,
    /// Columns of the input buffer.
    pub inputs: Vec<Column>,
    /// Columns of the result buffer.
    pub results: Vec<Slot>,
    /// The last parameter, 16 bytes, if the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<[u64; 2]>,
    /// Textures and surfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Tensors, of which the kernel gets maps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<Tensor>,
}

/// A column of the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The content of its cells.
    pub values: Values,
    /// Number of cells.
    pub rows: usize,
}

/// A column of the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// The name of the result, such as `registers` or `guarded`.
    pub name: String,
    /// The content of its cells.
    pub values: Values,
    /// Number of cells.
    pub rows: usize,
    /// The rule by which two drivers agree.
    #[serde(default, skip_serializing_if = "Rule::is_exact")]
    pub rule: Rule,
}

/// The allowed difference between two results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Every bit is equal.
    #[default]
    Exact,
    /// Every bit is equal, except that a NaN equals any NaN: the ISA leaves payloads open.
    AnyNan,
    /// By `relative` times the larger one, plus `absolute`. NaNs and infinities as with
    /// [`Rule::AnyNan`].
    Near {
        /// Twice the relative error that the ISA allows each result.
        relative: f64,
        /// Twice the absolute error that the ISA allows each result.
        absolute: f64,
    },
}

impl Rule {
    fn is_exact(&self) -> bool {
        *self == Rule::Exact
    }
}

/// Returns the starts of columns of these sizes, and the end of the last one.
fn layout(sizes: impl Iterator<Item = usize>) -> (Vec<usize>, usize) {
    let mut end = 0usize;
    let starts = sizes.map(|size| {
        let start = end.next_multiple_of(16);
        end = start + size;
        start
    });
    (starts.collect(), end)
}

impl Case {
    /// The form under test.
    pub fn form(&self) -> &str {
        self.name.rsplit_once('/').map_or(&self.name, |(form, _)| form)
    }

    /// The text that the seeds of its inputs are derived from.
    fn seed(&self) -> u64 {
        Random::named(&self.name).next()
    }

    /// The operand of a row in a column of the input.
    pub fn input(&self, column: usize, row: usize) -> u64 {
        self.inputs[column].values.value(self.seed(), column, row)
    }

    /// The input buffer, not empty.
    pub fn input_bytes(&self) -> Vec<u8> {
        let (starts, end) = layout(self.inputs.iter().map(|column| column.rows * column.values.bytes()));
        let mut bytes = vec![0; end.max(16)];
        let seed = self.seed();
        for (index, (column, start)) in self.inputs.iter().zip(starts).enumerate() {
            let width = column.values.bytes();
            for (row, cell) in bytes[start..].chunks_exact_mut(width).take(column.rows).enumerate() {
                cell.copy_from_slice(&column.values.value(seed, index, row).to_le_bytes()[..width]);
            }
        }
        bytes
    }

    /// The texels of an image, as they lie in memory: its channels one behind the other.
    pub fn texels(&self, image: usize) -> Vec<u8> {
        let Image { values, .. } = self.images[image];
        let column = self.inputs.len() + image;
        (0..self.images[image].values_in_all())
            .flat_map(|row| {
                let value = values.value(self.seed(), column, row).to_le_bytes();
                value.into_iter().take(values.bytes())
            })
            .collect()
    }

    /// Returns the starts of the columns of the results, and the end of the last one.
    pub fn result_layout(&self) -> (Vec<usize>, usize) {
        layout(self.results.iter().map(|slot| slot.rows * slot.values.bytes()))
    }

    /// The cells of each slot in a result buffer; what the buffer lacks reads as 0.
    pub fn result_columns(&self, buffer: &[u8]) -> Vec<Vec<u64>> {
        let cell = |at: usize, width: usize| {
            let bytes = buffer.get(at..at + width).unwrap_or(&[]);
            bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        let (starts, _) = self.result_layout();
        let column = |(slot, start): (&Slot, usize)| {
            let width = slot.values.bytes();
            (0..slot.rows).map(|row| cell(start + row * width, width)).collect()
        };
        self.results.iter().zip(starts).map(column).collect()
    }

    /// Number of results that are compared.
    pub fn results_compared(&self) -> usize {
        self.results.iter().map(|slot| slot.rows).sum()
    }
}
