//! Shapes: the element of a buffer that an index names.
//!
//! Invariant: every index within the sizes names an element within the buffer. Every
//! constructor keeps it.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use smallvec::SmallVec;

use crate::error::{Error, Result};

/// Most dimensions of a tensor: what the kernels take.
pub(crate) const MAX_RANK: usize = 6;

type Dimensions<N> = SmallVec<[N; MAX_RANK]>;

/// Sizes of a tensor's dimensions, row-major: the last is the one whose elements lie next to each
/// other. Made from a number, a tuple, an array or a slice.
///
/// ```
/// # use apex_gpu::{Device, Tensor};
/// # let device = Device::open(0)?;
/// let rows: Vec<f32> = (0..6).map(|i| i as f32).collect();
/// let vector = Tensor::new(&device, &rows, 6)?;
/// let matrix = Tensor::new(&device, &rows, (2, 3))?;
/// let like_it = Tensor::<f32>::zeros(&device, matrix.shape())?;
/// let scalar = Tensor::full(&device, 1.5f32, ())?;
/// assert_eq!([vector.shape().len(), like_it.shape().len(), scalar.shape().len()], [1, 2, 0]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents(SmallVec<[usize; MAX_RANK]>);

impl From<()> for Extents {
    fn from((): ()) -> Extents {
        Extents(SmallVec::new())
    }
}

impl From<usize> for Extents {
    fn from(len: usize) -> Extents {
        Extents(SmallVec::from_slice(&[len]))
    }
}

impl From<&[usize]> for Extents {
    fn from(sizes: &[usize]) -> Extents {
        Extents(SmallVec::from_slice(sizes))
    }
}

impl From<&Vec<usize>> for Extents {
    fn from(sizes: &Vec<usize>) -> Extents {
        Extents(SmallVec::from_slice(sizes))
    }
}

impl<const RANK: usize> From<[usize; RANK]> for Extents {
    fn from(sizes: [usize; RANK]) -> Extents {
        Extents(SmallVec::from_slice(&sizes))
    }
}

impl<const RANK: usize> From<&[usize; RANK]> for Extents {
    fn from(sizes: &[usize; RANK]) -> Extents {
        Extents(SmallVec::from_slice(sizes))
    }
}

/// For example, `extents_of_tuples! { (a usize, b usize) }`.
macro_rules! extents_of_tuples {
    ($(($($name:ident $type:ty),*))*) => { $(
        impl From<($($type),*)> for Extents {
            fn from(($($name),*): ($($type),*)) -> Extents {
                Extents::from([$($name),*])
            }
        }
    )* };
}

extents_of_tuples! {
    (a usize, b usize)
    (a usize, b usize, c usize)
    (a usize, b usize, c usize, d usize)
    (a usize, b usize, c usize, d usize, e usize)
    (a usize, b usize, c usize, d usize, e usize, f usize)
}

impl Extents {
    pub(crate) fn sizes(&self) -> &[usize] {
        &self.0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    sizes: Dimensions<usize>,
    strides: Dimensions<isize>,
    offset: usize,
}

/// The layout for kernels: sizes, and the strides of one or two tensors of that shape.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Layout {
    rank: u32,
    unused: u32,
    sizes: [u64; MAX_RANK],
    strides: [[i64; MAX_RANK]; 2],
}

impl Shape {
    /// The row-major shape.
    pub(crate) fn contiguous(operation: &'static str, sizes: &[usize]) -> Result<Shape> {
        let refused = |why: String| Error::Shape { operation, why };
        if sizes.len() > MAX_RANK {
            return Err(refused(format!("{sizes:?} has more than {MAX_RANK} dimensions")));
        }
        let mut next = 1isize;
        let mut strides: Dimensions<isize> = SmallVec::from_elem(0, sizes.len());
        for (stride, &size) in strides.iter_mut().zip(sizes).rev() {
            *stride = next;
            let after = isize::try_from(size.max(1)).ok().and_then(|size| next.checked_mul(size));
            next = after.ok_or_else(|| refused(format!("{sizes:?} has too many elements")))?;
        }
        Ok(Shape { sizes: sizes.into(), strides, offset: 0 })
    }

