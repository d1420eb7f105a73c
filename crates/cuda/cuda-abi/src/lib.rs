//! The CUDA driver's ABI: its types, and the one table of its entry points.
//!
//! Everything in APEX that exports, forwards, names or counts driver calls takes it from here. The
//! table is generated from NVIDIA's headers by `cargo xtask abi-gen`; names, types and versions are
//! facts, and nothing else of the headers is here. Invariants:
//!
//! 1. [`ENTRY_POINTS`], [`index`] and [`for_each_entry_point!`] come from the same rows: a symbol
//!    has the same index in each. Indices are those of the sorted symbols; they change when the
//!    table is regenerated and are never stored.
//! 2. Every symbol that the headers declare is in the table: each `_vN`, `_ptsz` and `_ptds` form.
//! 3. [`signature`] has a type for each of them, and none for those that no header declares
//!    ([`Header::Undeclared`]), which can therefore only be jumped to.
//! 4. Types have the layout that a C compiler gives them on x86-64 Linux (asserted at compile time;
//!    held against a compiler by the test `layout`). Enumerations are integers: a newer driver may
//!    return what the table lacks.
//!
//! The crate links nothing, CUDA least of all, and needs no standard library.
#![no_std]

mod constants;
mod entry_points;
mod plain;
mod result;
pub mod signature;
mod table;
pub mod trampoline;
pub mod types;

pub use entry_points::{ENTRY_POINTS, index};
pub use plain::Plain;
pub use table::{COUNT, TOOLKIT_VERSION};

/// The description of an exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// As exported: `cuMemcpyHtoD_v2_ptds`.
    pub symbol: &'static str,
    /// As `cuGetProcAddress` knows it: `cuMemcpyHtoD`.
    pub base: &'static str,
    /// The `CUDA_VERSION` that brought it, such as 7000; 0 where no header declares it.
    pub version: u32,
    /// The meaning of stream 0.
    pub stream: StreamMode,
    /// The header that declares it.
    pub header: Header,
}

/// The meaning of stream 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMode {
    /// The legacy default stream, which synchronises with all others; or the function takes no
    /// stream.
    Legacy,
    /// The calling thread's own default stream: the `_ptsz` and `_ptds` forms.
    PerThread,
}

/// The header that declares an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// `cuda.h`
    Core,
    /// `cudaGL.h`
    Gl,
    /// `cudaEGL.h`
    Egl,
    /// `cudaVDPAU.h`
    Vdpau,
    /// `cudaProfiler.h`
    Profiler,
    /// None: the driver exports it all the same.
    Undeclared,
}

/// The index of an exported symbol.
///
/// ```
/// use cuda_abi::{ENTRY_POINTS, find, index};
/// assert_eq!(find("cuLaunchKernel_ptsz"), Some(index::cuLaunchKernel_ptsz));
/// assert_eq!(ENTRY_POINTS[index::cuLaunchKernel_ptsz].base, "cuLaunchKernel");
/// assert_eq!(find("cuFlyToTheMoon"), None);
/// ```
pub fn find(symbol: &str) -> Option<usize> {
    ENTRY_POINTS.binary_search_by(|entry| entry.symbol.cmp(symbol)).ok()
}

/// Resolves `cuGetProcAddress(base, cuda_version)`: returns the index of the newest form of `base`
/// that `cuda_version` (such as 12080) has; of its per-thread forms if `per_thread` is set and it
/// has one, else of its legacy forms.
///
/// A symbol is not a base name: the driver does not know `cuMemAlloc_v2`, and this function does
/// not either.
///
/// ```
/// use cuda_abi::{ENTRY_POINTS, resolve};
/// let symbol = |base, version, per_thread| Some(ENTRY_POINTS[resolve(base, version, per_thread)?].symbol);
/// assert_eq!(symbol("cuMemAlloc", 13000, false), Some("cuMemAlloc_v2"));
/// assert_eq!(symbol("cuMemAlloc", 3000, false), Some("cuMemAlloc"));
/// assert_eq!(symbol("cuMemcpyHtoD", 13000, true), Some("cuMemcpyHtoD_v2_ptds"));
/// assert_eq!(symbol("cuMemAlloc_v2", 13000, false), None);
/// ```
pub fn resolve(base: &str, cuda_version: u32, per_thread: bool) -> Option<usize> {
    let forms = |at: &u16| &ENTRY_POINTS[usize::from(*at)];
    let first = table::BY_BASE.partition_point(|at| forms(at).base < base);
    let family = table::BY_BASE[first..].iter().take_while(|at| forms(at).base == base);
    // A family is sorted by stream mode, then version: the last that fits is the newest, per-thread
    // if allowed.
    let fits = |at: &&u16| {
        forms(at).version <= cuda_version && (per_thread || forms(at).stream == StreamMode::Legacy)
    };
    family.filter(fits).last().map(|at| usize::from(*at))
}
