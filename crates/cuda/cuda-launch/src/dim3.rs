//! Three dimensions: CUDA's `dim3`.

use std::fmt;

/// Blocks of a grid, threads of a block or blocks of a cluster along x, y and z.
///
/// Any number is allowed in each dimension, 0 too; what a device can launch is for
/// [`LaunchConfig::exceeded_limit`](crate::LaunchConfig::exceeded_limit) to say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "[u32; 3]", into = "[u32; 3]"))]
#[repr(C)]
pub struct Dim3 {
    /// Along x.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl Dim3 {
    /// One in each dimension.
    pub const ONE: Self = Self::new(1, 1, 1);

    /// Zero in each dimension: the cluster of a launch without clusters.
    pub const ZERO: Self = Self::new(0, 0, 0);

    /// These numbers along x, y and z.
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        Self { x, y, z }
    }

    /// The numbers along x, y and z.
    pub const fn to_array(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }

    /// The product of the dimensions, exact up to [`u64::MAX`]: three numbers of 32 bits can make
    /// 96.
    pub const fn count(self) -> u64 {
        (self.x as u64 * self.y as u64).saturating_mul(self.z as u64)
    }

    /// Whether a dimension is 0, so that there is nothing.
    pub const fn is_empty(self) -> bool {
        self.x == 0 || self.y == 0 || self.z == 0
    }

    /// Whether y and z are 1.
    pub const fn is_one_dimensional(self) -> bool {
        self.y == 1 && self.z == 1
    }

    /// Each dimension through a function.
    pub fn map(self, each: impl FnMut(u32) -> u32) -> Self {
        self.to_array().map(each).into()
    }
}

/// One in each dimension, as CUDA's `dim3` begins.
impl Default for Dim3 {
    fn default() -> Self {
        Self::ONE
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}

/// Two dimensions; z is 1.
impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

/// One dimension; y and z are 1.
impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<Dim3> for [u32; 3] {
    fn from(dim3: Dim3) -> Self {
        dim3.to_array()
    }
}

impl From<Dim3> for (u32, u32, u32) {
    fn from(Dim3 { x, y, z }: Dim3) -> Self {
        (x, y, z)
    }
}

/// `(16, 16, 1)`.
impl fmt::Display for Dim3 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "({}, {}, {})", self.x, self.y, self.z)
    }
}

/// `[16, 16, 1]`: a launch in an assertion's message takes one line.
impl fmt::Debug for Dim3 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "[{}, {}, {}]", self.x, self.y, self.z)
    }
}
