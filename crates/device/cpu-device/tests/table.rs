//! The table of entry points: what is found by name, what is refused, what is said to be done.

mod common;

use apex_cpu_device::{Coverage, EXPORTED, coverage, slots::SLOTS};
use common::{Context, cu, fails, ok};
use cuda_abi::types::*;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The version that `cuDriverGetVersion` returns.
const DRIVER_VERSION: u32 = 13_000;

/// Looks a name up: returns the index of the exported symbol that has the address, and the status.
fn find(name: &str, version: i32, flags: u32) -> (Option<&'static str>, CUdriverProcAddressQueryResult) {
    let name = CString::new(name).unwrap();
    let (mut address, mut status) = (std::ptr::null_mut(), 99);
    ok!(cuGetProcAddress_v2(name.as_ptr(), &mut address, version, flags.into(), &mut status));
    let index = EXPORTED.iter().position(|exported| *exported as *mut c_void == address);
    (index.map(|index| cuda_abi::ENTRY_POINTS[index].symbol), status)
}

#[test]
fn functions_are_found_by_name_version_and_stream() {
    let per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    let found = CU_GET_PROC_ADDRESS_SUCCESS;
    assert_eq!(find("cuMemAlloc", 13000, 0), (Some("cuMemAlloc_v2"), found));
    assert_eq!(find("cuLaunchKernel", 12000, 0), (Some("cuLaunchKernel"), found));
    assert_eq!(find("cuLaunchKernel", 12000, per_thread), (Some("cuLaunchKernel_ptsz"), found));
    assert_eq!(find("cuMemcpyHtoD", 12000, per_thread), (Some("cuMemcpyHtoD_v2_ptds"), found));
    assert_eq!(find("cuLaunchKernelEx", 11000, 0), (None, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    assert_eq!(find("cuNothing", 13000, 0), (None, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    let mut address = std::ptr::null_mut();
    fails!(CUDA_ERROR_NOT_FOUND, cuGetProcAddress(c"cuNothing".as_ptr(), &mut address, 13000, 0));
    fails!(CUDA_ERROR_NOT_FOUND, cuGetProcAddress(c"cuLaunchKernelEx".as_ptr(), &mut address, 11050, 0));
    // Asked for or not, the status has the answer.
    for (name, version) in [(c"cuNothing", 0), (c"cuLaunchKernelEx", 11050), (c"cuInit", 0), (c"", 12000)] {
        let mut address = std::ptr::dangling_mut();
        let none = std::ptr::null_mut();
        ok!(cuGetProcAddress_v2(name.as_ptr(), &mut address, version, 0, none));
        assert!(address.is_null(), "{name:?}");
    }
    assert_eq!(find("cuInit", -1, 0), (Some("cuInit"), found), "every version");
    assert_eq!(find("cuInit", 12000, 3).0, Some("cuInit"));
    for (name, version, flags) in
        [(c"cuInit", 13001, 0), (c"cuNothing", 99000, 0), (c"cuInit", 12000, 4), (c"cuInit", 12000, 8)]
    {
        let mut status = 77;
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGetProcAddress_v2(name.as_ptr(), &mut address, version, flags, &mut status)
        );
        assert_eq!(status, 77, "{name:?} {version} {flags}");
        fails!(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress(name.as_ptr(), &mut address, version, flags));
    }
    // The address that is found is the function: no context is needed for this one.
    ok!(cuGetProcAddress(c"cuDriverGetVersion".as_ptr(), &mut address, 13000, 0));
    let mut version = 0;
    // SAFETY: the address was asked for by this name.
    let get_version: cuda_abi::signature::cuDriverGetVersion = unsafe { std::mem::transmute(address) };
    // SAFETY: the pointer is to a local.
    assert_eq!(unsafe { get_version(&mut version) }, CUDA_SUCCESS);
    assert!(version >= 13000);
}

#[test]
fn what_is_not_implemented_says_so() {
    let _context = Context::new();
    let mut texture = std::ptr::null_mut();
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuTexRefCreate(&mut texture));
    let refused = coverage().find(|(symbol, _)| *symbol == "cuTexRefCreate").unwrap();
    assert!(matches!(refused.1, Coverage::Refused(_)));
}

#[test]
fn coverage_is_what_the_slots_say() {
    let covered: BTreeMap<&str, Coverage> = coverage().collect();
    assert_eq!(covered.len(), cuda_abi::COUNT);
    // Refusals lie side by side, at one distance, in the order of the table.
    let place = |index: usize| SLOTS[index].load(Ordering::Relaxed).addr().wrapping_sub(index * 16);
    let refusal = place(cuda_abi::index::cuTexRefCreate);
    for (index, entry) in cuda_abi::ENTRY_POINTS.iter().enumerate() {
        let refused = place(index) == refusal;
        assert_eq!(matches!(covered[entry.symbol], Coverage::Refused(_)), refused, "{}", entry.symbol);
    }
    let done = covered.values().filter(|coverage| **coverage == Coverage::Done).count();
    assert!(done >= 250, "{done} entry points are done");
}

#[test]
fn every_code_has_a_name_and_a_meaning() {
    let mut text = std::ptr::null();
    ok!(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &mut text));
    // SAFETY: the call has just told where the text is.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_ILLEGAL_ADDRESS");
    ok!(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &mut text));
    // SAFETY: as above.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"an illegal memory access was encountered");
    for (code, expected) in [
        (CUDA_SUCCESS, c"no error"),
        (CUDA_ERROR_INVALID_VALUE, c"invalid argument"),
        (CUDA_ERROR_UNSUPPORTED_PTX_VERSION, c"the provided PTX was compiled with an unsupported toolchain."),
        (CUDA_ERROR_UNKNOWN, c"unknown error"),
    ] {
        ok!(cuGetErrorString(code, &mut text));
        // SAFETY: as above.
        assert_eq!(unsafe { CStr::from_ptr(text) }, expected);
    }
    fails!(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(12345, &mut text));
    assert!(text.is_null());
}

