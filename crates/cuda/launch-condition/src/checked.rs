//! A condition in flat tables, and its evaluation at a launch.

use crate::condition::{Condition, Region, Sum, Term};
use cuda_launch::{Dim3, LaunchConfig};
use std::ops::Range;

/// Most bytes of a kernel's parameters for which conditions are evaluated.
pub const MOST_PARAMETER_BYTES: usize = 256;
/// Most different terms of a condition, the threads along three axes included.
const MOST_TERMS: usize = 15;
/// Most regions of a condition.
const MOST_REGIONS: usize = 16;
/// Most terms of a product.
const TERMS_OF_PRODUCT: usize = 5;
/// Stands for the factor 1 among the terms of a product.
const ONE: u8 = MOST_TERMS as u8;

/// A factor times the values at some places.
#[derive(Clone, Copy, Debug)]
struct Flat {
    factor: i64,
    first: u8,
    /// The other places; mostly there are none.
    others: Option<[u8; TERMS_OF_PRODUCT - 1]>,
}

/// A sum: its products, as a part of [`Checked::products`].
type Products = Range<u16>;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Checked {
    same_threads: [bool; 3],
    /// The parameters among the terms; their values follow those of the three axes.
    parameters: Vec<(u32, u8, bool)>,
    products: Vec<Flat>,
    bounds: Vec<(usize, Products)>,
    at_most: Vec<(Products, Products)>,
    regions: Vec<(Products, Option<Products>)>,
    apart: Vec<(usize, usize, bool)>,
}

/// The values of the terms, with a 1 at the end.
type Values = [i64; MOST_TERMS + 1];

impl Checked {
    /// The condition in flat tables; `None` if it is too large or refers to something that does not
    /// exist.
    pub fn of(condition: &Condition) -> Option<Self> {
        let mut flat = Self { same_threads: condition.same_threads, ..Self::default() };
        for bound in &condition.bounds {
            let limit = flat.sum(&bound.limit)?;
            flat.bounds.push((axis_of(bound.axis)?, limit));
        }
        for (less, more) in &condition.at_most {
            let pair = (flat.sum(less)?, flat.sum(more)?);
            flat.at_most.push(pair);
        }
        for Region { start, bytes } in &condition.regions {
            let start = flat.sum(start)?;
            let bytes = match bytes {
                Some(bytes) => Some(flat.sum(bytes)?),
                None => None,
            };
            flat.regions.push((start, bytes));
        }
        let regions = flat.regions.len();
        for apart in &condition.apart {
            let (first, second) = (usize::from(apart.first), usize::from(apart.second));
            if first >= regions || second >= regions {
                return None;
            }
            flat.apart.push((first, second, apart.or_same));
        }
        (regions <= MOST_REGIONS).then_some(flat)
    }

    fn sum(&mut self, sum: &Sum) -> Option<Products> {
        let start = u16::try_from(self.products.len()).ok()?;
        for product in &sum.0 {
            let mut terms = [ONE; TERMS_OF_PRODUCT];
            for (at, term) in product.terms.iter().enumerate() {
                *terms.get_mut(at)? = self.place(*term)?;
            }
            let [first, others @ ..] = terms;
            let others = Some(others).filter(|_| product.terms.len() > 1);
            self.products.push(Flat { factor: product.factor, first, others });
        }
        Some(start..u16::try_from(self.products.len()).ok()?)
    }

    /// The place of a term's value.
    fn place(&mut self, term: Term) -> Option<u8> {
        let Term::Parameter { offset, bytes, signed } = term else {
            let Term::Threads(axis) = term else { return None };
            return axis_of(axis).map(|axis| axis as u8);
        };
        let end = (offset as usize).checked_add(bytes.into())?;
        if !matches!(bytes, 1 | 2 | 4 | 8) || end > MOST_PARAMETER_BYTES {
            return None;
        }
        let wanted = (offset, bytes, signed);
        let known = self.parameters.iter().position(|&parameter| parameter == wanted);
        let at = known.unwrap_or_else(|| {
            self.parameters.push(wanted);
            self.parameters.len() - 1
        });
        (at + 3 < MOST_TERMS).then_some((at + 3) as u8)
    }

    /// Whether an evaluation asks for allocations.
    pub fn needs_allocations(&self) -> bool {
        self.regions.iter().any(|(_, bytes)| bytes.is_none())
    }

