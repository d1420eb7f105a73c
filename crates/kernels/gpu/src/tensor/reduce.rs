//! Reductions along a dimension, and the operations that use them.

use super::kernels::{self, BLOCK, Routine};
use super::shape::Shape;
use super::{Float, Number, Tensor};
use crate::buffer::Buffer;
use crate::error::{Error, Result};

/// Blocks along y and z of a grid.
const MOST_BLOCKS: usize = 65535;

/// Bytes of a row that are worth a block of their own.
const PART_BYTES: usize = 16 << 10;

/// In the order of the kernels' own list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reduction {
    Sum,
    Mean,
    Largest,
    Smallest,
}

/// One element for all along a dimension, which goes.
impl<T: Number> Tensor<T> {
    /// Sum along dimension `axis`; 0 where the dimension is empty.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.sum(0)?.to_vec()?, [5, 7, 9]);
    /// assert_eq!(x.sum(1)?.to_vec()?, [6, 15]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if there is no such dimension.
    pub fn sum(&self, axis: usize) -> Result<Tensor<T>> {
        self.reduce("sum", Reduction::Sum, axis)
    }

    /// Mean along dimension `axis`; for i32 toward zero.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.mean(1)?.to_vec()?, [1.5, 3.5]);
    /// assert!(Tensor::<f32>::zeros(&device, &[2, 0])?.mean(1).is_err()); // of nothing
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if there is no such dimension, or nothing along it.
    pub fn mean(&self, axis: usize) -> Result<Tensor<T>> {
        self.reduce("mean", Reduction::Mean, axis)
    }

    /// Largest element along dimension `axis`; NaN if there is one.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 5, 3, 4], &[2, 2])?;
    /// assert_eq!(x.max(0)?.to_vec()?, [3, 5]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::mean`].
    pub fn max(&self, axis: usize) -> Result<Tensor<T>> {
        self.reduce("max", Reduction::Largest, axis)
    }

    /// Smallest element along dimension `axis`; NaN if there is one.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 5, 3, 4], &[2, 2])?;
    /// assert_eq!(x.min(1)?.to_vec()?, [1, 3]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::mean`].
    pub fn min(&self, axis: usize) -> Result<Tensor<T>> {
        self.reduce("min", Reduction::Smallest, axis)
    }

