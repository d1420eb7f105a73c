//! The coverage of the driver's entry points: supported, in part, or the reason why not.
//!
//! What is declared with [`entries!`](crate::entry) is done, wholly or with an exception;
//! everything else answers `CUDA_ERROR_NOT_SUPPORTED`. `docs/coverage-driver.md` is made from this.

use cuda_abi::{COUNT, ENTRY_POINTS};

/// The extent to which an entry point is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// It does what CUDA documents.
    Done,
    /// It does, with the exception given.
    Partly(&'static str),
    /// It answers `CUDA_ERROR_NOT_SUPPORTED`, for the reason given.
    Refused(&'static str),
}

/// Every entry point of the driver with how far it is implemented here, in the order of the ABI's
/// table.
pub fn coverage() -> impl Iterator<Item = (&'static str, Coverage)> {
    let mut declared = [None; COUNT];
    for entry in crate::api::ALL.iter().flat_map(|list| list.iter()) {
        for (index, _) in [entry.function].into_iter().chain(entry.per_thread) {
            declared[index] = Some(entry.limit.map_or(Coverage::Done, Coverage::Partly));
        }
    }
    ENTRY_POINTS.iter().zip(declared).map(|(entry, declared)| {
        (entry.symbol, declared.unwrap_or_else(|| Coverage::Refused(refusal(entry.symbol))))
    })
}

/// Returns the reason why an undeclared entry point is not implemented.
pub(crate) fn refusal(symbol: &str) -> &'static str {
    let family = FAMILIES.iter().find(|(names, _)| names.iter().any(|name| symbol.contains(name)));
    family.map_or(OLD_FORM, |(_, reason)| reason)
}

/// Whether a call of an entry point that is not implemented uses a feature, and does not only query
/// information or use an old form. Such calls are reported even without `APEX_CPU_TRACE`.
pub(crate) fn is_feature(symbol: &str) -> bool {
    FEATURES.iter().any(|name| symbol.contains(name))
}

/// Parts of names of entry points that stand for a feature.
const FEATURES: &[&str] = &[
    "cuGraphicsGL",
    "cuGraphicsEGL",
    "cuGraphicsMap",
    "cuImport",
    "cuEGLStream",
    "cuGreenCtxCreate",
    "cuMulticastCreate",
    "cuTensorMapEncode",
    "MemPoolExport",
    "MemPoolImport",
    "Recapture",
    "BatchMemOpNode",
    "ExternalSemaphores",
    "cuMemMapArrayAsync",
    "SparseProperties",
    "cuTexRefSet",
    "cuSurfRefSet",
    "cuModuleGetTexRef",
    "cuModuleGetSurfRef",
    "cuMemBatchDecompressAsync",
];

/// The reason if no family matches: `cuMemAlloc` beside `cuMemAlloc_v2`.
const OLD_FORM: &str = "an old form; programs built since CUDA 4 use its successor";

/// Parts of names, and why the entry points that have one of them are refused. The first match
/// counts.
const FAMILIES: &[(&[&str], &str)] = &[
    (&["cuGL", "EGL", "cuGraphics", "VDPAU"], "graphics interoperability"),
    (&["External", "NvSci"], "external memory and semaphores"),
    (&["ToCig", "Luid"], "graphics interoperability of streams"),
    (&["Green", "DevResource", "DevSmResource", "ExecAffinity"], "multiprocessors cannot be partitioned"),
    (&["Multicast", "LogicalEndpoint", "Fabric", "Clique", "P2P", "MultiDevice"], "there is one device"),
    (&["TensorMap"], "of tensor maps there are those of tiles and of pixels only"),
    (&["Checkpoint", "Coredump"], "services of NVIDIA's driver beyond programs"),
    (&["cuLogsRegister", "cuLogsUnregister"], "the error log has no callbacks"),
    (&["AsyncNotification"], "the device sends no notifications"),
    (
        &["Sparse", "cuMemMapArrayAsync", "GetPlane", "ArrayGetMemoryRequirements"],
        "sparse, planar and deferred arrays",
    ),
    (&["Decompress"], "there is no decompression engine"),
    (
        &["MemPoolExport", "MemPoolImport"],
        "pools cannot be shared with other processes (allocations can: cuIpc…, cuMemExport…)",
    ),
    (&["GetHandleForAddressRange", "FlushGPUDirectRDMA"], "no other device transfers directly"),
    (&["Recapture"], "recapture of graphs"),
    (&["BatchMemOpNode"], "batches of stream memory operations in graphs"),
    (&["Discard", "PrefetchBatch", "WithAttributesAsync", "3DBatch", "AtomicCapabilities"], "new in CUDA 13"),
    (&["cuGraphAddNode_v3", "cuGraphNodeSetParams_v2"], "new in CUDA 13"),
    (&["cuCtxAttach", "cuCtxDetach", "cuProfilerInitialize"], "deprecated since CUDA 4 and 11"),
    (&["cuGraphNodeGetParams"], "what tools ask of graphs"),
    (&["Clusters", "ClusterSize"], "the occupancy of clusters is not computed"),
    (&["LocationInfo", "MemPool", "GetMemPool", "SetMemPool", "cuMemGetAttribute"], "new in CUDA 13"),
    (&["UnifiedFunction"], "functions have no address for host calls"),
    (
        &["cuTexRef", "cuSurfRef", "GetTexRef", "GetSurfRef", "SetTexRef"],
        "texture and surface references, which CUDA 12 removed",
    ),
    (&["ResourceViewDesc"], "texture objects have no resource views"),
];
