//! The matrix instructions of a warp: `mma`, `wmma`, `wgmma`, `ldmatrix`, `stmatrix`, `movmatrix`.
//!
//! A matrix is distributed over the registers of all lanes (see `layout`), so these instructions
//! wait for every lane and are executed for the whole warp. `product` and `narrow` have the
//! arithmetic, `sparse` that of sparse factors, `transfer` and `bytes` load, store and transpose,
//! `group` has the products of warp groups.

mod bytes;
mod group;
mod layout;
mod narrow;
mod product;
mod sparse;
mod transfer;

pub(super) use bytes::ByteTiles;
pub(super) use group::{Adds, Factor, Group};
pub(super) use layout::{Layout, Shape};
pub(super) use narrow::{Element, Narrow, Scales};
pub(super) use product::{Arithmetic, Float, Format, Integer};
pub(super) use sparse::{Kept, Sparse};
pub(super) use transfer::{Fragment, Order, Span};

use crate::arithmetic::soft::Rounding;
use crate::memory::spaces::{Accessed, Spaces};
use crate::operands::{AccessArgs, Class, Reg, Role};
use crate::registers::lanes::{Lanes, Stored, WARP, wide_vectors};

/// An instruction on matrices.
#[derive(Clone, Debug)]
pub(super) struct MatrixStep {
    pub(super) operation: Operation,
    pub(super) results: Box<[Reg]>,
    pub(super) sources: Box<[Reg]>,
    /// The address, for operations that load or store; the other parts of the access are empty.
    pub(super) address: Option<AccessArgs>,
}

/// The operation on the registers of a [`MatrixStep`].
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// `d = a * b + c` on words; the sources are the registers of A, of B and of C.
    Multiply { product: Product, arithmetic: Arithmetic },
    /// The same with a sparse A, whose metadata follow C.
    MultiplySparse { product: Product, arithmetic: Arithmetic, sparse: Sparse },
    /// The same in `.f64`, on longs.
    MultiplyDouble { product: Product, rounding: Rounding },
    /// The same of narrow floats with scales, whose registers follow those of C.
    MultiplyScaled { product: Product, narrow: Narrow, scales: Scales },
    /// `wgmma.mma_async`.
    MultiplyGroup(Box<Group>),
    /// `movmatrix`: an 8 by 8 matrix of 16-bit elements, transposed.
    Transpose,
    /// `ldmatrix`: such a matrix for each result.
    LoadTiles { transposed: bool },
    /// `stmatrix`: such a matrix from each source.
    StoreTiles { transposed: bool },
    /// `ldmatrix` of tiles of bytes.
    LoadBytes(ByteTiles),
    /// `stmatrix` of tiles of bytes.
    StoreBytes,
    /// `wmma.load`: the first source is the stride between lines in memory.
    LoadFragment(Fragment),
    /// `wmma.store`: the first source is the stride, the fragment follows.
    StoreFragment(Fragment),
}

/// A product and the layouts of its matrices.
#[derive(Clone, Debug)]
pub(super) struct Product {
    /// If the layouts have more lines than it, the instruction computes several products, one after
    /// the other.
    pub(super) shape: Shape,
    pub(super) a: Layout,
    pub(super) b: Layout,
    pub(super) c: Layout,
    pub(super) d: Layout,
    /// Registers of A and of B that the instruction names.
    pub(super) counts: [usize; 2],
}

impl Product {
    /// Whether these are as many source registers and results as it has.
    fn takes(&self, sources: usize, results: usize) -> bool {
        let [a, b] = self.counts;
        a >= self.a.registers
            && b >= self.b.registers
            && sources == a + b + self.c.registers
            && results == self.d.registers
    }
}

impl MatrixStep {
    /// Shows every register, as [`Step::registers`](crate::code::Step::registers) does.
    pub(super) fn registers(&mut self, show: &mut dyn FnMut(&mut Reg, Role)) {
        if let Some(address) = &mut self.address {
            show(&mut address.address, Role::Use);
        }
        if let Operation::MultiplyGroup(group) = &mut self.operation {
            group.registers(show);
        }
        self.sources.iter_mut().for_each(|reg| show(reg, Role::Use));
        self.results.iter_mut().for_each(|reg| show(reg, Role::Def));
    }

    /// The class of the results, and of the sources but for a stride.
    fn class(&self) -> Class {
        match &self.operation {
            Operation::MultiplyDouble { .. } => Class::Long,
            Operation::LoadFragment(fragment) | Operation::StoreFragment(fragment) => fragment.class(),
            _ => Class::Word,
        }
    }

