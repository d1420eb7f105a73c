//! The modifiers of a mnemonic as types: each vocabulary is an enum, single words are [`Flag`]s.

macro_rules! vocabulary {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $($text:literal)|+),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs, reason = "each is named as the ISA names it")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $name { $($variant),* }

            impl $name {
                /// The member that a modifier (no dot) names.
                pub fn from_word(word: &str) -> Option<Self> {
                    match word { $($($text)|+ => Some(Self::$variant),)* _ => None }
                }
            }
        )*
    };
}

vocabulary! {
    /// The relation of two numbers. `lo`, `ls`, `hi` and `hs` are `lt`, `le`, `gt` and `ge` of
    /// unsigned integers.
    Comparison {
        Equal = "eq",
        NotEqual = "ne",
        Less = "lt" | "lo",
        LessEqual = "le" | "ls",
        Greater = "gt" | "hi",
        GreaterEqual = "ge" | "hs",
        Number = "num",
        Nan = "nan",
        UnorderedEqual = "equ",
        UnorderedNotEqual = "neu",
        UnorderedLess = "ltu",
        UnorderedLessEqual = "leu",
        UnorderedGreater = "gtu",
        UnorderedGreaterEqual = "geu",
    }
    /// The operation that combines a comparison's result with a predicate.
    Logic { And = "and", Or = "or", Xor = "xor" }
    /// The rounding of a result; the last four round to a whole number.
    Rounding {
        Nearest = "rn",
        NearestAway = "rna",
        Zero = "rz",
        Down = "rm",
        Up = "rp",
        Stochastic = "rs",
        WholeNearest = "rni",
        WholeZero = "rzi",
        WholeDown = "rmi",
        WholeUp = "rpi",
    }
    /// The choice of the lane that a shuffle reads.
    Shuffle { Up = "up", Down = "down", Butterfly = "bfly", Index = "idx" }
    /// The question of a vote.
    Vote { All = "all", Any = "any", Uniform = "uni", Ballot = "ballot" }
    /// The operation of an atomic instruction or a reduction.
    Atomic {
        Add = "add",
        Minimum = "min",
        Maximum = "max",
        Increment = "inc",
        Decrement = "dec",
        And = "and",
        Or = "or",
        Xor = "xor",
        Exchange = "exch",
        CompareAndSwap = "cas",
    }
    /// The memory order of an access or a fence.
    Order {
        Weak = "weak",
        Volatile = "volatile",
        Relaxed = "relaxed",
        Acquire = "acquire",
        Release = "release",
        AcquireRelease = "acq_rel",
        Sequential = "sc",
    }
    /// The threads that an order holds among.
    Scope { Block = "cta", Cluster = "cluster", Gpu = "gpu" | "gl", System = "sys" }
    /// The caches that keep an access's data.
    Cache {
        All = "ca",
        Global = "cg",
        Streaming = "cs",
        LastUse = "lu",
        Volatile = "cv",
        WriteBack = "wb",
        WriteThrough = "wt",
    }
    /// The part of a product that is kept.
    Part { Low = "lo", High = "hi", Wide = "wide" }
    /// The treatment of an amount or a coordinate that is too large.
    Limit { Clamp = "clamp", Wrap = "wrap", Trap = "trap", Zero = "zero" }
    /// The layout of a matrix in memory or in registers.
    Layout { Row = "row", Column = "col" }
    /// The dimensions of a texture or surface.
    Geometry {
        Line = "1d",
        Plane = "2d",
        Volume = "3d",
        LineArray = "a1d",
        PlaneArray = "a2d",
        Cube = "cube",
        CubeArray = "acube",
        Multisampled = "2dms",
        MultisampledArray = "a2dms",
    }
    /// A letter: the matrix that `wmma` moves, the component that `tld4` gathers, bytes or texels
    /// of a surface.
    Letter { A = "a", B = "b", C = "c", D = "d", G = "g", P = "p", R = "r" }
    /// The way in which `prmt` selects bytes.
    Permutation {
        ForwardFour = "f4e",
        BackwardFour = "b4e",
        ReplicateByte = "rc8",
        ClampLeft = "ecl",
        ClampRight = "ecr",
        ReplicateHalf = "rc16",
    }
    /// The property that `testp` tests.
    Property {
        Finite = "finite",
        Infinite = "infinite",
        Number = "number",
        Nan = "notanumber",
        Normal = "normal",
        Subnormal = "subnormal",
    }
    /// The attribute of an image that `txq` and `suq` return.
    Query {
        Width = "width",
        Height = "height",
        Depth = "depth",
        ArraySize = "array_size",
        MipmapLevels = "num_mipmap_levels",
        NormalizedCoordinates = "normalized_coords",
        FilterMode = "filter_mode",
    }
    /// The operation of `mbarrier`.
    Phase {
        Initialize = "init",
        Invalidate = "inval",
        Arrive = "arrive",
        ArriveDrop = "arrive_drop",
        TestWait = "test_wait",
        TryWait = "try_wait",
        PendingCount = "pending_count",
        ExpectBytes = "expect_tx",
        CompleteBytes = "complete_tx",
    }
}

