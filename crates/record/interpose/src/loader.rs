//! The first driver call: finds the real driver and fills the slots.
//!
//! Until then this library does nothing; it is loaded into every process of the program's tree,
//! shells included. Every exported symbol jumps through its slot, and every slot first holds a stub
//! that leads here.
//!
//! Initialisation takes no lock. Threads that arrive at the same time do the same work and store
//! the same addresses. No thread waits for another, so there is no deadlock with the dynamic
//! linker's lock, which a thread holds if it makes its first driver call from a library's
//! constructor. If the calling thread itself is opening the driver (the call comes from a
//! constructor of the driver), the call returns "not initialized".

use crate::actions::Slots;
use crate::driver;
use crate::hooks::actions;
use crate::message::say_once;
use crate::record;
use crate::stack::on_large_stack;
use crate::{flush, hooks};
use apex_conventions::locate::{self, FileId};
use apex_conventions::variables;
use cuda_abi::types::*;
use cuda_abi::{COUNT, ENTRY_POINTS, index};
use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

cuda_abi::lazy_resolver!(first_call, resolve);

/// The exported symbols. They are not meant to be called from Rust.
mod exports {
    cuda_abi::export_entry_points!(super::SLOTS);
    cuda_abi::exported_addresses!(EXPORTED);
}

/// Targets of the exported symbols. A slot holds the stub that leads to [`resolve`], a hook, the
/// real driver's address, the stub that runs the [`flush`] and then jumps there, or a stub that
/// returns an error without reading its arguments; each can be entered with the symbol's signature.
static SLOTS: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(first_call as *mut ()) }; COUNT];

thread_local! {
    /// Whether this thread is opening the driver.
    static OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Finds the address for the slot at `index`. Called by [`first_call`].
extern "C" fn resolve(index: usize) -> *const () {
    if OPENING.get() {
        return not_initialized as *const ();
    }
    OPENING.set(true);
    // Nothing in here is meant to panic; if it does all the same, the program goes on without a
    // driver.
    if on_large_stack(|| std::panic::catch_unwind(start).is_err()) {
        fill(|_| no_device as *mut ());
    }
    OPENING.set(false);
    SLOTS[index].load(Ordering::Acquire)
}

fn start() {
    match open_driver() {
        Ok(driver) => connect(driver),
        Err(problem) => {
            HAS_FAILED.store(true, Ordering::Release);
            if variables::SESSION.path().is_some() && !variables::DISABLE.is_on() {
                say_once(&problem);
            }
            fill(without_driver);
        }
    }
}

/// Fills the tables from an open driver: first every real address, then the slots, so that a hook
/// that is entered finds what it forwards to.
fn connect(library: Library) {
    let look_up = genuine_dlsym();
    for (index, entry) in ENTRY_POINTS.iter().enumerate() {
        driver::set_real(index, library.symbol(look_up, entry.symbol));
    }
    let is_disabled = variables::DISABLE.is_on();
    let recorder = if is_disabled { None } else { record::start(hooks::has) };
    let actions = recorder.map_or_else(Vec::new, |recorder| actions::start(recorder, SETTINGS));
    let holding = match &actions[..] {
        [] if is_disabled || !flush::is_registered() => None,
        [] => Some(&actions::ALWAYS),
        actions => actions.iter().find_map(|action| action.holding.as_ref()),
    };
    hooks::substitute_by(address_for_program);
    for index in 0..COUNT {
        let is_known = driver::has(index);
        // What is looked up must lead through the slots, whatever these hold.
        let has_hook = recorder.is_some() || holding.is_some() && hooks::gives_addresses(index);
        let hook = actions.iter().find_map(|action| (action.hook)(index)).or(hooks::table()[index]);
        let behind = match hook {
            Some(hook) if has_hook && is_known => hook.address.cast_mut(),
            _ => driver::real(index),
        };
        let is_watched = is_known && actions.iter().any(|action| (action.watches)(index));
        let direct = if is_watched { flush::slot(index, behind) } else { behind };
        let holder = holding.filter(|_| is_known && !is_watched);
        let held = holder.map_or(direct, |holding| (holding.slot)(index, behind));
        let begins = holding.is_some_and(|holding| (holding.begins)(index));
        DIRECT[index].store(direct, Ordering::Release);
        HOLDING[index].store(held, Ordering::Release);
        ARMED[index].store(if begins { held } else { direct }, Ordering::Release);
    }
    match holding {
        Some(holding) => (holding.first)(SETTINGS),
        None => release(),
    }
}

/// Contents of the slots while nothing is held back, while work may be held back, and until a call
/// holds some back.
static DIRECT: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];
static HOLDING: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];
static ARMED: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

