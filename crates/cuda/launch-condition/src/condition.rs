//! The condition of a proof, as a proof states it and as a profile stores it.

/// A number that is known at the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Term {
    /// A parameter, or an integer inside of one.
    Parameter {
        /// Bytes from the beginning of the parameter space.
        offset: u32,
        /// Its size: 1, 2, 4 or 8 bytes.
        bytes: u8,
        /// Whether it is sign-extended.
        signed: bool,
    },
    /// The number of threads along an axis (0 to 2), grid times block, of the launch that the
    /// program asks for.
    Threads(u8),
}

/// A factor times some terms; without terms, the factor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Product {
    /// The constant factor.
    pub factor: i64,
    /// At most five terms.
    pub terms: Vec<Term>,
}

/// A sum of products; without products, 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Sum(pub Vec<Product>);

impl Sum {
    /// A constant.
    pub fn constant(factor: i64) -> Self {
        Self(vec![Product { factor, terms: Vec::new() }])
    }

    /// A term times a factor.
    pub fn of(factor: i64, term: Term) -> Self {
        Self(vec![Product { factor, terms: vec![term] }])
    }

    /// The sum with another one.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// A guard: threads whose index along the axis is not below `limit` do nothing. The limit is at
/// most the number of threads that the program asks for, so that additional threads do nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bound {
    /// The axis, 0 to 2.
    pub axis: u8,
    /// The first index that does nothing.
    pub limit: Sum,
}

/// Memory that a kernel accesses in one launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Region {
    /// The first address.
    pub start: Sum,
    /// Bytes from there, none if not above 0; or the whole allocation around the first address, if
    /// the code does not tell.
    pub bytes: Option<Sum>,
}

/// Two regions that do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Apart {
    /// Index of the one in [`Condition::regions`].
    pub first: u8,
    /// Index of the other one.
    pub second: u8,
    /// Whether they may also begin at the same address: each thread accesses only its own element
    /// of both.
    pub or_same: bool,
}

/// What must hold of a launch that the program asks for, so that it may be made in other blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Condition {
    /// The axes along which the number of threads must stay what it is.
    pub same_threads: [bool; 3],
    /// The guards. One of an axis matters only if the other launch has more threads along it.
    pub bounds: Vec<Bound>,
    /// Pairs of which the first is at most the second.
    pub at_most: Vec<(Sum, Sum)>,
    /// The memory that is accessed.
    pub regions: Vec<Region>,
    /// The regions that must be apart.
    pub apart: Vec<Apart>,
}