macro_rules! flags {
    ($($(#[$doc:meta])* $variant:ident = $($text:literal)|+),* $(,)?) => {
        /// A modifier that is there or not.
        #[allow(missing_docs, reason = "each is named as the ISA names it")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Flag { $($(#[$doc])* $variant),* }

        impl Flag {
            /// The flag that a modifier (no dot) is.
            pub fn from_word(word: &str) -> Option<Flag> {
                match word {
                    $($($text)|+ => Some(Flag::$variant),)*
                    _ if word.starts_with("L1::") || word.starts_with("L2::") => Some(Flag::CachePriority),
                    _ => None,
                }
            }
        }
    };
}

flags! {
    Absolute = "abs",
    Aligned = "aligned",
    Approximate = "approx",
    Arrive = "arrive",
    Asynchronous = "async",
    Base = "base",
    Bulk = "bulk",
    BulkGroup = "bulk_group",
    CacheHint = "L2::cache_hint",
    Carry = "cc",
    Cluster = "cluster",
    CommitGroup = "commit_group",
    CompletesBytes = "mbarrier::complete_tx::bytes",
    ExpectsBytes = "expect_tx",
    FlushToZero = "ftz",
    Full = "full",
    FunctionParameter = "param::func",
    Gradient = "grad",
    Indexed = "idx",
    Left = "l",
    Level = "level",
    Load = "load",
    Mbarrier = "mbarrier",
    MemoryMapped = "mmio",
    MultiplyAdd = "mma",
    NoComplete = "noComplete",
    NoFlush = "noftz",
    NoIncrement = "noinc",
    NonCoherent = "nc",
    Pack = "pack",
    Parity = "parity",
    PlusOne = "po",
    PopulationCount = "popc",
    Prefetch = "prefetch",
    PropagateNan = "NaN",
    Read = "read",
    Rectified = "relu",
    Reduce = "red",
    Right = "r",
    Saturate = "sat",
    SaturateFinite = "satfinite",
    ShiftAmount = "shiftamt",
    ShiftRight7 = "shr7",
    ShiftRight15 = "shr15",
    Signed2 = "s2",
    Sparse = "sp" | "sp::ordered_metadata",
    Store = "store",
    Synchronous = "sync",
    Tensor = "tensor",
    To = "to",
    Transposed = "trans",
    Uniform = "uni",
    Unsigned2 = "u2",
    Wait = "wait",
    WaitAll = "wait_all",
    WaitGroup = "wait_group",
    Warp = "warp",
    XorSign = "xorsign",
    /// `L1::…` and `L2::…` but for `L2::cache_hint`: how long caches keep what is accessed, and
    /// what they prefetch.
    CachePriority = "L1" | "L2",
}

/// The [`Flag`]s of a mnemonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u64);

impl Flags {
    /// Adds one.
    pub(super) fn insert(&mut self, flag: Flag) {
        self.0 |= 1 << flag as u32;
    }

    /// Removes one; whether it was there.
    pub(super) fn take(&mut self, flag: Flag) -> bool {
        let found = self.has(flag);
        self.0 &= !(1 << flag as u32);
        found
    }

    /// Whether one is there.
    pub fn has(self, flag: Flag) -> bool {
        self.0 >> flag as u32 & 1 == 1
    }

    /// Whether both have one.
    pub(super) fn meet(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}
