//! The parameters of a launch, as far as a condition refers to them.

use crate::driver::Parameter;
use crate::parameters::{Buffer, buffer_of};
use crate::record::arguments::Passed;
use crate::tables::push;
use launch_condition::{Checked, MOST_PARAMETER_BYTES};
use std::ptr::copy_nonoverlapping;

/// Most parameters of a kernel.
pub const MOST: usize = 4096;

/// Most parameters that are compared with those of earlier launches.
pub const MOST_WORDS: usize = 11;

/// The parameters of a launch, each in a word.
pub struct Words {
    /// Their values; zeros where there are fewer.
    pub words: [u64; MOST_WORDS],
    /// How many there are.
    pub count: usize,
}

/// The parameters of a function that a condition refers to: their numbers and positions.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    needed: Vec<(usize, Parameter)>,
    /// Bytes that the condition reads.
    bytes: usize,
}

impl Layout {
    /// `None` if the function lacks parameters of the condition, or if there is no memory.
    pub fn of(parameters: &[Parameter], condition: &Checked) -> Option<Layout> {
        let bytes = condition.parameter_bytes();
        let end = |parameter: &Parameter| parameter.offset as usize + parameter.bytes as usize;
        let is_known = parameters.iter().map(end).max().unwrap_or(0) >= bytes;
        let mut needed = Vec::new();
        for (index, &parameter) in parameters.iter().enumerate() {
            let is_needed = (parameter.offset as usize) < bytes;
            // (One that is only read in part may be larger than the buffer.)
            if is_needed && (end(&parameter) > MOST_PARAMETER_BYTES || !push(&mut needed, (index, parameter)))
            {
                return None;
            }
        }
        is_known.then_some(Layout { needed, bytes })
    }

    /// The parameters of a launch in words; `None` if there are too many or too large ones, or the
    /// program gives them in one buffer.
    ///
    /// # Safety
    /// As [`Layout::read`].
    #[inline(always)]
    pub unsafe fn words(&self, passed: Passed) -> Option<Words> {
        let count = self.needed.len();
        if count > MOST_WORDS || !passed.extra.is_null() || passed.parameters.is_null() {
            return None;
        }
        let mut words = [0; MOST_WORDS];
        for (word, &(index, Parameter { bytes, .. })) in words.iter_mut().zip(&self.needed) {
            // SAFETY: by contract; the driver reads as many bytes there.
            unsafe {
                let from = *passed.parameters.add(index);
                *word = match bytes {
                    8 => from.cast::<u64>().read_unaligned(),
                    4 => from.cast::<u32>().read_unaligned().into(),
                    _ => return None,
                };
            }
        }
        Some(Words { words, count })
    }

    /// The parameters of a launch; `None` if the program passes them in a way that is not known.
    ///
    /// # Safety
    /// `passed` is what a launch of a function with this layout passes to the driver.
    #[inline]
    pub unsafe fn read(&self, passed: Passed) -> Option<[u8; MOST_PARAMETER_BYTES]> {
        let mut read = [0; MOST_PARAMETER_BYTES];
        // SAFETY: by contract.
        match unsafe { buffer_of(passed.extra) }? {
            Buffer::At(from, bytes) if bytes >= self.bytes && !from.is_null() => {
                // SAFETY: the program's buffer has so many bytes, and `self.bytes` fit here.
                unsafe { copy_nonoverlapping(from, read.as_mut_ptr(), self.bytes) };
            }
            Buffer::None if !passed.parameters.is_null() || self.needed.is_empty() => {
                for &(index, Parameter { offset, bytes }) in &self.needed {
                    let to = &mut read[offset as usize..];
                    // SAFETY: the program gives an address for each parameter, where the driver
                    // reads as many bytes; they fit here.
                    unsafe {
                        let from = (*passed.parameters.add(index)).cast::<u8>();
                        match bytes {
                            // (The compiler makes these one move each.)
                            8 => copy_nonoverlapping(from, to.as_mut_ptr(), 8),
                            4 => copy_nonoverlapping(from, to.as_mut_ptr(), 4),
                            bytes => copy_nonoverlapping(from, to.as_mut_ptr(), bytes as usize),
                        }
                    }
                }
            }
            _ => return None,
        }
        Some(read)
    }
}