    pub(crate) fn starting_at(mut self, offset: usize) -> Shape {
        self.offset = offset;
        self
    }

    pub(crate) fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn rank(&self) -> usize {
        self.sizes.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// A row-major shape of the same sizes.
    pub(crate) fn compact(&self) -> Shape {
        Shape::contiguous("contiguous", &self.sizes).expect("the sizes made a shape before")
    }

    /// Whether elements lie in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size as isize;
            fits
        }) || self.len() == 0
    }

    /// Checks that there is a dimension `axis`.
    pub(crate) fn check_axis(&self, operation: &'static str, axis: usize) -> Result<()> {
        match axis < self.rank() {
            true => Ok(()),
            false => {
                let why = format!("{:?} has no dimension {axis} (they count from 0)", self.sizes());
                Err(Error::Shape { operation, why })
            }
        }
    }

    pub(crate) fn transposed(&self, one: usize, other: usize) -> Result<Shape> {
        self.check_axis("transpose", one)?;
        self.check_axis("transpose", other)?;
        let mut shape = self.clone();
        shape.sizes.swap(one, other);
        shape.strides.swap(one, other);
        Ok(shape)
    }

    pub(crate) fn sliced(&self, axis: usize, range: Range<usize>) -> Result<Shape> {
        self.check_axis("slice", axis)?;
        if range.start > range.end || range.end > self.sizes[axis] {
            let why = format!("dimension {axis} of {:?} has no indices {range:?}", self.sizes());
            return Err(Error::Shape { operation: "slice", why });
        }
        let mut shape = self.clone();
        shape.sizes[axis] = range.len();
        if shape.len() > 0 {
            // No stride is negative, and the first element of a slice that has some lies within the
            // buffer.
            shape.offset += range.start * self.strides[axis] as usize;
        }
        Ok(shape)
    }

    /// As `sizes`: dimensions of size 1 repeat, missing ones before the first are added.
    pub(crate) fn broadcast(&self, operation: &'static str, sizes: &[usize]) -> Result<Shape> {
        let wide = Shape::contiguous(operation, sizes)?;
        let refused = || {
            let why = format!(
                "{:?} cannot be repeated to {sizes:?}: only dimensions of size 1 repeat",
                self.sizes()
            );
            Error::Shape { operation, why }
        };
        let added = wide.rank().checked_sub(self.rank()).ok_or_else(refused)?;
        let mut shape =
            Shape { strides: SmallVec::from_elem(0, wide.rank()), sizes: wide.sizes, offset: self.offset };
        for axis in 0..self.rank() {
            match (self.sizes[axis], shape.sizes[added + axis]) {
                (one, same) if one == same => shape.strides[added + axis] = self.strides[axis],
                (1, _) => {}
                _ => return Err(refused()),
            }
        }
        Ok(shape)
    }

    /// The sizes to which both repeat.
    pub(crate) fn common(&self, other: &Shape, operation: &'static str) -> Result<Dimensions<usize>> {
        let rank = self.rank().max(other.rank());
        let size = |shape: &Shape, axis: usize| {
            (axis + shape.rank()).checked_sub(rank).map_or(1, |at| shape.sizes[at])
        };
        (0..rank)
            .map(|axis| match (size(self, axis), size(other, axis)) {
                (one, same) if one == same => Ok(one),
                (1, size) | (size, 1) => Ok(size),
                _ => Err(Error::Shape {
                    operation,
                    why: format!(
                        "{:?} and {:?} do not repeat to a common shape",
                        self.sizes(),
                        other.sizes()
                    ),
                }),
            })
            .collect()
    }

    /// For kernels: this shape, and the strides of `other`, which has the same sizes. Dimensions
    /// that can be are merged.
    pub(crate) fn layout(&self, other: Option<&Shape>) -> Layout {
        let mut layout = Layout::zeroed();
        let strides_of = |axis: usize| [self.strides[axis], other.map_or(0, |other| other.strides[axis])];
        for axis in 0..self.rank() {
            let (size, strides) = (self.sizes[axis], strides_of(axis).map(|stride| stride as i64));
            if size == 1 {
                continue;
            }
            let last = (layout.rank as usize).wrapping_sub(1);
            let continues =
                layout.rank > 0 && (0..2).all(|of| layout.strides[of][last] == strides[of] * size as i64);
            let at = if continues { last } else { layout.rank as usize };
            layout.sizes[at] = if continues { layout.sizes[at] * size as u64 } else { size as u64 };
            (0..2).for_each(|of| layout.strides[of][at] = strides[of]);
            layout.rank = at as u32 + 1;
        }
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sizes: &[usize]) -> Shape {
        Shape::contiguous("test", sizes).unwrap()
    }

    #[test]
    fn strides_are_row_major() {
        assert_eq!(shape(&[2, 3, 4]).strides(), [12, 4, 1]);
        assert_eq!(shape(&[]).len(), 1);
        assert_eq!(shape(&[3, 0]).len(), 0);
        assert!(Shape::contiguous("test", &[usize::MAX, 2]).is_err());
        assert!(Shape::contiguous("test", &[1; 7]).is_err());
    }

    #[test]
    fn views_know_whether_they_are_in_order() {
        let whole = shape(&[4, 6]);
        assert!(whole.is_contiguous());
        assert!(!whole.transposed(0, 1).unwrap().is_contiguous());
        let rows = whole.sliced(0, 1..3).unwrap();
        assert!(rows.is_contiguous());
        assert_eq!(rows.offset(), 6);
        assert!(!whole.sliced(1, 1..3).unwrap().is_contiguous());
        assert!(!shape(&[1, 6]).broadcast("test", &[4, 6]).unwrap().is_contiguous());
        assert!(whole.sliced(0, 2..2).unwrap().is_contiguous(), "nothing is in order");
    }

    #[test]
    fn an_empty_slice_at_the_end_starts_within() {
        let empty = shape(&[4, 6]).sliced(0, 4..4).unwrap();
        assert_eq!((empty.len(), empty.offset()), (0, 0));
    }

    #[test]
    fn dimensions_that_can_be_are_merged() {
        let layout = shape(&[2, 3, 4]).layout(None);
        assert_eq!((layout.rank, layout.sizes[0], layout.strides[0][0]), (1, 24, 1));
        let layout = shape(&[2, 3, 4]).transposed(0, 1).unwrap().layout(None);
        assert_eq!((layout.rank, &layout.sizes[..3]), (3, &[3, 2, 4][..]));
        let bias = shape(&[4]).broadcast("test", &[2, 3, 4]).unwrap();
        let layout = shape(&[2, 3, 4]).layout(Some(&bias));
        assert_eq!((layout.rank, &layout.sizes[..2]), (2, &[6, 4][..]));
        assert_eq!((&layout.strides[0][..2], &layout.strides[1][..2]), (&[4, 1][..], &[0, 1][..]));
    }

    #[test]
    fn common_sizes() {
        let of =
            |a: &[usize], b: &[usize]| shape(a).common(&shape(b), "test").map(|sizes| sizes.to_vec()).ok();
        assert_eq!(of(&[2, 3], &[3]), Some(vec![2, 3]));
        assert_eq!(of(&[4, 1, 3], &[5, 1]), Some(vec![4, 5, 3]));
        assert_eq!(of(&[2], &[3]), None);
        assert_eq!(of(&[0], &[1]), Some(vec![0]));
    }
}
