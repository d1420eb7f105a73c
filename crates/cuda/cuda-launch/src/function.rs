//! Attributes of a kernel, as the driver reports them.

/// Attributes of a function (`cuFuncGetAttribute`); 0 where a number is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FunctionAttributes {
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block.
    pub static_shared_bytes: u32,
    /// Local memory of a thread.
    pub local_bytes: u32,
    /// Constant memory that the code declares.
    pub constant_bytes: u32,
    /// Most threads that a block of this kernel may have (`__launch_bounds__`, or what its
    /// registers allow).
    pub max_threads_per_block: u32,
    /// Most dynamic shared memory that a launch may ask for (`cuFuncSetAttribute` raises it);
    /// `None` if unknown.
    pub max_dynamic_shared_bytes: Option<u32>,
    /// The division of the SM's memory.
    pub carveout: Carveout,
    /// Barriers that a block uses. The driver does not tell; one is what nearly every kernel uses.
    pub barriers: u32,
    /// Architecture of the machine code, such as 90.
    pub binary_version: u32,
    /// Architecture of the PTX that it came from, such as 80.
    pub ptx_version: u32,
}

/// The division of an SM's memory between shared memory and L1 cache: a hint, which a block that
/// needs more overrides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(into = "i32"))]
pub enum Carveout {
    /// No preference: as much shared memory as the SM can have.
    #[default]
    Default,
    /// Shared memory in percent of the most that there can be; above 100 counts as 100.
    Percent(u32),
}

impl Carveout {
    /// From `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`, where -1 is the default.
    pub fn from_attribute(value: i32) -> Self {
        u32::try_from(value).map_or(Self::Default, Self::Percent)
    }

    /// The value of `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`: -1 for the default.
    pub fn to_attribute(self) -> i32 {
        match self {
            Self::Default => -1,
            Self::Percent(percent) => i32::try_from(percent).unwrap_or(i32::MAX),
        }
    }
}

#[cfg(feature = "serde")]
impl From<Carveout> for i32 {
    fn from(carveout: Carveout) -> Self {
        carveout.to_attribute()
    }
}