#[test]
fn what_is_refused_answers_at_the_address_that_is_found() {
    let mut address = std::ptr::null_mut();
    ok!(cuGetProcAddress(c"cuGraphicsMapResources".as_ptr(), &mut address, 13000, 0));
    // SAFETY: the address was asked for by this name.
    let map: cuda_abi::signature::cuGraphicsMapResources = unsafe { std::mem::transmute(address) };
    // SAFETY: it looks at none of its arguments.
    assert_eq!(unsafe { map(0, std::ptr::null_mut(), std::ptr::null_mut()) }, CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(find("cuGraphicsMapResources", 13000, 0).0, Some("cuGraphicsMapResources"));
}

/// The library as programs load it.
struct Loaded(*mut c_void);

impl Loaded {
    fn open(path: &Path, flags: i32) -> Loaded {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a C string; the library does nothing when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | flags) };
        assert!(!handle.is_null(), "{path:?} does not load");
        Loaded(handle)
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: an open library and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

/// The shared library that cargo has built beside this test.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    folder.join("libapex_cpu_device.so")
}

#[test]
fn every_answer_of_get_proc_address_is_what_dlsym_finds() {
    // A library with the same symbols comes first in everybody's scope, as `libapex.so` does.
    let copy = std::env::temp_dir().join(format!("apex-first-libcuda-{}.so", std::process::id()));
    std::fs::copy(library(), &copy).unwrap();
    let _first = Loaded::open(&copy, libc::RTLD_GLOBAL);
    std::fs::remove_file(&copy).unwrap();
    let library = Loaded::open(&library(), libc::RTLD_LOCAL);
    // SAFETY: the exported symbols have these types.
    let (get, get_v2) = unsafe {
        (
            std::mem::transmute::<*mut c_void, cuda_abi::signature::cuGetProcAddress>(
                library.symbol("cuGetProcAddress"),
            ),
            std::mem::transmute::<*mut c_void, cuda_abi::signature::cuGetProcAddress_v2>(
                library.symbol("cuGetProcAddress_v2"),
            ),
        )
    };
    let mut versions: Vec<u32> = cuda_abi::ENTRY_POINTS.iter().map(|entry| entry.version).collect();
    versions.extend([1, 13_000, 99_000]);
    versions.sort_unstable();
    versions.dedup();
    let flags = [0, CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM];
    let mut answers = 0;
    for (index, entry) in cuda_abi::ENTRY_POINTS.iter().enumerate() {
        let known_before =
            index.checked_sub(1).is_some_and(|at| cuda_abi::ENTRY_POINTS[at].base == entry.base);
        if known_before {
            continue;
        }
        let base = CString::new(entry.base).unwrap();
        for (version, flags) in versions.iter().flat_map(|version| flags.map(|flags| (*version, flags))) {
            let per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
            // The driver refuses to speak of versions that it does not have.
            let meant =
                cuda_abi::resolve(entry.base, version, per_thread).filter(|_| version <= DRIVER_VERSION);
            let exported = meant
                .map_or(std::ptr::null_mut(), |index| library.symbol(cuda_abi::ENTRY_POINTS[index].symbol));
            let (mut old, mut new, mut status) = (std::ptr::null_mut(), std::ptr::null_mut(), 99);
            // SAFETY: C strings, and pointers to locals.
            unsafe {
                get(base.as_ptr(), &mut old, version as i32, flags.into());
                get_v2(base.as_ptr(), &mut new, version as i32, flags.into(), &mut status);
            }
            assert_eq!((old, new), (exported, exported), "{} {version} {flags}", entry.base);
            assert_eq!(status == CU_GET_PROC_ADDRESS_SUCCESS, meant.is_some(), "{} {version}", entry.base);
            answers += u32::from(meant.is_some());
        }
    }
    assert!(answers > 10_000, "{answers} answers");
}