/// The functions by which actions set the slots.
const SETTINGS: Slots = Slots { hold, arm, release };

/// Work may be held back from here on.
fn hold() {
    fill(|index| HOLDING[index].load(Ordering::Acquire));
}

/// Nothing is held back from here on, and the next call that may begin that comes to its action.
fn arm() {
    fill(|index| ARMED[index].load(Ordering::Acquire));
}

/// Nothing is held back from here on.
fn release() {
    fill(|index| DIRECT[index].load(Ordering::Acquire));
}

/// Returns the address that a program gets for the entry point at `index`: the exported symbol, as
/// the driver gives its own, because tools that stand in front compare addresses. `None` for the
/// driver's own answer.
fn address_for_program(index: usize) -> Option<*mut ()> {
    driver::has(index).then(|| exports::EXPORTED[index] as *mut ())
}

fn fill(address: impl Fn(usize) -> *mut ()) {
    for (index, slot) in SLOTS.iter().enumerate() {
        slot.store(address(index), Ordering::Release);
    }
}

/// A driver's file.
pub struct Driver {
    pub path: PathBuf,
    pub id: FileId,
}

/// The driver to forward to: what the program has opened by its path before its first call, or what
/// was opened at that call. Null before; never freed.
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(null_mut());

/// Whether the first call has found no driver.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// The driver that is forwarded to from now on is `driver`, unless there is one already. Returns
/// whether it is this one.
pub fn forwards_to(driver: Driver) -> bool {
    if HAS_FAILED.load(Ordering::Acquire) {
        return false;
    }
    let id = driver.id;
    let driver = Box::into_raw(Box::new(driver));
    match DRIVER.compare_exchange(null_mut(), driver, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(first) => {
            // SAFETY: made above, and given to nobody.
            drop(unsafe { Box::from_raw(driver) });
            // SAFETY: not null, so it was stored above and is never freed.
            unsafe { (*first).id == id }
        }
    }
}

/// Whether the calling thread is opening the driver.
pub fn is_opening() -> bool {
    OPENING.get()
}

/// The driver that the program has opened by its path, if it has; a first call without that says
/// which driver it is.
fn opened_by_path() -> Option<PathBuf> {
    // SAFETY: null, or stored by `forwards_to` and never freed.
    unsafe { DRIVER.load(Ordering::Acquire).as_ref() }.map(|driver| driver.path.clone())
}

/// The real driver, opened; or why there is none, in a sentence for the user.
fn open_driver() -> Result<Library, String> {
    let ours = own_file();
    if let Some(path) = variables::DRIVER.path() {
        if ours.is_some() && FileId::of(&path) == ours {
            return Err(format!("{} is {} itself", variables::DRIVER.name, path.display()));
        }
        let named = |reason| {
            format!("cannot open {}, which {} names: {reason}", path.display(), variables::DRIVER.name)
        };
        return Library::open(&path).map_err(named);
    }
    let mut candidates = locate::candidates(ours.as_slice());
    candidates.splice(0..0, opened_by_path());
    let mut problem = format!("found no {} on this machine: no GPU driver is installed", locate::DRIVER_NAME);
    for path in &candidates {
        match Library::open(path) {
            Ok(driver) => {
                if let Some(id) = FileId::of(path) {
                    forwards_to(Driver { path: path.clone(), id });
                }
                return Ok(driver);
            }
            Err(reason) => problem = format!("cannot open the GPU driver {}: {reason}", path.display()),
        }
    }
    Err(problem)
}

/// This library's own file.
pub fn own_file() -> Option<FileId> {
    FileId::of(&own_path()?)
}

