//! The table of changes: which forms each row takes, by what it replaces them, and why the result
//! is the same.

mod bfloat;
mod clusters;
mod floats;
mod integers;
mod memory;
mod narrow;
mod synchronisation;
mod warps;

use crate::code::Code;
use crate::site::Site;

/// A row of the table.
pub struct Row {
    /// The name by which reports call it.
    pub name: &'static str,
    /// The forms that it takes.
    pub from: &'static str,
    /// The replacement.
    pub to: &'static str,
    /// Whether the result is the same, as rule 2 of the crate says.
    pub exact: bool,
    /// The reason, and what a launch has to keep to.
    pub why: &'static str,
    /// Writes the replacement; `None` if the row does not take the instruction.
    apply: Apply,
}

type Apply = fn(&Site<'_, '_>, &mut Code) -> Option<()>;

impl Row {
    /// Writes the replacement of an instruction; `None` if the row does not take it.
    pub(crate) fn apply(&self, site: &Site<'_, '_>, code: &mut Code) -> Option<()> {
        (self.apply)(site, code)
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.name == other.name
    }
}

macro_rules! rows {
    ($($name:literal: $from:literal => $to:literal, $exact:ident, $why:literal, $apply:expr;)*) => {
        /// Every row; the first that takes an instruction is used.
        pub const ROWS: &[Row] = &[$(Row {
            name: $name, from: $from, to: $to, exact: exactness::$exact, why: $why, apply: $apply,
        }),*];
    };
}

/// The words of the table.
mod exactness {
    #![expect(non_upper_case_globals, reason = "words of the table `ROWS`")]
    pub(super) const exact: bool = true;
    pub(super) const approximate: bool = false;
}

rows! {
    "f32x2": "`add`, `sub`, `mul`, `fma` on `.f32x2`" => "two scalar instructions",
        exact, "each half is rounded on its own", floats::pairs;
    "three-input extremum": "`min`, `max` on `.f32` with three operands" => "two of two operands",
        exact, "minimum and maximum are associative, NaN and `.abs` included", floats::three_inputs;
    "mixed precision": "`add`, `sub`, `fma` on `.f32` with `.f16` or `.bf16`" => "a conversion and the instruction on `.f32`",
        exact, "each number of 16 bits is a number of 32 bits", floats::mixed;
    "wide access": "`ld`, `st` of 256 bits" => "two of 128 bits",
        exact, "a weak access of a vector is one access for each element; hints for the L2 cache are left out", memory::wide;
    "float redux": "`redux.sync` on `.f32`" => "`redux.sync` on integers in the same order",
        exact, "the order of the integers is that of the numbers; NaN are handled apart", warps::float_redux;
    "integer redux": "`redux.sync` on 32 bits" => "a loop over the lanes of the mask with `shfl`",
        exact, "integer operations are associative", warps::integer_redux;
    "elect": "`elect.sync`" => "the lowest lane of the mask",
        exact, "the ISA leaves open which lane is elected, as long as it is always the same", warps::elect;
    "store matrix": "`stmatrix` of `.b16`" => "`shfl` of the addresses, and `st.shared`",
        exact, "each lane stores the elements that it holds", memory::store_matrix;
    "bulk store": "`st.bulk`" => "a loop of stores of 8 bytes",
        exact, "the sizes are multiples of 8 bytes", memory::bulk_store;
    "bf16 arithmetic": "`add`, `sub`, `mul` on `.bf16`, `.bf16x2`" => "`fma` with 1, -1 or -0",
        exact, "a product with 1 and a sum with -0 are exact, so there is one rounding", bfloat::arithmetic;
    "bf16 comparison": "`setp` on `.bf16`, `.bf16x2`" => "`setp` on `.f32`",
        exact, "each `.bf16` is an `.f32`", bfloat::comparison;
    "bf16 conversion": "`cvt` from and to `.bf16`" => "`cvt` through `.f32`",
        exact, "one of the two conversions is exact, or both round in the same direction", bfloat::conversion;
    "bf16 atomics": "`atom`, `red` with `.add.noftz` on `.bf16`, `.bf16x2`" => "a loop of `atom.cas`",
        exact, "each element is added atomically", bfloat::atomics;
    "packed integers": "`add`, `min`, `max` on `.u16x2`, `.s16x2`" => "two scalar instructions",
        exact, "halves are independent", integers::pairs;
    "relu extremum": "`min.relu`, `max.relu` on `.s32`" => "the same without `.relu`, and `max` with 0",
        exact, "this is the definition", integers::relu;
    "vector atomics": "`atom`, `red` on vectors" => "one for each element",
        exact, "a vector is not atomic as a whole", memory::vector_atomics;
    "try_wait": "`mbarrier.try_wait`" => "`mbarrier.test_wait`",
        exact, "`try_wait` may return at any time", synchronisation::try_wait;
    "mbarrier arrival": "`mbarrier.arrive` with a count, an order or a scope" => "single arrivals that release",
        exact, "the phase ends at the last one", synchronisation::arrive;
    "async proxy": "`fence.proxy.async`" => "nothing",
        exact, "without asynchronous copies there is no such proxy", synchronisation::proxy;
    "mbarrier fence": "`fence.mbarrier_init`" => "`fence.acq_rel.gpu`",
        exact, "the fence is stronger", synchronisation::mbarrier_fence;
    "register hint": "`setmaxnreg`" => "nothing",
        exact, "registers are no result; the kernel may spill more", synchronisation::nothing_of_setmaxnreg;
    "dependent launch": "`griddepcontrol`" => "nothing",
        exact, "grids without the launch attribute for programmatic dependent launches follow each other", synchronisation::nothing_of_griddepcontrol;
    "cluster scope": "`.cluster` as a scope" => "`.gpu`",
        exact, "the scope is wider", clusters::scope;
    "cluster memory": "`.shared::cluster`, `mapa`, `getctarank`" => "the block's own shared memory",
        exact, "a GPU without clusters launches clusters of one block only", clusters::memory;
    "cluster registers": "`%clusterid`, `%cluster_ctaid` and the like" => "the block's own registers",
        exact, "a GPU without clusters launches clusters of one block only", clusters::registers;
    "cache hint": "`.L2::cache_hint`, prefetches, `createpolicy`" => "the access without it",
        exact, "hints change no result", memory::hints;
    "asynchronous copy": "`cp.async` and its groups" => "a load and a store",
        exact, "a copy that is complete at once is as good as any", memory::asynchronous;
    "narrow floats": "`cvt` from `.e4m3x2`, `.e5m2x2`, `.e2m1x2`, `.e2m3x2`, `.e3m2x2`, `.ue8m0x2`" => "integer operations and an exact product",
        exact, "the conversion does not round", narrow::widening;
    "approximate bf16": "`tanh`, `ex2` on `.bf16`, `.bf16x2`" => "the same through `.f32`",
        approximate, "within the error that the ISA states, not bit by bit", bfloat::approximate;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(!ROWS[..index].contains(row), "{}", row.name);
        }
    }
}
