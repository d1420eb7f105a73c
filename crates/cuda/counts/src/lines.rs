//! Counts by line: of the source where the PTX names it (`.loc`), else of the PTX itself.

use super::Fault;
use std::ops::AddAssign;
use std::sync::Arc;

/// Lines kept of a launch, and of a kernel.
pub const MAX_LINES: usize = 2048;

/// The counts of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Line {
    /// Source file, as the PTX names it; empty for lines of the PTX itself.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub file: Arc<str>,
    /// Line in it, from 1.
    pub line: u32,
    /// The counts.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub counts: LineCounts,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// Defines the counts of a line, which files hold in the order of the fields.
macro_rules! line_counts {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counts of one line, in the words of [`super::Counts`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct LineCounts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl LineCounts {
            /// The number of counts.
            pub const VALUES: usize = [$(stringify!($name)),*].len();

            /// The counts, in the order of the fields.
            pub fn values(&self) -> [u64; Self::VALUES] {
                [$(self.$name),*]
            }

            /// The same, to be changed.
            pub fn values_mut(&mut self) -> [&mut u64; Self::VALUES] {
                [$(&mut self.$name),*]
            }
        }
    };
}

line_counts! {
    /// PTX instructions, each counted once for the threads of a warp that execute it together.
    warp_instructions,
    /// The same, counted for each thread.
    thread_instructions,
    /// Requests to global memory by warp: loads, stores and atomics.
    global_requests,
    /// Sectors of 32 bytes that they take.
    global_sectors,
    /// Sectors beyond what the same bytes would take side by side.
    global_excess,
    /// Requests to shared memory by warp.
    shared_requests,
    /// Wavefronts that they take.
    shared_wavefronts,
    /// Wavefronts beyond what they would take without bank conflicts.
    shared_excess,
    /// Turns of atomics: of each request as many as threads access the same address, at the address
    /// that most of them access.
    atomic_turns,
    /// Branch instructions, by warp.
    branches,
    /// Branches that threads of a warp took differently.
    divergent_branches,
}

impl LineCounts {
    /// Threads that execute an instruction together, on average; 0 if nothing ran.
    pub fn active_threads(&self) -> f64 {
        self.thread_instructions as f64 / self.warp_instructions.max(1) as f64
    }

    /// Returns the faults of the line.
    pub fn faults(&self) -> impl Iterator<Item = Fault> + use<> {
        let faults = [
            (Fault::Uncoalesced, self.global_excess),
            (Fault::BankConflict, self.shared_excess),
            (Fault::Divergence, self.divergent_branches),
        ];
        faults.into_iter().filter(|&(_, excess)| excess > 0).map(|(fault, _)| fault)
    }
}

impl AddAssign<&LineCounts> for LineCounts {
    fn add_assign(&mut self, other: &LineCounts) {
        let sums = self.values_mut().into_iter().zip(other.values());
        sums.for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}