    /// Whether the registers are as many and of the classes that the operation takes.
    pub(super) fn takes(&self, class: impl Fn(Reg) -> Class) -> bool {
        let (stride, values) = match &self.operation {
            Operation::LoadFragment(_) | Operation::StoreFragment(_) => match self.sources.split_first() {
                Some((stride, values)) => (Some(*stride), values),
                None => return false,
            },
            _ => (None, &*self.sources),
        };
        let counts = match &self.operation {
            Operation::Multiply { product, .. } | Operation::MultiplyDouble { product, .. } => {
                product.takes(values.len(), self.results.len())
            }
            Operation::MultiplySparse { product, .. } => {
                !values.is_empty() && product.takes(values.len() - 1, self.results.len())
            }
            Operation::MultiplyScaled { product, .. } => {
                let (scales, results) = (2 * narrow::SCALE_REGISTERS, self.results.len());
                values.len() > scales && product.takes(values.len() - scales, results)
            }
            Operation::MultiplyGroup(group) => {
                let (a, c) = group.counts();
                group.takes(&class) && values.len() == a + c && self.results.len() == c
            }
            Operation::Transpose => (self.results.len(), values.len()) == (1, 1),
            Operation::LoadTiles { .. } | Operation::LoadBytes(_) => {
                matches!((self.results.len(), values.len()), (1 | 2 | 4, 0))
            }
            Operation::StoreTiles { .. } | Operation::StoreBytes => {
                matches!((self.results.len(), values.len()), (0, 1 | 2 | 4))
            }
            Operation::LoadFragment(_) => !self.results.is_empty() && values.is_empty(),
            Operation::StoreFragment(_) => self.results.is_empty() && !values.is_empty(),
        };
        let places = self
            .address
            .as_ref()
            .is_none_or(|args| class(args.address) == if args.narrow { Class::Word } else { Class::Long });
        let wanted = self.class();
        counts
            && places
            && stride.is_none_or(|stride| class(stride) == Class::Word)
            && values.iter().chain(&self.results).all(|&reg| class(reg) == wanted)
    }

    /// Executes the step for the lanes of the warp, which are all there.
    ///
    /// # Safety
    /// The frame has the registers, in the classes that [`takes`](Self::takes) has found right; the
    /// windows in `spaces` are this block's.
    pub(super) unsafe fn run(&self, lanes: &Lanes, spaces: &mut Spaces) -> Accessed {
        let (sources, results) = (&*self.sources, &*self.results);
        // SAFETY: the caller's promise, here and below.
        unsafe {
            match (&self.operation, &self.address) {
                (Operation::Multiply { product, arithmetic }, _) => {
                    multiply::<u32>(
                        product,
                        lanes,
                        sources,
                        results,
                        #[inline(always)]
                        |shape, factors, c, d| arithmetic.multiply(shape, factors, c, d),
                    );
                    Ok(())
                }
                (Operation::MultiplySparse { product, arithmetic, sparse }, _) => {
                    let (factors, metadata) = sources.split_at(sources.len() - 1);
                    let metadata = lanes.source::<u32>(metadata[0]);
                    let compute = |shape, factors: (&[u32], &[u32]), c: &[u32], d: &mut [u32]| {
                        sparse.multiply(arithmetic, metadata, shape, factors, (c, d));
                    };
                    multiply::<u32>(product, lanes, factors, results, compute);
                    Ok(())
                }
                (Operation::MultiplyDouble { product, rounding }, _) => {
                    multiply::<u64>(
                        product,
                        lanes,
                        sources,
                        results,
                        #[inline(always)]
                        |shape, factors, c, d| product::multiply_double(*rounding, shape, factors, c, d),
                    );
                    Ok(())
                }
                (Operation::MultiplyScaled { product, narrow, scales }, _) => {
                    let (factors, of_scales) = sources.split_at(sources.len() - 2 * narrow::SCALE_REGISTERS);
                    let scaled = |shape, (a, b): (&[u32], &[u32]), c: &[u32], d: &mut [u32]| {
                        let registers = (lanes, of_scales);
                        narrow.multiply_scaled(*scales, registers, shape, (a, b), (c, d));
                    };
                    multiply::<u32>(product, lanes, factors, results, scaled);
                    Ok(())
                }
                (Operation::MultiplyGroup(group), _) => group.run(lanes, spaces, sources, results),
                (Operation::Transpose, _) => {
                    transfer::transpose(lanes, sources, results);
                    Ok(())
                }
                (Operation::LoadTiles { transposed }, Some(address)) => {
                    transfer::load_tiles(lanes, spaces, address, *transposed, results)
                }
                (Operation::StoreTiles { transposed }, Some(address)) => {
                    transfer::store_tiles(lanes, spaces, address, *transposed, sources)
                }
                (Operation::LoadBytes(tiles), Some(address)) => tiles.load(lanes, spaces, address, results),
                (Operation::StoreBytes, Some(address)) => ByteTiles::store(lanes, spaces, address, sources),
                (Operation::LoadFragment(fragment), Some(address)) => {
                    fragment.load(lanes, spaces, address, sources[0], results)
                }
                (Operation::StoreFragment(fragment), Some(address)) => {
                    fragment.store(lanes, spaces, address, sources[0], &sources[1..])
                }
                // The compiler gives every transfer an address.
                (_, None) => Ok(()),
            }
        }
    }
}

