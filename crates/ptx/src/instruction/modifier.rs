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
    /// How two numbers are compared. `lo`, `ls`, `hi` and `hs` are `lt`, `le`, `gt` and `ge` of unsigned integers.
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
    /// What a comparison's result is combined with a predicate by.
    Logic { And = "and", Or = "or", Xor = "xor" }
    /// How a result is rounded; the last four round to a whole number.
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
    /// Which lane a shuffle reads.
    Shuffle { Up = "up", Down = "down", Butterfly = "bfly", Index = "idx" }
    /// What a vote asks.
    Vote { All = "all", Any = "any", Uniform = "uni", Ballot = "ballot" }
    /// What an atomic operation or a reduction does.
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
        Mmio = "mmio",
    }
    /// The threads that an order holds among.
    Scope { Block = "cta", Cluster = "cluster", Gpu = "gpu" | "gl", System = "sys" }
    /// Which caches an access is kept in.
    Cache {
        All = "ca",
        Global = "cg",
        Streaming = "cs",
        LastUse = "lu",
        Volatile = "cv",
        WriteBack = "wb",
        WriteThrough = "wt",
    }
}

macro_rules! flags {
    ($($variant:ident = $text:literal),* $(,)?) => {
        /// A modifier that is there or not.
        #[allow(missing_docs, reason = "each is named as the ISA names it")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Flag { $($variant),* }

        impl Flag {
            /// The flag that a modifier (no dot) is.
            pub fn from_word(word: &str) -> Option<Flag> {
                match word { $($text => Some(Flag::$variant),)* _ => None }
            }
        }
    };
}

flags! {
    Aligned = "aligned",
    Approximate = "approx",
    Arrive = "arrive",
    Asynchronous = "async",
    Bulk = "bulk",
    Carry = "cc",
    Cluster = "cluster",
    CommitGroup = "commit_group",
    FlushToZero = "ftz",
    Full = "full",
    High = "hi",
    Left = "l",
    Load = "load",
    Low = "lo",
    Mbarrier = "mbarrier",
    NonCoherent = "nc",
    Prefetch = "prefetch",
    Reduce = "red",
    Right = "r",
    Saturate = "sat",
    Store = "store",
    Synchronous = "sync",
    Tensor = "tensor",
    Uniform = "uni",
    Wait = "wait",
    WaitAll = "wait_all",
    WaitGroup = "wait_group",
    Warp = "warp",
    Wide = "wide",
    Wrap = "wrap",
}

/// The [`Flag`]s of a mnemonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// Adds one.
    pub(super) fn insert(&mut self, flag: Flag) {
        self.0 |= 1 << flag as u32;
    }

    /// Whether one is there.
    pub fn has(self, flag: Flag) -> bool {
        self.0 >> flag as u32 & 1 == 1
    }
}