/// The path under which this library was loaded.
pub fn own_path() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is valid for writing; the address is only looked up.
    let found = unsafe { libc::dladdr((&raw const SLOTS).cast(), &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded: the name is a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// A library that stays open for good.
struct Library(NonNull<c_void>);

impl Library {
    /// Opens the file at an absolute path, out of the way of everybody else's symbols
    /// (`RTLD_LOCAL`) and preferring its own (`RTLD_DEEPBIND`): its internal calls must not come
    /// back to us.
    fn open(path: &Path) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
        // SAFETY: glibc's function, which has this type, and a C string. What the library's
        // constructors do is the driver's business.
        let opened =
            unsafe { std::mem::transmute::<*mut c_void, Open>(genuine_dlopen())(name.as_ptr(), flags) };
        NonNull::new(opened).map(Library).ok_or_else(last_error)
    }

    fn symbol(&self, look_up: LookUp, name: &str) -> Option<NonNull<()>> {
        let name = CString::new(name).ok()?;
        // SAFETY: an open library and a C string.
        NonNull::new(unsafe { look_up(self.0.as_ptr(), name.as_ptr()) }.cast())
    }
}

pub(crate) type LookUp = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// glibc's `dlopen`, which opens what it is told.
pub fn genuine_dlopen() -> *mut c_void {
    static GENUINE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    genuine(c"dlopen", c"GLIBC_2.2.5", &GENUINE)
}

/// glibc's function of a name, by its first version: that one is in every glibc, and the look-up of
/// a version seldom leads to a shim.
pub fn genuine(name: &CStr, version: &CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let mut found = known.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: C strings. What is found is behind this library, so it is not this library's.
        found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
        if found.is_null() {
            // SAFETY: as above.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        }
        known.store(found, Ordering::Relaxed);
    }
    found
}

/// glibc's `dlsym`. The one to which our own call would be bound may be that of a shim that the
/// user preloads: it would answer with the shim's functions, which forward to us, and a launch
/// would never arrive.
pub(crate) fn genuine_dlsym() -> LookUp {
    #[cfg(target_arch = "x86_64")]
    const FIRST_VERSION: &CStr = c"GLIBC_2.2.5";
    #[cfg(not(target_arch = "x86_64"))]
    const FIRST_VERSION: &CStr = c"GLIBC_2.17";
    for library in [c"libc.so.6", c"libdl.so.2"] {
        // SAFETY: C strings; a library that is loaded already, and stays; a symbol of this name and
        // version has this type.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            let found = libc::dlvsym(handle, c"dlsym".as_ptr(), FIRST_VERSION.as_ptr());
            libc::dlclose(handle);
            if !found.is_null() {
                return std::mem::transmute::<*mut c_void, LookUp>(found);
            }
        }
    }
    libc::dlsym
}

fn last_error() -> String {
    // SAFETY: gives null or a C string that lives until the next call in this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: not null, so a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the function of the entry at `index` if there is no driver: it behaves like a driver
/// that finds no device. Programs look up the text of the error that they get.
fn without_driver(entry: usize) -> *mut () {
    match entry {
        index::cuGetErrorName => error_name as *mut (),
        index::cuGetErrorString => error_string as *mut (),
        _ => no_device as *mut (),
    }
}

extern "C" fn no_device() -> CUresult {
    CUDA_ERROR_NO_DEVICE
}

extern "C" fn not_initialized() -> CUresult {
    CUDA_ERROR_NOT_INITIALIZED
}

unsafe extern "C" fn error_name(_: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller follows the driver's contract.
    unsafe { answer(text, c"CUDA_ERROR_NO_DEVICE") }
}

unsafe extern "C" fn error_string(_: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller follows the driver's contract.
    unsafe { answer(text, c"no CUDA-capable device is detected") }
}

/// # Safety
/// `text` is null or valid for writing.
unsafe fn answer(text: *mut *const c_char, value: &'static CStr) -> CUresult {
    if text.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, hence valid by contract.
    unsafe { *text = value.as_ptr() };
    CUDA_SUCCESS
}
