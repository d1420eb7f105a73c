//! The order that each entry point requires: its calls are queued, pass the queue by, or wait until
//! it is empty.
//!
//! [`RULES`] is the one source. A rule names the beginning of an entry point's base name; the
//! longest rule that fits decides. An entry point that no rule names waits, so one that this
//! library does not know can overtake nothing. `docs/fast-order.md` has the whole table; the test
//! `the_page_has_the_table` keeps it.

use Order::{HandedOver, Passes, PassesAgain, Waits};
use cuda_abi::{COUNT, ENTRY_POINTS};
use std::sync::OnceLock;

/// The treatment of a call by the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The call is queued where that is possible, else it waits until the ring is empty.
    HandedOver,
    /// The call goes to the driver at once: it neither depends on work that was queued nor
    /// changes what that work means.
    Passes,
    /// As `Passes` if the same call succeeded before and nothing changed since that it depends on,
    /// else as `Waits`.
    PassesAgain,
    /// The call waits until the ring is empty.
    Waits,
}

/// The rule for an entry point that no rule names.
const UNKNOWN: (Order, &str) = (Waits, "not known to the queue");

/// Beginnings of base names, what the queue does, and why.
const RULES: &[(&str, Order, &str)] = &[
    ("cuLaunchKernel", HandedOver, "copied with its parameters and attributes"),
    ("cuMemsetD8Async", HandedOver, "copied; the memory is the device's"),
    ("cuMemsetD16Async", HandedOver, "copied; the memory is the device's"),
    ("cuMemsetD32Async", HandedOver, "copied; the memory is the device's"),
    ("cuMemcpyDtoDAsync", HandedOver, "copied; source and destination are the device's"),
    ("cuEventRecord", HandedOver, "copied; it marks a place in the order of calls"),
    ("cuStreamWaitEvent", HandedOver, "copied; it waits for a place in the order of calls"),
    // What only asks about things that queued work does not change.
    ("cuCtxGetCurrent", Passes, "asks for the thread's own state"),
    ("cuCtxGetDevice", Passes, "asks for the thread's own state"),
    ("cuCtxGetDevResource", Waits, "reads state that other calls change"),
    ("cuCtxGetApiVersion", Passes, "asks for a constant"),
    ("cuCtxGetLimit", Passes, "limits change in calls that wait, and in first launches, which do too"),
    ("cuCtxGetFlags", Passes, "asks for a constant"),
    ("cuCtxGetId", Passes, "asks for a constant"),
    ("cuCtxGetStreamPriorityRange", Passes, "asks for a constant"),
    ("cuCtxSetCurrent", Passes, "changes the thread's own state; each call is queued with its context"),
    ("cuCtxPushCurrent", Passes, "changes the thread's own state; each call is queued with its context"),
    ("cuCtxPopCurrent", Passes, "changes the thread's own state; each call is queued with its context"),
    ("cuDeviceGet", Passes, "asks for a constant"),
    ("cuDeviceGetGraphMemAttribute", Waits, "reads what work has used"),
    ("cuDeviceGetMemPool", Waits, "reads state that other calls change"),
    ("cuDeviceCanAccessPeer", Passes, "asks for a constant"),
    ("cuDeviceComputeCapability", Passes, "asks for a constant"),
    ("cuDeviceTotalMem", Passes, "asks for a constant"),
    ("cuDevicePrimaryCtxGetState", Passes, "asks whether a context exists"),
    ("cuDriverGetVersion", Passes, "asks for a constant"),
    ("cuInit", Passes, "nothing can wait before it"),
    ("cuGetErrorName", Passes, "asks for a constant"),
    ("cuGetErrorString", Passes, "asks for a constant"),
    ("cuGetProcAddress", Passes, "asks for a constant"),
    ("cuGetExportTable", Passes, "its answer must come untouched, see ARCHITECTURE.md"),
    ("cuFuncGetAttribute", Passes, "asks about code that is loaded"),
    ("cuFuncGetModule", Passes, "asks about code that is loaded"),
    ("cuFuncGetName", Passes, "asks about code that is loaded"),
    ("cuFuncGetParam", Passes, "asks about code that is loaded"),
    ("cuKernelGetAttribute", Passes, "asks about code that is loaded"),
    ("cuKernelGetName", Passes, "asks about code that is loaded"),
    ("cuKernelGetLibrary", Passes, "asks about code that is loaded"),
    ("cuKernelGetParam", Passes, "asks about code that is loaded"),
    ("cuModuleGetLoadingMode", Passes, "asks for a constant"),
    ("cuOccupancy", Passes, "computes from attributes of code that is loaded"),
    ("cuPointerGetAttribute", Passes, "asks about an allocation; allocations change in calls that wait"),
    ("cuMemGetAddressRange", Passes, "asks about an allocation; allocations change in calls that wait"),
    ("cuMemHostGet", Passes, "asks about an allocation; allocations change in calls that wait"),
    ("cuMemGetAllocationGranularity", Passes, "asks for a constant"),
    ("cuStreamGetCtx", Passes, "asks for a constant of the stream"),
    ("cuStreamGetDevice", Passes, "asks for a constant of the stream"),
    ("cuStreamGetFlags", Passes, "asks for a constant of the stream"),
    ("cuStreamGetId", Passes, "asks for a constant of the stream"),
    ("cuStreamGetPriority", Passes, "asks for a constant of the stream"),
    ("cuStreamIsCapturing", Passes, "nothing is queued while a stream captures"),
    ("cuStreamGetCaptureInfo", Passes, "nothing is queued while a stream captures"),
    (
        "cuThreadExchangeStreamCaptureMode",
        Passes,
        "changes the thread's own state, which matters to captures alone",
    ),
    ("cuTensorMapEncode", Passes, "computes from its arguments"),
    // What waits, and why.
    ("cuStreamSynchronize", Waits, "waits for work"),
    ("cuEventSynchronize", Waits, "waits for work"),
    ("cuCtxSynchronize", Waits, "waits for work"),
    ("cuStreamQuery", Waits, "asks whether work is done"),
    ("cuEventQuery", Waits, "asks whether work is done"),
    ("cuEventElapsedTime", Waits, "reads what events recorded"),
    ("cuEventDestroy", Waits, "ends an event that work may name"),
    ("cuStreamDestroy", Waits, "ends a stream that work may name"),
    ("cuStreamBeginCapture", Waits, "from here on the stream's work is captured"),
    ("cuStreamBeginRecapture", Waits, "from here on the stream's work is captured"),
    ("cuStreamEndCapture", Waits, "ends a capture"),
    ("cuStreamWaitValue", Waits, "the GPU waits for memory that others write"),
    ("cuStreamWriteValue", Waits, "the GPU writes memory that others wait for"),
    ("cuStreamBatchMemOp", Waits, "the GPU waits for memory that others write"),
    ("cuStream", Waits, "makes or changes a stream"),
    ("cuEvent", Waits, "makes or changes an event"),
    ("cuLaunchHostFunc", Waits, "its function runs after the stream's work"),
    ("cuLaunchCooperative", Waits, "the driver may refuse it for what else runs"),
    ("cuLaunch", Waits, "its arguments were set by earlier calls"),
    ("cuParam", Waits, "sets arguments of a launch"),
    ("cuFuncSetAttribute", PassesAgain, "to set what is set changes nothing"),
    ("cuKernelSetAttribute", PassesAgain, "to set what is set changes nothing"),
    ("cuKernelGetFunction", PassesAgain, "its code is loaded when it was asked for before"),
    ("cuFunc", Waits, "changes or loads code that work may name"),
    ("cuKernel", Waits, "changes or loads code that work may name"),
    ("cuModule", Waits, "loads or ends code; loading may wait for the GPU"),
    ("cuLibrary", Waits, "loads or ends code; loading may wait for the GPU"),
    ("cuLink", Waits, "loads code"),
    ("cuGraph", Waits, "a graph is launched, made or changed in the order of calls"),
    ("cuMemAlloc", Waits, "changes what is allocated"),
    ("cuMemFree", Waits, "ends an allocation that work may use"),
    ("cuMemcpy", Waits, "the program may change or read host memory after it"),
    ("cuMemset", Waits, "it may wait for work"),
    ("cuMemPool", Waits, "changes what is allocated"),
    ("cuMem", Waits, "changes or reads what is allocated"),
    ("cuArray", Waits, "makes, ends or describes an array"),
    ("cuMipmappedArray", Waits, "makes, ends or describes an array"),
    ("cuTex", Waits, "makes or changes a texture that work may read"),
    ("cuSurf", Waits, "makes or changes a surface that work may use"),
    ("cuTensorMapReplaceAddress", Passes, "computes from its arguments"),
    ("cuCtx", Waits, "makes, ends or changes a context"),
    ("cuGreenCtx", Waits, "makes, ends or changes a context"),
    ("cuDevice", Waits, "changes a device's state"),
    ("cuDevResource", Waits, "divides a device"),
    ("cuDevSmResource", Waits, "divides a device"),
    ("cuIpc", Waits, "another process sees it"),
    ("cuImportExternal", Waits, "another program sees it"),
    ("cuExternal", Waits, "another program sees it"),
    ("cuDestroyExternal", Waits, "another program sees it"),
    ("cuSignalExternal", Waits, "another program waits for it"),
    ("cuWaitExternal", Waits, "it waits for another program"),
    ("cuMulticast", Waits, "several devices see it"),
    ("cuFabric", Waits, "another machine sees it"),
    ("cuLogicalEndpoint", Waits, "another machine sees it"),
    ("cuLogs", Waits, "what it reads may speak of work"),
    ("cuTensorMap", Waits, "changes a tensor map that work may read"),
    ("cuFlushGPUDirectRDMAWrites", Waits, "another device waits for it"),
    ("cuProfiler", Waits, "marks a moment in the order of calls"),
    ("cuCheckpoint", Waits, "stops the process"),
    ("cuCoredump", Waits, "changes what a fault writes"),
    ("cuPointerSetAttribute", Waits, "changes an allocation"),
    ("cuUserObject", Waits, "ends objects after work"),
    ("cuEGL", Waits, "another interface sees it"),
    ("cuGL", Waits, "another interface sees it"),
    ("cuVDPAU", Waits, "another interface sees it"),
    ("cuGraphics", Waits, "another interface sees it"),
];