    /// Bytes of parameters that an evaluation reads.
    pub fn parameter_bytes(&self) -> usize {
        self.parameters
            .iter()
            .map(|&(offset, bytes, _)| offset as usize + usize::from(bytes))
            .max()
            .unwrap_or(0)
    }

    /// The launch in blocks of this shape, if the condition holds for `asked`, the launch that the
    /// program asks for, with these parameters. `None` if it does not, and if the grid would not
    /// be one that CUDA allows. `allocation` gives the living allocation around an address, its
    /// first address and its bytes, if there is one; two allocations share no memory.
    #[inline]
    pub fn reshaped(
        &self,
        asked: &LaunchConfig,
        block: Dim3,
        parameters: &[u8],
        allocation: impl Fn(u64) -> Option<(u64, u64)>,
    ) -> Option<LaunchConfig> {
        let before = threads(asked)?;
        let (launch, after) = in_blocks(asked, &before, block)?;
        let changed: [bool; 3] = std::array::from_fn(|axis| before[axis] != after[axis]);
        if changed.iter().zip(self.same_threads).any(|(&changed, same)| changed && same) {
            return None;
        }
        let values = self.values(before, parameters)?;
        let guarded = |&(axis, ref limit): &(usize, Products)| {
            !changed[axis] || self.value(limit, &values).is_some_and(|limit| limit <= before[axis])
        };
        let is_guarded = |axis: usize| !changed[axis] || self.bounds.iter().any(|bound| bound.0 == axis);
        let holds = (0..3).all(is_guarded)
            && self.bounds.iter().all(guarded)
            && self.at_most.iter().all(|(less, more)| {
                self.value(less, &values).zip(self.value(more, &values)).is_some_and(|(a, b)| a <= b)
            })
            && self.are_apart(&values, allocation);
        holds.then_some(launch)
    }

    fn are_apart(&self, values: &Values, allocation: impl Fn(u64) -> Option<(u64, u64)>) -> bool {
        let mut regions = [(0, 0); MOST_REGIONS];
        for (place, (start, bytes)) in regions.iter_mut().zip(&self.regions) {
            let extent = || {
                let start = self.value(start, values)?;
                let Some(bytes) = bytes else {
                    let (base, bytes) = allocation(u64::try_from(start).ok()?)?;
                    let end = base.checked_add(bytes)?;
                    return Some((i64::try_from(base).ok()?, i64::try_from(end).ok()?));
                };
                Some((start, start.checked_add(self.value(bytes, values)?.max(0))?))
            };
            let Some(extent) = extent() else { return false };
            *place = extent;
        }
        self.apart.iter().all(|&(first, second, or_same)| {
            let ((a, a_end), (b, b_end)) = (regions[first], regions[second]);
            a_end <= b || b_end <= a || a == a_end || b == b_end || or_same && a == b
        })
    }

    #[inline]
    fn values(&self, threads: [i64; 3], parameters: &[u8]) -> Option<Values> {
        let mut values = [1; MOST_TERMS + 1];
        values[..3].copy_from_slice(&threads);
        for (value, &(offset, bytes, signed)) in values[3..].iter_mut().zip(&self.parameters) {
            let from = parameters.get(offset as usize..offset as usize + usize::from(bytes))?;
            *value = integer(from, signed)?;
        }
        Some(values)
    }

    #[inline]
    fn value(&self, sum: &Products, values: &Values) -> Option<i64> {
        let products = self.products.get(usize::from(sum.start)..usize::from(sum.end))?;
        products.iter().try_fold(0_i64, |sum, product| {
            let mut value = product.factor.checked_mul(values[usize::from(product.first)])?;
            for term in product.others.into_iter().flatten() {
                value = value.checked_mul(values[usize::from(term)])?;
            }
            sum.checked_add(value)
        })
    }
}

fn axis_of(axis: u8) -> Option<usize> {
    (axis < 3).then_some(axis.into())
}

/// A little-endian integer; `None` for an unsigned one beyond 63 bits.
#[inline]
fn integer(bytes: &[u8], signed: bool) -> Option<i64> {
    Some(match (bytes, signed) {
        (&[a], false) => a.into(),
        (&[a], true) => a.cast_signed().into(),
        (&[a, b], false) => u16::from_le_bytes([a, b]).into(),
        (&[a, b], true) => i16::from_le_bytes([a, b]).into(),
        (&[a, b, c, d], false) => u32::from_le_bytes([a, b, c, d]).into(),
        (&[a, b, c, d], true) => i32::from_le_bytes([a, b, c, d]).into(),
        (eight, true) => i64::from_le_bytes(eight.try_into().ok()?),
        (eight, false) => i64::try_from(u64::from_le_bytes(eight.try_into().ok()?)).ok()?,
    })
}