impl MatrixStep {
    /// Returns the memory that the step accesses, from its address.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub(super) unsafe fn spans(&self, lanes: &Lanes) -> Vec<Span> {
        match &self.operation {
            Operation::LoadTiles { .. } | Operation::LoadBytes(_) => {
                vec![transfer::tile_span(lanes, self.results.len())]
            }
            Operation::StoreTiles { .. } | Operation::StoreBytes => {
                vec![transfer::tile_span(lanes, self.sources.len())]
            }
            Operation::LoadFragment(fragment) | Operation::StoreFragment(fragment) => {
                // SAFETY: the caller's promise; the first source is the stride, a word.
                fragment.spans(unsafe { lanes.source(self.sources[0]) }, lanes.mask)
            }
            _ => Vec::new(),
        }
    }

    /// Whether it stores.
    pub(super) fn stores(&self) -> bool {
        matches!(
            self.operation,
            Operation::StoreTiles { .. } | Operation::StoreBytes | Operation::StoreFragment(_)
        )
    }
}

/// A lane's content of a register, as a number of 64 bits.
trait Content: Stored {
    fn widen(self) -> u64;
    fn cut(bits: u64) -> Self;
}

impl Content for u32 {
    #[inline(always)]
    fn widen(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn cut(bits: u64) -> u32 {
        bits as u32
    }
}

impl Content for u64 {
    #[inline(always)]
    fn widen(self) -> u64 {
        self
    }

    #[inline(always)]
    fn cut(bits: u64) -> u64 {
        bits
    }
}

/// The elements of a fragment, line by line.
///
/// # Safety
/// The frame has the registers, of the class of `S`.
unsafe fn gather<S: Content>(lanes: &Lanes, layout: &Layout, registers: &[Reg]) -> Vec<S> {
    let mut elements = vec![S::default(); layout.lines * layout.length];
    let mask = u64::MAX >> (64 - layout.bits);
    for (index, register) in registers.iter().take(layout.registers).enumerate() {
        // SAFETY: the caller's promise.
        let values = unsafe { lanes.source::<S>(*register) };
        for (&value, places) in values.iter().zip(layout.register(index).chunks_exact(layout.per)) {
            let mut rest = value.widen();
            for &place in places {
                elements[usize::from(place)] = S::cut(rest & mask);
                rest = rest.wrapping_shr(layout.bits);
            }
        }
    }
    elements
}

/// Puts elements into the registers of a fragment.
///
/// # Safety
/// As for [`gather`].
unsafe fn scatter<S: Content>(lanes: &Lanes, layout: &Layout, elements: &[S], registers: &[Reg]) {
    for (index, register) in registers.iter().enumerate() {
        let mut values = [S::default(); WARP];
        let all_places = layout.register(index).chunks_exact(layout.per);
        for (value, places) in values.iter_mut().zip(all_places) {
            let join = |bits: u64, &place: &u16| {
                bits.wrapping_shl(layout.bits) | elements[usize::from(place)].widen()
            };
            *value = S::cut(match places {
                [place] => elements[usize::from(*place)].widen(),
                several => several.iter().rev().fold(0, join),
            });
        }
        // SAFETY: the caller's promise.
        unsafe { lanes.write(*register, &values) };
    }
}

/// Reads the fragments, computes each product by `compute`, and writes the results.
///
/// # Safety
/// As for [`MatrixStep::run`]; the registers are of the class of `S`.
unsafe fn multiply<S: Content>(
    product: &Product,
    lanes: &Lanes,
    sources: &[Reg],
    results: &[Reg],
    compute: impl Fn(Shape, (&[S], &[S]), &[S], &mut [S]),
) {
    let (a, rest) = sources.split_at(product.counts[0]);
    let (b, c) = rest.split_at(product.counts[1]);
    // SAFETY: the caller's promise.
    let [a, b, c] = unsafe {
        [gather::<S>(lanes, &product.a, a), gather(lanes, &product.b, b), gather(lanes, &product.c, c)]
    };
    let mut d = vec![S::default(); c.len()];
    let Shape { m, n, k } = product.shape;
    // A row of a sparse A has half as many elements.
    let factors = a.chunks_exact(m * product.a.length.min(k)).zip(b.chunks_exact(n * k));
    let sums = c.chunks_exact(m * n).zip(d.chunks_exact_mut(m * n));
    for ((a, b), (c, d)) in factors.zip(sums) {
        run_wide(
            #[inline(always)]
            || compute(product.shape, (a, b), c, d),
        );
    }
    // SAFETY: the caller's promise.
    unsafe { scatter(lanes, &product.d, &d, results) };
}

/// Runs `f` compiled for wide vectors where the CPU has them.
#[inline(always)]
fn run_wide(f: impl FnOnce()) {
    /// # Safety
    /// The CPU has the features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
    unsafe fn wide(f: impl FnOnce()) {
        f();
    }
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has the features, as `wide_vectors` has found.
        return unsafe { wide(f) };
    }
    f();
}