/// Entry points that pass although they must not; see [`let_pass`].
static WRONGLY_PASSING: OnceLock<fn(&str) -> bool> = OnceLock::new();

/// Lets calls pass the queue that must not, by base name: what a test does to see whether it would
/// notice. To be called before the first driver call.
pub fn let_pass(which: fn(&str) -> bool) {
    WRONGLY_PASSING.get_or_init(|| which);
}

/// Returns the treatment of calls of the entry point at `index`, and the reason.
pub fn of(index: usize) -> (Order, &'static str) {
    let base = ENTRY_POINTS[index].base;
    if WRONGLY_PASSING.get().is_some_and(|passes| passes(base)) {
        return (Passes, "a test plants a fault");
    }
    let fitting = RULES.iter().filter(|(beginning, ..)| base.starts_with(beginning));
    fitting.max_by_key(|(beginning, ..)| beginning.len()).map_or(UNKNOWN, |&(_, order, why)| (order, why))
}

/// Whether calls of the entry point at `index` end code or a context, to which graphs of the
/// queue's own may belong.
#[inline(always)]
pub fn ends_code(index: usize) -> bool {
    use cuda_abi::index;
    matches!(
        index,
        index::cuCtxDestroy
            | index::cuCtxDestroy_v2
            | index::cuCtxDetach
            | index::cuDevicePrimaryCtxRelease
            | index::cuDevicePrimaryCtxRelease_v2
            | index::cuDevicePrimaryCtxReset
            | index::cuDevicePrimaryCtxReset_v2
            | index::cuModuleUnload
            | index::cuLibraryUnload
    )
}