    /// Sum of all elements, a tensor without dimensions: [`Tensor::item`] fetches it.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(x.sum_all()?.item()?, 10);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn sum_all(&self) -> Result<Tensor<T>> {
        self.reshape(self.len())?.sum(0)
    }

    /// Index of the largest element along dimension `axis`: the first of several, NaN before all
    /// others.
    ///
    /// ```
    /// # use apex_gpu::{Device, Tensor};
    /// # let device = Device::open(0)?;
    /// let scores = Tensor::new(&device, &[0.1f32, 0.7, 0.2, 0.9, 0.0, 0.9], &[2, 3])?;
    /// assert_eq!(scores.argmax(1)?.to_vec()?, [1, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::mean`].
    pub fn argmax(&self, axis: usize) -> Result<Tensor<i32>> {
        self.shape.check_axis("argmax", axis)?;
        self.check_not_empty("argmax", axis)?;
        let rows = self.axis_last(axis)?;
        let sizes = &rows.shape()[..rows.shape().len() - 1];
        let mut out = Tensor::<i32>::unfilled(self.device(), Shape::contiguous("argmax", sizes)?)?;
        let (count, length) = (out.len(), self.shape()[axis]);
        if count == 0 {
            return Ok(out);
        }
        let kernel = self.kernels.get::<T>(Routine::ArgMax)?;
        let launch = kernel.launch([count.min(i32::MAX as usize) as u32, 1, 1], [BLOCK, 1, 1]);
        let launch = launch.arg(count as u64).arg(length as u64).arg(rows.origin());
        // SAFETY: there are `count` rows of `length` elements in order, and as many results.
        unsafe { launch.arg(out.buffer_mut()).launch()? };
        Ok(out)
    }

    fn reduce(&self, name: &'static str, operation: Reduction, axis: usize) -> Result<Tensor<T>> {
        self.shape.check_axis(name, axis)?;
        let mut sizes = self.shape().to_vec();
        let length = sizes.remove(axis);
        if length == 0 && operation == Reduction::Sum {
            return Tensor::zeros(self.device(), &sizes);
        }
        self.check_not_empty(name, axis)?;
        let from = self.contiguous()?;
        let outer: usize = sizes[..axis].iter().product();
        let inner: usize = sizes[axis..].iter().product();
        let mut out = Tensor::unfilled(self.device(), Shape::contiguous(name, &sizes)?)?;
        match (outer * inner, inner) {
            (0, _) => {}
            (_, 1) => from.reduce_rows(operation, outer, length, &mut out)?,
            _ => from.reduce_columns(operation, [outer, length, inner], &mut out)?,
        }
        Ok(out)
    }

    /// Blocks that give all multiprocessors enough to do.
    fn wanted_blocks(&self) -> usize {
        8 * self.device().limits().multiprocessors as usize
    }

    fn reduce_rows(
        &self,
        operation: Reduction,
        rows: usize,
        length: usize,
        out: &mut Tensor<T>,
    ) -> Result<()> {
        let warps = BLOCK as usize / 32;
        if length * size_of::<T>() <= PART_BYTES && rows >= self.wanted_blocks() * warps {
            let kernel = self.kernels.get::<T>(Routine::ReduceShortRows)?;
            let launch =
                kernels::over(kernel, 32 * rows).arg(operation as u32).arg(rows as u64).arg(length as u64);
            // SAFETY: there are `rows * length` elements in order, and `rows` results.
            return unsafe { launch.arg(self.origin()).arg(out.buffer_mut()).launch() };
        }
        // Long rows are taken apart.
        let most = (length * size_of::<T>() / PART_BYTES).clamp(1, 1024);
        let parts = self.wanted_blocks().div_ceil(rows).min(most);
        let mut partial = self.partial(rows, parts)?;
        let along_y = rows.min(MOST_BLOCKS);
        let grid = [parts as u32, along_y as u32, rows.div_ceil(along_y) as u32];
        let kernel = self.kernels.get::<T>(Routine::ReduceRows)?;
        let launch =
            kernel.launch(grid, [BLOCK, 1, 1]).arg(operation as u32).arg(rows as u64).arg(length as u64);
        let launch = launch.arg(self.origin()).arg(&mut partial);
        // SAFETY: there are `rows * length` elements in order, `rows` results, and room for `parts`
        // of each row.
        unsafe { launch.arg(out.buffer_mut()).launch()? };
        self.reduce_parts(operation, [rows, length, 1], parts, &partial, out)
    }

    fn reduce_columns(&self, operation: Reduction, sizes: [usize; 3], out: &mut Tensor<T>) -> Result<()> {
        let [outer, length, inner] = sizes;
        let wide = 16 / size_of::<T>();
        let threads = outer * if inner.is_multiple_of(wide) { inner / wide } else { inner };
        let blocks = threads.div_ceil(BLOCK as usize).min(i32::MAX as usize);
        // A part should be worth its result.
        let parts = self.wanted_blocks().div_ceil(blocks).min(length.div_ceil(64)).min(1024);
        let mut partial = self.partial(outer * inner, parts)?;
        let kernel = self.kernels.get::<T>(Routine::ReduceColumns)?;
        let launch = kernel.launch([blocks as u32, parts as u32, 1], [BLOCK, 1, 1]).arg(operation as u32);
        let launch = launch.arg(outer as u64).arg(length as u64).arg(inner as u64).arg(self.origin());
        // SAFETY: there are `outer * length * inner` elements in order, `outer * inner` results,
        // and room for `parts` of each.
        unsafe { launch.arg(&mut partial).arg(out.buffer_mut()).launch()? };
        self.reduce_parts(operation, sizes, parts, &partial, out)
    }

    /// Allocates the parts of `results` results, if each has several.
    fn partial(&self, results: usize, parts: usize) -> Result<Buffer<T::Sum>> {
        let len = if parts > 1 { results * parts } else { 0 };
        Buffer::uninitialised(self.device(), len, self.kernels.stream())
    }

    fn reduce_parts(
        &self,
        operation: Reduction,
        [outer, length, inner]: [usize; 3],
        parts: usize,
        partial: &Buffer<T::Sum>,
        out: &mut Tensor<T>,
    ) -> Result<()> {
        if parts == 1 {
            return Ok(());
        }
        let kernel = self.kernels.get::<T>(Routine::ReduceParts)?;
        // A block takes 8 rows, or 32 columns.
        let blocks =
            if inner == 1 { outer.div_ceil(BLOCK as usize / 32) } else { (outer * inner).div_ceil(32) };
        let launch = kernel.launch([blocks.min(i32::MAX as usize) as u32, 1, 1], [BLOCK, 1, 1]);
        let launch = launch.arg(operation as u32).arg(outer as u64);
        let launch = launch.arg(length as u64).arg(inner as u64).arg(parts as u32).arg(partial);
        // SAFETY: there are `outer * parts * inner` parts and `outer * inner` results.
        unsafe { launch.arg(out.buffer_mut()).launch() }
    }

    fn check_not_empty(&self, operation: &'static str, axis: usize) -> Result<()> {
        match self.shape()[axis] {
            0 => Err(Error::Shape {
                operation,
                why: format!("{:?} has nothing along dimension {axis}", self.shape()),
            }),
            _ => Ok(()),
        }
    }

    /// The elements in order, with dimension `axis` moved to the end.
    fn axis_last(&self, axis: usize) -> Result<Tensor<T>> {
        let mut moved = self.clone();
        for at in axis + 1..self.shape().len() {
            moved = moved.transpose(at - 1, at)?;
        }
        moved.contiguous()
    }
}

impl<T: Float> Tensor<T> {
    /// `exp(x) / sum of exp` along dimension `axis`, safe against overflow.
    ///
    /// ```
    /// use apex_gpu::{Device, Tensor};
    /// let scores = Tensor::new(&Device::open(0)?, &[0.0f32, 0.0, 1000.0, 999.0], &[2, 2])?;
    /// let rows = scores.softmax(1)?.to_vec()?;
    /// assert_eq!(rows[..2], [0.5, 0.5]);
    /// assert!((rows[2] - 0.7310586).abs() < 1e-6);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if there is no such dimension.
    pub fn softmax(&self, axis: usize) -> Result<Tensor<T>> {
        self.shape.check_axis("softmax", axis)?;
        let rows = self.axis_last(axis)?;
        let mut out = Tensor::unfilled(self.device(), rows.shape.compact())?;
        let length = self.shape()[axis];
        if !out.is_empty() {
            let count = out.len() / length;
            let kernel = self.kernels.get::<T>(Routine::Softmax)?;
            let launch = kernel.launch([count.min(i32::MAX as usize) as u32, 1, 1], [BLOCK, 1, 1]);
            let launch = launch.arg(count as u64).arg(length as u64).arg(rows.origin());
            // SAFETY: both have `count` rows of `length` elements in order.
            unsafe { launch.arg(out.buffer_mut()).launch()? };
        }
        // Back to where it was.
        (axis + 1..self.shape().len()).rev().try_fold(out, |moved, at| moved.transpose(at - 1, at))
    }
}