/// Most blocks along the axes, on every device.
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// At least the same threads along each axis in blocks of this shape, as
/// [`LaunchConfig::with_block`] has them, if CUDA allows the grid; and how many threads these are.
#[inline]
fn in_blocks(asked: &LaunchConfig, threads: &[i64; 3], block: Dim3) -> Option<(LaunchConfig, [i64; 3])> {
    let (mut grid, sides) = (asked.grid.to_array(), block.to_array());
    let (before, mut after) = (asked.block.to_array(), *threads);
    for axis in 0..3 {
        if sides[axis] != before[axis] {
            // At most 31 bits (`threads`), so that a division of 32 bits is enough.
            grid[axis] = (threads[axis] as u32).checked_next_multiple_of(sides[axis])? / sides[axis];
            after[axis] = i64::from(grid[axis]) * i64::from(sides[axis]);
        }
    }
    let fits = grid.iter().zip(MOST_BLOCKS).all(|(&blocks, most)| blocks <= most);
    let is_counted = after.iter().all(|&threads| threads <= i64::from(i32::MAX));
    let is_clustered = asked.cluster != Dim3::ZERO;
    (fits && is_counted && !is_clustered)
        .then(|| (LaunchConfig { grid: grid.into(), block, ..*asked }, after))
}

/// Threads along each axis; `None` where a 32-bit number of the kernel could not count them.
#[inline]
fn threads(launch: &LaunchConfig) -> Option<[i64; 3]> {
    let (grid, block) = (launch.grid.to_array(), launch.block.to_array());
    let along: [i64; 3] =
        std::array::from_fn(|axis| (u64::from(grid[axis]) * u64::from(block[axis])).cast_signed());
    along.iter().all(|threads| (0..=i64::from(i32::MAX)).contains(threads)).then_some(along)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::{Apart, Bound, Product};

    const N: Term = Term::Parameter { offset: 16, bytes: 4, signed: true };

    fn pointer(offset: u32) -> Term {
        Term::Parameter { offset, bytes: 8, signed: false }
    }

    /// `if (i < n) to[i] = from[i]` of 4 bytes each: `to`, `from`, `n`.
    fn copy() -> Condition {
        let region = |offset| Region { start: Sum::of(1, pointer(offset)), bytes: Some(Sum::of(4, N)) };
        Condition {
            bounds: vec![Bound { axis: 0, limit: Sum::of(1, N) }],
            regions: vec![region(0), region(8)],
            apart: vec![Apart { first: 0, second: 1, or_same: true }],
            ..Condition::default()
        }
    }

    fn parameters(to: u64, from: u64, n: i32) -> Vec<u8> {
        [&to.to_le_bytes()[..], &from.to_le_bytes(), &n.to_le_bytes()].concat()
    }

    fn in_blocks_of(threads: u32, condition: &Condition, given: &[u8]) -> Option<LaunchConfig> {
        let asked = LaunchConfig::new(63, 16);
        Checked::of(condition).unwrap().reshaped(&asked, threads.into(), given, |_| None)
    }

    #[test]
    fn a_guard_within_the_threads_lets_the_launch_grow() {
        let (to, from) = (1 << 20, 1 << 30);
        assert_eq!(
            in_blocks_of(256, &copy(), &parameters(to, from, 1000)),
            Some(LaunchConfig::new(4, 256)),
            "1,008 threads become 1,024"
        );
        assert_eq!(in_blocks_of(256, &copy(), &parameters(to, from, 1009)), None, "a thread more would work");
        assert_eq!(
            in_blocks_of(48, &copy(), &parameters(to, from, 1009)),
            Some(LaunchConfig::new(21, 48)),
            "exactly the same threads"
        );
        assert!(in_blocks_of(256, &copy(), &parameters(to, from, -1)).is_some(), "no thread works");
    }

    #[test]
    fn an_axis_without_a_guard_keeps_its_threads() {
        let unguarded = Condition { bounds: Vec::new(), ..copy() };
        let given = parameters(1 << 20, 1 << 30, 1000);
        assert_eq!(in_blocks_of(256, &unguarded, &given), None);
        assert!(in_blocks_of(48, &unguarded, &given).is_some());
        let same = Condition { same_threads: [true, false, false], ..copy() };
        assert_eq!(in_blocks_of(256, &same, &given), None);
    }

    #[test]
    fn the_launch_is_the_one_that_with_block_makes() {
        let anything = Checked::of(&Condition {
            bounds: (0..3).map(|axis| Bound { axis, limit: Sum::constant(0) }).collect(),
            ..Condition::default()
        });
        let anything = anything.unwrap();
        for grid in [[1, 1, 1], [63, 1, 1], [1000, 7, 3], [1 << 20, 65_535, 2]] {
            for block in [[1, 1, 1], [16, 2, 1], [48, 5, 3], [1024, 1, 1]] {
                let asked = LaunchConfig::new(grid, block);
                for other in [[32, 1, 1], [256, 4, 1], [7, 3, 2], [1024, 1, 1], block] {
                    let expected = asked.with_block(other.into()).unwrap();
                    let [_, y, z] = expected.grid.to_array();
                    let expected = (y.max(z) <= 65_535).then_some(expected);
                    assert_eq!(
                        anything.reshaped(&asked, other.into(), &[], |_| None),
                        expected,
                        "{asked} {other:?}"
                    );
                }
            }
        }
        let clustered = LaunchConfig { cluster: Dim3::ONE, ..LaunchConfig::new(4, 32) };
        assert_eq!(anything.reshaped(&clustered, 64.into(), &[], |_| None), None);
        assert_eq!(anything.reshaped(&LaunchConfig::new(4, 32), Dim3::ZERO, &[], |_| None), None);
    }

    #[test]
    fn regions_that_overlap_are_refused() {
        let to = 1 << 20;
        for (from, n, holds) in [
            (to, 1000, true),
            (to + 4, 1000, false),
            (to + 3999, 1000, false),
            (to + 4000, 1000, true),
            (to - 4000, 1000, true),
            (to - 3996, 1000, false),
            (to + 4, 0, true),
        ] {
            assert_eq!(in_blocks_of(256, &copy(), &parameters(to, from, n)).is_some(), holds, "{from} {n}");
        }
        let mut strict = copy();
        strict.apart[0].or_same = false;
        assert!(in_blocks_of(256, &strict, &parameters(to, to, 1000)).is_none());
    }

    #[test]
    fn memory_of_unknown_extent_is_the_allocation_around_its_pointer() {
        let mut gather = copy();
        gather.regions[1].bytes = None;
        gather.apart[0].or_same = false;
        let gather = Checked::of(&gather).unwrap();
        assert!(gather.needs_allocations() && !Checked::of(&copy()).unwrap().needs_allocations());
        let (to, n) = (1 << 20, 1000);
        let is_made = |from: u64, allocation: Option<(u64, u64)>| {
            let asked = LaunchConfig::new(63, 16);
            gather.reshaped(&asked, 256.into(), &parameters(to, from, n), |_| allocation).is_some()
        };
        let from = to + (1 << 16);
        assert!(is_made(from, Some((from - 256, 1 << 12))));
        assert!(is_made(from, Some((to + 4000, 1 << 20))), "it begins where the other one ends");
        assert!(!is_made(from, Some((to + 3999, 1 << 20))), "it begins before");
        assert!(!is_made(from, Some((to - 1, 1 << 20))), "both are in one allocation");
        assert!(!is_made(from, Some((8, u64::MAX))) && !is_made(from, None));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let given = parameters(1 << 20, 1 << 30, 1000);
        assert!(in_blocks_of(256, &copy(), &given[..18]).is_none(), "a parameter is missing");
        assert!(in_blocks_of(256, &copy(), &parameters(u64::MAX, 8, 1000)).is_none(), "63 bits");
        assert!(in_blocks_of(256, &copy(), &parameters(i64::MAX as u64, 8, 1000)).is_none(), "overflow");
        let huge = LaunchConfig::new(1 << 30, 16);
        assert!(
            Checked::of(&copy()).unwrap().reshaped(&huge, 256.into(), &given, |_| None).is_none(),
            "31 bits"
        );
        let mut wrong = copy();
        wrong.apart[0].second = 2;
        assert!(Checked::of(&wrong).is_none());
        wrong = copy();
        wrong.regions[0].bytes = Some(Sum(vec![Product { factor: 1, terms: vec![N; 6] }]));
        assert!(Checked::of(&wrong).is_none());
        wrong.regions[0].bytes = Some(Sum::of(1, Term::Threads(3)));
        assert!(Checked::of(&wrong).is_none());
    }
}