/// Whether calls of the entry point at `index` end an event.
#[inline(always)]
pub fn destroys_event(index: usize) -> bool {
    matches!(index, cuda_abi::index::cuEventDestroy | cuda_abi::index::cuEventDestroy_v2)
}

/// The table of `docs/fast-order.md`: entry points with the same base name, order and reason share
/// a row.
pub fn table() -> String {
    let mut rows: Vec<(&str, Order, &str)> = (0..COUNT)
        .map(|index| {
            let (order, why) = of(index);
            (ENTRY_POINTS[index].base, order, why)
        })
        .collect();
    rows.dedup();
    let mut text = String::from("| entry point | the queue | because |\n| --- | --- | --- |\n");
    for (base, order, why) in rows {
        let order = match order {
            HandedOver => "takes it",
            Passes => "lets it pass",
            PassesAgain => "lets it pass once the same call succeeded",
            Waits => "is emptied first",
        };
        text.push_str(&format!("| `{base}` | {order} | {why} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks;
    use cuda_abi::index;

    #[test]
    fn the_page_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/fast-order.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (head, _) = page.split_once("| entry point |").expect("a table");
        test_golden::assert_file(path, &format!("{head}{}", table()));
    }

    #[test]
    fn what_is_handed_over_has_a_hook_or_waits() {
        for (index, hook) in hooks::queued::table().iter().enumerate() {
            let order = of(index).0;
            assert!(
                hook.is_none() || matches!(order, HandedOver | PassesAgain),
                "{}",
                ENTRY_POINTS[index].symbol
            );
            assert!(hook.is_some() || order != PassesAgain, "{}", ENTRY_POINTS[index].symbol);
        }
    }

    #[test]
    fn the_longest_rule_decides_and_what_no_rule_names_waits() {
        assert_eq!(of(index::cuStreamWaitEvent).0, HandedOver);
        assert_eq!(of(index::cuStreamWaitValue32).0, Waits);
        assert_eq!(of(index::cuStreamGetPriority).0, Passes);
        assert_eq!(of(index::cuFuncSetAttribute).0, PassesAgain);
        assert_eq!(of(index::cuFuncSetCacheConfig).0, Waits);
        assert_eq!(of(index::cuDeviceGetGraphMemAttribute).0, Waits);
        let unknown =
            (0..COUNT).filter(|&index| of(index).1 == UNKNOWN.1).map(|index| ENTRY_POINTS[index].base);
        assert_eq!(unknown.collect::<Vec<_>>(), [""; 0], "every entry point of the table has a reason");
    }

    #[test]
    fn no_rule_is_without_an_entry_point() {
        for (beginning, ..) in RULES {
            assert!(ENTRY_POINTS.iter().any(|entry| entry.base.starts_with(beginning)), "{beginning}");
        }
    }
}
