//! The table of special registers: name, type, and whether they have components.
//!
//! Every layer asks this table; what a register *holds* is for whoever executes or estimates.

use crate::syntax::types::ScalarType;

macro_rules! special_registers {
    ($($(#[$doc:meta])* $variant:ident = $name:literal: $ty:ident $(x $components:literal)?),* $(,)?) => {
        /// A special register.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum SpecialRegister {
            $($(#[$doc])* $variant,)*
            /// `%envreg0` to `%envreg31`.
            Environment(u8),
            /// `%pm0` to `%pm7`.
            Performance(u8),
            /// `%pm0_64` to `%pm7_64`.
            Performance64(u8),
            /// `%reserved_smem_offset_0` and `_1`.
            ReservedShared(u8),
        }

        impl SpecialRegister {
            /// All registers that do not end in a number.
            pub const NAMED: &[SpecialRegister] = &[$(SpecialRegister::$variant),*];

            /// The register of this name, `%` included.
            pub fn from_name(name: &str) -> Option<Self> {
                match name.strip_prefix('%')? {
                    $($name => Some(SpecialRegister::$variant),)*
                    name => numbered(name),
                }
            }

            /// Its name, `%` included.
            pub fn name(self) -> String {
                match self {
                    $(SpecialRegister::$variant => concat!("%", $name).to_owned(),)*
                    SpecialRegister::Environment(number) => format!("%envreg{number}"),
                    SpecialRegister::Performance(number) => format!("%pm{number}"),
                    SpecialRegister::Performance64(number) => format!("%pm{number}_64"),
                    SpecialRegister::ReservedShared(number) => format!("%reserved_smem_offset_{number}"),
                }
            }

            /// Its type, or that of its components.
            pub fn ty(self) -> ScalarType {
                match self {
                    $(SpecialRegister::$variant => ScalarType::$ty,)*
                    SpecialRegister::Performance64(_) => ScalarType::U64,
                    _ => ScalarType::U32,
                }
            }

            /// Whether it has the components `x`, `y`, `z`, `w`.
            pub fn is_vector(self) -> bool {
                match self {
                    $(SpecialRegister::$variant => false $(|| $components == 4)?,)*
                    _ => false,
                }
            }
        }
    };
}

special_registers! {
    /// Thread in its block.
    Tid = "tid": U32 x 4,
    /// Threads of a block.
    Ntid = "ntid": U32 x 4,
    /// Block in the grid.
    Ctaid = "ctaid": U32 x 4,
    /// Blocks of the grid.
    Nctaid = "nctaid": U32 x 4,
    /// Cluster in the grid.
    Clusterid = "clusterid": U32 x 4,
    /// Clusters of the grid.
    Nclusterid = "nclusterid": U32 x 4,
    /// Block in its cluster.
    ClusterCtaid = "cluster_ctaid": U32 x 4,
    /// Blocks of a cluster.
    ClusterNctaid = "cluster_nctaid": U32 x 4,
    /// Number of the block in its cluster.
    ClusterCtarank = "cluster_ctarank": U32,
    /// Number of blocks in a cluster.
    ClusterNctarank = "cluster_nctarank": U32,
    /// True if the launch named a cluster size.
    IsExplicitCluster = "is_explicit_cluster": Pred,
    /// Lane in its warp.
    Laneid = "laneid": U32,
    /// Warp in its block.
    Warpid = "warpid": U32,
    /// Warps of a block.
    Nwarpid = "nwarpid": U32,
    /// Multiprocessor.
    Smid = "smid": U32,
    /// Multiprocessors.
    Nsmid = "nsmid": U32,
    /// Grid in the context.
    Gridid = "gridid": U64,
    /// Mask of the own lane.
    LanemaskEq = "lanemask_eq": U32,
    /// Mask of the lanes up to the own.
    LanemaskLe = "lanemask_le": U32,
    /// Mask of the lanes before the own.
    LanemaskLt = "lanemask_lt": U32,
    /// Mask of the lanes from the own on.
    LanemaskGe = "lanemask_ge": U32,
    /// Mask of the lanes after the own.
    LanemaskGt = "lanemask_gt": U32,
    /// Cycle counter, lower half.
    Clock = "clock": U32,
    /// Cycle counter, upper half.
    ClockHi = "clock_hi": U32,
    /// Cycle counter.
    Clock64 = "clock64": U64,
    /// Nanoseconds.
    Globaltimer = "globaltimer": U64,
    /// Nanoseconds, lower half.
    GlobaltimerLo = "globaltimer_lo": U32,
    /// Nanoseconds, upper half.
    GlobaltimerHi = "globaltimer_hi": U32,
    /// Bytes of shared memory of a block, reserved ones left out.
    TotalSmemSize = "total_smem_size": U32,
    /// Bytes of shared memory of a block, reserved ones included.
    AggrSmemSize = "aggr_smem_size": U32,
    /// Bytes of dynamic shared memory of a block.
    DynamicSmemSize = "dynamic_smem_size": U32,
    /// The start of reserved shared memory.
    ReservedSharedBegin = "reserved_smem_offset_begin": U32,
    /// The end of reserved shared memory.
    ReservedSharedEnd = "reserved_smem_offset_end": U32,
    /// Bytes of reserved shared memory.
    ReservedSharedCap = "reserved_smem_offset_cap": U32,
    /// Graph that is executing.
    CurrentGraphExec = "current_graph_exec": U64,
}

fn numbered(name: &str) -> Option<SpecialRegister> {
    let member = |prefix: &str, suffix: &str, count: u8| {
        let number: u8 = name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()?;
        (number < count).then_some(number)
    };
    member("envreg", "", 32)
        .map(SpecialRegister::Environment)
        .or_else(|| member("pm", "_64", 8).map(SpecialRegister::Performance64))
        .or_else(|| member("pm", "", 8).map(SpecialRegister::Performance))
        .or_else(|| member("reserved_smem_offset_", "", 2).map(SpecialRegister::ReservedShared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_again() {
        let numbered = ["%envreg31", "%pm7", "%pm0_64", "%reserved_smem_offset_1"];
        let numbered = numbered.map(|name| SpecialRegister::from_name(name).expect(name));
        for register in SpecialRegister::NAMED.iter().copied().chain(numbered) {
            assert_eq!(SpecialRegister::from_name(&register.name()), Some(register));
        }
        for name in ["tid", "%tidy", "%envreg32", "%pm8", "%pm8_64", "%reserved_smem_offset_2", "%"] {
            assert_eq!(SpecialRegister::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn types_are_those_of_the_isa() {
        let of = |name| SpecialRegister::from_name(name).map(|r| (r.ty(), r.is_vector()));
        assert_eq!(of("%tid"), Some((ScalarType::U32, true)));
        assert_eq!(of("%clock"), Some((ScalarType::U32, false)));
        assert_eq!(of("%clock64"), Some((ScalarType::U64, false)));
        assert_eq!(of("%pm3_64"), Some((ScalarType::U64, false)));
        assert_eq!(of("%is_explicit_cluster"), Some((ScalarType::Pred, false)));
    }
}
