//! Inputs: the values that registers have before a function starts.

use ptx::body::SpecialRegister;

/// A value that is in a register before a function starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// The same bits in each lane.
    Constant(u64),
    /// `%tid`.
    Thread(u8),
    /// `%ntid`.
    BlockSize(u8),
    /// What differs from block to block: along an axis `%ctaid` (0 to 2), `%clusterid` (3 to 5),
    /// `%cluster_ctaid` (6 to 8); `%cluster_ctarank` (9).
    Block(u8),
    /// Property of the cluster.
    Cluster(ClusterInput),
    /// `%nctaid`.
    GridSize(u8),
    /// `%laneid`.
    Lane,
    /// `%warpid`.
    Warp,
    /// `%nwarpid`.
    Warps,
    /// `%smid`.
    Processor,
    /// `%nsmid`.
    Processors,
    /// `%gridid`.
    Grid,
    /// `%envreg1` and `%envreg2`: the two halves of the address of the grid's workspace.
    Workspace { high: bool },
    /// `%lanemask_eq`, `_le`, `_lt`, `_ge`, `_gt`.
    LaneMask(SpecialRegister),
    /// Static, dynamic and all shared memory of the block, in bytes.
    SharedBytes { fixed: bool, dynamic: bool },
    /// Bytes of a kernel parameter, zero- or sign-extended.
    Param { offset: u32, bytes: u8, signed: bool },
    /// Address of a byte of the kernel's parameters.
    ParamAddress(u32),
    /// First address after the kernel's parameters.
    ParamEnd,
    /// Offset of a shared variable, by index.
    SharedVariable(u32),
    /// Generic address of the block's shared memory.
    SharedWindow,
    /// First generic address after it.
    SharedWindowEnd,
    /// Generic address of the thread's local memory.
    LocalWindow,
    /// First generic address after it.
    LocalWindowEnd,
    /// Offset in local memory where `alloca` may begin: after the frames of the deepest chain of
    /// calls.
    StackStart,
    /// Offset in local memory where `alloca` must end: the size of local memory.
    StackEnd,
    /// Offset in local memory of a byte of the function's frame.
    Frame(u32),
    /// Address of a global or constant variable, by index.
    Global(u32),
}

/// A value that the blocks of a cluster have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClusterInput {
    /// `%cluster_nctarank`.
    Blocks,
    /// `%cluster_nctaid`.
    Size(u8),
    /// `%nclusterid`.
    Grid(u8),
    /// `%is_explicit_cluster`.
    IsGiven,
    /// The distance between the shared addresses of its blocks; 0 if it has one block.
    Unit,
    /// The distance between the generic addresses of their shared memory.
    Stride,
    /// The generic address of the shared memory of the first.
    Window,
}
