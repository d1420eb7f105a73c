//! The effect of calls without a hook on the memory pool.
//!
//! A hook knows what a call does; of an entry point without a hook only the name is known.
//! [`RULES`] is the only source: the longest prefix of a base name decides. An entry point that no
//! rule names closes the pool, so an unknown entry point cannot do harm. Calls that pass the launch
//! queue ([`crate::actions::queue::order`]) do not depend on anything that the pool changes.

use crate::actions::queue::order::{self, Order};
use Meaning::{Closes, GivesBack, Nothing};
use cuda_abi::ENTRY_POINTS;

/// The effect of a call on the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing: it neither submits work, nor needs or sees memory that the pool keeps.
    Nothing,
    /// It needs device memory, or sees how much there is: idle blocks are given back first.
    GivesBack,
    /// It submits work that nobody watches, or lets others use memory: the pool closes for good.
    Closes,
}

const RULES: &[(&str, Meaning)] = &[
    ("cuArray", Nothing),
    ("cuCheckpoint", GivesBack),
    ("cuCoredump", Nothing),
    ("cuCtxAttach", Nothing),
    ("cuCtxGet", Nothing),
    ("cuCtxReset", Nothing),
    ("cuCtxSet", Nothing),
    ("cuCtxSetLimit", GivesBack),
    ("cuDevice", Nothing),
    ("cuEventElapsedTime", Nothing),
    ("cuFlushGPUDirectRDMAWrites", Nothing),
    ("cuFunc", Nothing),
    ("cuFuncLoad", GivesBack),
    ("cuGraphAdd", Nothing),
    ("cuGraphBatch", Nothing),
    ("cuGraphChild", Nothing),
    ("cuGraphClone", Nothing),
    ("cuGraphConditional", Nothing),
    ("cuGraphCreate", Nothing),
    ("cuGraphDe", Nothing),
    ("cuGraphEvent", Nothing),
    ("cuGraphExec", Nothing),
    ("cuGraphGet", Nothing),
    ("cuGraphHost", Nothing),
    ("cuGraphKernel", Nothing),
    ("cuGraphMem", Nothing),
    ("cuGraphNode", Nothing),
    ("cuGraphRe", Nothing),
    ("cuIpcGetEventHandle", Nothing),
    ("cuIpcOpenEventHandle", Nothing),
    ("cuKernelSet", Nothing),
    ("cuLibrary", GivesBack),
    ("cuLibraryEnumerateKernels", Nothing),
    ("cuLibraryGetKernelCount", Nothing),
    ("cuLink", Nothing),
    ("cuLogs", Nothing),
    ("cuMemAddress", Nothing),
    ("cuMemAdvise", Nothing),
    ("cuMemExportToShareableHandle", Nothing),
    ("cuMemGetAccess", Nothing),
    ("cuMemGetAllocationPropertiesFromHandle", Nothing),
    ("cuMemGetDefaultMemPool", Nothing),
    ("cuMemGetInfo", GivesBack),
    ("cuMemGetMemPool", Nothing),
    ("cuMemImportFromShareableHandle", Nothing),
    ("cuMemPool", Nothing),
    ("cuMemRangeGetAttribute", Nothing),
    ("cuMemRetainAllocationHandle", Nothing),
    ("cuMemSetAccess", Nothing),
    ("cuMemSetMemPool", Nothing),
    ("cuMipmappedArray", Nothing),
    ("cuModule", GivesBack),
    ("cuModuleEnumerateFunctions", Nothing),
    ("cuModuleGetFunctionCount", Nothing),
    ("cuParam", Nothing),
    ("cuProfiler", Nothing),
    ("cuStreamCopyAttributes", Nothing),
    ("cuStreamGet", Nothing),
    ("cuStreamSetAttribute", Nothing),
    ("cuStreamUpdateCaptureDependencies", Nothing),
    ("cuSurf", Nothing),
    ("cuTensorMap", Nothing),
    ("cuTex", Nothing),
    ("cuUserObject", Nothing),
];

/// Returns the effect of calls of the entry point at `index`, which has no hook, on the pool.
pub fn of(index: usize) -> Meaning {
    if order::of(index).0 == Order::Passes {
        return Nothing;
    }
    let base = ENTRY_POINTS[index].base;
    let fitting = RULES.iter().filter(|(beginning, _)| base.starts_with(beginning));
    fitting.max_by_key(|(beginning, _)| beginning.len()).map_or(Closes, |&(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks;
    use cuda_abi::{COUNT, index};

    #[test]
    fn what_submits_work_without_a_hook_or_shares_memory_closes_the_pool() {
        for index in [
            index::cuStreamWriteValue32_v2,
            index::cuStreamBatchMemOp,
            index::cuSignalExternalSemaphoresAsync,
            index::cuMemBatchDecompressAsync,
            index::cuGraphicsMapResources,
            index::cuCtxEnablePeerAccess,
            index::cuMemGetHandleForAddressRange,
            index::cuPointerSetAttribute,
            index::cuGreenCtxCreate,
        ] {
            assert_eq!(of(index), Closes, "{}", ENTRY_POINTS[index].symbol);
        }
        assert_eq!(of(index::cuMemGetInfo_v2), GivesBack);
        assert_eq!(of(index::cuStreamGetFlags), Nothing);
    }

    #[test]
    fn no_rule_is_without_an_entry_point_that_has_no_hook() {
        let tells_nothing = |index: &usize| !hooks::has(*index) || !hooks::is_seen_by_pool(*index);
        let without: Vec<&str> =
            (0..COUNT).filter(tells_nothing).map(|index| ENTRY_POINTS[index].base).collect();
        for (beginning, _) in RULES {
            assert!(without.iter().any(|base| base.starts_with(beginning)), "{beginning}");
        }
    }
}
